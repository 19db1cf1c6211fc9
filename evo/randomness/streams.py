"""Where every random number comes from: a stream is named, never stored.

A stream is a 64-bit key of Philox4x32-10, derived from what it is for. Whoever knows the name can redraw any
number of it, on any worker, in any order; so nothing random is ever saved, and resuming cannot lose it.
"""

from __future__ import annotations

from enum import IntEnum

import numpy as np
from numpy.typing import NDArray

from evo.randomness import philox_arrays
from evo.randomness.philox import philox

SEED_LIMIT = 1 << 64


class Purpose(IntEnum):
    """What a stream is for. Numbers are part of the file formats: add, never renumber."""

    INITIAL = 1  # weights of a candidate that has no parent
    MUTATION = 2  # the noise of a child
    PARENT = 3  # which parent (and mate) a child has
    SIGMA = 4  # how strong a child's noise is
    TOURNAMENT = 5
    TRAINING = 6  # episodes of a generation, the same for all of its candidates
    VALIDATION = 7  # episodes that choose the champion, the same for a whole run
    TEST = 8  # episodes that are reported and never used, the same for every run
    ACTION = 9  # sampled actions
    MATE = 10
    LANE = 11  # the episodes of a lane of segments
    SHUFFLE = 12  # the order of steps in an epoch
    REPLAY = 13  # which steps are learnt from again
    MIRROR = 14  # which of them are seen turned or mirrored
    EXPLORE = 15  # any action, instead of the best one


def stream(seed: int, purpose: Purpose, generation: int = 0, candidate: int = 0, episode: int = 0) -> int:
    """Return the 64-bit key of the stream with this name; every argument is below 2^32 but `seed`, below 2^64."""
    w0, w1, _, _ = philox(seed, (int(purpose), generation, candidate, episode))
    return w0 | w1 << 32


def candidates_keys(seed: int, purpose: Purpose, generation: int, first: int, end: int) -> NDArray[np.uint64]:
    """Return `stream(seed, purpose, generation, i)` of the candidates from `first` to before `end`.  # [N]"""
    numbers = np.arange(first, end, dtype=np.uint64)
    w0, w1, _, _ = philox_arrays.philox(np.full(len(numbers), seed, np.uint64), int(purpose), generation, numbers, 0)
    return w0 | w1 << np.uint64(32)


def episode_keys(seed: int, purpose: Purpose, generation: int, episodes: int, first: int = 0) -> NDArray[np.uint64]:
    """Return the seeds of `episodes` episodes from number `first` on.  # [E]"""
    keys = [stream(seed, purpose, generation, 0, first + episode) for episode in range(episodes)]
    return np.array(keys, np.uint64)


def seeds_of_test_episodes(episodes: int, first: int = 0) -> NDArray[np.uint64]:
    """Return the seeds of the test episodes, which are the same for every run and algorithm.  # [E]"""
    return episode_keys(0, Purpose.TEST, 0, episodes, first)
