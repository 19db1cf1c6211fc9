"""Compiled episodes equal those played through Gymnasium bit for bit, however a task is split or batched."""

from __future__ import annotations

import platform
import subprocess
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from evo.compiled.functions import check_arithmetic
from evo.environment import Environment as Declared
from evo.environments.instances import OPEN
from evo.games.catalogue import snake
from evo.games.game import GameEnvironment
from evo.games.step import Ended
from evo.networks.network import Network
from evo.networks.network import Options as Policy
from evo.randomness.streams import Purpose, episode_keys
from evo.records import WORST, ActionRule, Episodes, Result, Task, WeightSource, empty_result, worst_of
from evo.rollouts.action_rules import exp_by_squaring
from evo.rollouts.gymnasium_episodes import play_gymnasium
from evo.rollouts.rollout import Rollout
from tests.helpers.sampling import sampled
from tests.rollouts.readable_snake import ReadableSnake

ROOT = Path(__file__).parents[2]
SMALL = Policy(conv=[[5, 3, 2]], dense=[6])
EMPTY = np.empty((0, 0), np.float32)


def fresh(count: int, first: int = 0) -> WeightSource:
    """Return candidates that need no parents."""
    none = np.full(count, -1, np.int32)
    keys = np.arange(first, first + count, dtype=np.uint64)
    return WeightSource(none, none, keys, np.zeros(count, np.float32))


def make(policy: Policy = SMALL, **options: Any) -> Rollout:
    environment = snake.make(snake.Options(**{"size": 5, "starvation": 20, **options}))
    return Rollout(Network.build(policy, environment.shape, environment.actions), environment)


def train(episodes: int, generation: int = 0) -> Episodes:
    return Episodes(episode_keys(1, Purpose.TRAINING, generation, episodes))


@dataclass(frozen=True)
class Elsewhere(Declared):
    """The environment of a rollout, with other Gymnasium environments: nothing of it is compiled."""

    environment: GameEnvironment
    made: Callable[[GameEnvironment], gymnasium.Env]

    actions = property(lambda self: self.environment.actions)
    shape = property(lambda self: self.environment.shape)
    episode_metrics = property(lambda self: self.environment.episode_metrics)

    def env(self) -> gymnasium.Env:
        return self.made(self.environment)

    def metrics_of_episode(self, info: Mapping[str, Any], truncated: bool) -> tuple[int, ...]:
        return self.environment.metrics_of_episode(info, truncated)


def played_plainly(rollout: Rollout, task: Task, made: Callable[[GameEnvironment], gymnasium.Env]) -> Result:
    """Return what `rollout.play` returns, by the plain path; the game is not the compiled one."""
    plain = Rollout(rollout.network, Elsewhere(rollout.environment, made))
    return plain.play(task, EMPTY)


def same(one: Result, other: Result) -> None:
    assert one.returns.tolist() == np.rint(1000 * other.returns).tolist()  # of a game, and of an environment
    for name in ("lengths", "episode_metrics", "finite"):
        assert getattr(one, name).tolist() == getattr(other, name).tolist(), name
    assert one.frames == other.frames
    assert (one.actions is None) == (other.actions is None)
    for mine, theirs in zip(one.actions or (), other.actions or (), strict=True):
        assert mine.tolist() == theirs.tolist()


SEEN = [
    ("frame", "absolute"),
    ("planes", "absolute"),
    ("planes", "relative"),
    ("ego", "relative"),
    ("window", "relative"),
    ("local", "relative"),
    ("features", "relative"),
]
MADE = [ReadableSnake, lambda environment: environment.env()]


