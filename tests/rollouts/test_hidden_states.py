"""Networks with memory play whole episodes and segments with one state for each, zero where an episode begins."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from evo.environments import gymnasium as anything
from evo.environments.instances import OPEN
from evo.games.catalogue import snake, tmaze
from evo.games.game import GameEnvironment
from evo.games.step import Ended
from evo.kernels import lanes
from evo.networks.network import Network
from evo.networks.network import Options as Policy
from evo.records import GOES_ON, TRUNCATED, ActionRule, EnvStates, Result, Segment, Task, Transitions, empty_result
from evo.rollouts import gymnasium_segments, tensorflow_kernel
from evo.rollouts.rollout import Rollout
from tests.helpers.networks import random_weights
from tests.rollouts.test_rollout import Elsewhere, rows, train
from tests.rollouts.test_segment import begin

SOFTMAX = ActionRule("softmax")
GAMES = [
    pytest.param(tmaze.make(tmaze.Options(id="tmaze", length=2, step_cost=0.01, max_steps=9)), id="tmaze"),
    pytest.param(
        snake.make(snake.Options(size=5, starvation=9, observation="ego")), id="snake", marks=pytest.mark.long
    ),
]
LAYERS = ["gru 5", "norm", "dense 6", "tanh", "lstm 3"]


def playing(environment: GameEnvironment) -> tuple[Rollout, np.ndarray]:
    network = Network.build(Policy(layers=LAYERS), environment.shape, environment.actions, 1)
    return Rollout(network, environment), random_weights(network, 3)


def check_states(rollout: Rollout, weights: np.ndarray, steps: Transitions, begins: np.ndarray | None = None) -> None:
    """Compute every output and state again, one step after the other; a new row of `begins` for every segment."""
    observe = rollout.environment.game.observe if rollout.environment.game else np.asarray
    seen, following = observe(steps.observations), iter(observe(steps.next_observations))
    next_outputs, segment = iter(steps.next_outputs), 0
    state = np.zeros((1, rollout.network.memory), np.float32)
    for row, end in enumerate(steps.ends.tolist()):
        if begins is not None and row % (len(steps) // len(begins)) == 0:
            state, segment = begins[segment : segment + 1].copy(), segment + 1
        assert steps.memories[row].tobytes() == state.tobytes()
        outputs = lanes.scores(rollout.network, weights, seen[row : row + 1], memory=state)
        assert outputs.tobytes() == steps.outputs[row].tobytes()
        assert state.any()
        if end >= TRUNCATED:
            outputs = lanes.scores(rollout.network, weights, next(following)[np.newaxis], memory=state)
            assert outputs.tobytes() == next(next_outputs).tobytes()
        if end != GOES_ON:
            state[:] = 0
    assert next(next_outputs, None) is None


def equal(one: Result, other: Result) -> None:
    for mine, theirs in ((one, other), (one.transitions, other.transitions), (one.envs, other.envs)):
        names = set(vars(mine or theirs or {}) if mine is not None else ()) - {"lane_slots", "transitions", "envs"}
        for name in names:
            np.testing.assert_array_equal(getattr(mine, name), getattr(theirs, name), name)


@pytest.mark.long
@pytest.mark.parametrize("played", GAMES)
def test_whole_episodes_have_a_state_each_through_refills_and_compaction(played: GameEnvironment) -> None:
    rollout, weights = playing(played)
    task = Task(rows(1), train(37), SOFTMAX, record_actions=True, record_transitions=True)
    result = rollout.play(task, weights[np.newaxis])
    assert result.transitions is not None
    check_states(rollout, weights, result.transitions)
    plain = Rollout(rollout.network, Elsewhere(played, lambda one: one.env())).play(task, weights[np.newaxis])
    assert [one.tolist() for one in result.actions] == [one.tolist() for one in plain.actions]
    for name in ("outputs", "memories", "next_outputs"):
        assert getattr(result.transitions, name).tobytes() == getattr(plain.transitions, name).tobytes(), name
    ended = Ended(*(empty_result(1, 37, len(played.episode_metrics))[name][0] for name in Ended._fields))
    network, game = rollout.network, played.game
    scored = tensorflow_kernel.play_episodes(
        lambda seen, memory: lanes.scores(network, weights, seen, memory=memory), game, task, ended, network.outputs,
        network.memory,
    )  # fmt: skip
    assert ended.returns.tolist() == result.returns[0].tolist()
    assert scored.transitions.memories.tobytes() == result.transitions.memories.tobytes()


@pytest.mark.long
@pytest.mark.parametrize("played", GAMES)
def test_a_segment_goes_on_with_the_states_of_the_one_before(played: GameEnvironment) -> None:
    rollout, weights = playing(played)
    network, game, envs = rollout.network, played.game, begin(played, 21)

    def play(envs: EnvStates, horizon: int) -> Result:
        return rollout.play(Task(rows(1), Segment(envs, horizon), SOFTMAX), weights[np.newaxis])

    whole, first = play(envs, 40), play(envs, 15)
    assert first.envs.memories.any(axis=1).sum() > 10
    rest = play(first.envs, 25)
    check_states(rollout, weights, first.transitions, np.zeros((21, network.memory), np.float32))
    check_states(rollout, weights, rest.transitions, first.envs.memories)
    assert rest.envs.memories.tobytes() == whole.envs.memories.tobytes()
    assert rest.envs.snapshots.tobytes() == whole.envs.snapshots.tobytes()
    by_env = [one.transitions.memories.reshape(21, -1, network.memory) for one in (whole, first, rest)]
    assert by_env[0].tobytes() == np.concatenate(by_env[1:], axis=1).tobytes()
    scored = tensorflow_kernel.play_segment(
        lambda seen, memory: lanes.scores(network, weights, seen, memory=memory), game, Segment(first.envs, 25),
        network.outputs, SOFTMAX, network.memory,
    )  # fmt: skip
    equal(scored, rest)
    with pytest.raises(ValueError, match=r"hidden states of shape \(21, 2\)"):
        play(replace(first.envs, memories=np.zeros((21, 2), np.float32)), 5)


@pytest.mark.long
def test_another_environment_has_a_state_for_each_instance() -> None:
    environment = anything.make(anything.Options(id="gymnasium:CartPole-v1", max_steps=25))
    rollout, weights = playing(environment)
    result = rollout.play(Task(rows(1), train(21), SOFTMAX, record_transitions=True), weights[np.newaxis])
    assert result.transitions is not None
    check_states(rollout, weights, result.transitions)


@pytest.mark.long
def test_a_segment_of_another_environment_goes_on_with_the_states_of_the_one_before() -> None:
    environment = anything.make(anything.Options(id="gymnasium:CartPole-v1", max_steps=25))
    rollout, weights = playing(environment)

    def play(envs: EnvStates, horizon: int) -> Result:
        OPEN.here.close()
        return rollout.play(Task(rows(1), Segment(envs, horizon), SOFTMAX), weights[np.newaxis])

    begun = gymnasium_segments.begin(np.arange(5, dtype=np.uint64))
    whole, first = play(begun, 40), play(begun, 15)
    rest = play(first.envs, 25)
    check_states(rollout, weights, first.transitions, np.zeros((5, rollout.network.memory), np.float32))
    check_states(rollout, weights, rest.transitions, first.envs.memories)
    assert rest.envs.memories.tobytes() == whole.envs.memories.tobytes()
