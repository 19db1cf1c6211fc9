"""Every step of whole episodes is brought back, with the same bits whether they were compiled or played plainly."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import gymnasium
import numpy as np
import pytest

from evo.environments import gymnasium as anything
from evo.games.catalogue import snake
from evo.games.game import GameEnvironment
from evo.kernels import lanes
from evo.networks.network import Network
from evo.networks.network import Options as Policy
from evo.records import GOES_ON, TERMINATED, TRUNCATED, ActionRule, Result, Task, Transitions
from evo.rollouts.rollout import Rollout
from tests.helpers.sampling import sampled
from tests.rollouts.readable_snake import ReadableSnake
from tests.rollouts.test_rollout import EMPTY, Elsewhere, fresh, make, rows, train

MADE: list[Callable[[GameEnvironment], gymnasium.Env]] = [ReadableSnake, lambda environment: environment.env()]


def with_value(**options: Any) -> Rollout:
    """Return a rollout whose network has an output beside the scores."""
    environment = snake.make(snake.Options(**{"size": 5, "starvation": 12, "observation": "ego", **options}))
    network = Network.build(Policy(conv=[[5, 3, 2]], dense=[6]), environment.shape, environment.actions, 1)
    return Rollout(network, environment)


def recorded(rollout: Rollout, task: Task, parents: np.ndarray = EMPTY) -> tuple[Result, Transitions]:
    result = rollout.play(replace(task, record_transitions=True), parents)
    assert result.transitions is not None
    return result, result.transitions


@pytest.mark.long
@pytest.mark.parametrize("made", MADE, ids=["readable", "gymnasium"])
@pytest.mark.parametrize(
    "how",
    [ActionRule(), ActionRule("softmax"), ActionRule("epsilon_greedy", 0.3)],
    ids=["greedy", "softmax", "epsilon_greedy"],
)
@pytest.mark.parametrize("mask", ["none", "fatal"])
def test_recorded_steps_of_compiled_episodes_equal_plain_ones(made: Any, how: ActionRule, mask: str) -> None:
    rollout = with_value(mask=mask)
    task = Task(fresh(1), train(21), how, record_actions=True)
    compiled, steps = recorded(rollout, task)
    plain, expected = recorded(Rollout(rollout.network, Elsewhere(rollout.environment, made)), task)
    assert compiled.returns.tolist() == np.rint(1000 * plain.returns).tolist()
    assert [trace.tolist() for trace in compiled.actions] == [trace.tolist() for trace in plain.actions]
    observe = rollout.environment.game.observe
    assert observe(steps.observations).tobytes() == expected.observations.tobytes()
    for name in ("actions", "rewards", "ends", "outputs"):
        assert getattr(steps, name).tobytes() == getattr(expected, name).tobytes(), name
        assert getattr(steps, name).dtype == getattr(expected, name).dtype, name
    if mask == "fatal":
        assert steps.action_masks.tolist() == expected.action_masks.tolist()
    else:
        assert steps.action_masks is None
        assert steps.next_action_masks is None
    # The readable game shows nothing after its end, so what follows is compared with the compiled game alone.
    if made is not ReadableSnake:
        assert observe(steps.next_observations).tobytes() == expected.next_observations.tobytes()
        assert steps.next_outputs.tobytes() == expected.next_outputs.tobytes()
    assert {GOES_ON, TRUNCATED} <= {*steps.ends.tolist()}


@pytest.mark.long
def test_recording_changes_no_result_and_counts_every_step_once() -> None:
    rollout = with_value()
    task = Task(fresh(1), train(40), ActionRule("softmax"), record_actions=True)
    without, (result, steps) = rollout.play(task, EMPTY), recorded(rollout, task)
    for name in ("returns", "lengths", "episode_metrics"):
        assert getattr(result, name).tolist() == getattr(without, name).tolist()
    assert result.frames == without.frames == len(steps) == result.lengths.sum()
    assert np.concatenate(result.actions).tolist() == steps.actions.tolist()
    last = result.lengths[0].cumsum() - 1
    assert np.flatnonzero(steps.ends).tolist() == last.tolist()
    assert (steps.ends[last] == TRUNCATED).tolist() == result.episode_metrics[0, :, 2].astype(bool).tolist()
    sums = np.add.reduceat(steps.rewards.astype(np.float64), np.r_[0, last[:-1] + 1])
    np.testing.assert_allclose(1000 * sums, result.returns[0])
    assert len(steps.next_observations) == (steps.ends == TRUNCATED).sum() > 0
    assert (steps.ends == TERMINATED).any()


@pytest.mark.long
def test_outputs_are_those_of_the_network_for_what_was_seen() -> None:
    rollout = with_value()
    weights = np.random.default_rng(2).standard_normal((1, rollout.network.size)).astype(np.float32)
    _, steps = recorded(rollout, Task(rows(1), train(9), ActionRule("softmax")), weights)
    observe = rollout.environment.game.observe
    for seen, outputs in ((steps.observations, steps.outputs), (steps.next_observations, steps.next_outputs)):
        assert lanes.scores(rollout.network, weights[0], observe(seen)).tobytes() == outputs.tobytes()


def test_another_environment_brings_back_what_it_showed_and_paid() -> None:
    environment = anything.make(anything.Options(id="gymnasium:CartPole-v1", max_steps=25))
    rollout = Rollout(Network.build(Policy(kind="linear"), environment.shape, environment.actions, 1), environment)
    task = Task(fresh(1), train(6), ActionRule("softmax"), record_actions=True)
    result, steps = recorded(rollout, task)
    at = after = 0
    for seed, actions in zip(task.play.seeds, result.actions, strict=True):
        env = gymnasium.make("CartPole-v1", max_episode_steps=25)
        observation, _ = env.reset(seed=int(seed) >> 33)
        for action in actions.tolist():
            assert steps.observations[at].tolist() == observation.tolist()
            assert steps.actions[at] == action
            observation, reward, terminated, truncated, _ = env.step(action)
            assert steps.rewards[at] == reward
            assert steps.ends[at] == (TERMINATED if terminated else TRUNCATED if truncated else GOES_ON)
            at += 1
        if truncated and not terminated:
            assert steps.next_observations[after].tolist() == observation.tolist()
            after += 1
    assert (at, after) == (len(steps), len(steps.next_observations))
    assert 0 < after < 6
    assert steps.action_masks is None
    assert steps.observations.dtype == np.float32


def test_steps_of_two_candidates_are_refused() -> None:
    with pytest.raises(ValueError, match="one candidate"):
        make().play(Task(fresh(2), train(1), record_transitions=True), EMPTY)


@pytest.mark.parametrize("elsewhere", sampled([False, True], 1))
def test_outputs_that_are_not_finite_bring_back_no_steps(elsewhere: bool) -> None:
    rollout = with_value()
    if elsewhere:
        rollout = Rollout(rollout.network, Elsewhere(rollout.environment, ReadableSnake))
    weights = np.zeros((1, rollout.network.size), np.float32)
    *_, hidden_bias, kernel, _ = rollout.network.split(weights[0])
    hidden_bias[:], kernel[:, -1] = 1, 3e38  # the value overflows, on which no action depends
    result = rollout.play(Task(rows(1), train(3), record_transitions=True, record_actions=True), weights)
    assert not result.finite[0]
    assert result.transitions is None
    assert [len(trace) for trace in result.actions] == [0, 0, 0]
