"""Racing: more episodes for candidates whose selection is uncertain (Heidrich-Meisner and Igel, 2009).

Half of the candidates play on, then a quarter, then an eighth: those nearest to the boundary of selection, in standard
errors. Candidates of a round play the same episodes, so an episode that is hard for all of them favours none. The
sums are added in order, since the last bits of NumPy's own sums depend on the processor.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from evo.evolution.population import FITNESS_WORST, Evaluated, PopulationOptions
from evo.records import Metrics, Request, Result, Task, WeightSource

ROUNDS = 3
NEVER = np.finfo(np.float64).max  # no number of standard errors is more


class Raced(NamedTuple):
    """What a race found."""

    means: NDArray[np.float64]  # [N] value of an episode, comparable between all; -inf: it stopped being finite
    episodes: NDArray[np.int64]  # [N] how many each played


# A coroutine from candidates [K] and the numbers of M further episodes to their values [K, M], and to whether all of a
# candidate's are finite [K].
Play = Callable[[NDArray[np.int64], slice], Generator[Any, Any, tuple[NDArray[np.int64], NDArray[np.bool_]]]]


def race(values: NDArray[np.int64], chosen: int, episodes: int, play: Play) -> Generator[Any, Any, Raced]:
    """Let candidates play more episodes where their selection is uncertain; return what is known in the end.

    values [N, E]: what each of N candidates had in each of E episodes, of whom the best `chosen` will be selected.
    In all, no more than N * episodes are played.
    """
    count, first = values.shape
    racers, table, budget = np.arange(count), values.astype(np.float64), count * (episodes - first)
    sums, played, broken = _sum(table), np.full(count, first), np.zeros(count, np.bool_)
    means = sums / first
    for number in range(1, ROUNDS + 1):
        size = min(max(2, count >> number), len(racers))
        if size < 2 or chosen >= count - broken.sum():
            break
        more = budget // (ROUNDS + 1 - number) // size
        if not more:
            continue
        budget -= more * size
        certainty = _certainty(table, means[racers], _boundary(means, chosen))
        stay = np.sort(np.argsort(certainty, kind="stable")[:size])
        racers, table = racers[stay], table[stay]
        news, finite = yield from play(racers, slice(table.shape[1], table.shape[1] + more))
        table = np.concatenate([table, news.astype(np.float64)], axis=1)
        sums[racers] += _sum(table[:, -more:])
        played[racers] += more
        broken[racers] = ~finite
        racers, table = racers[finite], table[finite]
        if len(racers):
            means = _comparable(sums, played, table)
        means[broken] = -np.inf
    return Raced(means, played)


def raced(
    evaluated: Evaluated,
    source: WeightSource,
    options: PopulationOptions,
    parents: int,
    tasks: Callable[[WeightSource, slice], list[Task]],
) -> Generator[Request, Sequence[Result], tuple[dict[str, NDArray[Any]], Metrics]]:
    """Let candidates near the boundary of selection play on; return what is recorded of it, and what all took.

    `tasks` names those of candidates and of episodes. The fitness [N] in the record is that of `options.episodes`
    episodes, FITNESS_WORST where a score is not finite.
    """
    known, effort = np.flatnonzero(evaluated.finite), evaluated.effort()

    def play(
        racers: NDArray[np.int64], numbers: slice
    ) -> Generator[Request, Sequence[Result], tuple[NDArray[np.int64], NDArray[np.bool_]]]:
        again = Evaluated((yield Request(None, tasks(source.some(known[racers].tolist()), numbers))))
        for name, value in again.effort().items():
            effort[name] += value
        return again.values(options), again.finite

    values = evaluated.values(options)
    found = yield from race(values[known], parents, options.episodes, play)
    fitness, episodes = np.full(len(source), FITNESS_WORST), np.full(len(source), values.shape[1], np.int32)
    finite = np.isfinite(found.means)
    fitness[known[finite]] = np.rint(found.means[finite] * options.episodes)
    episodes[known] = found.episodes
    return {"episodes": episodes, "fitness": fitness}, effort


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

    A mean of fewer episodes is raised by what those candidates have more in all episodes than in these.
    sums, played [N] -> [N]
    """
    means, through = sums / played, np.cumsum(_sum(table.T))  # of the first episodes, summed
    per = through / (np.arange(1, table.shape[1] + 1) * len(table))
    result: NDArray[np.float64] = means + (per[-1] - per[played - 1])
    return result


def _sum(table: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the sums of rows, each added from its first number on.  # [K, E] -> [K]"""
    result: NDArray[np.float64] = np.cumsum(table, axis=1)[:, -1]
    return result
