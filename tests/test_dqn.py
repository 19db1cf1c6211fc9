"""Q-learning finds what is true of a chain, never does what is forbidden, and goes on exactly where it stopped."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from pydantic import ValidationError

from evo.algorithms import dqn
from evo.config import loading
from evo.environments import snake
from evo.errors import ConfigurationError, ResourceError
from evo.learning.collecting import initial_weights
from evo.learning.losses import following_values, huber_loss
from evo.learning.options import LearnerOptions
from evo.learning.schedules import epsilon_at
from evo.networks.network import Network
from evo.networks.network import Options as Policy
from evo.plugins.options import Setup
from evo.records import Metrics, Request, Transitions
from evo.rollouts.rollout import Rollout
from evo.store.store import Store
from snake.batch import make_boards
from snake.observe import mask
from tests.calling import called, summary_of
from tests.saved_boards import restore

SMALL = """
[run]
algorithm = "dqn"
generations = 4
[environment]
size = 5
observation = "ego"
starvation = 12
mask = "reverse"
[policy]
conv = [[4, 3, 1]]
dense = [8]
[workers]
backend = "serial"
[validation]
every = 2
episodes = 6
[test]
every = 4
episodes = 10
[learner]
threads = 1
[dqn]
lanes = 6
horizon = 8
lanes_per_task = 4
replay = 100
learning_starts = 40
frames_per_update = 7
batch = 16
symmetry = true
epochs = 2
minibatches = 3
"""
METHODS = ["dqn", "pqn"]
ONE = LearnerOptions(threads=1)


@pytest.fixture
def small(tmp_path: Path) -> Path:
    (tmp_path / "small.toml").write_text(SMALL)
    return tmp_path


class Chain:
    """Five cells in a row: 1 goes right, 0 left; the right end is worth 1 and ends it, as does the twelfth step."""

    shape, actions, episode_metrics, cells = (5,), 2, (), 5

    def env(self) -> Chain:
        return Chain()

    def reset(self, seed: int) -> tuple[np.ndarray, dict[str, Any]]:
        self.cell, self.steps = seed % (self.cells - 1), 0
        return self._seen(), {}

    def step(self, action: int) -> tuple[np.ndarray, float, bool, bool, dict[str, Any]]:
        self.cell, self.steps = max(self.cell + (1 if action else -1), 0), self.steps + 1
        done = self.cell == self.cells - 1
        return self._seen(), float(done), done, not done and self.steps == 12, {}

    def _seen(self) -> np.ndarray:
        return np.eye(self.cells, dtype=np.float32)[self.cell]

    def metrics_of_episode(self, info: dict[str, Any], truncated: bool) -> tuple[int, ...]:
        return ()

    def close(self) -> None:
        pass


def drive(
    algorithm: dqn.QLearning, environment: Any, generations: range, seen: list[Transitions] | None = None
) -> list[Metrics]:
    """Play generations; what was played goes into `seen`."""
    rollout = Rollout(algorithm.network, environment)
    said, published = [], np.empty((0, algorithm.network.size), np.float32)
    for number in generations:
        rounds = algorithm.generation(number)
        request: Request = next(rounds)
        while True:
            published = published if request.weights is None else request.weights
            results = [rollout.play(task, published) for task in request.tasks]
            if seen is not None:
                seen += [result.transitions for result in results if result.transitions]
            try:
                request = rounds.send(results)
            except StopIteration as stop:
                said.append(stop.value)
                break
    return said


@pytest.mark.parametrize("options", [
    {"dueling": True, "prioritized": True},
    {"dueling": False, "prioritized": False, "double": False, "target_every": 20, "target_tau": 0.0},
    {"method": "pqn", "q_lambda": 0.0, "dueling": False, "epochs": 6, "minibatches": 2},
], ids=["all", "classic", "pqn"])  # fmt: skip
def test_a_chain_is_valued_exactly(options: dict[str, Any]) -> None:
    chain, gamma = Chain(), 0.8
    asked = dqn.Options(
        **{
            "gamma": gamma, "n_step": 1, "epsilon": [[0, 1.0]], "learning_rate": 0.03, "huber": 0.0, "episodes": 16,
            "batch": 64, "learning_starts": 100, "frames_per_update": 8, "replay": 5000, "target_tau": 0.05, **options,
        }
    )  # fmt: skip
    network = Network.build(Policy(kind="linear"), chain.shape, chain.actions, asked.extra_outputs(chain))
    algorithm = dqn.make(asked, Setup(1, network, chain, learner=ONE))
    drive(algorithm, chain, range(40))
    outputs = Rollout(network, chain)
    outputs.play(next(algorithm.generation(41)).tasks[0], algorithm.state()["weights"][None])
    from evo.learning.returns import action_values

    values = action_values(outputs.score(np.eye(5, dtype=np.float32)), 2, asked.dueling)[:4]
    right = gamma ** np.arange(3, -1, -1)
    left = gamma * np.array([right[0], right[0], right[1], right[2]])
    np.testing.assert_allclose(values, np.stack([left, right], axis=1), atol=0.03)


CLASSIC = ("double=false", "dueling=false", "prioritized=false", "target_every=3")


@pytest.mark.parametrize("options", [(), CLASSIC, ("method=pqn",)], ids=["all", "classic", "pqn"])
def test_a_run_that_stops_after_every_generation_equals_the_straight_one(small: Path, options: tuple[str, ...]) -> None:
    words = [word for option in options for word in ("--set", f"dqn.{option}")]
    straight = summary_of(small, "small.toml", "--run-dir", "straight", *words, "--generations", 5)
    hashes = [line.state_hash for line in Store.read(small / "straight").lines]
    summary_of(small, "small.toml", "--run-dir", "stopping", *words, "--generations", 1)
    for stop in range(2, 6):
        resumed = summary_of(small, "--resume", "stopping", "--generations", stop)
        assert [line.state_hash for line in Store.read(small / "stopping").lines] == hashes[:stop]
    assert resumed["champion"] == straight["champion"]
    lines = (small / "straight" / "metrics.jsonl").read_text().splitlines()
    updates = [json.loads(line)["updates"] for line in lines]
    remembered = [6, 7, 7, 7, 7]  # 48 frames each, and what was owed before
    assert updates == ([6] * 5 if options == ("method=pqn",) else remembered)


def test_whole_episodes_are_remembered_exactly_too(small: Path) -> None:
    text = SMALL[: SMALL.index("[environment]")] + SMALL[SMALL.index("[workers]") :].replace("symmetry = true", "")
    words = ("--set", "environment.id=gymnasium:CartPole-v1", "--set", "policy.kind=linear", "--set", "dqn.episodes=5")
    (small / "cart.toml").write_text(text)
    straight = summary_of(small, "cart.toml", "--run-dir", "straight", *words, "--generations", 3)
    for stop in range(1, 4):
        how = ("cart.toml", "--run-dir", "stopping", *words) if stop == 1 else ("--resume", "stopping")
        resumed = summary_of(small, *how, "--generations", stop)
    assert resumed["state_hash"] == straight["state_hash"]


@pytest.mark.parametrize("method", METHODS)
def test_workers_change_nothing(small: Path, method: str) -> None:
    words = ("--set", f"dqn.method={method}", "--generations", 3)
    serial = summary_of(small, "small.toml", "--run-dir", "serial", *words)
    for count in (1, 2):
        many = ("--backend", "processes", "--workers", count, "--run-dir", f"many-{count}")
        assert summary_of(small, "small.toml", *words, *many)["state_hash"] == serial["state_hash"]


def test_a_fork_begins_with_an_empty_memory_and_resumes_exactly(small: Path) -> None:
    summary_of(small, "small.toml", "--run-dir", "first", "--generations", 3)
    fork = ("--resume", "first", "--set", "dqn.gamma=0.9", "--fork")
    straight = summary_of(small, *fork, "whole", "--generations", 5)
    summary_of(small, *fork, "half", "--generations", 3)
    resumed = summary_of(small, "--resume", "runs/half", "--generations", 5)
    assert resumed["state_hash"] == straight["state_hash"]
    lines = (small / "runs" / "whole" / "metrics.jsonl").read_text().splitlines()
    assert [json.loads(line)["memory"] for line in lines if "memory" in json.loads(line)] == [48, 96, 100, 100]


@pytest.mark.parametrize(
    "changed",
    [("dqn.replay=60",), ("dqn.prioritized=false",), ("dqn.lanes=5",), ("dqn.method=pqn",), ("environment.size=6",)],
)
def test_a_fork_may_change_what_the_state_was_made_for(small: Path, changed: tuple[str, ...]) -> None:
    window = ("--set", "environment.observation=window", "--set", "environment.window=7")
    summary_of(small, "small.toml", "--run-dir", "first", *window, "--generations", 2)
    options = [word for change in changed for word in ("--set", change)]
    summary_of(small, "--resume", "first", *options, "--fork", "other", "--generations", 4)
    if changed == ("dqn.method=pqn",):
        back = ("--set", "dqn.method=dqn", "--fork", "back", "--generations", 6)
        summary_of(small, "--resume", "runs/other", *back)


def test_a_mask_holds_for_what_is_done_and_for_what_is_learnt() -> None:
    environment = snake.make(snake.Options(size=5, observation="ego", starvation=30, mask="fatal"))
    asked = dqn.Options(lanes=16, horizon=16, batch=32, learning_starts=100, replay=2000, epsilon=[[0, 0.5]])
    network = Network.build(Policy(conv=[[4, 3, 1]], dense=[8]), environment.shape, 3, 1)
    algorithm = dqn.make(asked, Setup(1, network, environment, learner=ONE))
    seen: list[Transitions] = []
    drive(algorithm, environment, range(4), seen)
    for steps in seen:
        assert steps.action_masks is not None
        assert steps.action_masks[np.arange(len(steps)), steps.actions].all()
    sample = algorithm._replay.sample(1, 512)
    assert sample.action_masks is not None
    rules, _, masked = environment.game.rules
    boards, expected = make_boards(1, 5), np.ones(3, np.int8)
    for row, allowed in zip(sample.following, sample.action_masks, strict=True):
        restore(boards, [0], row[None])
        mask(boards, rules, masked, 0, expected)
        assert allowed.tolist() == expected.tolist()
    assert (sample.action_masks == 0).any()


def test_the_value_of_what_follows_is_of_an_action_that_is_allowed() -> None:
    values = np.array([[1, 5, 3], [1, 5, 3], [-9, -8, -7]], np.float32)
    choosing = np.array([[0, 9, 1], [9, 0, 1], [-50, -60, -70]], np.float32)
    allowed = np.array([[1, 0, 1], [1, 1, 1], [0, 1, 0]], np.int8)
    assert following_values(values, choosing, allowed).numpy().tolist() == [3, 1, -8]


def test_the_huber_loss_is_a_square_and_then_a_line() -> None:
    error = np.array([-3, -0.5, 0, 2], np.float32)
    assert huber_loss(error, 1.0).numpy().tolist() == [2.5, 0.125, 0, 1.5]
    assert huber_loss(error, 0.0).numpy().tolist() == [4.5, 0.125, 0, 2]


def reference_targets(algorithm: dqn.QLearning, sample: Any, double: bool) -> np.ndarray:
    """Return the targets of DQN in plain NumPy, from the networks' outputs."""

    def values(forward: Any, rows: Any) -> np.ndarray:
        outputs = forward(algorithm.environment.observe(rows))
        return outputs[:, 3:4] + outputs[:, :3] - outputs[:, :3].mean(axis=1, keepdims=True)

    targets = values(algorithm._target.forward, sample.following)
    choosing = values(algorithm._learner.forward, sample.following) if double else targets
    best = targets[np.arange(len(targets)), np.where(sample.action_masks == 1, choosing, -np.inf).argmax(axis=1)]
    wanted = sample.returns + sample.discounts * best
    return wanted - values(algorithm._learner.forward, sample.observations)[np.arange(len(best)), sample.actions]


