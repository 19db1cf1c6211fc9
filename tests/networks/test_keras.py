"""The network in Keras and the TensorFlow player, against the lanes kernel and the compiled rollout."""

from __future__ import annotations

import json
import os
import signal
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest

from evo.config.experiment import Experiment
from evo.evaluators import processes, serial
from evo.kernels import lanes
from evo.learning.tensorflow import start_tensorflow
from evo.networks.network import Network, Options
from evo.records import WORST, ActionRule, Episodes, Task, WeightSource
from evo.setup import LearnerOptions
from evo.workers.hardware import VISIBLE
from evo.workers.placement import NO_GPU
from tests.helpers.calling import small_with, summary_of
from tests.helpers.specs import make, spec


@pytest.fixture(scope="module", autouse=True)
def tensorflow() -> Any:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv(VISIBLE, NO_GPU)
        yield start_tensorflow(LearnerOptions(threads=1))  # which a process decides once, and others learn in this one


def test_the_flat_vector_has_the_order_of_get_weights() -> None:
    from evo.networks.keras_form import build_keras, flat_weights, set_weights

    network = Network.build(Options(conv=[[5, 3, 2], [4, 2, 1]], dense=[6, 7]), (7, 7, 5), 3)
    weights = np.arange(network.size, dtype=np.float32)
    model = build_keras(network)
    set_weights(model, network, weights)
    np.testing.assert_array_equal(flat_weights(model), weights)
    for array, part in zip(model.get_weights(), network.split(weights), strict=True):
        np.testing.assert_array_equal(array, part)


@pytest.mark.parametrize("kind", ["mlp", "linear"])
def test_networks_without_convolutions_take_flat_and_image_observations(kind: str) -> None:
    from evo.networks.keras_form import build_keras, set_weights

    for shape in [(4,), (5, 5, 2)]:
        network = Network.build(Options(kind=kind, dense=[7]), shape, 3)  # type: ignore[arg-type]
        weights = np.random.default_rng(1).normal(size=network.size).astype(np.float32)
        observations = np.random.default_rng(2).random((3, *shape), np.float32)
        model = build_keras(network)
        set_weights(model, network, weights)
        np.testing.assert_allclose(model(observations), lanes.scores(network, weights, observations), rtol=2e-5)


@pytest.mark.long
@pytest.mark.filterwarnings("ignore:__array__ implementation:DeprecationWarning")  # Keras's own, where it saves
def test_layers_in_any_order_are_saved_and_loaded_without_our_code(tmp_path: Path) -> None:
    import keras

    from evo.networks.keras_form import build_keras, set_weights

    texts = ["one_hot 4", "norm", "conv 5 3", "max_pool 2", "tanh", "norm", "average_pool 2", "dense 6", "relu"]
    network = Network.build(Options(layers=texts), (7, 6, 2), 3)
    weights = np.random.default_rng(1).normal(0, 0.5, network.size).astype(np.float32)
    observations = np.random.default_rng(2).integers(-1, 5, (9, 7, 6, 2)).astype(np.float32)
    model = build_keras(network)
    set_weights(model, network, weights)
    model.save(tmp_path / "model.keras")
    loaded = keras.models.load_model(tmp_path / "model.keras")
    for array, part in zip(loaded.get_weights(), network.split(weights), strict=True):
        np.testing.assert_array_equal(array, part)
    np.testing.assert_array_equal(loaded(observations), model(observations))
    np.testing.assert_allclose(loaded(observations), lanes.scores(network, weights, observations), rtol=1e-4, atol=1e-5)


