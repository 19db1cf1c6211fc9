"""The search distribution of separable CMA-ES: a diagonal covariance matrix (Ros and Hansen, 2008)."""

from __future__ import annotations

import math
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from evo.compiled.exact import exp
from evo.evolution.constants import CmaConstants
from evo.evolution.noise_sums import noise_sums, norm
from evo.evolution.paths import Paths
from evo.evolution.ranking import shared_by_rank
from evo.evolution.strategy import Distribution, StrategyOptions, around_mean
from evo.records import Arrays, Metrics, WeightSource


class SeparableOptions(StrategyOptions):
    """Options of a search with a diagonal covariance matrix."""

    noise_recipe: ClassVar[int] = 2

    sigma_floor: float = Field(0.0, ge=0, le=1000, description="smallest step size sigma; 0 = none")


class Separable(Distribution):
    """A normal distribution: step size sigma, and a variance for each weight relative to it."""

    def __init__(self, options: SeparableOptions, mean: NDArray[np.float64]) -> None:
        self.options, self.mean = options, mean
        size = len(self.mean)
        self._constants = CmaConstants.of(size, options.population, separable=True)
        self.sigma = options.sigma
        self.variances = np.ones(size)  # [P] C, the diagonal of the covariance matrix
        self._paths = Paths(size)

    def candidates(self, seed: int, number: int) -> WeightSource:
        """Return the mean and candidates around it."""
        return around_mean(seed, number, np.full(self.options.population, self.sigma, np.float32), scale=1)

    def published(self) -> NDArray[np.float32]:
        """Return the mean, and the standard deviations relative to sigma.  # [2, P]"""
        return np.stack((self.mean, np.sqrt(self.variances))).astype(np.float32)

    def update(self, source: WeightSource, fitness: NDArray[np.int64], number: int) -> Metrics:
        """Recombine, accumulate the paths, adapt variances and step size (Hansen, 2016, eqs. 39 to 47)."""
        known, deviations = self._constants, np.sqrt(self.variances)
        weights = shared_by_rank(fitness, known.weights)
        noise, squares = noise_sums(source.keys, weights, weights, len(self.mean))
        moved = deviations * noise
        self.mean = self.mean + self.sigma * moved

        length, lost = self._paths.follow(known, noise, moved)
        self.variances = (
            (1 - known.rank_one * (1 - lost) - known.rank_selected) * self.variances
            + known.rank_one * (self._paths.covariance * self._paths.covariance)
            + known.rank_selected * (self.variances * squares)
        )
        self.sigma *= exp(known.path_rate / known.damping * (length / known.expected_length - 1))
        self.sigma = max(self.sigma, self.options.sigma_floor)
        return {
            "sigma": self.sigma * math.sqrt(float(np.median(self.variances))),
            "step_size": self.sigma,
            "step_path": length / known.expected_length,
            "step_norm": float(source.sigmas[0]) * norm(moved),
        }

    def state(self) -> dict[str, NDArray[Any]]:
        """Return step size and start of the path, variances and paths."""
        return {
            "sigma": np.array([self.sigma, self._paths.start]),
            "variances": self.variances,
            **self._paths.state(),
        }

    def restore(self, state: Arrays) -> None:
        """Go on from a state."""
        self.sigma, start = (float(value) for value in state["sigma"])
        self.variances = np.array(state["variances"], np.float64)
        self._paths.restore(state, start)
