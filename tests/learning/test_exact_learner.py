"""The exact learner: its plain form bit for bit, true derivatives, TensorFlow nearby, one hash whatever computes."""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
import time
from typing import Any

import numba
import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from evo.algorithms import dqn, ppo, pqn
from evo.algorithms.a2c import PolicyGradientLoss
from evo.compiled import exact
from evo.compiled.functions import integer_power
from evo.errors import ResourceError
from evo.kernels import lanes
from evo.learning.exact import passes
from evo.learning.exact import plan as plans
from evo.learning.exact.learner import ExactLearner
from evo.learning.exact.plan import BLOCK, plan
from evo.learning.exact.weights import step
from evo.learning.learner import BETAS, EPSILON, ActionValueLoss, PolicyLoss
from evo.networks.network import Network, Options
from tests.helpers.networks import layered, networks, random_observations, random_weights
from tests.helpers.sampling import sampled
from tests.learning import plain_passes as plain

SMALL = Network.build(Options(conv=[[5, 3, 2]], dense=[9]), (5, 6, 3), 3, 1)
TINY = Network.build(Options(kind="mlp", dense=[3]), (4,), 2)
COEFFICIENTS = {"entropy_coefficient": 0.03, "value_coefficient": 0.7}
POLICY = {**COEFFICIENTS, "clip_range": 0.2, "value_clip_range": 0.3}
SQUARED = {"dueling": False, "huber_delta": 0.0}


def regression(network: Network, observations: NDArray[np.float32], threads: int = 1) -> ExactLearner:
    """Return a learner of random targets of random actions."""
    draw = np.random.default_rng(3)
    learner = ExactLearner(network, threads, pqn.PQNLoss(network.actions, **SQUARED))
    learner.begin(random_weights(network, 2))
    count = len(observations)
    learner.load({
        "observations": observations,
        "actions": draw.integers(0, network.actions, count).astype(np.int32),
        "targets": draw.normal(size=count).astype(np.float32),
    })  # fmt: skip
    return learner


def squared_slopes(outputs: NDArray[Any], learner: ExactLearner) -> NDArray[np.float32]:
    """Return the derivatives of half the mean squared error by the outputs.  # [B, O]"""
    slopes, data = np.zeros(outputs.shape, np.float32), learner._data
    for row, (action, target) in enumerate(zip(data["actions"], data["targets"], strict=True)):
        slopes[row, action] = -(float(target) - float(outputs[row, action])) / len(outputs)
    return slopes


def seen_by(network: Network, count: int, zeros: float = 0.5) -> NDArray[np.float32]:
    seen = random_observations(network, count, 5, zeros)
    return np.abs(np.rint(seen)) if network.layers[0].kind == "one_hot" else seen


@settings(suppress_health_check=[HealthCheck.too_slow])
@given(network=st.one_of(networks(), layered()), count=st.integers(1, 9))
def test_a_gradient_is_that_of_the_plain_form_bit_for_bit(network: Network, count: int) -> None:
    seen = seen_by(network, count)
    learner = regression(network, seen)
    outputs = learner.outputs(seen.reshape(count, -1), np.arange(count, dtype=np.int32))
    assert (outputs == lanes.scores(network, learner.weights(), seen)).all()  # those with which the network plays
    learner.gradients(np.arange(count, dtype=np.int32), {})
    expected = plain.gradient(network, learner.weights(), seen, squared_slopes(outputs, learner))
    assert learner.gradient.tobytes() == expected.tobytes()


WHOLE = {  # filters that are whole vectors, and numbers of terms that are not
    "convolutions": Options(conv=[[16, 3, 1], [32, 2, 1]], dense=[48], padding="valid"),
    "normalised": Options(conv=[[32, 2, 1]], dense=[16, 16], norm="layer", padding="same"),
    "dense": Options(kind="mlp", dense=[48, 16]),
}


@pytest.mark.parametrize("count", [1, BLOCK + 1])
@pytest.mark.parametrize("name", sampled(WHOLE, *range(3)))
def test_layers_of_whole_vectors_have_the_plain_gradient_twice(name: str, count: int) -> None:
    network = Network.build(WHOLE[name], (5, 6, 3), 16, 0)
    seen, rows = random_observations(network, count, 5), np.arange(count, dtype=np.int32)
    learner = regression(network, seen, 2)
    expected = plain.gradient(
        network, learner.weights(), seen, squared_slopes(learner.outputs(seen.reshape(count, -1), rows), learner)
    )
    for _ in range(2):
        learner.gradients(rows, {})
        assert learner.gradient.tobytes() == expected.tobytes()
        for used in (*learner._spare, learner._unpacked):
            used[:] = np.nan  # the next batch reads nothing of what is left here
    learner.close()


