"""Published weights as workers read them: a file of the run directory, mapped into memory."""

from __future__ import annotations

from collections import OrderedDict
from pathlib import Path

import h5py
import numpy as np
from numpy.typing import NDArray

from evo.errors import DataError


class PublishedFiles:
    """Published matrices, mapped into memory read-only: one copy for all workers of a machine."""

    def __init__(self, run_dir: Path, keep: int = 2) -> None:
        self._run_dir, self._keep = run_dir, keep
        self._mapped: OrderedDict[str, NDArray[np.float32]] = OrderedDict()

    def matrix(self, name: str, size: int) -> NDArray[np.float32]:
        """Return the matrix [S, P] of the file `name`; no file at all, "", is a matrix of no rows.

        Raises DataError where the file is not one contiguous float32 matrix of `size` columns.
        """
        if not name:
            return np.empty((0, size), np.float32)
        if name not in self._mapped:  # files are named by their content, so a name is never another matrix
            self._mapped[name] = _map(self._run_dir / name, size)
            if len(self._mapped) > self._keep:
                self._mapped.popitem(last=False)
        return self._mapped[name]


def _map(path: Path, size: int) -> NDArray[np.float32]:
    try:
        with h5py.File(path, "r", locking=False) as file:
            dataset = file["weights"] if isinstance(file.get("weights", getlink=True), h5py.HardLink) else None
            if not isinstance(dataset, h5py.Dataset):
                raise DataError(f'{path}: no plain dataset "weights"')
            shape, offset = dataset.shape, dataset.id.get_offset()
            plain = dataset.dtype == np.dtype("<f4") and offset is not None and not dataset.is_virtual
            if not plain or dataset.external or len(shape) != 2 or shape[1] != size:
                raise DataError(f"{path}: weights are {dataset.dtype} {shape}, not a contiguous float32 [S, {size}]")
    except OSError as error:
        raise DataError(f"{path}: cannot be read as HDF5: {error}") from error
    return np.memmap(path, np.float32, "r", offset, shape)
