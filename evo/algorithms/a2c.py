"""Advantage actor-critic: one update per generation, from short segments of many environments (Mnih et al., 2016).

A generation, in the order of its calls:

    play `horizon` steps in each of `envs` environments      GradientAlgorithm.generation -> Transitions, M = E T rows
    advantages of the segments (GAE)                         A2C.advantages
    loss of each example, its mean, its gradient             PolicyGradientLoss
    clip the gradient's norm, one step of Adam               PolicyGradient.learn -> Learner.update

REINFORCE has the same loss and update, and other advantages. `evo.learning.gradient_algorithm` is the loop around it,
`evo.learning.actor_critic` the network's two heads.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from evo import clock
from evo.lazy import tf
from evo.learning import hyperparameters as hp
from evo.learning.actor_critic import ActorCritic, ActorCriticOptions, policy_and_value
from evo.learning.gradient_algorithm import Collected, GradientAlgorithm, ShouldStop
from evo.learning.learner import PolicyLoss, UpdateMeans
from evo.learning.returns import explained_variance, generalised_advantages, in_pieces, standardised
from evo.records import Metrics, Transitions


class Options(ActorCriticOptions):
    """The [a2c] section."""

    remembers: ClassVar[bool] = True

    envs: hp.Envs = 128
    horizon: hp.Horizon = 64
    whole_episodes: hp.WholeEpisodes = False
    gae_lambda: hp.GaeLambda = 0.95
    bptt: hp.Bptt = 0
    burn_in: hp.BurnIn = 0


@dataclass(frozen=True)
class PolicyGradientLoss(PolicyLoss):
    """The loss of A2C and REINFORCE in TensorFlow; `evo.learning.exact.losses` has the same with its derivatives."""

    def __call__(self, outputs: Any, batch: Mapping[str, Any], settings: Mapping[str, Any]) -> Mapping[str, Any]:
        """Return "loss" and its parts, [B] each."""
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


class PolicyGradient(ActorCritic):
    """An actor-critic that makes one update a generation, from all of its transitions: A2C and REINFORCE."""

    loss_class = PolicyGradientLoss
    has_critic = True  # else the value has no loss

    @abstractmethod
    def advantages(
        self, transitions: Transitions, rewards: NDArray[np.float32], values: NDArray[np.float32], gamma: float
    ) -> NDArray[np.float32]:
        """Return the advantages of the actions that were taken; `values` are of the observations.  # all [M]"""

    def learn(self, played: Collected | None, generation: int, frames: int, should_stop: ShouldStop) -> Metrics:
        """Make one update from all transitions; schedules are evaluated at the frame where these began."""
        assert played is not None  # None only for methods that learn from a replay buffer
        options, transitions, began = self.options, played.transitions, clock.wall()
        start = frames - len(transitions)
        learning_rate, gamma, entropy_coefficient = (
            hp.scheduled(options, name, start) for name in ("learning_rate", "gamma", "entropy_coefficient")
        )
        observations = self.inputs(played, start)
        acted = self.acted(transitions)  # recorded when played: "actions", "log_probabilities", "values", masks
        values = acted["values"]  # [M] V(s_t)
        advantages = self.advantages(transitions, self.rewards(played), values, gamma)
        returns = advantages + values
        if options.normalise_advantages:
            advantages = standardised(advantages)
        self.learner.load({"observations": observations, **acted, "returns": returns, "advantages": advantages})
        seconds_moving = clock.wall() - began

        settings = {
            "entropy_coefficient": entropy_coefficient,
            "value_coefficient": options.value_coefficient if self.has_critic else 0.0,
        }
        means = UpdateMeans("loss", "policy_loss", "value_loss", "entropy", "approx_kl")
        count = len(transitions)
        rows = in_pieces(np.arange(-(-count // self.steps), dtype=np.int32), count, self.steps)
        means.add(self.learner.update(rows, learning_rate, settings))
        return {
            **means.metrics(),
            "explained_variance": explained_variance(values, returns),
            "learning_rate": learning_rate,
            "seconds_moving": seconds_moving,
        }


class A2C(PolicyGradient):
    """Generalised advantages, which segments bootstrap from the value."""

    def advantages(
        self, transitions: Transitions, rewards: NDArray[np.float32], values: NDArray[np.float32], gamma: float
    ) -> NDArray[np.float32]:
        """Return A_t = delta_t + gamma lambda A_t+1, with delta_t = r_t + gamma V(s_t+1) - V(s_t).  # all [M]"""
        next_values = transitions.next_outputs[:, -1]  # [N] of the observations after a segment's or episode's end
        return generalised_advantages(
            rewards, transitions.ends, values, next_values, gamma=gamma, gae_lambda=self.options.gae_lambda
        )


make = partial(GradientAlgorithm, method=A2C)
