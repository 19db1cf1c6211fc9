"""REINFORCE: one update per generation, from Monte Carlo returns minus a baseline (Williams, 1992).

A generation plays `episodes` whole episodes, and makes one update from all of their transitions: `PolicyGradient.learn`
of `evo.algorithms.a2c`, whose loss is log probability times advantage.
"""

from __future__ import annotations

from functools import partial
from typing import ClassVar, Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from evo.algorithms.a2c import PolicyGradient
from evo.learning.actor_critic import ActorCriticOptions
from evo.learning.gradient_algorithm import GradientAlgorithm
from evo.learning.returns import generalised_advantages, leave_one_out
from evo.records import Transitions
from evo.setup import Setup


class Options(ActorCriticOptions):
    """The [reinforce] section."""

    transitions_from: ClassVar[Literal["", "episodes", "segments"]] = "episodes"

    episodes: int = Field(32, ge=1, le=65536, description="whole episodes per generation")
    baseline: Literal["value", "leave_one_out"] = Field(
        "value",
        description="baseline subtracted from returns: value (critic), or leave_one_out (mean return of the other "
        "episodes)",
    )

    def _check(self) -> None:
        if self.baseline == "leave_one_out" and self.episodes < 2:
            raise ValueError("episodes: leave_one_out compares at least 2")


class Reinforce(PolicyGradient):
    """Monte Carlo returns minus the baseline."""

    def __init__(self, options: Options, setup: Setup) -> None:
        super().__init__(options, setup)
        self.has_critic = options.baseline == "value"

    def advantages(
        self, transitions: Transitions, rewards: NDArray[np.float32], values: NDArray[np.float32], gamma: float
    ) -> NDArray[np.float32]:
        """Return G_t - V(s_t), or G_t minus the mean return of the other episodes from step t on.  # all [M]"""
        if self.options.baseline == "leave_one_out":
            return leave_one_out(rewards, transitions.ends, gamma)
        next_values = transitions.next_outputs[:, -1]  # [N] of the observations after truncated episodes
        return generalised_advantages(rewards, transitions.ends, values, next_values, gamma=gamma, gae_lambda=1.0)


make = partial(GradientAlgorithm, method=Reinforce)
