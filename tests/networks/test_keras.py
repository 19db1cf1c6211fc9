"""The network in Keras and the TensorFlow player, against the lanes kernel and the compiled rollout."""

from __future__ import annotations

import os
import signal
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest

from evo.evaluators import processes, serial
from evo.kernels import lanes
from evo.learning.tensorflow.setup import start_tensorflow
from evo.networks.candidates import Rebuilder
from evo.networks.network import Network, Options
from evo.records import WORST, ActionRule, Episodes, Task, WeightSource
from evo.rollouts.player import RunSpec, make_player
from evo.setup import LearnerOptions
from evo.workers.gpus import VISIBLE
from evo.workers.placement import NO_GPU
from tests.helpers.specs import make, spec

STRIDED = [  # rows and columns, side of the kernel, stride, padding, channels, filters
    ((10, 10), 3, 2, "SAME", 16, 32),
    ((19, 19), 3, 2, "SAME", 5, 16),
    ((10, 7), 3, 2, "VALID", 4, 8),
    ((11, 8), 5, 3, "SAME", 2, 3),
    ((11, 11), 5, 3, "VALID", 2, 3),
    ((12, 12), 4, 4, "SAME", 2, 3),  # no two strides share an input
    ((9, 9), 1, 2, "SAME", 2, 3),  # most inputs are never looked at
    ((13, 13), 2, 3, "VALID", 2, 3),
]


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


@pytest.mark.parametrize(("size", "side", "stride", "padding", "channels", "filters"), STRIDED)
def test_the_gradient_of_a_strided_convolutions_input_is_that_of_tensorflows_convolution(
    size: tuple[int, int], side: int, stride: int, padding: str, channels: int, filters: int
) -> None:
    import tensorflow as tf

    from evo.networks.strided import input_gradient

    draws = np.random.default_rng(1)
    kernel = tf.constant(draws.integers(-3, 4, (side, side, channels, filters)), tf.float32)  # no sum is rounded
    outputs = tf.nn.conv2d(tf.zeros((2, *size, channels)), kernel, stride, padding).shape
    of_outputs = tf.constant(draws.integers(-3, 4, outputs), tf.float32)
    own = tf.raw_ops.Conv2DBackpropInput(
        input_sizes=(2, *size, channels), filter=kernel, out_backprop=of_outputs,
        strides=(1, stride, stride, 1), padding=padding,
    )  # fmt: skip
    assert np.array_equal(input_gradient(of_outputs, kernel, size, stride, padding), own)


def test_a_network_of_strided_convolutions_in_bfloat16_has_the_outputs_and_gradients_of_kerass_own() -> None:
    import keras
    import tensorflow as tf

    from evo.networks.keras_form import build_keras, set_weights
    from evo.networks.strided import conv_layer

    network = Network.build(Options(conv=[[4, 3, 2], [8, 3, 2]], dense=[16], padding="same"), (19, 19, 3), 4)
    ours = build_keras(network, "bfloat16")
    assert [type(layer) for layer in ours.layers].count(conv_layer()) == 2

    def plain(layer: keras.Layer) -> keras.Layer:
        kind = keras.layers.Conv2D if isinstance(layer, conv_layer()) else type(layer)
        return kind.from_config(layer.get_config())

    keras_own = keras.models.clone_model(ours, clone_function=plain)
    weights = np.random.default_rng(3).normal(0, 0.1, network.size).astype(np.float32)
    for model in (ours, keras_own):
        set_weights(model, network, weights)
    seen = tf.constant(np.random.default_rng(1).random((32, 19, 19, 3)) < 0.1, tf.float32)
    found = []
    for model in (ours, keras_own):
        with tf.GradientTape() as tape:
            outputs = model(seen)
            loss = tf.reduce_sum(tf.square(outputs - 1.0))
        found.append([np.asarray(array) for array in (outputs, *tape.gradient(loss, model.trainable_variables))])
    for one, other in zip(*found, strict=True):
        assert np.abs(other).max() > 0
        np.testing.assert_allclose(one, other, atol=0.02 * np.abs(other).max())  # bfloat16 has eight bits


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
def test_bfloat16_is_played_by_rounded_weights_alike_in_every_process_and_close_to_the_exact_kernel(
    tmp_path: Path,
) -> None:
    def context(inference: str) -> RunSpec:
        return spec(tmp_path, SNAKE, {**POLICY, "inference": inference}, {"count": 1}, "tensorflow")

    rounded, single = make_player(context("tensorflow-bfloat16")), make_player(context("tensorflow"))
    (exact,) = make(serial, spec(tmp_path, SNAKE, POLICY)).map([WHOLE]).results
    results = [player.play(WHOLE) for player in (rounded, single)]
    assert (results[0].lengths == exact.lengths).mean() > 0.8
    assert rounded.fingerprint != single.fingerprint
    network = Network.build(Options(**POLICY), (7, 7, 5), 3)
    observations = np.random.default_rng(4).random((8, 7, 7, 5), np.float32)
    scores = rounded.score(observations)  # type: ignore[attr-defined]
    weights = np.empty(network.size, np.float32)
    Rebuilder(network).rebuild(np.empty((0, network.size), np.float32), WHOLE.weights, 1, weights)
    wanted = lanes.scores(network, weights, observations)
    assert 0 < np.abs(scores - wanted).max() < 0.05 * np.abs(wanted).max()
    with make(processes, context("tensorflow-bfloat16")) as pool:
        played = pool.map([WHOLE])
    (again,) = played.results
    np.testing.assert_array_equal(again.lengths, results[0].lengths)
    assert played.fingerprint == rounded.fingerprint


@pytest.mark.long
def test_the_tensorflow_player_plays_other_environments_too(tmp_path: Path) -> None:
    environment, policy = {"id": "gymnasium:CartPole-v1"}, {"kind": "mlp", "dense": [16]}
    context = spec(tmp_path, environment, {**policy, "inference": "tensorflow"}, {"count": 1}, "tensorflow")
    tasks = [Task(candidates([-1] * 3, [5, 6, 7]), Episodes(np.arange(40, dtype=np.uint64)), record_actions=True)]
    with make(processes, context) as pool:
        (result,) = pool.map(tasks).results
    (exact,) = make(serial, spec(tmp_path, environment, policy)).map(tasks).results
    assert (result.returns == exact.returns).mean() > 0.97
    assert (result.returns == 1000 * result.lengths).all()
    assert result.finite.all()
