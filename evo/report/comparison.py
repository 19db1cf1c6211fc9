"""The page about a comparison: who wins, the tables, and scores against every budget."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np

from evo.comparison.formats import PAIRS, REACHED, Grid, grids, sentence
from evo.comparison.methods import TOO_FEW, UNDECIDED, Plot, ahead, plots
from evo.comparison.tables import Comparison, Table, no_better_than_random
from evo.errors import counted
from evo.numbers import interval, number
from evo.report import html
from evo.report.charts import rounded
from evo.report.html import Chart, Drawn, Markup, breakable, element, quiet

COLOURS, DASHES = 8, 3  # of lines
PLAYERS = ("player that needs no learning", "mean score", "95 %", "episodes")


def write_comparison_page(comparison: Comparison, path: Path) -> Path:
    """Write the page, whole or not at all; ResourceError where that fails."""
    return html.write_page(comparison_page(comparison), path)


def comparison_page(comparison: Comparison) -> bytes:
    """Return the whole file."""
    names, drawn = [method.name for one in comparison.tables for method in one.methods], Drawn()
    body = html.joined([_header(comparison, len(names)), *(_section(one, drawn) for one in comparison.tables)])
    data = {"runs": [], "charts": drawn.charts, "replays": []}
    return html.whole_page(f"Comparison of {', '.join(names[:4])}", body, data, html.CHARTS)


def _header(comparison: Comparison, methods: int) -> Markup:
    alone = "There is only one method, so there is nothing to compare."
    if methods > 1:
        alone = "No two of these methods see and play the same, so they are not compared with each other."
    first, *others = [found for one in comparison.tables for found in verdicts(one)] or [alone]
    for one in comparison.tables:
        players = {name: player.mean for name, player in one.baselines.items()}
        others += map(sentence, no_better_than_random(one.methods, players))
    notes = [element("li", breakable(sentence(note))) for note in comparison.notes]
    return element(
        "header",
        element("h1", f"{counted(methods, 'method')} compared"),
        element("p", breakable(first), class_="verdict"),
        *(element("p", breakable(other)) for other in others),
        *([element("ul", *notes, class_="notes")] if notes else []),
    )


def _section(one: Table, drawn: Drawn) -> Markup:
    parts: list[object] = []
    for grid in grids(one):
        parts += [element("h3", grid.heading) if grid.heading else "", _table(grid)]
        if grid.meanings:
            means = (element("li", element("b", title), f": {meaning}") for title, meaning in grid.meanings.items())
            parts.append(html.details("What the columns mean", element("ul", *means)))
        parts.append(quiet(grid.remark))
        if grid.rows is one.methods and one.notes:
            parts.append(element("ul", *(element("li", breakable(note), ".") for note in one.notes)))
    levels = [{"label": name, "value": rounded(player.mean)} for name, player in one.baselines.items()]
    parts.append(element("h3", "Score against what was spent"))
    for plot in plots(one.methods):
        chart = lines(one, plot) if plot.curves else None
        if chart and plot.up == "test score":
            chart["levels"] = levels
        parts.append(drawn.figure(chart, plot.title, plot.about))
    if one.baselines:
        rows = [
            (name, number(player.mean), interval(player.ci95), f"{player.episodes:,}")
            for name, player in one.baselines.items()
        ]
        parts += [element("h3", "Baselines"), html.table(PLAYERS, rows, numbers=(1, 2, 3))]
    return html.section(one.title, *parts)


def _table(grid: Grid) -> Markup:
    rows, pairs = grid.cells, grid.columns is PAIRS
    long = " long" if any(len(cell) > html.LONGEST for row in rows for cell in row[:2]) else ""
    numbers = () if pairs else range(2 if grid.columns is REACHED else 1, len(grid.columns))
    shown = [[breakable(cell) for cell in row] for row in rows]
    return html.table(grid.titles, shown, numbers, class_=f"methods{' pairs' * pairs}{long}")


def verdicts(one: Table) -> Iterator[str]:
    """Yield a sentence about every method that wins over others, or one that says why none does."""
    beaten: dict[str, list[str]] = {}
    reasons: dict[str, list[str]] = {}
    for pair in one.pairs:
        reasons.setdefault(pair.verdict, []).append(f"{pair.first} and {pair.second}")
        if pair.winner is not None:
            beaten.setdefault(pair.winner, []).append(pair.second if pair.winner == pair.first else pair.first)
    if one.pairs and not beaten:
        parts = [f"{', '.join(pairs)}: {reason}" for reason, pairs in reasons.items()]
        text = "; ".join(parts) if len(parts) > 1 else next(iter(reasons))
        if UNDECIDED in reasons:
            yield f"No winner is proven on {one.environment}: {text}."
        else:
            name = ahead(one.methods)
            reason = f"{text.removeprefix(f'{TOO_FEW}: ')}{f'; {name} is ahead on every seed' if name else ''}"
            yield f"Too few seeds to name a winner on {one.environment}: {reason}."
    means = {method.name: f"{method.name} ({number(method.mean)})" for method in one.methods}
    for winner, losers in beaten.items():
        yield f"{means[winner]} wins over {', '.join(means[loser] for loser in losers)} on {one.environment}."


def lines(one: Table, plot: Plot) -> Chart:
    """Return a chart of means with their intervals, a method in the same colour in all charts."""
    series, names = [], [method.name for method in one.methods]
    for curve in plot.curves:
        place = names.index(curve.method)
        known = bool(np.isfinite(curve.low).all() and np.isfinite(curve.high).all())
        series.append({
            "label": f"{curve.method} ({counted(curve.seeds, 'seed')})",
            "colour": place, "dash": place // COLOURS % DASHES,
            "x": _listed(curve.x), "values": _listed(curve.mean),
            "low": _listed(curve.low) if known else None, "high": _listed(curve.high) if known else None,
        })  # fmt: skip
    return {"kind": "lines", "series": series, "across": plot.across, "y": plot.up}


def _listed(values: np.ndarray) -> list[float | None]:
    return [rounded(value) for value in values.tolist()]
