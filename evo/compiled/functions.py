"""Arithmetic with the same bits on every machine: `evo.compiled.exact` for compiled code and over arrays, powers, bits.

NumPy's functions differ in last bits between processors.
"""

from __future__ import annotations

import numpy as np
from numba import njit
from numpy.typing import NDArray

from evo.compiled import cache as kernel_cache
from evo.compiled import exact
from evo.errors import ResourceError

kernel_cache.use(__name__)

ONE = np.uint64(1)
PAIRS, QUADS = np.uint64(0x5555555555555555), np.uint64(0x3333333333333333)
NIBBLES, BYTES = np.uint64(0x0F0F0F0F0F0F0F0F), np.uint64(0x0101010101010101)

exp, log = (njit(cache=True, error_model="numpy", nogil=True)(function) for function in (exact.exp, exact.log))


@njit(cache=True, error_model="numpy", nogil=True)
def tanh(x):  # type: ignore[no-untyped-def]
    """Return the hyperbolic tangent of x, up to an absolute error of a few 1e-16."""
    rest = exp(-2.0 * abs(x))
    value = (1.0 - rest) / (1.0 + rest)
    return value if x > 0 else -value


@njit(cache=True, error_model="numpy", nogil=True)
def _powers(values, exponent, out):  # type: ignore[no-untyped-def]
    for k in range(values.shape[0]):
        out[k] = exp(exponent * log(values[k]))


def powers(values: NDArray[np.float64], exponent: float) -> NDArray[np.float64]:
    """Return values^exponent of values above 0, as e^(exponent log value).  # [M] -> [M]"""
    out = np.empty(len(values))
    _powers(np.ascontiguousarray(values, np.float64), exponent, out)
    return out


def integer_power(x: float, count: int) -> float:
    """Return x^count for count >= 0, by squaring."""
    value = 1.0
    while count:
        if count & 1:
            value *= x
        x *= x
        count >>= 1
    return value


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


@njit(cache=True, error_model="numpy")
def _times(a, b):  # type: ignore[no-untyped-def]
    return a * b


def check_arithmetic() -> None:
    """Raise ResourceError where a library has switched subnormal numbers off, or rounds otherwise than to nearest."""
    # Compared as Python's floats: where subnormal operands count as zero, float32 could not tell the two apart.
    changed, number = "", np.float32(1.0 + 2.0**-23)
    rounded = [float(_times(number, np.float32(by))) - by for by in (5.0, 7.0, -5.0)]
    if float(_times(np.float32(2.0**-126), np.float32(0.5))) != 2.0**-127:
        changed = "has set flush-to-zero: subnormal numbers vanish"
    elif rounded != [2.0**-21, 2.0**-20, -(2.0**-21)]:
        changed = "has changed how numbers are rounded"
    if changed:
        raise ResourceError(
            f"a library in this process {changed} and results would change; leave out the plug-in that loads it"
        )
