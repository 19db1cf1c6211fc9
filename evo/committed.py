"""Reading back what a committed generation left, and believing it only where it is what was hashed."""

from __future__ import annotations

import os
import re
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from evo.arrays import Layout, decode
from evo.errors import DataError
from evo.hashing import array_digest
from evo.manifest import Line
from evo.places import RECORDS
from evo.recovery import population_file, verified

_RECORDS = re.compile(rf"{RECORDS}/gen-(\d+)-(\d+)\.h5")


def read_state(directory: Path, line: Line) -> dict[str, NDArray[np.generic]]:
    """Return the state after a generation; DataError where retention keeps none, or it does not hold."""
    name = population_file(line.generation)
    stamp = line.files.get(name)
    if stamp is None or not os.path.lexists(directory / name):
        raise DataError(f"{directory}: no population of generation {line.generation} is kept")
    state = decode(verified(directory, name, stamp), _expected(line, "state/"), str(directory / name))
    return _agreeing(line, "state/", state, directory / name)


def read_record(directory: Path, line: Line) -> dict[str, NDArray[np.generic]]:
    """Return what a generation did, out of the file that it shares with others; DataError where it does not hold."""
    for name, stamp in line.files.items():
        if match := _RECORDS.fullmatch(name):
            first, last = int(match[1]), int(match[2])
            expected = {
                array: Layout(layout.dtype, (last + 1 - first, *layout.shape))
                for array, layout in _expected(line, "record/").items()
            }
            stacked = decode(verified(directory, name, stamp), expected, str(directory / name))
            record = {array: np.asarray(rows[line.generation - first]) for array, rows in stacked.items()}
            return _agreeing(line, "record/", record, directory / name)
    return {}


def _expected(line: Line, prefix: str) -> dict[str, Layout]:
    return {
        name.removeprefix(prefix): Layout(array.dtype, array.shape)
        for name, array in line.arrays.items()
        if name.startswith(prefix)
    }


def _agreeing(
    line: Line, prefix: str, arrays: dict[str, NDArray[np.generic]], file: Path
) -> dict[str, NDArray[np.generic]]:
    for name, array in arrays.items():
        if array_digest(name, array) != line.arrays[prefix + name]:
            raise DataError(f"{file}: {name!r} is not what generation {line.generation} hashed")
    return arrays
