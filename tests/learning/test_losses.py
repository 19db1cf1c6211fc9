"""Losses: against the equations written out in NumPy, one example at a time."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from evo.algorithms import ppo, pqn
from evo.algorithms.a2c import PolicyGradientLoss
from evo.algorithms.dqn import chosen_values
from evo.kernels import lanes
from evo.learning.exact.losses import log_probabilities
from evo.learning.tensorflow.learner import TensorFlowLearner
from evo.networks.network import Network
from evo.networks.network import Options as Policy
from tests.algorithms.learners import ONE
from tests.helpers.learning import tensorflow  # noqa: F401
from tests.helpers.sampling import sampled

SETTINGS = {"entropy_coefficient": 0.03, "value_coefficient": 0.7, "clip_range": 0.2, "value_clip_range": 0.0}
LINEAR = Network.build(Policy(kind="linear"), (4,), 3, 1)


def batch_of(count: int, masked: bool = False, seed: int = 0) -> dict[str, NDArray[Any]]:
    draw = np.random.default_rng(seed)
    batch: dict[str, NDArray[Any]] = {
        "observations": draw.normal(size=(count, 4)).astype(np.float32),
        "actions": draw.integers(0, 3, count).astype(np.int32),
        "log_probabilities": np.log(draw.uniform(0.2, 0.5, count)).astype(np.float32),
        **{name: draw.normal(size=count).astype(np.float32) for name in ("advantages", "returns", "values")},
    }
    if masked:
        batch["action_masks"] = draw.random((count, 3)) < 0.6
        batch["action_masks"][np.arange(count), batch["actions"]] = True
    return batch


def written_out(
    weights: NDArray[np.float64], batch: dict[str, NDArray[Any]], s: dict[str, float], method: str
) -> float:
    """Return the mean loss of a linear network, an example at a time, in float64."""
    kernel, bias, total = weights[:16].reshape(4, 4), weights[16:], 0.0
    for i, seen in enumerate(batch["observations"].astype(np.float64)):
        *scores, value = seen @ kernel + bias
        choices = range(3) if "action_masks" not in batch else np.flatnonzero(batch["action_masks"][i])
        powers = {a: np.exp(scores[a]) for a in choices}
        chances = {a: power / sum(powers.values()) for a, power in powers.items()}
        taken, advantage = chances[int(batch["actions"][i])], float(batch["advantages"][i])
        ratio = taken / np.exp(float(batch["log_probabilities"][i]))
        if method == "ppo":
            gain = min(ratio * advantage, min(max(ratio, 1 - s["clip_range"]), 1 + s["clip_range"]) * advantage)
        else:
            gain = np.log(taken) * advantage
        error = (value - batch["returns"][i]) ** 2
        if s["value_clip_range"]:
            before = float(batch["values"][i])
            held = before + min(max(value - before, -s["value_clip_range"]), s["value_clip_range"])
            error = max(error, (held - batch["returns"][i]) ** 2)
        entropy = -sum(chance * np.log(chance) for chance in chances.values())
        total += s["value_coefficient"] * 0.5 * error - gain - s["entropy_coefficient"] * entropy
    return total / len(batch["observations"])


def learner_of(
    batch: dict[str, NDArray[Any]], method: str, network: Network = LINEAR, **kind: bool
) -> TensorFlowLearner:
    loss = ppo.PPOLoss if method == "ppo" else PolicyGradientLoss
    learner = TensorFlowLearner(network, ONE, loss(network.actions, **kind))
    learner.begin(np.random.default_rng(8).normal(0, 0.4, network.size).astype(np.float32))
    learner.load(batch)
    return learner


def gradient_of(learner: TensorFlowLearner, count: int, settings: dict[str, float]) -> NDArray[np.float64]:
    """Return the gradient, which after one update is ten times Adam's first moment."""
    learner.update(np.arange(count, dtype=np.int32), 1e-3, settings)
    return np.asarray(learner.state()["first"], np.float64) * 10


