"""The actor-critic that PPO, A2C and REINFORCE share: a policy and a value from one network, and their updates.

The policy is a softmax of the logits (`scores`), or a normal distribution for continuous actions; the last output of
the network is the value.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, NamedTuple

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from evo import clock
from evo.learning.gradient_algorithm import GradientOptions
from evo.learning.method import Method, Played, Stopped
from evo.learning.observations import Snapshots
from evo.learning.schedules import GammaPoints, annealed, value_at
from evo.records import ActionRule, Arrays, Metrics
from evo.setup import Setup

if TYPE_CHECKING:
    from evo.learning.learner import Learner, Rows
    from evo.learning.losses import PolicyLoss

PARTS = ("loss", "policy_loss", "value_loss", "entropy", "approx_kl", "clip_fraction")  # of the loss: metrics
POLICY_INIT_SCALE = np.float32(0.01)  # of the initial policy head: all actions start about equally likely

NormaliseAdvantages = Annotated[
    bool, Field(description="normalise a generation's advantages to mean 0, standard deviation 1")
]


class ActorCriticOptions(GradientOptions):
    """Options of every actor-critic."""

    gamma: float = Field(0.99, ge=0, le=1, description="initial discount factor")
    gamma_final: float = Field(0.99, ge=0, le=1, description="final discount factor, where it is annealed")
    gamma_frames: int = Field(0, ge=0, description="frames over which gamma is annealed; 0 = constant")
    gamma_points: GammaPoints = Field(default_factory=list)
    entropy_coefficient: float = Field(0.01, ge=0, le=10, description="initial weight of the entropy bonus")
    entropy_coefficient_final: float = Field(
        0.0005, ge=0, le=10, description="final weight of the entropy bonus, where it is annealed"
    )
    entropy_coefficient_frames: int = Field(
        0, ge=0, description="frames over which the entropy coefficient is annealed; 0 = constant"
    )
    value_coefficient: float = Field(0.5, ge=0, le=100, description="weight of the value loss")
    normalise_advantages: NormaliseAdvantages = False
    normalise_observations: bool = Field(
        False, description="normalise observations by their running mean and standard deviation; not for a CNN"
    )
    normalise_rewards: bool = Field(
        False, description="divide rewards by the running standard deviation of discounted returns"
    )

    def gamma_at(self, frames: int) -> float:
        """Return the discount factor after so many frames."""
        if self.gamma_points:
            return value_at(self.gamma_points, frames)
        return annealed(self.gamma, self.gamma_final, self.gamma_frames, frames)

    def extra_outputs(self, environment: Any) -> int:
        """Return 1 for the value, and for continuous actions one log standard deviation a dimension."""
        return 1 + (environment.actions if environment.continuous else 0)

    def action_rule(self, environment: Any, frames: int) -> ActionRule:
        """Return the rule that samples from the policy."""
        return ActionRule("gaussian" if environment.continuous else "softmax")


class Valued(NamedTuple):
    """Transitions with the values that the network predicted when it acted."""

    rewards: NDArray[np.float32]  # [M]
    ends: NDArray[np.uint8]  # [M] as `Transitions.ends`
    values: NDArray[np.float32]  # [M]
    next_values: NDArray[np.float32]  # [N] of `Transitions.next_observations`: where an episode was cut off


class PolicyGradient:
    """What one algorithm adds to an actor-critic; by default, generalised advantages and a single batch."""

    clipped: ClassVar[bool] = False  # whether the loss is PPO's clipped surrogate

    def __init__(self, gae_lambda: float = 1.0) -> None:
        self.gae_lambda = gae_lambda  # of generalised advantage estimation; 1: Monte Carlo returns minus the value

    def advantages(self, played: Valued, gamma: float) -> NDArray[np.float32]:
        """Return the advantages of transitions.  # [M]"""
        from evo.learning.returns import generalised_advantages

        return generalised_advantages(*played, gamma, self.gae_lambda)

    def batches(self, seed: int, number: int, count: int) -> Iterator[Rows]:
        """Yield the row numbers of each minibatch; by default all `count` transitions are one batch."""
        yield np.arange(count, dtype=np.int32)

    def settings(self) -> dict[str, float]:
        """Return coefficients of the loss, such as the clip range."""
        return {}

    def stops_early(self, approx_kl: float) -> bool:
        """Return whether to stop a generation's updates early, after one with this approximate KL divergence."""
        return False


