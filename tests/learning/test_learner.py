"""The learner against Adam written out, and what must not show in its bits."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from evo.errors import DeviceError, ResourceError
from evo.learning.learner import BETAS, EPSILON
from evo.learning.tensorflow import start_tensorflow
from evo.learning.tensorflow.learner import LEAST, TensorFlowLearner, part_size, parts_at_a_time
from evo.networks.network import Network, Options
from evo.setup import LearnerOptions
from evo.workers.hardware import VISIBLE
from evo.workers.placement import NO_GPU
from tests.helpers.learning import tensorflow  # noqa: F401

pytestmark = pytest.mark.long  # a learner in TensorFlow

NETWORK = Network.build(Options(conv=[[4, 3, 1]], dense=[5]), (4, 4, 2), 3)
LINEAR = Network.build(Options(kind="linear"), (3,), 2)
ONE = LearnerOptions(threads=1)


def squares(outputs: Any, batch: Mapping[str, Any], settings: Mapping[str, Any]) -> dict[str, Any]:
    import tensorflow as tf

    error = tf.reduce_sum(tf.square(outputs - batch["targets"]), 1)
    return {"loss": settings["scale"] * error, "error": error}


def learner(network: Network = NETWORK, norm: float = 0.0, options: LearnerOptions = ONE) -> TensorFlowLearner:
    made = TensorFlowLearner(network, options, squares, norm)
    made.begin(np.random.default_rng(1).normal(0, 0.3, network.size).astype(np.float32))
    made.load(examples(network))
    return made


def examples(network: Network, count: int = 70) -> dict[str, NDArray[np.float32]]:
    draw = np.random.default_rng(2)
    return {
        "observations": draw.random((count, *network.shape), np.float32),
        "targets": draw.normal(size=(count, network.outputs)).astype(np.float32),
    }


def rows(*numbers: int) -> NDArray[np.int32]:
    return np.array(numbers, np.int32)


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_a_network_learns_from_codes_what_another_learns_from_their_planes(dtype: Any) -> None:
    hidden = {"conv": [[4, 3, 1]], "dense": [5]}
    embedded = Network.build(Options(**hidden, embed="one_hot", codes=3), (4, 4, 2), 3)
    plain = Network.build(Options(**hidden), (4, 4, 6), 3)
    data, options = examples(plain), LearnerOptions(threads=1, dtype=dtype)
    codes = np.random.default_rng(3).integers(0, 4, (70, 4, 4, 2))  # 3 is no code
    planes = (codes[..., None] == np.arange(3)).reshape(70, 4, 4, 6)
    learned = []
    for network, seen in ((embedded, codes), (plain, planes)):
        made = learner(network, options=options)
        before = made.weights()
        made.load({**data, "observations": seen.astype(np.float32)})
        for step in range(3):
            made.update(np.arange(step, 70, 2, dtype=np.int32), 0.01, {"scale": 1.0})
        assert (made.weights() != before).mean() > 0.5
        learned.append(made.weights())
    np.testing.assert_allclose(*learned, rtol=1e-4, atol=1e-5 if dtype == "float32" else 1e-2)


@pytest.mark.parametrize("norm", [0.0, 0.05])
def test_updates_are_adam_on_the_clipped_mean_gradient(norm: float) -> None:
    made, data = learner(LINEAR, norm), examples(LINEAR)
    weights = made.weights().astype(np.float64)
    first, second = np.zeros_like(weights), np.zeros_like(weights)
    for step, chosen in enumerate([rows(3, 1, 4, 1, 5), rows(9, 2), rows(6)], 1):
        seen, wanted = data["observations"][chosen].astype(np.float64), data["targets"][chosen]
        kernel, bias = weights[:6].reshape(3, 2), weights[6:]
        error = seen @ kernel + bias - wanted
        gradient = np.concatenate([(2 * seen.T @ error).ravel(), 2 * error.sum(axis=0)]) / len(chosen) * 0.7
        told = made.update(chosen, 0.01, {"scale": 0.7})
        length = np.sqrt((gradient**2).sum())
        np.testing.assert_allclose(told["gradient_norm"], [length], rtol=1e-5)
        np.testing.assert_allclose(told["error"], (error**2).sum(axis=1), rtol=1e-5)
        gradient *= min(1.0, norm / length) if norm else 1.0
        first = BETAS[0] * first + (1 - BETAS[0]) * gradient
        second = BETAS[1] * second + (1 - BETAS[1]) * gradient**2
        rate = 0.01 * np.sqrt(1 - BETAS[1] ** step) / (1 - BETAS[0] ** step)
        weights -= rate * first / (np.sqrt(second) + EPSILON)
    np.testing.assert_allclose(made.weights(), weights, rtol=1e-4, atol=1e-6)
    assert made.updates == 3


def test_a_batch_in_many_parts_has_the_gradient_of_the_whole() -> None:
    states = []
    for part in (16, 128):
        made = learner()
        made.part = part
        told = made.update(np.arange(70, dtype=np.int32), 1e-3, {"scale": 1.0})
        assert told["loss"].shape == (70,)
        states.append((made.state(), told))
    np.testing.assert_allclose(states[0][0]["first"], states[1][0]["first"], rtol=1e-4, atol=1e-6)
    np.testing.assert_allclose(states[0][1]["loss"], states[1][1]["loss"], rtol=1e-5)


def test_a_step_is_compiled_once_whatever_there_is_to_learn_from() -> None:
    made = learner()
    made.part = LEAST
    for count, scale in ((70, 1.0), (33, 1.0), (70, 0.5), (7, 0.5)):
        made.load(examples(NETWORK, count))
        made.update(np.arange(count, dtype=np.int32), 1e-3 * scale, {"scale": scale})
    (step,) = made._compiled_for.values()
    assert step.experimental_get_tracing_count() == 1


def test_a_batch_that_is_smaller_than_a_part_is_not_filled_up_to_one() -> None:
    made = learner()
    made.load(examples(NETWORK, 200))
    for count in (200, 70, 65, 64, 7, 200):
        made.update(np.arange(count, dtype=np.int32), 1e-3, {"scale": 1.0})
    assert made.part >= 256
    assert {part for part, *_ in made._compiled_for} == {256, 128, 64, LEAST}


def test_arrays_that_some_generations_lack_change_nothing_for_the_others() -> None:
    made = learner()
    masks = {"action_masks": np.ones((70, 3), np.bool_)}
    for more in ({}, masks, {}, masks):
        made.load({**examples(NETWORK), **more})
        made.update(np.arange(70, dtype=np.int32), 1e-3, {"scale": 1.0})
    assert len(made._compiled_for) == 2


THREADS = """
import sys
import tensorflow as tf
from tests.learning.test_learner import LearnerOptions, learner, np
made = learner(options=LearnerOptions(threads=int(sys.argv[1])))
for _ in range(3):
    told = made.update(np.arange(70, dtype=np.int32), 1e-3, {"scale": 1.0})
