"""The actor-critic that PPO, A2C and REINFORCE have in common: a policy and a value from one network.

The policy is a softmax of the logits (`scores`), or a normal distribution for continuous actions; the last output of
the network is the value. Each algorithm has its own advantages; losses and updates stand in `ppo` and `a2c`.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Annotated, Any, ClassVar, Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from evo.lazy import tf
from evo.learning import hyperparameters as hp
from evo.learning.gradient_algorithm import Collected, GradientMethod
from evo.learning.learner import PolicyLoss, Snapshots, observed
from evo.options import AlgorithmOptions
from evo.records import ActionRule, Arrays, Transitions
from evo.setup import Setup

POLICY_INIT_SCALE = np.float32(0.01)  # of the initial policy head: all actions start about equally likely
NEVER = -1e9  # the score of an action that is not allowed: its probability is 0 exactly
HALF_LOG_2_PI = 0.5 * math.log(2.0 * math.pi)

NormaliseAdvantages = Annotated[
    bool, Field(description="normalise a generation's advantages to mean 0, standard deviation 1")
]


class ActorCriticOptions(AlgorithmOptions):
    """Options of every actor-critic."""

    learns: ClassVar[bool] = True
    transitions_from: ClassVar[Literal["", "episodes", "segments"]] = "segments"

    learning_rate: hp.LearningRate = 1e-3
    learning_rate_final: hp.LearningRateFinal = 5e-5
    learning_rate_frames: hp.LearningRateFrames = 0  # 0: the learning rate is constant, and learning_rate_final unused
    max_gradient_norm: hp.MaxGradientNorm = 0.5
    episodes: hp.Episodes = 32
    envs_per_task: hp.EnvsPerTask = 64
    asynchronous: hp.Asynchronous = False
    gamma: float = Field(0.99, ge=0, le=1, description="initial discount factor")
    gamma_final: hp.GammaFinal = 0.99
    gamma_frames: hp.GammaFrames = 0  # 0: gamma is constant, and gamma_final unused
    gamma_points: hp.GammaPoints = Field(default_factory=list)  # where set, in place of the three above
    entropy_coefficient: float = Field(0.01, ge=0, le=10, description="initial weight of the entropy bonus")
    entropy_coefficient_final: float = Field(
        0.0005, ge=0, le=10, description="final weight of the entropy bonus, if it is annealed"
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

    def extra_outputs(self, environment: Any) -> int:
        """Return 1 for the value, and for continuous actions one log standard deviation a dimension."""
        return 1 + (environment.actions if environment.continuous else 0)


def policy_and_value(loss: PolicyLoss, outputs: Any, batch: Mapping[str, Any]) -> tuple[Any, Any, Any]:
    """Return the log probabilities of the actions taken, the entropies and the values, in TensorFlow.  # [B] each

    Outputs are scores of the actions, then the value; or means, log standard deviations, then the value.
    """
    from evo.rollouts.action_rules import HIGHEST, LOWEST

    actions = loss.actions
    if loss.is_gaussian:
        means, deviations = outputs[:, :actions], outputs[:, actions : 2 * actions]
        deviations = tf.clip_by_value(deviations, LOWEST, HIGHEST)
        standard = (batch["actions"] - means) * tf.exp(-deviations)
        taken = tf.reduce_sum(-0.5 * tf.square(standard) - deviations - HALF_LOG_2_PI, 1)
        return taken, tf.reduce_sum(deviations + HALF_LOG_2_PI + 0.5, 1), outputs[:, 2 * actions]
    scores = outputs[:, :actions]
    if "action_masks" in batch:
        scores = tf.where(batch["action_masks"], scores, NEVER)
    logs = tf.nn.log_softmax(scores)
    taken = tf.gather(logs, tf.cast(batch["actions"], tf.int32), batch_dims=1)
    return taken, -tf.reduce_sum(tf.exp(logs) * logs, 1), outputs[:, actions]


class ActorCritic(GradientMethod):
    """How an actor-critic acts and begins, and the running normalisers of its observations and rewards."""

    heads: ClassVar[str] = "policy"

    loss_class: ClassVar[type[PolicyLoss]]

    def __init__(self, options: Any, setup: Setup) -> None:
        """Prepare; ConfigurationError where observations of this network have no normaliser."""
        from evo.learning.normalisers import ObservationNormaliser, RewardNormaliser

        super().__init__(options, setup)
        envs = options.envs if options.plays_segments else 1  # whole episodes are those of one
        self._observations = ObservationNormaliser(setup.network) if options.normalise_observations else None
        self._rewards = RewardNormaliser(options.gamma, envs) if options.normalise_rewards else None
        self._warm_start = setup.start is not None  # from another run's weights

    def loss(self) -> PolicyLoss:
        """Return the loss."""
        return self.loss_class(self.setup.network.actions, self.setup.environment.continuous)

    def action_rule(self, frames: int) -> ActionRule:
        """Return the rule that samples from the policy."""
        return ActionRule("gaussian" if self.setup.environment.continuous else "softmax")

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

    def rewards(self, played: Collected) -> NDArray[np.float32]:
        """Return the rewards, normalised if that is asked for.  # [M]"""
        transitions = played.transitions
        if self._rewards is None:
            return transitions.rewards
        return self._rewards.apply(transitions.rewards, transitions.ends, self.setup.slot(played.generation))

    def inputs(self, played: Collected, frames: int) -> NDArray[np.float32] | Snapshots:
        """Return observations, normalised as they were when the network acted; add them to the normaliser, if any."""
        environment, threads = self.setup.environment_in(played.generation), self.setup.learner_threads
        learner = self.learner
        rows, normaliser = played.transitions.observations, self._observations
        if normaliser is None:
            return learner.inputs(environment, rows, threads)
        observations = observed(environment, rows, threads=threads)
        flat = observations.reshape(len(observations), -1)
        if not normaliser.moments.count and (self._warm_start or frames):  # weights learned without a normaliser
            normaliser.moments.add(flat)
            state = learner.state()
            learner.restore({**state, "weights": normaliser.unfold(learner.weights())})
            return normaliser.apply(observations)
        normalised = normaliser.apply(observations)
        normaliser.moments.add(flat)
        return normalised

    def acted(self, transitions: Transitions) -> dict[str, NDArray[Any]]:
        """Return actions, their masks, "log_probabilities" and "values" of the policy that acted, and its states."""
        from evo.learning.exact.losses import log_probabilities

        masks, continuous = transitions.action_masks, self.setup.environment.continuous
        logs = log_probabilities(
            transitions.outputs, transitions.actions, masks, self.setup.network.actions, continuous
        )
        return {
            "actions": transitions.actions.astype(np.float32 if continuous else np.int32),
            "log_probabilities": logs,
            "values": np.ascontiguousarray(transitions.outputs[:, -1]),
            **({} if masks is None else {"action_masks": masks.astype(np.bool_)}),
            **self.memories(transitions),
        }

    def state(self) -> dict[str, NDArray[Any]]:
        """Return the learner's state, with running moments and discounted returns of the normalisers."""
        state = super().state()
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

    def restore(self, state: Arrays, records: Sequence[Arrays]) -> None:
        """Restore learner and normalisers; a fork restarts the discounted returns."""
        super().restore(state, records)
        if self._observations is not None and "observation_moments" in state:
            self._observations.moments.restore(np.asarray(state["observation_moments"], np.float64))
        if self._rewards is not None and "reward_moments" in state:
            self._rewards.moments.restore(np.asarray(state["reward_moments"], np.float64))
            if records:
                self._rewards.restore_sums(state)
