"""Actions that are numbers: drawn from named streams, recorded as drawn, played within bounds."""

from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np
import pytest

from evo.cli.commands.evaluate import sampled
from evo.environments.gymnasium import GymnasiumEnvironment, Options, make
from evo.errors import ConfigurationError
from evo.games.catalogue.snake import Options as SnakeOptions
from evo.games.catalogue.snake import make as make_snake
from evo.networks.network import Network
from evo.networks.network import Options as Policy
from evo.randomness.streams import Purpose, philox
from evo.records import ActionRule, Result, Task
from evo.rollouts.action_rules import GAUSSIAN, draw_action, standard_normal
from evo.rollouts.rollout import Rollout
from tests.rollouts.test_rollout import fresh, rows, train


def pendulum(steps: int = 20, extra: int = 2) -> tuple[GymnasiumEnvironment, Rollout]:
    environment = make(Options(id="gymnasium:Pendulum-v1", max_steps=steps))
    network = Network.build(Policy(kind="linear"), environment.shape, environment.actions, extra)
    return environment, Rollout(network, environment)


def constant(rollout: Rollout, outputs: list[float]) -> np.ndarray:
    """Return weights whose outputs are these whatever is seen.  # [1, P]"""
    weights = np.zeros((1, rollout.network.size), np.float32)
    weights[0, -len(outputs) :] = outputs
    return weights


def played(rollout: Rollout, weights: np.ndarray, how: ActionRule, episodes: int = 8) -> Result:
    return rollout.play(Task(rows(1), train(episodes), how, record_actions=True, record_transitions=True), weights)


def plain_normal(seed: int, step: int, number: int) -> float:
    """Return the normal by Python's own integers: exact until the last line."""
    words = [word for block in range(3) for word in philox(seed, (step, number, int(Purpose.ACTION), block))]
    return (sum(words) + 6) / 2**32 - 6


def test_an_environment_of_numbers_says_so() -> None:
    environment, _ = pendulum()
    assert (environment.actions, environment.continuous, environment.shape) == (1, True, (3,))
    assert not make(Options(id="gymnasium:CartPole-v1")).continuous
    assert not make_snake(SnakeOptions()).continuous


@pytest.mark.parametrize("number", [0, 1, 5])
def test_a_normal_is_the_sum_of_twelve_named_words(number: int) -> None:
    found = [standard_normal(np.uint64(77), step, number) for step in range(50)]
    np.testing.assert_allclose(found, [plain_normal(77, step, number) for step in range(50)], rtol=0, atol=1e-14)


def test_normals_have_mean_zero_variance_one_and_do_not_repeat() -> None:
    values = np.array([[standard_normal(np.uint64(seed), step, 0) for step in range(400)] for seed in range(50)])
    assert abs(values.mean()) < 5 / np.sqrt(values.size)
    assert abs(values.var() - 1) < 5 * np.sqrt(2 / values.size)
    assert len(np.unique(values)) == values.size
    assert abs((values[:-1] * values[1:]).mean()) < 5 / np.sqrt(values.size)


@pytest.mark.parametrize("log_deviation", [-30.0, -20.0, -1.0, 0.0, 1.5, 2.0, 40.0])
def test_an_action_is_its_mean_and_the_clipped_deviation_times_a_normal(log_deviation: float) -> None:
    outputs, action = np.array([0.5, -3, log_deviation, -1, 9], np.float32), np.empty(2, np.float32)
    assert draw_action(outputs, 1, 0, GAUSSIAN, 0.0, np.uint64(3), 4, action)
    spreads = np.exp([min(max(log_deviation, -20), 2), -1])
    expected = [mean + s * plain_normal(3, 4, d) for d, (mean, s) in enumerate(zip((0.5, -3), spreads, strict=True))]
    np.testing.assert_allclose(action, expected, rtol=1e-6)
    assert draw_action(outputs, 1, 0, None, 0.0, np.uint64(3), 4, action)
    assert action.tolist() == [0.5, -3]


def test_actions_are_recorded_as_drawn_and_played_within_bounds() -> None:
    _, rollout = pendulum()
    result = played(rollout, constant(rollout, [1.5, 0.5, 7]), ActionRule("gaussian"))
    steps = result.transitions
    assert steps is not None
    assert result.actions is not None
    assert steps.actions.dtype == np.float32
    assert steps.actions.shape == (160, 1)
    assert (np.abs(steps.actions) > 2).any()
    assert steps.actions.tobytes() == np.concatenate(result.actions).tobytes()
    assert abs(steps.actions.mean() - 1.5) < 0.7
    assert (steps.outputs == [1.5, 0.5, 7]).all()
    at = 0
    for e, seed in enumerate(train(8).seeds):
        env = gymnasium.make("Pendulum-v1", max_episode_steps=20)
        seen, _ = env.reset(seed=int(seed) >> 33)
        total = 0.0
        for action in result.actions[e]:
            assert steps.observations[at].tolist() == seen.tolist()
            seen, reward, *_ = env.step(np.clip(action, -2, 2))
            assert steps.rewards[at] == np.float32(reward)
            total, at = total + float(reward), at + 1
        assert steps.next_observations[e].tolist() == seen.tolist()  # always truncated
        assert result.returns[0, e] == total


