"""Figures of a comparison, as PNG and SVG: the score against what was spent, and performance profiles."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from evo.comparison.curves import Curve, profiles_of, scores_of
from evo.comparison.tables import Report, Table
from evo.config.sections import plural
from evo.files.durable import resources
from evo.plugins.extras import extra
from evo.training.accounting import COUNTED

FORMATS = ("png", "svg")
SIZE = (6.4, 4.0)  # inches
DOTS = 200  # per inch


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
            profiles = _drawn(
                matplotlib, table, profiles_of(table), "test score", "share of runs above the score, 95 %"
            )
            figures = {f"score-{name}{suffix}": _of_scores(matplotlib, table, name) for name in COUNTED}
            figures[f"profiles{suffix}"] = profiles
            for name, figure in figures.items():
                if figure is None:
                    continue
                for kind in FORMATS:
                    path = folder / f"{name}.{kind}"
                    with matplotlib.rc_context({"svg.hashsalt": "evo"}):  # equal data, equal files
                        figure.savefig(path, dpi=DOTS, metadata={"Date": None} if kind == "svg" else None)
                    written.append(path)
    return written


def _of_scores(matplotlib: Any, table: Table, amount: str) -> Any:
    """Return the figure of scores against an amount; None where no run has both."""
    curves = scores_of(table, amount)
    return _drawn(matplotlib, table, curves, f"{plural(amount)} of a run", "test score, mean over seeds, 95 %")


def _drawn(matplotlib: Any, table: Table, curves: Sequence[Curve], across: str, up: str) -> Any:
    """Return a figure of these curves and their intervals; None where there are none."""
    if not curves:
        return None
    figure = matplotlib.figure.Figure(figsize=SIZE, layout="constrained")
    axes = figure.subplots()
    for curve in curves:
        (line,) = axes.plot(curve.x, curve.mean, label=f"{curve.method} ({curve.seeds})")
        axes.fill_between(curve.x, curve.low, curve.high, color=line.get_color(), alpha=0.2, linewidth=0)
    axes.set_xlabel(across)
    axes.set_ylabel(up)
    axes.set_title(table.environment, fontsize="small", wrap=True)
    axes.grid(alpha=0.3)
    axes.legend(fontsize="small", title="method (seeds)", title_fontsize="small")
    return figure