@pytest.mark.parametrize("made", MADE, ids=["readable", "gymnasium"])
@pytest.mark.parametrize("rule", ["greedy", pytest.param("softmax", marks=pytest.mark.long)])
@pytest.mark.parametrize("mask", ["none", "reverse", "fatal"])
@pytest.mark.parametrize(("observation", "actions"), SEEN)
def test_compiled_episodes_equal_plain_ones(made, rule: str, mask: str, observation: str, actions: str) -> None:
    rollout = make(observation=observation, actions=actions, mask=mask)
    task = Task(fresh(2), train(19), ActionRule(rule), record_actions=True)
    compiled = rollout.play(task, EMPTY)
    same(compiled, played_plainly(rollout, task, made))
    assert compiled.finite.all()
    assert compiled.frames == compiled.lengths.sum() == sum(map(len, compiled.actions))
    if rule == "softmax":  # chance eats: the comparison reached fruits
        assert compiled.episode_metrics[..., 0].max() > 0


@pytest.mark.long
@settings(max_examples=25, deadline=None)
@given(st.data())
def test_compiled_episodes_equal_plain_ones_under_any_rules(data: st.DataObject) -> None:
    draw = data.draw
    rollout = make(
        size=draw(st.integers(4, 9)),
        tail=draw(st.sampled_from(("legal", "fatal"))),
        starvation=draw(st.integers(1, 30)),
        max_steps=draw(st.integers(0, 40)),
        start_length=draw(st.integers(1, 4)),
        rewards=snake.Rewards(fruit=0.123, death=draw(st.sampled_from((-1.0, 0.0, 0.007))), win=3.5),
        mask=draw(st.sampled_from(("none", "reverse", "fatal"))),
        window=draw(st.sampled_from((0, 3, 7))),
    )
    task = Task(
        fresh(1, draw(st.integers(0, 999))), train(draw(st.integers(1, 40))), ActionRule("softmax"), record_actions=True
    )
    same(rollout.play(task, EMPTY), played_plainly(rollout, task, ReadableSnake))


@pytest.mark.long
def test_whole_games_to_a_full_board_are_equal() -> None:
    # Chance fills a board of 4 x 4 now and then where fatal moves are masked.
    rollout = make(size=4, mask="fatal", starvation=60)
    task = Task(fresh(1), train(40), ActionRule("softmax"), record_actions=True)
    compiled = rollout.play(task, EMPTY)
    assert compiled.episode_metrics[..., 1].sum() > 0
    same(compiled, played_plainly(rollout, task, ReadableSnake))


@pytest.mark.parametrize("episodes", [1, 3, 4, 5, 8, 9, 15, 16, 17, 33, 70])
def test_an_episode_is_the_same_alone_and_in_any_company(episodes: int) -> None:
    rollout = make(mask="fatal")
    task = Task(fresh(1), train(episodes), ActionRule("softmax"), record_actions=True)
    together = rollout.play(task, EMPTY)
    for e in range(episodes):
        alone = rollout.play(replace(task, play=Episodes(task.play.seeds[e : e + 1])), EMPTY)
        assert alone.returns[0, 0] == together.returns[0, e]
        assert alone.episode_metrics[0, 0].tolist() == together.episode_metrics[0, e].tolist()
        assert alone.actions[0].tolist() == together.actions[e].tolist()


def test_finished_lanes_are_refilled_and_narrower_kernels_take_over() -> None:
    rollout = make(mask="fatal", size=8, starvation=100)
    result = rollout.play(Task(fresh(1), train(64), ActionRule("softmax")), EMPTY)
    assert result.frames == result.lengths.sum()
    assert result.frames <= result.lane_slots < 2 * result.frames
    assert result.frames / result.lane_slots > 0.8
    plain_width = 16 * int(result.lengths.max())  # what 16 fixed lanes would take for a quarter of it
    assert rollout.play(Task(fresh(1), train(16), ActionRule("softmax")), EMPTY).lane_slots < plain_width


@settings(max_examples=15, deadline=None)
@given(st.lists(st.integers(1, 5), min_size=1, max_size=5), st.randoms(use_true_random=False))
def test_a_task_may_be_split_and_played_in_any_order(parts: list[int], random: Any) -> None:
    rollout, count = make(), sum(parts)
    whole = rollout.play(Task(fresh(count), train(9)), EMPTY)
    starts = np.cumsum([0, *parts])
    order = list(range(len(parts)))
    random.shuffle(order)
    results = {i: rollout.play(Task(fresh(parts[i], int(starts[i])), train(9)), EMPTY) for i in order}
    for name in ("returns", "lengths", "episode_metrics", "finite"):
        joined = np.concatenate([getattr(results[i], name) for i in range(len(parts))])
        assert joined.tolist() == getattr(whole, name).tolist()
    assert whole.frames == sum(result.frames for result in results.values())
    assert whole.lane_slots == sum(result.lane_slots for result in results.values())


