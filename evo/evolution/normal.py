"""Normal distributions that several strategies search with.

Numbers of equations are those of Hansen, "The CMA Evolution Strategy: A Tutorial" (2016).
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from evo.compiled.exact import exp
from evo.evolution.noise_sums import ln, norm
from evo.evolution.strategy import Distribution, recombination_weights
from evo.evolution.toolbox import LOG_SIGMAS
from evo.records import Arrays


class SeparableNormal(Distribution):
    """A normal distribution with a standard deviation for each weight."""

    def __init__(self, options: Any, mean: NDArray[np.float64]) -> None:
        self.options, self.mean = options, mean
        self.sigmas = np.full(len(mean), options.sigma)  # [P]

    def published(self) -> NDArray[np.float32]:
        """Return the mean and the standard deviations.  # [2, P]"""
        return np.stack((self.mean, self.sigmas)).astype(np.float32)

    def state(self) -> dict[str, NDArray[Any]]:
        """Return the standard deviations."""
        return {"sigmas": self.sigmas}

    def restore(self, state: Arrays) -> None:
        """Continue from a state."""
        self.sigmas = np.array(state["sigmas"], np.float64)


class StepPath:
    """The path of a mean: where it is longer than a random walk's, a step size grows (Hansen and Ostermeier, 1996)."""

    def __init__(self, size: int, mu_eff: float) -> None:
        """Begin without steps, for means of `size` weights of `mu_eff` candidates, effectively."""
        self._mu_eff = mu_eff
        self.c_sigma = (mu_eff + 2) / (size + mu_eff + 5)  # (eq. 55)
        self.d_sigma = 1 + 2 * max(0.0, math.sqrt((mu_eff - 1) / (size + 1)) - 1) + self.c_sigma  # (eq. 55)
        self.chi = math.sqrt(size) * (1 - 1 / (4 * size) + 1 / (21 * size * size))  # expected length of a normal vector
        self.path = np.zeros(size)  # [P]

    def move(self, step: NDArray[np.float64]) -> tuple[float, float]:
        """Follow a step in units of sigma; return the path's length, and what is added to the logarithm of sigma."""
        rate = self.c_sigma
        self.path = (1 - rate) * self.path + math.sqrt(rate * (2 - rate) * self._mu_eff) * step  # (eq. 43)
        length = norm(self.path)
        return length, rate / self.d_sigma * (length / self.chi - 1)  # (eq. 44)

    def follow(self, before: NDArray[Any], after: NDArray[Any], log_sigma: float, floor: float) -> float:
        """Follow the step of a mean [P]; return the logarithm of the next sigma, of at least `floor`."""
        _, change = self.move((after.astype(np.float64) - before) / exp(log_sigma))
        lowest, highest = max(LOG_SIGMAS[0], ln(floor)) if floor else LOG_SIGMAS[0], LOG_SIGMAS[1]
        return min(max(log_sigma + change, lowest), highest)


class Paths(Distribution):
    """A normal distribution of mean m, step size sigma and a covariance matrix C, diagonal or full."""

    def __init__(self, options: Any, mean: NDArray[np.float64]) -> None:
        self.options, self.mean = options, mean
        n = len(mean)
        self.weights = recombination_weights(options.population)  # [N] best first
        self.mu_eff = mu_eff = 1 / math.fsum(self.weights * self.weights)  # effective number of selected candidates
        self.step_path = StepPath(n, mu_eff)  # of C^(-1/2) y_w
        self.c_c = (4 + mu_eff / n) / (n + 4 + 2 * mu_eff / n)  # (eq. 56)
        self.sigma = options.sigma
        self.p_c = np.zeros(n)  # [P] evolution path of y_w
        self.unbiased = 1.0  # (1 - c_sigma)^(2 generations)

    def step(self, y_w: NDArray[np.float64], whitened: NDArray[np.float64]) -> tuple[float, float]:
        """Move mean, paths and step size by y_w, which is C^(-1/2) y_w `whitened`.

        Returns the length of the step's path, relative to that of a normal vector, and delta(h_sigma) of eq. 47.
        """
        n, c_sigma, c_c, mu_eff = len(self.mean), self.step_path.c_sigma, self.c_c, self.mu_eff
        self.mean = self.mean + self.sigma * y_w  # (eq. 42)
        length, change = self.step_path.move(whitened)
        self.unbiased *= (1 - c_sigma) * (1 - c_sigma)
        h_sigma = length < (1.4 + 2 / (n + 1)) * self.step_path.chi * math.sqrt(1 - self.unbiased)
        self.p_c = (1 - c_c) * self.p_c + h_sigma * math.sqrt(c_c * (2 - c_c) * mu_eff) * y_w  # (eq. 45)
        self.sigma *= exp(change)  # (eq. 44)
        self.sigma = max(self.sigma, self.options.sigma_floor)
        return length / self.step_path.chi, 0.0 if h_sigma else c_c * (2 - c_c)

    def state(self) -> dict[str, NDArray[Any]]:
        """Return step size and paths."""
        return {"sigma": np.array([self.sigma, self.unbiased]), "step_path": self.step_path.path, "path": self.p_c}

    def restore(self, state: Arrays) -> None:
        """Continue from a state."""
        self.sigma, self.unbiased = (float(value) for value in state["sigma"])
        self.step_path.path, self.p_c = (np.array(state[name], np.float64) for name in ("step_path", "path"))