@pytest.mark.parametrize("double", [True, False])
def test_errors_equal_a_slow_reference(double: bool) -> None:
    environment = snake.make(snake.Options(size=5, observation="ego", starvation=9, mask="reverse"))
    asked = dqn.Options(
        lanes=16, horizon=16, batch=32, learning_starts=100, replay=2000, double=double, gamma=0.9,
        frames_per_update=8, target_tau=0.1, learning_rate=0.01,
    )  # fmt: skip
    network = Network.build(Policy(conv=[[4, 3, 1]], dense=[8]), environment.shape, 3, 1)
    algorithm = dqn.make(asked, Setup(1, network, environment, learner=ONE))
    drive(algorithm, environment, range(2))
    algorithm._target.forward.set(initial_weights(network, 7) * -3)  # which rank actions otherwise
    sample = algorithm._replay.sample(1, 256)
    expected, otherwise = (reference_targets(algorithm, sample, how) for how in (double, not double))
    algorithm._learner.load(algorithm._batch(sample, 1.0, 0))
    values = algorithm._learner.update(np.arange(256, dtype=np.int32), 1e-4, {})
    np.testing.assert_allclose(values["td_error"], expected, atol=1e-4)
    assert np.abs(expected - otherwise).max() > 0.01
    importance = algorithm._replay.importance_weights(sample.probabilities, 1.0)
    size = np.abs(expected)
    np.testing.assert_allclose(values["loss"], importance * np.where(size < 1, size**2 / 2, size - 0.5), atol=1e-4)


