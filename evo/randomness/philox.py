"""Philox4x32-10 in plain Python: counter-based random numbers (Salmon et al., SC'11)."""

from __future__ import annotations

MASK32 = 0xFFFFFFFF
MULTIPLIERS = (0xD2511F53, 0xCD9E8D57)
WEYL = (0x9E3779B9, 0xBB67AE85)
ROUNDS = 10
FOLLOWING = 2  # purpose of the draw that names the episodes after the first

Words = tuple[int, int, int, int]


def philox(key: int, counter: Words) -> Words:
    """Return the four 32-bit words at `counter` of the stream `key`.

    `key` has 64 bits (Random123 puts the low word first), `counter` is four 32-bit words.
    """
    k0, k1 = key & MASK32, (key >> 32) & MASK32
    c0, c1, c2, c3 = counter
    for _ in range(ROUNDS):
        low_high = MULTIPLIERS[0] * c0, MULTIPLIERS[1] * c2
        c0, c1, c2, c3 = (
            (low_high[1] >> 32) ^ c1 ^ k0,
            low_high[1] & MASK32,
            (low_high[0] >> 32) ^ c3 ^ k1,
            low_high[0] & MASK32,
        )
        k0, k1 = (k0 + WEYL[0]) & MASK32, (k1 + WEYL[1]) & MASK32
    return c0, c1, c2, c3


def draw(key: int, index: int, below: int, purpose: int = 0) -> int:
    """Return draw number `index` of the stream `key`: an integer in [0, below), uniform by rejection.

    `index` < 2^32, `below` <= 2^32. Draws with different `purpose` under one key are independent.
    """
    limit = (1 << 32) // below * below
    attempt = 0
    while True:
        for word in philox(key, (attempt, index, purpose, 0)):
            if word < limit:
                return word % below
        attempt += 1


def episode_seed(first: int, number: int) -> int:
    """Return the seed of episode `number` of an environment whose first one has the seed `first`."""
    if number == 0:
        return first
    w0, w1, _, _ = philox(first, (0, number, FOLLOWING, 0))
    return w0 | w1 << 32
