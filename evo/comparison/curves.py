"""Curves of a comparison: the score of every method against what was spent, and performance profiles."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from numpy.typing import NDArray

from evo.comparison import bootstrap, student
from evo.store.metrics import MetricsFile
from evo.training.accounting import SO_FAR

if TYPE_CHECKING:
    from evo.comparison.tables import Table

POINTS = 200  # of a curve
Points = tuple[NDArray[np.float64], NDArray[np.float64]]  # spent, score


class Curve(NamedTuple):
    """A mean with its interval, of one method."""

    method: str
    seeds: int
    x: NDArray[np.float64]  # [X]
    mean: NDArray[np.float64]
    low: NDArray[np.float64]  # NaN with one seed
    high: NDArray[np.float64]


def scores_of(table: Table, amount: str) -> list[Curve]:
    """Return the test score of every method against an amount, with Student's interval over its seeds."""
    found = []
    for method in table.methods:
        runs = [points_of(Path(run.run_dir), amount) for run in method.runs if run.score is not None]
        known = [points for points in runs if points is not None]
        if known:
            x, (mean, low, high) = together(known)
            found.append(Curve(method.name, len(known), x, mean, low, high))
    return found


def profiles_of(table: Table) -> list[Curve]:
    """Return the share of runs above each score, of every method that has one, with bootstrap intervals.

    Source: Agarwal et al. 2021, "Deep Reinforcement Learning at the Edge of the Statistical Precipice", section 4.2.
    """
    scored = [method for method in table.methods if method.scores]
    every = [score for method in scored for score in method.scores]
    if not every:
        return []
    margin = 0.05 * (max(every) - min(every)) or 1.0
    x = np.linspace(min(every) - margin, max(every) + margin, POINTS)
    return [
        Curve(method.name, len(method.scores), x, *map(np.asarray, bootstrap.profile(method.scores, x)))
        for method in scored
    ]


def points_of(directory: Path, amount: str) -> Points | None:
    """Return the test scores of a run and what it had spent at each; None where it has no test, or did not count."""
    lines = [line for line in MetricsFile(directory).read() if line.get("test") is not None]
    spent = [line.get(amount + SO_FAR) for line in lines]
    if not lines or None in spent:
        return None
    return np.array(spent, np.float64), np.array([line["test"] for line in lines], np.float64)


def together(curves: Sequence[Points]) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return where curves of several seeds are known, and there the mean with Student's interval.  # [X], [3, X]

    A run keeps a score until its next test, and its last one to the end, so every point has all seeds. With one seed
    the interval is NaN.
    """
    first, last = (max(spent[end] for spent, _ in curves) for end in (0, -1))
    grid = np.linspace(first, last, POINTS)
    scores = np.array([values[np.searchsorted(spent, grid, side="right") - 1] for spent, values in curves])  # [S, X]
    found = [student.t_interval(column) for column in scores.T.tolist()]
    return grid, np.array([(mean, *(ends or (math.nan, math.nan))) for mean, ends in found]).T