def both_ways(**options: Any) -> tuple[Any, list[dqn.QLearning]]:
    """The environment, and two that learn in it: asynchronously, and not."""
    environment = snake.make(snake.Options(size=5, observation="ego", starvation=9))
    network = Network.build(Policy(kind="linear"), environment.shape, 3, 1)
    shared = {"lanes": 8, "horizon": 8, **options}
    return environment, [
        dqn.make(dqn.Options(**shared, asynchronous=how), Setup(1, network, environment, learner=ONE))
        for how in (True, False)
    ]


def test_asynchronous_learning_lags_by_one_generation_exactly() -> None:
    environment, (lagging, usual) = both_ways(batch=8, learning_starts=10)
    first = lagging._learner.weights()
    metrics = drive(lagging, environment, range(1, 2))
    assert metrics[0]["updates"] == 0  # nothing was played before
    np.testing.assert_array_equal(lagging._learner.weights(), first)
    lagging._learn_again(7)
    drive(usual, environment, range(1, 2))
    assert usual._learner.updates == lagging._learner.updates > 0  # of the same steps, in another order
    assert lagging.notices
    assert not usual.notices


def test_learning_that_goes_on_meanwhile_ends_before_what_was_played_is_refused(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    environment = snake.make(snake.Options(size=5, observation="ego", starvation=9))
    options = dqn.Options(lanes=8, horizon=8, asynchronous=True)
    network = Network.build(Policy(kind="linear"), environment.shape, 3, 1)
    algorithm = dqn.make(options, Setup(1, network, environment, learner=ONE))

    def learn(number: int, stopped: Callable[[], bool]) -> Metrics:
        while not stopped():
            time.sleep(0.01)
        return {}

    monkeypatch.setattr(algorithm, "_learn_again", learn)
    generation = algorithm.generation(1)
    next(generation)
    assert "learner" in [thread.name for thread in threading.enumerate()]
    with pytest.raises(ResourceError, match="not finite"):
        generation.send([SimpleNamespace(finite=np.zeros(1, bool))])  # type: ignore[list-item]
    assert "learner" not in [thread.name for thread in threading.enumerate()]


def test_asynchronous_learning_without_a_memory_is_from_what_was_played_in_the_generation_before() -> None:
    environment, (lagging, usual) = both_ways(method="pqn", epochs=1, minibatches=1)
    first = lagging._learner.weights()
    metrics = drive(lagging, environment, range(1, 2))
    assert "updates" not in metrics[0]  # nothing was played before
    np.testing.assert_array_equal(lagging._learner.weights(), first)
    drive(lagging, environment, range(2, 3))
    drive(usual, environment, range(1, 2))
    np.testing.assert_allclose(lagging._learner.weights(), usual._learner.weights(), atol=1e-6)  # in another order
    assert np.abs(usual._learner.weights() - first).max() > 1e-4
    assert lagging.notices


@pytest.mark.parametrize("method", METHODS)
def test_an_asynchronous_run_says_what_it_gives_up(small: Path, method: str) -> None:
    words = ("--set", f"dqn.method={method}", "--set", "dqn.asynchronous=true", "--generations", 1)
    _, told = called(small, "small.toml", "--run-dir", "run", *words)
    assert "dqn.asynchronous: a generation is played with the weights from before" in told


def test_the_target_follows_a_little_at_every_update_or_wholly_at_some() -> None:
    environment = snake.make(snake.Options(size=5, observation="ego", starvation=9))
    shared = {"lanes": 8, "horizon": 8, "batch": 8, "learning_starts": 10, "replay": 500}
    network = Network.build(Policy(kind="linear"), environment.shape, 3, 1)
    soft = dqn.make(dqn.Options(**shared, target_tau=1.0), Setup(1, network, environment, learner=ONE))
    drive(soft, environment, range(2))
    assert soft.state()["target"].tobytes() == soft.state()["weights"].tobytes()
    hard = dqn.make(
        dqn.Options(**shared, target_every=3, frames_per_update=32),
        Setup(1, network, environment, learner=ONE),
    )
    drive(hard, environment, range(1))  # two updates
    first = hard.state()["target"].copy()
    assert first.tobytes() != hard.state()["weights"].tobytes()
    drive(hard, environment, range(1, 2))  # the third copies
    assert hard.state()["target"].tobytes() != first.tobytes()


def test_updates_keep_to_the_frames_that_were_played() -> None:
    environment = snake.make(snake.Options(size=5, observation="ego", starvation=9))
    asked = dqn.Options(lanes=8, horizon=5, batch=8, learning_starts=100, replay=500, frames_per_update=30)
    network = Network.build(Policy(kind="linear"), environment.shape, 3, 1)
    algorithm = dqn.make(asked, Setup(1, network, environment, learner=ONE))
    updates = [metrics["updates"] for metrics in drive(algorithm, environment, range(6))]
    assert updates == [0, 0, 1, 1, 2, 1]  # 40 frames a generation, from the third on


def test_a_network_that_is_not_finite_stops_in_one_line() -> None:
    chain = Chain()
    asked = dqn.Options(episodes=2, dueling=False)
    network = Network.build(Policy(kind="linear"), chain.shape, chain.actions)
    algorithm = dqn.make(asked, Setup(1, network, chain, learner=ONE))
    state = dict(algorithm.state())
    state["weights"] = np.full(network.size, np.nan, np.float32)
    algorithm.restore(state, ())
    with pytest.raises(ResourceError, match="not finite"):
        drive(algorithm, chain, range(1))


@pytest.mark.parametrize("method", METHODS)
def test_a_loss_that_is_not_finite_ends_with_exit_code_5_in_a_run_that_is_whole(small: Path, method: str) -> None:
    text = SMALL[: SMALL.index("[environment]")] + SMALL[SMALL.index("[workers]") :]
    (small / "dazzling.toml").write_text(text.replace("symmetry = true", "huber = 0.0") + "episodes = 4\n")
    plugin = ("--plugin", "tests.dazzling", "--set", "environment.id=dazzling", "--set", "policy.kind=linear")
    words = ("--set", f"dqn.method={method}", "--generations", 3)
    _, told = called(small, "dazzling.toml", "--run-dir", "run", *plugin, *words, code=5)
    assert "loss of update 1 is not finite" in told
    assert "Traceback" not in told
    assert Store.open(small / "run").next_generation == (1 if method == "dqn" else 0)


@pytest.mark.parametrize("method", METHODS)
def test_a_run_can_start_from_a_champion(method: str) -> None:
    chain, start = Chain(), np.arange(12, dtype=np.float32)  # which goes right
    network = Network.build(Policy(kind="linear"), chain.shape, 2)
    asked = dqn.Options(method=method, dueling=False)
    algorithm = dqn.make(asked, Setup(1, network, chain, learner=ONE, start=start))
    request = next(algorithm.generation(0))
    assert request.weights.tolist() == [start.tolist()]
    if method == "dqn":
        assert algorithm.state()["target"].tolist() == start.tolist()


def test_numbers_as_actions_are_refused() -> None:
    with pytest.raises(ConfigurationError, match="ppo"):
        dqn.Options().extra_outputs(SimpleNamespace(continuous=True, actions=2))


def test_symmetry_is_refused_where_none_is_known() -> None:
    with pytest.raises(ConfigurationError, match="symmetry"):
        dqn.Options(symmetry=True).extra_outputs(Chain())


def test_what_cannot_be_learned_makes_no_directory(small: Path) -> None:
    text = SMALL[: SMALL.index("[environment]")] + SMALL[SMALL.index("[workers]") :]
    (small / "cart.toml").write_text(text)
    words = ("--set", "environment.id=gymnasium:CartPole-v1", "--set", "policy.kind=linear", "--run-dir", "none")
    _, told = called(small, "cart.toml", *words, code=2)
    assert "dqn.symmetry" in told
    assert not (small / "none").exists()


@pytest.mark.parametrize(
    "keys",
    [
        {"replay": 10, "learning_starts": 11},
        {"target_tau": 0.0},
        {"epsilon": []},
        {"epsilon": [[5, 1.0]]},
        {"epsilon": [[0, 1.0], [0, 0.5]]},
        {"epsilon": [[0, 1.5]]},
        {"method": "pqn", "lanes": 2, "horizon": 2, "minibatches": 5},
        {"batch": 0},
    ],
)
def test_options_that_make_no_sense_are_refused(keys: dict[str, object]) -> None:
    with pytest.raises(ValidationError):
        dqn.Options(**keys)


def test_epsilon_moves_on_straight_lines_and_stays_at_the_last() -> None:
    points = [[0, 1.0], [100, 0.2], [300, 0.0]]
    assert [epsilon_at(points, frames) for frames in (0, 50, 100, 200, 300, 10**9)] == pytest.approx(
        [1, 0.6, 0.2, 0.1, 0, 0]
    )


@pytest.mark.parametrize("method", METHODS)
def test_the_chance_of_any_action_falls_with_the_frames_that_were_played(method: str) -> None:
    environment = snake.make(snake.Options(size=5, observation="ego", starvation=9))
    asked = dqn.Options(
        method=method, lanes=8, horizon=8, batch=8, learning_starts=500, replay=500, minibatches=2,
        epsilon=[[0, 1.0], [256, 0.5]],
    )  # fmt: skip
    network = Network.build(Policy(kind="linear"), environment.shape, 3, 1)
    algorithm = dqn.make(asked, Setup(1, network, environment, learner=ONE))
    chances = []
    for number in range(1, 7):
        task = next(algorithm.generation(number)).tasks[0]
        assert task.action_rule.kind == "epsilon_greedy"
        chances.append(task.action_rule.epsilon)
        drive(algorithm, environment, range(number, number + 1))
    assert chances == [1.0, 0.875, 0.75, 0.625, 0.5, 0.5]


def test_what_makes_up_for_unequal_chances_grows_to_one_with_the_frames(monkeypatch: pytest.MonkeyPatch) -> None:
    environment = snake.make(snake.Options(size=5, observation="ego", starvation=9))
    asked = dqn.Options(
        lanes=8, horizon=8, batch=8, learning_starts=10, replay=500, beta=0.5,
        beta_frames=256,
    )  # fmt: skip
    network = Network.build(Policy(kind="linear"), environment.shape, 3, 1)
    algorithm = dqn.make(asked, Setup(1, network, environment, learner=ONE))
    importance, betas = algorithm._replay.importance_weights, []
    monkeypatch.setattr(
        algorithm._replay, "importance_weights", lambda _, beta: betas.append(beta) or importance(_, beta)
    )
    drive(algorithm, environment, range(1, 6))
    assert betas == [0.625, 0.75, 0.875, 1.0, 1.0]  # one update of 64 frames a generation


def assert_mirrored_or_not(before: np.ndarray, after: np.ndarray, done: np.ndarray, moved: np.ndarray) -> np.ndarray:
    """Return which examples were mirrored; actions (left, straight, right) have to be as well."""
    same = (before == after).all(axis=(1, 2, 3))
    mirrored = (before[:, :, ::-1] == after).all(axis=(1, 2, 3))
    assert (same | mirrored).all()
    assert (same & ~mirrored).sum() > 10
    assert (mirrored & ~same).sum() > 10
    clear = same != mirrored  # not a board that is its own mirror image
    np.testing.assert_array_equal(moved[clear], np.where(same, done, 2 - done)[clear])
    return mirrored


def test_all_of_an_example_is_mirrored_together() -> None:
    environment = snake.make(snake.Options(size=5, observation="ego", starvation=30, mask="fatal"))
    network = Network.build(Policy(kind="linear"), environment.shape, 3, 1)
    shared = {"lanes": 16, "horizon": 16, "symmetry": True}
    asked = dqn.Options(**shared, batch=32, learning_starts=100, replay=2000)
    algorithm = dqn.make(asked, Setup(1, network, environment, learner=ONE))
    drive(algorithm, environment, range(1, 2))
    sample = algorithm._replay.sample(1, 128)
    batch = algorithm._batch(sample, 1.0, 5)
    observed, following = environment.observe(sample.observations), environment.observe(sample.following)
    mirrored = assert_mirrored_or_not(observed, batch["observations"], sample.actions, batch["actions"])
    mirrored_after = assert_mirrored_or_not(following, batch["following"], sample.actions, batch["actions"])
    for i in np.flatnonzero(mirrored != mirrored_after):  # where a board is its own mirror image
        assert (observed[i] == observed[i][:, ::-1]).all() or (following[i] == following[i][:, ::-1]).all()
    assert sample.action_masks is not None
    expected = np.where(mirrored[:, None], sample.action_masks[:, ::-1], sample.action_masks)
    clear = ~(observed == observed[:, :, ::-1]).all(axis=(1, 2, 3))
    np.testing.assert_array_equal(batch["action_masks"][clear], expected[clear])


def test_what_is_learnt_at_once_is_mirrored_together_too(monkeypatch: pytest.MonkeyPatch) -> None:
    environment = snake.make(snake.Options(size=5, observation="ego", starvation=30))
    network = Network.build(Policy(kind="linear"), environment.shape, 3, 1)
    shared = {"lanes": 16, "horizon": 16, "symmetry": True}
    algorithm = dqn.make(dqn.Options(**shared, method="pqn"), Setup(1, network, environment, learner=ONE))
    loaded: list[dict[str, np.ndarray]] = []
    load = algorithm._learner.load
    monkeypatch.setattr(algorithm._learner, "load", lambda data: loaded.append(data) or load(data))
    played: list[Transitions] = []
    drive(algorithm, environment, range(1, 2), played)
    observed = environment.observe(np.concatenate([steps.observations for steps in played]))
    actions = np.concatenate([steps.actions for steps in played])
    assert len(loaded) == 2  # epochs, each in forms of its own
    first, second = (
        assert_mirrored_or_not(observed, data["observations"], actions, data["actions"]) for data in loaded
    )
    assert (first != second).any()


def test_an_unknown_method_is_guessed(small: Path) -> None:
    with pytest.raises(ConfigurationError, match=r'dqn.method = "pqn"'):
        loading.load(small / "small.toml", flags={"algorithm": "pqn"})
