"""Bit operations on compiled 64-bit words."""

from __future__ import annotations

import numpy as np
from numba import njit

from evo.compiled import cache as kernel_cache

kernel_cache.use(__name__)

ONE = np.uint64(1)
PAIRS, QUADS = np.uint64(0x5555555555555555), np.uint64(0x3333333333333333)
NIBBLES, BYTES = np.uint64(0x0F0F0F0F0F0F0F0F), np.uint64(0x0101010101010101)


@njit(cache=True, error_model="numpy", _nrt=False)
def popcount(word):  # type: ignore[no-untyped-def]
    """Return the number of set bits of a uint64; LLVM compiles it to one instruction."""
    word = word - ((word >> ONE) & PAIRS)
    word = (word & QUADS) + ((word >> np.uint64(2)) & QUADS)
    word = (word + (word >> np.uint64(4))) & NIBBLES
    return np.int64((word * BYTES) >> np.uint64(56))
