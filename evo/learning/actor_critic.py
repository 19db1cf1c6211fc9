"""The actor-critic that PPO, A2C and REINFORCE have in common: a policy and a value from one network.

The policy is a softmax of the logits (`scores`), or a normal distribution for continuous actions; the last output of
the network is the value. Each algorithm has its own advantages, loss and updates.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from evo.learning.gradient_algorithm import Collected, GradientMethod
from evo.learning.learner import Learner, PolicyLoss, Snapshots
from evo.records import ActionRule, Arrays, Transitions
from evo.setup import Setup

POLICY_INIT_SCALE = np.float32(0.01)  # of the initial policy head: all actions start about equally likely
NEVER = -1e9  # the score of an action that is not allowed: its probability is 0 exactly
HALF_LOG_2_PI = 0.5 * math.log(2.0 * math.pi)


def extra_outputs_of(environment: Any) -> int:
    """Return 1 for the value, and for continuous actions one log standard deviation a dimension."""
    return 1 + (environment.actions if environment.continuous else 0)


def policy_and_value(loss: PolicyLoss, outputs: Any, batch: Mapping[str, Any]) -> tuple[Any, Any, Any]:
    """Return the log probabilities of the actions taken, the entropies and the values, in TensorFlow.  # [B] each

    Outputs are scores of the actions, then the value; or means, log standard deviations, then the value.
    """
    import tensorflow as tf

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


@dataclass(frozen=True)
class PolicyGradientLoss(PolicyLoss):
    """The loss of A2C and REINFORCE in TensorFlow; `evo.learning.exact.losses` has the same with its derivatives."""

    def __call__(self, outputs: Any, batch: Mapping[str, Any], settings: Mapping[str, Any]) -> Mapping[str, Any]:
        """Return "loss" and its parts, [B] each."""
        import tensorflow as tf

        log_probability, entropy, value = policy_and_value(self, outputs, batch)
        policy_loss = -log_probability * batch["advantages"]  # its gradient: Williams, 1992, theorem 1
        value_loss = 0.5 * tf.square(value - batch["returns"])
        log_ratio = log_probability - batch["log_probabilities"]
        c_1, c_2 = settings["value_coefficient"], settings["entropy_coefficient"]
        return {
            "loss": policy_loss + c_1 * value_loss - c_2 * entropy,  # Mnih et al., 2016, section 4
            "policy_loss": policy_loss,
            "value_loss": value_loss,
            "entropy": entropy,
            "approx_kl": tf.exp(log_ratio) - 1.0 - log_ratio,  # http://joschu.net/blog/kl-approx.html
        }


class ActorCritic(GradientMethod):
    """How an actor-critic acts and begins, and the running normalisers of its observations and rewards."""

    heads: ClassVar[str] = "policy"

    def __init__(
        self, setup: Setup, normalise_observations: bool, normalise_rewards: bool, gamma: float, envs: int = 1
    ) -> None:
        """Prepare; ConfigurationError where observations cannot be normalised for this network."""
        from evo.learning.normalisers import ObservationNormaliser, RewardNormaliser

        self.setup = setup
        envs = 1 if setup.environment.game is None else envs  # whole episodes are those of one
        self._observations = ObservationNormaliser(setup.network) if normalise_observations else None
        self._rewards = RewardNormaliser(gamma, envs) if normalise_rewards else None
        self._warm_start = setup.start is not None  # from another run's weights

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
        return self._rewards.apply(transitions.rewards, transitions.ends, self.setup.slot(played.number))

    def inputs(self, learner: Learner, played: Collected, frames: int) -> NDArray[np.float32] | Snapshots:
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

    def acted(self, transitions: Transitions) -> dict[str, NDArray[Any]]:
        """Return actions, their masks, and "log_probabilities" and "values" of the policy that acted."""
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
        }

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


def last_values(transitions: Transitions) -> NDArray[np.float32]:
    """Return the values of `Transitions.next_observations`, from which a segment's end is bootstrapped.  # [N]"""
    return np.ascontiguousarray(transitions.next_outputs[:, -1])


def standardised(advantages: NDArray[np.float32]) -> NDArray[np.float32]:
    """Return advantages of mean 0 and standard deviation 1.  # [M]"""
    mean, deviation = advantages.mean(dtype=np.float64), advantages.std(dtype=np.float64)
    return np.asarray((advantages - mean) / (deviation + 1e-8), np.float32)


def explained_variance(values: NDArray[np.float32], returns: NDArray[np.float32]) -> float:
    """Return 1 - var(returns - values) / var(returns); NaN where all returns are equal.  # both [M]"""
    spread = float(returns.var(dtype=np.float64))
    return 1.0 - float((returns - values).var(dtype=np.float64)) / spread if spread > 0 else float("nan")
