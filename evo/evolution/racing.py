"""Racing: episodes go to the candidates whose selection is uncertain (Heidrich-Meisner and Igel, 2009).

Half of the candidates play on, then a quarter, then an eighth: those nearest to the boundary of selection, in standard
errors. Candidates of a round play the same episodes, so an episode that is hard for all of them counts for nobody. The
sums are added in order, since the last bits of NumPy's own sums depend on the processor.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

ROUNDS = 3
NEVER = np.finfo(np.float64).max  # no number of standard errors is more


class Raced(NamedTuple):
    """What a race found."""

    means: NDArray[np.float64]  # [N] value of an episode, comparable between candidates that played other episodes
    episodes: NDArray[np.int64]  # [N] how many each played


Playing = Callable[[NDArray[np.int64], slice], Generator[Any, Any, NDArray[np.int64]]]


def race(values: NDArray[np.int64], chosen: int, episodes: int, play: Playing) -> Generator[Any, Any, Raced]:
    """Let candidates play more episodes where their selection is uncertain; return what is known in the end.

    values [N, E]: what each of N candidates had in each of E episodes, of whom the best `chosen` will be selected.
    `play` is a coroutine from candidates [K] and the numbers of M further episodes to their values [K, M]. In all,
    no more than N * episodes are played.
    """
    count, begun = values.shape
    racers, table, left = np.arange(count), values.astype(np.float64), count * (episodes - begun)
    sums, played = _sum(table), np.full(count, begun)
    means = sums / begun
    for turn in range(1, ROUNDS + 1):
        size = max(2, count >> turn)
        more = left // (ROUNDS + 1 - turn) // size
        if chosen >= count or size > len(racers) or not more:
            break
        stay = np.sort(np.argsort(_certainty(table, means[racers], _boundary(means, chosen)), kind="stable")[:size])
        racers = racers[stay]
        left -= more * size
        at = table.shape[1]
        news = (yield from play(racers, slice(at, at + more))).astype(np.float64)
        table = np.concatenate([table[stay], news], axis=1)
        sums[racers] += _sum(news)
        played[racers] += more
        means = _comparable(sums, played, table)
    return Raced(means, played)


def _boundary(means: NDArray[np.float64], chosen: int) -> float:
    """Return what is halfway between the worst that would be selected and the best that would not."""
    ranked = np.sort(means)[::-1]
    return float(ranked[chosen - 1] + ranked[chosen]) / 2


def _certainty(table: NDArray[np.float64], means: NDArray[np.float64], boundary: float) -> NDArray[np.float64]:
    """Return the squared distance of means from a boundary, in squared standard errors of differences.

    table [K, E], means [K] -> [K]
    """
    differences = table - _sum(table.T) / len(table)
    differences -= (_sum(differences) / table.shape[1])[:, np.newaxis]
    error = _sum(differences * differences) / (table.shape[1] * max(1, table.shape[1] - 1))
    distance = np.square(means - boundary)
    certainty: NDArray[np.float64] = np.divide(distance, error, out=np.full(len(table), NEVER), where=error > 0)
    return certainty


def _comparable(
    sums: NDArray[np.float64], played: NDArray[np.int64], table: NDArray[np.float64]
) -> NDArray[np.float64]:
    """Return means, as if all had played the episodes of those that played most, whose values are `table` [K, E].

    To a mean of fewer episodes is added by how much those candidates had more in all of theirs.  # sums, played [N]
    """
    means, through = sums / played, np.cumsum(_sum(table.T))  # of the first episodes, summed
    per = through / (np.arange(1, table.shape[1] + 1) * len(table))
    result: NDArray[np.float64] = means + (per[-1] - per[played - 1])
    return result


def _sum(table: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the sums of rows, each added from its first number on.  # [K, E] -> [K]"""
    result: NDArray[np.float64] = np.cumsum(table, axis=1)[:, -1]
    return result
