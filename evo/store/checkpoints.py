"""Files of arrays: states and records of generations, which the manifest checks, and weights published to workers."""

from __future__ import annotations

import hashlib
import itertools
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from evo.errors import DataError, ResourceError, require_integer
from evo.files.arrays import Arrays, Digests, Layout, array_digest, checked, decode, frozen, layouts, pieces
from evo.files.durable import read_file, replace_file, resources, sync_directory
from evo.files.layout import POPULATION, PUBLISHED, RECORDS
from evo.plugins.directory import is_changing
from evo.store.manifest import FileStamp, Line

KEEP_LAST = 3  # checkpoints kept, and the best and every `keep_every`-th
MOST_CHECKED = 1 << 30  # bytes of records whose digests a resume computes
KEEP_PUBLISHED = 2  # files of published weights that stay

_POPULATION = re.compile(r"gen-(\d+)\.h5")
_RECORDS = re.compile(rf"{RECORDS}/gen-(\d+)-(\d+)\.h5")


class Computed(NamedTuple):
    """What a generation has computed."""

    state: Arrays | None  # None: it will have no checkpoint
    record: Arrays


def copied(arrays: Arrays) -> dict[str, NDArray[np.generic]]:
    """Return read-only copies of arrays; an array that can no longer change is returned as it is."""
    copies = {name: array if frozen(array) else array.copy() for name, array in checked(arrays).items()}
    for copy in copies.values():
        copy.setflags(write=False)
    return copies


def population_file(generation: int) -> str:
    """Return the name of the checkpoint of a generation."""
    return f"{POPULATION}/gen-{generation:06d}.h5"


def verified(directory: Path, name: str, stamp: FileStamp) -> bytes:
    """Return the bytes of a file. Raises DataError unless it has the size and SHA-256 of `stamp`."""
    path = directory / name
    data = read_file(path, most=max(stamp.size, 1))
    if len(data) != stamp.size or hashlib.sha256(data).hexdigest() != stamp.sha256:
        raise DataError(f"{path}: corrupt: its size or SHA-256 is not that in the manifest")
    return data


def write_generations(directory: Path, generations: Mapping[int, Computed]) -> dict[int, dict[str, FileStamp]]:
    """Write checkpoints, and records of equal layouts together, durably; return the files of each generation.

    ResourceError: the disk cannot be written.
    """
    files: dict[int, dict[str, FileStamp]] = {number: {} for number in generations}
    for numbers, name, arrays in _files(generations):
        data, digest = pieces(arrays), hashlib.sha256()
        for piece in data:
            digest.update(piece)
        with resources("write", directory / name):
            replace_file(directory / name, data)
        for number in numbers:
            files[number][name] = FileStamp(sum(map(len, data)), digest.hexdigest())
    with resources("write", directory):
        for folder in (POPULATION, RECORDS):
            sync_directory(directory / folder)
    return files


def _files(generations: Mapping[int, Computed]) -> Iterator[tuple[list[int], str, Arrays]]:
    """Yield the generations, the name and the arrays of each file."""
    for number, (state, _) in generations.items():
        if state is not None:
            yield [number], population_file(number), state
    for layout, group in itertools.groupby(generations, lambda number: layouts(generations[number].record)):
        numbers = list(group)
        records = [generations[number].record for number in numbers]
        if layout:
            name = f"{RECORDS}/gen-{numbers[0]:06d}-{numbers[-1]:06d}.h5"
            yield numbers, name, {array: np.stack([record[array] for record in records]) for array in layout}


def remove_old_checkpoints(directory: Path, best: int, keep_every: int) -> None:
    """Remove all checkpoints but the last KEEP_LAST, that of generation `best`, and every `keep_every`-th."""
    with resources("read", directory / POPULATION):
        paths = list((directory / POPULATION).iterdir())
    kept = sorted((int(match[1]), path) for path in paths if (match := _POPULATION.fullmatch(path.name)))
    for generation, path in kept[:-KEEP_LAST]:
        if generation != best and generation % keep_every:
            with suppress(OSError):
                path.unlink()


def line_of(directory: Path, lines: Sequence[Line], generation: int) -> Line:
    """Return the line of a committed generation. ConfigurationError: there is no such one, DataError: none."""
    if not lines:
        raise DataError(f"{directory}: no generation is committed yet")
    require_integer(f"{directory}: a generation", generation, 0, len(lines) - 1)
    return lines[generation]


def read_state(directory: Path, line: Line) -> dict[str, NDArray[np.generic]]:
    """Return the state after a generation. Raises DataError where its checkpoint is not kept or is corrupt."""
    name = population_file(line.generation)
    stamp = line.files.get(name)
    if stamp is None or not os.path.lexists(directory / name):
        raise DataError(f"{directory}: the checkpoint of generation {line.generation} is not kept")
    state = decode(verified(directory, name, stamp), _expected(line, "state/"), str(directory / name))
    return _checked(line, "state/", state, directory / name)


def read_record(directory: Path, line: Line) -> dict[str, NDArray[np.generic]]:
    """Return the record of a generation. Raises DataError where its file is missing or corrupt."""
    name = record_file(line)
    return next(read_records(directory, name, [line])) if name else {}


