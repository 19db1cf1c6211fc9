"""Advantage actor-critic: one update per generation, from short segments of many environments (Mnih et al., 2016)."""

from __future__ import annotations

from pydantic import Field

from evo.learning.actor_critic import ActorCritic, ActorCriticOptions, PolicyGradient
from evo.learning.gradient_algorithm import GradientAlgorithm, SegmentOptions
from evo.plugins.options import Setup


class Options(ActorCriticOptions, SegmentOptions):
    """The [a2c] section."""

    gae_lambda: float = Field(0.95, ge=0, le=1, description="lambda of generalised advantage estimation")


class A2C(PolicyGradient):
    """The policy gradient of generalised advantages, all transitions at once."""

    def __init__(self, options: Options) -> None:
        self.gae_lambda = options.gae_lambda


def make(options: Options, setup: Setup) -> GradientAlgorithm:
    """Return A2C."""
    return GradientAlgorithm(options, setup, ActorCritic(options, setup, A2C(options)))