def spoil(learner: ExactLearner, workspace: plans.Workspace) -> None:
    """Overwrite all that an update left, of which the next one reads nothing; padding stays zero."""
    inputs = np.zeros(len(workspace.floats), np.bool_)
    for layer in learner._plan.layers:
        if not layer["kept"]:
            begin = int(layer["input"])
            inputs[begin : begin + learner._plan.group * int(layer["input_size"])] = True
    workspace.floats[~inputs] = np.nan
    workspace.words[:] = np.uint64(0xFFFFFFFFFFFFFFFF)
    for used in (workspace.turned, workspace.columns, *learner._spare, learner._unpacked):
        used[:] = np.nan


@pytest.mark.parametrize("group", [1, 64])
@pytest.mark.parametrize("count", [1, 9, BLOCK, 2 * BLOCK + 3])
@pytest.mark.parametrize("name", WHOLE)
def test_kernels_of_a_whole_block_have_the_gradient_of_those_of_a_group(
    monkeypatch: pytest.MonkeyPatch, name: str, count: int, group: int
) -> None:
    network = Network.build(WHOLE[name], (5, 6, 3), 3, 0)
    seen, rows = random_observations(network, count, 5), np.arange(count, dtype=np.int32)
    monkeypatch.setattr(plans, "GROUP_FLOATS", 1 if group == 1 else plans.GROUP_FLOATS)
    found = []
    for least in (1 << 40, 1):
        monkeypatch.setattr(plans, "KEPT", least)
        learner = regression(network, seen, 2)
        assert learner._plan.group == group
        assert (learner._plan.layers["kept"] > 0).any() == (least == 1)
        learner.gradients(rows, {})
        found.append(learner.gradient.tobytes())
        for workspace in learner._threads.workspaces:
            spoil(learner, workspace)
        learner.gradients(rows[:5], {})
        found += learner.gradient.tobytes(), learner.outputs(seen.reshape(count, -1), rows).tobytes()
        learner.close()
    assert found[:3] == found[3:]


@settings(suppress_health_check=[HealthCheck.too_slow])
@given(network=st.one_of(networks(), layered()), count=st.integers(1, 4), seed=st.integers(0, 9))
def test_a_gradient_is_the_true_derivative(network: Network, count: int, seed: int) -> None:
    seen, weights = seen_by(network, count, 0.0), random_weights(network, 2).astype(np.float64)
    learner = regression(network, seen)
    learner.gradients(np.arange(count, dtype=np.int32), {})
    away = np.random.default_rng(seed).normal(size=network.size) / np.sqrt(network.size)

    def loss(by: float) -> float:
        total = 0.0
        for row, (action, target) in enumerate(zip(learner._data["actions"], learner._data["targets"], strict=True)):
            outputs = plain.forward(network, weights + by * away, seen[row].astype(np.float64))[-1].out[0]
            total += 0.5 * (float(target) - outputs[action]) ** 2 / count
        return total

    slopes = [(loss(by) - loss(-by)) / (2 * by) for by in (1e-6, 2e-6)]
    if abs(slopes[0] - slopes[1]) > 1e-4 * (1 + abs(slopes[0])):
        return  # a corner of a ReLU or of a pool lies between
    size = np.linalg.norm(learner.gradient)
    assert abs(learner.gradient @ away - slopes[0]) < 2e-3 * (1 + size)


@pytest.mark.parametrize("count", [1, BLOCK - 1, BLOCK, BLOCK + 1, 4 * BLOCK + 3, 7 * BLOCK])
def test_blocks_are_added_in_pairs_whatever_the_threads(count: int) -> None:
    seen = random_observations(TINY, count, 5)
    learner = regression(TINY, seen)
    rows = np.arange(count, dtype=np.int32)
    learner.gradients(rows, {})
    outputs = learner.outputs(seen.reshape(count, -1), rows)
    expected = plain.gradient(TINY, learner.weights(), seen, squared_slopes(outputs, learner))
    assert learner.gradient.tobytes() == expected.tobytes()
    for threads in (2, 3, 7):
        for least in (1.0, 2.0, learner._least):
            other = regression(TINY, seen, threads)
            other._least = least
            other.gradients(rows, {})
            assert other.gradient.tobytes() == expected.tobytes()
            assert other.outputs(seen.reshape(count, -1), rows).tobytes() == outputs.tobytes()
            other.close()


