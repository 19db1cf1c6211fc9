"""Weights on their way to the workers: files named by their content, of which only the last few stay.

What workers rebuild they write into a file themselves, and the master maps it. A file that is done with is written
over by the next one of its size, where nobody has it mapped any more: memory that is new to a process is dear.
"""

from __future__ import annotations

import os
import weakref
from collections.abc import Mapping, Sequence
from contextlib import suppress
from mmap import ACCESS_READ, mmap
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from evo.files.arrays import Layout, frame, pieces
from evo.files.durable import TEMPORARY, replace_file, resources, write_all
from evo.files.hashing import Digests
from evo.store.paths import PUBLISHED

KEPT = 2
ROOM, SPARE = f"{PUBLISHED}/room.h5{TEMPORARY}", f"{PUBLISHED}/spare.h5{TEMPORARY}"


class Room(NamedTuple):
    """A file that has room for a matrix of weights."""

    name: str  # relative to the run directory
    offset: int  # in bytes, where its rows begin, one after the other
    shape: tuple[int, int]


class _Filled(NamedTuple):
    """A file that others have filled, and whoever still looks into it."""

    room: Room
    mapped: weakref.ReferenceType[mmap]


class Published:
    """The published files of one master."""

    def __init__(self, directory: Path, digests: Digests | None = None) -> None:
        """Nothing is published yet."""
        self._directory = directory
        self._digests = digests or Digests()
        self._names: list[str] = []
        self._filled: dict[str, _Filled] = {}
        self._spare: _Filled | None = None  # a file that is done with, where the next room will be

    def add(self, weights: NDArray[np.float32], committed: Mapping[str, str] | None = None) -> str:
        """Write the weights, unless equal ones are still there, and return the file's name in the run directory.

        `committed` names files that hold a matrix of weights anyway, by its digest.
        """
        if weights.ndim != 2 or weights.dtype != np.float32:
            raise ValueError(f"only float32 matrices are published, not {weights.dtype} {weights.shape}")
        name = self._name_of(weights)
        if name not in self._names:
            digest = self._digests.of("weights", weights).sha256
            if committed and digest in committed:
                return committed[digest]
            name = f"{PUBLISHED}/{digest}.h5"
        if name not in self._names:
            with resources("write", self._directory / name):
                # A file that is lost with the power is only published again.
                replace_file(self._directory / name, pieces({"weights": weights}), durable=False)
        self._keep(name)
        return name

    def room(self, rows: int, size: int) -> Room:
        """Return a file for a matrix [rows, size] whose rows others write; there is one at a time."""
        path, shape, spare, self._spare = self._directory / ROOM, (rows, size), self._spare, None
        ((before, _),), after = frame({"weights": Layout("<f4", shape)})
        room = Room(ROOM, len(before), shape)
        with resources("write", path):
            if spare is not None and spare.room == room and spare.mapped() is None:
                with suppress(FileNotFoundError):
                    os.rename(self._directory / SPARE, path)
                    return room
            for name in (SPARE, ROOM):
                (self._directory / name).unlink(missing_ok=True)
            descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o666)
            try:
                write_all(descriptor, before)
                os.ftruncate(descriptor, end := room.offset + 4 * rows * size)
                os.lseek(descriptor, end, os.SEEK_SET)
                write_all(descriptor, after)
            finally:
                os.close(descriptor)
        return room

    def filled(self, room: Room, digests: Sequence[bytes]) -> NDArray[np.float32]:
        """Publish what is in the room now, rows with these SHA-256, and return it, mapped and read-only."""
        with resources("read", self._directory / room.name), open(self._directory / room.name, "rb") as file:
            mapped = mmap(file.fileno(), 0, access=ACCESS_READ)
        weights: NDArray[np.float32] = np.ndarray(room.shape, np.float32, mapped, room.offset)
        digest = self._digests.remember("weights", weights, digests)
        name = f"{PUBLISHED}/{digest}.h5"
        with resources("write", self._directory / name):
            os.rename(self._directory / room.name, self._directory / name)
        self._filled[name] = _Filled(room, weakref.ref(mapped))
        self._keep(name)
        return weights

    def clear(self) -> None:
        """Remove all that is left."""
        self._spare = None
        for name in (*self._names, ROOM, SPARE):
            with suppress(OSError):
                (self._directory / name).unlink()
        self._names.clear()

    def _name_of(self, weights: NDArray[np.float32]) -> str:
        """Return the file that these weights are, if they are one."""
        base: object = weights.base
        for name, (room, mapped) in self._filled.items():
            if base is not None and base is mapped() and weights.shape == room.shape:
                return name
        return ""

    def _keep(self, name: str) -> None:
        """Let a file be the newest, and remove the oldest of too many."""
        self._names = [*(other for other in self._names if other != name), name]
        while len(self._names) > KEPT:
            oldest = self._names.pop(0)
            filled = self._filled.pop(oldest, None)
            with suppress(OSError):
                if filled is None or self._spare is not None:
                    (self._directory / oldest).unlink()
                else:
                    os.rename(self._directory / oldest, self._directory / SPARE)
                    self._spare = filled
