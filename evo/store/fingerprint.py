"""Holds a run to one arithmetic: where results depend on the machine, its fingerprint is kept beside them."""

from __future__ import annotations

import os
from pathlib import Path

from evo.errors import DataError, printable
from evo.files.durable import read_file, replace_file, resources

FILE = "fingerprint"
LEARNING = "fingerprint.learning"  # of updates, which are computed elsewhere than episodes
LARGEST = 1 << 16


def hold_to(directory: Path, fingerprint: str, allow_drift: bool = False, file: str = FILE) -> None:
    """Keep the fingerprint of a run's arithmetic; DataError where the run was begun with another one.

    Exact arithmetic has none. With `allow_drift` the new one is kept from now on.
    """
    path = directory / file
    if not fingerprint:
        return
    before = read_file(path, most=LARGEST).decode(errors="replace") if os.path.lexists(path) else ""
    if before == fingerprint:
        return
    if before and not allow_drift:
        raise DataError(
            f"{directory}: this machine computes other bits than the one that the run was made on, so the run would "
            f"not be what it would have been there; --allow-drift goes on all the same\n"
            f"  the run: {printable(before)}\n  here:    {fingerprint}"
        )
    with resources("write", path):
        replace_file(path, fingerprint.encode())
