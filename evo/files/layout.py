"""The files of a run directory: their names, their largest sizes, and the version of their formats."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from contextlib import suppress
from pathlib import Path

from evo.errors import DataError, closest
from evo.version import __version__

FORKED_FROM = "forked_from"  # of a fork's identity: h[-1] of the first "run", and the hash of the "state" that it has
FORMAT = 2  # of manifest, champion, resolved configuration and a sweep's journal (docs/file-formats.md)
CONFIG, MANIFEST = "config.resolved.toml", "manifest.jsonl"
POPULATION, RECORDS, PUBLISHED, DAMAGED = "population", "records", "published", "damaged"
CHAMPION, READABLE = "champion.h5", "champion.json"
CHAMPIONS = (".h5",)  # endings of champions' files, and of all files that have networks
NETWORKS = (*CHAMPIONS, ".keras", ".onnx")
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


def near(path: Path, endings: Collection[str] = CHAMPIONS, *folders: Path) -> str:
    """Return " - did you mean ...?" with the closest file of these endings, where a path names none; else nothing.

    Looks in the folder of the path, then in `folders`. Where networks are meant, a run's directory may be too.
    """
    typed = path.stem if path.suffix in endings else path.name
    for folder in (path.parent, *folders):
        found = dict[str, Path]()
        with suppress(OSError):  # a folder that may be listed, and not searched
            files = [file for file in folder.glob("*") if file.suffix in endings and file.is_file()]
            files.sort(key=lambda file: (file.suffix == path.suffix, file.name))
            found = {file.stem: file for file in files if str(file).isprintable()}
            found |= runs_in(folder) if CHAMPIONS[0] in endings else {}
        if close := closest(typed, found):
            return f" - did you mean `{found[close]}`?"
    return ""


def runs_in(folder: Path) -> dict[str, Path]:
    """Return the directories of runs in a folder, by name."""
    runs = (file.parent for file in folder.glob(f"*/{MANIFEST}"))
    return {one.name: one for one in runs if str(one).isprintable()}
