"""Backpropagation through time: its plain form bit for bit, true derivatives, Keras nearby, whatever computes it."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from evo.algorithms import a2c, ppo, pqn
from evo.errors import ConfigurationError
from evo.learning import hyperparameters as hp
from evo.learning.distributed import make_learner
from evo.learning.exact import plan as plans
from evo.learning.exact.learner import ExactLearner
from evo.learning.exact.plan import BLOCK
from evo.learning.learner import Pieces
from evo.networks.network import Network, Options
from evo.setup import LearnerOptions
from tests.helpers.networks import random_observations
from tests.learning import plain_passes as plain
from tests.learning.test_exact_learner import LOSSES, spoil

UNITS = st.sampled_from((1, 3, 4, 16, 20))


@st.composite
def remembering(draw: st.DrawFn) -> Network:
    """Draw a network with one to three recurrent layers, between others, for an image or a row of numbers."""
    shape = draw(st.sampled_from(((3, 4, 2), (1, 5, 2), (11,), (1,))))
    texts, image = list[str](), len(shape) == 3
    for _ in range(draw(st.integers(1, 3))):
        for _ in range(draw(st.integers(0, 2))):
            kinds = ["norm", "relu", "tanh", f"dense {draw(UNITS)}", *(["conv 3 2 1 same"] if image else [])]
            texts.append(draw(st.sampled_from(kinds)))
            image = image and not texts[-1].startswith("dense")
        texts.append(f"{draw(st.sampled_from(('gru', 'lstm')))} {draw(UNITS)}")
        image = False
    texts += draw(st.lists(st.sampled_from(("norm", "tanh", "relu")), max_size=2))
    return Network.build(Options(layers=texts), shape, draw(st.integers(1, 4)))


def weights_of(network: Network, seed: int) -> NDArray[np.float32]:
    """Return weights as large as fresh ones, with biases and normalisations that are not trivial.  # [P]"""
    noise = np.random.default_rng(seed).standard_normal(network.size).astype(np.float32)
    scale = network.fresh_scale
    weights: NDArray[np.float32] = np.where(scale > 0, noise * scale, noise * np.float32(0.3))
    for name, array in zip(network.names(), network.split(weights), strict=True):
        if name.endswith("gamma"):
            array += 1
    return weights


def learner_of(
    network: Network, count: int, pieces: Pieces, threads: int = 1, seed: int = 3, ends: float = 0.2
) -> tuple[ExactLearner, NDArray[np.float32]]:
    """Return a learner of random targets of random actions, in episodes of random lengths, and the observations."""
    draw, seen = np.random.default_rng(seed), random_observations(network, count, 5, 0.3)
    learner = ExactLearner(network, threads, pqn.PQNLoss(network.actions, False, 0.0), 0.0, pieces)
    learner.begin(weights_of(network, 2))
    begins = draw.random(count) < ends
    memories = draw.normal(size=(count, network.memory)).astype(np.float32) * 0.5
    memories[begins & (draw.random(count) < 0.7)] = 0
    learner.load({
        "observations": seen,
        "actions": draw.integers(0, network.actions, count).astype(np.int32),
        "targets": draw.normal(size=count).astype(np.float32),
        "memories": memories,
        "begins": begins,
    })  # fmt: skip
    return learner, seen


