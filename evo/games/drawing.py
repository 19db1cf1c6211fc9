"""Random numbers of a game: every episode has a stream of its own, named by its seed, and draws from it in order."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from evo.randomness import philox
from evo.randomness.streams import Purpose

GAME = int(Purpose.GAME)


class Clock(NamedTuple):
    """What the trainer keeps of each of B environments, besides the game's own state."""

    seed: Any  # [B] uint64, of the episode
    drawn: Any  # [B] int64, random numbers drawn in it
    steps: Any  # [B] int64, played in it


class Random(NamedTuple):
    """The stream of the episode that environment b plays."""

    clock: Clock
    b: int


def below(random: Random, n: int) -> int:
    """Return a random whole number from 0 to n - 1; 1 <= n <= 2^32."""
    clock, b = random
    number = philox.draw(int(clock.seed[b]), int(clock.drawn[b]), n, GAME)
    clock.drawn[b] += 1
    return number


def uniform(random: Random, low: float, high: float) -> float:
    """Return a random number from low to high, one of 2^32 at equal distances; high is reached by rounding alone."""
    return low + (high - low) * (below(random, 1 << 32) * 2.0**-32)


def normal(random: Random, mean: float, deviation: float) -> float:
    """Return a random number that is nearly normal: the sum of twelve uniform ones, at most six deviations away."""
    total = 0.0
    for _ in range(12):
        total += uniform(random, 0.0, 1.0)
    return mean + deviation * (total - 6.0)


def clock_of(count: int) -> Clock:
    """Return the clock of `count` environments."""
    return Clock(np.zeros(count, np.uint64), np.zeros(count, np.int64), np.zeros(count, np.int64))
