"""Named random streams: the source of every random number of a run, by Philox4x32-10 (Salmon et al., SC'11).

A stream is a 64-bit Philox4x32-10 key, derived from its name: seed, purpose, generation, candidate, episode. Any worker
can draw any number of any stream, in any order. So no random state is ever saved, and a resume cannot lose it.
"""

from __future__ import annotations

from enum import IntEnum

import numpy as np
from numpy.typing import NDArray

SEED_LIMIT = 1 << 64
MASK32 = 0xFFFFFFFF
MULTIPLIERS = (0xD2511F53, 0xCD9E8D57)
WEYL = (0x9E3779B9, 0xBB67AE85)
ROUNDS = 10
FOLLOWING = 2  # purpose of the draw that names the episodes after the first

LOW, HALF = np.uint64(MASK32), np.uint64(32)
M0, M1 = (np.uint64(factor) for factor in MULTIPLIERS)
W0, W1 = (np.uint64(step) for step in WEYL)

Words = tuple[int, int, int, int]
Array = NDArray[np.uint64]


def philox(key: int, counter: Words) -> Words:
    """Return the four 32-bit words at `counter` of the stream `key`.

    `key` has 64 bits (Random123 puts the low word first), `counter` is four 32-bit words. Whole numbers of NumPy, whose
    products would overflow, give the same words.
    """
    key, (c0, c1, c2, c3), mask = int(key), map(int, counter), MASK32
    k0, k1, (m0, m1), (w0, w1) = key & mask, (key >> 32) & mask, MULTIPLIERS, WEYL
    for _ in range(ROUNDS):
        p0, p1 = m0 * c0, m1 * c2
        c0, c1, c2, c3 = (p1 >> 32) ^ c1 ^ k0, p1 & mask, (p0 >> 32) ^ c3 ^ k1, p0 & mask
        k0, k1 = (k0 + w0) & mask, (k1 + w1) & mask
    return c0, c1, c2, c3


def draw(key: int, index: int, below: int, purpose: int = 0) -> int:
    """Return draw number `index` of the stream `key`: an integer in [0, below), uniform by rejection.

    `index` < 2^32. Draws with different `purpose` under one key are independent. ValueError where `below` is not from 1
    to 2^32.
    """
    if not 0 < below <= 1 << 32:
        raise ValueError(f"a draw below {below}, not below a number from 1 to 2^32")
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


def philox_each(
    keys: Array, c0: int | Array, c1: int | Array, c2: int | Array, c3: int | Array
) -> tuple[Array, Array, Array, Array]:
    """Return `philox` of each stream at its counter (c0, c1, c2, c3), whose words are scalars or [N].

    keys [N] uint64 -> four arrays [N] uint64.
    """
    k0, k1 = keys & LOW, keys >> HALF
    c0, c1, c2, c3 = (np.broadcast_to(np.asarray(word, np.uint64), keys.shape) for word in (c0, c1, c2, c3))
    for _ in range(ROUNDS):
        p0, p1 = M0 * c0, M1 * c2
        c0, c1, c2, c3 = (p1 >> HALF) ^ c1 ^ k0, p1 & LOW, (p0 >> HALF) ^ c3 ^ k1, p0 & LOW
        k0, k1 = (k0 + W0) & LOW, (k1 + W1) & LOW
    return c0, c1, c2, c3


def draws(keys: Array, index: int, below: int | NDArray[np.int64]) -> NDArray[np.int64]:
    """Return `draw(key, index, below)` of each stream, with one `below` or [N].  # [N]"""
    below = np.broadcast_to(np.asarray(below, np.uint64), keys.shape)
    limit = np.uint64(1 << 32) // below * below
    found = np.zeros(len(keys), np.int64)
    left, attempt = np.arange(len(keys)), 0
    while len(left):
        words = np.stack(philox_each(keys[left], attempt, index, 0, 0), 1)  # [M, 4]
        good = words < limit[left, np.newaxis]
        first = good.argmax(axis=1)
        drawn = good.any(axis=1)
        found[left[drawn]] = words[drawn, first[drawn]] % below[left[drawn]]
        left, attempt = left[~drawn], attempt + 1
    return found


class Purpose(IntEnum):
    """What a stream is used for. The numbers are part of the file formats: add to them, never renumber."""

    INITIAL = 1  # weights of a candidate without a parent
    MUTATION = 2  # noise of a child
    PARENT = 3  # choice of the parent
    SIGMA = 4  # step of a child's sigma
    TOURNAMENT = 5  # members of a tournament
    TRAINING = 6  # training episodes of a generation, the same for all of its candidates
    VALIDATION = 7  # validation episodes, the same throughout a run
    TEST = 8  # test episodes, the same for every run
    ACTION = 9  # sampled actions
    ENV = 11  # episodes of an env of segments; 10 is of no stream
    SHUFFLE = 12  # order of transitions in an epoch
    REPLAY = 13  # sampling from the replay buffer
    MIRROR = 14  # augmentation of transitions by symmetry
    EXPLORE = 15  # epsilon-greedy: random actions
    GAME = 16  # random numbers of a compiled game of the plug-in kind
    NOISE = 17  # actions that an update draws: of targets, and of the actor
    OPPONENT = 18  # choice of who plays the other seats
    START = 19  # seed of a search after the first


def stream(seed: int, purpose: Purpose, generation: int = 0, candidate: int = 0, episode: int = 0) -> int:
    """Return the 64-bit key of a named stream; `seed` < 2^64, all other arguments < 2^32."""
    w0, w1, _, _ = philox(seed, (int(purpose), generation, candidate, episode))
    return w0 | w1 << 32


def candidate_keys(seed: int, purpose: Purpose, generation: int, first: int, end: int) -> NDArray[np.uint64]:
    """Return `stream(seed, purpose, generation, i)` for candidates first <= i < end.  # [N]"""
    numbers = np.arange(first, end, dtype=np.uint64)
    w0, w1, _, _ = philox_each(np.full(len(numbers), seed, np.uint64), int(purpose), generation, numbers, 0)
    return w0 | w1 << np.uint64(32)


def episode_keys(seed: int, purpose: Purpose, generation: int, episodes: int, first: int = 0) -> NDArray[np.uint64]:
    """Return the seeds of episodes first to first + episodes - 1.  # [E]"""
    keys = [stream(seed, purpose, generation, 0, first + episode) for episode in range(episodes)]
    return np.array(keys, np.uint64)


def seeds_of_test_episodes(episodes: int, first: int = 0) -> NDArray[np.uint64]:
    """Return the seeds of test episodes, which are the same for every run and algorithm.  # [E]"""
    return episode_keys(0, Purpose.TEST, 0, episodes, first)
