"""The run directory, committed so that killing a run at any instant loses nothing; docs/file-formats.md has its files.

A commit extends the hash chain at once. Commits become durable together: first data files (fsync, rename, fsync of the
directory), then the lines of the manifest (append, fsync). No file that a line names is ever written again.
"""

from __future__ import annotations

import dataclasses
import math
import os
import shutil
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, suppress
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from evo.errors import LockedError, ResourceError, notice
from evo.files.arrays import Arrays, Digests, array_digest, next_hash
from evo.files.durable import Deadline, resources
from evo.files.layout import MANIFEST
from evo.files.lock import Held, acquire
from evo.plugins.mistakes import is_mistake
from evo.records import Spent
from evo.store.champion import Layers, encode_champion, write_champion
from evo.store.checkpoints import (
    Computed,
    Published,
    Records,
    copied,
    damaged_records,
    line_of,
    population_file,
    read_record,
    read_state,
    remove_old_checkpoints,
    write_generations,
)
from evo.store.manifest import Line, StoredLines, Totals
from evo.store.metrics import MetricsFile
from evo.store.run_directory import Recovered, clean, make_run_directory, recover, remove_new, require_run_directory

T = TypeVar("T")

DURABLE_SECONDS = 2.0
KEEP_EVERY = 100


class Store(AbstractContextManager["Store"]):
    """A run directory, opened by its one master, or for reading without a lock (`Store.read`).

    The master holds the directory itself: where it is renamed, the run goes on in it. In a process that the master has
    forked, the store does nothing.
    """

    def __init__(self, directory: Path, recovered: Recovered, held: Held | None) -> None:
        """Use `create`, `open` or `read`."""
        self.directory = directory
        self.identity: Mapping[str, Any] = recovered.manifest.identity
        self.notices = list(recovered.notices)  # for the user, oldest first
        self._first_hash = recovered.manifest.first_hash
        self._durable: Sequence[Line] = recovered.lines
        self._pending: list[Line] = []  # committed, and not yet durable; a thread may put an empty list in its place
        self._computed: dict[int, Computed] = {}  # by the pending ones
        self._totals = self._durable_totals = Totals()
        self._metrics = MetricsFile(directory)
        self._held = held
        self.keep_every = KEEP_EVERY
        self._digests = Digests()
        self._published = Published(directory, self._digests)
        self._champion: tuple[bytes, bytes] | None = None
        self._failure: ResourceError | LockedError | None = None
        self._committed_at = -math.inf
        self._created = self._moved = self._unlogged = False  # by this object; while it was open; a line of metrics
        self._flushing = threading.RLock()  # held by what changes these: `Deadline` flushes in a thread
        self._deadline = Deadline(self)

    @classmethod
    def create(cls, directory: Path, config_toml: str, identity: Mapping[str, object]) -> Store:
        """Create and lock a run directory, atomically; ConfigurationError where one exists and is not empty."""
        lock, held = make_run_directory(directory, config_toml, identity), None
        try:
            held = Held(directory, lock, MANIFEST)
            store = cls(directory, recover(directory, held.file), held)
            store._created = True
            return store
        except BaseException:
            remove_new(directory)
            if held is not None:
                held.release()
            raise

    @classmethod
    def open(cls, directory: Path) -> Store:
        """Lock a run directory and recover it to its newest intact checkpoint.

        Damaged files are named in `notices` and set aside. Raises DataError where it is no run directory or has no
        intact checkpoint, LockedError where another process holds it.
        """
        require_run_directory(directory)
        held = Held(directory, acquire(directory), MANIFEST)
        try:
            store = cls(directory, recovered := recover(directory, held.file), held)
            with resources("write to", directory):
                clean(directory, recovered)
            store._durable_totals = store._sum()
            damaged, unread = store._metrics.mistakes(()), store._metrics.trim(store.next_generation)
            store.notices += [*damaged_records(directory, store.lines), *([unread] if unread else damaged)]
            return store
        except BaseException:
            held.release()
            raise

    @classmethod
    def read(cls, directory: Path) -> Store:
        """Open a run directory for reading, also while the run goes on: takes no lock and changes nothing."""
        require_run_directory(directory)
        recovered = recover(directory)
        if not recovered.damaged:  # an incomplete last line may be an append in progress
            recovered = recovered._replace(notices=())
        return cls(directory, recovered, None)

    @property
    def next_generation(self) -> int:
        """The number of committed generations."""
        pending = self._pending
        return pending[-1].generation + 1 if pending else len(self._durable)

    @property
    def state_hash(self) -> str:
        """The state hash after the newest generation, in hexadecimal."""
        newest = self._pending or self._durable
        return str(newest[-1].state_hash) if newest else self._first_hash

    @property
    def lines(self) -> Sequence[Line]:
        """The line of every committed generation."""
        pending = self._pending
        return [*self._durable[: pending[0].generation], *pending] if pending else self._durable

    @property
    def spent(self) -> Spent:
        """What all committed generations have spent."""
        return self._sum().spent

    def publish(self, weights: NDArray[np.float32]) -> str:
        """Write weights [S, P] for workers, HDF5 with a dataset "weights"; return the file's name in the directory."""
        self._require_writable()
        if time.monotonic() - self._deadline.since >= DURABLE_SECONDS:
            self.flush()
        committed = dict[str, str]()  # the newest checkpoint by the digest of its weights, if workers can read them
        if not self._pending and self.next_generation:
            known, file = self._durable[-1].arrays.get("state/weights"), population_file(self.next_generation - 1)
            committed = {known.sha256: file} if known and os.path.lexists(self.directory / file) else {}
        name = self._retry_if_renamed(lambda: self._published.publish(weights, committed))
        return str(self.directory / name) if self._moved else name

    def commit(
        self, generation: int, state: Arrays, record: Arrays, metrics: Mapping[str, float], *, best: bool = False
    ) -> None:
        """Commit a generation. It is durable at once, or soon enough that a crash loses at most two seconds.

        `metrics` has what this generation has spent, by the names of `Spent`. With `best`, its checkpoint is kept
        until the next best. Arrays are copied unless they are read-only. Raises ResourceError where writing fails.
        """
        states, records = copied(state), copied(record)
        arrays = {f"state/{name}": self._digests.of(name, array) for name, array in states.items()}
        arrays |= {f"record/{name}": array_digest(name, array) for name, array in records.items()}
        line = Line(
            generation=generation,
            state_hash=next_hash(self.state_hash, generation, arrays),
            arrays=arrays,
            best=best,
            **dataclasses.asdict(Spent.of(metrics)),
        )
        with self._flushing:
            self._require_writable()
            if generation != self.next_generation:
                raise ValueError(f"generation {generation} cannot follow {self.next_generation - 1}")
            # An interrupt between any two of these lines leaves either the generation before or this one, complete.
            self._computed[generation] = Computed(states, records)
            self._pending.append(line)
            wanted = {generation, self._sum().best}  # of the others, states that will have no checkpoint are freed
            for number, pending in self._computed.items():
                if pending.state is not None and number not in wanted and number % self.keep_every:
                    self._computed[number] = pending._replace(state=None)
            self.log(generation, metrics)
            now = time.monotonic()
            took, self._committed_at = now - self._committed_at, now
            self._deadline.start(now, DURABLE_SECONDS)
            if now - self._deadline.since + took >= DURABLE_SECONDS:
                self.flush()

    def flush(self, *, last: bool = False) -> None:
        """Make every commit durable, then write the champion; after the `last` time, other threads wait for ever.

        Raises ResourceError where writing fails, LockedError where another process has the directory by now; commits
        that are not durable then no longer count.
        """
        if last:  # a thread that the interpreter's end cuts off inside of libhdf5 would have it wait for that
            self._flushing.acquire()
        with self._flushing:
            held = self._require_writable()
            try:
                held.require(self.directory)
                self._retry_if_renamed(self._flush_generations)
                self._retry_if_renamed(self._flush_champion)
                self._deadline.since = math.inf
            except (ResourceError, LockedError) as error:
                self._failure = error
                self._totals, self._pending = self._durable_totals, []
                raise

    @property
    def is_ours(self) -> bool:
        """Whether this process writes it."""
        return self._held is not None and self._held.master == os.getpid()

    def load(self) -> dict[str, NDArray[np.generic]]:
        """Return the state after the newest generation; empty before the first."""
        return self.read_state(self.next_generation - 1) if self.next_generation else {}

    def read_state(self, generation: int) -> dict[str, NDArray[np.generic]]:
        """Return the state after a generation. Raises DataError where its checkpoint is not kept or is corrupt."""
        return read_state(self.directory, line_of(self.directory, self._flushed(), generation))

    def read_record(self, generation: int) -> dict[str, NDArray[np.generic]]:
        """Return the record of a generation. Raises DataError where it is corrupt."""
        return read_record(self.directory, line_of(self.directory, self._flushed(), generation))

    def records(self) -> Records:
        """Return the records of all generations, which are read as they are asked for."""
        return Records(self.directory, self._flushed()[:])

    def log(self, generation: int, metrics: Mapping[str, float]) -> None:
        """Append the metrics of a committed generation; they replace earlier ones of that generation."""
        try:
            self._retry_if_renamed(lambda: self._metrics.append(generation, metrics))
        except ResourceError as error:
            if not self._unlogged:
                self.notices.append(f"{error}; the run goes on")
            self._unlogged = True

    def metrics(self) -> list[dict[str, Any]]:
        """Return the metrics of every generation that has some, in order; None stands for a non-finite number."""
        return self._metrics.read()

    def metrics_mistakes(self) -> list[str]:
        """Return what is wrong with the metrics file: damaged and missing lines, other amounts than in the manifest."""
        return [*self._metrics.mistakes(self.lines), *self._metrics.missing(self.next_generation)]

    def write_champion(self, weights: NDArray[np.float32], layers: Layers, about: Mapping[str, object]) -> None:
        """Replace champion.h5 and champion.json at the next flush, so that they are never newer than the manifest.

        `weights` [P] is split into `layers`, (name, shape) in order. `about` holds the facts, as JSON values.
        """
        self._require_writable()
        with self._flushing:
            self._champion = encode_champion(weights, layers, about)
            self._deadline.start(time.monotonic(), DURABLE_SECONDS)

    def close(self) -> None:
        """Make everything durable, remove published weights, and release the lock."""
        if self._held is None or not self.is_ours:
            return
        self._deadline.close()
        try:
            if self._failure is None:
                self.flush()
        finally:
            if not isinstance(self._failure, LockedError):
                self._published.clear()
            self.directory, held, self._held = self._held.named(self.directory), self._held, None
            held.release()

    def close_after(self, error: BaseException | None) -> bool:
        """Close, and return whether the run directory was removed.

        It is where a mistake ends a run that began here before its first generation: it would be in the way.
        """
        useless = is_mistake(error) and self._created and not self.next_generation
        if useless:
            with suppress(ResourceError):  # there is nothing to flush
                shutil.rmtree(self.directory, ignore_errors=True)  # while no other process can resume from it
                self.close()
        self.close()
        return useless

    def __exit__(self, _: object, error: BaseException | None, __: object) -> None:
        self.close_after(error)

    def _flushed(self) -> Sequence[Line]:
        if self._pending:
            self.flush()
        return self._durable

    def _require_writable(self) -> Held:
        """Return the lock that this process holds; follow the directory if it was renamed."""
        if self._failure is not None:
            raise self._failure
        if self._held is None or not self.is_ours:
            raise RuntimeError(f"{self.directory} is open for reading only, closed, or another process's")
        if (place := self._held.place(self.directory)) != self.directory:
            if place != self._held.absolute:
                notice(f"{self.directory} was renamed to {place} while the run trains; it goes on there")
            self.directory = self._metrics.directory = self._published.directory = place
            self._moved = True
        return self._held

    def _retry_if_renamed(self, write: Callable[[], T]) -> T:
        """Return what `write` returns; call it again if the directory was renamed while it wrote."""
        place = self.directory
        try:
            return write()
        except ResourceError:
            if self._require_writable() and self.directory == place:
                raise
            return write()

    def _sum(self) -> Totals:
        self._totals = self._totals.up_to(self._durable, self._pending)
        return self._totals

    def _flush_generations(self) -> None:
        """Write pending generations; an interrupt between any two lines loses nothing, for all can be repeated."""
        assert isinstance(self._durable, StoredLines)
        if not self._pending:
            self._durable.require_own(self.directory / MANIFEST)
            return
        if pending := [line for line in self._pending if line.generation >= len(self._durable)]:
            computed = {line.generation: self._computed[line.generation] for line in pending}
            made = write_generations(self.directory, computed)
            lines = [dataclasses.replace(line, files=made[line.generation]) for line in pending]
            self._durable.extend(self.directory / MANIFEST, lines)
        self._pending = []
        self._computed.clear()
        self._durable_totals = self._sum()
        remove_old_checkpoints(self.directory, self._sum().best, self.keep_every)

    def _flush_champion(self) -> None:
        if self._champion is not None:
            write_champion(self.directory, *self._champion)
            self._champion = None
