"""What the records of a run say: the returns of every generation, and the ancestors of the champion."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from evo.errors import DataError
from evo.files.arrays import Arrays
from evo.records import WORST
from evo.report.curves import rounded
from evo.store.run import Run

COLUMNS, BINS = 160, 40  # of the histogram, at most


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
    if summed.ndim != 1 or summed.dtype.kind != "i":
        return np.empty(0)
    options = run.config.options
    episodes = options.episodes_per_candidate() if options.candidates() > 1 else 1
    return np.where(summed == WORST, np.nan, summed.astype(np.float64) / (1000.0 * episodes))


def _histogram(returns: Mapping[int, NDArray[np.float64]], what: str) -> Histogram:
    each = -(-len(returns) // COLUMNS)
    chosen = sorted(returns)[::-1][::each][::-1]  # the newest one too
    low = min(float(returns[generation].min()) for generation in chosen)
    high = max(float(returns[generation].max()) for generation in chosen)
    edges = np.linspace(low, high if high > low else low + 1.0, BINS + 1)
    counts = [np.histogram(returns[generation], edges)[0].tolist() for generation in chosen]
    return Histogram([generation + 1 for generation in chosen], [rounded(edge) for edge in edges], counts, what)
