"""Policy gradients: the loss against one that is written out, what is played and learnt, and what may not show."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from calling import called, summary_of
from learning import tensorflow  # noqa: F401
from numpy.typing import NDArray
from pydantic import ValidationError
from specs import make, spec

from evo.algorithms import pg
from evo.environments import gymnasium, snake
from evo.errors import ConfigurationError, ResourceError
from evo.evaluators import processes
from evo.kernels import lanes
from evo.learning.collecting import joined_transitions
from evo.learning.learner import Learner
from evo.learning.losses import PolicyLoss, log_probabilities
from evo.learning.normalisers import ObservationNormaliser, RewardNormaliser
from evo.learning.options import LearnerOptions
from evo.networks.network import Network
from evo.networks.network import Options as Policy
from evo.plugins.options import Setup
from evo.records import SEGMENT_END, TERMINATED, TRUNCATED, Metrics, Request, Result, Segment
from evo.rollouts.rollout import Rollout
from evo.store.store import Store
from evo.training.generation import play_out

ROOT = Path(__file__).parent.parent
ONE = LearnerOptions(threads=1)
SETTINGS = {"entropy_coefficient": 0.03, "value_coefficient": 0.7, "clip_range": 0.2, "value_clip_range": 0.0}
LINEAR = Network.build(Policy(kind="linear"), (4,), 3, 1)
SMALL = {"lanes": 12, "lanes_per_task": 5, "horizon": 9, "epochs": 2, "minibatches": 3, "episodes": 6}  # fmt: skip
MLP = Policy(kind="mlp", dense=[6])


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


def learner_of(batch: dict[str, NDArray[Any]], method: str, network: Network = LINEAR, **kind: bool) -> Learner:
    learner = Learner(network, ONE, PolicyLoss(network.actions, method == "ppo", **kind))
    learner.begin(np.random.default_rng(8).normal(0, 0.4, network.size).astype(np.float32))
    learner.load(batch)
    return learner


def gradient_of(learner: Learner, count: int, settings: dict[str, float]) -> NDArray[np.float64]:
    """Return the gradient, which after one update is ten times Adam's first moment."""
    learner.update(np.arange(count, dtype=np.int32), 1e-3, settings)
    return np.asarray(learner.state()["first"], np.float64) * 10


@pytest.mark.parametrize("masked", [False, True])
@pytest.mark.parametrize(("method", "value_clip"), [("ppo", 0.0), ("ppo", 0.3), ("a2c", 0.0)])
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
    ppo, a2c = (gradient_of(learner_of(batch, method), 50, SETTINGS) for method in ("ppo", "a2c"))
    np.testing.assert_allclose(ppo, a2c, rtol=1e-4, atol=1e-6)
    assert np.abs(ppo).max() > 0.01


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


def test_an_observation_normaliser_is_folded_into_the_first_layer() -> None:
    network = Network.build(MLP, (4,), 2, 1)
    draw = np.random.default_rng(3)
    seen = (draw.normal(size=(500, 4)) * [1, 10, 0.1, 0] + [0, 5, -3, 2]).astype(np.float32)
    normaliser, parts = ObservationNormaliser(network), np.split(seen, [100, 170])
    for part in parts:
        normaliser.moments.add(part)
    np.testing.assert_allclose(normaliser.moments.mean, seen.mean(axis=0, dtype=np.float64), rtol=1e-6)
    np.testing.assert_allclose(normaliser.moments.variance, seen.var(axis=0, dtype=np.float64), rtol=1e-6, atol=1e-9)
    applied = normaliser.apply(seen)
    np.testing.assert_allclose(applied.std(axis=0), [1, 1, 1, 0], atol=1e-5)
    weights = draw.normal(size=network.size).astype(np.float32)
    plain, folded = lanes.scores(network, weights, applied), lanes.scores(network, normaliser.fold(weights), seen)
    np.testing.assert_allclose(folded, plain, rtol=1e-3, atol=1e-3)
    np.testing.assert_allclose(normaliser.unfold(normaliser.fold(weights)), weights, rtol=1e-3, atol=1e-3)
    with pytest.raises(ConfigurationError, match="normalise_observations"):
        ObservationNormaliser(Network.build(Policy(), (9, 9, 5), 3, 1))


