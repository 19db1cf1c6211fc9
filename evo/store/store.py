"""The run directory: what a run has done, made durable so that killing it at any instant loses nothing.

    config.resolved.toml           every option
    manifest.jsonl                 who the run is, and a line a committed generation (see evo.store.manifest)
    population/gen-GGGGGG.h5       the state after a generation: the last three, the best, every hundredth
    records/gen-AAAAAA-BBBBBB.h5   what generations A to B did, every array stacked over them; kept for ever
    published/SHA256.h5            weights for the workers, the last two (see evo.store.published)
    champion.h5 champion.json      see evo.store.champion
    metrics.jsonl                  a line a generation, for watching; nothing depends on it
    lock                           see evo.files.lock
    damaged/NNN/                   what did not hold when the run was taken up again (see evo.store.recovery)

A commit extends the hash chain at once. It becomes durable together with its neighbours: data files (fsync, rename,
fsync of the directory), then the manifest's lines (append, fsync). No file that a line names is ever written again.
"""

from __future__ import annotations

import dataclasses
import hashlib
import itertools
import math
import os
import re
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from evo.errors import ResourceError
from evo.files.arrays import Arrays, checked, layouts, pieces
from evo.files.durable import replace_file, resources, sync_directory, write_all
from evo.files.hashing import Digests, array_digest, frozen, next_hash
from evo.files.lock import acquire, release
from evo.store.champion import Layers, encode_champion, write_champion
from evo.store.checkpoints import read_all_records, read_record, read_state
from evo.store.manifest import FileStamp, Line
from evo.store.metrics import MetricsFile
from evo.store.paths import MANIFEST, POPULATION, RECORDS
from evo.store.published import Published
from evo.store.recovery import KEEP_LAST, Recovered, clean, population_file, recover, require_run_directory
from evo.store.run_directory import make_run_directory

DURABLE_SECONDS = 2.0
KEEP_EVERY = 100

_POPULATION = re.compile(r"gen-(\d+)\.h5")


class _Kept(NamedTuple):
    """What a generation left, in memory until it is durable."""

    state: dict[str, NDArray[np.generic]] | None  # None: no file of it will be wanted
    record: dict[str, NDArray[np.generic]]


class _Totals(NamedTuple):
    """What the first `lines` lines add up to."""

    lines: int = 0
    frames: int = 0
    seconds: float = 0.0
    best: int = -1  # the newest generation that was the best


