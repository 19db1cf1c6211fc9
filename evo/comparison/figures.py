"""Figures of a comparison, as PNG and SVG: the score against what was spent, and performance profiles."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from evo.comparison.curves import Plot, plots
from evo.comparison.tables import Comparison
from evo.errors import extra, printable
from evo.files.durable import resources

FORMATS = ("png", "svg")
SIZE = (6.4, 4.0)  # inches
DOTS = 200  # per inch
SETTINGS = {"svg.hashsalt": "evo", "text.parse_math": False}  # equal data, equal files; names are text


def library() -> Any:
    """Return the module `matplotlib`, with figures; ConfigurationError where it is missing."""
    extra("matplotlib.figure", "--figures")
    return extra("matplotlib", "--figures")


def write_figures(comparison: Comparison, folder: Path) -> list[Path]:
    """Write all figures of a comparison into a folder, and return their paths; ResourceError where that fails."""
    matplotlib, written = library(), list[Path]()
    with resources("write to", folder), matplotlib.rc_context(SETTINGS):
        folder.mkdir(parents=True, exist_ok=True)
        for number, table in enumerate(comparison.tables, 1):
            suffix = f"-{number}" if len(comparison.tables) > 1 else ""
            for plot in plots(table.methods):
                figure = _drawn(matplotlib, plot, table.environment)
                for kind in FORMATS if plot.curves else ():
                    path = folder / f"{plot.name}{suffix}.{kind}"
                    figure.savefig(path, dpi=DOTS, metadata={"Date": None} if kind == "svg" else None)
                    written.append(path)
    return written


def _drawn(matplotlib: Any, plot: Plot, title: str) -> Any:
    """Return a figure of these curves and their intervals."""
    figure = matplotlib.figure.Figure(figsize=SIZE, layout="constrained")
    axes = figure.subplots()
    lines = []
    for curve in plot.curves:
        lines += axes.plot(curve.x, curve.mean)
        axes.fill_between(curve.x, curve.low, curve.high, color=lines[-1].get_color(), alpha=0.2, linewidth=0)
    axes.set_xlabel(plot.across)
    axes.set_ylabel(f"{plot.up}, {plot.about}", wrap=True)
    axes.set_title(printable(title), fontsize="small", wrap=True)
    axes.grid(alpha=0.3)
    names = [f"{printable(curve.method)} ({curve.seeds})" for curve in plot.curves]
    axes.legend(lines, names, fontsize="small", title="method (seeds)", title_fontsize="small")
    return figure
