from __future__ import annotations

from dataclasses import fields, replace
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from evo.games.catalogue import snake
from evo.games.game import GameEnvironment
from evo.kernels import lanes as kernel
from evo.kernels import layout
from evo.networks.network import Network, Options
from evo.randomness.streams import Purpose, stream
from evo.records import SEGMENT_END, TERMINATED, TRUNCATED, ActionRule, EnvStates, Result, Segment, Task, WeightSource
from evo.rollouts import tensorflow_kernel
from evo.rollouts.rollout import Rollout
from tests.rollouts.readable_segment import ReadableLane

EXTRA = 1
RULES = [
    pytest.param(ActionRule("greedy"), id="greedy", marks=pytest.mark.long),
    pytest.param(ActionRule("softmax"), id="softmax"),
    pytest.param(ActionRule("epsilon_greedy", 0.3), id="epsilon_greedy", marks=pytest.mark.long),
]


def world(**options: Any) -> tuple[GameEnvironment, Network, NDArray[np.float32]]:
    environment = snake.make(snake.Options(**{"size": 6, "starvation": 9, "observation": "ego", **options}))
    network = Network.build(Options(conv=[[5, 3, 1]], dense=[7]), environment.shape, environment.actions, EXTRA)
    weights = np.random.default_rng(3).normal(size=network.size).astype(np.float32) * np.float32(0.3)
    return environment, network, weights


def begin(environment: GameEnvironment, count: int) -> EnvStates:
    return environment.game.begin(np.array([stream(7, Purpose.ENV, 0, lane) for lane in range(count)], np.uint64))


def play(
    environment: GameEnvironment,
    network: Network,
    weights: NDArray[np.float32],
    lanes: EnvStates,
    how: ActionRule,
    horizon: int,
) -> Result:
    source = WeightSource(*(np.zeros(1, t) for t in (np.int32, np.int32, np.uint64, np.float32)))
    source = replace(source, mates=np.full(1, -1, np.int32))
    return Rollout(network, environment).play(Task(source, Segment(lanes, horizon), how), weights[None])


@pytest.mark.parametrize("how", RULES)
@pytest.mark.parametrize("mask", [pytest.param("none", marks=pytest.mark.long), "fatal"])
def test_a_compiled_segment_equals_the_readable_one_step_by_step(how: ActionRule, mask: str) -> None:
    environment, network, weights = world(mask=mask)
    count, horizon = 21, 30
    lanes = begin(environment, count)
    readable = [ReadableLane(environment, int(first)) for first in lanes.first]
    for _ in range(2):  # the second goes on where the first left off
        result = play(environment, network, weights, lanes, how, horizon)
        played = [lane.play(network, weights, horizon, how) for lane in readable]
        expected = {name: [value for lane in played for value in lane[name]] for name in played[0]}
        steps = result.transitions
        assert steps is not None
        assert result.envs is not None
        np.testing.assert_array_equal(environment.game.observe(steps.observations), np.array(expected["seen"]))
        np.testing.assert_array_equal(environment.game.observe(steps.next_observations), np.array(expected["after"]))
        np.testing.assert_array_equal(steps.actions, expected["actions"])
        np.testing.assert_array_equal(steps.ends, expected["ends"])
        np.testing.assert_allclose(steps.rewards, expected["rewards"])
        np.testing.assert_array_equal(steps.outputs, np.array(expected["outputs"]))
        np.testing.assert_array_equal(steps.next_outputs, np.array(expected["next_outputs"]))
        if mask == "none":
            assert steps.action_masks is None
            assert steps.next_action_masks is None
        else:
            np.testing.assert_array_equal(steps.action_masks, np.array(expected["allowed"]))
        ended = [(r, n, s) for r, n, s in expected["ended"]]
        assert ended == list(
            zip(
                result.returns[0].tolist(),
                result.lengths[0].tolist(),
                result.episode_metrics[0, :, 0].tolist(),
                strict=True,
            )
        )
        assert result.frames == count * horizon == len(steps)
        assert {TERMINATED, TRUNCATED, SEGMENT_END} <= {*steps.ends.tolist()} or mask == "fatal"
        lanes = result.envs


@pytest.mark.long
@pytest.mark.parametrize("how", RULES)
@pytest.mark.parametrize("mask", ["none", "fatal"])
def test_a_segment_that_is_scored_elsewhere_equals_the_compiled_one(how: ActionRule, mask: str) -> None:
    environment, network, weights = world(mask=mask)
    lanes, horizon = begin(environment, 21), 30
    for _ in range(2):
        expected = play(environment, network, weights, lanes, how, horizon)
        result = tensorflow_kernel.play_segment(
            lambda seen, _: kernel.scores(network, weights, seen),
            environment.game,
            Segment(lanes, horizon),
            network.outputs,
            how,
        )
        for one, other in (
            (result, expected),
            (result.transitions, expected.transitions),
            (result.envs, expected.envs),
        ):
            for field in fields(other):
                if field.name not in ("lane_slots", "transitions", "envs"):
                    np.testing.assert_array_equal(getattr(one, field.name), getattr(other, field.name), field.name)
        lanes = result.envs


