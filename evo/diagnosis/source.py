"""A run as its files have it, without a lock, also of a run that was killed or goes on."""

from __future__ import annotations

import itertools
import math
import os
import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

from evo.config import loading
from evo.config.experiment import PROVENANCE, Experiment, difference, environment_of
from evo.config.plug_ins import stored
from evo.environment import Environment
from evo.errors import DataError, EvoError, first_line
from evo.files.arrays import Arrays
from evo.files.durable import read_file
from evo.store import sandbox
from evo.store.champion import Champion, read_champion
from evo.store.checkpoints import read_records, record_file
from evo.store.fingerprint import FILE, LARGEST, LEARNING
from evo.store.manifest import Line
from evo.store.paths import CHAMPION
from evo.store.recovery import require_run_directory
from evo.store.run_directory import CONFIG
from evo.store.store import Store
from evo.training.champion import champion_of, of_another_run, score_of_champion
from evo.training.testing import Score

LARGEST_CONFIG = 1 << 22
MOST_BYTES, MOST_GENERATIONS = 64 << 20, 5000  # of records that are read, newest first
LONGEST_NAME, MOST_COLUMNS = 60, 200  # of metrics; a file with more is no run's


@dataclass(frozen=True)
class Source:
    """What the files of one run say."""

    name: str  # of the run directory
    directory: Path
    experiment: Experiment
    store: Store
    provenance: Mapping[str, Any]
    fingerprints: Mapping[str, str]
    metrics: list[dict[str, float]]  # of committed generations; numbers that are not finite are left out
    champion: Champion | None
    notes: list[str] = field(default_factory=list)  # what is missing or damaged

    @cached_property
    def environment(self) -> Environment:
        """Return the environment that the run plays."""
        return environment_of(self.experiment.environment)

    @property
    def score(self) -> Score | None:
        """Return the champion's test score; None before it is tested."""
        return None if self.champion is None else score_of_champion(self.champion.about)

    def fact(self, name: str, kind: type = int) -> Any:
        """Return a fact of the champion, or None where there is none of this kind."""
        value = None if self.champion is None else self.champion.about.get(name)
        return value if isinstance(value, kind) and not isinstance(value, bool) else None

    @property
    def origin(self) -> int | None:
        """Return the generation that the champion comes from."""
        generation = self.fact("generation")
        return generation if generation is not None and 0 <= generation < self.store.next_generation else None

    @property
    def fitness(self) -> float | None:
        """Return the champion's mean validation return."""
        fitness = self.fact("fitness", float | int)  # type: ignore[arg-type]
        return float(fitness) if fitness is not None and math.isfinite(fitness) else None


def read_source(directory: Path, *, trusted: bool = False) -> Source:
    """Read a run directory; with `trusted`, one that this process has written.

    Raises DataError where it is none, or its configuration or all of its checkpoints are damaged.
    """
    require_run_directory(directory)
    champion = _champion(directory, trusted)  # before the manifest, which a run that goes on writes first
    store = Store.read(directory)
    with stored():
        experiment = loading.load(directory / CONFIG, resolved=True)
        notes = [*store.notices, *_other_configuration(experiment, store)]
    if isinstance(champion, EvoError):
        notes.append(first_line(champion))
        champion = None
    elif champion is not None:
        champion, mistakes = _of_this_run(champion, experiment, store, directory)
        notes += mistakes
    return Source(
        name=Path(os.path.realpath(directory)).name,
        directory=directory,
        experiment=experiment,
        store=store,
        provenance=_provenance(directory / CONFIG),
        fingerprints={name: _text(directory / name) for name in (FILE, LEARNING) if (directory / name).exists()},
        metrics=_metrics(store),
        champion=champion,
        notes=[note.replace(f"{directory}{os.sep}", "") for note in notes],
    )


def newest_records(run: Source, notes: list[str], most: int | None = None) -> Iterator[tuple[int, Arrays]]:
    """Yield the records that have returns, newest first, and note where they are too large to be read.

    Of a run without lineages, only so many where `most` is given, evenly spread. Raises DataError where one is corrupt.
    """
    chosen = [line for line in run.store.lines if _has_returns(line)]
    if most and not any("record/survivors" in line.arrays for line in chosen):
        chosen = chosen[::-1][:: -(-len(chosen) // most) or 1][::-1]
    groups = [(name, list(lines)) for name, lines in itertools.groupby(chosen, record_file)]
    size = count = 0
    for name, lines in reversed(groups):
        size, count = size + lines[0].files[name].size, count + len(lines)
        if size > MOST_BYTES or count > MOST_GENERATIONS:
            notes.append(f"records before generation {lines[-1].generation + 2} are too large to be read here")
            return
        records = list(read_records(run.directory, name, lines))
        yield from ((line.generation, record) for line, record in zip(lines[::-1], records[::-1], strict=True))


def _has_returns(line: Line) -> bool:
    layout = line.arrays.get("record/return")
    return layout is not None and 0 not in layout.shape


def _champion(directory: Path, trusted: bool) -> Champion | EvoError | None:
    """Return the champion, why it cannot be read, or None where there is none yet."""
    if not os.path.lexists(directory / CHAMPION):
        return None
    try:
        return read_champion(directory) if trusted else sandbox.read_champion(directory)
    except DataError as error:
        return error


def _of_this_run(
    champion: Champion, experiment: Experiment, store: Store, directory: Path
) -> tuple[Champion | None, list[str]]:
    """Return the champion if it is of this run, and otherwise why it is not."""
    try:
        found = champion_of(directory, experiment.network(), lambda _: champion)
    except DataError as error:
        return None, [first_line(error)]
    mistakes = [] if store.notices else list(of_another_run(champion, store.identity, store.lines))
    return (None if mistakes else found), [f"{CHAMPION} is not of this run: {mistake}" for mistake in mistakes]


def _other_configuration(experiment: Experiment, store: Store) -> list[str]:
    changed = difference(store.identity, experiment.identity())
    return [f"{CONFIG} is not what the run was begun with: {line}" for line in changed]


def _provenance(file: Path) -> Mapping[str, Any]:
    try:
        found = tomllib.loads(_text(file, LARGEST_CONFIG)).get(PROVENANCE, {})
    except (tomllib.TOMLDecodeError, RecursionError):
        return {}
    return found if isinstance(found, Mapping) else {}


def _text(file: Path, most: int = LARGEST) -> str:
    try:
        return read_file(file, most=most).decode(errors="replace")
    except EvoError:
        return ""


def _metrics(store: Store) -> list[dict[str, float]]:
    """Return the finite numbers of every committed generation; an empty row where its line is lost."""
    rows: list[dict[str, float]] = [{} for _ in range(store.next_generation)]
    known: set[str] = set()
    for line in store.metrics():
        generation = line.pop("generation", None)
        if not isinstance(generation, int) or not 0 <= generation < len(rows):
            continue
        for name, value in line.items():
            number = isinstance(value, int | float) and not isinstance(value, bool) and abs(value) < 1e300
            if number and len(name) <= LONGEST_NAME and (name in known or len(known) < MOST_COLUMNS):
                known.add(name)
                rows[generation][name] = float(value)
    return rows
