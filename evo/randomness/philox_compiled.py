"""Philox4x32-10 for Numba code: the same words as `evo.randomness.streams.philox`."""

from __future__ import annotations

import numpy as np
from numba import njit

from evo.compiled import cache as kernel_cache
from evo.randomness.streams import FOLLOWING

kernel_cache.use(__name__)

# Every operand is cast to uint64: Numba types uint64 + int64 as int64 or float64.
M0, M1 = np.uint64(0xD2511F53), np.uint64(0xCD9E8D57)
W0, W1 = np.uint64(0x9E3779B9), np.uint64(0xBB67AE85)
MASK32 = np.uint64(0xFFFFFFFF)
SHIFT = np.uint64(32)


@njit(cache=True, error_model="numpy", inline="always")
def philox(key, c0, c1, c2, c3):  # type: ignore[no-untyped-def]
    """Return the four 32-bit words, as uint64, at the counter (c0, c1, c2, c3) of the stream `key`."""
    k0, k1 = np.uint64(key) & MASK32, np.uint64(key) >> SHIFT
    c0, c1, c2, c3 = np.uint64(c0), np.uint64(c1), np.uint64(c2), np.uint64(c3)
    for _ in range(10):
        p0, p1 = M0 * c0, M1 * c2
        c0, c1, c2, c3 = (p1 >> SHIFT) ^ c1 ^ k0, p1 & MASK32, (p0 >> SHIFT) ^ c3 ^ k1, p0 & MASK32
        k0, k1 = (k0 + W0) & MASK32, (k1 + W1) & MASK32
    return c0, c1, c2, c3


@njit(cache=True, error_model="numpy")
def draw(key, index, below, purpose):  # type: ignore[no-untyped-def]
    """Return `streams.draw(key, index, below, purpose)` as an int64; 0 where that raises ValueError."""
    n = np.uint64(below)
    limit = np.uint64(1 << 32) // n * n  # 0 where n is none of 1 to 2^32
    if limit == np.uint64(0):
        return np.int64(0)
    attempt = np.uint64(0)
    while True:
        w0, w1, w2, w3 = philox(np.uint64(key), attempt, np.uint64(index), np.uint64(purpose), np.uint64(0))
        if w0 < limit:
            return np.int64(w0 % n)
        if w1 < limit:
            return np.int64(w1 % n)
        if w2 < limit:
            return np.int64(w2 % n)
        if w3 < limit:
            return np.int64(w3 % n)
        attempt += np.uint64(1)


@njit(cache=True, error_model="numpy", _nrt=False)
def episode_seed(first, number):  # type: ignore[no-untyped-def]
    """Return the seed of an episode as `evo.randomness.streams.episode_seed` does, uint64."""
    if number == 0:
        return np.uint64(first)
    w0, w1, _, _ = philox(np.uint64(first), np.uint64(0), np.uint64(number), np.uint64(FOLLOWING), np.uint64(0))
    return w0 | w1 << np.uint64(32)
