"""The files of a run directory: their names, their largest sizes, and the version of their formats."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from evo.errors import DataError
from evo.version import __version__

FORMAT = 2  # of manifest, champion, resolved configuration and a sweep's journal (docs/file-formats.md)
CONFIG, MANIFEST = "config.resolved.toml", "manifest.jsonl"
POPULATION, RECORDS, PUBLISHED, DAMAGED = "population", "records", "published", "damaged"
CHAMPION, READABLE = "champion.h5", "champion.json"
OPPONENT = "opponent-{}.h5"  # copies of the champions that `opponents.files` names
START = "start.h5"  # a copy of the champion that `run.init_from` names
METRICS, EVALUATIONS = "metrics.jsonl", "evaluations.jsonl"
FINGERPRINT, LEARNING_FINGERPRINT = "fingerprint", "fingerprint.learning"  # of playing; of the master's updates
LARGEST_CHAMPION = 1 << 31  # bytes
LARGEST_CONFIG, LARGEST_FINGERPRINT = 1 << 22, 1 << 16


def check_format(found: object, source: str) -> None:
    """Raise a DataError that says what to do, unless a file has the format of this version."""
    if found == 1:
        raise DataError(
            f"{source}: was written in format 1 by an earlier snake-evo; this version reads format {FORMAT}: "
            "train again, or evaluate it with the version that wrote it"
        )
    if type(found) is int and found > FORMAT:
        raise DataError(
            f"{source}: was written in format {found} by a later snake-evo; this version ({__version__}) reads format "
            f"{FORMAT}: use the version that wrote it, or a later one"
        )
    if found != FORMAT or type(found) is not int:
        raise DataError(f"{source}: has format {found!r}; this version reads format {FORMAT}")


def distinguished(paths: Sequence[Path]) -> list[str]:
    """Return the last parts of every path, as few as no other path ends with: its name, where that says enough."""

    def short(path: Path) -> str:
        for length in range(1, len(path.parts)):
            if sum(other.parts[-length:] == path.parts[-length:] for other in paths) == 1:
                return "/".join(path.parts[-length:])
        return str(path)

    return [short(path) for path in paths]
