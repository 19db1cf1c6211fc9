"""PPO, A2C and REINFORCE: generations played, learned from, resumed and forked."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from pydantic import ValidationError

from evo.algorithms import a2c, ppo, reinforce
from evo.errors import ResourceError
from evo.kernels import lanes
from evo.learning.actor_critic import ActorCritic
from evo.learning.gradient_algorithm import GradientAlgorithm
from evo.learning.hyperparameters import scheduled
from evo.networks.network import Options as Policy
from evo.records import Metrics, Request, Result, Segment
from evo.store.store import Store
from tests.algorithms.learners import assert_same, board, drive, frozen, made, play, pole
from tests.helpers.calling import called, summary_of
from tests.helpers.learning import tensorflow  # noqa: F401

ROOT = Path(__file__).parents[2]
SMALL: dict[Any, dict[str, Any]] = {
    ppo: {"envs": 12, "envs_per_task": 5, "horizon": 9, "epochs": 2, "minibatches": 3},
    a2c: {"envs": 12, "envs_per_task": 5, "horizon": 9, "normalise_advantages": True},
    reinforce: {"envs_per_task": 5, "episodes": 6, "normalise_advantages": True},
}
CNN, MLP = Policy(conv=[[3, 3, 1]], dense=[6]), Policy(kind="mlp", dense=[6])
GRU = Policy(conv=[[3, 3, 1]], dense=[], memory="gru:5")


def on_board(
    module: Any = ppo, seed: int = 1, world: dict[str, Any] | None = None, policy: Policy = CNN, **options: Any
) -> GradientAlgorithm:
    environment = board(**{"size": 4, "starvation": 12, **(world or {})})
    return made(module, environment, policy, seed, **{**SMALL[module], **options})


def on_pole(name: str = "CartPole-v1", start: Any = None, policy: Policy = MLP, **options: Any) -> GradientAlgorithm:
    size = {} if not options.pop("whole", True) else {"whole_episodes": True, "episodes": 6}
    return made(ppo, pole(name), policy, start=start, **{**SMALL[ppo], **size, **options})


def actor_critic(algorithm: GradientAlgorithm) -> ActorCritic:
    assert isinstance(algorithm.method, ActorCritic)
    return algorithm.method


WAYS: dict[str, Callable[[], GradientAlgorithm]] = {
    "ppo": lambda: on_board(target_kl=0.5, value_clip_range=0.2, normalise_rewards=True),
    "ppo with a mask": lambda: on_board(world={"mask": "fatal"}),
    "asynchronous": lambda: on_board(asynchronous=True),
    "a2c": lambda: on_board(a2c),
    "reinforce": lambda: on_board(reinforce),
    "leave one out": lambda: on_board(reinforce, baseline="leave_one_out"),
    "whole episodes": lambda: on_pole(normalise_observations=True, normalise_rewards=True),
    "asynchronous whole episodes": lambda: on_pole(asynchronous=True),
    "continuous": lambda: on_pole("Pendulum-v1", normalise_observations=True),
    "segments behind Gymnasium": lambda: on_pole(whole=False, normalise_rewards=True),
    "memory": lambda: on_board(policy=GRU, bptt=4, asynchronous=True),
    "a2c with memory": lambda: on_board(a2c, policy=GRU, bptt=4),
    "memory of whole episodes": lambda: on_pole(
        policy=Policy(kind="mlp", dense=[], memory="lstm:4"), normalise_observations=True, burn_in=1
    ),
    "memory behind Gymnasium": lambda: on_pole(whole=False, policy=Policy(kind="mlp", dense=[], memory="gru:4")),
}


@pytest.mark.long
@pytest.mark.parametrize("way", WAYS)
def test_a_run_resumed_after_any_generation_equals_the_straight_one(way: str) -> None:
    straight, states = WAYS[way](), []
    for number in range(3):
        metrics = drive(straight, number)
        assert set(metrics) >= {"best", "mean", "mean_length", "frames", "seconds_moving"}
        states.append(frozen(straight.state()))
    assert set(metrics) >= {"policy_loss", "value_loss", "entropy", "approx_kl", "learning_rate", "seconds_learning"}
    assert (metrics["approx_kl"] > 0) == (metrics["updates"] > 1)  # the first update finds the policy that acted
    assert not np.array_equal(states[0]["weights"], states[2]["weights"])
    record = frozen(straight.record())
    resumed = WAYS[way]()
    for begun in (1, 2):
        resumed.restore(states[begun - 1], [{}])
        drive(resumed, range(begun, 3))
        assert_same(frozen(resumed.state()), states[2])
        assert_same(frozen(resumed.record()), record)


@pytest.mark.long
def test_another_seed_is_another_run() -> None:
    one, other = on_board(seed=1), on_board(seed=2)
    assert drive(one, 0)["mean_length"] != drive(other, 0)["mean_length"]
    assert (one.state()["weights"] != other.state()["weights"]).any()


@pytest.mark.long
@pytest.mark.parametrize("mask", ["fatal", "reverse"])
def test_no_action_is_ever_taken_that_the_mask_rules_out(mask: str) -> None:
    world = {"mask": mask, "observation": "planes", "actions": "absolute"}
    algorithm = on_board(world=world, envs=40, horizon=30)
    seen = []

    def answer(request: Request) -> list[Result]:
        results = play(algorithm, request)
        seen.extend(result.transitions for result in results if result.transitions)
        return results

    drive(algorithm, range(2), answer)
    ruled_out = 0
    for transitions in seen:
        masks = transitions.action_masks
        assert masks[np.arange(len(transitions)), transitions.actions.astype(int)].all()
        ruled_out += int((masks == 0).sum())
    assert ruled_out > 100


def test_every_env_is_played_by_the_present_weights_and_continues_where_it_was() -> None:
    algorithm = on_board()
    requests: list[Request] = []

    def answer(request: Request) -> list[Result]:
        requests.append(request)
        return play(algorithm, request)

    drive(algorithm, 1, answer)
    after = algorithm.state()["weights"].copy()
    drive(algorithm, 2, answer)
    plays = [[task.play for task in request.tasks] for request in requests]
    assert all(isinstance(one, Segment) for one in plays[0])
    assert [len(one.envs) for one in plays[0]] == [5, 5, 2]
    np.testing.assert_array_equal(requests[1].weights[0], after)
    left = play(algorithm, requests[0])[1].envs
    np.testing.assert_array_equal(plays[1][1].envs.snapshots, left.snapshots)
    assert {task.action_rule.kind for request in requests for task in request.tasks} == {"softmax"}


def test_what_was_learned_from_is_released_before_the_next_generation_is_played() -> None:
    algorithm: Any = made(ppo, board(), envs=4, horizon=8, minibatches=2)
    drive(algorithm, 0)
    assert algorithm.method.learner.updates == 6
    assert len(algorithm.method.learner._observations) == 0


def test_asynchronous_learning_lags_by_one_generation_exactly() -> None:
    algorithm = on_board(asynchronous=True)
    published = []

    def answer(request: Request) -> list[Result]:
        published.append(request.weights[0].copy())
        return play(algorithm, request)

    for number in (2, 4, 6):
        drive(algorithm, number, answer)
    np.testing.assert_array_equal(published[0], published[1])  # nothing was learned before
    usual = on_board()
    drive(usual, 4)  # the transitions of generation 2, shuffled as in generation 4
    np.testing.assert_array_equal(usual.state()["weights"], published[2])
    assert "asynchronous" in algorithm.notices[0]
    assert not usual.notices


def test_the_first_network_has_values_of_zero_and_prefers_no_action() -> None:
    algorithm = on_board()
    network = algorithm.setup.network
    outputs = lanes.scores(
        network, algorithm.method.learner.weights(), np.random.default_rng(1).random((50, *network.shape), np.float32)
    )
    assert not outputs[:, 3].any()
    assert 0 < np.abs(outputs[:, :3]).max() < 0.1


def test_a_finalist_has_the_normalisation_of_its_learner() -> None:
    algorithm = on_pole(normalise_observations=True)
    drive(algorithm, 0)
    weights = algorithm.method.learner.weights()
    finalist = algorithm.finalists(1).weights[0]
    np.testing.assert_array_equal(finalist, actor_critic(algorithm).published(weights))
    assert np.abs(finalist - weights).max() > 0.1


def test_a_run_that_starts_from_a_champion_begins_with_it_and_learns_from_there() -> None:
    start = np.random.default_rng(4).normal(0, 0.3, on_pole().setup.network.size).astype(np.float32)
    algorithm = on_pole(start=start)
    requests: list[Request] = []

    def answer(request: Request) -> list[Result]:
        requests.append(request)
        return play(algorithm, request)

    drive(algorithm, 0, answer)
    assert [request.weights[0].tobytes() == start.tobytes() for request in requests] == [True]
    assert algorithm.finalists(1).weights[0].tobytes() != start.tobytes()


@pytest.mark.filterwarnings("error")
def test_episodes_of_fewer_transitions_than_minibatches_are_learned_from_one_by_one() -> None:
    metrics = drive(on_pole(episodes=1, minibatches=64), 2)
    assert metrics["frames"] < 64
    assert metrics["updates"] == 2 * metrics["frames"]


@pytest.mark.long
def test_a_policy_stays_the_same_where_a_fork_begins_or_ends_to_normalise_observations() -> None:
    still = {"name": "Pendulum-v1", "learning_rate": 1e-9, "learning_rate_final": 1e-9}
    raw, normalising = on_pole(**still), on_pole(**still, normalise_observations=True)
    network = raw.setup.network
    weights = np.random.default_rng(4).normal(0, 0.5, network.size).astype(np.float32)
    seen = np.random.default_rng(5).normal(size=(50, *network.shape)).astype(np.float32)
    expected = lanes.scores(network, weights, seen)

    def assert_unchanged(algorithm: GradientAlgorithm) -> None:
        found = lanes.scores(network, algorithm.finalists(1).weights[0], seen)
        np.testing.assert_allclose(found, expected, rtol=1e-3, atol=1e-3)

    started = on_pole(**still, normalise_observations=True, start=weights)
    drive(started, 0)
    assert_unchanged(started)
    assert np.abs(started.method.learner.weights() - weights).max() > 0.1
    raw.restore(started.state(), ())
    assert_unchanged(raw)
    drive(raw, 2)
    normalising.restore(raw.state(), ())
    drive(normalising, 4)
    assert_unchanged(normalising)
    assert np.abs(normalising.method.learner.weights() - weights).max() > 0.1


def test_updates_of_a_generation_end_above_the_target_kl() -> None:
    assert drive(on_board(), 1)["updates"] == 6
    assert drive(on_board(target_kl=1e-9), 1)["updates"] < 6


def test_the_learning_rate_is_annealed_over_frames() -> None:
    algorithm = on_board(learning_rate=1e-2, learning_rate_final=1e-3, learning_rate_frames=2 * 12 * 9)
    rates = [drive(algorithm, number)["learning_rate"] for number in range(4)]
    np.testing.assert_allclose(rates, [1e-2, 5.5e-3, 1e-3, 1e-3])


@pytest.mark.parametrize(
    ("name", "begin", "half", "schedule"),
    [
        (
            "entropy_coefficient", 0.9, 0.5,
            {"entropy_coefficient": 0.9, "entropy_coefficient_final": 0.1, "entropy_coefficient_frames": 2 * 12 * 9},
        ),
        ("gamma", 0.5, 0.7, {"gamma": 0.5, "gamma_final": 0.9, "gamma_frames": 2 * 12 * 9}),
        ("gamma", 0.5, 0.7, {"gamma": 0.1, "gamma_points": [[0, 0.5], [2 * 12 * 9, 0.9], [1e6, 1.0]]}),
    ],
)  # fmt: skip
def test_what_is_scheduled_is_annealed_over_frames(
    name: str, begin: float, half: float, schedule: dict[str, Any]
) -> None:
    algorithm = on_board(**schedule)
    drive(algorithm, 2)
    state = frozen(algorithm.state())
    drive(algorithm, 4)  # half of the way
    halfway, first = on_board(**{name: half}), on_board(**{name: begin})
    for other in (halfway, first):
        other.restore(state, [{}])
        drive(other, 4)
    np.testing.assert_array_equal(algorithm.state()["weights"], halfway.state()["weights"])
    assert (algorithm.state()["weights"] != first.state()["weights"]).any()


def test_points_of_gamma_rise_from_frame_0_and_lie_between_0_and_1() -> None:
    for points, told in (([[5, 0.9]], "begins at frame 5"), ([[0, 1.5]], "not between 0 and 1"), ([[0]], "not a list")):
        with pytest.raises(ValidationError, match=told):
            ppo.Options(gamma_points=points)
    assert scheduled(ppo.Options(gamma_points=[[0, 0.9], [10, 1.0]]), "gamma", 99) == 1.0


@pytest.mark.parametrize(("module", "options"), [
    (ppo, {"learning_rate": 1e-2}),
    pytest.param(ppo, {"asynchronous": True, "learning_rate": 2e-2}, marks=pytest.mark.long),
    (a2c, {"learning_rate": 3e-2}),
    pytest.param(reinforce, {"learning_rate": 3e-2}, marks=pytest.mark.long),
    pytest.param(reinforce, {"baseline": "leave_one_out", "learning_rate": 3e-2}, marks=pytest.mark.long),
], ids=["ppo", "asynchronous", "a2c", "reinforce", "leave one out"])  # fmt: skip
def test_rewarded_actions_are_learned(module: Any, options: dict[str, Any]) -> None:
    def answer(request: Request) -> list[Result]:  # reward turning left
        requests.append(request)
        return [
            replace(r, transitions=replace(r.transitions, rewards=(r.transitions.actions == 0).astype(np.float32)))
            for r in play(algorithm, request)
        ]

    size = {"episodes": 60} if module is reinforce else {"envs": 40, "horizon": 30}
    algorithm, requests = on_board(module, **size, **options), []
    drive(algorithm, range(2, 20, 2), answer)
    first, last = (
        np.mean(np.concatenate([result.transitions.actions for result in play(algorithm, request)]) == 0)
        for request in (requests[0], requests[-1])
    )
    assert first < 0.5
    assert last > 0.8


@pytest.mark.long
def test_rewarded_continuous_actions_are_learned() -> None:
    def answer(request: Request) -> list[Result]:  # reward actions near 1
        results.extend(
            replace(r, transitions=replace(r.transitions, rewards=-np.square(r.transitions.actions[:, 0] - 1)))
            for r in play(algorithm, request)
        )
        return results[-len(request.tasks) :]

    algorithm = on_pole("Pendulum-v1", episodes=40, epochs=4, learning_rate=1e-2, gamma=0.5)
    results: list[Any] = []
    means, deviations = [], []
    for number in (2, 4, 6, 8, 10, 12):
        drive(algorithm, number, answer)
        outputs = results[-1].transitions.outputs
        means.append(outputs[:, 0].mean())
        deviations.append(outputs[:, 1].mean())
    assert abs(means[0]) < 0.2
    assert abs(means[-1] - 1) < 0.4
    assert deviations[-1] < deviations[0]


def test_outputs_that_are_not_finite_stop_the_run() -> None:
    algorithm = on_board()
    state = frozen(algorithm.state())
    state["weights"][-1] = np.nan
    algorithm.restore(state, [{}])
    with pytest.raises(ResourceError, match="not finite"):
        drive(algorithm, 0)


def test_a_generation_that_is_closed_leaves_no_thread() -> None:
    algorithm = on_board(asynchronous=True)
    drive(algorithm, 0)
    rounds = algorithm.generation(1)
    next(rounds)
    rounds.close()
    assert not [thread for thread in threading.enumerate() if thread.name == "learner"]


def test_background_learning_ends_before_results_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    algorithm = on_board(asynchronous=True)
    drive(algorithm, 2)

    def learn(transitions: Any, number: int, stopped: Callable[[], bool]) -> Metrics:
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
run = {algorithm = "ppo"}
environment = {size = 5, observation = "window", window = 7, starvation = 12, mask = "reverse"}
policy = {conv = [[3, 3, 2]], dense = [4]}
workers = {backend = "serial"}
learner = {threads = 1}
test = {episodes = 8}
validation = {episodes = 8}
[ppo]
envs = 6
horizon = 8
minibatches = 3
asynchronous = true
[a2c]
envs = 6
horizon = 8
[reinforce]
episodes = 4
[dqn]
envs = 6
horizon = 8
"""


