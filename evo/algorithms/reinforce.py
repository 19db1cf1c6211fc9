"""REINFORCE: one update per generation, from Monte Carlo returns minus a baseline (Williams, 1992)."""

from __future__ import annotations

from typing import Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import Field, model_validator

from evo.learning.actor_critic import ActorCritic, ActorCriticOptions, PolicyGradient, Valued
from evo.learning.gradient_algorithm import GradientAlgorithm
from evo.setup import Setup


class Options(ActorCriticOptions):
    """The [reinforce] section."""

    episodes: int = Field(32, ge=1, le=65536, description="whole episodes per generation")
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


class Reinforce(PolicyGradient):
    """The policy gradient of discounted returns less the baseline."""

    def __init__(self, options: Options) -> None:
        super().__init__()  # Monte Carlo returns
        self._has_value = options.baseline == "value"

    def advantages(self, played: Valued, gamma: float) -> NDArray[np.float32]:
        """Return discounted returns less the baseline.  # [M]"""
        if self._has_value:
            return super().advantages(played, gamma)
        from evo.learning.returns import leave_one_out

        return leave_one_out(played.rewards, played.ends, gamma)

    def settings(self) -> dict[str, float]:
        """Return no weight for a value that is no baseline."""
        return {} if self._has_value else {"value_coefficient": 0.0}


def make(options: Options, setup: Setup) -> GradientAlgorithm:
    """Return REINFORCE."""
    return GradientAlgorithm(options, setup, ActorCritic(options, setup, Reinforce(options)))
