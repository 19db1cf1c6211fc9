"""Every step of whole episodes is brought back, with the same bits whether they were compiled or played plainly."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import gymnasium
import numpy as np
import pytest
from readable_snake import ReadableSnake
from test_rollout import EMPTY, Elsewhere, fresh, make, rows, train

from evo.environments import gymnasium as anything
from evo.environments import snake
from evo.kernels import lanes
from evo.networks.network import Network
from evo.networks.network import Options as Policy
from evo.records import GOES_ON, TERMINATED, TRUNCATED, Choose, Result, Steps, Task
from evo.rollouts.rollout import Rollout

MADE: list[Callable[[snake.Environment], gymnasium.Env]] = [ReadableSnake, lambda environment: environment.env()]


def with_value(**options: Any) -> Rollout:
    """Return a rollout whose network has an output beside the scores."""
    environment = snake.make(snake.Options(**{"size": 5, "starvation": 12, "observation": "ego", **options}))
    network = Network.build(Policy(conv=[[5, 3, 2]], dense=[6]), environment.shape, environment.actions, 1)
    return Rollout(network, environment)


def recorded(rollout: Rollout, task: Task, parents: np.ndarray = EMPTY) -> tuple[Result, Steps]:
    result = rollout.play(replace(task, record=True), parents)
    assert result.steps is not None
    return result, result.steps


@pytest.mark.parametrize("made", MADE, ids=["readable", "gymnasium"])
@pytest.mark.parametrize("how", [Choose(), Choose("softmax"), Choose("epsilon_greedy", 0.3)], ids=lambda how: how.rule)
@pytest.mark.parametrize("mask", ["none", "fatal"])
def test_recorded_steps_of_compiled_episodes_equal_plain_ones(made: Any, how: Choose, mask: str) -> None:
    rollout = with_value(mask=mask)
    task = Task(fresh(1), train(21), how, trace=True)
    compiled, steps = recorded(rollout, task)
    plain, expected = recorded(Rollout(rollout.network, Elsewhere(rollout.environment, made)), task)
    assert compiled.returns.tolist() == plain.returns.tolist()
    assert [trace.tolist() for trace in compiled.actions] == [trace.tolist() for trace in plain.actions]
    observe = rollout.environment.observe
    assert observe(steps.observed).tobytes() == expected.observed.tobytes()
    for name in ("actions", "rewards", "ends", "outputs"):
        assert getattr(steps, name).tobytes() == getattr(expected, name).tobytes(), name
        assert getattr(steps, name).dtype == getattr(expected, name).dtype, name
    if mask == "fatal":
        assert steps.allowed.tolist() == expected.allowed.tolist()
    else:
        assert steps.allowed is None
        assert steps.after_allowed is None
    # The readable game shows nothing after its end, so what follows is compared with the compiled game alone.
    if made is not ReadableSnake:
        assert observe(steps.after).tobytes() == expected.after.tobytes()
        assert steps.after_outputs.tobytes() == expected.after_outputs.tobytes()
    assert {GOES_ON, TRUNCATED} <= {*steps.ends.tolist()}


def test_recording_changes_no_result_and_counts_every_step_once() -> None:
    rollout = with_value()
    task = Task(fresh(1), train(40), Choose("softmax"), trace=True)
    without, (result, steps) = rollout.play(task, EMPTY), recorded(rollout, task)
    for name in ("returns", "lengths", "measures"):
        assert getattr(result, name).tolist() == getattr(without, name).tolist()
    assert result.frames == without.frames == len(steps) == result.lengths.sum()
    assert np.concatenate(result.actions).tolist() == steps.actions.tolist()
    last = result.lengths[0].cumsum() - 1
    assert np.flatnonzero(steps.ends).tolist() == last.tolist()
    assert (steps.ends[last] == TRUNCATED).tolist() == result.measures[0, :, 2].astype(bool).tolist()
    sums = np.add.reduceat(steps.rewards.astype(np.float64), np.r_[0, last[:-1] + 1])
    np.testing.assert_allclose(1000 * sums, result.returns[0])
    assert len(steps.after) == (steps.ends == TRUNCATED).sum() > 0
    assert (steps.ends == TERMINATED).any()


def test_outputs_are_those_of_the_network_for_what_was_seen() -> None:
    rollout = with_value()
    weights = np.random.default_rng(2).standard_normal((1, rollout.network.size)).astype(np.float32)
    _, steps = recorded(rollout, Task(rows(1), train(9), Choose("softmax")), weights)
    observe = rollout.environment.observe
    for seen, outputs in ((steps.observed, steps.outputs), (steps.after, steps.after_outputs)):
        assert lanes.scores(rollout.network, weights[0], observe(seen)).tobytes() == outputs.tobytes()


def test_another_environment_brings_back_what_it_showed_and_paid() -> None:
    environment = anything.make(anything.Options(id="gymnasium:CartPole-v1", max_steps=25))
    rollout = Rollout(Network.build(Policy(kind="linear"), environment.shape, environment.actions, 1), environment)
    task = Task(fresh(1), train(6), Choose("softmax"), trace=True)
    result, steps = recorded(rollout, task)
    at = after = 0
    for seed, actions in zip(task.play.seeds, result.actions, strict=True):
        env = gymnasium.make("CartPole-v1", max_episode_steps=25)
        observation, _ = env.reset(seed=int(seed))
        for action in actions.tolist():
            assert steps.observed[at].tolist() == observation.tolist()
            assert steps.actions[at] == action
            observation, reward, terminated, truncated, _ = env.step(action)
            assert steps.rewards[at] == reward
            assert steps.ends[at] == (TERMINATED if terminated else TRUNCATED if truncated else GOES_ON)
            at += 1
        if truncated and not terminated:
            assert steps.after[after].tolist() == observation.tolist()
            after += 1
    assert (at, after) == (len(steps), len(steps.after))
    assert 0 < after < 6
    assert steps.allowed is None
    assert steps.observed.dtype == np.float32


def test_steps_of_two_candidates_are_refused() -> None:
    with pytest.raises(ValueError, match="one candidate"):
        make().play(Task(fresh(2), train(1), record=True), EMPTY)


@pytest.mark.parametrize("elsewhere", [False, True])
def test_outputs_that_are_not_finite_bring_back_no_steps(elsewhere: bool) -> None:
    rollout = with_value()
    if elsewhere:
        rollout = Rollout(rollout.network, Elsewhere(rollout.environment, ReadableSnake))
    weights = np.zeros((1, rollout.network.size), np.float32)
    *_, hidden_bias, kernel, _ = rollout.network.split(weights[0])
    hidden_bias[:], kernel[:, -1] = 1, 3e38  # the value overflows, on which no action depends
    result = rollout.play(Task(rows(1), train(3), record=True, trace=True), weights)
    assert not result.finite[0]
    assert result.steps is None
    assert [len(trace) for trace in result.actions] == [0, 0, 0]