def test_a_thread_that_is_late_and_a_loss_that_fails_hold_nobody_up(monkeypatch: pytest.MonkeyPatch) -> None:
    seen = random_observations(TINY, 64 * BLOCK, 5)
    rows = np.arange(len(seen), dtype=np.int32)
    expected, learner = regression(TINY, seen), regression(TINY, seen, 2)
    learner._least = 1.0  # else one thread has all
    expected.gradients(rows, {})
    late, real = [0.3, 0.0, 0.2], learner._sums

    def sums(levels: int) -> NDArray[np.float32]:
        time.sleep(late.pop() if late else 0.0)
        return real(levels)

    monkeypatch.setattr(learner, "_sums", sums)
    learner.gradients(rows, {})
    assert learner.gradient.tobytes() == expected.gradient.tobytes()
    assert len(learner._spare) < 20
    late += ["not a number"]  # type: ignore[list-item]
    with pytest.raises(TypeError):
        learner.gradients(rows, {})

    def lost(levels: int) -> NDArray[np.float32]:
        raise IndexError("of the work itself")

    for failing in (learner, expected):
        monkeypatch.setattr(failing, "_sums", lost)
        with pytest.raises(IndexError, match="of the work itself"):
            failing.gradients(rows, {})
        monkeypatch.undo()
        failing._threads.workspaces.clear()  # as an interrupt may leave it
    learner.gradients(rows, {})
    assert learner.gradient.tobytes() == expected.gradient.tobytes()
    learner.close()


def test_examples_that_do_not_fit_are_refused_before_compiled_code_reads_them() -> None:
    seen, rows = random_observations(SMALL, 5, 5), np.arange(5, dtype=np.int32)
    for changed, told in (
        ({"actions": np.full(5, 3, np.int32)}, "0 to 2"),
        ({"actions": np.full(5, -1, np.int32)}, "0 to 2"),
        ({"targets": np.zeros(4, np.float32)}, "targets: 4 of 5"),
        ({"observations": seen[:, 1:]}, "observations of 72"),
        ({"action_masks": np.ones((5, 2), np.int8)}, "action_masks: of shape"),
    ):
        learner = regression(SMALL, seen)
        with pytest.raises(ValueError, match=told):
            learner.load({**learner._data, "observations": seen, **changed})
    for wrong in (rows[:0], rows - 1, rows + 1):
        with pytest.raises(ValueError, match="of the 5 examples"):
            regression(SMALL, seen).update(wrong, 0.1, {})


def policy_batch(count: int, masks: bool = False, dimensions: int = 0) -> dict[str, NDArray[Any]]:
    draw = np.random.default_rng(7)
    batch: dict[str, NDArray[Any]] = {
        name: draw.normal(size=count).astype(np.float32) for name in ("advantages", "returns", "values")
    }
    batch["actions"] = draw.integers(0, 3, count).astype(np.int32)
    batch["log_probabilities"] = np.full(count, -1.1, np.float32)
    if dimensions:
        batch["actions"] = draw.normal(size=(count, dimensions)).astype(np.float32)
        batch["log_probabilities"] -= 1
    if masks:
        batch["action_masks"] = draw.random((count, 3)) < 0.6
        batch["action_masks"][np.arange(count), batch["actions"]] = True
    return batch


def q_batch(count: int) -> dict[str, NDArray[Any]]:
    draw, allowed = np.random.default_rng(8), policy_batch(count, masks=True)
    return {
        "actions": allowed["actions"],
        "n_step_rewards": allowed["returns"],
        "targets": allowed["returns"],
        "discounts": draw.random(count).astype(np.float32),
        "next_observations": draw.normal(size=(count, *SMALL.shape)).astype(np.float32),
        "next_action_masks": allowed["action_masks"].astype(np.int8),
        "importance_weights": draw.random(count).astype(np.float32),
    }