@pytest.mark.parametrize(
    ("changed", "frames", "counted"),
    [
        pytest.param(("ppo.envs=5", "ppo.normalise_rewards=true"), 40, 2 * 48 + 3 * 40, marks=pytest.mark.long),
        pytest.param(("ppo.asynchronous=false",), 48, 5 * 48, marks=pytest.mark.long),
        pytest.param(("environment.size=6", "environment.mask=fatal"), 48, 5 * 48, marks=pytest.mark.long),
        pytest.param(("run.algorithm=a2c",), 48, 5 * 48, marks=pytest.mark.long),
        pytest.param(("run.algorithm=reinforce",), None, None, marks=pytest.mark.long),  # dqn to pqn is quick
    ],
)
def test_a_fork_may_change_options_and_algorithm(
    tmp_path: Path, changed: tuple[str, ...], frames: int | None, counted: int | None
) -> None:
    (tmp_path / "tiny.toml").write_text(TINY)
    _, told = called(tmp_path, "tiny.toml", "--run-dir", "first", "--generations", 2)
    assert "policy lag is always one generation" in told
    options = [word for change in changed for word in ("--set", change)]
    summary = summary_of(tmp_path, "--resume", "first", *options, "--fork", "other", "--generations", 4)
    assert summary["status"] == "done"
    run = Store.read(tmp_path / "runs" / "other")
    if frames is not None:
        assert [int(array) for array in run.load()["policy_frames"]] == [counted]


