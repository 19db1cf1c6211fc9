"""Names of files and folders in a run directory, and of run directories."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

MANIFEST = "manifest.jsonl"
POPULATION, RECORDS, DAMAGED, PUBLISHED = "population", "records", "damaged", "published"
CHAMPION = "champion.h5"
START = "start.h5"  # a copy of the champion that `run.init_from` names
LARGEST_CHAMPION = 1 << 31  # bytes


def distinguished(paths: Sequence[Path]) -> list[str]:
    """Return the last parts of every path, as few as no other path ends with: its name, where that says enough."""

    def short(path: Path) -> str:
        for length in range(1, len(path.parts)):
            if sum(other.parts[-length:] == path.parts[-length:] for other in paths) == 1:
                return "/".join(path.parts[-length:])
        return str(path)

    return [short(path) for path in paths]
