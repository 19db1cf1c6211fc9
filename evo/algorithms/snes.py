"""SNES: separable natural evolution strategy, a natural gradient of mean and sigma per weight (Schaul et al., 2011)."""

from __future__ import annotations

import math
from functools import partial
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from evo.evolution import strategy
from evo.evolution.noise_sums import exp, ln, noise_sums, norm
from evo.evolution.normal import SeparableNormal
from evo.evolution.population import all_tie
from evo.records import Metrics, WeightSource


class Options(strategy.StrategyOptions):
    """The [snes] section."""

    noise_recipe: ClassVar[int] = 2

    learning_rate: float = Field(1.0, gt=0, le=10, description="learning rate eta_mu of the mean")
    sigma_learning_rate: float = Field(
        0.0, ge=0, le=1, description="learning rate eta_sigma of the standard deviations; 0 = (3 + ln P) / (5 sqrt P)"
    )


class SNES(SeparableNormal):
    """Natural gradients of the mean and the standard deviations."""

    def __init__(self, options: Options, mean: NDArray[np.float64]) -> None:
        super().__init__(options, mean)
        size, count = len(self.mean), options.population
        self._sigma_rate = options.sigma_learning_rate or (3 + ln(size)) / (5 * math.sqrt(size))
        self._utilities = strategy.recombination_weights(count) - 1 / count  # [N] u, best first (fitness shaping)

    def candidates(self, seed: int, number: int) -> WeightSource:
        """Return the mean and candidates around it."""
        return strategy.around_mean(seed, number, np.ones(self.options.population, np.float32), scale=1)

    def update(self, source: WeightSource, fitness: NDArray[Any], number: int) -> Metrics:
        """Follow the natural gradient of the utilities (algorithm 2)."""
        if all_tie(fitness):
            return {}
        utilities = strategy.shared_by_rank(fitness, self._utilities)
        noise, squares = noise_sums(source.keys, utilities, utilities, len(self.mean))  # nabla mu = sum of u s
        step = self.options.learning_rate * self.sigmas * noise
        self.mean = self.mean + step  # mu + eta_mu sigma nabla mu
        spread = squares - float(utilities.cumsum()[-1])  # nabla sigma = sum of u (s^2 - 1)
        self.sigmas = self.sigmas * exp(0.5 * self._sigma_rate * spread)  # sigma exp(eta_sigma / 2 nabla sigma)
        return {"sigma": float(np.median(self.sigmas)), "step_norm": norm(step)}


make = partial(strategy.EvolutionStrategy, distribution=SNES)
