"""A plain evolution strategy: (mu/mu, lambda), with a self-adaptive step size (Beyer and Schwefel, 2002)."""

from __future__ import annotations

import math
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from evo.evolution import strategy
from evo.evolution.noise_sums import exp, ln, noise_sum, norm
from evo.evolution.population import all_tie, normals
from evo.randomness.streams import Purpose, candidate_keys
from evo.records import Arrays, Metrics, WeightSource


class Options(strategy.StrategyOptions):
    """The [es] section."""

    parents: int = Field(64, ge=1, le=1_000_000, description="best candidates, averaged to the next mean (mu)")
    sigma_spread: float = Field(
        0.0, ge=0, le=4, description="log-normal spread tau of a candidate's sigma; 0 = 1 / sqrt(2 P)"
    )
    sigma_floor: float = Field(0.0, ge=0, le=1000, description="smallest sigma of a candidate; 0 = none")

    def _check(self) -> None:
        if self.parents >= self.population:
            raise ValueError(f"parents: {self.parents} of a population of {self.population}")


class SelfAdaptive(strategy.Distribution):
    """A normal distribution whose candidates each have a standard deviation of their own."""

    def __init__(self, options: Options, mean: NDArray[np.float64]) -> None:
        self.options, self.mean = options, mean
        self.log_sigma = ln(options.sigma)
        self._spread = options.sigma_spread or 1 / math.sqrt(2 * len(self.mean))
        count = options.population
        self._weights = np.where(np.arange(count) < options.parents, 1 / options.parents, 0.0)  # [N] best first

    def candidates(self, seed: int, number: int) -> WeightSource:
        """Return the mean and candidates around it, with log-normal standard deviations."""
        drawn = normals(candidate_keys(seed, Purpose.SIGMA, number, 0, self.options.population))
        sigmas = exp(self.log_sigma + self._spread * drawn)  # sigma e^(tau N(0, 1))
        return strategy.around_mean(seed, number, np.maximum(sigmas, self.options.sigma_floor).astype(np.float32))

    def update(self, source: WeightSource, fitness: NDArray[Any], number: int) -> Metrics:
        """Take the mean of the best candidates, and of the logarithms of their standard deviations."""
        if all_tie(fitness):
            return {}
        weights = strategy.shared_by_rank(fitness, self._weights)
        sigmas = source.sigmas.astype(np.float64)
        step = noise_sum(source.keys, weights * sigmas, len(self.mean))  # mean of sigma_i z_i of the best
        self.mean = self.mean + step
        self.log_sigma = math.fsum(w * ln(s) for w, s in zip(weights.tolist(), sigmas.tolist(), strict=True) if w)
        return {"sigma": float(np.median(sigmas)), "step_norm": norm(step)}

    def state(self) -> dict[str, NDArray[Any]]:
        """Return the logarithm of sigma."""
        return {"log_sigma": np.array([self.log_sigma])}

    def restore(self, state: Arrays) -> None:
        """Continue from a state."""
        self.log_sigma = float(state["log_sigma"][0])


make = partial(strategy.EvolutionStrategy, distribution=SelfAdaptive)
