"""Advantage actor-critic: one update per generation, from short segments of many environments (Mnih et al., 2016)."""

from __future__ import annotations

from pydantic import Field

from evo.learning.actor_critic import ActorCritic, ActorCriticOptions, PolicyGradient
from evo.learning.gradient_algorithm import GradientAlgorithm, SegmentOptions
from evo.setup import Setup


class Options(ActorCriticOptions, SegmentOptions):
    """The [a2c] section."""

    gae_lambda: float = Field(0.95, ge=0, le=1, description="lambda of generalised advantage estimation")


def make(options: Options, setup: Setup) -> GradientAlgorithm:
    """Return A2C: the policy gradient of generalised advantages, all transitions at once."""
    return GradientAlgorithm(options, setup, ActorCritic(options, setup, PolicyGradient(options.gae_lambda)))