class Narrow(gymnasium.Env):
    """Pays what it is given, and takes nothing outside of its bounds."""

    observation_space = gymnasium.spaces.Box(-1, 1, (1,))
    action_space = gymnasium.spaces.Box(np.float32([-1, -np.inf]), np.float32([0.5, np.inf]))

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[np.ndarray, dict[str, Any]]:
        super().reset(seed=seed)
        return np.zeros(1, np.float32), {}

    def step(self, action: np.ndarray) -> tuple[np.ndarray, float, bool, bool, dict[str, Any]]:
        assert self.action_space.contains(action), action
        return np.zeros(1, np.float32), float(action[0]), False, False, {}


gymnasium.register("Narrow-v0", Narrow, max_episode_steps=3)


@pytest.mark.parametrize(("mean", "paid"), [(3.0, 0.5), (-3.0, -1.0), (0.25, 0.25)])
def test_an_environment_is_given_what_its_bounds_allow_and_learning_what_was_chosen(mean: float, paid: float) -> None:
    environment = make(Options(id="gymnasium:Narrow-v0"))
    rollout = Rollout(Network.build(Policy(kind="linear"), environment.shape, environment.actions), environment)
    result = played(rollout, constant(rollout, [mean, 70]), ActionRule(), 1)
    assert result.transitions is not None
    assert result.transitions.actions.tolist() == [[mean, 70]] * 3
    assert result.transitions.rewards.tolist() == [paid] * 3


def test_a_greedy_action_is_the_means_alone() -> None:
    for extra in (0, 2):  # an evolved network has means only
        _, rollout = pendulum(extra=extra)
        result = played(rollout, constant(rollout, [0.75, 1.0, 7.0][: 1 + extra]), ActionRule())
        assert result.transitions is not None
        assert (result.transitions.actions == 0.75).all()


def test_an_episode_draws_the_same_in_any_company() -> None:
    _, rollout = pendulum()
    task = Task(fresh(1), train(5), ActionRule("gaussian"), record_actions=True)
    together = rollout.play(task, np.empty((0, 0), np.float32)).actions
    assert together is not None
    for e in range(5):
        alone = rollout.play(
            Task(fresh(1), type(task.play)(task.play.seeds[e : e + 1]), ActionRule("gaussian"), record_actions=True),  # type: ignore
            np.empty((0, 0), np.float32),
        ).actions
        assert alone is not None
        assert alone[0].tobytes() == together[e].tobytes()
    assert len({trace.tobytes() for trace in together}) == 5


@pytest.mark.parametrize("place", [0, 1])
def test_a_mean_or_a_deviation_that_is_not_finite_ranks_worst(place: int) -> None:
    _, rollout = pendulum()
    weights = constant(rollout, [0, 0, 0])
    weights[0, 6 + place] = 3e38  # of the speed, which passes 1.2
    result = rollout.play(Task(rows(1), train(12), ActionRule("gaussian"), record_transitions=True), weights)
    assert not result.finite[0]
    assert result.transitions is None


@pytest.mark.parametrize("rule", ["softmax", "epsilon_greedy"])
def test_numbers_are_not_chosen_as_choices_are(rule: Any) -> None:
    _, rollout = pendulum()
    with pytest.raises(ValueError, match=f"{rule} is no rule for these actions"):
        played(rollout, constant(rollout, [0, 0, 0]), ActionRule(rule))


def test_choices_and_means_without_deviations_are_not_drawn_as_numbers() -> None:
    environment = make_snake(SnakeOptions(size=5, observation="ego"))
    snake = Rollout(Network.build(Policy(kind="linear"), environment.shape, 3, 4), environment)
    for rollout in (snake, pendulum(extra=0)[1]):
        with pytest.raises(ValueError, match="a mean and a log standard deviation"):
            rollout.play(
                Task(rows(1), train(1), ActionRule("gaussian")), np.zeros((1, rollout.network.size), np.float32)
            )


def test_a_champion_is_sampled_as_its_network_allows() -> None:
    environment, rollout = pendulum()
    assert sampled(environment, rollout.network) == "gaussian"
    cart_pole = make(Options(id="gymnasium:CartPole-v1"))
    assert sampled(cart_pole, Network.build(Policy(kind="linear"), (4,), 2)) == "softmax"
    means, spreads = (
        Network.build(Policy(kind="linear", output="tanh"), environment.shape, 1, extra) for extra in (0, 1)
    )
    assert sampled(environment, spreads) == "squashed"  # as SAC drew them
    with pytest.raises(ConfigurationError, match="without a spread"):
        sampled(environment, means)
