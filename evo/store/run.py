"""`Run`, the one reader of run directories: it takes no lock, and also reads a run that was killed or goes on."""

from __future__ import annotations

import itertools
import math
import os
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property, partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from evo.config.checking import PROVENANCE
from evo.config.environments import stored
from evo.config.experiment import Experiment
from evo.config.identity import difference, of_copies
from evo.environment import Environment
from evo.errors import ConfigurationError, DataError, EvoError, did_you_mean, first_line, notice, path_of, printable
from evo.files import lock
from evo.files.arrays import Arrays
from evo.files.durable import flush_here, read_file
from evo.files.layout import CHAMPION, CONFIG, FINGERPRINT, LARGEST_CONFIG, LARGEST_FINGERPRINT, LEARNING_FINGERPRINT
from evo.plugins import code, registry
from evo.records import unit_of
from evo.store import sandbox
from evo.store.champion import Champion, Score, network_layers, read_champion, score_in
from evo.store.checkpoints import read_records, record_file
from evo.store.policy import Elite, Policy, newest
from evo.store.run_directory import require_run_directory
from evo.store.store import Store

MOST_BYTES, MOST_GENERATIONS = 64 << 20, 5000  # of records that are read, newest first
MOST_COLUMNS = 200  # of metrics; a file with more is no run's


def column_of(rows: Sequence[Mapping[str, float]], name: str) -> NDArray[np.float64]:
    """Return a metric of every generation, NaN where there is no value.  # [G]"""
    return np.array([row.get(name, math.nan) for row in rows], np.float64)


