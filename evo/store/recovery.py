"""Recovery of a run directory after a crash or damage: find the newest intact checkpoint and clear the rest away."""

from __future__ import annotations

import hashlib
import itertools
import os
import re
import shutil
from pathlib import Path
from typing import NamedTuple

from evo.errors import DataError, counted
from evo.files.durable import TEMPORARY, read_file, resources, sync_directory
from evo.files.layout import DAMAGED, LARGEST_MANIFEST, MANIFEST, POPULATION, PUBLISHED, RECORDS
from evo.store.manifest import FileStamp, Line, Manifest, parse

KEEP_LAST = 3  # checkpoints kept, besides the best and every hundredth

_REMOVABLE = re.compile(r"(gen-\d+(-\d+)?|[0-9a-f]{64})\.h5(\.tmp)?")


class Recovered(NamedTuple):
    """The intact part of a run."""

    manifest: Manifest
    lines: tuple[Line, ...]  # up to the newest one with an intact checkpoint
    size: int  # bytes of the manifest up to there
    notices: tuple[str, ...]  # what is damaged, and what is done about it
    damaged: bool  # whether anything but an interrupted append has to be set aside


def population_file(generation: int) -> str:
    """Return the name of the checkpoint of a generation."""
    return f"{POPULATION}/gen-{generation:06d}.h5"


def verified(directory: Path, name: str, stamp: FileStamp) -> bytes:
    """Return the bytes of a file. Raises DataError unless it has the size and SHA-256 of `stamp`."""
    path = directory / name
    data = read_file(path, most=max(stamp.size, 1))
    if len(data) != stamp.size or hashlib.sha256(data).hexdigest() != stamp.sha256:
        raise DataError(f"{path}: corrupt: its size or SHA-256 is not that in the manifest")
    return data


def require_run_directory(directory: Path) -> None:
    """Raise a DataError unless the directory looks like a run directory."""
    with resources("read", directory):
        if not directory.exists():
            raise DataError(f"{directory}: no such file or directory")
        if not directory.is_dir():
            raise DataError(f"{directory}: a file, not a run directory")
        if not (directory / MANIFEST).exists():
            raise DataError(f"{directory}: not a run directory: it has no {MANIFEST}")
        for folder in (POPULATION, RECORDS, PUBLISHED, DAMAGED):
            path = directory / folder
            if path.is_symlink() or (path.exists() and not path.is_dir()):
                # Files are created and removed in these folders, so they must not lead out of the run directory.
                raise DataError(f"{path}: a link or a file, not a folder of the run")


def recover(directory: Path) -> Recovered:
    """Read the manifest up to the newest generation with an intact checkpoint; change nothing.

    Raises DataError where the first line is invalid, or no intact checkpoint is left.
    """
    path = directory / MANIFEST
    manifest = parse(read_file(path, most=LARGEST_MANIFEST), str(path))
    notices = []
    damaged = bool(manifest.damage) and not manifest.torn
    if manifest.damage:
        reason = "an append was interrupted" if manifest.torn else "this line and all after it are ignored"
        notices.append(f"{path}: {manifest.damage}; {reason}")
    named = [line for line in manifest.lines if population_file(line.generation) in line.files]
    # Retention removes older checkpoints, so only recent ones are reported as missing.
    recent = [] if damaged else named[-KEEP_LAST:]
    for line in reversed(named):
        name = population_file(line.generation)
        try:
            verified(directory, name, line.files[name])
        except DataError as error:
            if line in recent or os.path.lexists(directory / name):
                notices.append(str(error))
            damaged = True
            continue
        count = line.generation + 1
        if damaged:
            notices.append(f"{directory}: continues from the checkpoint before, after {counted(count, 'generation')}")
        return Recovered(manifest, manifest.lines[:count], manifest.ends[count], tuple(notices), damaged)
    if named or damaged:
        raise DataError(f"{directory}: no intact checkpoint is left: {'; '.join(notices)}")
    return Recovered(manifest, (), manifest.ends[0], tuple(notices), damaged)


def clean(directory: Path, recovered: Recovered) -> None:
    """Cut the manifest to its intact part and remove files that it does not name; move them aside after damage."""
    named = {name for line in recovered.lines for name in line.files}
    aside = _set_aside(directory) if recovered.damaged else None
    for folder in (POPULATION, RECORDS, PUBLISHED):
        (directory / folder).mkdir(exist_ok=True)
        for path in sorted((directory / folder).iterdir()):
            if f"{folder}/{path.name}" in named or not _REMOVABLE.fullmatch(path.name):
                continue
            if aside is None or folder == PUBLISHED or path.name.endswith(TEMPORARY):
                path.unlink()
            else:
                os.rename(path, aside / path.name)
    for path in directory.glob(f"*{TEMPORARY}"):
        if path.is_file():
            path.unlink()
    if (directory / MANIFEST).stat().st_size != recovered.size:
        descriptor = os.open(directory / MANIFEST, os.O_WRONLY | os.O_NOFOLLOW)
        try:
            os.ftruncate(descriptor, recovered.size)
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


def _set_aside(directory: Path) -> Path:
    """Make a folder for damaged files, with a copy of the whole manifest."""
    numbers = itertools.count()
    aside = next(path for number in numbers if not (path := directory / DAMAGED / f"{number:03d}").exists())
    aside.mkdir(parents=True)
    shutil.copyfile(directory / MANIFEST, aside / MANIFEST)
    sync_directory(aside)
    return aside