class ActorCritic(Method):
    """The updates of an actor-critic."""

    heads: ClassVar[str] = "policy"

    def __init__(self, options: ActorCriticOptions, setup: Setup, policy_gradient: PolicyGradient) -> None:
        from evo.learning.normalisers import ObservationNormaliser, RewardNormaliser

        self.options, self.setup, self.policy_gradient = options, setup, policy_gradient
        self._continuous = setup.environment.continuous
        self._observations = ObservationNormaliser(setup.network) if options.normalise_observations else None
        envs = options.envs_in(setup.environment) or 1
        self._rewards = RewardNormaliser(options.gamma, envs) if options.normalise_rewards else None
        self._warm_start = setup.start is not None  # from another run's weights

    def loss(self) -> PolicyLoss:
        """Return the loss of policy and value."""
        from evo.learning.losses import PolicyLoss

        return PolicyLoss(self.setup.network.actions, self.policy_gradient.clipped, self._continuous)

    def initial(self, weights: NDArray[np.float32]) -> NDArray[np.float32]:
        """Change initial weights so that actions are about equally likely and values 0; return them.  # [P] -> [P]"""
        actions = self.setup.network.actions
        kernel = self.setup.network.split(weights)[-2]  # of the last layer, a view
        kernel[:, :actions] *= POLICY_INIT_SCALE
        kernel[:, actions:] = 0.0
        return weights

    def published(self, weights: NDArray[np.float32]) -> NDArray[np.float32]:
        """Return weights that take raw observations, with the normalisation folded in.  # [P] -> [P]"""
        return weights if self._observations is None else self._observations.fold(weights)

    def learn(self, learner: Learner, played: Played | None, number: int, frames: int, stopped: Stopped) -> Metrics:
        """Make a generation's updates; schedules are evaluated at the frame where its transitions began."""
        assert played is not None
        options, began = self.options, clock.wall()
        count, frames = len(played.transitions), frames - len(played.transitions)
        observations, examples = self._inputs(learner, played, frames), self.examples(played, frames)
        explained = explained_variance(examples["values"], examples["returns"])
        learner.load({"observations": observations, **examples})
        moving, rate = clock.wall() - began, options.learning_rate_at(frames)
        entropy = options.entropy_coefficient, options.entropy_coefficient_final, options.entropy_coefficient_frames
        settings = {
            "entropy_coefficient": annealed(*entropy, frames),
            "value_coefficient": options.value_coefficient,
            "clip_range": 0.0,
            "value_clip_range": 0.0,
            **self.policy_gradient.settings(),
        }
        parts = PARTS if self.policy_gradient.clipped else PARTS[:-1]
        sums, seen, updates, norms = dict.fromkeys(parts, 0.0), 0, 0, 0.0
        batches = self.policy_gradient.batches(self.setup.seed, number, count)
        for rows, values in learner.updates_on(batches, rate, settings):
            seen, updates, norms = seen + len(rows), updates + 1, norms + float(values["gradient_norm"][0])
            for name in parts:
                sums[name] += float(values[name].sum(dtype=np.float64))
            if stopped() or self.policy_gradient.stops_early(float(values["approx_kl"].mean(dtype=np.float64))):
                break
        means = {name: total / seen for name, total in sums.items()}
        counts = {"updates": updates, "examples": seen, "seconds_moving": moving}
        norm = norms / updates
        return {**means, "explained_variance": explained, "gradient_norm": norm, "learning_rate": rate, **counts}

    def examples(self, played: Played, frames: int) -> dict[str, NDArray[Any]]:
        """Return what the loss needs besides observations, [M, ...] each; update the normaliser of rewards, if any."""
        from evo.learning.exact.losses import log_probabilities

        transitions, number = played
        options, network = self.options, self.setup.network
        rewards = transitions.rewards
        if self._rewards is not None:
            rewards = self._rewards.apply(rewards, transitions.ends, self.setup.slot(number))
        values, next_values = (
            np.ascontiguousarray(outputs[:, -1]) for outputs in (transitions.outputs, transitions.next_outputs)
        )
        gamma = options.gamma_at(frames)
        advantages = self.policy_gradient.advantages(Valued(rewards, transitions.ends, values, next_values), gamma)
        examples = {
            "actions": transitions.actions.astype(np.float32 if self._continuous else np.int32),
            "values": values,
            "returns": advantages + values,
            "log_probabilities": log_probabilities(
                transitions.outputs, transitions.actions, transitions.action_masks, network.actions, self._continuous
            ),
            "advantages": standardised(advantages) if options.normalise_advantages else advantages,
        }
        if transitions.action_masks is not None:
            examples["action_masks"] = transitions.action_masks.astype(np.bool_)
        return examples

    def _inputs(self, learner: Learner, played: Played, frames: int) -> NDArray[np.float32] | Snapshots:
        """Return observations, normalised as they were when the network acted; add them to the normaliser, if any."""
        environment, threads = self.setup.environment_in(played.number), self.setup.learner_threads
        rows, normaliser = played.transitions.observations, self._observations
        if normaliser is None:
            return learner.inputs(environment, rows, threads)
        observations = learner.observed(environment, rows, threads)
        flat = observations.reshape(len(observations), -1)
        if not normaliser.moments.count and (self._warm_start or frames):  # weights learned without a normaliser
            normaliser.moments.add(flat)
            state = learner.state()
            learner.restore({**state, "weights": normaliser.unfold(learner.weights())})
            return normaliser.apply(observations)
        normalised = normaliser.apply(observations)
        normaliser.moments.add(flat)
        return normalised

    def state(self) -> dict[str, NDArray[Any]]:
        """Return the running moments and discounted returns of the normalisers."""
        state: dict[str, NDArray[Any]] = {}
        if self._observations is not None:
            state["observation_moments"] = self._observations.moments.state()
        if self._rewards is not None:
            state |= {"reward_moments": self._rewards.moments.state(), **self._rewards.sums_by_name()}
        return state

    def weights_from(self, state: Arrays) -> NDArray[np.float32]:
        """Return the learner's weights in a state, for raw observations where they are not normalised now.  # [P]"""
        weights = np.asarray(state["weights"], np.float32)
        if self._observations is not None or "observation_moments" not in state:
            return weights
        from evo.learning.normalisers import ObservationNormaliser

        normaliser = ObservationNormaliser(self.setup.network)
        normaliser.moments.restore(np.asarray(state["observation_moments"], np.float64))
        return normaliser.fold(weights)

    def restore(self, state: Arrays, records: Sequence[Arrays] | None) -> None:
        """Restore the normalisers; a fork restarts the discounted returns."""
        if self._observations is not None and "observation_moments" in state:
            self._observations.moments.restore(np.asarray(state["observation_moments"], np.float64))
        if self._rewards is not None and "reward_moments" in state:
            self._rewards.moments.restore(np.asarray(state["reward_moments"], np.float64))
            if records is not None:
                self._rewards.restore_sums(state)


def explained_variance(values: NDArray[np.float32], returns: NDArray[np.float32]) -> float:
    """Return 1 - var(returns - values) / var(returns); NaN where all returns are equal.  # both [M]"""
    spread = float(returns.var(dtype=np.float64))
    return 1.0 - float((returns - values).var(dtype=np.float64)) / spread if spread > 0 else float("nan")


def standardised(values: NDArray[np.float32]) -> NDArray[np.float32]:
    """Return values of mean 0 and standard deviation 1.  # [M]"""
    mean, deviation = values.mean(dtype=np.float64), values.std(dtype=np.float64)
    return np.asarray((values - mean) / (deviation + 1e-8), np.float32)
