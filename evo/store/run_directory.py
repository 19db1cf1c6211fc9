"""Making a run directory: whole or not at all, and never over anything that is there."""

from __future__ import annotations

import os
import re
import shlex
import shutil
import tempfile
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

from evo.errors import ConfigurationError
from evo.files.durable import TEMPORARY, replace_file, resources, sync_directory
from evo.files.lock import LOCK, acquire, release
from evo.store.manifest import header
from evo.store.paths import MANIFEST, POPULATION, PUBLISHED, RECORDS

CONFIG = "config.resolved.toml"


def make_run_directory(directory: Path, config_toml: str, identity: Mapping[str, object]) -> int:
    """Build the directory beside its place, rename it there, and return the descriptor of its lock.

    ConfigurationError: something is there already. ResourceError: the place cannot be written.
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
            building.chmod((building / POPULATION).stat().st_mode)  # mkdtemp made it private
            sync_directory(building)
            try:
                os.rename(building, target)  # replaces an empty directory and nothing else
            except OSError:
                refuse_existing(directory)
                raise
            sync_directory(target.parent)
        return lock
    except BaseException:
        if lock is not None:
            release(lock)
        _unmake(building)
        raise


def refuse_existing(directory: Path) -> None:
    """Raise a ConfigurationError that says what to type instead, unless nothing or an empty directory is there."""
    if directory.parts[:1] and directory.parts[0].startswith("~"):
        raise ConfigurationError(f"{directory}: ~ is for the shell to replace; write the whole path, or ./~")
    target = Path(os.path.realpath(directory))
    if not os.path.lexists(target):
        above = next(parent for parent in target.parents if os.path.lexists(parent))
        if not os.path.isdir(above):
            raise ConfigurationError(f"{directory}: {above.name} is a file; choose another --run-dir")
        return
    if not target.is_dir():
        raise ConfigurationError(f"{directory} is there and is not a directory; choose another --run-dir")
    with resources("read", directory):
        empty = not any(target.iterdir())
    if not empty:
        resume = f"go on with it by `python -m evo.run --resume {shlex.quote(str(directory))}`, or "
        instead = resume if (target / MANIFEST).exists() else ""
        raise ConfigurationError(f"{directory} is there and is not empty; {instead}choose another --run-dir")


def _make_parents(directory: Path) -> None:
    if not directory.exists():
        _make_parents(directory.parent)
        directory.mkdir(exist_ok=True)
        sync_directory(directory.parent)


def _unmake(building: Path) -> None:
    """Remove what may be there of a new directory, by name: to list it would take a descriptor that may be lacking."""
    for name in (LOCK, CONFIG, MANIFEST):
        for path in (building / name, building / (name + TEMPORARY)):
            with suppress(OSError):
                path.unlink()
    for path in (building / POPULATION, building / RECORDS, building / PUBLISHED, building):
        with suppress(OSError):
            path.rmdir()


def _remove_abandoned(target: Path) -> None:
    """Remove what a process that is no more was building for the same place."""
    name = re.compile(rf"\.{re.escape(target.name)}\.(\d+)\..*{re.escape(TEMPORARY)}")
    for path in target.parent.iterdir():
        if (match := name.fullmatch(path.name)) and not os.path.exists(f"/proc/{match[1]}"):
            shutil.rmtree(path, ignore_errors=True)