@pytest.mark.long
def test_a_fork_to_an_algorithm_of_other_outputs_is_refused_in_one_line(tmp_path: Path) -> None:
    (tmp_path / "tiny.toml").write_text(TINY)
    summary_of(tmp_path, "tiny.toml", "--run-dir", "first", "--generations", 1)
    _, told = called(tmp_path, "--resume", "first", "--set", "run.algorithm=dqn", "--fork", "other", code=2)
    assert "run.init_from" in told
    assert not (tmp_path / "runs" / "other").exists()


@pytest.mark.parametrize(
    ("module", "options", "name"),
    [
        (ppo, {"envs": 2, "horizon": 2}, "minibatches"),
        (ppo, {"gae_lambda": 1.5}, "gae_lambda"),
        (reinforce, {"baseline": "leave_one_out", "episodes": 1}, "episodes"),
        (a2c, {"epochs": 2}, "epochs"),
    ],
)
def test_invalid_options_are_named(module: Any, options: dict[str, Any], name: str) -> None:
    with pytest.raises(ValidationError, match=name):
        module.Options(**options)


def test_options_without_effect_are_named_unless_they_have_their_defaults() -> None:
    def notices(**options: Any) -> list[str]:
        return [note for note in made(ppo, pole(), MLP, **options).notices if note.startswith("no effect")]

    assert notices(episodes=5) == ["no effect of ppo.episodes while ppo.whole_episodes is false"]
    whole = {"whole_episodes": True, "horizon": 9}
    assert notices(**whole, envs=12) == ["no effect of ppo.envs and ppo.horizon while ppo.whole_episodes is true"]
    assert notices(**ppo.Options().model_dump()) == []  # a resumed run has every option set


