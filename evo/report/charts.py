"""The charts of a report: columns of metrics over generations, frames and seconds, as JSON values for `charts.js`."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from evo.environments.problem import PREFIX
from evo.report.html import Chart
from evo.store.run import Run
from evo.training.accounting import PARTS
from evo.training.testing import Baseline

POINTS = 400  # of a curve on a page of one run
RISING = 0.1  # share of all gain that the last quarter of a run brings while it is still rising
LEAST = 4  # fewest values by which a curve can rise
LAST = ("validation", "test")  # of several generations together, the last value counts; of all others the mean
Number = int | float | None
FEWEST_POINTS = 50  # of a curve, however many runs there are
MOST_SMALL = 60  # small charts
SCORES = ("test", "best", "mean", "validation")
DASHES = {"test": 0, "validation": 0, "mean": 1, "best": 2}  # line styles; runs differ in colour
FIRST = (  # of the small charts; the others follow by name
    "loss", "policy_loss", "value_loss", "entropy", "approx_kl", "clip_fraction", "gradient_norm", "learning_rate",
    "q_value", "epsilon", "replay_size", "sigma", "mean_length", "best_fitness", "mean_fitness", "lane_utilisation",
)  # fmt: skip
TIMES = {name: name.removeprefix("seconds_") for name in PARTS}


class Charts:
    """The charts of runs that are overlaid."""

    def __init__(self, runs: Sequence[Run]) -> None:
        self.runs = runs
        self.curves = [curves_of(run, max(FEWEST_POINTS, POINTS // len(runs))) for run in runs]
        self.several = len(runs) > 1

    def scores(self, baselines: Mapping[str, Baseline]) -> Chart | None:
        """Return the test score, with the interval of the last one, and what other players score."""
        series = self._series(["test"])
        if not series:
            return None
        spans = []
        for number, run in enumerate(self.runs):
            if run.score is not None and run.score.episodes > 1 and not run.environment.is_exact:
                low, high = map(rounded, run.score.ci95)
                spans.append({"run": number, "low": low, "high": high})
        levels = [{"label": name, "value": rounded(other.mean)} for name, other in baselines.items()]
        return {"kind": "lines", "series": series, "levels": levels, "spans": spans, "y": "score"}

    def returns(self) -> Chart | None:
        """Return the chart of training and validation returns."""
        names = ["validation", "mean"] if self.several else ["validation", "mean", "best"]
        series = self._series(names)
        return {"kind": "lines", "series": series, "y": "return"} if series else None

    def time(self) -> Chart | None:
        """Return where the seconds of every generation went, each part on top of those before; one run only."""
        columns = self.curves[0].columns
        parts = [name for name in TIMES if any(columns.get(name, []))]
        if self.several or not parts:
            return None
        total = [0.0] * len(self.curves[0].generation)
        series = []
        for name in parts:
            total = [before + (value or 0.0) for before, value in zip(total, columns[name], strict=True)]
            shown = [rounded(value, 4) for value in total]
            series.append({"run": 0, "label": TIMES[name], "values": shown, "own": columns[name]})
        usual = sorted(total)[(len(total) - 1) * 9 // 10]
        top = 2 * usual if max(total) > 4 * usual > 0 else max(total)
        return {"kind": "stack", "series": series, "y": "seconds", "top": rounded(top), "longest": max(total)}

    def others(self) -> list[tuple[str, Chart]]:
        """Return a small chart of every other column that changes, by the column's name."""
        shown = {*SCORES, *(() if self.several else TIMES)}
        names = {name for curves in self.curves for name in curves.columns} - shown
        order = [*(name for name in FIRST if name in names), *sorted(names.difference(FIRST))]
        changing = [name for name in order if not all(_constant(curves, name) for curves in self.curves)]
        return [(name, {"kind": "small", "series": self._series([name]), "y": name}) for name in changing[:MOST_SMALL]]

    def constant(self) -> list[tuple[str, Any]]:
        """Return the columns of a single run that never change, with their value."""
        if self.several:
            return []
        columns = self.curves[0].columns
        names = sorted(name for name in columns if _constant(self.curves[0], name) and name not in SCORES)
        return [(name, next(value for value in columns[name] if value is not None)) for name in names]

    def axes(self) -> list[Chart]:
        """Return what curves can be drawn over, by run."""
        named = [{"name": run.name, "step": step_named(run)} for run in self.runs]
        found = [{axis: vars(one)[axis] for axis in ("generation", "frames", "seconds")} for one in self.curves]
        return [{**name, **axes} for name, axes in zip(named, found, strict=True)]

    def _series(self, names: Sequence[str]) -> list[Chart]:
        found = []
        for number, (run, curves) in enumerate(zip(self.runs, self.curves, strict=True)):
            for place, name in enumerate(names):
                values = curves.columns.get(name, [])
                if any(value is not None for value in values):
                    parts = [run.name] * self.several + [name] * (not self.several or len(names) > 1)
                    found.append({
                        "run": number, "label": " ".join(parts), "values": values, "dash": DASHES.get(name, 0),
                        "colour": number if self.several else place,
                    })  # fmt: skip
        return found


def step_named(run: Run) -> str:
    """Return the name of a run's steps: frames, or calls of a fitness function."""
    return "calls" if run.config.environment.id.startswith(PREFIX) else "frames"


def _constant(curves: Curves, name: str) -> bool:
    return len({value for value in curves.columns.get(name, []) if value is not None}) < 2


@dataclass(frozen=True)
class Curves:
    """Columns with one value per point; a point may stand for several generations."""

    generation: list[Number]  # from 1, the last one of a point
    frames: list[Number]  # of training up to there
    seconds: list[Number]  # of training: without validation
    columns: dict[str, list[Number]]  # by name; None where there is no value


def curves_of(run: Run, points: int = POINTS) -> Curves:
    """Return the curves of a run with at most `points` points."""
    count = run.store.next_generation
    each = max(1, -(-count // points))
    groups = [range(first, min(first + each, count)) for first in range(0, count, each)]
    frames = np.cumsum([line.frames for line in run.store.lines], dtype=np.float64)
    validating = [row.get("seconds_validating") or 0.0 for row in run.metrics]
    seconds = np.cumsum([line.seconds for line in run.store.lines], dtype=np.float64) - np.cumsum(validating)
    names = sorted({name for row in run.metrics for name in row})
    return Curves(
        generation=[group[-1] + 1 for group in groups],
        frames=[rounded(frames[group[-1]]) for group in groups],
        seconds=[rounded(seconds[group[-1]]) for group in groups],
        columns={name: [_together(run, name, group) for group in groups] for name in names},
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
