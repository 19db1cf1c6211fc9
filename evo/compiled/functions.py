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

ONE, ONE_FLOAT = np.uint64(1), np.float32(1.0)
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


@njit(cache=True, error_model="numpy", nogil=True)
def _changed_arithmetic(one):  # type: ignore[no-untyped-def]
    """Return 1 where subnormal numbers vanish, 2 where rounding is not to nearest, else 0; `one` is 1.0 in float32."""
    # In float64: where subnormal operands count as zero, float32 could not tell the two apart.
    if np.float64(np.float32(2.0**-126) * one * np.float32(0.5)) != 2.0**-127:
        return 1
    number = np.float32(1.0 + 2.0**-23) * one  # of 5 times it the nearest float32 is below, of 7 times it above
    up = np.float64(number * np.float32(5.0)) != 5.0 + 2.0**-21
    down = np.float64(number * np.float32(7.0)) != 7.0 + 2.0**-20
    return 2 if up or down else 0


def check_arithmetic() -> None:
    """Raise ResourceError where a library has switched subnormal numbers off, or rounds otherwise than to nearest."""
    if changed := _changed_arithmetic(ONE_FLOAT):
        what = ("has set flush-to-zero: subnormal numbers vanish", "has changed how numbers are rounded")[changed - 1]
        raise ResourceError(
            f"a library in this process {what} and results would change; leave out the plug-in that loads it"
        )
