"""Proximal policy optimisation: a clipped policy gradient, one or more epochs per rollout (Schulman et al., 2017)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, ClassVar

from pydantic import Field, model_validator

from evo.learning.actor_critic import ActorCritic, ActorCriticOptions, NormaliseAdvantages, PolicyGradient
from evo.learning.gradient_algorithm import GradientAlgorithm, SegmentOptions
from evo.setup import Setup

if TYPE_CHECKING:
    from evo.learning.learner import Rows


class Options(ActorCriticOptions, SegmentOptions):
    """The [ppo] section."""

    gae_lambda: float = Field(0.95, ge=0, le=1, description="lambda of generalised advantage estimation")
    clip_range: float = Field(0.2, gt=0, le=10, description="clip range epsilon of the probability ratio")
    value_clip_range: float = Field(0.0, ge=0, description="clip range of the value function; 0 = no clipping")
    epochs: int = Field(3, ge=1, le=1000, description="passes over the transitions of a generation")
    minibatches: int = Field(8, ge=1, le=65536, description="minibatches per epoch")
    target_kl: float = Field(
        0.0, ge=0, description="stop a generation's updates above this approximate KL divergence; 0 = never"
    )
    normalise_advantages: NormaliseAdvantages = True

    @model_validator(mode="after")
    def _consistent(self) -> Options:
        if self.minibatches > self.envs * self.horizon:
            raise ValueError(f"minibatches: {self.minibatches} of {self.envs * self.horizon} transitions")
        return self


class PPO(PolicyGradient):
    """The clipped surrogate on minibatches."""

    clipped: ClassVar[bool] = True

    def __init__(self, options: Options) -> None:
        super().__init__(options.gae_lambda)
        self.options = options

    def batches(self, seed: int, number: int, count: int) -> Iterator[Rows]:
        """Yield shuffled minibatches of every epoch; whole episodes may have fewer transitions than `minibatches`."""
        from evo.randomness.shuffle import minibatches

        for epoch in range(self.options.epochs):
            yield from minibatches(seed, number, epoch, count, min(self.options.minibatches, count))

    def settings(self) -> dict[str, float]:
        """Return the clip ranges."""
        return {"clip_range": self.options.clip_range, "value_clip_range": self.options.value_clip_range}

    def stops_early(self, approx_kl: float) -> bool:
        """Return whether the policy has diverged beyond `target_kl`."""
        return 0 < self.options.target_kl < approx_kl


def make(options: Options, setup: Setup) -> GradientAlgorithm:
    """Return PPO."""
    return GradientAlgorithm(options, setup, ActorCritic(options, setup, PPO(options)))
