"""Segments behind Gymnasium's interface: as compiled ones, whoever plays them, and wherever they are taken up again."""

from __future__ import annotations

import os
from collections.abc import Callable
from contextlib import closing
from dataclasses import fields
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest

from evo.algorithms import a2c, dqn, ppo, pqn, reinforce
from evo.environments.gymnasium import GymnasiumEnvironment, Options, make
from evo.environments.instances import OPEN, Instance
from evo.games.catalogue import snake
from evo.games.step import some
from evo.learning.collecting import begin_envs, equally_wide
from evo.networks.network import Network
from evo.networks.network import Options as Policy
from evo.records import ActionRule, EnvStates, Result, Segment, Task, WeightSource, joined
from evo.rollouts.gymnasium_segments import packed, unpacked
from evo.rollouts.rollout import Rollout
from evo.workers.channel import WorkerSpec
from evo.workers.pool import Pool
from tests.algorithms.learners import Chain, assert_same, drive, frozen, made
from tests.algorithms.learners import play as play_all
from tests.environments.test_instances import Odd, odd  # noqa: F401
from tests.helpers.calling import summary_of
from tests.rollouts.test_rollout import Elsewhere
from tests.run import shaken

SOFTMAX = ActionRule("softmax")


def rollout_in(environment: Any) -> Rollout:
    extra = 1 + environment.actions * environment.continuous
    return Rollout(Network.build(Policy(kind="linear"), environment.shape, environment.actions, extra), environment)


def play(rollout: Rollout, envs: EnvStates, horizon: int, how: ActionRule | None = None) -> Result:
    weights = np.random.default_rng(3).normal(size=(1, rollout.size)).astype(np.float32) * np.float32(0.3)
    how = how or ActionRule("gaussian" if rollout.environment.continuous else "softmax")
    result = rollout.play(Task(WeightSource.of_row(0), Segment(envs, horizon), how), weights)
    assert result.finite.all()
    return result


def assert_equal(one: Any, other: Any, *but: str) -> None:
    for field in fields(other):
        if field.name not in ("transitions", "envs", "lane_slots", *but):
            mine, theirs = getattr(one, field.name), getattr(other, field.name)
            np.testing.assert_array_equal(mine, theirs, field.name)


@pytest.mark.parametrize("mask", ["reverse", "fatal"])
@pytest.mark.parametrize("closed", [False, True], ids=["open", "closed"])
def test_a_segment_behind_gymnasium_equals_the_compiled_one(mask: str, closed: bool) -> None:
    environment = snake.make(snake.Options(size=6, starvation=9, observation="ego", mask=mask))
    compiled, plain = rollout_in(environment), rollout_in(Elsewhere(environment, lambda game: game.env()))
    expected, found = begin_envs(environment, 7, 0, 9), begin_envs(plain.environment, 7, 0, 9)
    for _ in range(3):  # each goes on where the last one ended
        one, other = play(compiled, expected, 20), play(plain, found, 20)
        assert (one.returns[0] / 1000).tolist() == other.returns[0].tolist()
        assert_equal(other, one, "returns")
        masks = "action_masks", "next_action_masks"
        for name in masks:  # none where each of them allows all
            allowed = getattr(other.transitions, name)
            np.testing.assert_array_equal(getattr(one.transitions, name), 1 if allowed is None else allowed, name)
        assert_equal(other.transitions, one.transitions, "observations", "next_observations", *masks)
        seen = environment.game.observe(one.transitions.observations)
        np.testing.assert_array_equal(other.transitions.observations, seen)
        assert_equal(other.envs, one.envs, "snapshots", "returns_so_far")
        expected, found = one.envs, other.envs
        if closed:
            OPEN.here.close()
    OPEN.here.close()


