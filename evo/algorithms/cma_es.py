"""CMA-ES with a full covariance matrix, for networks of at most 5,000 weights (Hansen and Ostermeier, 2001).

Numbers of equations are those of Hansen, "The CMA Evolution Strategy: A Tutorial" (2016). Candidates of the worse half
have negative weights: the matrix learns from them where not to search (active CMA-ES; Jastrebski and Arnold, 2006).
Its eigenvectors come from LAPACK, whose sums differ between machines: a run is exact on one numeric fingerprint.
"""

from __future__ import annotations

import hashlib
import math
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from evo.errors import ConfigurationError
from evo.evolution import strategy
from evo.evolution.normal import Paths
from evo.evolution.population import all_tie
from evo.networks.candidates import noise
from evo.records import Arrays, Metrics, WeightSource

MOST_WEIGHTS = 5000
GOLDEN = 256  # rows of the matrix whose decomposition is the fingerprint: enough for several threads


class Options(strategy.StrategyOptions):
    """The [cma_es] section."""

    eigen_every: int = Field(
        0, ge=0, description="generations between eigendecompositions; 0 = when the matrix has changed enough"
    )
    sigma_floor: float = Field(0.0, ge=0, le=1000, description="smallest step size sigma; 0 = none")


class Full(Paths):
    """A normal distribution of mean m, step size sigma, and covariance matrix C = B D^2 B^T."""

    def __init__(self, options: Options, mean: NDArray[np.float64]) -> None:
        n = len(mean)
        if n > MOST_WEIGHTS:
            raise ConfigurationError(
                f"cma_es: the network has {n:,} weights, and a full covariance matrix is for at most "
                f"{MOST_WEIGHTS:,}; use sep_cma_es"
            )
        super().__init__(options, mean)
        mu_eff = self.mu_eff
        self.c_1 = min(1.0, 2 / ((n + 1.3) * (n + 1.3) + mu_eff))  # (eq. 57)
        learned = 2 * (1 / 4 + mu_eff + 1 / mu_eff - 2)
        self.c_mu = min(1 - self.c_1, learned / ((n + 2) * (n + 2) + mu_eff))  # (eq. 58)
        worse = np.minimum(strategy.log_ranks(options.population), 0.0)  # [N]
        total = -math.fsum(worse)
        mu_eff_minus = total * total / math.fsum(worse * worse)
        most = min(  # of the sum of negative weights (eq. 53)
            1 + self.c_1 / self.c_mu,  # (eq. 50)
            1 + 2 * mu_eff_minus / (mu_eff + 2),  # (eq. 51)
            (1 - self.c_1 - self.c_mu) / (n * self.c_mu),  # (eq. 52): C stays positive definite
        )
        self._of_matrix = self.weights + worse * (most / total)  # [N]
        often = 1 / (10 * n * (self.c_1 + self.c_mu))  # (section B.2)
        self._every = options.eigen_every or max(1, int(often))

        self.covariance = np.eye(n)  # [P, P] C
        self._vectors, self._lengths = np.eye(n), np.ones(n)  # B and the diagonal of D
        self._age = 0  # generations since the last decomposition
        self._rows = np.empty((0, n), np.float32)

    def candidates(self, seed: int, number: int) -> WeightSource:
        """Return the mean and candidates around it, whose weights are published as they are."""
        count = self.options.population
        source = strategy.around_mean(seed, number, np.zeros(count, np.float32))
        z = self._deviates(source.keys[1:])  # [N, P] (eq. 38)
        y = (z * self._lengths) @ self._vectors.T  # [N, P] (eq. 39)
        self._rows = np.concatenate((self.mean[np.newaxis], self.mean + self.sigma * y)).astype(np.float32)  # (eq. 40)
        source.rows[:] = np.arange(count + 1)
        return source

    def published(self) -> NDArray[np.float32]:
        """Return the mean and the candidates.  # [N + 1, P]"""
        return self._rows

    def update(self, source: WeightSource, fitness: NDArray[Any], number: int) -> Metrics:
        """Recombine, accumulate the paths, adapt covariance matrix and step size."""
        if all_tie(fitness):
            return {}
        weights, z = strategy.shared_by_rank(fitness, self.weights), self._deviates(source.keys)
        y = (z * self._lengths) @ self._vectors.T  # [N, P]
        z_w, y_w = weights @ z, weights @ y  # [P] (eq. 41)
        length, delta = self.step(y_w, self._vectors @ z_w)
        of_matrix = strategy.shared_by_rank(fitness, self._of_matrix)
        self.covariance *= 1 - self.c_1 * (1 - delta) - self.c_mu * math.fsum(of_matrix)  # (eq. 47)
        self.covariance += self.c_1 * np.outer(self.p_c, self.p_c)
        lengths = np.where(of_matrix < 0, len(self.mean) / np.maximum((z * z).sum(axis=1), 1e-20), 1.0)  # (eq. 46)
        self.covariance += self.c_mu * (y.T @ ((of_matrix * lengths)[:, np.newaxis] * y))
        self._age += 1
        if self._age >= self._every:
            values, self._vectors = np.linalg.eigh((self.covariance + self.covariance.T) / 2)
            self._lengths, self._age = np.sqrt(np.maximum(values, 1e-20)), 0
        return {
            "sigma": self.sigma * math.sqrt(float(np.median(np.diag(self.covariance)))),
            "step_size": self.sigma,
            "step_path": length,
            "axis_ratio": float(self._lengths.max() / self._lengths.min()),
        }

    def _deviates(self, keys: NDArray[np.uint64]) -> NDArray[np.float64]:
        """Return the noise of every key.  # [N, P]"""
        deviates = np.empty((len(keys), len(self.mean)), np.float32)
        for row, key in zip(deviates, keys, strict=True):
            noise(key, row)
        return deviates.astype(np.float64)

    def state(self) -> dict[str, NDArray[Any]]:
        """Return step size, covariance matrix with its decomposition, and paths."""
        matrix = {"covariance": self.covariance, "vectors": self._vectors, "lengths": self._lengths}
        return {**super().state(), **matrix, "age": np.array([self._age], np.int64)}

    def restore(self, state: Arrays) -> None:
        """Continue from a state."""
        super().restore(state)
        self._age = int(state["age"][0])
        arrays = (np.array(state[name], np.float64) for name in ("covariance", "vectors", "lengths"))
        self.covariance, self._vectors, self._lengths = arrays

    def fingerprint(self) -> str:
        """Return a hash of one decomposition and one product, which machines compute differently."""
        side = np.arange(GOLDEN * GOLDEN, dtype=np.float64).reshape(GOLDEN, GOLDEN) % 7.0 / 7.0
        values, vectors = np.linalg.eigh(side @ side.T)
        return "lapack " + hashlib.sha256(values.tobytes() + vectors.tobytes()).hexdigest()[:16]


make = partial(strategy.EvolutionStrategy, distribution=Full)