def test_other_episodes_and_other_candidates_give_other_results() -> None:
    rollout = make(mask="fatal")
    play = {
        (key, generation): rollout.play(
            Task(fresh(1, key), train(16, generation), ActionRule("softmax")), EMPTY
        ).lengths.tolist()
        for key in (0, 1)
        for generation in (0, 1)
    }
    assert len({str(lengths) for lengths in play.values()}) == 4


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_weights_that_are_not_finite_rank_worst_and_spoil_no_other(value: float) -> None:
    rollout = make()
    parents = np.random.default_rng(0).standard_normal((3, rollout.network.size)).astype(np.float32)
    good = rollout.play(Task(rows(3), train(5), record_actions=True), parents)
    parents[1, -1] = value
    result = rollout.play(Task(rows(3), train(5), record_actions=True), parents)
    assert result.finite.tolist() == [True, False, True]
    assert (result.returns[1] == WORST).all()
    assert result.lengths[1].tolist() == [0] * 5
    assert result.frames == good.frames - good.lengths[1].sum()
    assert result.returns[[0, 2]].tolist() == good.returns[[0, 2]].tolist()
    assert [len(trace) for trace in result.actions[5:10]] == [0] * 5
    assert result.actions[10].tolist() == good.actions[10].tolist()


@pytest.mark.parametrize("rule", ["greedy", pytest.param("softmax", marks=pytest.mark.long)])
def test_scores_that_overflow_rank_worst_on_both_paths(rule: str) -> None:
    rollout = make(observation="planes")
    parents = np.full((1, rollout.network.size), np.finfo(np.float32).max, np.float32)
    task = Task(rows(1), train(3), ActionRule(rule))
    plain = Rollout(rollout.network, Elsewhere(rollout.environment, ReadableSnake))
    for result in (rollout.play(task, parents), plain.play(task, parents)):
        assert result.finite.tolist() == [False]
        assert result.frames == 0
        assert (result.returns == worst_of(result.returns)).all()


def rows(count: int) -> WeightSource:
    return WeightSource(
        np.arange(count, dtype=np.int32),
        np.full(count, -1, np.int32),
        np.zeros(count, np.uint64),
        np.zeros(count, np.float32),
    )


def test_ties_of_scores_take_the_lowest_allowed_action() -> None:
    rollout = make(starvation=4)
    result = rollout.play(Task(rows(1), train(8), record_actions=True), np.zeros((1, rollout.network.size), np.float32))
    assert {action for trace in result.actions for action in trace.tolist()} == {0}


def test_softmax_draws_follow_the_scores() -> None:
    # With no weights but the last biases, every action is drawn with a probability that is known. None is ruled out.
    rollout = make(Policy(kind="linear"), mask="reverse", starvation=30)
    parents = np.zeros((1, rollout.network.size), np.float32)
    parents[0, -3:] = np.log([0.2, 0.7, 0.1])
    result = rollout.play(Task(rows(1), train(2000), ActionRule("softmax"), record_actions=True), parents)
    firsts = np.bincount([trace[0] for trace in result.actions], minlength=3) / 2000
    assert np.abs(firsts - [0.2, 0.7, 0.1]).max() < 0.04


@settings(deadline=None)
@given(st.floats(-700, 0))
def test_the_exponential_is_close_to_the_real_one(x: float) -> None:
    assert exp_by_squaring(x) == pytest.approx(np.exp(x) if x >= -600 else 0.0, rel=1e-6)


