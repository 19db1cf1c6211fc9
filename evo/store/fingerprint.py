"""The numeric fingerprint of a run: keeps a run whose results depend on the machine to one arithmetic."""

from __future__ import annotations

import os
from pathlib import Path

from evo.errors import DataError, printable
from evo.files.durable import read_file, replace_file, resources

FILE = "fingerprint"
LEARNING = "fingerprint.learning"  # of the updates, which the master computes
LARGEST = 1 << 16


def hold_to(directory: Path, fingerprint: str, allow_drift: bool = False, file: str = FILE) -> None:
    """Save the numeric fingerprint of a run. Raises DataError where another one is saved.

    Exact arithmetic has an empty fingerprint, which is not saved. With `allow_drift` the new one replaces the saved.
    """
    path = directory / file
    if not fingerprint:
        return
    before = read_file(path, most=LARGEST).decode(errors="replace") if os.path.lexists(path) else ""
    if before == fingerprint:
        return
    if before and not allow_drift:
        raise DataError(
            f"{directory}: the numeric fingerprint of this machine differs from that of the run, so results would "
            f"differ too; resume on such a machine, or accept that with --allow-drift\n"
            f"  the run: {printable(before)}\n  here:    {fingerprint}"
        )
    with resources("write", path):
        replace_file(path, fingerprint.encode())
