"""Named random streams: the source of every random number of a run.

A stream is a 64-bit Philox4x32-10 key, derived from its name: seed, purpose, generation, candidate, episode. Any worker
can draw any number of any stream, in any order. So no random state is ever saved, and a resume cannot lose it.
"""

from __future__ import annotations

from enum import IntEnum

import numpy as np
from numpy.typing import NDArray

from evo.randomness import philox_arrays
from evo.randomness.philox import philox

SEED_LIMIT = 1 << 64


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
    MATE = 10  # choice of the mate
    ENV = 11  # episodes of an env of segments
    SHUFFLE = 12  # order of transitions in an epoch
    REPLAY = 13  # sampling from the replay buffer
    MIRROR = 14  # augmentation of transitions by symmetry
    EXPLORE = 15  # epsilon-greedy: random actions
    GAME = 16  # random numbers of a compiled game of the plug-in kind
    RESTART = 17  # size of a search that begins again


def stream(seed: int, purpose: Purpose, generation: int = 0, candidate: int = 0, episode: int = 0) -> int:
    """Return the 64-bit key of a named stream; `seed` < 2^64, all other arguments < 2^32."""
    w0, w1, _, _ = philox(seed, (int(purpose), generation, candidate, episode))
    return w0 | w1 << 32


def candidate_keys(seed: int, purpose: Purpose, generation: int, first: int, end: int) -> NDArray[np.uint64]:
    """Return `stream(seed, purpose, generation, i)` for candidates first <= i < end.  # [N]"""
    numbers = np.arange(first, end, dtype=np.uint64)
    w0, w1, _, _ = philox_arrays.philox(np.full(len(numbers), seed, np.uint64), int(purpose), generation, numbers, 0)
    return w0 | w1 << np.uint64(32)


def episode_keys(seed: int, purpose: Purpose, generation: int, episodes: int, first: int = 0) -> NDArray[np.uint64]:
    """Return the seeds of episodes first to first + episodes - 1.  # [E]"""
    keys = [stream(seed, purpose, generation, 0, first + episode) for episode in range(episodes)]
    return np.array(keys, np.uint64)


def seeds_of_test_episodes(episodes: int, first: int = 0) -> NDArray[np.uint64]:
    """Return the seeds of test episodes, which are the same for every run and algorithm.  # [E]"""
    return episode_keys(0, Purpose.TEST, 0, episodes, first)
