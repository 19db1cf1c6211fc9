"""Proximal policy optimisation: a clipped policy gradient, one or more epochs per rollout (Schulman et al., 2017).

A generation plays `horizon` steps in each of `envs` environments, estimates advantages, and makes `epochs` passes over
the transitions in minibatches. `evo.learning.gradient_algorithm` is the loop around it, `evo.learning.actor_critic` the
network's two heads.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
from pydantic import Field, model_validator

from evo import clock
from evo.learning import hyperparameters as hp
from evo.learning.actor_critic import (
    ActorCritic,
    explained_variance,
    extra_outputs_of,
    last_values,
    policy_and_value,
    standardised,
)
from evo.learning.gradient_algorithm import Collected, GradientAlgorithm, GradientOptions, Stopped
from evo.learning.learner import PolicyLoss, UpdateMeans
from evo.records import Metrics
from evo.setup import Setup

if TYPE_CHECKING:
    from evo.learning.learner import Learner, Rows


class Options(GradientOptions):
    """The [ppo] section."""

    envs: hp.Envs = 128
    horizon: hp.Horizon = 64
    gamma: hp.GammaInitial = 0.99
    gamma_final: hp.GammaFinal = 0.99
    gamma_frames: hp.GammaFrames = 0
    gamma_points: hp.GammaPoints = Field(default_factory=list)
    entropy_coefficient: hp.EntropyCoefficient = 0.01
    entropy_coefficient_final: hp.EntropyCoefficientFinal = 0.0005
    entropy_coefficient_frames: hp.EntropyCoefficientFrames = 0
    value_coefficient: hp.ValueCoefficient = 0.5
    normalise_advantages: hp.NormaliseAdvantages = True
    normalise_observations: hp.NormaliseObservations = False
    normalise_rewards: hp.NormaliseRewards = False
    gae_lambda: hp.GaeLambda = 0.95
    clip_range: float = Field(0.2, gt=0, le=10, description="clip range epsilon of the probability ratio")
    value_clip_range: float = Field(0.0, ge=0, description="clip range of the value function; 0 = no clipping")
    epochs: hp.Epochs = 3
    minibatches: int = Field(8, ge=1, le=65536, description="minibatches per epoch")
    target_kl: float = Field(
        0.0, ge=0, description="stop a generation's updates above this approximate KL divergence; 0 = never"
    )

    @model_validator(mode="after")
    def _consistent(self) -> Options:
        if self.minibatches > self.envs * self.horizon:
            raise ValueError(f"minibatches: {self.minibatches} of {self.envs * self.horizon} transitions")
        return self

    def gamma_at(self, frames: int) -> float:
        """Return the discount factor after `frames`."""
        return hp.annealed(self.gamma, self.gamma_final, self.gamma_frames, frames, self.gamma_points)

    def entropy_coefficient_at(self, frames: int) -> float:
        """Return the weight of the entropy bonus after `frames`."""
        initial, final = self.entropy_coefficient, self.entropy_coefficient_final
        return hp.annealed(initial, final, self.entropy_coefficient_frames, frames)

    def extra_outputs(self, environment: Any) -> int:
        """Return the outputs of the network besides the policy's: the value, and deviations of continuous actions."""
        return extra_outputs_of(environment)


