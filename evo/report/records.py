"""Records of a run: returns of every generation, ancestors of the champion, elites of an archive."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from evo.errors import DataError
from evo.files.arrays import Arrays
from evo.numbers import figure
from evo.records import mean_returns, unit_of
from evo.report.charts import rounded
from evo.report.html import Chart, Markup, element, quiet, section
from evo.store.run import Run

COLUMNS, BINS = 160, 40  # of the histogram, at most
NAMES = ("cell", "fitness", "elites", "reevaluated")  # of a record of an archive
WIDTH, BARS, CELL = 800, 160, 24  # of a picture, of the bars in one, of a square


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
class Histogram:
    """How many candidates, or episodes, of each generation had a return in each bin."""

    generations: list[int]
    edges: list[float | None]  # [BINS + 1]
    counts: list[list[int]]  # [generations][BINS]
    what: str  # "candidates" or "episodes"


@dataclass
class Ancestry:
    """What could be read of the records."""

    lineage: list[Ancestor] = field(default_factory=list)  # newest first
    founded: bool = False  # whether the oldest ancestor was drawn at random
    histogram: Histogram | None = None
    notes: list[str] = field(default_factory=list)


def ancestry_of(run: Run) -> Ancestry:
    """Read the records of a run, newest first, as far as their size allows."""
    found, returns, what = Ancestry(), dict[int, NDArray[np.float64]](), ""
    trail = Trail(run, found)
    try:
        for generation, record in run.newest_records(found.notes, COLUMNS):
            what = "candidates" if run.config.options.candidates() > 1 else "episodes"
            values = _returns(run, record)
            trail.follow(generation, record, values)
            finite = values[np.isfinite(values)]
            if len(finite):
                returns[generation] = finite
    except DataError as error:
        found.notes.append(str(error).replace(f"{run.directory}/", ""))
    found.histogram = _histogram(returns, what) if returns else None
    return found


class Trail:
    """Follows the champion from parent to parent, newest generation first."""

    def __init__(self, run: Run, found: Ancestry) -> None:
        self._found = found
        self._generation, self._candidate = run.origin, run.fact("candidate")
        self._row: int | None = None  # of the parent, among those that survived the generation looked for

    def follow(self, generation: int, record: Arrays, returns: NDArray[np.float64]) -> None:
        """Add the ancestor of this generation, where it is the next one that is looked for."""
        if generation != self._generation or not _of_evolution(record):
            return
        survivors, candidate = record["survivors"], self._candidate
        if self._row is not None:
            candidate = int(survivors[self._row]) if 0 <= self._row < len(survivors) else None
        if candidate is None or not 0 <= candidate < len(record["parent"]):
            self._generation = None
            return
        row, sigma = int(record["parent"][candidate]), float(record["sigma"][candidate])
        mate = int(record["mate"][candidate]) >= 0
        kept = row >= 0 and sigma == 0 and not mate
        mean = rounded(returns[candidate])
        self._found.lineage.append(Ancestor(generation, candidate, mean, sigma, mate, kept))
        self._found.founded = row < 0
        self._row, self._generation = row, generation - 1 if row >= 0 else None


def _of_evolution(record: Arrays) -> bool:
    """Return whether a record has what a lineage is made of; one of a plug-in may have anything."""
    names, survivors = ("parent", "mate", "sigma", "return"), record.get("survivors")
    if survivors is None or survivors.ndim != 1 or any(name not in record for name in names):
        return False
    return {record[name].shape for name in names} == {(len(record["parent"]),)}


def _returns(run: Run, record: Arrays) -> NDArray[np.float64]:
    """Return the mean return of every candidate, or the return of every episode; NaN where it was not finite."""
    summed = np.asarray(record["return"])
    if summed.ndim != 1 or summed.dtype.kind not in "if":
        return np.empty(0)
    return mean_returns(summed, run.config.options.episodes_per_candidate())


def _histogram(returns: Mapping[int, NDArray[np.float64]], what: str) -> Histogram:
    each = -(-len(returns) // COLUMNS)
    chosen = sorted(returns)[::-1][::each][::-1]  # the newest one too
    low = min(float(returns[generation].min()) for generation in chosen)
    high = max(float(returns[generation].max()) for generation in chosen)
    edges = np.linspace(low, high if high > low else low + 1.0, BINS + 1)
    counts = [np.histogram(returns[generation], edges)[0].tolist() for generation in chosen]
    return Histogram([generation + 1 for generation in chosen], [rounded(edge) for edge in edges], counts, what)


def lineage(ancestry: Ancestry) -> Chart | None:
    """Return the training returns of the champion's ancestors."""
    line = ancestry.lineage[::-1]
    if len(line) < 2:
        return None
    births = [i for i, one in enumerate(line) if not one.kept]
    series = {
        "label": "ancestor",
        "values": [one.mean_return for one in line],
        "colour": 0,
        "dash": 0,
        "points": births,
    }
    return {"kind": "lines", "x": [one.generation + 1 for one in line], "series": [series], "y": "mean return"}


def heat(ancestry: Ancestry) -> Chart | None:
    """Return how returns are distributed in every generation."""
    found = ancestry.histogram
    if found is None or len(found.generations) < 2:
        return None
    return {"kind": "heat", "x": found.generations, "edges": found.edges, "counts": found.counts, "y": "return"}


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
            cell, value, elites, reevaluated = (np.asarray(record[name]) for name in NAMES)
            if generation != number:
                return None
            cells = np.concatenate([cells, cell[:again]])[elites]
            fitness = np.concatenate([fitness, value[:again]])[elites]
            again = len(reevaluated)
    except (DataError, KeyError, IndexError, ValueError, TypeError):
        return None
    if notes or not len(cells) or cells.min() < 0 or cells.max() >= np.prod(options.bins):
        return None
    return Archived(cells, fitness / (unit_of(fitness) * options.episodes))


def archive_section(run: Run) -> Markup:
    """Return the archive in words and as a picture; nothing where there is none."""
    found = archived(run)
    if found is None:
        return Markup("")
    options: Any = run.config.options
    best = int(np.argmax(found.fitness))
    summary = (
        f"{len(found.cells)} of {int(np.prod(options.bins))} cells are taken. The best elite has a fitness of "
        f"{figure(float(found.fitness[best]))}, with {_place(options, int(found.cells[best]))}."
    )
    picture = _bars(options, found) if len(options.bins) == 1 else _squares(options, found)
    return section(
        "Archive",
        element("p", summary, _checked(run)),
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
    title = element("title", f"{_place(options, cell)}: {figure(fitness)}")
    return element("rect", title, fill="currentColor", fill_opacity=f"{shade:.2f}", **size)


def _picture(height: float, shapes: list[Markup], ends: tuple[str, str], about: str) -> Markup:
    left = element("text", ends[0], x="0", y=f"{height + 16:.0f}", fill="currentColor", font_size="12")
    right = element(
        "text", ends[1], x=str(WIDTH), y=f"{height + 16:.0f}", fill="currentColor", font_size="12", text_anchor="end"
    )
    box = f"0 0 {WIDTH} {height + 20:.0f}"
    drawn = element("svg", *shapes, left, right, viewBox=box, role="img", aria_label=f"Elites: {about}")
    return element("figure", element("figcaption", element("b", "Elites"), f", {about}"), drawn)