class Store:
    """A run directory, held by its one master, or looked at without a lock (`Store.read`)."""

    def __init__(self, directory: Path, recovered: Recovered, lock: int | None, keep_every: int) -> None:
        """Use `create`, `open` or `read`."""
        self.directory = directory
        self.identity: Mapping[str, Any] = recovered.manifest.identity
        self.notices = list(recovered.notices)  # what the user should know, oldest first
        self._first_hash = recovered.manifest.first_hash
        self._lines = list(recovered.lines)
        self._durable = (len(recovered.lines), recovered.size)  # lines, and bytes of the manifest
        self._totals = _Totals()
        self._metrics = MetricsFile(directory)
        self._kept: dict[int, _Kept] = {}
        self._lock = lock
        self._keep_every = keep_every
        self._digests = Digests()
        self._published = Published(directory, self._digests)
        self._champion: tuple[bytes, bytes] | None = None
        self._failure: ResourceError | None = None
        self._waiting_since = math.inf  # the monotonic second of the oldest commit that is not durable
        self._committed_at = -math.inf

    @classmethod
    def create(
        cls, directory: Path, config_toml: str, identity: Mapping[str, object], *, keep_every: int = KEEP_EVERY
    ) -> Store:
        """Make and lock a new run directory, whole or not at all.

        A directory that is there and not empty is a ConfigurationError and stays untouched.
        """
        lock = make_run_directory(directory, config_toml, identity)
        return cls(directory, recover(directory), lock, keep_every)

    @classmethod
    def open(cls, directory: Path, *, keep_every: int = KEEP_EVERY) -> Store:
        """Lock a run directory and take it up where its newest good checkpoint stands.

        What does not hold is named in `notices`, set aside, and the run goes on from before it. DataError: not a
        run, or no good checkpoint is left. LockedError: another process holds it.
        """
        require_run_directory(directory)
        lock = acquire(directory)
        try:
            store = cls(directory, recovered := recover(directory), lock, keep_every)
            with resources("write to", directory):
                clean(directory, recovered)
                store._metrics.trim(store.next_generation)
            return store
        except BaseException:
            release(lock)
            raise

    @classmethod
    def read(cls, directory: Path) -> Store:
        """Look at a run directory, also while its master is at work: takes no lock and changes nothing."""
        require_run_directory(directory)
        recovered = recover(directory)
        if not recovered.damaged:  # an unfinished append is the master's, who may be at work just now
            recovered = recovered._replace(notices=())
        return cls(directory, recovered, None, KEEP_EVERY)

    @property
    def next_generation(self) -> int:
        """The number of committed generations."""
        return len(self._lines)

    @property
    def durable(self) -> int:
        """The number of generations that are on the disk."""
        return self._durable[0]

    @property
    def state_hash(self) -> str:
        """The hash of everything so far, in hexadecimal."""
        return self._lines[-1].state_hash if self._lines else self._first_hash

    @property
    def lines(self) -> Sequence[Line]:
        """What the manifest keeps of every committed generation."""
        return tuple(self._lines)

    @property
    def frames(self) -> int:
        """The frames of all committed generations, over all resumes."""
        return self._sum().frames

    @property
    def seconds(self) -> float:
        """The seconds of all committed generations, over all resumes."""
        return self._sum().seconds

    def publish(self, weights: NDArray[np.float32]) -> str:
        """Write weights for the workers and return the file, relative to the run directory; equal weights, equal file.

        The file is HDF5 with one contiguous dataset "weights"; only the last two are kept.  # weights [S, P]
        """
        self._writable()
        if self._has_waited:
            self.flush()
        return self._published.add(weights, self._newest_population())

    def commit(
        self, generation: int, state: Arrays, record: Arrays, metrics: Mapping[str, float], *, best: bool = False
    ) -> None:
        """Add a finished generation; it is durable when the next one could not be finished within two seconds.

        `metrics["frames"]` and `metrics["seconds"]` are those of this generation. `best` keeps its population file
        until there is a better one. The arrays are copied, but for those that are marked as read-only.
        ResourceError: the disk does not take them.
        """
        self._writable()
        if generation != self.next_generation:
            raise ValueError(f"generation {generation} cannot follow {self.next_generation - 1}")
        kept = _Kept(_copies(state), _copies(record))
        arrays = {f"state/{name}": self._digests.of(name, array) for name, array in kept.state.items()}  # type: ignore[union-attr]
        arrays |= {f"record/{name}": array_digest(name, array) for name, array in kept.record.items()}
        line = Line(
            generation=generation,
            state_hash=next_hash(self.state_hash, generation, arrays),
            arrays=arrays,
            frames=int(metrics.get("frames", 0)),
            seconds=round(float(metrics.get("seconds", 0.0)), 6),
            best=best,
        )
        # An interrupt between any two of these lines leaves either the generation before or this one, whole.
        self._kept[generation] = kept
        self._lines.append(line)
        self._forget_unwanted_states()
        self.log(generation, metrics)
        now = time.monotonic()
        took, self._committed_at = now - self._committed_at, now
        self._waiting_since = min(self._waiting_since, now)
        if now - self._waiting_since + took >= DURABLE_SECONDS:
            self.flush()

    def flush(self) -> None:
        """Make every commit durable, then the champion. ResourceError: the disk does not take them.

        What it did not take does not count as committed any more.
        """
        self._writable()
        try:
            self._flush_lines()
            if self._champion is not None:
                write_champion(self.directory, *self._champion)
                self._champion = None
        except ResourceError as error:
            self._failure = error
            self._totals = _Totals()
            del self._lines[self._durable[0] :]
            raise

    @property
    def _has_waited(self) -> bool:
        return time.monotonic() - self._waiting_since >= DURABLE_SECONDS

    def load(self) -> dict[str, NDArray[np.generic]]:
        """Return the state after the newest generation; empty before the first."""
        if self._durable[0] < self.next_generation:
            self.flush()
        return self.read_state(self.next_generation - 1) if self._lines else {}

    def read_state(self, generation: int) -> dict[str, NDArray[np.generic]]:
        """Return the state after a durable generation; DataError where retention keeps none, or it does not hold."""
        return read_state(self.directory, self._lines[generation])

    def read_record(self, generation: int) -> dict[str, NDArray[np.generic]]:
        """Return what a durable generation did; DataError where it does not hold."""
        return read_record(self.directory, self._lines[generation])

    def records(self) -> Iterator[dict[str, NDArray[np.generic]]]:
        """Yield what every generation did, oldest first, each file read once; DataError where one does not hold."""
        if self._durable[0] < self.next_generation:
            self.flush()
        yield from read_all_records(self.directory, self._lines)

    def log(self, generation: int, metrics: Mapping[str, float]) -> None:
        """Replace the metrics of a committed generation: of several lines in metrics.jsonl the last one counts."""
        if notice := self._metrics.append(generation, metrics):
            self.notices.append(notice)

    def metrics(self) -> list[dict[str, Any]]:
        """Return the metrics of every generation that has some, in order; None stands for what was not finite."""
        return self._metrics.read()

    def write_champion(self, weights: NDArray[np.float32], layers: Layers, about: Mapping[str, object]) -> None:
        """Replace champion.h5 and champion.json at the next flush, so that they never run ahead of the manifest.

        `weights` [P] is cut into `layers`, (name, shape) in order; `about` is JSON: lineage, scores, ...
        """
        self._writable()
        self._champion = encode_champion(weights, layers, about)

    def close(self) -> None:
        """Make everything durable, remove what was published, and let go of the lock."""
        if self._lock is None:
            return
        try:
            if self._failure is None:
                self.flush()
        finally:
            self._published.clear()
            lock, self._lock = self._lock, None
            release(lock)

    def __enter__(self) -> Store:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _writable(self) -> None:
        if self._failure is not None:
            raise self._failure
        if self._lock is None:
            raise RuntimeError(f"{self.directory} is open for reading only, or closed")

    def _sum(self) -> _Totals:
        lines, frames, seconds, best = self._totals
        for line in self._lines[lines:]:
            best = line.generation if line.best else best
            lines, frames, seconds = lines + 1, frames + line.frames, seconds + line.seconds
        self._totals = _Totals(lines, frames, seconds, best)
        return self._totals

    def _newest_population(self) -> dict[str, str]:
        """Return the file of the newest generation that workers can read its weights from, by their digest."""
        lines, _ = self._durable
        if not lines or lines < self.next_generation:
            return {}
        weights, file = self._lines[-1].arrays.get("state/weights"), population_file(lines - 1)
        return {weights.sha256: file} if weights and os.path.lexists(self.directory / file) else {}

    def _kept_for_ever(self, generation: int) -> bool:
        return generation % self._keep_every == 0

    def _forget_unwanted_states(self) -> None:
        wanted = {self.next_generation - 1, self._sum().best}
        for generation, kept in self._kept.items():
            if kept.state is not None and generation not in wanted and not self._kept_for_ever(generation):
                self._kept[generation] = kept._replace(state=None)

    def _flush_lines(self) -> None:
        """Everything up to the manifest's append can be repeated, so an interrupt here loses nothing."""
        count, size = self._durable
        pending = self._lines[count:]
        if not pending:
            return
        files: dict[int, dict[str, FileStamp]] = {line.generation: {} for line in pending}
        for generations, name, arrays in self._files(pending):
            data = _Stamped(pieces(arrays))
            with resources("write", self.directory / name):
                replace_file(self.directory / name, data)
            for generation in generations:
                files[generation][name] = data.stamp
        with resources("write", self.directory):
            for folder in (POPULATION, RECORDS):
                sync_directory(self.directory / folder)
        lines = [dataclasses.replace(line, files=files[line.generation]) for line in pending]
        appended = b"".join(line.encode() for line in lines)
        self._append_to_manifest(appended, size)
        self._lines[count:] = lines
        self._durable = (count + len(lines), size + len(appended))
        self._kept.clear()
        self._waiting_since = math.inf
        self._remove_old_populations()

    def _files(self, pending: Sequence[Line]) -> Iterator[tuple[list[int], str, Arrays]]:
        """Yield (generations, name, arrays) of every file that makes the pending lines durable."""
        kept = {line.generation: self._kept[line.generation] for line in pending}
        for generation, (state, _) in kept.items():
            if state is not None:
                yield [generation], population_file(generation), state
        for layout, group in itertools.groupby(kept, lambda generation: layouts(kept[generation].record)):
            generations = list(group)
            records = [kept[generation].record for generation in generations]
            if layout:
                name = f"{RECORDS}/gen-{generations[0]:06d}-{generations[-1]:06d}.h5"
                yield generations, name, {array: np.stack([record[array] for record in records]) for array in layout}

    def _append_to_manifest(self, data: bytes, size: int) -> None:
        path = self.directory / MANIFEST
        with resources("write", path):
            descriptor = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_NOFOLLOW)
            try:
                if os.fstat(descriptor).st_size != size:  # an append that was interrupted
                    os.ftruncate(descriptor, size)
                try:
                    write_all(descriptor, data)
                    os.fsync(descriptor)
                except OSError:
                    with suppress(OSError):
                        os.ftruncate(descriptor, size)
                    raise
            finally:
                os.close(descriptor)

    def _remove_old_populations(self) -> None:
        files = []
        with resources("read", self.directory / POPULATION):
            paths = list((self.directory / POPULATION).iterdir())
        for path in paths:
            if match := _POPULATION.fullmatch(path.name):
                files.append((int(match[1]), path))
        files.sort()
        last = [generation for generation, _ in files[-KEEP_LAST:]]
        for generation, path in files:
            if generation not in (*last, self._sum().best) and not self._kept_for_ever(generation):
                with suppress(OSError):
                    path.unlink()


def _copies(arrays: Arrays) -> dict[str, NDArray[np.generic]]:
    copies = {name: array if frozen(array) else array.copy() for name, array in checked(arrays).items()}
    for copy in copies.values():
        copy.setflags(write=False)
    return copies


class _Stamped:
    """The bytes of a file on their way to the disk, and the stamp of what has passed."""

    def __init__(self, data: Sequence[bytes | memoryview]) -> None:
        self._data, self._bytes, self._digest = data, 0, hashlib.sha256()

    def __iter__(self) -> Iterator[bytes | memoryview]:
        for piece in self._data:
            self._digest.update(piece)
            self._bytes += len(piece)
            yield piece

    @property
    def stamp(self) -> FileStamp:
        return FileStamp(self._bytes, self._digest.hexdigest())