def rows_of(count: int, steps: int) -> NDArray[np.int32]:
    """Return all rows as pieces, of which the last may lack steps."""
    rows = np.arange(-(-count // steps) * steps, dtype=np.int32)
    return np.where(rows < count, rows, -1).astype(np.int32)


def plain_gradient(learner: ExactLearner, seen: NDArray[np.float32], rows: NDArray[np.int32], pieces: Pieces) -> Any:
    """Return the plain form's gradient of all rows, and its outputs."""
    network, data, there = learner.network, learner._data, np.maximum(rows, 0)
    along = plain.Sequences(pieces, data["memories"][there], data["begins"][there])
    found = [one[-1].out[0] for one in plain.passes(network, learner.weights(), seen[there], along)]
    outputs, counts = np.array(found, np.float32), rows >= 0
    counts &= np.arange(len(rows)) % pieces.steps >= pieces.burn_in
    slopes = np.zeros(outputs.shape, np.float32)
    for row in np.flatnonzero(counts):
        action, target = data["actions"][rows[row]], data["targets"][rows[row]]
        slopes[row, action] = -(float(target) - float(outputs[row, action])) / np.count_nonzero(counts)
    return plain.gradient(network, learner.weights(), seen[there], slopes, along), outputs


PIECES = st.sampled_from((Pieces(2), Pieces(4), Pieces(8), Pieces(8, 3), Pieces(2, 1)))


@pytest.mark.long
@settings(suppress_health_check=[HealthCheck.too_slow])
@given(network=remembering(), count=st.integers(1, 17), pieces=PIECES)
def test_a_gradient_through_time_is_that_of_the_plain_form_bit_for_bit(
    network: Network, count: int, pieces: Pieces
) -> None:
    learner, seen = learner_of(network, count, pieces)
    rows = rows_of(count, pieces.steps)
    expected, outputs = plain_gradient(learner, seen, rows, pieces)
    assert learner.outputs(seen.reshape(count, -1), rows).tobytes() == outputs.tobytes()
    values = learner.gradients(rows, {})
    assert learner.gradient.tobytes() == expected.tobytes()
    there = (rows >= 0) & (np.arange(len(rows)) % pieces.steps >= pieces.burn_in)
    chosen = outputs[there, learner._data["actions"][rows[there]]]
    assert values["q_value"].tobytes() == chosen.tobytes()


SEVERAL = Network.build(Options(layers=["dense 7", "tanh", "gru 16", "norm", "relu", "lstm 20", "dense 5"]), (6,), 3)


@pytest.mark.long
@pytest.mark.parametrize("pieces", [Pieces(2), Pieces(32, 5), Pieces(BLOCK)])
def test_blocks_groups_threads_and_kept_kernels_change_no_bit(monkeypatch: pytest.MonkeyPatch, pieces: Pieces) -> None:
    count = 2 * BLOCK + 70
    rows = rows_of(count, pieces.steps)
    learner, seen = learner_of(SEVERAL, count, pieces)
    expected, outputs = plain_gradient(learner, seen, rows, pieces)
    learner.gradients(rows, {})
    assert learner.gradient.tobytes() == expected.tobytes()
    for group_floats, kept, threads in ((1, 1, 2), (1 << 20, 1, 3), (1, 1 << 40, 1)):
        monkeypatch.setattr(plans, "GROUP_FLOATS", group_floats)
        monkeypatch.setattr(plans, "KEPT", kept)
        other, _ = learner_of(SEVERAL, count, pieces, threads)
        assert other._plan.group == (BLOCK if group_floats > 1 else pieces.steps)
        for _ in range(2):
            other.gradients(rows, {})
            assert other.gradient.tobytes() == expected.tobytes()
            assert other.outputs(seen.reshape(count, -1), rows).tobytes() == outputs.tobytes()
            for workspace in other._threads.workspaces:
                spoil(other, workspace)
        other.close()


@pytest.mark.long
@pytest.mark.parametrize("compiled", [False, pytest.param(True, marks=pytest.mark.long)])  # for twenty seconds
@settings(suppress_health_check=[HealthCheck.too_slow])
@given(network=remembering(), seed=st.integers(0, 9))
def test_a_gradient_through_time_is_the_true_derivative(network: Network, seed: int, compiled: bool) -> None:
    pieces, count = Pieces(8), 16
    learner, seen = learner_of(network, count, pieces, ends=0.1)
    data, rows, weights = learner._data, rows_of(count, 8), learner.weights().astype(np.float64)
    if compiled:
        learner.gradients(rows, {})
    gradient = learner.gradient if compiled else plain_gradient(learner, seen, rows, pieces)[0]
    away = np.random.default_rng(seed).normal(size=network.size) / np.sqrt(network.size)
    along = plain.Sequences(pieces, data["memories"].astype(np.float64), data["begins"])

    def loss(by: float) -> float:
        passed = plain.passes(network, weights + by * away, seen.astype(np.float64), along)
        chosen = np.array([one[-1].out[0][action] for one, action in zip(passed, data["actions"], strict=True)])
        return float(0.5 * np.square(data["targets"] - chosen).mean())

    slopes = [(loss(by) - loss(-by)) / (2 * by) for by in (1e-6, 2e-6)]
    if abs(slopes[0] - slopes[1]) > 1e-4 * (1 + abs(slopes[0])):
        return  # a corner of a ReLU lies between
    assert abs(gradient @ away - slopes[0]) < 2e-3 * (1 + np.linalg.norm(gradient))


def test_pieces_are_asked_for_or_those_of_the_horizon() -> None:
    for options, expected in (
        (ppo.Options(horizon=24), Pieces(16)),
        (a2c.Options(horizon=1000), Pieces(32)),
        (pqn.Options(horizon=1, envs=20), Pieces(1)),
        (ppo.Options(bptt=128, burn_in=9), Pieces(128, 9)),
    ):
        assert hp.pieces_of(options, SEVERAL) == expected
        assert hp.pieces_of(options, Network.build(Options(kind="linear"), (6,), 3)) is None
    assert "bptt" not in ppo.Options().model_dump()
    with pytest.raises(ConfigurationError, match="burn_in: 8 of 8 steps"):
        hp.pieces_of(ppo.Options(bptt=8, burn_in=8), SEVERAL)
    with pytest.raises(ValueError, match="not a power of two"):
        ppo.Options(bptt=12)


def test_states_of_another_network_and_parts_of_pieces_are_refused() -> None:
    learner, seen = learner_of(SEVERAL, 8, Pieces(4))
    with pytest.raises(ValueError, match="memories: 3 numbers, where the network's state has 56"):
        learner.load({**learner._data, "observations": seen, "memories": np.zeros((8, 3), np.float32)})
    with pytest.raises(ValueError, match="rows: 6, no whole pieces of 4 steps"):
        learner.update(np.arange(6, dtype=np.int32), 0.1, {})


def test_tensorflow_refuses_a_network_with_memory_in_one_line() -> None:
    options = LearnerOptions(arithmetic="tensorflow")
    with pytest.raises(ConfigurationError, match=r"learner\.arithmetic: TensorFlow learns no networks with memory"):
        make_learner(SEVERAL, options, pqn.PQNLoss(3, False, 0.0), 0.0, Pieces(4))


@pytest.fixture(scope="module")
def tensorflow() -> Any:
    from evo.learning.tensorflow import start_tensorflow

    return start_tensorflow(LearnerOptions(threads=1))


class KerasForm:
    """Layers of a network as Keras has them, recurrent ones as cells that are called step by step."""

    def __init__(self, network: Network, weights: NDArray[np.float32]) -> None:
        import keras
        import tensorflow as tf

        self.network, self.variables, self._calls = network, list[Any](), list[Any]()
        arrays = iter(network.split(weights))
        for layer in network.layers:
            own = {name: tf.Variable(next(arrays)) for name in layer.arrays}
            if layer.gates:
                cell = (keras.layers.GRUCell if layer.kind == "gru" else keras.layers.LSTMCell)(layer.filters)
                cell.build((None, layer.channels))
                for name, array in own.items():
                    getattr(cell, name).assign(array)
                    own[name] = getattr(cell, name).value
            self._calls.append(cell if layer.gates else own)
            self.variables += own.values()

    def step(self, x: Any, states: list[Any]) -> tuple[Any, list[Any]]:
        """Return outputs [1, O], and the states behind a step."""
        import tensorflow as tf

        after, left = list[Any](), list(states)
        for layer, call in zip(self.network.layers, self._calls, strict=True):
            if layer.gates:
                x, found = call(x, [left.pop(0) for _ in range(layer.memory // layer.filters)])
                after += found if isinstance(found, list | tuple) else [found]
            else:
                x = x @ call["kernel"] + call["bias"]
            x = getattr(tf.nn, layer.activation)(x) if layer.activation else x
        return x, after

    def split(self, state: NDArray[np.float32]) -> list[Any]:
        """Return the states of the layers of one of the network.  # [S] -> [1, U] each"""
        import tensorflow as tf

        sizes = [layer.filters for layer in self.network.layers for _ in range(layer.memory // layer.filters)]
        return [tf.constant(part[None]) for part in np.split(state, np.cumsum(sizes)[:-1])]


@pytest.mark.long
@pytest.mark.parametrize("burn_in", [0, 2])
@pytest.mark.parametrize("name", ["ppo", "a2c, masked", "pqn, squared"])
def test_gradients_of_every_loss_are_those_of_keras_but_for_rounding(name: str, burn_in: int, tensorflow: Any) -> None:
    tf = tensorflow
    _, loss, batch, numbers = LOSSES[name]
    layers = ["dense 6", "tanh", "gru 7", "relu", "lstm 5"]
    network = Network.build(Options(layers=layers), (4,), 3, 0 if "pqn" in name else 1)
    pieces, count = Pieces(4, burn_in), 12
    draw = np.random.default_rng(4)
    data = {
        "observations": random_observations(network, count, 6),
        "memories": draw.normal(size=(count, network.memory)).astype(np.float32) * np.float32(0.5),
        "begins": draw.random(count) < 0.3,
        **batch(count),
    }
    learner = ExactLearner(network, 1, loss, 0.0, pieces)
    learner.begin(weights_of(network, 2))
    learner.load(data)
    values = learner.gradients(np.arange(count, dtype=np.int32), numbers)

    form, outputs = KerasForm(network, learner.weights()), []
    with tf.GradientTape() as tape:
        for row in range(count):
            if row % pieces.steps == 0 or data["begins"][row]:
                states = form.split(data["memories"][row])
            if row % pieces.steps == burn_in:
                states = [tf.stop_gradient(state) for state in states]
            found, states = form.step(data["observations"][row][None], states)
            outputs.append(found)
        rows = np.flatnonzero(np.arange(count) % pieces.steps >= burn_in)
        chosen = {key: tf.constant(array[rows]) for key, array in data.items()}
        expected = loss(tf.gather(tf.concat(outputs, 0), rows), chosen, {k: tf.constant(v) for k, v in numbers.items()})
        total = tf.reduce_mean(expected["loss"])
    gradient = np.concatenate([np.ravel(one) for one in tape.gradient(total, form.variables)])
    np.testing.assert_allclose(learner.gradient, gradient, rtol=1e-3, atol=2e-5)
    np.testing.assert_allclose(values["loss"], expected["loss"], rtol=1e-4, atol=1e-5)