@pytest.mark.parametrize("name", ["CartPole-v1", "Pendulum-v1"])
def test_two_halves_are_the_whole_and_a_resume_plays_the_actions_of_unfinished_episodes_again(name: str) -> None:
    rollout = rollout_in(make(Options(id=f"gymnasium:{name}")))
    begun = begin_envs(rollout.environment, 1, 0, 5)
    whole, one = play(rollout, begun, 60), play(rollout, begun, 30)
    two = play(rollout, one.envs, 30)
    OPEN.here.close()
    again = play(rollout, one.envs, 30)
    for half in (two, again):
        assert_equal(half.envs, whole.envs)
        halves = (part.transitions.observations.reshape(5, 30, -1) for part in (one, half))
        np.testing.assert_array_equal(np.concatenate([*halves], 1), whole.transitions.observations.reshape(5, 60, -1))
    assert_equal(two.transitions, again.transitions)
    parts = [play(rollout, some(one.envs, slice(k, k + 1)), 30) for k in range(5)]
    assert_equal(joined(equally_wide([part.envs for part in parts])), whole.envs)
    OPEN.here.close()


def test_a_snapshot_is_the_actions_so_far() -> None:
    played = [b"", b"abc", bytes(1000)]
    assert [unpacked(row) for row in packed(played)] == played


@pytest.mark.parametrize(("kind", "found"), [({}, ""), ({"alone": True}, ""), ({"carries": True}, "renewed")])
def test_environments_that_can_be_made_once_or_play_once_give_the_same(
    odd: Callable[..., Any],  # noqa: F811
    kind: dict[str, Any],
    found: str,
) -> None:
    results = []
    for closed in (False, True):
        OPEN.here.close()
        rollout = rollout_in(odd(**kind))
        rollout.seeds = found
        envs = begin_envs(rollout.environment, 1, 0, 3)
        for _ in range(4):
            results.append(play(rollout, envs, 3))
            envs = results[-1].envs
            if closed:
                OPEN.here.close()
        assert len(Odd.alive) <= (1 if kind.get("alone") else 3)
    for one, other in zip(results[:4], results[4:], strict=True):
        assert_equal(one.transitions, other.transitions)
        assert_equal(one.envs, other.envs)


def test_segments_of_episodes_that_disturb_each_other_do_not_depend_on_the_tasks(
    odd: Callable[..., Any],  # noqa: F811
) -> None:
    rollout = rollout_in(odd(shared=True))
    OPEN.here.one_by_one = True
    envs, returns = begin_envs(rollout.environment, 1, 0, 3), []
    for parts in ([slice(0, 3)], [slice(0, 1), slice(1, 3)]):
        at = envs
        for _ in range(3):
            results = [play(rollout, some(at, part), 3) for part in parts]
            at = joined(equally_wide([result.envs for result in results]))
            returns.append(at.returns_so_far.tolist())
    assert returns[:3] == returns[3:]


def test_an_episode_goes_on_as_alone_after_another_one_that_disturbs_it(
    odd: Callable[..., Any],  # noqa: F811
) -> None:
    rollout, returns = rollout_in(odd(shared=True)), []
    OPEN.here.one_by_one = True
    for disturbed in (False, True):
        OPEN.here.close()
        at = play(rollout, begin_envs(rollout.environment, 1, 0, 1), 3).envs
        if disturbed:
            with closing(Instance.of(rollout.environment)) as other:
                other.reset(5)
        returns.append(play(rollout, at, 1).envs.returns_so_far.tolist())
    assert returns[0] == returns[1]


@pytest.mark.parametrize("known", [True, False])
def test_an_episode_that_cannot_be_repeated_is_left_for_the_next_one(
    odd: Callable[..., Any],  # noqa: F811
    capfd: pytest.CaptureFixture[str],
    known: bool,
) -> None:
    rollout = rollout_in(odd(class_state=True))
    rollout.seeds = "ignored" if known else ""
    left = play(rollout, begin_envs(rollout.environment, 1, 0, 2), 3).envs
    assert play(rollout, left, 1).envs.episode.tolist() == [0, 0]  # it is still open
    OPEN.here.close()
    after = play(rollout, left, 1).envs
    assert after.episode.tolist() == [1, 1]
    assert [len(unpacked(row)) for row in after.snapshots] == [1, 1]
    assert capfd.readouterr().err.count("Odd does not repeat an episode from its seed and actions") <= 1


