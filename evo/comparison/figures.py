"""Figures of a comparison, as PNG and SVG: the score against what was spent, and performance profiles."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from evo.comparison.curves import Curve, profiles, score_curves
from evo.comparison.tables import Comparison, Table
from evo.config.sections import plural
from evo.errors import extra
from evo.files.durable import resources
from evo.training.accounting import COUNTED

FORMATS = ("png", "svg")
SIZE = (6.4, 4.0)  # inches
DOTS = 200  # per inch


def library() -> Any:
    """Return the module `matplotlib`, with figures; ConfigurationError where it is missing."""
    extra("matplotlib.figure", "--figures")
    return extra("matplotlib", "--figures")


def write_figures(comparison: Comparison, folder: Path) -> list[Path]:
    """Write all figures of a comparison into a folder, and return their paths; ResourceError where that fails."""
    matplotlib, written = library(), list[Path]()
    with resources("write to", folder), matplotlib.rc_context({"svg.hashsalt": "evo"}):  # equal data, equal files
        folder.mkdir(parents=True, exist_ok=True)
        for number, table in enumerate(comparison.tables, 1):
            suffix = f"-{number}" if len(comparison.tables) > 1 else ""
            for name, curves, across, up in _curves(table):
                if not curves:
                    continue
                figure = _drawn(matplotlib, table, curves, across, up)
                for kind in FORMATS:
                    path = folder / f"{name}{suffix}.{kind}"
                    figure.savefig(path, dpi=DOTS, metadata={"Date": None} if kind == "svg" else None)
                    written.append(path)
    return written


def _curves(table: Table) -> Iterator[tuple[str, Sequence[Curve], str, str]]:
    """Yield the name, the curves and the labels of both axes of every figure."""
    for amount in COUNTED:
        curves = score_curves(table.methods, amount)
        yield f"score-{amount}", curves, f"{plural(amount)} of a run", "test score, mean over seeds, 95 %"
    yield "profiles", profiles(table.methods), "test score", "share of runs above the score, 95 %"


def _drawn(matplotlib: Any, table: Table, curves: Sequence[Curve], across: str, up: str) -> Any:
    """Return a figure of these curves and their intervals."""
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