def test_a_finalist_knows_what_its_learner_normalises() -> None:
    algorithm = pole_pg(normalise_observations=True)
    drive(algorithm, 0)
    assert algorithm._observations is not None
    champion, weights = algorithm.finalists(1).weights[0], algorithm.learner.weights()
    np.testing.assert_array_equal(champion, algorithm._observations.fold(weights))
    assert np.abs(champion - weights).max() > 0.1


def test_rewards_are_normalised_by_their_discounted_sums_which_go_on_in_every_lane() -> None:
    rewards, ends = (
        np.arange(1, 9, dtype=np.float32),
        np.array([0, TERMINATED, 0, SEGMENT_END, 0, 0, TRUNCATED, SEGMENT_END], np.uint8),
    )
    normaliser = RewardNormaliser(0.5, 2)
    scaled = normaliser.apply(rewards, ends)
    sums = [1, 2.5, 3, 5.5, 5, 8.5, 11.25, 8]
    np.testing.assert_allclose(scaled, rewards / np.std(sums), rtol=1e-6)
    np.testing.assert_allclose(normaliser.sums, [5.5, 8])
    normaliser.apply(np.ones(2, np.float32), np.full(2, SEGMENT_END, np.uint8))
    np.testing.assert_allclose(normaliser.sums, [1 + 5.5 / 2, 1 + 8 / 2])


# --- whole generations ---


def snake_pg(seed: int = 1, world: dict[str, Any] | None = None, **options: Any) -> pg.PolicyGradient:
    environment = snake.make(snake.Options(**{"size": 4, "starvation": 12, "observation": "ego", **(world or {})}))
    network = Network.build(Policy(conv=[[3, 3, 1]], dense=[6]), environment.shape, environment.actions, 1)
    return pg.make(pg.Options(**{**SMALL, **options}), Setup(seed, network, environment, learner=ONE))


def pole_pg(seed: int = 1, name: str = "CartPole-v1", **options: Any) -> pg.PolicyGradient:
    environment = gymnasium.make(gymnasium.Options(id=f"gymnasium:{name}", max_steps=30))
    extra = pg.Options().extra_outputs(environment)
    network = Network.build(MLP, environment.shape, environment.actions, extra)
    return pg.make(pg.Options(**{**SMALL, **options}), Setup(seed, network, environment, learner=ONE))


def play(algorithm: pg.PolicyGradient, request: Request) -> list[Result]:
    rollout = Rollout(algorithm.network, algorithm.environment)
    return [rollout.play(task, request.weights) for task in request.tasks]


def drive(
    algorithm: pg.PolicyGradient, number: int, answer: Callable[[Request], Sequence[Result]] | None = None
) -> Metrics:
    """Run one generation, answering every request; return its metrics."""
    rounds = algorithm.generation(number)
    request = next(rounds)
    while True:
        try:
            request = rounds.send(answer(request) if answer else play(algorithm, request))
        except StopIteration as stop:
            return stop.value


def frozen(state: Any) -> dict[str, NDArray[Any]]:
    return {name: np.array(array) for name, array in state.items()}


def assert_same(one: Any, other: Any) -> None:
    assert one.keys() == other.keys()
    for name, array in one.items():
        assert np.asarray(array).tobytes() == np.asarray(other[name]).tobytes(), name


WAYS: dict[str, Callable[[], pg.PolicyGradient]] = {
    "ppo": lambda: snake_pg(target_kl=0.5, value_clip=0.2, normalise_rewards=True),
    "ppo with a mask": lambda: snake_pg(world={"mask": "fatal"}),
    "asynchronous": lambda: snake_pg(asynchronous=True),
    "a2c": lambda: snake_pg(method="a2c"),
    "reinforce": lambda: snake_pg(method="reinforce"),
    "leave one out": lambda: snake_pg(method="reinforce", baseline="leave_one_out"),
    "whole episodes": lambda: pole_pg(normalise_observations=True, normalise_rewards=True),
    "asynchronous whole episodes": lambda: pole_pg(asynchronous=True),
    "numbers": lambda: pole_pg(name="Pendulum-v1", normalise_observations=True),
}


