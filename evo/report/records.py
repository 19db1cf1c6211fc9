"""Records of a run: returns of every generation, ancestors of the champion, elites of an archive."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from evo.errors import DataError, counted
from evo.files.arrays import Arrays
from evo.numbers import figure
from evo.records import mean_returns
from evo.report.charts import rounded
from evo.report.html import Chart, Markup, element, quiet, section
from evo.store.run import Run

COLUMNS, BINS = 160, 40  # of the histogram, at most
WIDTH, BARS, CELL = 800, 160, 24  # of a picture, of the bars in one, of a square
Cell = tuple[int, ...]  # a bin of each descriptor
Elites = Sequence[tuple[Cell, float]]  # with their fitness


@dataclass(frozen=True)
class Ancestor:
    """The champion, or one of its ancestors, in one generation."""

    generation: int
    candidate: int
    mean_return: float | None  # on the training episodes of that generation
    sigma: float  # of the mutation that made it
    mate: bool
    kept: bool  # an elite: the same network as in the generation before, evaluated again


@dataclass
class Ancestry:
    """What could be read of the records."""

    lineage: list[Ancestor] = field(default_factory=list)  # newest first
    founded: bool = False  # whether the oldest ancestor was drawn at random
    heat: Chart | None = None  # how many candidates, or episodes, of each generation had a return in each bin
    notes: list[str] = field(default_factory=list)


def ancestry_of(run: Run) -> Ancestry:
    """Read the records of a run, newest first, as far as their size allows; follow the champion to its ancestors."""
    found, returns = Ancestry(), dict[int, NDArray[np.float64]]()
    wanted, candidate = run.origin, run.fact("candidate")
    row: int | None = None  # of the parent, among those that survived the wanted generation
    try:
        for generation, record in run.newest_records(found.notes, COLUMNS):
            values = _returns(run, record)
            finite = values[np.isfinite(values)]
            if len(finite):
                returns[generation] = finite
            if generation != wanted or not _is_evolution(record):
                continue
            survivors, parents = record["survivors"], record["parent"]
            if row is not None:
                candidate = int(survivors[row]) if 0 <= row < len(survivors) else None
            if candidate is None or not 0 <= candidate < len(parents):
                wanted = None
                continue
            row, sigma = int(parents[candidate]), float(record["sigma"][candidate])
            mate = int(record["mate"][candidate]) >= 0
            kept, mean = row >= 0 and sigma == 0 and not mate, rounded(values[candidate])
            found.lineage.append(Ancestor(generation, candidate, mean, sigma, mate, kept))
            found.founded = row < 0
            wanted = generation - 1 if row >= 0 else None
    except DataError as error:
        found.notes.append(str(error).replace(f"{run.directory}/", ""))
    found.heat = _heat(returns) if len(returns) > 1 else None
    return found


def _is_evolution(record: Arrays) -> bool:
    """Return whether a record has what a lineage is made of; one of a plug-in may have anything."""
    names, survivors = ("parent", "mate", "sigma", "return"), record.get("survivors")
    if survivors is None or survivors.ndim != 1 or any(name not in record for name in names):
        return False
    return {record[name].shape for name in names} == {(len(record["parent"]),)}


def _returns(run: Run, record: Arrays) -> NDArray[np.float64]:
    summed = np.asarray(record["return"])
    if summed.ndim != 1 or summed.dtype.kind not in "if":
        return np.empty(0)
    return mean_returns(summed, run.config.options.episodes_per_candidate())


def _heat(returns: Mapping[int, NDArray[np.float64]]) -> Chart:
    each = -(-len(returns) // COLUMNS)
    chosen = sorted(returns)[::-1][::each][::-1]  # the newest one too
    low = min(float(returns[generation].min()) for generation in chosen)
    high = max(float(returns[generation].max()) for generation in chosen)
    edges = np.linspace(low, high if high > low else low + 1.0, BINS + 1)
    counts = [np.histogram(returns[generation], edges)[0].tolist() for generation in chosen]
    x = [generation + 1 for generation in chosen]
    return {"kind": "heat", "x": x, "edges": [*map(rounded, edges)], "counts": counts, "y": "return"}


def lineage(ancestry: Ancestry) -> Chart | None:
    """Return the training returns of the champion's ancestors."""
    line = ancestry.lineage[::-1]
    if len(line) < 2:
        return None
    births, returns = [i for i, one in enumerate(line) if not one.kept], [one.mean_return for one in line]
    series = {"label": "ancestor", "values": returns, "colour": 0, "dash": 0, "points": births}
    return {"kind": "lines", "x": [one.generation + 1 for one in line], "series": [series], "y": "mean return"}


