"""CMA-ES with a full covariance matrix, for networks of at most 5,000 weights (Hansen and Ostermeier, 2001).

Its eigenvectors come from LAPACK, whose sums differ between machines: a run is exact on one numeric fingerprint.
"""

from __future__ import annotations

import hashlib
import math
from typing import Any

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from evo.compiled.exact import exp
from evo.errors import ConfigurationError
from evo.evolution.constants import CmaConstants
from evo.evolution.paths import Paths
from evo.evolution.ranking import shared_by_rank
from evo.evolution.strategy import Distribution, EvolutionStrategy, StrategyOptions, around_mean
from evo.networks.candidates import noise
from evo.records import Arrays, Metrics, WeightSource
from evo.setup import Setup

MOST_WEIGHTS = 5000
GOLDEN = 256  # rows of the matrix whose decomposition is the fingerprint: enough for several threads


class Options(StrategyOptions):
    """The [cma_es] section."""

    eigen_every: int = Field(
        0,
        ge=0,
        description="generations between eigendecompositions; 0 = as often as the matrix changes much",
    )
    sigma_floor: float = Field(0.0, ge=0, le=1000, description="smallest step size sigma; 0 = none")


class Full(Distribution):
    """A normal distribution of any shape: step size sigma, covariance matrix C = B D^2 B^T."""

    def __init__(self, options: Options, mean: NDArray[np.float64]) -> None:
        self.options, self.mean = options, mean
        size = len(self.mean)
        if size > MOST_WEIGHTS:
            raise ConfigurationError(
                f"cma_es: the network has {size:,} weights, and a full covariance matrix is for at most "
                f"{MOST_WEIGHTS:,}; use sep_cma_es"
            )
        known = self._constants = CmaConstants.of(size, options.population)
        often = 1 / (10 * size * (known.rank_one + known.rank_selected))  # (section B.2 of the tutorial)
        self._every = options.eigen_every or max(1, int(often))
        self.sigma, self.covariance = options.sigma, np.eye(size)  # [P, P]
        self._vectors, self._lengths = np.eye(size), np.ones(size)  # B and D
        self._age, self._paths = 0, Paths(size)
        self._rows = np.empty((0, size), np.float32)

    def candidates(self, seed: int, number: int) -> WeightSource:
        """Return the mean and candidates around it, whose weights are published as they are."""
        count = self.options.population
        source = around_mean(seed, number, np.zeros(count, np.float32))
        deviates = self._deviates(source.keys[1:])
        moves = self.sigma * ((deviates * self._lengths) @ self._vectors.T)
        self._rows = np.concatenate((self.mean[np.newaxis], self.mean + moves)).astype(np.float32)
        source.rows[:] = np.arange(count + 1)
        return source

    def published(self) -> NDArray[np.float32]:
        """Return the mean and the candidates.  # [N + 1, P]"""
        return self._rows

    def update(self, source: WeightSource, fitness: NDArray[np.int64], number: int) -> Metrics:
        """Recombine, accumulate the paths, adapt covariance matrix and step size (Hansen, 2016, eqs. 39 to 47)."""
        known, deviates = self._constants, self._deviates(source.keys)
        weights = shared_by_rank(fitness, known.weights)
        steps = (deviates * self._lengths) @ self._vectors.T  # [N, P] y
        noise_mean, moved = weights @ deviates, weights @ steps
        self.mean = self.mean + self.sigma * moved

        length, lost = self._paths.follow(known, self._vectors @ noise_mean, moved)  # C^(-1/2) y_w
        self.covariance *= 1 - known.rank_one * (1 - lost) - known.rank_selected
        self.covariance += known.rank_one * np.outer(self._paths.covariance, self._paths.covariance)
        self.covariance += known.rank_selected * (steps.T @ (weights[:, np.newaxis] * steps))
        self.sigma *= exp(known.path_rate / known.damping * (length / known.expected_length - 1))
        self.sigma = max(self.sigma, self.options.sigma_floor)
        self._age += 1
        if self._age >= self._every:
            self._decompose()
        return {
            "sigma": self.sigma * math.sqrt(float(np.median(np.diag(self.covariance)))),
            "step_size": self.sigma,
            "step_path": length / known.expected_length,
            "axis_ratio": float(self._lengths.max() / self._lengths.min()),
        }

    def _decompose(self) -> None:
        values, self._vectors = np.linalg.eigh((self.covariance + self.covariance.T) / 2)
        self._lengths, self._age = np.sqrt(np.maximum(values, 1e-20)), 0

    def _deviates(self, keys: NDArray[np.uint64]) -> NDArray[np.float64]:
        """Return the noise of every key.  # [N, P]"""
        deviates = np.empty((len(keys), len(self.mean)), np.float32)
        for row, key in zip(deviates, keys, strict=True):
            noise(key, row)
        return deviates.astype(np.float64)

    def state(self) -> dict[str, NDArray[Any]]:
        """Return step size, covariance matrix with its decomposition, and paths."""
        return {
            "sigma": np.array([self.sigma, self._paths.start]),
            "age": np.array([self._age], np.int64),
            "covariance": self.covariance,
            "vectors": self._vectors,
            "lengths": self._lengths,
            **self._paths.state(),
        }

    def restore(self, state: Arrays) -> None:
        """Go on from a state."""
        self.sigma, start = (float(value) for value in state["sigma"])
        self._paths.restore(state, start)
        self._age = int(state["age"][0])
        self.covariance, self._vectors = (np.array(state[name], np.float64) for name in ("covariance", "vectors"))
        self._lengths = np.array(state["lengths"], np.float64)


class CmaEs(EvolutionStrategy):
    """The strategy with its fingerprint."""

    def fingerprint(self) -> str:
        """Return a hash of one decomposition and one product, which machines compute differently."""
        side = np.arange(GOLDEN * GOLDEN, dtype=np.float64).reshape(GOLDEN, GOLDEN) % 7.0 / 7.0
        values, vectors = np.linalg.eigh(side @ side.T)
        return "lapack " + hashlib.sha256(values.tobytes() + vectors.tobytes()).hexdigest()[:16]


def make(options: Options, setup: Setup) -> CmaEs:
    """Return CMA-ES; `setup.start` [P] becomes the first mean. ConfigurationError: too many weights."""
    return CmaEs(options, setup, Full)