@pytest.mark.parametrize("masked", [False, True])
@pytest.mark.parametrize(("method", "value_clip"), sampled([("ppo", 0.0), ("ppo", 0.3), ("a2c", 0.0)], 1, 2))
def test_loss_and_gradient_are_those_of_the_loss_that_is_written_out(
    method: str, value_clip: float, masked: bool
) -> None:
    batch, settings = batch_of(40, masked), {**SETTINGS, "value_clip_range": value_clip}
    learner = learner_of(batch, method)
    weights = learner.weights().astype(np.float64)
    steps = np.eye(len(weights)) * 1e-6
    expected = [
        (written_out(weights + step, batch, settings, method) - written_out(weights - step, batch, settings, method))
        / 2e-6
        for step in steps
    ]
    told = learner.update(np.arange(40, dtype=np.int32), 1e-3, settings)
    assert told["loss"].mean() == pytest.approx(written_out(weights, batch, settings, method), rel=1e-4)
    np.testing.assert_allclose(learner.state()["first"] * 10, expected, rtol=2e-3, atol=2e-5)


def test_where_nothing_has_changed_yet_the_gradient_of_ppo_is_that_of_a2c() -> None:
    batch = batch_of(50, masked=True)
    outputs = lanes.scores(LINEAR, learner_of(batch, "ppo").weights(), batch["observations"])
    batch["log_probabilities"] = log_probabilities(outputs, batch["actions"], batch["action_masks"], 3)
    clipped, plain = (gradient_of(learner_of(batch, method), 50, SETTINGS) for method in ("ppo", "a2c"))
    np.testing.assert_allclose(clipped, plain, rtol=1e-4, atol=1e-6)
    assert np.abs(clipped).max() > 0.01


def test_probabilities_of_acting_are_those_of_learning() -> None:
    batch = batch_of(50, masked=True)
    learner = learner_of(batch, "ppo")
    outputs = lanes.scores(LINEAR, learner.weights(), batch["observations"])
    batch["log_probabilities"] = log_probabilities(outputs, batch["actions"], batch["action_masks"], 3)
    learner.load(batch)
    told = learner.update(np.arange(50, dtype=np.int32), 1e-3, SETTINGS)
    assert np.abs(told["approx_kl"]).max() < 1e-6
    assert not told["clip_fraction"].any()
    exact = outputs[:, :3].astype(np.float64)
    chances = np.where(batch["action_masks"], np.exp(exact), 0)
    chances /= chances.sum(axis=1, keepdims=True)
    taken = chances[np.arange(50), batch["actions"]]
    np.testing.assert_allclose(np.exp(batch["log_probabilities"]), taken, rtol=1e-5)


def test_gaussian_actions_have_the_density_and_the_entropy_of_the_normal_distribution() -> None:
    network = Network.build(Policy(kind="linear"), (4,), 2, 3)
    batch = batch_of(30)
    batch["actions"] = np.random.default_rng(5).normal(size=(30, 2)).astype(np.float32)
    learner = learner_of(batch, "a2c", network, is_gaussian=True)
    outputs = lanes.scores(network, learner.weights(), batch["observations"]).astype(np.float64)
    means, deviations = outputs[:, :2], np.exp(outputs[:, 2:4])
    density = np.exp(-0.5 * ((batch["actions"] - means) / deviations) ** 2) / (deviations * np.sqrt(2 * np.pi))
    logs = log_probabilities(outputs.astype(np.float32), batch["actions"], None, 2, True)
    np.testing.assert_allclose(np.exp(logs), density.prod(axis=1), rtol=1e-4)
    told = learner.update(np.arange(30, dtype=np.int32), 1e-3, SETTINGS)
    np.testing.assert_allclose(told["policy_loss"], -logs * batch["advantages"], rtol=1e-3, atol=1e-4)
    entropy = 0.5 * np.log(2 * np.pi * np.e * deviations**2).sum(axis=1)
    np.testing.assert_allclose(told["entropy"], entropy, rtol=1e-4, atol=1e-5)


def test_the_value_of_what_follows_is_of_an_action_that_is_allowed() -> None:
    values = np.array([[1, 5, 3], [1, 5, 3], [-9, -8, -7]], np.float32)
    choosing = np.array([[0, 9, 1], [9, 0, 1], [-50, -60, -70]], np.float32)
    allowed = np.array([[1, 0, 1], [1, 1, 1], [0, 1, 0]], np.int8)
    assert chosen_values(values, choosing, allowed).numpy().tolist() == [3, 1, -8]


def test_the_huber_loss_is_a_square_and_then_a_line() -> None:
    error = np.array([-3, -0.5, 0, 2], np.float32)
    assert pqn.PQNLoss(3, False, 1.0).huber(error).numpy().tolist() == [2.5, 0.125, 0, 1.5]
    assert pqn.PQNLoss(3, False, 0.0).huber(error).numpy().tolist() == [4.5, 0.125, 0, 2]