@pytest.mark.parametrize("way", WAYS)
def test_a_run_resumed_after_any_generation_equals_the_straight_one(way: str) -> None:
    straight, states = WAYS[way](), []
    for number in range(3):
        metrics = drive(straight, number)
        assert set(metrics) >= {"best", "mean", "mean_length", "frames", "slots", "seconds_moving"}
        states.append(frozen(straight.state()))
    assert set(metrics) >= {"policy_loss", "value_loss", "entropy", "approx_kl", "learning_rate", "seconds_learning"}
    assert metrics["approx_kl"] > 0
    assert not np.array_equal(states[0]["weights"], states[2]["weights"])
    record = frozen(straight.record())
    resumed = WAYS[way]()
    for begun in (1, 2):
        resumed.restore(states[begun - 1], [{}])
        for number in range(begun, 3):
            drive(resumed, number)
        assert_same(frozen(resumed.state()), states[2])
        assert_same(frozen(resumed.record()), record)


def test_another_seed_is_another_run() -> None:
    one, other = snake_pg(1), snake_pg(2)
    assert drive(one, 0)["mean_length"] != drive(other, 0)["mean_length"]
    assert (one.state()["weights"] != other.state()["weights"]).any()


class Files:
    """Takes weights to where workers of this machine find them."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory

    def publish(self, weights: NDArray[np.float32]) -> str:
        import h5py

        with h5py.File(self.directory / "w.h5.new", "w") as file:
            file.create_dataset("weights", data=weights)
        name = f"{np.abs(weights).sum():.9e}.h5"
        (self.directory / "w.h5.new").rename(self.directory / name)
        return name


def test_workers_of_any_number_and_the_master_end_in_the_same_state(tmp_path: Path) -> None:
    states = []
    for workers in (0, 1, 2):
        algorithm = snake_pg(asynchronous=True)
        if not workers:
            for number in range(2):
                drive(algorithm, number)
        else:
            environment, policy = algorithm.environment.options, algorithm.network.options
            context = spec(tmp_path, environment.model_dump(), policy.model_dump(), {"count": workers}, extra_outputs=1)
            with make(processes, context) as pool:
                for number in range(2):
                    play_out(algorithm.generation(number), pool, Files(tmp_path))
        states.append(frozen(algorithm.state()))
    assert_same(states[0], states[1])
    assert_same(states[0], states[2])


@pytest.mark.parametrize("mask", ["fatal", "reverse"])
def test_no_action_is_ever_taken_that_the_mask_rules_out(mask: str) -> None:
    algorithm = snake_pg(world={"mask": mask, "observation": "planes", "actions": "absolute"}, lanes=40, horizon=30)
    seen = []

    def answer(request: Request) -> list[Result]:
        results = play(algorithm, request)
        seen.extend(result.transitions for result in results if result.transitions)
        return results

    for number in range(2):
        drive(algorithm, number, answer)
    ruled_out = 0
    for steps in seen:
        assert steps.action_masks[np.arange(len(steps)), steps.actions.astype(int)].all()
        ruled_out += int((steps.action_masks == 0).sum())
    assert ruled_out > 100


def test_every_lane_is_played_by_the_weights_that_are_learnt_and_goes_on_where_it_was() -> None:
    algorithm = snake_pg()
    requests: list[Request] = []

    def answer(request: Request) -> list[Result]:
        requests.append(request)
        return play(algorithm, request)

    drive(algorithm, 1, answer)
    after = algorithm.state()["weights"].copy()
    drive(algorithm, 2, answer)
    segments = [request for request in requests if isinstance(request.tasks[0].play, Segment)]
    assert [len(task.play.envs) for task in segments[0].tasks] == [5, 5, 2]
    np.testing.assert_array_equal(segments[1].weights[0], after)
    left = play(algorithm, segments[0])[1].envs
    np.testing.assert_array_equal(segments[1].tasks[1].play.envs.snapshots, left.snapshots)
    assert {task.action_rule.kind for request in segments for task in request.tasks} == {"softmax"}


def test_asynchronous_learning_lags_by_one_generation_exactly() -> None:
    algorithm = snake_pg(asynchronous=True)
    published = []

    def answer(request: Request) -> list[Result]:
        published.append(request.weights[0].copy())
        return play(algorithm, request)

    for number in (2, 4, 6):  # which crown nobody
        drive(algorithm, number, answer)
    np.testing.assert_array_equal(published[0], published[1])  # by then nothing was learnt
    usual = snake_pg()
    drive(usual, 4)  # what the first one played, in the order that the second one learns it in
    np.testing.assert_array_equal(usual.state()["weights"], published[2])
    assert algorithm.notices
    assert not usual.notices


def test_the_first_network_values_nothing_and_prefers_no_action() -> None:
    algorithm = snake_pg()
    seen = np.random.default_rng(1).random((50, *algorithm.network.shape), np.float32)
    outputs = lanes.scores(algorithm.network, algorithm.learner.weights(), seen)
    assert not outputs[:, 3].any()
    assert 0 < np.abs(outputs[:, :3]).max() < 0.1


def test_a_run_that_starts_from_a_champion_begins_with_it_and_learns_from_there() -> None:
    usual = snake_pg()
    start = np.random.default_rng(4).normal(0, 0.3, usual.network.size).astype(np.float32)
    algorithm = pg.make(usual.options, Setup(1, usual.network, usual.environment, learner=ONE, start=start))
    requests: list[Request] = []

    def answer(request: Request) -> list[Result]:
        requests.append(request)
        return play(algorithm, request)

    drive(algorithm, 0, answer)
    assert [request.weights[0].tobytes() == start.tobytes() for request in requests] == [True]
    assert algorithm.finalists(1).weights[0].tobytes() != start.tobytes()


@pytest.mark.filterwarnings("error")
def test_episodes_of_fewer_steps_than_minibatches_are_learnt_from_step_by_step() -> None:
    algorithm = pole_pg(episodes=1, minibatches=64)
    metrics = drive(algorithm, 2)
    assert metrics["frames"] < 64
    assert metrics["updates"] == 2 * metrics["frames"]


def test_a_network_from_elsewhere_stays_what_it_is_where_observations_begin_to_be_normalised_or_no_longer_are() -> None:
    still = {"name": "Pendulum-v1", "learning_rate": 1e-9, "learning_rate_end": 1e-9}
    raw, normalising = pole_pg(**still), pole_pg(**still, normalise_observations=True)
    weights = np.random.default_rng(4).normal(0, 0.5, raw.network.size).astype(np.float32)
    seen = np.random.default_rng(5).normal(size=(50, *raw.network.shape)).astype(np.float32)
    expected = lanes.scores(raw.network, weights, seen)

    def assert_unchanged(algorithm: pg.PolicyGradient) -> None:
        found = lanes.scores(raw.network, algorithm._published(), seen)
        np.testing.assert_allclose(found, expected, rtol=1e-3, atol=1e-3)

    started = pg.make(normalising.options, Setup(1, raw.network, raw.environment, learner=ONE, start=weights))
    drive(started, 0)
    assert_unchanged(started)
    learnt = started.learner.weights()
    assert np.abs(learnt - weights).max() > 0.1
    raw.restore(started.state(), ())  # as a fork that normalises no longer
    assert_unchanged(raw)
    drive(raw, 2)
    normalising.restore(raw.state(), ())  # and one that begins to
    drive(normalising, 4)
    assert_unchanged(normalising)
    assert np.abs(normalising.learner.weights() - weights).max() > 0.1


def test_updates_of_a_generation_end_where_the_policy_has_moved_too_far() -> None:
    assert drive(snake_pg(), 1)["updates"] == 6
    assert drive(snake_pg(target_kl=1e-9), 1)["updates"] < 6


def test_schedules_count_frames_that_were_learnt_from() -> None:
    algorithm = snake_pg(learning_rate=1e-2, learning_rate_end=1e-3, learning_rate_frames=2 * 12 * 9)
    rates = [drive(algorithm, number)["learning_rate"] for number in range(4)]
    np.testing.assert_allclose(rates, [1e-2, 5.5e-3, 1e-3, 1e-3])


def test_the_weight_of_the_entropy_moves_with_the_frames_that_were_learnt_from() -> None:
    moving = snake_pg(entropy=0.9, entropy_end=0.1, entropy_frames=2 * 12 * 9)
    drive(moving, 2)
    state = frozen(moving.state())
    drive(moving, 4)  # half of the way; neither crowns anybody
    half, first = snake_pg(entropy=0.5), snake_pg(entropy=0.9)
    for other in (half, first):
        other.restore(state, ())
        drive(other, 4)
    np.testing.assert_array_equal(moving.state()["weights"], half.state()["weights"])
    assert (moving.state()["weights"] != first.state()["weights"]).any()


def test_the_discount_moves_with_the_frames_that_were_learnt_from() -> None:
    algorithm = snake_pg(gamma=0.5, gamma_end=0.9, gamma_frames=2 * 12 * 9)
    heard: list[Result] = []

    def answer(request: Request) -> list[Result]:
        heard[:] = play(algorithm, request)
        return heard

    def targets(algorithm: pg.PolicyGradient) -> NDArray[np.float32]:
        return algorithm._examples(joined_transitions(heard))["returns"]

    drive(algorithm, 2, answer)  # half of the way; it crowns nobody afterwards
    np.testing.assert_array_equal(targets(algorithm), targets(snake_pg(gamma=0.7)))
    assert not np.array_equal(targets(algorithm), targets(snake_pg(gamma=0.5)))


@pytest.mark.parametrize("options", [
    {},
    {"asynchronous": True, "learning_rate": 2e-2},
    {"method": "a2c", "learning_rate": 3e-2},
    {"method": "reinforce", "learning_rate": 3e-2},
    {"method": "reinforce", "baseline": "leave_one_out", "learning_rate": 3e-2},
], ids=["ppo", "asynchronous", "a2c", "reinforce", "leave one out"])  # fmt: skip
def test_rewards_that_pay_are_learnt(options: dict[str, Any]) -> None:
    def answer(request: Request) -> list[Result]:  # pay for turning left, whatever happens
        results = play(algorithm, request)
        return [
            replace(r, transitions=replace(r.transitions, rewards=(r.transitions.actions == 0).astype(np.float32)))
            if r.transitions
            else r
            for r in results
        ]

    algorithm = snake_pg(**{"lanes": 40, "horizon": 30, "episodes": 60, "learning_rate": 1e-2, **options})
    turns = []
    for number in range(2, 20, 2):  # which crown nobody
        drive(algorithm, number, lambda request: turns.append(request) or answer(request))
    first, last = (
        np.mean(
            np.concatenate([result.transitions.actions for result in play(algorithm, turn) if result.transitions]) == 0
        )
        for turn in (turns[0], turns[-1])
    )
    assert first < 0.5
    assert last > 0.8


def test_numbers_that_pay_are_learnt() -> None:
    def answer(request: Request) -> list[Result]:  # pay for being near to 1, whatever happens
        results = play(algorithm, request)
        return [
            replace(r, transitions=replace(r.transitions, rewards=-np.square(r.transitions.actions[:, 0] - 1)))
            for r in results
        ]

    algorithm = pole_pg(name="Pendulum-v1", episodes=40, epochs=4, learning_rate=1e-2, gamma=0.5)
    heard: list[Result] = []
    means, spreads = [], []
    for number in (2, 4, 6, 8, 10, 12):  # which crown nobody
        drive(algorithm, number, lambda request: heard.extend(answer(request)) or heard[-len(request.tasks) :])
        outputs = heard[-1].transitions.outputs
        means.append(outputs[:, 0].mean())
        spreads.append(outputs[:, 1].mean())
    assert abs(means[0]) < 0.2
    assert abs(means[-1] - 1) < 0.4
    assert spreads[-1] < spreads[0]


def test_outputs_that_are_not_finite_stop_the_run_with_a_line() -> None:
    algorithm = snake_pg()
    state = frozen(algorithm.state())
    state["weights"][-1] = np.nan
    algorithm.restore(state, [{}])
    with pytest.raises(ResourceError, match="not finite"):
        drive(algorithm, 0)


def test_a_generation_that_is_given_up_leaves_no_thread_at_work() -> None:
    algorithm = snake_pg(asynchronous=True)
    drive(algorithm, 0)
    rounds = algorithm.generation(1)
    next(rounds)
    rounds.close()
    assert not [thread for thread in threading.enumerate() if thread.name == "learner"]


def test_learning_that_goes_on_meanwhile_ends_before_what_was_played_is_refused(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    algorithm = snake_pg(asynchronous=True)
    drive(algorithm, 2)

    def learn(steps: Any, number: int, stopped: Callable[[], bool]) -> Metrics:
        while not stopped():
            time.sleep(0.01)
        return {}

    monkeypatch.setattr(algorithm, "_learn", learn)
    rounds = algorithm.generation(4)
    results = play(algorithm, next(rounds))
    assert "learner" in [thread.name for thread in threading.enumerate()]
    with pytest.raises(ResourceError, match="not finite"):
        rounds.send([replace(result, finite=np.zeros(1, np.bool_)) for result in results])
    assert "learner" not in [thread.name for thread in threading.enumerate()]


TINY = """
run = {algorithm = "pg"}
environment = {size = 5, observation = "window", window = 7, starvation = 12}
policy = {conv = [[3, 3, 2]], dense = [4]}
workers = {backend = "serial"}
learner = {threads = 1}
test = {episodes = 8}
[pg]
lanes = 6
horizon = 8
minibatches = 3
episodes = 4
asynchronous = true
"""


@pytest.mark.parametrize(
    ("changed", "frames", "learnt"),
    [
        (("pg.lanes=5", "pg.normalise_rewards=true"), 40, 48 + 2 * 40),
        (("pg.asynchronous=false",), 48, 4 * 48),
        (("environment.size=6", "environment.mask=fatal"), 48, 3 * 48),
        (("pg.method=reinforce",), None, None),
    ],
)
def test_a_fork_may_change_what_the_state_was_made_for(
    tmp_path: Path, changed: tuple[str, ...], frames: int | None, learnt: int | None
) -> None:
    (tmp_path / "tiny.toml").write_text(TINY)
    _, told = called(tmp_path, "tiny.toml", "--run-dir", "first", "--generations", 2)
    assert "pg.asynchronous: every segment is played with the weights from before" in told
    options = [word for change in changed for word in ("--set", change)]
    summary = summary_of(tmp_path, "--resume", "first", *options, "--fork", "other", "--generations", 4)
    assert summary["status"] == "done"
    run = Store.read(tmp_path / "runs" / "other")
    if frames is not None:
        assert [line["frames"] for line in run.metrics()[1:]] == [frames] * 3
        assert run.load()["frames"].tolist() == [learnt]


def test_mistakes_in_the_section_are_named() -> None:
    for options, name in (({"lanes": 2, "horizon": 2}, "minibatches"), ({"gae_lambda": 1.5}, "gae_lambda")):
        with pytest.raises(ValidationError, match=name):
            pg.Options(**options)


WILD = """
from evo.plugins.options import Section

