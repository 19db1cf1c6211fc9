"""`evo.compiled.exact` for compiled code and over arrays, and set bits of words.

NumPy's functions differ in last bits between processors.
"""

from __future__ import annotations

import numpy as np
from numba import njit
from numpy.typing import NDArray

from evo.compiled import cache as kernel_cache
from evo.compiled import exact

kernel_cache.use(__name__)

ONE = np.uint64(1)
PAIRS, QUADS = np.uint64(0x5555555555555555), np.uint64(0x3333333333333333)
NIBBLES, BYTES = np.uint64(0x0F0F0F0F0F0F0F0F), np.uint64(0x0101010101010101)

exp, log = (njit(cache=True, error_model="numpy", nogil=True)(function) for function in (exact.exp, exact.log))


@njit(cache=True, error_model="numpy", nogil=True)
def _powers(values, exponent, out):  # type: ignore[no-untyped-def]
    for k in range(values.shape[0]):
        out[k] = exp(exponent * log(values[k]))


def powers(values: NDArray[np.float64], exponent: float) -> NDArray[np.float64]:
    """Return values^exponent of values above 0, as e^(exponent log value).  # [M] -> [M]"""
    out = np.empty(len(values))
    _powers(np.ascontiguousarray(values, np.float64), exponent, out)
    return out


@njit(cache=True, error_model="numpy", nogil=True)
def _sums(vector, matrix, out):  # type: ignore[no-untyped-def]
    for k in range(matrix.shape[0]):
        for j in range(matrix.shape[1]):
            out[j] += vector[k] * matrix[k, j]


def product(vector: NDArray[np.float64], matrix: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return vector @ matrix, every sum in the order of the rows.  # [K], [K, F] -> [F]"""
    out = np.zeros(matrix.shape[1])
    _sums(vector, np.ascontiguousarray(matrix, np.float64), out)
    return out


@njit(cache=True, error_model="numpy", _nrt=False)
def popcount(word):  # type: ignore[no-untyped-def]
    """Return the number of set bits of a uint64; LLVM compiles it to one instruction."""
    word = word - ((word >> ONE) & PAIRS)
    word = (word & QUADS) + ((word >> np.uint64(2)) & QUADS)
    word = (word + (word >> np.uint64(4))) & NIBBLES
    return np.int64((word * BYTES) >> np.uint64(56))