WILD = """
from evo import environment
from evo.rollouts.gymnasium_episodes import PROBED
from evo.options import EnvironmentOptions

plugs_into = "environments"

class Options(EnvironmentOptions):
    id: str

class Environment(environment.Environment):  # pays as expected for 15 episodes, and then without measure
    shape, actions, episode_metrics, episodes = (2,), 2, (), -3 * len(PROBED) - 3  # those of both checks first

    def env(self):
        return Environment()

    def reset(self, seed):
        Environment.episodes += 1
        return [1e4, -1e4], {}

    def step(self, action):
        return [1e4, -1e4], 1.0 if Environment.episodes <= 15 else 1e15, True, False, {}

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
a2c = {envs = 4, horizon = 1, value_coefficient = 100.0}
run = {algorithm = "a2c", generations = 50}
validation = {episodes = 3}
test = {episodes = 3}
"""


def evo(cwd: Path, *words: str) -> tuple[int, dict[str, Any], str]:
    command = [sys.executable, "-m", "evo.run", *words, "--json", "--backend", "serial", "--plugin", "wild"]
    done = subprocess.run(command, cwd=cwd, env={"PYTHONPATH": str(ROOT)}, capture_output=True, text=True, check=False)
    return done.returncode, json.loads(done.stdout.splitlines()[-1]), done.stderr


@pytest.mark.long
def test_a_run_whose_gradient_is_not_finite_stops_with_one_line_and_can_be_resumed(tmp_path: Path) -> None:
    (tmp_path / "wild.py").write_text(WILD)
    (tmp_path / "wild.toml").write_text(EXPERIMENT)
    code, summary, errors = evo(tmp_path, "wild.toml", "--run-dir", "wild")
    assert (code, summary["status"], summary["generations"]) == (5, "failed", 2)
    assert "Traceback" not in errors
    assert "not finite" in errors.splitlines()[-1]
    code, resumed, _ = evo(tmp_path, "--resume", "wild", "--generations", "3")
    assert (code, resumed["status"], resumed["generations"]) == (0, "done", 3)