CONTINUOUS = Network.build(Options(kind="mlp", dense=[8], activation="tanh"), (5,), 2, 3)
NORMED = Network.build(Options(conv=[[6, 2, 1]], dense=[10], norm="layer", padding="valid"), (5, 6, 3), 3, 1)
LOSSES: dict[str, tuple[Network, PolicyLoss | ActionValueLoss, Any, dict[str, float]]] = {
    "ppo": (SMALL, ppo.PPOLoss(3), policy_batch, POLICY),
    "ppo, values not clipped": (NORMED, ppo.PPOLoss(3), policy_batch, {**POLICY, "value_clip_range": 0.0}),
    "a2c, masked": (SMALL, PolicyGradientLoss(3), lambda count: policy_batch(count, masks=True), COEFFICIENTS),
    "continuous": (CONTINUOUS, ppo.PPOLoss(2, True), lambda count: policy_batch(count, dimensions=2), POLICY),
    "pqn": (NORMED, pqn.PQNLoss(3, True, 1.0), q_batch, {}),
    "pqn, squared": (SMALL, pqn.PQNLoss(3, False, 0.0), q_batch, {}),
    "dqn": (SMALL, dqn.DQNLoss(3, True, 0.5, True), q_batch, {}),
    "dqn, neither double nor dueling": (SMALL, dqn.DQNLoss(3, False, 0.5, False), q_batch, {}),
}


some_losses = pytest.mark.parametrize("name", sampled(LOSSES, *map(list(LOSSES).index, ("ppo", "dqn"))))


@some_losses
def test_updates_are_those_of_tensorflow_but_for_rounding(name: str, tensorflow: Any) -> None:
    from evo.learning.tensorflow.learner import TensorFlowLearner
    from evo.setup import LearnerOptions

    network, loss, batch, numbers = LOSSES[name]
    count, weights = 70, random_weights(network, 4)
    data = {"observations": random_observations(network, count, 6), **batch(count)}
    rows = np.random.default_rng(1).permutation(count).astype(np.int32)[:-3]
    ended = []
    for learner in (
        ExactLearner(network, 1, loss, 0.5),
        TensorFlowLearner(network, LearnerOptions(threads=1), loss, 0.5),
    ):
        learner.begin(weights)
        if learner.has_target:
            learner.set_target(weights * np.float32(0.9))
        learner.load(data)
        for _ in range(3):
            values = learner.update(rows, 1e-3, numbers)
            if learner.has_target:
                learner.update_target(0.1, 0)
        target = learner.target_weights() if learner.has_target else weights
        ended.append({**values, "weights": learner.weights() - weights, "target": target - weights})
    ours, theirs = ended
    assert ours.keys() - theirs.keys() <= {"clip_fraction"}  # of a loss that is not clipped
    for key, value in theirs.items():
        np.testing.assert_allclose(ours[key], value, rtol=2e-4, atol=3e-6, err_msg=key)


