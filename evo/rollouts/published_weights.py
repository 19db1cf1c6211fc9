"""Published weights as workers read them: a file of the run directory, mapped into memory."""

from __future__ import annotations

import hashlib
import os
from collections import OrderedDict
from pathlib import Path
from typing import NamedTuple

import h5py
import numpy as np
from numpy.typing import NDArray

from evo.errors import DataError
from evo.files.durable import resources, write_all
from evo.networks.candidates import Rebuilder
from evo.records import Rebuild


class PublishedFiles:
    """Published matrices, mapped into memory read-only: one copy for all workers of a machine."""

    def __init__(self, run_dir: Path, keep: int = 2) -> None:
        self._run_dir, self._keep = run_dir, keep
        self._mapped: OrderedDict[str, _Mapped] = OrderedDict()
        self._row = np.empty(0, np.float32)

    def matrix(self, name: str, size: int) -> NDArray[np.float32]:
        """Return the matrix [S, P] of the file `name`; no file at all, "", is a matrix of no rows.

        Raises DataError where the file is not one contiguous float32 matrix of `size` columns.
        """
        if not name:
            return np.empty((0, size), np.float32)
        path, known = self._run_dir / name, self._mapped.get(name)
        if known is None or known.inode != _inode(path):  # a file of that name, but another one: its memory is reused
            self._mapped[name] = known = _Mapped(_map(path, size), _inode(path))
            if len(self._mapped) > self._keep:
                self._mapped.popitem(last=False)
        return known.weights

    def rebuild(self, task: Rebuild, rebuilder: Rebuilder) -> list[bytes]:
        """Write candidates to where the task says, and return the SHA-256 of each; ResourceError: the disk is full."""
        size = rebuilder.network.size
        parents = self.matrix(task.weights.published, size)
        if len(self._row) != size:
            self._row = np.empty(size, np.float32)
        digests = []
        with resources("write", self._run_dir / task.file), open(self._run_dir / task.file, "r+b", buffering=0) as file:
            file.seek(task.offset)
            for k in range(len(task.weights)):
                rebuilder.rebuild(parents, task.weights, k, self._row)
                write_all(file.fileno(), self._row.view(np.uint8).data)
                digests.append(hashlib.sha256(self._row.data).digest())
        return digests


class _Mapped(NamedTuple):
    weights: NDArray[np.float32]
    inode: tuple[int, int]


def _inode(path: Path) -> tuple[int, int]:
    try:
        status = os.stat(path)
    except OSError as error:
        raise DataError(f"{path}: cannot be read: {error.strerror}") from error
    return status.st_dev, status.st_ino


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
