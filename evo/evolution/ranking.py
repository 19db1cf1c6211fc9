"""Fitness as ranks, in which only the order counts; equal fitness is an equal rank, so that ties push nowhere."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray


def centred_ranks(fitness: NDArray[np.int64]) -> NDArray[np.float64]:
    """Return ranks from -0.5 for the worst to 0.5 for the best, whose sum is 0 (Salimans et al., 2017).  # [N]"""
    ordered = np.sort(fitness)
    worse = np.searchsorted(ordered, fitness, "left")
    better = len(fitness) - np.searchsorted(ordered, fitness, "right")
    ranks: NDArray[np.float64] = (worse - better) / (2.0 * max(1, len(fitness) - 1))
    return ranks


def shared_by_rank(fitness: NDArray[np.int64], weights: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return for each candidate the weight of its rank; candidates of equal fitness share theirs.

    fitness [N], weights [N] of the best candidate first -> [N]
    """
    ordered = np.sort(fitness)[::-1]
    sums = np.concatenate(([0.0], np.cumsum(weights)))  # one addition after the other, the same on every machine
    first = np.searchsorted(-ordered, -fitness, "left")
    end = np.searchsorted(-ordered, -fitness, "right")
    alone = end - first == 1
    return np.where(alone, weights[first], (sums[end] - sums[first]) / (end - first))
