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

from evo.compiled.exact import exp
from evo.evolution import strategy
from evo.evolution.noise_sums import noise_sums, norm
from evo.records import Arrays, Metrics, WeightSource


class Options(strategy.StrategyOptions):
    """The [sep_cma_es] section."""

    noise_recipe: ClassVar[int] = 2

    sigma_floor: float = Field(0.0, ge=0, le=1000, description="smallest step size sigma; 0 = none")


class Separable(strategy.Distribution):
    """A normal distribution of mean m, step size sigma, and a variance for each weight relative to it."""

    def __init__(self, options: Options, mean: NDArray[np.float64]) -> None:
        self.options, self.mean = options, mean
        n = len(mean)
        self.weights = strategy.recombination_weights(options.population)  # [N] best first
        self.mu_eff = mu_eff = 1 / math.fsum(self.weights * self.weights)  # effective number of selected candidates
        self.c_sigma = (mu_eff + 2) / (n + mu_eff + 5)  # (eq. 55)
        self.d_sigma = 1 + 2 * max(0.0, math.sqrt((mu_eff - 1) / (n + 1)) - 1) + self.c_sigma  # (eq. 55)
        self.c_c = (4 + mu_eff / n) / (n + 4 + 2 * mu_eff / n)  # (eq. 56)
        faster = (n + 2) / 3  # a diagonal is learned this many times faster (Ros and Hansen, section 3)
        self.c_1 = min(1.0, faster * 2 / ((n + 1.3) * (n + 1.3) + mu_eff))  # (eq. 57)
        c_mu = faster * 2 * (mu_eff - 2 + 1 / mu_eff) / ((n + 2) * (n + 2) + mu_eff)  # (eq. 58)
        self.c_mu = min(1 - self.c_1, c_mu)
        self.chi = math.sqrt(n) * (1 - 1 / (4 * n) + 1 / (21 * n * n))  # expected length of a normal vector

        self.sigma, self.variances = options.sigma, np.ones(n)  # [P] C, the diagonal of the covariance matrix
        self.p_sigma, self.p_c = np.zeros(n), np.zeros(n)  # [P] evolution paths
        self.unbiased = 1.0  # (1 - c_sigma)^(2 generations)

    def candidates(self, seed: int, number: int) -> WeightSource:
        """Return the mean and candidates m + sigma * sqrt(C) * z around it (eqs. 38 to 40)."""
        return strategy.around_mean(seed, number, np.full(self.options.population, self.sigma, np.float32), scale=1)

    def published(self) -> NDArray[np.float32]:
        """Return the mean, and the standard deviations relative to sigma.  # [2, P]"""
        return np.stack((self.mean, np.sqrt(self.variances))).astype(np.float32)

    def update(self, source: WeightSource, fitness: NDArray[Any], number: int) -> Metrics:
        """Recombine, accumulate the paths, adapt step size and variances."""
        if strategy.all_tie(fitness):
            return {}
        n, c_sigma, c_c, mu_eff = len(self.mean), self.c_sigma, self.c_c, self.mu_eff
        weights = strategy.shared_by_rank(fitness, self.weights)
        z_w, z2_w = noise_sums(source.keys, weights, weights, n)  # [P] sum of w_i z_i, and of w_i z_i^2
        y_w = np.sqrt(self.variances) * z_w  # (eq. 41)
        self.mean = self.mean + self.sigma * y_w  # (eq. 42)

        self.p_sigma = (1 - c_sigma) * self.p_sigma + math.sqrt(c_sigma * (2 - c_sigma) * mu_eff) * z_w  # (eq. 43)
        length = norm(self.p_sigma)
        self.unbiased *= (1 - c_sigma) * (1 - c_sigma)
        h_sigma = length < (1.4 + 2 / (n + 1)) * self.chi * math.sqrt(1 - self.unbiased)
        self.p_c = (1 - c_c) * self.p_c + h_sigma * math.sqrt(c_c * (2 - c_c) * mu_eff) * y_w  # (eq. 45)
        delta = 0.0 if h_sigma else c_c * (2 - c_c)
        self.variances = (  # (eq. 47)
            (1 - self.c_1 * (1 - delta) - self.c_mu) * self.variances
            + self.c_1 * (self.p_c * self.p_c)
            + self.c_mu * (self.variances * z2_w)
        )
        self.sigma *= exp(c_sigma / self.d_sigma * (length / self.chi - 1))  # (eq. 44)
        self.sigma = max(self.sigma, self.options.sigma_floor)
        return {
            "sigma": self.sigma * math.sqrt(float(np.median(self.variances))),
            "step_size": self.sigma,
            "step_path": length / self.chi,
            "step_norm": float(source.sigmas[0]) * norm(y_w),
        }

    def state(self) -> dict[str, NDArray[Any]]:
        """Return step size, variances and paths."""
        return {
            "sigma": np.array([self.sigma, self.unbiased]),
            "variances": self.variances,
            "step_path": self.p_sigma,
            "path": self.p_c,
        }

    def restore(self, state: Arrays) -> None:
        """Continue from a state."""
        self.sigma, self.unbiased = (float(value) for value in state["sigma"])
        names = ("variances", "step_path", "path")
        self.variances, self.p_sigma, self.p_c = (np.array(state[name], np.float64) for name in names)


make = partial(strategy.EvolutionStrategy, distribution=Separable)
