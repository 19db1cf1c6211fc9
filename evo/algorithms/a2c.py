"""Advantage actor-critic: one update per generation, from short segments of many environments (Mnih et al., 2016).

A generation plays `horizon` steps in each of `envs` environments, and makes one update from all of their transitions.
`evo.learning.gradient_algorithm` is the loop around it, `evo.learning.actor_critic` the network's two heads.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from pydantic import Field

from evo import clock
from evo.learning import hyperparameters as hp
from evo.learning.actor_critic import (
    ActorCritic,
    PolicyGradientLoss,
    explained_variance,
    extra_outputs_of,
    last_values,
    standardised,
)
from evo.learning.gradient_algorithm import Collected, GradientAlgorithm, GradientOptions, Stopped
from evo.learning.learner import UpdateMeans
from evo.records import Metrics
from evo.setup import Setup

if TYPE_CHECKING:
    from evo.learning.learner import Learner


class Options(GradientOptions):
    """The [a2c] section."""

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
    normalise_advantages: hp.NormaliseAdvantages = False
    normalise_observations: hp.NormaliseObservations = False
    normalise_rewards: hp.NormaliseRewards = False
    gae_lambda: hp.GaeLambda = 0.95

    def extra_outputs(self, environment: Any) -> int:
        """Return the outputs of the network besides the policy's: the value, and deviations of continuous actions."""
        return extra_outputs_of(environment)


class A2C(ActorCritic):
    """The update of a generation."""

    def __init__(self, options: Options, setup: Setup) -> None:
        normalise = options.normalise_observations, options.normalise_rewards
        super().__init__(setup, *normalise, options.gamma, options.envs)
        self.options = options

    def loss(self) -> PolicyGradientLoss:
        """Return the loss."""
        return PolicyGradientLoss(self.setup.network.actions, self.setup.environment.continuous)

    def learn(self, learner: Learner, played: Collected | None, number: int, frames: int, stopped: Stopped) -> Metrics:
        """Make one update from all transitions; schedules are evaluated at the frame where these began."""
        from evo.learning.returns import generalised_advantages

        assert played is not None
        options, transitions, began = self.options, played.transitions, clock.wall()
        frames -= len(transitions)
        observations = self.inputs(learner, played, frames)
        acted = self.acted(transitions)  # "actions", "log_probabilities", "values"
        values = acted["values"]
        gamma = hp.annealed(options.gamma, options.gamma_final, options.gamma_frames, frames, options.gamma_points)
        advantages = generalised_advantages(
            self.rewards(played), transitions.ends, values, last_values(transitions), gamma, options.gae_lambda
        )
        returns = advantages + values
        if options.normalise_advantages:
            advantages = standardised(advantages)
        learner.load({"observations": observations, **acted, "returns": returns, "advantages": advantages})
        moving = clock.wall() - began

        rate = options.learning_rate_at(frames)
        entropy = options.entropy_coefficient, options.entropy_coefficient_final, options.entropy_coefficient_frames
        settings = {
            "entropy_coefficient": hp.annealed(*entropy, frames),
            "value_coefficient": options.value_coefficient,
        }
        means = UpdateMeans("loss", "policy_loss", "value_loss", "entropy", "approx_kl")
        means.add(learner.update(np.arange(len(transitions), dtype=np.int32), rate, settings))
        return {
            **means.metrics(),
            "explained_variance": explained_variance(values, returns),
            "learning_rate": rate,
            "seconds_moving": moving,
        }


def make(options: Options, setup: Setup) -> GradientAlgorithm:
    """Return A2C."""
    return GradientAlgorithm(options, setup, A2C(options, setup), options.envs, options.horizon)