(((part, *_), step),) = made._compiled_for.items()
nodes = step.get_concrete_function().graph.as_graph_def().node
(loop,) = [node for node in nodes if node.op in ("While", "StatelessWhile")]
threading = tf.config.threading
inside, beside = threading.get_intra_op_parallelism_threads(), threading.get_inter_op_parallelism_threads()
how = [part, loop.attr["parallel_iterations"].i, inside, beside]
np.savez(sys.argv[2], first=made.state()["first"], error=told["error"], how=how)
"""


@pytest.mark.long
def test_every_thread_has_a_part_of_its_own_and_the_sums_are_in_order(tmp_path: Path) -> None:
    told, environment = [], {**os.environ, VISIBLE: NO_GPU}
    for number, threads in enumerate((1, 3, 3)):
        out = tmp_path / f"{number}.npz"
        command = [sys.executable, "-c", THREADS, str(threads), str(out)]
        subprocess.run(command, env=environment, check=True)
        told.append(dict(np.load(out)))
    one, three, again = told
    assert (one["how"].tolist(), three["how"].tolist()) == ([128, 1, 1, 1], [LEAST, 3, 1, 3])
    for name in ("first", "error"):
        assert three[name].tobytes() == again[name].tobytes()
        np.testing.assert_allclose(three[name], one[name], rtol=1e-3, atol=1e-6)


def test_a_learner_that_is_given_a_device_computes_one_part_at_a_time() -> None:
    alone, placed = LearnerOptions(threads=4), LearnerOptions(threads=4, devices=["CPU:0"])
    spread = LearnerOptions(threads=4, strategy="mirrored", devices=["CPU:0", "CPU:1"], logical_cpus=2)
    assert (alone.threading, placed.threading, spread.threading) == ((1, 4), (4, 1), (4, 8))
    assert (parts_at_a_time(placed), parts_at_a_time(spread)) == (1, 1)


@pytest.mark.parametrize("counts", [(70,), (33, 70), (70, 33)])
def test_observations_that_are_placed_are_learned_from_without_a_copy(counts: tuple[int, ...]) -> None:
    copied, placed = learner(), learner()
    for count in counts:
        data = examples(NETWORK, count)
        copied.load(data)
        buffer = placed.buffer((count, *NETWORK.shape))
        buffer[:] = data["observations"]
        placed.load({**data, "observations": buffer})
        assert np.shares_memory(np.asarray(memoryview(placed._data["observations"])), buffer)
        for made in (copied, placed):
            made.update(np.arange(count, dtype=np.int32), 1e-2, {"scale": 1.0})
    assert copied.weights().tobytes() == placed.weights().tobytes()


def test_a_learner_that_is_restored_goes_on_bit_for_bit() -> None:
    straight = learner(norm=0.5)
    straight.update(rows(1, 2, 3), 1e-2, {"scale": 1.0})
    state = {name: array.copy() for name, array in straight.state().items()}
    straight.update(rows(4, 5), 1e-2, {"scale": 1.0})
    resumed = learner(norm=0.5)
    resumed.restore(state)
    resumed.update(rows(4, 5), 1e-2, {"scale": 1.0})
    for name, array in straight.state().items():
        assert array.tobytes() == resumed.state()[name].tobytes(), name
    assert straight.state()["first"].any()
    resumed.begin(resumed.weights())
    assert not resumed.state()["first"].any()
    assert resumed.updates == 0


def test_bfloat16_is_near_and_keeps_weights_and_moments_in_float32() -> None:
    exact, rough = learner(), learner(options=LearnerOptions(threads=1, dtype="bfloat16"))
    one, other = (made.update(np.arange(70, dtype=np.int32), 1e-3, {"scale": 1.0}) for made in (exact, rough))
    assert other["loss"].dtype == np.float32
    assert (one["loss"] != other["loss"]).any()
    np.testing.assert_allclose(one["loss"], other["loss"], rtol=0.1, atol=0.05)
    assert all(array.dtype == np.float32 for name, array in rough.state().items() if name != "updates")
    np.testing.assert_allclose(exact.weights(), rough.weights(), atol=0.0021)


def test_a_loss_that_is_not_finite_stops_learning_with_a_line_that_says_what_to_do() -> None:
    for scale, what in ((np.nan, "loss"), (1e30, "gradient norm")):
        with pytest.raises(ResourceError, match=f"the {what} of update 1 is not finite.*resume") as caught:
            learner().update(rows(0, 1), 1e-3, {"scale": scale})
        assert caught.value.exit_code == 5


def test_the_fingerprint_is_of_what_computes() -> None:
    made = learner()
    state = made.state()
    one = made.fingerprint()
    assert one == learner().fingerprint()
    assert "1 threads, float32" in one
    assert learner(options=LearnerOptions(threads=1, dtype="bfloat16")).fingerprint() != one
    assert made.state()["weights"].tobytes() == state["weights"].tobytes()


def test_another_number_of_threads_is_refused_once_tensorflow_is_set_up() -> None:
    learner()
    with pytest.raises(DeviceError, match=r"learner\.threads"):
        start_tensorflow(LearnerOptions(threads=3))


def test_tensorflow_is_set_for_equal_bits() -> None:
    import tensorflow as tf
    from tensorflow.python.framework import config  # nothing public tells

    learner()
    assert config.is_op_determinism_enabled()
    assert not tf.config.experimental.tensor_float_32_execution_enabled()
    assert tf.config.threading.get_intra_op_parallelism_threads() == 1
    assert tf.config.threading.get_inter_op_parallelism_threads() == 1


def test_parts_are_smaller_for_larger_networks_and_never_a_matter_of_threads() -> None:
    assert part_size(LINEAR) == 4096
    assert part_size(Network.build(Options(conv=[[16, 3, 1], [32, 3, 1]], dense=[128]), (10, 10, 6), 3, 1)) == 512
    assert part_size(Network.build(Options(preset="seed"), (64, 64, 1), 4)) == 32


@pytest.mark.parametrize(("rule", "factor"), [("given", 1.0), ("linear", 4.0), ("root", 2.0)])
def test_the_learning_rate_follows_the_number_of_devices_by_the_rule_that_is_asked_for(
    rule: Any, factor: float
) -> None:
    scaled, plain = learner(LINEAR, options=LearnerOptions(threads=1, learning_rate=rule)), learner(LINEAR)
    scaled.devices = 4
    scaled.update(rows(0, 1, 2), 1e-3, {"scale": 1.0})
    plain.update(rows(0, 1, 2), factor * 1e-3, {"scale": 1.0})
    assert scaled.weights().tobytes() == plain.weights().tobytes()