def test_a_reward_that_is_no_number_ranks_worst() -> None:
    class Bottomless(ReadableSnake):
        def step(self, action: int) -> tuple:
            observation, _, *ended = super().step(action)
            return observation, np.nan, *ended

    rollout = make()
    result = played_plainly(rollout, Task(fresh(1), train(3)), Bottomless)
    assert result.finite.tolist() == [False]
    assert result.frames == 0
    assert (result.returns == -np.inf).all()


@pytest.mark.parametrize("reward", [0.0, np.nan])
def test_environments_are_closed_in_the_end_however_their_episodes_end(reward: float) -> None:
    open_ones: set[int] = set()

    class Counted(ReadableSnake):
        def __init__(self, environment: GameEnvironment) -> None:
            super().__init__(environment)
            open_ones.add(id(self))

        def step(self, action: int) -> tuple:
            assert open_ones
            observation, _, *ended = super().step(action)
            return observation, reward, *ended

        def close(self) -> None:
            open_ones.remove(id(self))

    result = played_plainly(make(), Task(fresh(1), train(3)), Counted)
    assert result.finite.tolist() == [reward == 0.0]
    assert 0 < len(open_ones) <= 3  # to be reset for later episodes
    OPEN.here.close()
    assert not open_ones


def test_float_rewards_are_added_in_order() -> None:
    class Tenths(ReadableSnake):
        def step(self, action: int) -> tuple:
            observation, _, *ended = super().step(action)
            return observation, 0.1004, *ended

    rollout = make(starvation=7, mask="fatal")
    result = played_plainly(rollout, Task(fresh(1), train(6)), Tenths)
    expected = [float(np.cumsum(np.full(length, 0.1004))[-1]) for length in result.lengths[0]]
    assert result.returns[0].tolist() == expected
    assert expected != [0.1004 * int(length) for length in result.lengths[0]]


def test_the_plain_path_reads_the_scores_it_is_given() -> None:
    rollout = make(starvation=5)
    environment = Elsewhere(rollout.environment, ReadableSnake)
    arrays = empty_result(1, 2, 3)
    straight = np.array([0, 1, 0], np.float32)
    played = play_gymnasium(
        lambda observations, _: np.tile(straight, (len(observations), 1)),
        environment,
        Task(fresh(1), train(2)),
        Ended(*(arrays[name][0] for name in Ended._fields)),
    )
    assert played.finite
    assert {action for trace in played.actions for action in trace.tolist()} == {1}


def test_the_arithmetic_of_this_process_is_whole() -> None:
    check_arithmetic()


FLUSH = """
import ctypes, mmap
import numpy as np
from evo.compiled.functions import check_arithmetic
from evo.errors import ResourceError
check_arithmetic()
code = mmap.mmap(-1, 4096, prot=mmap.PROT_READ | mmap.PROT_WRITE | mmap.PROT_EXEC)
code.write(bytes.fromhex("0fae17c3"))  # ldmxcsr [rdi]; ret
load = ctypes.CFUNCTYPE(None, ctypes.POINTER(ctypes.c_uint32))(ctypes.addressof(ctypes.c_char.from_buffer(code)))
control = ctypes.c_uint32(0x1F80 | {bits})
load(ctypes.byref(control))
try:
    check_arithmetic()
except ResourceError as error:
    print(error)
"""


@pytest.mark.skipif(platform.machine() != "x86_64", reason="sets the control word of SSE")
@pytest.mark.parametrize("bits", sampled(["0x8000", "0x8040"]), ids=["results", "results and operands"])
def test_flush_to_zero_is_found_out(bits: str) -> None:
    assert "flush-to-zero" in found_with(bits)


@pytest.mark.skipif(platform.machine() != "x86_64", reason="sets the control word of SSE")
@pytest.mark.parametrize("bits", sampled(["0x4000", "0x2000", "0x6000"]), ids=["up", "down", "towards zero"])
def test_another_rounding_is_found_out(bits: str) -> None:
    assert "rounded" in found_with(bits)


def found_with(bits: str) -> str:
    program = [sys.executable, "-c", FLUSH.replace("{bits}", bits)]
    return subprocess.run(program, cwd=ROOT, capture_output=True, text=True, check=True, timeout=60).stdout
