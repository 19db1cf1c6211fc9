"""Read the state and the record of a committed generation, and check them against the manifest."""

from __future__ import annotations

import itertools
import os
import re
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from evo.errors import DataError
from evo.files.arrays import Layout, decode
from evo.files.hashing import array_digest
from evo.store.manifest import Line
from evo.store.paths import RECORDS
from evo.store.recovery import population_file, verified

_RECORDS = re.compile(rf"{RECORDS}/gen-(\d+)-(\d+)\.h5")


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


def read_all_records(directory: Path, lines: Sequence[Line]) -> Iterator[dict[str, NDArray[np.generic]]]:
    """Yield the record of each generation, oldest first; each file is read once. An empty record is an empty dict.

    Raises DataError where one is corrupt.
    """
    for name, group in itertools.groupby(lines, record_file):
        together = list(group)
        yield from read_records(directory, name, together) if name else ({} for _ in together)


def record_file(line: Line) -> str:
    """Return the name of a generation's record file; empty where its record is empty."""
    return next((name for name in line.files if _RECORDS.fullmatch(name)), "")


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