@dataclass(frozen=True)
class PPOLoss(PolicyLoss):
    """The loss of each example, in TensorFlow; `evo.learning.exact.losses` has the same with its derivatives."""

    clipped: ClassVar[bool] = True

    def __call__(self, outputs: Any, batch: Mapping[str, Any], settings: Mapping[str, Any]) -> Mapping[str, Any]:
        """Return "loss" and its parts, [B] each (equations of Schulman et al., 2017)."""
        import tensorflow as tf

        log_probability, entropy, value = policy_and_value(self, outputs, batch)
        epsilon, advantage = settings["clip_range"], batch["advantages"]

        log_ratio = log_probability - batch["log_probabilities"]
        ratio = tf.exp(log_ratio)  # r_t = pi(a_t | s_t) / pi_old(a_t | s_t)
        clipped_ratio = tf.clip_by_value(ratio, 1.0 - epsilon, 1.0 + epsilon)
        policy_loss = -tf.minimum(ratio * advantage, clipped_ratio * advantage)  # -L^CLIP (equation 7)

        value_loss = tf.square(value - batch["returns"])  # L^VF (equation 9), here halved below
        limit, old_value = settings["value_clip_range"], batch["values"]
        clipped_value = old_value + tf.clip_by_value(value - old_value, -limit, limit)
        worse = tf.maximum(value_loss, tf.square(clipped_value - batch["returns"]))
        value_loss = 0.5 * tf.where(limit > 0.0, worse, value_loss)

        c_1, c_2 = settings["value_coefficient"], settings["entropy_coefficient"]
        return {
            "loss": policy_loss + c_1 * value_loss - c_2 * entropy,  # -L^(CLIP+VF+S) (equation 9)
            "policy_loss": policy_loss,
            "value_loss": value_loss,
            "entropy": entropy,
            "approx_kl": ratio - 1.0 - log_ratio,  # http://joschu.net/blog/kl-approx.html
            "clip_fraction": tf.cast(tf.abs(ratio - 1.0) > epsilon, tf.float32),
        }


class PPO(ActorCritic):
    """The updates of a generation."""

    def __init__(self, options: Options, setup: Setup) -> None:
        normalise = options.normalise_observations, options.normalise_rewards
        super().__init__(setup, *normalise, options.gamma, options.envs)
        self.options = options

    def loss(self) -> PPOLoss:
        """Return the clipped loss."""
        return PPOLoss(self.setup.network.actions, self.setup.environment.continuous)

    def learn(self, learner: Learner, played: Collected | None, number: int, frames: int, stopped: Stopped) -> Metrics:
        """Make the updates of every epoch; schedules are evaluated at the frame where the transitions began."""
        from evo.learning.returns import generalised_advantages

        assert played is not None
        options, transitions, began = self.options, played.transitions, clock.wall()
        frames -= len(transitions)
        observations = self.inputs(learner, played, frames)
        acted = self.acted(transitions)  # "actions", "log_probabilities", "values"
        values, gamma = acted["values"], options.gamma_at(frames)
        advantages = generalised_advantages(  # GAE (Schulman et al., 2016)
            self.rewards(played), transitions.ends, values, last_values(transitions), gamma, options.gae_lambda
        )
        returns = advantages + values  # TD(lambda) targets of the value
        if options.normalise_advantages:
            advantages = standardised(advantages)
        learner.load({"observations": observations, **acted, "returns": returns, "advantages": advantages})
        moving = clock.wall() - began

        rate = options.learning_rate_at(frames)
        settings = {
            "entropy_coefficient": options.entropy_coefficient_at(frames),
            "value_coefficient": options.value_coefficient,
            "clip_range": options.clip_range,
            "value_clip_range": options.value_clip_range,
        }
        means = UpdateMeans("loss", "policy_loss", "value_loss", "entropy", "approx_kl", "clip_fraction")
        for _, found in learner.updates_on(self.minibatches(number, len(transitions)), rate, settings):
            means.add(found)
            if stopped() or 0 < options.target_kl < float(found["approx_kl"].mean(dtype=np.float64)):
                break
        return {
            **means.metrics(),
            "explained_variance": explained_variance(values, returns),
            "learning_rate": rate,
            "seconds_moving": moving,
        }

    def minibatches(self, number: int, count: int) -> Iterator[Rows]:
        """Yield shuffled minibatches of every epoch; whole episodes may have fewer transitions than `minibatches`."""
        from evo.randomness.philox_compiled import minibatches

        for epoch in range(self.options.epochs):
            yield from minibatches(self.setup.seed, number, epoch, count, min(self.options.minibatches, count))


def make(options: Options, setup: Setup) -> GradientAlgorithm:
    """Return PPO."""
    return GradientAlgorithm(options, setup, PPO(options, setup), options.envs, options.horizon)
