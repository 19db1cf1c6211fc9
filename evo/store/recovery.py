"""What of a run directory can be believed after anything at all may have happened to it, and clearing away the rest."""

from __future__ import annotations

import hashlib
import itertools
import os
import re
import shutil
from pathlib import Path
from typing import NamedTuple

from evo.errors import DataError
from evo.files.durable import TEMPORARY, read_file, resources, sync_directory
from evo.store.manifest import FileStamp, Line, Manifest, parse
from evo.store.paths import DAMAGED, MANIFEST, POPULATION, PUBLISHED, RECORDS

KEEP_LAST = 3  # population files, besides the best and every hundredth
LARGEST_MANIFEST = 1 << 31

_OURS = re.compile(r"(gen-\d+(-\d+)?|[0-9a-f]{64}|room|spare)\.h5(\.tmp)?")


class Believed(NamedTuple):
    """The part of a run that holds."""

    manifest: Manifest
    lines: tuple[Line, ...]  # up to the newest one with a good population file
    size: int  # bytes of the manifest up to there
    notices: tuple[str, ...]  # what does not hold, and what is done about it
    damaged: bool  # whether there is anything to set aside, besides the unfinished end of an append


def population_file(generation: int) -> str:
    """Return the name of the file that keeps the state after a generation."""
    return f"{POPULATION}/gen-{generation:06d}.h5"


def verified(directory: Path, name: str, stamp: FileStamp) -> bytes:
    """Return the bytes of a file that has exactly this size and SHA-256; DataError names a file that has not."""
    path = directory / name
    data = read_file(path, most=max(stamp.size, 1))
    if len(data) != stamp.size or hashlib.sha256(data).hexdigest() != stamp.sha256:
        raise DataError(f"{path}: corrupt, not the file of the manifest (another size or SHA-256)")
    return data


def refuse_foreign(directory: Path) -> None:
    """Raise a DataError unless the directory looks like one that a run was made in."""
    with resources("read", directory):
        if not directory.exists():
            raise DataError(f"{directory}: no such file or directory")
        if not directory.is_dir():
            raise DataError(f"{directory}: a file, and not a run directory")
        if not (directory / MANIFEST).exists():
            raise DataError(f"{directory}: not a run directory: it has no {MANIFEST}")
        for folder in (POPULATION, RECORDS, PUBLISHED, DAMAGED):
            path = directory / folder
            if path.is_symlink() or (path.exists() and not path.is_dir()):
                # Files are made and removed in these: never in somebody else's directory.
                raise DataError(f"{path}: not a directory of the run's own")


def believe(directory: Path) -> Believed:
    """Read the manifest up to the newest generation whose population file is the one that its line names.

    DataError: the first line does not hold, or no good checkpoint is left.
    """
    path = directory / MANIFEST
    manifest = parse(read_file(path, most=LARGEST_MANIFEST), str(path))
    notices = []
    damaged = bool(manifest.damage) and not manifest.torn
    if manifest.damage:
        reason = "an append was interrupted there" if manifest.torn else "nothing after it can be used"
        notices.append(f"{path}: {manifest.damage}; {reason}")
    named = [line for line in manifest.lines if population_file(line.generation) in line.files]
    # Retention removes older files, so only of these is it news that they are missing.
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
            notices.append(f"{directory}: goes on from the checkpoint before it, after {count} generations")
        return Believed(manifest, manifest.lines[:count], manifest.ends[count], tuple(notices), damaged)
    if named or damaged:
        raise DataError(f"{directory}: no good checkpoint is left: {'; '.join(notices)}")
    return Believed(manifest, (), manifest.ends[0], tuple(notices), damaged)


def clean(directory: Path, believed: Believed) -> None:
    """Cut the manifest to what is believed, and remove whatever it does not speak of; damage is set aside, not lost."""
    named = {name for line in believed.lines for name in line.files}
    aside = _set_aside(directory) if believed.damaged else None
    for folder in (POPULATION, RECORDS, PUBLISHED):
        (directory / folder).mkdir(exist_ok=True)
        for path in sorted((directory / folder).iterdir()):
            if f"{folder}/{path.name}" in named or not _OURS.fullmatch(path.name):
                continue
            if aside is None or folder == PUBLISHED or path.name.endswith(TEMPORARY):
                path.unlink()
            else:
                os.rename(path, aside / path.name)
    for path in directory.glob(f"*{TEMPORARY}"):
        if path.is_file():
            path.unlink()
    if (directory / MANIFEST).stat().st_size != believed.size:
        descriptor = os.open(directory / MANIFEST, os.O_WRONLY | os.O_NOFOLLOW)
        try:
            os.ftruncate(descriptor, believed.size)
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


def _set_aside(directory: Path) -> Path:
    """Make an empty folder for what is damaged, with a copy of the whole manifest in it."""
    numbers = itertools.count()
    aside = next(path for number in numbers if not (path := directory / DAMAGED / f"{number:03d}").exists())
    aside.mkdir(parents=True)
    shutil.copyfile(directory / MANIFEST, aside / MANIFEST)
    sync_directory(aside)
    return aside
