"""Weighted sums of named noise, and elementary functions, for the update of a search distribution.

The noise of a candidate is drawn again from its key, so no matrix of noise is ever held. Every weight has a sum of its
own, added up in float64 in the order of the candidates: the bits are the same on every machine.
"""

from __future__ import annotations

from decimal import Context, Decimal

import numpy as np
from numba import njit
from numpy.typing import NDArray

from evo.compiled import cache as kernel_cache
from evo.compiled.functions import exp as exp_of
from evo.networks.candidates import noise_from

kernel_cache.use(__name__)

CHUNK = 2048  # weights at a time: their sums stay in the first cache
_DIGITS = Context(prec=30)  # of correctly rounded logarithms: the same on every machine, as math.log is not


@njit(cache=True, error_model="numpy", nogil=True)
def _add(keys, factors, square_factors, total, squares):  # type: ignore[no-untyped-def]
    z = np.empty(CHUNK, np.float32)
    for start in range(0, total.shape[0], CHUNK):
        part = total[start : start + CHUNK]
        for k in range(keys.shape[0]):
            noise_from(keys[k], start // 4, z[: part.shape[0]])
            for i in range(part.shape[0]):
                part[i] += factors[k] * np.float64(z[i])
            if squares is not None:  # None by its type: Numba prunes the branch
                other = squares[start : start + CHUNK]
                for i in range(part.shape[0]):
                    value = np.float64(z[i])
                    other[i] += square_factors[k] * (value * value)


@njit(cache=True, error_model="numpy", nogil=True)
def norm(vector):  # type: ignore[no-untyped-def]
    """Return the Euclidean norm, summed in the order of the vector.  # [P] float64 -> float"""
    total = 0.0
    for i in range(vector.shape[0]):
        total += vector[i] * vector[i]
    return np.sqrt(total)


@njit(cache=True, error_model="numpy", nogil=True)
def exp(x):  # type: ignore[no-untyped-def]
    """Return e^x of every number, with the same bits on every machine.  # [P] float64 -> [P]"""
    out = np.empty_like(x)
    for i in range(x.shape[0]):
        out[i] = exp_of(x[i])
    return out


def noise_sum(keys: NDArray[np.uint64], factors: NDArray[np.float64], size: int) -> NDArray[np.float64]:
    """Return the sum over k of factors[k] z[k], z[k] being the noise of a key.  # [K], [K] -> [size]"""
    total = np.zeros(size)
    _add(keys, np.ascontiguousarray(factors, np.float64), None, total, None)
    return total


def noise_sums(
    keys: NDArray[np.uint64], factors: NDArray[np.float64], square_factors: NDArray[np.float64], size: int
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return the sums over k of factors[k] z[k] and of square_factors[k] z[k]^2.  # [K] each -> [size] each"""
    total, squares = np.zeros(size), np.zeros(size)
    factors, square_factors = (np.ascontiguousarray(array, np.float64) for array in (factors, square_factors))
    _add(keys, factors, square_factors, total, squares)
    return total, squares


def ln(x: float) -> float:
    """Return the natural logarithm of a positive number, with the same bits on every machine."""
    return float(_DIGITS.ln(Decimal(x)))