def test_an_environment_that_another_worker_plays_now_is_closed_and_those_in_use_stay(
    odd: Callable[..., Any],  # noqa: F811
) -> None:
    rollout = rollout_in(odd())
    envs = begin_envs(rollout.environment, 1, 0, 6)
    play(rollout, envs, 1)
    assert len(Odd.alive) == 6
    kept = some(envs, slice(4))
    made = Odd.made
    for _ in range(3):
        kept = play(rollout, kept, 1).envs
    assert (Odd.made, len(Odd.alive)) == (made, 4)


def test_outputs_that_are_not_finite_bring_back_no_transitions() -> None:
    rollout = rollout_in(make(Options(id="gymnasium:CartPole-v1")))
    envs = begin_envs(rollout.environment, 1, 0, 2)
    for place in (0, -1):  # of the scores, and of the value
        weights = np.zeros((1, rollout.size), np.float32)
        weights[0, place] = np.inf
        result = rollout.play(Task(WeightSource.of_row(0), Segment(envs, 4), SOFTMAX), weights)
        assert not result.finite.any()
        assert result.transitions is None
    OPEN.here.close()


class Noise(gymnasium.Env):
    """Shows pixels drawn at random, of every brightness."""

    observation_space, action_space = gymnasium.spaces.Box(0, 255, (2, 16, 8), np.uint8), gymnasium.spaces.Discrete(2)

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        return self._seen(), {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        seen = self._seen()
        return seen, float(action), bool(seen[0, 0, 0] > 230), bool(seen[0, 0, 1] > 230), {}

    def _seen(self) -> Any:
        return self.np_random.permuted(np.arange(256, dtype=np.uint8)).reshape(2, 16, 8)


gymnasium.register("Noise-v0", Noise)


class AsShown(GymnasiumEnvironment):
    """The same environment, whose observations are recorded as float32."""

    recorded_as = None


@pytest.mark.parametrize("whole", [False, pytest.param(True, marks=pytest.mark.long)])
@pytest.mark.parametrize("module", [ppo, pytest.param(dqn, marks=pytest.mark.long)])
def test_pixels_are_recorded_in_a_quarter_of_the_memory_and_learning_does_not_notice(module: Any, whole: bool) -> None:
    options = Options(id="gymnasium:Noise-v0")
    replay = {"learning_starts": 50, "replay_size": 200, "batch_size": 16, "frames_per_update": 8}
    learned = []
    for environment in (GymnasiumEnvironment(options), AsShown(options)):
        words = {"envs": 6, "horizon": 9, "whole_episodes": whole, "episodes": 9, **(replay if module is dqn else {})}
        algorithm = made(module, environment, Policy(conv=[[3, 3, 1]]), **words)
        drive(algorithm, range(2))
        last = play_all(algorithm, next(algorithm.generation(2)))[-1]
        learned.append((algorithm.state()["weights"].tobytes(), last.transitions))
    (weights, pixels), (others, shown) = learned
    assert weights == others
    assert pixels.observations.dtype == pixels.next_observations.dtype == np.uint8
    np.testing.assert_array_equal(make(options).recorded_as.observe(pixels.observations), shown.observations)
    np.testing.assert_array_equal(pixels.next_outputs, shown.next_outputs)
    OPEN.here.close()


class Jailed(Chain):
    """In some episodes the first cell allows one action alone; elsewhere a mask of ones is `shown`, or none."""

    def __init__(self, shown: bool) -> None:
        self.shown = shown

    def env(self) -> Jailed:
        return Jailed(self.shown)

    def reset(self, seed: int) -> tuple[np.ndarray, dict[str, Any]]:
        self.jails = seed % 8 == 0
        return super().reset(seed)[0], self._info()

    def step(self, action: int) -> tuple[np.ndarray, float, bool, bool, dict[str, Any]]:
        return *super().step(action)[:-1], self._info()

    def _info(self) -> dict[str, Any]:
        if self.jails and self.cell == 0:
            return {"action_mask": np.array([0, 1], np.int8)}
        return {"action_mask": np.ones(2, np.int8)} if self.shown else {}


FEW = {"envs": 8, "horizon": 6, "envs_per_task": 4}
OFTEN = {"learning_starts": 50, "replay_size": 200, "batch_size": 16, "frames_per_update": 8, "n_step": 1}


@pytest.mark.parametrize(
    ("module", "options"),
    [
        (ppo, FEW),
        (dqn, {**FEW, **OFTEN}),
        (dqn, {**OFTEN, "whole_episodes": True, "episodes": 8, "envs_per_task": 4}),
        (a2c, FEW),
        (pqn, FEW),
        (reinforce, {"episodes": 8, "envs_per_task": 4}),
    ],
)
def test_a_mask_that_is_missing_is_a_mask_of_ones(module: Any, options: dict[str, Any]) -> None:
    first, arrays = set(), []

    def answer(request: Any) -> list[Result]:
        results = play_all(algorithm, request)
        without = [result.transitions.action_masks is None for result in results]
        first.update(without[:1] if len({*without}) > 1 else [])
        return results

    for shown in (False, True):
        algorithm = made(module, Jailed(shown), **options)
        records = []
        for number in range(8):
            drive(algorithm, number, answer)
            records.append(frozen(algorithm.record()))
        arrays.append([frozen(algorithm.state()), *records])
        OPEN.here.close()
    for one, other in zip(*arrays, strict=True):
        assert_same(one, other)
    assert first == {True, False}  # tasks without masks came first, and those with masks
    if module is dqn:
        again = made(module, Jailed(True), **options)
        again.restore(arrays[0][0], records)
        drive(again, 8)
        drive(algorithm, 8)
        assert_same(again.state(), algorithm.state())
        OPEN.here.close()


def stays_open(rollout: Rollout, count: int) -> list[Task]:
    envs = begin_envs(rollout.environment, 1, 0, count)
    each = [some(envs, slice(k, k + 1)) for k in range(count)]
    return [Task(WeightSource.of_row(0), Segment(one, 1, stay_open=True)) for one in each]


def test_workers_play_the_environments_that_they_have_open_and_take_over_those_of_one_that_is_gone() -> None:
    tasks = stays_open(rollout_in(make(Options(id="gymnasium:CartPole-v1"))), 12)
    with Pool(WorkerSpec("tests.workers.players:Process", 0.02), [{}, {}, {}]) as pool:
        pool.map(tasks)
        pool.map(tasks)  # all workers are ready now
        first, second = (pool.map(tasks).results for _ in range(2))
        assert set(first) == {*pool.pids}
        assert sum(one == other for one, other in zip(first, second, strict=True)) >= 9
        gone = pool.pids[0]
        os.kill(gone, 9)
        assert gone not in pool.map(tasks).results
        assert all(pool.map(tasks[:k]).results for k in (1, 2, 12))


CART = """
[run]
algorithm = "ALGORITHM"
generations = 4
[environment]
id = "gymnasium:CartPole-v1"
[policy]
kind = "mlp"
dense = [8]
[validation]
every = 2
episodes = 4
[test]
episodes = 4
[ALGORITHM]
envs = 12
horizon = 16
"""
MORE = {
    "ppo": "envs_per_task = 3\nnormalise_rewards = true\nnormalise_observations = true\n",
    "a2c": "",
    "pqn": "",
    "dqn": "learning_starts = 100\nreplay_size = 500\nbatch_size = 32\n",
}


@pytest.mark.long
@pytest.mark.parametrize("algorithm", ["ppo", "a2c", "pqn", "dqn"])
def test_runs_are_one_whatever_the_workers_and_after_kills_and_resumes(
    algorithm: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "cart.toml").write_text(CART.replace("ALGORITHM", algorithm) + MORE[algorithm])
    straight = summary_of(tmp_path, "cart.toml", "--run-dir", "straight", "--backend", "serial")
    assert straight["frames"] > 4 * 12 * 16
    stopped = summary_of(tmp_path, "cart.toml", "--run-dir", "run", "--generations", 1, "--workers", 2)
    assert stopped["generations"] == 1
    monkeypatch.setenv("SHAKEN", "1:2")
    before = shaken.killed
    words = ("--plugin", "tests.run.shaken", "--backend", "shaken", "--workers", 3)
    resumed = summary_of(tmp_path, "--resume", "run", "--generations", 4, *words)
    assert shaken.killed > before
    assert resumed["state_hash"] == straight["state_hash"]
    assert resumed["champion"] == straight["champion"]
