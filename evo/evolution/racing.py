"""Racing: further episodes for those candidates only whose selection is uncertain.

After Heidrich-Meisner and Igel (2009), "Hoeffding and Bernstein races for selecting policies in evolutionary direct
policy search". Theirs goes on until every candidate is decided. This is one further round of a fixed number of
episodes, so that it has a known cost, and workers wait only once more. All numbers are integers or single float64
operations in a fixed order, so the same candidates race on every machine.
"""

from __future__ import annotations

from collections.abc import Generator, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from evo.evolution.population import FITNESS_WORST, Outcome, PopulationOptions, tasks_of
from evo.records import Metrics, Request, Result, WeightSource


class Raced(NamedTuple):
    """What a generation knows of N candidates after some have played on."""

    fitness: NDArray[np.int64]  # [N] summed over the episodes that all have played
    record: dict[str, NDArray[Any]]
    metrics: Metrics


def race(
    source: WeightSource,
    outcome: Outcome,
    options: PopulationOptions,
    counts: tuple[int, int],
    seeds: NDArray[np.uint64],
    per_task: int,
) -> Generator[Request, Sequence[Result], Raced]:
    """Have candidates play on whose selection is uncertain.

    `counts` are of the candidates that are selected, and of those that race at most; these play episodes `seeds` [F].
    """
    (selected, most), fitness = counts, outcome.fitness(options)
    rows = near_boundary(outcome.played(options), outcome.finite, selected, most)
    record = {name: np.zeros(len(source), np.int64) for name in ("raced_return", "raced_frames")}
    if not len(rows):
        return Raced(fitness, record, {"raced": 0.0, "swapped": 0.0})
    further = Outcome((yield Request(None, tasks_of(source.some(rows.tolist()), seeds, per_task))))
    for name, values in further.record().items():
        record[f"raced_{name}"][rows] = values
    before, finite = set(_best(fitness, selected)), further.finite
    fitness[rows[~finite]] = FITNESS_WORST
    if finite.any():
        totals = further.fitness(options)[finite]
        fitness = after_racing(fitness, outcome.returns.shape[1], rows[finite], totals, len(seeds))
    swapped = len(set(_best(fitness, selected)) - before) / selected
    spent = {name: value + further.spent()[name] for name, value in outcome.spent().items()}
    return Raced(fitness, record, {**spent, "raced": float(len(rows)), "swapped": swapped})


def _best(fitness: NDArray[np.int64], count: int) -> list[int]:
    best: list[int] = np.argsort(-fitness, kind="stable")[:count].tolist()
    return best


def near_boundary(played: NDArray[np.int64], finite: NDArray[np.bool_], selected: int, most: int) -> NDArray[np.int64]:
    """Return at most so many candidates whose selection is least certain, in order.

    played [N, E] is the fitness in every episode, and finite [N] whether all of it is; the best `selected` by their
    sums are selected so far. Each of these is compared with the best of the others, and each other with the worst of
    them, by the t statistic of the differences in the episodes, which all candidates share. One that plays exactly as
    the one that it is compared with is left out: more episodes would tell nothing of them.
    """
    order = np.argsort(-np.where(finite, played.sum(axis=1), np.iinfo(np.int64).min // 2), kind="stable")
    if selected >= len(order):
        return np.empty(0, np.int64)
    inside = np.zeros(len(order), np.bool_)
    inside[order[:selected]] = True
    differences = played - np.where(inside[:, np.newaxis], played[order[selected]], played[order[selected - 1]])
    total, squares = np.zeros(len(order)), np.zeros(len(order))
    for episode in differences.T.astype(np.float64):
        total += episode
        squares += episode * episode
    differs = finite & (squares > 0)
    # t grows with this share, which is 1 where all differences are equal.
    certainty = np.where(differs, total * total / np.where(differs, squares, 1.0), np.inf)
    uncertain = np.argsort(certainty, kind="stable")[: min(most, int(differs.sum()))]
    return np.sort(uncertain)


def after_racing(
    fitness: NDArray[np.int64], episodes: int, rows: NDArray[np.int64], further: NDArray[np.int64], count: int
) -> NDArray[np.int64]:
    """Return the fitness of all candidates after some have played further episodes.

    fitness [N] is summed over `episodes`, and further [M] is that of candidates `rows` [M] over `count` others. Such a
    candidate gets the mean of all of these for the first episodes, plus its own mean advantage over them in all
    episodes: their further episodes may have been harder than those that everybody played.
    """
    first = [int(value) for value in fitness[rows]]
    both = [one + int(two) for one, two in zip(first, further, strict=True)]
    level, mean = sum(first), sum(both)  # of M candidates
    changed, size = fitness.copy(), len(rows)
    for row, value in zip(rows, both, strict=True):
        changed[row] = (level * (episodes + count) + (value * size - mean) * episodes) // (size * (episodes + count))
    return changed