def read_records(directory: Path, name: str, lines: Sequence[Line]) -> Iterator[dict[str, NDArray[np.generic]]]:
    """Yield the records of these generations, all from one file. Raises DataError where one is corrupt."""
    match = _RECORDS.fullmatch(name)
    if match is None:
        raise DataError(f"{directory / name}: not a record file")
    first, last = int(match[1]), int(match[2])
    source = str(directory / name)
    expected = {
        array: Layout(layout.dtype, (last + 1 - first, *layout.shape))
        for array, layout in _expected(lines[0], "record/").items()
    }
    stacked = decode(verified(directory, name, lines[0].files[name]), expected, source)
    for line in lines:
        if not first <= line.generation <= last or line.files[name] != lines[0].files[name]:
            raise DataError(f"{source}: not the record file of generation {line.generation}")
        if _expected(line, "record/") != _expected(lines[0], "record/"):
            raise DataError(
                f"{source}: generation {line.generation} has other arrays than generation {lines[0].generation}"
            )
        record = {array: np.asarray(rows[line.generation - first]) for array, rows in stacked.items()}
        yield _checked(line, "record/", record, directory / name)


class Records(Sequence[dict[str, NDArray[np.generic]]]):
    """The records of these generations, oldest first, read as they are asked for; an empty one is an empty dict.

    An iteration reads each file once. Raises DataError where a record that is asked for is corrupt.
    """

    def __init__(self, directory: Path, lines: Sequence[Line]) -> None:
        # A user's code may be elsewhere when it asks for them.
        self._directory, self._lines = directory.absolute() if is_changing() else directory, lines

    def __len__(self) -> int:
        return len(self._lines)

    def __getitem__(self, index: Any) -> Any:
        if isinstance(index, slice):
            return Records(self._directory, self._lines[index])
        return read_record(self._directory, self._lines[index])

    def __iter__(self) -> Iterator[dict[str, NDArray[np.generic]]]:
        for name, group in itertools.groupby(self._lines, record_file):
            together = list(group)
            yield from read_records(self._directory, name, together) if name else ({} for _ in together)


def record_file(line: Line) -> str:
    """Return the name of a generation's record file; empty where its record is empty."""
    return next((name for name in line.files if _RECORDS.fullmatch(name)), "")


def damaged_records(directory: Path, lines: Sequence[Line]) -> list[str]:
    """Return a notice where record files are damaged; beyond MOST_CHECKED bytes, only sizes are compared."""
    stamps = {name: line.files[name] for line in lines if (name := record_file(line))}
    damaged, left = list[str](), MOST_CHECKED
    for name, stamp in reversed(stamps.items()):
        left -= stamp.size
        try:
            if left >= 0:
                verified(directory, name, stamp)
            elif os.lstat(directory / name).st_size != stamp.size:
                damaged.append(name)
        except (DataError, ResourceError, OSError):
            damaged.append(name)
    if not damaged:
        return []
    more = f" and {len(damaged) - 1} more record files are" if damaged[1:] else " is"
    return [f"{directory / damaged[-1]}{more} damaged or missing: what these generations did cannot be verified"]


def _expected(line: Line, prefix: str) -> dict[str, Layout]:
    return {
        name.removeprefix(prefix): Layout(array.dtype, array.shape)
        for name, array in line.arrays.items()
        if name.startswith(prefix)
    }


def _checked(
    line: Line, prefix: str, arrays: dict[str, NDArray[np.generic]], file: Path
) -> dict[str, NDArray[np.generic]]:
    for name, array in arrays.items():
        if array_digest(name, array) != line.arrays[prefix + name]:
            raise DataError(
                f"{file}: {name!r} does not have the digest in the manifest of generation {line.generation}"
            )
    return arrays


class Published:
    """The published files of a run directory, which workers map into memory; a name is the digest of the content."""

    def __init__(self, directory: Path, digests: Digests | None = None) -> None:
        self.directory = directory
        self._digests = digests or Digests()
        self._names: list[str] = []

    def publish(self, weights: NDArray[np.float32], committed: Mapping[str, str] | None = None) -> str:
        """Write weights [S, P], unless a file of `committed`, by digest, has them; return the file's name."""
        if weights.ndim != 2 or weights.dtype != np.float32:
            raise ValueError(f"only float32 matrices can be published, not {weights.dtype} {weights.shape}")
        digest = self._digests.of("weights", weights).sha256
        if committed and digest in committed:
            return committed[digest]
        name = f"{PUBLISHED}/{digest}.h5"
        if name not in self._names:
            with resources("write", self.directory / name):
                # Not synced: after a power failure it is published again.
                replace_file(self.directory / name, pieces({"weights": weights}), durable=False)
        self._names = [*(other for other in self._names if other != name), name]
        while len(self._names) > KEEP_PUBLISHED:
            with suppress(OSError):
                (self.directory / self._names.pop(0)).unlink()
        return name

    def clear(self) -> None:
        """Remove all published files."""
        for name in self._names:
            with suppress(OSError):
                (self.directory / name).unlink()
        self._names.clear()
