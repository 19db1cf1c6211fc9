"""Figures of a comparison, as PNG and SVG: the score against what was spent, and performance profiles."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from evo.comparison import bootstrap, student
from evo.comparison.tables import Report, Table
from evo.config.sections import plural
from evo.files.durable import resources
from evo.plugins.extras import extra
from evo.store.metrics import MetricsFile
from evo.training.accounting import COUNTED, SO_FAR

POINTS = 200  # of a curve
FORMATS = ("png", "svg")
SIZE = (6.4, 4.0)  # inches
DOTS = 200  # per inch
Curve = tuple[NDArray[np.float64], NDArray[np.float64]]  # spent, score


def library() -> Any:
    """Return the module `matplotlib`, with figures; ConfigurationError where it is missing."""
    extra("matplotlib.figure", "--figures")
    return extra("matplotlib", "--figures")


def write(report: Report, folder: Path) -> list[Path]:
    """Write all figures of a report into a folder, and return their paths; ResourceError where that fails."""
    matplotlib, written = library(), list[Path]()
    with resources("write to", folder):
        folder.mkdir(parents=True, exist_ok=True)
        for number, table in enumerate(report.tables, 1):
            suffix = f"-{number}" if len(report.tables) > 1 else ""
            figures = {f"score-{name}{suffix}": _of_scores(matplotlib, table, name) for name in COUNTED}
            figures[f"profiles{suffix}"] = _of_profiles(matplotlib, table)
            for name, figure in figures.items():
                if figure is None:
                    continue
                for kind in FORMATS:
                    path = folder / f"{name}.{kind}"
                    with matplotlib.rc_context({"svg.hashsalt": "evo"}):  # equal data, equal files
                        figure.savefig(path, dpi=DOTS, metadata={"Date": None} if kind == "svg" else None)
                    written.append(path)
    return written


def curve_of(directory: Path, amount: str) -> Curve | None:
    """Return the test scores of a run and what it had spent at each; None where it has no test, or did not count."""
    lines = [line for line in MetricsFile(directory).read() if line.get("test") is not None]
    spent = [line.get(amount + SO_FAR) for line in lines]
    if not lines or None in spent:
        return None
    return np.array(spent, np.float64), np.array([line["test"] for line in lines], np.float64)


def together(curves: Sequence[Curve]) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return where curves of several seeds are known, and there the mean with Student's interval.  # [X], [3, X]

    A run keeps a score until its next test, and its last one to the end, so every point has all seeds. With one seed
    the interval is NaN.
    """
    first, last = (max(spent[end] for spent, _ in curves) for end in (0, -1))
    grid = np.linspace(first, last, POINTS)
    scores = np.array([values[np.searchsorted(spent, grid, side="right") - 1] for spent, values in curves])  # [S, X]
    found = [student.mean_interval(column) for column in scores.T.tolist()]
    return grid, np.array([(mean, *(ends or (math.nan, math.nan))) for mean, ends in found]).T


def _of_scores(matplotlib: Any, table: Table, amount: str) -> Any:
    """Return the figure of scores against an amount; None where no run has both."""
    curves: Mapping[str, list[Curve]] = {
        method.name: [
            curve for run in method.runs if run.score is not None and (curve := curve_of(Path(run.run_dir), amount))
        ]
        for method in table.methods
    }
    if not any(curves.values()):
        return None
    figure = matplotlib.figure.Figure(figsize=SIZE, layout="constrained")
    axes = figure.subplots()
    for name, own in curves.items():
        if own:
            grid, (mean, low, high) = together(own)
            (line,) = axes.plot(grid, mean, label=f"{name} ({len(own)})")
            axes.fill_between(grid, low, high, color=line.get_color(), alpha=0.2, linewidth=0)
    axes.set_xlabel(f"{plural(amount)} of a run")
    return _finished(figure, axes, "test score, mean over seeds, 95 %", table)


def _of_profiles(matplotlib: Any, table: Table) -> Any:
    """Return the figure of performance profiles; None where no run has a score."""
    scored = [method for method in table.methods if method.scores]
    if not scored:
        return None
    every = [score for method in scored for score in method.scores]
    margin = 0.05 * (max(every) - min(every)) or 1.0
    limits = np.linspace(min(every) - margin, max(every) + margin, POINTS)
    figure = matplotlib.figure.Figure(figsize=SIZE, layout="constrained")
    axes = figure.subplots()
    for method in scored:
        share, low, high = bootstrap.profile(method.scores, limits)
        (line,) = axes.plot(limits, share, label=f"{method.name} ({len(method.scores)})")
        axes.fill_between(limits, low, high, color=line.get_color(), alpha=0.2, linewidth=0)
    axes.set_xlabel("test score")
    return _finished(figure, axes, "share of runs above the score, 95 %", table)


def _finished(figure: Any, axes: Any, label: str, table: Table) -> Any:
    axes.set_ylabel(label)
    axes.set_title(table.environment, fontsize="small", wrap=True)
    axes.grid(alpha=0.3)
    axes.legend(fontsize="small", title="method (seeds)", title_fontsize="small")
    return figure
