"""What methods score for what they spend: curves, performance profiles, and how much it takes to reach a score.

A run that ends below the score is censored: it would have taken longer, by an unknown amount. The median is that of
the Kaplan-Meier estimator (Kaplan and Meier, 1958), which uses what is known of these runs; a mean of the others would
make a method look fast that seldom gets there.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from evo.comparison.methods import Method
from evo.config.sections import plural
from evo.files.layout import METRICS
from evo.statistics import kaplan_meier_median, performance_profile, t_interval
from evo.store.metrics import MetricsFile
from evo.training.accounting import COUNTED, SO_FAR

POINTS = 200  # of a curve
WAY = 0.75  # from the weakest player that needs no learning to the best method, where no score to reach is named
Points = tuple[NDArray[np.float64], NDArray[np.float64]]  # spent [T], score [T]


class Curve(NamedTuple):
    """A mean with its interval, of one method."""

    method: str
    seeds: int
    x: NDArray[np.float64]  # [X]
    mean: NDArray[np.float64]
    low: NDArray[np.float64]  # NaN with one seed
    high: NDArray[np.float64]


@dataclass(frozen=True)
class Reached:
    """What a method spent until it reached the score."""

    method: str
    runs: int  # those that failed too
    reached: int
    unknown: int  # runs whose metrics have no test
    medians: dict[str, float | None]  # of each amount; None where fewer than half of the runs are known to reach it
    spent: dict[str, float]  # the most that a run has spent, which a median that is None lies above


@dataclass(frozen=True)
class Reaching:
    """The score that is to be reached, and how fast methods do."""

    score: float
    methods: tuple[Reached, ...]


class Plot(NamedTuple):
    """Curves of methods, with what is along the axes."""

    name: str  # of a file
    title: str
    across: str
    up: str
    about: str
    curves: list[Curve]


def plots(methods: Sequence[Method]) -> Iterator[Plot]:
    """Yield the score against every amount, and the performance profiles; those without curves too."""
    for amount in COUNTED:
        curves = []
        for method in methods:
            runs = [points_of(Path(run.run_dir)) for run in method.runs if run.score is not None]
            if known := [points[amount] for points in runs if amount in points]:
                x, (mean, low, high) = mean_over_seeds(known)
                curves.append(Curve(method.name, len(known), x, mean, low, high))
        about, of = "mean over seeds with its 95 % interval", plural(amount)
        yield Plot(f"score-{amount}", f"Score over {of}", of, "test score", about, curves)
    about, every = "the share of runs above a score, with 95 % intervals", [s for one in methods for s in one.scores]
    margin = 0.05 * (max(every) - min(every)) or 1.0 if every else 0.0
    x = np.linspace(min(every, default=0.0) - margin, max(every, default=0.0) + margin, POINTS)
    scored = [method for method in methods if method.scores]
    curves = [Curve(one.name, len(one.scores), x, *performance_profile(one.scores, x)) for one in scored]
    yield Plot("profiles", "Performance profile", "test score", "share of runs", about, curves)


def points_of(directory: Path) -> Mapping[str, Points]:
    """Return the test scores of a run and what it had spent at each, by the amount; empty where none are known."""
    try:
        file = (directory / METRICS).stat()
    except OSError:
        return {}
    return _tests_in(directory, file.st_mtime_ns, file.st_size)


@lru_cache
def _tests_in(directory: Path, *_: int) -> Mapping[str, Points]:
    """Return as `points_of`, from a file that is read again when its time or its size has changed."""
    lines = [line for line in MetricsFile(directory).read() if line.get("test") is not None]
    scores = np.array([line["test"] for line in lines], np.float64)
    spent = {amount: [line.get(amount + SO_FAR) for line in lines] for amount in COUNTED if lines}
    return {amount: (np.array(row, np.float64), scores) for amount, row in spent.items() if None not in row}


def mean_over_seeds(curves: Sequence[Points]) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return where curves of several seeds are known, and there the mean with Student's interval.  # [X], [3, X]

    A run keeps a score until its next test, and its last one to the end, so every point has all seeds. With one seed
    the interval is NaN.
    """
    first, last = (max(spent[end] for spent, _ in curves) for end in (0, -1))
    grid = np.linspace(first, last, POINTS)
    scores = np.array([values[np.searchsorted(spent, grid, side="right") - 1] for spent, values in curves])  # [S, X]
    found = [t_interval(column) for column in scores.T.tolist()]
    return grid, np.array([(mean, *(ends or (math.nan, math.nan))) for mean, ends in found]).T


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
    """Return what every method spent until a test of its best network so far had this score or more.

    A run that failed had not reached it before; one whose metrics have no test is counted as not known.
    """
    found = []
    for method in methods:
        medians, spent, counts = dict[str, float | None](), dict[str, float](), (0, 0)
        runs = [(run, points_of(Path(run.run_dir))) for run in method.runs]
        for amount in COUNTED:
            ends = []
            for run, points in runs:
                if amount in points:
                    ends.append(first_reaching(*points[amount], score))
                elif run.score is None:
                    ends.append((float(getattr(run, amount)), False))
            if any(time for time, _ in ends):
                medians[amount] = kaplan_meier_median(ends)
                spent[amount] = max(time for time, _ in ends)
                counts = len(ends), sum(there for _, there in ends)
        unknown = sum(not points and run.score is not None for run, points in runs)
        if medians or unknown:
            found.append(Reached(method.name, *counts, unknown, medians, spent))
    return Reaching(score, tuple(found))


def first_reaching(spent: NDArray[np.float64], scores: NDArray[np.float64], score: float) -> tuple[float, bool]:
    """Return what was spent at the first test with this score, or in all; and whether there is one.  # [T], [T]"""
    above = np.flatnonzero(scores >= score)
    return (float(spent[above[0]]), True) if len(above) else (float(spent[-1]), False)
