"""Philox4x32-10 over arrays of streams: the same words as `evo.randomness.philox`."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from evo.randomness.philox import MASK32, MULTIPLIERS, ROUNDS, WEYL

Words = NDArray[np.uint64]
Counter = int | Words
LOW, HALF = np.uint64(MASK32), np.uint64(32)
M0, M1 = (np.uint64(factor) for factor in MULTIPLIERS)
W0, W1 = (np.uint64(step) for step in WEYL)


def philox(keys: Words, c0: Counter, c1: Counter, c2: Counter, c3: Counter) -> tuple[Words, Words, Words, Words]:
    """Return the four 32-bit words of each stream at its counter (c0, c1, c2, c3), whose words are scalars or [N].

    keys [N] uint64 -> four arrays [N] uint64.
    """
    k0, k1 = keys & LOW, keys >> HALF
    c0, c1, c2, c3 = (np.broadcast_to(np.asarray(word, np.uint64), keys.shape) for word in (c0, c1, c2, c3))
    for _ in range(ROUNDS):
        p0, p1 = M0 * c0, M1 * c2
        c0, c1, c2, c3 = (p1 >> HALF) ^ c1 ^ k0, p1 & LOW, (p0 >> HALF) ^ c3 ^ k1, p0 & LOW
        k0, k1 = (k0 + W0) & LOW, (k1 + W1) & LOW
    return c0, c1, c2, c3


def draws(keys: Words, index: int, below: int | NDArray[np.int64]) -> NDArray[np.int64]:
    """Return `philox.draw(key, index, below)` of each stream, with one `below` or [N].  # [N]"""
    below = np.broadcast_to(np.asarray(below, np.uint64), keys.shape)
    limit = np.uint64(1 << 32) // below * below
    found = np.zeros(len(keys), np.int64)
    left, attempt = np.arange(len(keys)), 0
    while len(left):
        words = np.stack(philox(keys[left], attempt, index, 0, 0), 1)  # [M, 4]
        good = words < limit[left, np.newaxis]
        first = good.argmax(axis=1)
        drawn = good.any(axis=1)
        found[left[drawn]] = words[drawn, first[drawn]] % below[left[drawn]]
        left, attempt = left[~drawn], attempt + 1
    return found
