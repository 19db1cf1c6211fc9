"""Separable CMA-ES: a diagonal covariance matrix, linear time and memory (Ros and Hansen, 2008).

Numbers of equations are those of Hansen, "The CMA Evolution Strategy: A Tutorial" (2016), with positive weights only.
"""

from __future__ import annotations

import math
from functools import partial
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from evo.evolution import strategy
from evo.evolution.noise_sums import noise_sums, norm
from evo.evolution.normal import Paths
from evo.evolution.population import all_tie
from evo.records import Arrays, Metrics, WeightSource


class Options(strategy.StrategyOptions):
    """The [sep_cma_es] section."""

    noise_recipe: ClassVar[int] = 2

    sigma_floor: float = Field(0.0, ge=0, le=1000, description="smallest step size sigma; 0 = none")


class Separable(Paths):
    """A normal distribution of mean m, step size sigma, and a variance for each weight relative to it."""

    def __init__(self, options: Options, mean: NDArray[np.float64]) -> None:
        super().__init__(options, mean)
        n, mu_eff = len(mean), self.mu_eff
        faster = (n + 2) / 3  # a diagonal is learned this many times faster (Ros and Hansen, section 3)
        self.c_1 = min(1.0, faster * 2 / ((n + 1.3) * (n + 1.3) + mu_eff))  # (eq. 57)
        c_mu = faster * 2 * (mu_eff - 2 + 1 / mu_eff) / ((n + 2) * (n + 2) + mu_eff)  # (eq. 58)
        self.c_mu = min(1 - self.c_1, c_mu)
        self.variances = np.ones(n)  # [P] C, the diagonal of the covariance matrix

    def candidates(self, seed: int, number: int) -> WeightSource:
        """Return the mean and candidates m + sigma * sqrt(C) * z around it (eqs. 38 to 40)."""
        return strategy.around_mean(seed, number, np.full(self.options.population, self.sigma, np.float32), scale=1)

    def published(self) -> NDArray[np.float32]:
        """Return the mean, and the standard deviations relative to sigma.  # [2, P]"""
        return np.stack((self.mean, np.sqrt(self.variances))).astype(np.float32)

    def update(self, source: WeightSource, fitness: NDArray[Any], number: int) -> Metrics:
        """Recombine, accumulate the paths, adapt step size and variances."""
        if all_tie(fitness):
            return {}
        weights = strategy.shared_by_rank(fitness, self.weights)
        z_w, z2_w = noise_sums(source.keys, weights, weights, len(self.mean))  # [P] sum of w_i z_i, and of w_i z_i^2
        y_w = np.sqrt(self.variances) * z_w  # (eq. 41)
        length, delta = self.step(y_w, z_w)
        self.variances = (  # (eq. 47)
            (1 - self.c_1 * (1 - delta) - self.c_mu) * self.variances
            + self.c_1 * (self.p_c * self.p_c)
            + self.c_mu * (self.variances * z2_w)
        )
        return {
            "sigma": self.sigma * math.sqrt(float(np.median(self.variances))),
            "step_size": self.sigma,
            "step_path": length,
            "step_norm": float(source.sigmas[0]) * norm(y_w),
        }

    def state(self) -> dict[str, NDArray[Any]]:
        """Return step size, variances and paths."""
        return {**super().state(), "variances": self.variances}

    def restore(self, state: Arrays) -> None:
        """Continue from a state."""
        super().restore(state)
        self.variances = np.array(state["variances"], np.float64)


make = partial(strategy.EvolutionStrategy, distribution=Separable)
