"""Create a run directory atomically, never over an existing one; runs/STEM-ALGORITHM-seedS-NNN by default."""

from __future__ import annotations

import os
import re
import shutil
import tempfile
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import TypeVar

from evo.errors import ConfigurationError
from evo.files.durable import TEMPORARY, replace_file, resources, sync_directory
from evo.files.layout import CONFIG, MANIFEST, POPULATION, PUBLISHED, RECORDS
from evo.files.lock import LOCK, acquire, release
from evo.plugins.registry import command
from evo.store.manifest import header

Made = TypeVar("Made")


def make_run_directory(directory: Path, config_toml: str, identity: Mapping[str, object]) -> int:
    """Build the directory under a temporary name, rename it, and return the descriptor of its lock.

    Raises ConfigurationError where something is there already, ResourceError where the disk cannot be written.
    """
    target = Path(os.path.realpath(directory))
    refuse_existing(directory)
    with resources("create", directory):
        _make_parents(target.parent)
        _remove_abandoned(target)
        building = Path(tempfile.mkdtemp(TEMPORARY, f".{target.name}.{os.getpid()}.", target.parent))
    lock = None
    try:
        with resources("create", directory):
            lock = acquire(building)
            for name in (POPULATION, RECORDS, PUBLISHED):
                (building / name).mkdir()
            replace_file(building / CONFIG, config_toml.encode())
            replace_file(building / MANIFEST, header(identity))
            building.chmod((building / POPULATION).stat().st_mode)  # mkdtemp creates it with mode 700
            sync_directory(building)
            try:
                os.rename(building, target)  # replaces nothing but an empty directory
            except OSError:
                refuse_existing(directory)
                raise
            sync_directory(target.parent)
        return lock
    except BaseException:
        if lock is not None:
            release(lock)
        remove_new(building)
        raise


def file_instead(directory: Path) -> str:
    """Return the name of a file that stands in the place of a directory or above it; empty where there is none."""
    target = Path(os.path.realpath(directory))
    there = next(path for path in (target, *target.parents) if os.path.lexists(path))
    return "" if there.is_dir() else there.name


def refuse_existing(directory: Path, option: str = "--run-dir") -> None:
    """Raise a ConfigurationError that says what to type instead, unless the place is free or an empty directory.

    `option` is the one that names the directory.
    """
    if directory.parts[:1] and directory.parts[0].startswith("~"):
        raise ConfigurationError(f"{directory}: ~ was not expanded by the shell; write the whole path, or ./~")
    target = Path(os.path.realpath(directory))
    if not os.path.lexists(target):
        if name := file_instead(directory):
            raise ConfigurationError(f"{directory}: {name} is a file; choose another {option}")
        return
    if not target.is_dir():
        raise ConfigurationError(f"{directory} exists and is not a directory; choose another {option}")
    with resources("read", directory):
        empty = not any(target.iterdir())
    if not empty:
        resume = f"resume it with `{command('evo', 'resume', str(directory))}`, or "
        instead = resume if (target / MANIFEST).exists() else ""
        raise ConfigurationError(f"{directory} exists and is not empty; {instead}choose another {option}")


def _make_parents(directory: Path) -> None:
    if not directory.exists():
        _make_parents(directory.parent)
        directory.mkdir(exist_ok=True)
        sync_directory(directory.parent)


def remove_new(building: Path) -> None:
    """Remove a run directory without generations, also a partly built one.

    It goes file by file: listing it would need a descriptor, which may be lacking.
    """
    for name in (LOCK, CONFIG, MANIFEST):
        for path in (building / name, building / (name + TEMPORARY)):
            with suppress(OSError):
                path.unlink()
    for path in (building / POPULATION, building / RECORDS, building / PUBLISHED, building):
        with suppress(OSError):
            path.rmdir()


def _remove_abandoned(target: Path) -> None:
    """Remove partly built directories of dead processes for the same run directory."""
    name = re.compile(rf"\.{re.escape(target.name)}\.(\d+)\..*{re.escape(TEMPORARY)}")
    for path in target.parent.iterdir():
        if (match := name.fullmatch(path.name)) and not _runs(int(match[1])):
            shutil.rmtree(path, ignore_errors=True)


def _runs(process: int) -> bool:
    """Return whether there is a process with this id, also of another user."""
    try:
        os.kill(process, 0)
    except (ProcessLookupError, OverflowError):
        return False
    except PermissionError:
        pass
    return True


def free_directory(experiment: Path, algorithm: str, seed: int) -> Path:
    """Return the first free directory runs/STEM-ALGORITHM-seedS-NNN."""
    stem = re.sub(r"[^A-Za-z0-9._]+", "-", experiment.stem).strip("-.")[:80] or "run"
    number = 1
    while os.path.lexists(path := Path("runs") / f"{stem}-{algorithm}-seed{seed}-{number:03}"):
        number += 1
    return path


def in_free_directory(experiment: Path, algorithm: str, seed: int, make: Callable[[Path], Made]) -> Made:
    """Return `make` of the first free directory; try the next one where another run has just taken it."""
    while True:
        directory = free_directory(experiment, algorithm, seed)
        try:
            return make(directory)
        except ConfigurationError:
            if not os.path.lexists(directory):
                raise
