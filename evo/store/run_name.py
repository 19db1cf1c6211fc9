"""The name of a run directory that nobody has named: runs/STEM-ALGORITHM-seedS-NNN."""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

from evo.errors import ConfigurationError

Made = TypeVar("Made")


def free_directory(experiment: Path, algorithm: str, seed: int, runs: Path = Path("runs")) -> Path:
    """Return the first directory that is not there yet, with the experiment's name in it."""
    stem = re.sub(r"[^A-Za-z0-9._]+", "-", experiment.stem).strip("-.")[:80] or "run"
    number = 1
    while os.path.lexists(path := runs / f"{stem}-{algorithm}-seed{seed}-{number:03}"):
        number += 1
    return path


def in_free_directory(experiment: Path, algorithm: str, seed: int, make: Callable[[Path], Made]) -> Made:
    """Return what `make` makes of the first free directory; another run that takes it in between moves us on."""
    while True:
        directory = free_directory(experiment, algorithm, seed)
        try:
            return make(directory)
        except ConfigurationError:
            if not os.path.lexists(directory):
                raise
