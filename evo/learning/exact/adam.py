"""Adam (Kingma & Ba, 2015) after clipping to a global norm, with the same bits everywhere."""

from __future__ import annotations

import numpy as np
from numba import njit

from evo.compiled import cache as kernel_cache
from evo.learning.learner import BETAS, EPSILON

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


@njit(cache=True, error_model="numpy", nogil=True, _nrt=False)
def step(weights, first, second, gradient, scale, rate):  # type: ignore[no-untyped-def]
    """Update weights and moments [P] by gradient * scale; `rate` is Adam's, corrected for the moments' bias."""
    for k in range(gradient.shape[0]):
        value = gradient[k] * scale
        mean, square = first[k] + (value - first[k]) * FIRST, second[k] + (value * value - second[k]) * SECOND
        first[k] = mean if abs(mean) > TINY else ZERO
        second[k] = square if square > TINY else ZERO
        weights[k] -= first[k] * rate / (np.sqrt(second[k]) + SMALL)


@njit(cache=True, error_model="numpy", nogil=True, _nrt=False)
def follow(target, weights, share):  # type: ignore[no-untyped-def]
    """Move a target network's weights [P] by a share of the difference."""
    for k in range(target.shape[0]):
        target[k] += share * (weights[k] - target[k])