def archive_section(run: Run) -> Markup:
    """Return the archive in words and as a picture; nothing where the algorithm keeps none."""
    options: Any = run.config.options
    if not hasattr(options, "descriptors"):
        return Markup("")
    try:
        elites = [(elite.cell, elite.fitness) for elite in run.elites]
    except (DataError, KeyError, ValueError, TypeError):  # of a plug-in, whose state may be any
        return Markup("")
    if not elites:
        done = counted(run.store.next_generation, "generation")
        return section("Archive", element("p", f"The archive of the newest intact checkpoint is empty, after {done}."))
    best, fitness = max(elites, key=lambda elite: elite[1])
    summary = (
        f"{len(elites)} of {int(np.prod(options.bins))} cells are taken. The best elite has a fitness of "
        f"{figure(fitness)}, with {_place(options, best)}."
    )
    checks = [row for row in run.metrics if {"qd_score", "qd_score_checked"} <= row.keys()]
    if checks:
        entered, fresh = (f"{checks[-1][name]:,.1f}" for name in ("qd_score", "qd_score_checked"))
        summary += f" At the last check the elites' fitness summed to {entered}, and to {fresh} on fresh episodes."
    return section(
        "Archive",
        element("p", summary),
        _bars(options, elites) if len(options.bins) == 1 else _squares(options, elites),
        quiet(
            "A cell is a range of behaviour, and its elite is the best network that behaves so. Fitness is that of an "
            "elite when it entered the archive. `evo.Run(...).elites` has them as policies."
        ),
    )


def _place(options: Any, cell: Cell) -> str:
    parts = []
    for name, low, high, bins, place in zip(
        options.descriptors, options.low, options.high, options.bins, cell, strict=True
    ):
        step = (high - low) / bins
        parts.append(f"{name} {figure(low + step * place)} to {figure(low + step * (place + 1))}")
    return ", ".join(parts)


def _bars(options: Any, elites: Elites) -> Markup:
    low, high = min(0.0, *(fitness for _, fitness in elites)), max(0.0, *(fitness for _, fitness in elites))
    scale, width = BARS / (high - low or 1.0), WIDTH / options.bins[0]
    bars = []
    for cell, fitness in elites:
        top, bottom = (BARS - scale * (value - low) for value in (max(fitness, 0.0), min(fitness, 0.0)))
        sides = (width * cell[0], top, 0.9 * width, max(bottom - top, 1.0))
        bars.append(_rectangle(sides, 0.7, options, cell, fitness))
    ends = (f"{options.descriptors[0]} {figure(options.low[0])}", figure(options.high[0]))
    return _picture(BARS, bars, ends, f"fitness, {figure(low)} to {figure(high)}, by {options.descriptors[0]}")


def _squares(options: Any, elites: Elites) -> Markup:
    """Return a square for each pair of bins of the first two descriptors, with the best elite of all others."""
    best = {cell[:2]: (fitness, cell) for cell, fitness in sorted(elites, key=lambda elite: (elite[1], elite[0]))}
    low, high = min(fitness for fitness, _ in best.values()), max(fitness for fitness, _ in best.values())
    width = min(CELL, WIDTH / options.bins[0])
    height = width * options.bins[1]
    squares = []
    for (row, column), (fitness, cell) in sorted(best.items()):
        shade = 0.15 + 0.85 * (fitness - low) / (high - low or 1.0)
        sides = (width * row, height - width * (column + 1), 0.95 * width, 0.95 * width)
        squares.append(_rectangle(sides, shade, options, cell, fitness))
    names = options.descriptors[:2]
    ends = (f"{names[0]} {figure(options.low[0])} to {figure(options.high[0])}", f"{names[1]} upwards")
    about = f"fitness, {figure(low)} to {figure(high)}, by {names[0]} and {names[1]}; a stronger colour: a higher one"
    return _picture(height, squares, ends, about)


def _rectangle(sides: Sequence[float], shade: float, options: Any, cell: Cell, fitness: float) -> Markup:
    size = {name: f"{value:.1f}" for name, value in zip(("x", "y", "width", "height"), sides, strict=True)}
    title = element("title", f"{_place(options, cell)}: {figure(fitness)}")
    return element("rect", title, fill="currentColor", fill_opacity=f"{shade:.2f}", **size)


def _picture(height: float, shapes: list[Markup], ends: tuple[str, str], about: str) -> Markup:
    words = {"y": f"{height + 16:.0f}", "fill": "currentColor", "font_size": "12"}
    texts = element("text", ends[0], x="0", **words), element("text", ends[1], x=WIDTH, **words, text_anchor="end")
    box = f"0 0 {WIDTH} {height + 20:.0f}"
    drawn = element("svg", *shapes, *texts, viewBox=box, role="img", aria_label=f"Elites: {about}")
    return element("figure", element("figcaption", element("b", "Elites"), f", {about}"), drawn)
