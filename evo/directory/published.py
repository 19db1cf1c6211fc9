"""Weights on their way to the workers: files named by their content, of which only the last few stay."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from evo.directory.arrays import pieces
from evo.directory.durable import replace_file, resources
from evo.directory.hashing import Digests
from evo.directory.places import PUBLISHED

KEPT = 2


class Published:
    """The published files of one master."""

    def __init__(self, directory: Path, digests: Digests | None = None) -> None:
        """Nothing is published yet."""
        self._directory = directory
        self._digests = digests or Digests()
        self._names: list[str] = []

    def add(self, weights: NDArray[np.float32], committed: Mapping[str, str] | None = None) -> str:
        """Write the weights, unless equal ones are still there, and return the file's name in the run directory.

        `committed` names files that hold a matrix of weights anyway, by its digest.
        """
        if weights.ndim != 2 or weights.dtype != np.float32:
            raise ValueError(f"only float32 matrices are published, not {weights.dtype} {weights.shape}")
        digest = self._digests.of("weights", weights).sha256
        if committed and digest in committed:
            return committed[digest]
        name = f"{PUBLISHED}/{digest}.h5"
        if name in self._names:
            self._names.remove(name)
        else:
            with resources("write", self._directory / name):
                # A file that is lost with the power is only published again.
                replace_file(self._directory / name, pieces({"weights": weights}), durable=False)
        self._names.append(name)
        self._remove(self._names[:-KEPT])
        return name

    def clear(self) -> None:
        """Remove all that is left."""
        self._remove(list(self._names))

    def _remove(self, names: list[str]) -> None:
        for name in names:
            with suppress(OSError):
                (self._directory / name).unlink()
            self._names.remove(name)
