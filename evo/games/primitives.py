"""What the functions of a game may call: random numbers of the episode, and views and bytes of arrays.

Every episode has a stream of its own, named by its seed. `evo.games.compiling` has compiled versions of what draws.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from evo.randomness import streams
from evo.randomness.streams import Purpose

GAME = int(Purpose.GAME)
NUMBERED = 0  # purpose of draws that the game itself numbers


class EpisodeClock(NamedTuple):
    """What the trainer keeps of each of B environments in addition to the game's own state."""

    seed: Any  # [B] uint64, of the episode
    drawn: Any  # [B] int64, random numbers drawn in it
    steps: Any  # [B] int64, played in it


class Random(NamedTuple):
    """The stream of the episode that environment b plays."""

    clock: EpisodeClock
    b: int


def below(random: Random, n: int) -> int:
    """Return a random whole number from 0 to n - 1; 1 <= n <= 2^32."""
    clock, b = random
    number = streams.draw(int(clock.seed[b]), int(clock.drawn[b]), n, GAME)
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


def one_of(random: Random, choices: int) -> int:
    """Return one of the bits that are set in a number above 0, each as probable, as in 0 or 2 of 0b101."""
    count = 0
    for bit in range(63):
        count += choices >> bit & 1
    left = below(random, count)
    bit = 0
    while left > 0 or choices >> bit & 1 == 0:
        left -= choices >> bit & 1
        bit += 1
    return bit


def draw_number(random: Random, number: Any, n: Any) -> int:
    """Return draw `number` of the episode, from 0 to n - 1: the same one whenever it is drawn, of a second stream."""
    return streams.draw(int(random.clock.seed[random.b]), int(number), int(n), NUMBERED)


def steps_played(random: Random) -> Any:
    """Return how many steps of the episode have been played before this one."""
    return random.clock.steps[random.b]


def flat(array: NDArray[Any]) -> NDArray[Any]:
    """Return all values of an array in C order as one row of the same memory."""
    return array.reshape(-1)


def put(row: NDArray[np.uint8], at: int, value: Any, size: int) -> int:
    """Write a whole number as `size` little-endian bytes to row[at:]; return the place behind them."""
    for k in range(size):
        row[at + k] = (value >> 8 * k) & 255
    return at + size


def get(row: NDArray[np.uint8], at: int, size: int) -> Any:
    """Return the whole number, not negative where `size` is below 8, that `put` wrote."""
    value = np.int64(0)
    for k in range(size):
        value |= np.int64(row[at + k]) << 8 * k
    return value


def get_signed(row: NDArray[np.uint8], at: int, size: int) -> Any:
    """Return the whole number that `put` wrote, which may be negative."""
    shift = 64 - 8 * size
    return (get(row, at, size) << shift) >> shift


def zeros_of(example: Iterable[Any], count: int) -> list[NDArray[Any]]:
    """Return zeros for `count` environments, of the types and shapes that one of them has in an example."""
    return [np.zeros((count, *np.shape(part)), np.asarray(part).dtype) for part in example]


def clock_of(count: int) -> EpisodeClock:
    """Return the clock of `count` environments."""
    return EpisodeClock(np.zeros(count, np.uint64), np.zeros(count, np.int64), np.zeros(count, np.int64))
