"""REINFORCE: one update per generation, from Monte Carlo returns minus a baseline (Williams, 1992).

A generation plays `episodes` whole episodes, and makes one update from all of their transitions.
`evo.learning.gradient_algorithm` is the loop around it, `evo.learning.actor_critic` the network's two heads.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar, Literal

import numpy as np
from pydantic import Field, model_validator

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
    """The [reinforce] section."""

    transitions_from: ClassVar[Literal["", "episodes", "segments"]] = "episodes"

    episodes: int = Field(32, ge=1, le=65536, description="whole episodes per generation")
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
    baseline: Literal["value", "leave_one_out"] = Field(
        "value",
        description="baseline subtracted from returns: value (critic), or leave_one_out (mean return of the other "
        "episodes)",
    )

    @model_validator(mode="after")
    def _consistent(self) -> Options:
        if self.baseline == "leave_one_out" and self.episodes < 2:
            raise ValueError("episodes: leave_one_out compares at least 2")
        return self

    def extra_outputs(self, environment: Any) -> int:
        """Return the outputs of the network besides the policy's: the value, and deviations of continuous actions."""
        return extra_outputs_of(environment)


class Reinforce(ActorCritic):
    """The update of a generation."""

    def __init__(self, options: Options, setup: Setup) -> None:
        super().__init__(setup, options.normalise_observations, options.normalise_rewards, options.gamma)
        self.options = options

    def loss(self) -> PolicyGradientLoss:
        """Return the loss."""
        return PolicyGradientLoss(self.setup.network.actions, self.setup.environment.continuous)

    def learn(self, learner: Learner, played: Collected | None, number: int, frames: int, stopped: Stopped) -> Metrics:
        """Make one update from all transitions; schedules are evaluated at the frame where these began."""
        from evo.learning.returns import generalised_advantages, leave_one_out

        assert played is not None
        options, transitions, began = self.options, played.transitions, clock.wall()
        frames -= len(transitions)
        observations = self.inputs(learner, played, frames)
        acted = self.acted(transitions)  # "actions", "log_probabilities", "values"
        rewards, ends, values = self.rewards(played), transitions.ends, acted["values"]
        gamma = hp.annealed(options.gamma, options.gamma_final, options.gamma_frames, frames, options.gamma_points)
        has_critic = options.baseline == "value"
        if has_critic:  # lambda 1: Monte Carlo returns minus the value
            advantages = generalised_advantages(rewards, ends, values, last_values(transitions), gamma, 1.0)
        else:
            advantages = leave_one_out(rewards, ends, gamma)
        returns = advantages + values
        if options.normalise_advantages:
            advantages = standardised(advantages)
        learner.load({"observations": observations, **acted, "returns": returns, "advantages": advantages})
        moving = clock.wall() - began

        rate = options.learning_rate_at(frames)
        entropy = options.entropy_coefficient, options.entropy_coefficient_final, options.entropy_coefficient_frames
        settings = {
            "entropy_coefficient": hp.annealed(*entropy, frames),
            "value_coefficient": options.value_coefficient if has_critic else 0.0,
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
    """Return REINFORCE."""
    return GradientAlgorithm(options, setup, Reinforce(options, setup))