@some_losses
def test_warming_up_compiles_what_updates_call_and_changes_none(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    network, loss, batch, numbers = LOSSES[name]
    types, ended = set(), []

    def noted(*arguments: Any) -> None:
        types.add(tuple(map(numba.typeof, arguments)))
        passes.gradients_of(*arguments)

    monkeypatch.setattr("evo.learning.exact.learner.gradients_of", noted)
    for warm in (True, False):
        learner = ExactLearner(network, 1, loss, 0.5)
        if warm:
            learner.warm_up()
        learner.begin(random_weights(network, 4))
        if learner.has_target:
            learner.set_target(random_weights(network, 3))
        learner.load({"observations": random_observations(network, 5, 6), **batch(5)})
        learner.update(np.arange(5, dtype=np.int32), 1e-3, numbers)
        ended.append(learner.state())
    assert len(types) == 1
    assert all(np.array_equal(ended[0][key], ended[1][key]) for key in ended[1])


@pytest.fixture(scope="module")
def tensorflow() -> Any:
    from evo.learning.tensorflow import start_tensorflow
    from evo.setup import LearnerOptions

    return start_tensorflow(LearnerOptions(threads=1))


def test_adam_is_the_papers_after_the_gradient_is_clipped() -> None:
    seen = random_observations(SMALL, 9, 5)
    learner, rows = regression(SMALL, seen), np.arange(9, dtype=np.int32)
    learner._max_norm = np.float32(0.01)
    weights, first, second = learner.weights().astype(np.float64), 0.0, 0.0
    for update in range(1, 4):
        norm = learner.update(rows, 0.01, {})["gradient_norm"][0]
        gradient = learner.gradient.astype(np.float64)
        assert norm == pytest.approx(np.linalg.norm(gradient), rel=1e-6)
        gradient *= 0.01 / norm
        first, second = BETAS[0] * first + (1 - BETAS[0]) * gradient, BETAS[1] * second + (1 - BETAS[1]) * gradient**2
        rate = 0.01 * np.sqrt(1 - BETAS[1] ** update) / (1 - BETAS[0] ** update)
        weights -= rate * first / (np.sqrt(second) + EPSILON)
        np.testing.assert_allclose(learner.weights(), weights, rtol=1e-4, atol=1e-6)


def test_moments_of_weights_without_a_gradient_fade_to_zero_not_to_subnormal_numbers() -> None:
    weights, moments = np.ones(2, np.float32), np.full((2, 2), 2e-30, np.float32)
    for _ in range(1000):
        step(weights, moments[0], moments[1], np.zeros(2, np.float32), np.float32(1), np.float32(1e-3))
    assert not moments.any()


def test_a_state_goes_on_as_if_nothing_had_happened() -> None:
    seen, rows = random_observations(SMALL, 30, 5), np.arange(30, dtype=np.int32)
    straight, resumed = regression(SMALL, seen), regression(SMALL, seen)
    straight.update(rows, 0.01, {})
    resumed.restore(straight.state())
    for learner in (straight, resumed):
        learner.update(rows[:7], 0.01, {})
    assert all(np.array_equal(straight.state()[name], resumed.state()[name]) for name in straight.state())


@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_a_loss_that_is_not_finite_ends_learning_with_a_line(bad: float) -> None:
    seen = random_observations(SMALL, 9, 5)
    seen[4, 2, 2, 1] = bad
    with pytest.raises(ResourceError, match="of update 1 is not finite"):
        regression(SMALL, seen).update(np.arange(9, dtype=np.int32), 0.01, {})


def test_a_load_that_is_refused_changes_nothing() -> None:
    seen = seen_by(SMALL, 9)
    learner, rows = regression(SMALL, seen), np.arange(9, dtype=np.int32)
    before = learner.gradients(rows, {})["loss"]
    actions, targets = np.full(5, SMALL.actions, np.int32), np.zeros(5, np.float32)
    with pytest.raises(ValueError, match="actions: not all are of"):
        learner.load({"observations": seen[:5], "actions": actions, "targets": targets})
    np.testing.assert_array_equal(learner.gradients(rows, {})["loss"], before)


def test_a_network_of_any_size_has_buffers_of_some_megabytes() -> None:
    large = Network.build(Options(preset="seed"), (20, 20, 1), 3, 1)
    assert plan(large).floats * 4 < 8 << 20
    assert not plan(Network.build(Options(preset="seed"), (64, 64, 1), 3, 1)).layers["kept"].any()  # inputs: 400 MB
    assert plan(TINY).group == 64


PROGRAM = """
import numpy as np
from tests.learning import test_exact_learner as tests
print(tests.digest(int(__import__("sys").argv[1])))
"""


def digest(threads: int) -> str:
    """Return a hash of some updates of every loss."""
    found = hashlib.sha256()
    for network, loss, batch, numbers in LOSSES.values():
        learner = ExactLearner(network, threads, loss, 0.5)
        learner.begin(random_weights(network, 4))
        learner.load({"observations": random_observations(network, 300, 6, 0.3), **batch(300)})
        for _ in range(2):
            for values in learner.update(np.arange(300, dtype=np.int32), 1e-3, numbers).values():
                found.update(values.tobytes())
            if learner.has_target:
                learner.update_target(0.1, 0)
        found.update(b"".join(array.tobytes() for array in learner.state().values()))
        learner.close()
    return found.hexdigest()[:16]


@pytest.mark.long
@pytest.mark.parametrize(
    "features", ["", "generic", "-avx512f,-avx512vl,-avx512bw,-avx512dq,-fma", "+sse4.2,-avx"], ids=str
)
def test_no_instruction_set_and_no_number_of_threads_changes_a_bit(features: str) -> None:
    told = {} if not features else {"NUMBA_CPU_NAME": "generic", "NUMBA_CPU_FEATURES": features.removeprefix("generic")}
    environment = {**os.environ, **told}
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, "3"], env=environment, capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == digest(1)


def test_logarithms_and_powers_are_those_of_the_library_but_for_the_last_bits() -> None:
    for x in (*np.exp(np.linspace(-300, 300, 999)), 1.0, 0.7071067811865476, 5e-324, 1.7e308):
        assert exact.log(float(x)) == pytest.approx(np.log(x), rel=3e-16, abs=1e-16)
    assert (exact.log(0.0), exact.log(np.inf)) == (-np.inf, np.inf)
    assert all(np.isnan(exact.log(x)) for x in (-1.0, np.nan))
    for count in (0, 1, 2, 7, 1000):
        assert integer_power(0.999, count) == pytest.approx(0.999**count, rel=1e-12)
