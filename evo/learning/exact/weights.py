"""Weights of an update: packed kernels, the norm of a gradient, a step of Adam, and a target network that follows."""

from __future__ import annotations

import numpy as np
from numba import njit
from numpy.typing import NDArray

from evo.compiled import cache as kernel_cache
from evo.compiled.views import aligned
from evo.learning.exact.passes import pack_weights
from evo.learning.exact.plan import Plan
from evo.learning.exact.runs import WIDTH, rounded, sum_of_squares
from evo.learning.learner import BETAS, EPSILON
from evo.networks.network import Network

kernel_cache.use(__name__)

FIRST, SECOND = np.float32(1.0 - BETAS[0]), np.float32(1.0 - BETAS[1])
SMALL = np.float32(EPSILON)
TINY = np.float32(1e-30)  # smaller moments are 0: those of weights without a gradient would fade to subnormal numbers
ZERO = np.float32(0)


@njit(cache=True, error_model="numpy", nogil=True)
def norm_of(gradient):  # type: ignore[no-untyped-def]
    """Return the Euclidean norm of float32 [P]."""
    return np.sqrt(sum_of_squares(gradient, gradient.shape[0]))


@njit(cache=True, error_model="numpy", nogil=True, _nrt=False, inline="always")
def step_one(weights, first, second, k, value, rate):  # type: ignore[no-untyped-def]
    """Update weight k and its moments by its gradient, `value`."""
    mean, square = first[k] + (value - first[k]) * FIRST, second[k] + (value * value - second[k]) * SECOND
    first[k] = mean if abs(mean) > TINY else ZERO
    second[k] = square if square > TINY else ZERO
    weights[k] -= first[k] * rate / (np.sqrt(second[k]) + SMALL)


@njit(cache=True, error_model="numpy", nogil=True, _nrt=False)
def step(weights, first, second, gradient, scale, rate):  # type: ignore[no-untyped-def]
    """Update weights and moments [P] by gradient * scale; `rate` is Adam's, corrected for the moments' bias."""
    for k in range(gradient.shape[0]):
        step_one(weights, first, second, k, gradient[k] * scale, rate)


@njit(cache=True, error_model="numpy", nogil=True, _nrt=False)
def follow(target, weights, share):  # type: ignore[no-untyped-def]
    """Move a target network's weights [P] by a share of the difference."""
    for k in range(target.shape[0]):
        target[k] += share * (weights[k] - target[k])


class Weights:
    """A flat vector of weights, and its kernels in blocks of columns, which are packed again where it has changed."""

    def __init__(self, network: Network, made: Plan, is_learned: bool = True) -> None:
        """Make zeros; of weights that are not learned only outputs are computed."""
        self._plan, self._is_learned = made, is_learned
        filters = rounded(int(made.layers["filters"].max()))
        self._flat = aligned(network.size + WIDTH * (filters + 1))  # squares are read beyond the end
        self.vector: NDArray[np.float32] = self._flat[: network.size]
        self._packed = aligned(made.packed)
        self._stale = True

    def changed(self) -> None:
        """Mark the packed kernels as stale after `vector` was written."""
        self._stale = True

    def packed(self) -> NDArray[np.float32]:
        """Return the packed kernels of the present weights."""
        if self._stale:
            pack_weights(self._plan.layers, self._flat, self._packed, self._is_learned)
            self._stale = False
        return self._packed
