"""Paths of runs on the command line: which run is meant by one that is misspelt, or by a folder of runs."""

from __future__ import annotations

from argparse import Namespace
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

from evo.errors import DataError, closest
from evo.store.paths import MANIFEST


def refuse_others(words: Iterable[str]) -> None:
    """Raise a DataError that names the run that may be meant, where one of these paths is none but such a run is near.

    Other paths that are no runs pass: the command says what it needs.
    """
    for word in words:
        with suppress(OSError):  # of which the command says more
            if said := _meant(Path(word)):
                raise DataError(f"{word}: {said}")


def opened(command: str, arguments: Namespace) -> list[str]:
    """Return the paths of runs that a command opens."""
    found = getattr(arguments, "resume" if command == "run" else "run_dir", None)
    return [found] if isinstance(found, str) else found or []


def _meant(path: Path) -> str:
    """Return what is wrong with a path and which run may be meant, or nothing."""
    if not path.exists():
        close = closest(path.name, runs := _runs_in(path.parent))
        return f"no such file or directory - did you mean `{runs[close]}`?" if close else ""
    if not path.is_dir() or (path / MANIFEST).exists():
        return ""
    runs = _runs_in(path)
    return f"is a folder of runs; choose one, such as {min(runs.values())}" if runs else ""


def _runs_in(folder: Path) -> dict[str, Path]:
    """Return the run directories of a folder, by their names."""
    runs = (file.parent for file in folder.glob(f"*/{MANIFEST}"))
    return {one.name: one for one in runs if str(one).isprintable()}
