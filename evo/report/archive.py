"""What the archive of a run holds in the end, from its records, and a picture of it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from evo.diagnosis.signs import figure
from evo.errors import DataError
from evo.report.markup import Markup, element, quiet, section
from evo.store.run import Run

NAMES = ("cell", "fitness", "elites", "reevaluated")  # of a record of an archive
WIDTH, BARS, CELL = 800, 160, 24  # of a picture, of the bars in one, of a square


@dataclass(frozen=True)
class Archived:
    """The elites of an archive."""

    cells: NDArray[np.int64]  # [C]
    fitness: NDArray[np.float64]  # [C] of an episode, on average, when it entered


def archived(run: Run) -> Archived | None:
    """Return the elites at the end of a run; None where it has no archive, or not all of its records."""
    options: Any = run.config.options
    if not hasattr(options, "descriptors"):
        return None
    cells, fitness = np.empty(0, np.int64), np.empty(0, np.int64)
    again, notes = 1 if run.config.run.init_from else 0, list[str]()
    try:
        records = list(run.newest_records(notes))[::-1]
        for number, (generation, record) in enumerate(records):
            cell, value, elites, reevaluated = (np.asarray(record[name], np.int64) for name in NAMES)
            if generation != number:
                return None
            cells = np.concatenate([cells, cell[:again]])[elites]
            fitness = np.concatenate([fitness, value[:again]])[elites]
            again = len(reevaluated)
    except (DataError, KeyError, IndexError, ValueError, TypeError):
        return None
    if notes or not len(cells) or cells.min() < 0 or cells.max() >= np.prod(options.bins):
        return None
    return Archived(cells, fitness / (1000.0 * options.episodes))


def archive_section(run: Run) -> Markup:
    """Return the archive in words and as a picture; nothing where there is none."""
    found = archived(run)
    if found is None:
        return Markup("")
    options: Any = run.config.options
    best = int(np.argmax(found.fitness))
    told = (
        f"{len(found.cells)} of {int(np.prod(options.bins))} cells are taken. The best elite has a fitness of "
        f"{figure(float(found.fitness[best]))}, with {_place(options, int(found.cells[best]))}."
    )
    picture = _bars(options, found) if len(options.bins) == 1 else _squares(options, found)
    return section(
        "Archive",
        element("p", told, _checked(run)),
        picture,
        quiet(
            "A cell is a range of behaviour, and its elite is the best network that behaves so. Fitness is that of an "
            "elite when it entered the archive. `evo.Run(...).elites` has them as policies."
        ),
    )


def _checked(run: Run) -> str:
    """Return what the last check on fresh episodes found."""
    checks = [row for row in run.metrics if {"qd_score", "qd_score_checked"} <= row.keys()]
    if not checks:
        return ""
    entered, fresh = (f"{checks[-1][name]:,.1f}" for name in ("qd_score", "qd_score_checked"))
    return f" At the last check the elites' fitness summed to {entered}, and to {fresh} on fresh episodes."


def _place(options: Any, cell: int) -> str:
    """Return where a cell is, as in "length 240 to 250"."""
    places = np.unravel_index(cell, options.bins)
    parts = []
    for name, low, high, bins, place in zip(
        options.descriptors, options.low, options.high, options.bins, places, strict=True
    ):
        step = (high - low) / bins
        parts.append(f"{name} {figure(low + step * int(place))} to {figure(low + step * (int(place) + 1))}")
    return ", ".join(parts)


def _bars(options: Any, found: Archived) -> Markup:
    """Return a bar for each elite, over the bins of the only descriptor."""
    low, high = min(0.0, float(found.fitness.min())), max(0.0, float(found.fitness.max()))
    scale, width = BARS / (high - low or 1.0), WIDTH / options.bins[0]
    bars = []
    for cell, fitness in zip(found.cells.tolist(), found.fitness.tolist(), strict=True):
        top, bottom = (BARS - scale * (value - low) for value in (max(fitness, 0.0), min(fitness, 0.0)))
        bars.append(_rectangle(width * cell, top, 0.9 * width, max(bottom - top, 1.0), 0.7, options, cell, fitness))
    ends = (f"{options.descriptors[0]} {figure(options.low[0])}", figure(options.high[0]))
    return _picture(BARS, bars, ends, f"fitness, {figure(low)} to {figure(high)}, by {options.descriptors[0]}")


def _squares(options: Any, found: Archived) -> Markup:
    """Return a square for each pair of bins of the first two descriptors, with the best elite of all others."""
    best: dict[tuple[int, int], tuple[float, int]] = {}
    for cell, fitness in zip(found.cells.tolist(), found.fitness.tolist(), strict=True):
        row, column, *_ = (int(place) for place in np.unravel_index(cell, options.bins))
        best[row, column] = max(best.get((row, column), (fitness, cell)), (fitness, cell))
    low, high = (float(end) for end in (found.fitness.min(), found.fitness.max()))
    width = min(CELL, WIDTH / options.bins[0])
    height = width * options.bins[1]
    squares = []
    for (row, column), (fitness, cell) in sorted(best.items()):
        shade = 0.15 + 0.85 * (fitness - low) / (high - low or 1.0)
        y = height - width * (column + 1)
        squares.append(_rectangle(width * row, y, 0.95 * width, 0.95 * width, shade, options, cell, fitness))
    names = options.descriptors[:2]
    ends = (f"{names[0]} {figure(options.low[0])} to {figure(options.high[0])}", f"{names[1]} upwards")
    about = f"fitness, {figure(low)} to {figure(high)}, by {names[0]} and {names[1]}; a stronger colour: a higher one"
    return _picture(height, squares, ends, about)


def _rectangle(
    x: float, y: float, width: float, height: float, shade: float, options: Any, cell: int, fitness: float
) -> Markup:
    size = {name: f"{value:.1f}" for name, value in (("x", x), ("y", y), ("width", width), ("height", height))}
    told = element("title", f"{_place(options, cell)}: {figure(fitness)}")
    return element("rect", told, fill="currentColor", fill_opacity=f"{shade:.2f}", **size)


def _picture(height: float, shapes: list[Markup], ends: tuple[str, str], about: str) -> Markup:
    left = element("text", ends[0], x="0", y=f"{height + 16:.0f}", fill="currentColor", font_size="12")
    right = element(
        "text", ends[1], x=str(WIDTH), y=f"{height + 16:.0f}", fill="currentColor", font_size="12", text_anchor="end"
    )
    box = f"0 0 {WIDTH} {height + 20:.0f}"
    drawn = element("svg", *shapes, left, right, viewBox=box, role="img", aria_label=f"Elites: {about}")
    return element("figure", element("figcaption", element("b", "Elites"), f", {about}"), drawn)
