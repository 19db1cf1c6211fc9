"""Curves of a run: every column of its metrics over generations, frames and seconds, thinned for a page."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from evo.store.run import Run

POINTS = 400  # of a curve on a page of one run
RISING = 0.1  # share of all gain that the last quarter of a run brings while it is still rising
LEAST = 4  # values that say whether a curve rises
LAST = ("validation", "test")  # of several generations together, the last value counts; of all others the mean
Number = int | float | None


@dataclass(frozen=True)
class Curves:
    """Columns with one value per point; a point may stand for several generations."""

    generation: list[Number]  # from 1, the last one of a point
    frames: list[Number]  # played up to there
    seconds: list[Number]
    columns: dict[str, list[Number]]  # by name; None where there is no value
    each: int  # generations of a point


def curves_of(run: Run, points: int = POINTS) -> Curves:
    """Return the curves of a run with at most `points` points."""
    count = run.store.next_generation
    each = max(1, -(-count // points))
    groups = [range(first, min(first + each, count)) for first in range(0, count, each)]
    frames = np.cumsum([line.frames for line in run.store.lines], dtype=np.float64)
    seconds = np.cumsum([line.seconds for line in run.store.lines], dtype=np.float64)
    names = sorted({name for row in run.metrics for name in row})
    return Curves(
        generation=[group[-1] + 1 for group in groups],
        frames=[rounded(frames[group[-1]]) for group in groups],
        seconds=[rounded(seconds[group[-1]]) for group in groups],
        columns={name: [_together(run, name, group) for group in groups] for name in names},
        each=each,
    )


def _together(run: Run, name: str, group: Sequence[int]) -> Number:
    values = [run.metrics[generation][name] for generation in group if name in run.metrics[generation]]
    if not values:
        return None
    return rounded(values[-1] if name in LAST else sum(values) / len(values))


def rounded(value: float, digits: int = 6) -> Number:
    """Return a number with `digits` significant digits, whole where it can be; None where it is not finite."""
    if not math.isfinite(value):
        return None
    number = float(f"{value:.{digits}g}")
    return int(number) if number.is_integer() and abs(number) < 1e15 else number


def rising(run: Run) -> bool | None:
    """Return whether validation was still rising in the last quarter of the run; None where too little is known."""
    values = run.column("validation")
    values = values[np.isfinite(values)]
    if len(np.unique(values)) < 2:
        return None if len(values) < LEAST else False
    if len(values) < LEAST:
        return None
    gain, late = values[-1] - values[0], values[-1] - values[3 * len(values) // 4 - 1]
    return bool(gain > 0 and late > RISING * gain)