plugs_into = "environments"

class Options(Section):
    id: str

class Environment:  # pays as expected for eleven episodes, and then without measure
    shape, actions, episode_metrics, episodes = (2,), 2, (), 0

    def env(self):
        return Environment()

    def reset(self, seed):
        Environment.episodes += 1
        return [1e4, -1e4], {}

    def step(self, action):
        return [1e4, -1e4], 1.0 if Environment.episodes <= 11 else 1e15, True, False, {}

    def close(self):
        pass

    def metrics_of_episode(self, info, truncated):
        return ()

def make(options):
    return Environment()
"""
EXPERIMENT = """
environment = {id = "wild"}
policy = {kind = "linear"}
pg = {method = "a2c", episodes = 4, value_coefficient = 100.0}
run = {algorithm = "pg", generations = 50}
"""


def evo(cwd: Path, *words: str) -> tuple[int, dict[str, Any], str]:
    command = [sys.executable, "-m", "evo.run", *words, "--json", "--backend", "serial", "--plugin", "wild"]
    done = subprocess.run(command, cwd=cwd, env={"PYTHONPATH": str(ROOT)}, capture_output=True, text=True, check=False)
    return done.returncode, json.loads(done.stdout.splitlines()[-1]), done.stderr


def test_a_run_whose_gradient_is_not_finite_stops_with_one_line_and_can_be_resumed(tmp_path: Path) -> None:
    (tmp_path / "wild.py").write_text(WILD)
    (tmp_path / "wild.toml").write_text(EXPERIMENT)
    code, summary, errors = evo(tmp_path, "wild.toml", "--run-dir", "wild")
    assert (code, summary["status"], summary["generations"]) == (5, "failed", 2)
    assert "Traceback" not in errors
    assert "not finite" in errors.splitlines()[-1]
    code, resumed, _ = evo(tmp_path, "--resume", "wild", "--generations", "3")
    assert (code, resumed["status"], resumed["generations"]) == (0, "done", 3)
