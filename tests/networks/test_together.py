"""Many networks in one call compute what each computes alone, and no network's bits depend on its neighbours."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from evo.compiled import cache as kernel_cache
from evo.config import loading
from evo.config.experiment import environment_of
from evo.errors import DeviceError
from evo.learning.tensorflow.setup import start_tensorflow
from evo.networks.network import Network, Options
from evo.records import ActionRule, Episodes, Task, WeightSource
from evo.rollouts.player import make_player
from evo.setup import LearnerOptions
from evo.training.generation import make_algorithm
from evo.workers.gpus import VISIBLE
from evo.workers.placement import NO_GPU
from tests.helpers.calling import summary_of
from tests.helpers.specs import spec

NETWORKS, BOARDS = 5, 32  # boards: odd numbers of values would be computed one by one at their end, with other bits

# Elsewhere TensorFlow adds up the product of a single matrix in another order, and a fingerprint tells the two apart.
SAME_BITS = "+avx512f" in kernel_cache.features().split(",")


@pytest.fixture(scope="module", autouse=True)
def tensorflow() -> Iterator[Any]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv(VISIBLE, NO_GPU)
        yield start_tensorflow(LearnerOptions(threads=1))


@pytest.mark.long
@pytest.mark.parametrize(
    "options",
    [
        {"conv": [[5, 3, 2], [4, 2, 1]], "dense": [6, 7]},
        {"conv": [[5, 4, 3], [4, 3, 2]], "dense": [6], "padding": "valid"},
        {"conv": [[5, 3, 1]], "dense": [], "norm": "layer"},
        {"conv": [[5, 3, 2]], "dense": [6], "activation": "tanh", "norm": "layer"},
        {"conv": [[5, 5, 4]], "dense": [6], "activation": "tanh"},
        {"kind": "mlp", "dense": [7]},
        {"kind": "linear"},
        {"conv": [[5, 3, 2]], "dense": [6], "inference": "tensorflow-bfloat16"},
        {"conv": [[5, 3, 2]], "dense": [6], "embed": "one_hot", "codes": 3},
        {"layers": ["one_hot 2", "norm", "conv 5 3 2", "norm", "max_pool 3 2", "relu", "average_pool 2 2 valid"]},
        {"layers": ["average_pool 3", "tanh", "max_pool 2 1", "conv 4 2", "relu", "dense 6", "norm", "dense 5"]},
        {"layers": ["one_hot 2", "conv 5 3 2", "max_pool 2", "relu"], "inference": "tensorflow-bfloat16"},
    ],
    ids=str,
)
def test_each_network_s_scores_are_those_of_keras(options: dict[str, Any]) -> None:
    from evo.networks.batched import BatchedNetworks
    from evo.networks.keras_form import build_keras, set_weights

    network = Network.build(Options(**options), (11, 11, 5), 3)
    weights = np.random.default_rng(1).normal(0, 0.3, (NETWORKS, network.size)).astype(np.float32)
    observations = np.random.default_rng(2).random((NETWORKS, BOARDS, 11, 11, 5), np.float32)
    if network.layers[0].kind == "one_hot":
        observations = np.floor(observations * 4)
    together, alone = BatchedNetworks(network, NETWORKS, BOARDS), BatchedNetworks(network, 1, BOARDS)
    together.set(weights)
    scores = together(observations)
    model = build_keras(network, network.options.dtype, learns=False)
    for one, theirs, seen in zip(weights, scores, observations, strict=True):
        set_weights(model, network, one)
        close = 0.03 if network.options.dtype == "bfloat16" else 1e-5
        np.testing.assert_allclose(theirs, model(seen), rtol=close, atol=close)
        alone.set(one[None])
        if SAME_BITS:
            np.testing.assert_array_equal(alone(seen[None])[0], theirs)
        else:
            np.testing.assert_allclose(alone(seen[None])[0], theirs, rtol=close, atol=close)
    assert len(np.unique(scores)) > NETWORKS * BOARDS  # they differ at all


@pytest.mark.long
def test_candidates_side_by_side_do_what_they_do_alone_those_that_are_not_finite_included(tmp_path: Path) -> None:
    environment = {"id": "snake", "size": 5, "starvation": 15, "window": 5}
    policy = {"conv": [[4, 3, 2]], "dense": [8], "inference": "tensorflow"}
    count = 7
    minus = np.full(count, -1, np.int32)
    sigmas, rows = np.zeros(count, np.float32), minus.copy()
    rows[3], sigmas[3] = 0, np.inf  # noise without end: not finite
    source = WeightSource(rows, minus, np.arange(3, 3 + count, dtype=np.uint64), sigmas, published="zeros")
    tasks = [
        Task(source, Episodes(np.arange(50, dtype=np.uint64)), how, record_actions=True)  # more episodes than lanes
        for how in (ActionRule(), ActionRule("softmax"))
    ]

    class Zeros:
        def matrix(self, name: str, size: int) -> np.ndarray:
            return np.zeros((1, size), np.float32)

    def play(per_call: int) -> list[Any]:
        context = spec(tmp_path, environment, policy, {"candidates_per_call": per_call}, "tensorflow")
        player = make_player(context, Zeros())
        return [player.play(task) for task in tasks]

    alone = play(1)
    for per_call in (2, 4):
        for result, wanted in zip(play(per_call), alone, strict=True):
            for name in ("returns", "lengths", "episode_metrics", "finite"):
                np.testing.assert_array_equal(getattr(result, name), getattr(wanted, name))
            assert result.frames == wanted.frames == result.lengths.sum()
            for actions, others in zip(result.actions, wanted.actions, strict=True):
                np.testing.assert_array_equal(actions, others)
            assert [len(trace) for trace in result.actions] == result.lengths.ravel().tolist()
            assert result.finite.tolist() == [True] * 3 + [False] + [True] * 3
    assert (alone[0].lengths != alone[1].lengths).any()


def test_auto_plays_every_activation_with_the_exact_kernel(tmp_path: Path) -> None:
    path = tmp_path / "experiment.toml"
    path.write_text("")
    plain, tanh = (loading.load(path, [f'policy.activation="{name}"']) for name in ("relu", "tanh"))
    assert (plain.policy.player, tanh.policy.player) == ("lanes", "lanes")
    assert plain.identity() == loading.load(path).identity()
    assert "activation" not in plain.identity()["policy"]
    assert tanh.identity()["policy"]["activation"] == "tanh"
    path.write_text(tanh.to_toml())
    assert loading.load(path).identity() == tanh.identity()
    assert loading.load(path, ['policy.inference="tensorflow"']).policy.player == "tensorflow"


SEGMENT_END = """
[run]
generations = 2
[environment]
size = 5
window = 5
starvation = 15
[policy]
conv = [[4, 3, 2]]
dense = [8]
inference = "tensorflow"
[workers]
backend = "serial"
candidates_per_call = 32
[validation]
every = 1
episodes = 8
finalists = 2
[test]
every = 9
episodes = 8
[ga]
population = 20
parents = 4
elites = 2
episodes = 4
"""


@pytest.mark.long
def test_how_candidates_are_cut_into_tasks_shows_in_no_result(tmp_path: Path) -> None:
    (tmp_path / "cut.toml").write_text(SEGMENT_END)
    summaries = {}
    for name, sets in (
        ("filled", ()),
        ("16 and 4", ("workers.candidates_per_call=2",)),
        ("three", ("workers.candidates_per_task=3",)),
        ("pairs", ("workers.candidates_per_task=7", "workers.candidates_per_call=2")),
    ):
        words = [word for one in sets for word in ("--set", one)]
        summaries[name] = summary_of(tmp_path, "cut.toml", "--run-dir", name, *words)
    assert summaries["filled"]["state_hash"] == summaries["16 and 4"]["state_hash"]
    weights = {json.loads((tmp_path / name / "champion.json").read_text())["weights_sha256"] for name in summaries}
    assert len(weights) == 1
    assert len({str(summary["champion"]) for summary in summaries.values()}) == 1
    experiment = loading.load(tmp_path / "cut.toml")
    asked = next(make_algorithm(experiment, environment_of(experiment.environment)).generation(0))
    assert [len(task.weights) for task in asked.tasks] == [20]  # as many as a call computes, and not 16 and 4
    experiment = loading.load(tmp_path / "cut.toml", ["policy.inference=lanes"])
    asked = next(make_algorithm(experiment, environment_of(experiment.environment)).generation(0))
    assert [len(task.weights) for task in asked.tasks] == [16, 4]


def test_a_device_whose_bits_depend_on_a_network_s_place_in_a_call_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from evo.networks.batched import BatchedNetworks

    exact = BatchedNetworks.__call__

    def nudged(self: BatchedNetworks, observations: np.ndarray) -> np.ndarray:
        scores = exact(self, observations)
        scores[-1] = np.nextafter(scores[-1], np.float32(9))
        return scores

    context = spec(
        tmp_path, {"id": "snake", "size": 5, "window": 5}, {"inference": "tensorflow"}, {"candidates_per_call": 3},
        "tensorflow",
    )  # fmt: skip
    assert make_player(context).fingerprint
    monkeypatch.setattr(BatchedNetworks, "__call__", nudged)
    with pytest.raises(DeviceError, match=r"by its place among the 3 of a call; set workers\.candidates_per_call = 1"):
        make_player(context)
