"""Published weights: files named by the digest of their content, which workers map into memory."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from evo.files.arrays import pieces
from evo.files.durable import replace_file, resources
from evo.files.hashing import Digests
from evo.files.layout import PUBLISHED

KEPT = 2  # files that stay


class Published:
    """The published files of a run directory."""

    def __init__(self, directory: Path, digests: Digests | None = None) -> None:
        self.directory = directory
        self._digests = digests or Digests()
        self._names: list[str] = []

    def publish(self, weights: NDArray[np.float32], committed: Mapping[str, str] | None = None) -> str:
        """Write weights [S, P], unless a file has them, and return the file's name in the run directory.

        `committed` maps digests of weights to checkpoints that hold them.
        """
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
        while len(self._names) > KEPT:
            with suppress(OSError):
                (self.directory / self._names.pop(0)).unlink()
        return name

    def clear(self) -> None:
        """Remove all published files."""
        for name in self._names:
            with suppress(OSError):
                (self.directory / name).unlink()
        self._names.clear()