@pytest.mark.long
@pytest.mark.filterwarnings("ignore:__array__ implementation:DeprecationWarning")  # Keras's own, where it saves
def test_a_model_with_memory_is_saved_and_loaded_without_our_code(tmp_path: Path) -> None:
    import keras

    from evo.networks.keras_form import build_keras, set_weights

    network = Network.build(Options(layers=["conv 5 3", "gru 4", "norm", "lstm 3", "tanh"]), (7, 6, 2), 3)
    weights = np.random.default_rng(1).normal(0, 0.5, network.size).astype(np.float32)
    observations = np.random.default_rng(2).normal(size=(9, 7, 6, 2)).astype(np.float32)
    state = np.random.default_rng(3).normal(0, 0.3, (9, network.memory)).astype(np.float32)
    model = build_keras(network)
    set_weights(model, network, weights)
    model.save(tmp_path / "model.keras")
    outputs, after = keras.models.load_model(tmp_path / "model.keras")([observations, state])
    expected = lanes.scores(network, weights, observations, memory=state)
    np.testing.assert_allclose(outputs, expected, rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(after, state, rtol=1e-4, atol=1e-5)


def publish(run_dir: Path, rows: list[np.ndarray]) -> str:
    with h5py.File(run_dir / "parents.h5", "w") as file:
        file.create_dataset("weights", data=np.stack(rows).astype(np.float32))
    return "parents.h5"


def candidates(rows: list[int], keys: list[int], published: str = "") -> WeightSource:
    sigmas = [0.05 if row >= 0 and key else 0.0 for row, key in zip(rows, keys, strict=True)]
    return WeightSource(
        np.array(rows, np.int32), np.full(len(rows), -1, np.int32), np.array(keys, np.uint64),
        np.array(sigmas, np.float32), published=published,
    )  # fmt: skip


SNAKE = {"id": "snake", "size": 6, "starvation": 40, "window": 7}
POLICY = {"conv": [[8, 3, 2]], "dense": [16]}


WHOLE = Task(candidates([-1] * 2, [5, 6]), Episodes(np.arange(40, dtype=np.uint64)))


@pytest.mark.long
def test_the_tensorflow_player_plays_what_the_lanes_kernel_plays(tmp_path: Path) -> None:
    exact_context = spec(tmp_path, SNAKE, POLICY, {"count": 2})
    context = spec(tmp_path, SNAKE, {**POLICY, "inference": "tensorflow"}, {"count": 2}, "tensorflow")
    network = Network.build(Options(**POLICY), (7, 7, 5), 3)
    draw = np.random.default_rng(3)
    good = draw.normal(0, 0.3, network.size)
    published = publish(tmp_path, [good, np.full(network.size, np.nan), np.full(network.size, 1e30), good * 0])
    fresh, seeds = candidates([-1] * 2, [5, 6]), np.arange(40, dtype=np.uint64)  # more than a batch
    tasks = [
        Task(fresh, Episodes(seeds), record_actions=True),
        Task(fresh, Episodes(seeds[:3]), ActionRule("softmax")),
        Task(candidates([0, 0, 1, 2, 3], [0, 9, 0, 0, 0], published), Episodes(seeds)),
    ]
    exact = make(serial, exact_context).map(tasks).results
    pool = make(processes, context)
    try:
        played = pool.map(tasks)
        results, fingerprint = played.results, played.fingerprint
        os.kill(pool.pids[0], signal.SIGKILL)
        again = pool.map(tasks).results
    finally:
        pool.close()
    for result, once_more, reference in zip(results, again, exact, strict=True):
        np.testing.assert_array_equal(result.returns, once_more.returns)
        np.testing.assert_array_equal(result.finite, reference.finite)
        assert (result.returns == reference.returns).mean() > 0.97  # a flip of near-equal scores changes an episode
        assert (result.lengths == reference.lengths).mean() > 0.97
        assert (result.episode_metrics == reference.episode_metrics).mean() > 0.97
        assert result.frames <= result.lane_slots
    assert results[2].finite.tolist() == [True, True, False, False, True]
    assert (results[2].returns[2:4] == WORST).all()
    assert results[0].actions is not None
    assert [len(trace) for trace in results[0].actions] == results[0].lengths.ravel().tolist()
    assert "scores" in fingerprint


@pytest.mark.long
def test_the_tensorflow_player_plays_other_environments_too(tmp_path: Path) -> None:
    environment, policy = {"id": "gymnasium:CartPole-v1"}, {"kind": "mlp", "dense": [16]}
    context = spec(tmp_path, environment, {**policy, "inference": "tensorflow"}, {"count": 1}, "tensorflow")
    tasks = [Task(candidates([-1] * 3, [5, 6, 7]), Episodes(np.arange(40, dtype=np.uint64)), record_actions=True)]
    with make(processes, context) as pool:
        (result,) = pool.map(tasks).results
    (exact,) = make(serial, spec(tmp_path, environment, policy)).map(tasks).results
    assert (result.returns == exact.returns).mean() > 0.97
    assert (result.returns == result.lengths).all()
    assert result.finite.all()


def test_auto_plays_every_activation_with_the_exact_kernel(tmp_path: Path) -> None:
    path = tmp_path / "experiment.toml"
    path.write_text("")
    plain, tanh = (Experiment.load(path, f'policy.activation="{name}"') for name in ("relu", "tanh"))
    assert (plain.policy.player, tanh.policy.player) == ("lanes", "lanes")
    assert plain.identity() == Experiment.load(path).identity()
    assert "activation" not in plain.identity()["policy"]
    assert tanh.identity()["policy"]["activation"] == "tanh"
    path.write_text(tanh.to_toml())
    assert Experiment.load(path).identity() == tanh.identity()
    assert Experiment.load(path, 'policy.inference="tensorflow"').policy.player == "tensorflow"


@pytest.mark.long
def test_how_candidates_are_cut_into_tasks_shows_in_no_result(tmp_path: Path) -> None:
    policy = 'conv = [[4, 3, 2]]\ndense = [8]\ninference = "tensorflow"'
    (tmp_path / "cut.toml").write_text(small_with(run="generations = 2", policy=policy))
    summaries = {
        size: summary_of(
            tmp_path, "cut.toml", "--run-dir", f"cut-{size}", "--set", f"workers.candidates_per_task={size}"
        )
        for size in (0, 3, 7)
    }
    files = [tmp_path / f"cut-{size}" / "champion.json" for size in summaries]
    assert len({json.loads(file.read_text())["weights_sha256"] for file in files}) == 1
    assert len({str(summary["champion"]) for summary in summaries.values()}) == 1
