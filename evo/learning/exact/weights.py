"""Weights of an update: packed kernels, the norm of a gradient, a step of Adam, and a target network that follows."""

from __future__ import annotations

from operator import mul

import numpy as np
from numba import njit
from numpy.typing import NDArray

from evo.compiled import cache as kernel_cache
from evo.compiled.buffers import aligned
from evo.learning.exact.passes import pack_weights
from evo.learning.exact.plan import Plan
from evo.learning.exact.runs import WIDTH, rounded
from evo.learning.learner import BETAS, EPSILON
from evo.networks.network import Network

kernel_cache.use(__name__)

PARTS = 16  # partial sums of the norm's squares
FIRST, SECOND = np.float32(1.0 - BETAS[0]), np.float32(1.0 - BETAS[1])
SMALL = np.float32(EPSILON)
TINY = np.float32(1e-30)  # smaller moments are 0: those of weights without a gradient would fade to subnormal numbers
ZERO = np.float32(0)


@njit(cache=True, error_model="numpy", nogil=True)
def norm_of(gradient):  # type: ignore[no-untyped-def]
    """Return the Euclidean norm of float32 [P]: 16 sums of every sixteenth square, added in pairs."""
    parts = np.zeros(PARTS, np.float32)
    whole = gradient.shape[0] // PARTS * PARTS
    for start in range(0, whole, PARTS):
        for k in range(PARTS):
            parts[k] += gradient[start + k] * gradient[start + k]
    for k in range(gradient.shape[0] - whole):
        parts[k] += gradient[whole + k] * gradient[whole + k]
    half = PARTS // 2
    while half:
        for k in range(half):
            parts[k] += parts[k + half]
        half //= 2
    return np.sqrt(parts[0])


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
        terms, filters = ([rounded(int(size)) for size in made.layers[name]] for name in ("terms", "filters"))
        self._flat = aligned(network.size + WIDTH * (max(filters) + 1))  # squares are read beyond the end
        self.vector: NDArray[np.float32] = self._flat[: network.size]
        self._packed = aligned(made.packed)
        self._scratch = aligned(max(map(mul, terms, filters)))
        self._stale = True

    def changed(self) -> None:
        """Say that `vector` was written."""
        self._stale = True

    def packed(self) -> NDArray[np.float32]:
        """Return the packed kernels of the present weights."""
        if self._stale:
            pack_weights(self._plan.layers, self._flat, self._packed, self._scratch, self._is_learned)
            self._stale = False
        return self._packed