def test_two_halves_of_a_segment_are_the_whole() -> None:
    environment, network, weights = world()
    lanes = begin(environment, 16)
    whole = play(environment, network, weights, lanes, ActionRule("softmax"), 40)
    one = play(environment, network, weights, lanes, ActionRule("softmax"), 20)
    assert one.envs is not None
    assert whole.envs is not None
    two = play(environment, network, weights, one.envs, ActionRule("softmax"), 20)
    assert two.envs is not None
    assert whole.transitions
    assert one.transitions
    assert two.transitions
    assert (whole.transitions.memories, whole.envs.memories) == (None, None)  # of the network's hidden states
    np.testing.assert_array_equal(two.envs.snapshots, whole.envs.snapshots)
    np.testing.assert_array_equal(two.envs.returns_so_far, whole.envs.returns_so_far)
    halves = np.concatenate([one.transitions.actions.reshape(16, 20), two.transitions.actions.reshape(16, 20)], axis=1)
    np.testing.assert_array_equal(halves, whole.transitions.actions.reshape(16, 40))


def test_a_lane_plays_the_same_whatever_its_neighbours() -> None:
    environment, network, weights = world()
    lanes = begin(environment, 19)
    together = play(environment, network, weights, lanes, ActionRule("softmax"), 25)
    alone = EnvStates(lanes.snapshots[18:], lanes.first[18:], lanes.episode[18:], lanes.returns_so_far[18:])
    single = play(environment, network, weights, alone, ActionRule("softmax"), 25)
    assert together.transitions
    assert single.transitions
    np.testing.assert_array_equal(together.transitions.outputs[18 * 25 :], single.transitions.outputs)
    np.testing.assert_array_equal(together.transitions.observations[18 * 25 :], single.transitions.observations)


def test_epsilon_greedy_explores_as_often_as_it_is_told_and_only_what_is_allowed() -> None:
    environment, network, weights = world(mask="fatal", starvation=50)
    lanes = begin(environment, 64)
    steps = play(environment, network, weights, lanes, ActionRule("epsilon_greedy", 0.4), 60).transitions
    assert steps is not None
    assert steps.action_masks is not None
    assert steps.action_masks[np.arange(len(steps)), steps.actions.astype(int)].all()
    best = np.where(steps.action_masks == 1, steps.outputs[:, :3], -np.inf).argmax(axis=1)
    free = steps.action_masks.sum(axis=1)
    strayed, expected = (best != steps.actions).sum(), (0.4 * (1 - 1 / free)).sum()
    assert abs(strayed - expected) < 5 * np.sqrt(expected)


def test_scores_that_are_not_finite_bring_back_no_steps() -> None:
    environment, network, weights = world()
    weights[-1] = np.nan  # the value head's bias: no action depends on it
    result = play(environment, network, weights, begin(environment, 4), ActionRule("softmax"), 5)
    assert not result.finite[0]
    assert result.frames == 0
    assert result.transitions is None
    assert result.envs is None


@pytest.mark.long
def test_weights_that_are_not_finite_bring_back_no_steps_also_where_only_zeros_meet_them(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(layout, "LARGE", 0)
    environment, _, _ = world()
    network = Network.build(Options(conv=[[5, 3, 1]], dense=[64]), environment.shape, environment.actions, EXTRA)
    weights = np.random.default_rng(3).normal(size=network.size).astype(np.float32) * np.float32(0.3)
    first, second = network.layers[:2]
    weights[second.offset - first.filters : second.offset] = -1e9  # biases: nothing is seen behind the relu
    assert play(environment, network, weights, begin(environment, 4), ActionRule("softmax"), 5).finite[0]
    weights[second.offset] = np.nan
    result = play(environment, network, weights, begin(environment, 4), ActionRule("softmax"), 5)
    assert not result.finite[0]
    assert result.transitions is None


def test_a_segment_of_two_candidates_is_refused() -> None:
    environment, network, weights = world()
    source = WeightSource(*(np.zeros(2, t) for t in (np.int32, np.int32, np.uint64, np.float32)))
    with pytest.raises(ValueError, match="one candidate"):
        Rollout(network, environment).play(Task(source, Segment(begin(environment, 2), 3)), weights[None])
