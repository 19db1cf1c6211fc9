"""How much a method spends until it reaches a score, where some of its runs never do.

A run that ends below the score is censored: it would have taken longer, nobody knows how long. The median is that of
the Kaplan-Meier estimator (Kaplan and Meier, 1958), which uses what is known of these runs; a mean of the others would
make a method look fast that seldom gets there.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from evo.comparison.curves import points_of
from evo.comparison.methods import Method, RunSummary
from evo.training.accounting import COUNTED

WAY = 0.75  # from the weakest player that needs no learning to the best method, where no score is given


@dataclass(frozen=True)
class Reached:
    """What a method spent until it reached the score."""

    method: str
    runs: int  # those that failed too
    reached: int
    medians: dict[str, float | None]  # of each amount; None where fewer than half of the runs are known to reach it
    spent: dict[str, float]  # the most that a run has spent, which a median that is None lies above


@dataclass(frozen=True)
class Reaching:
    """The score that is to be reached, and how fast methods do."""

    score: float
    methods: tuple[Reached, ...]


def score_between(methods: Sequence[Method], players: Mapping[str, float]) -> float | None:
    """Return the score on three quarters of the way from the weakest player to the best method, rounded.

    None where there is no player, or no method is better.
    """
    means = [method.mean for method in methods if method.mean is not None]
    if not means or not players or max(means) <= min(players.values()):
        return None
    weakest, best = min(players.values()), max(means)
    digits = 2 - math.floor(math.log10(best - weakest))  # of which the difference has three
    return round(weakest + WAY * (best - weakest), digits)


def reaching(methods: Sequence[Method], score: float) -> Reaching:
    """Return what every method spent until a test of its best network so far had this score or more."""
    return Reaching(score, tuple(found for method in methods if (found := _of(method, score)) is not None))


def _of(method: Method, score: float) -> Reached | None:
    medians: dict[str, float | None] = {}
    spent: dict[str, float] = {}
    counts = (0, 0)
    for amount in COUNTED:
        ends = [end for run in method.runs if (end := _end(run, amount, score)) is not None]
        if ends and any(time for time, _ in ends):
            medians[amount] = median(ends)
            spent[amount] = max(time for time, _ in ends)
            counts = len(ends), sum(there for _, there in ends)
    return Reached(method.name, *counts, medians, spent) if medians else None


def _end(run: RunSummary, amount: str, score: float) -> tuple[float, bool] | None:
    """Return what a run had spent when it reached the score, or in all; a run that failed had not reached it before.

    None where it was not counted, or nothing was tested.
    """
    points = points_of(Path(run.run_dir), amount)
    if points is not None:
        return first_of(*points, score)
    spent: float | None = getattr(run, amount)
    return None if run.score is not None or spent is None else (float(spent), False)


def first_of(spent: NDArray[np.float64], scores: NDArray[np.float64], score: float) -> tuple[float, bool]:
    """Return what was spent at the first test with this score, or in all; and whether there is one.  # [T], [T]"""
    above = np.flatnonzero(scores >= score)
    return (float(spent[above[0]]), True) if len(above) else (float(spent[-1]), False)


def median(ends: Sequence[tuple[float, bool]]) -> float | None:
    """Return the Kaplan-Meier median of times, each with whether the score was reached then; None where there is none.

    The share of runs that have not reached it is the product, over all times of reaching, of the share of runs still
    under way that did not reach it there. Where fewer than half of all runs are known to reach it, there is none: in
    the end the product hangs on the few runs that went a little further than the others.
    """
    if 2 * sum(there for _, there in ends) < len(ends):
        return None
    waiting = 1.0
    for time in sorted({time for time, there in ends if there}):
        under_way = sum(end >= time for end, _ in ends)
        waiting *= 1 - sum(there and end == time for end, there in ends) / under_way
        if waiting <= 0.5 or math.isclose(waiting, 0.5):
            return time
    return None