class Run:
    """A run directory, or a champion.h5 by itself; it is only read, also while it trains.

    A file is read when it is first asked for, and kept: make another `Run` to see what has been committed since.
    `plugins` are modules that it needs; `flags` are those of `Experiment.load`, and set how to play. A champion is read
    in a sandbox, unless this process has written the files (`trusted`). Of every property, DataError: a file that it
    needs is missing or damaged; ConfigurationError: it needs a plug-in.
    """

    def __init__(
        self,
        directory: str | Path,
        *,
        plugins: Sequence[registry.Plugin] = (),
        flags: Mapping[str, Any] | None = None,
        trusted: bool = False,
        name: str = "",
    ) -> None:
        self.directory = path_of("directory", directory)  # of the run, or the file of a champion
        flush_here(self.directory)
        registry.load(plugins)
        self.name = name or Path(os.path.realpath(directory)).name  # that of the directory, if no other was given
        self._flags, self._trusted = flags, trusted
        self._names = {"validation", "test"}  # of metrics, the two also before there are any

    def __reduce__(self) -> Any:
        """Pickle the place alone: a copy reads the files anew, and needs the same plug-ins."""
        return partial(type(self), flags=self._flags, name=self.name), (self.directory.absolute(),)

    @cached_property
    def config(self) -> Experiment:
        """The experiment, with every option and the flags; it plays on this machine, unless these name a backend."""
        if self.directory.is_file():
            if not isinstance(found := self._in_file, Champion):
                raise found or DataError(f"{self.directory}: missing")
            outputs = (found.layers[-1][1] or (0,))[-1]
            load = partial(Experiment.of_champion, self.directory, found.about, outputs)
        else:
            require_run_directory(self.directory)
            load = partial(Experiment.load, self.directory / CONFIG, resolved=True, hosts="ignored")
        with stored():
            experiment = load()
        return load(**self._flags) if self._flags else experiment

    @cached_property
    def environment(self) -> Environment:
        """The environment that the run plays."""
        return self.config.make_environment()

    def with_environment(self, sets: Sequence[str]) -> Experiment:
        """Return the experiment with other options of its environment, as ["environment.size=8"].

        ConfigurationError: one is wrong, or the network does not fit this environment.
        """
        changed = self.config.with_environment(sets)
        ours, there = self.config.network(), changed.network()
        if network_layers(there) != network_layers(ours):
            raise ConfigurationError(
                f"--set: the network is of an environment that shows {ours.shape} with {ours.actions} actions; this "
                f"one shows {there.shape} with {there.actions}"
            )
        return changed

    @cached_property
    def store(self) -> Store:
        """The committed generations: lines of the manifest, states and records (docs/file-formats.md)."""
        return Store.read(self.directory)

    @cached_property
    def metrics(self) -> list[dict[str, float]]:
        """The finite numbers of metrics.jsonl for every committed generation; an empty row where its line is lost."""
        rows: list[dict[str, float]] = [{} for _ in range(self.store.next_generation)]
        for line in self.store.metrics():
            generation = line.pop("generation")
            if generation >= len(rows):
                continue
            for name, value in line.items():
                if name in self._names or len(self._names) < MOST_COLUMNS:
                    self._names.add(name)
                    if value is not None:
                        rows[generation][name] = float(value)
        return rows

    @property
    def curves(self) -> dict[str, NDArray[np.float64]]:
        """The columns of `metrics`, NaN where a generation has no such metric.  # [G] each"""
        names = dict.fromkeys(name for row in self.metrics for name in row)
        return {name: column_of(self.metrics, name) for name in names}

    def column(self, name: str) -> NDArray[np.float64]:
        """Return a metric of every generation, NaN where there is no value; ConfigurationError: none has it.  # [G]"""
        if not isinstance(name, str) or (any(self.metrics) and name not in self._names):
            close = did_you_mean(str(name), sorted(self._names))
            raise ConfigurationError(f"{self.directory}: no generation has a metric {name!r:.60}{close}")
        return column_of(self.metrics, name)

    @cached_property
    def champion(self) -> Policy:
        """The champion, as a policy; DataError: there is none yet, or its file is not of this run."""
        if isinstance(self._champion, DataError):
            raise self._champion
        if self._champion is None:
            raise DataError(f"{self.directory}: there is no champion yet")
        if self.directory.is_dir() and self._other_code:
            notice(f"{', '.join(self._other_code)}; what is played now is not what was trained")
        return Policy(self.config.network(), self._champion.weights, self.config, self._champion.about)

    @cached_property
    def latest(self) -> Policy:
        """The network that the newest generation left, as a policy, as `Row.policy`.

        DataError: no generation is committed, or its checkpoint is not of this run.
        """
        state = self._newest_state()
        if not self.store.next_generation:
            raise DataError(f"{self.directory}: no generation is committed yet")
        return newest(self.config, state, self.store.records())

    @property
    def test(self) -> Score | None:
        """The champion's test score; None before it is tested. Raises as `champion`."""
        return score_in(self.champion.about)

    @property
    def champion_file(self) -> Champion | None:
        """What the champion's file holds; None where there is none of this run: `notes` name the reason."""
        return self._champion if isinstance(self._champion, Champion) else None

    @property
    def score(self) -> Score | None:
        """The champion's test score; None where `champion_file` has none."""
        return None if self.champion_file is None else self.champion_file.score

    @property
    def origin(self) -> int | None:
        """The generation that the champion comes from, from 0; None where it is unknown."""
        generation = self.fact("generation")
        return generation if generation is not None and 0 <= generation < self.store.next_generation else None

    @property
    def fitness(self) -> float | None:
        """The champion's mean validation return; None where it is unknown."""
        fitness = self.fact("fitness", float | int)  # type: ignore[arg-type]
        return float(fitness) if fitness is not None and math.isfinite(fitness) else None

    def fact(self, name: str, kind: type = int) -> Any:
        """Return a fact of `champion_file`, or None where it has none of this name and type `kind`."""
        value = None if self.champion_file is None else self.champion_file.about.get(name)
        return value if isinstance(value, kind) and not isinstance(value, bool) else None

    @property
    def ended(self) -> bool:
        """Whether nothing is left to train."""
        done, experiment = self.store.next_generation, self.config
        return done >= experiment.generations or bool(experiment.run.budget.reached(self.store.spent, self.fitness))

    @property
    def is_fork(self) -> bool:
        """Whether it began with another run's state."""
        return bool(self.store.next_generation) and self.store.lines[0].is_forked

    @property
    def is_running(self) -> bool:
        """Whether a process trains it now: whether its lock is held."""
        return lock.is_running(self.directory)

    @property
    def elites(self) -> list[Elite]:
        """The networks of an archive (MAP-Elites, CMA-ME), by cell; DataError: the run has no archive."""
        state = self._newest_state()
        if "grid" not in state:
            raise DataError(f"{self.directory}: {self.config.algorithm} keeps no archive, or none yet")
        options: Any = self.config.options
        network, per = self.config.network(), unit_of(state["fitness"]) * options.episodes
        places = zip(*np.unravel_index(np.asarray(state["cells"], np.int64), options.bins), strict=True)
        return [
            Elite(tuple(map(int, place)), float(fitness) / per, Policy(network, weights, self.config))
            for place, fitness, weights in zip(places, state["fitness"], state["weights"], strict=True)
        ]

    def _newest_state(self) -> Arrays:
        """Return the state after the newest generation, read again while a run that goes on removes its checkpoint."""
        while True:
            known = self.store.next_generation
            try:
                return self.store.load()
            except DataError:
                self._forget()
                if self.store.next_generation == known:
                    raise

    def _forget(self) -> None:
        """Read what is committed again when it is next asked for."""
        for name in ("store", "metrics"):
            self.__dict__.pop(name, None)

    @property
    def provenance(self) -> Mapping[str, Any]:
        """Versions and machine, [provenance] of its config.toml; empty where that cannot be read."""
        try:
            found = tomllib.loads(self._text(CONFIG, LARGEST_CONFIG)).get(PROVENANCE, {})
        except (tomllib.TOMLDecodeError, RecursionError):
            return {}
        return found if isinstance(found, Mapping) else {}

    @property
    def fingerprints(self) -> dict[str, str]:
        """The texts of its numeric fingerprints, by file; none where arithmetic is exact."""
        there = [name for name in (FINGERPRINT, LEARNING_FINGERPRINT) if os.path.lexists(self.directory / name)]
        return {name: self._text(name, LARGEST_FINGERPRINT) for name in there}

    @cached_property
    def mistakes(self) -> list[str]:
        """Which files are missing, damaged, or not of this run: the champion's first, without the directory."""
        champion = [first_line(self._champion)] if isinstance(self._champion, DataError) else []
        try:
            changed = difference(self.store.identity, self.config.identity(), self.config.environment)
        except ConfigurationError as error:  # what it starts from is gone
            changed = [first_line(error)]
        copies = {line: f"its copy of {what}: {line}" for line, what in of_copies(changed).items()}
        options = [line for line in changed if line not in (*self._other_code, *copies)]
        changed = [*copies.values(), *(f"{CONFIG} is not what the run was begun with: {line}" for line in options)]
        found = [*champion, *self.store.notices, *self.store.metrics_mistakes(), *changed]
        inside = printable(f"{self.directory}{os.sep}")
        return list(dict.fromkeys(printable(one).replace(inside, "") for one in found))

    @property
    def notes(self) -> list[str]:
        """What a reader should know: the `mistakes`, and code that is not what was trained."""
        return [*self.mistakes, *self._other_code]

    @cached_property
    def _other_code(self) -> list[str]:
        return code.changes(self.store.identity, self.config.code())

    def newest_records(self, notes: list[str], most: int | None = None) -> Iterator[tuple[int, Arrays]]:
        """Yield generations and their records, newest first; where they are too large, add a line to `notes`, and stop.

        At most about `most` of those without lineages, evenly spread. DataError: one is corrupt.
        """
        layouts = ((line, line.arrays.get("record/return")) for line in self.store.lines)
        chosen = [line for line, layout in layouts if layout is not None and 0 not in layout.shape]
        if most and not any("record/survivors" in line.arrays for line in chosen):
            chosen = chosen[::-1][:: -(-len(chosen) // most) or 1][::-1]
        groups = [(name, list(lines)) for name, lines in itertools.groupby(chosen, record_file)]
        size = count = 0
        for name, lines in reversed(groups):
            size, count = size + lines[0].files[name].size, count + len(lines)
            if size > MOST_BYTES or count > MOST_GENERATIONS:
                notes.append(f"records before generation {lines[-1].generation + 2} are too large to be read here")
                return
            records = list(read_records(self.directory, name, lines))
            yield from ((line.generation, record) for line, record in zip(lines[::-1], records[::-1], strict=True))

    @cached_property
    def _in_file(self) -> Champion | DataError | None:
        """The champion's file; why it cannot be read; or None where there is none yet."""
        if not self.directory.is_file():
            require_run_directory(self.directory)
            if not os.path.lexists(self.directory / CHAMPION):
                return None
        try:
            return read_champion(self.directory) if self._trusted else sandbox.read_champion(self.directory)
        except DataError as error:
            return error

    @cached_property
    def _champion(self) -> Champion | DataError | None:
        """The champion of this run; why it cannot be used; or None where there is none yet."""
        found = self._in_file
        if not isinstance(found, Champion):
            return found
        whose, file = "in the run's configuration", self.directory / CHAMPION
        if self.directory.is_file():
            whose, file = "that it describes", self.directory
        else:
            known = found.about.get("generations")
            if isinstance(known, int) and known > self.store.next_generation:  # read before, while the run goes on
                self._forget()
            now: dict[str, Any] = {name: getattr(self.config, name).model_dump() for name in ("environment", "policy")}
            now |= {"algorithm": self.config.algorithm, "seed": self.config.run.seed}
            if changed := difference({name: self.store.identity.get(name) for name in now}, now):
                return DataError(f"{self.directory / CONFIG} is not what the run was begun with: {changed[0]}")
        if not found.fits(self.config.network()):
            return DataError(f"{file}: its layers are not those of the network {whose}")
        if self.directory.is_file() or self.store.notices:
            return found
        if mistakes := ", ".join(found.mistakes(self.store.identity, self.store.lines)):
            return DataError(f"{file}: is not of this run: {mistakes}; to use it by itself, name the file")
        return found

    def _text(self, name: str, most: int) -> str:
        try:
            return read_file(self.directory / name, most=most).decode(errors="replace")
        except EvoError:
            return ""
