"""Create a run directory atomically, with its provenance, and recover it after a crash or damage."""

from __future__ import annotations

import itertools
import os
import platform
import re
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from functools import cache
from importlib import metadata
from pathlib import Path
from typing import NamedTuple, TypeVar

from evo.errors import ConfigurationError, DataError, counted, printable, refuse_control
from evo.files.durable import TEMPORARY, lines_of, read_file, replace_file, resources, sync_directory
from evo.files.layout import (
    CONFIG,
    DAMAGED,
    FINGERPRINT,
    FORMAT,
    LARGEST_FINGERPRINT,
    MANIFEST,
    METRICS,
    OPPONENT,
    POPULATION,
    PUBLISHED,
    RECORDS,
    START,
    near,
)
from evo.files.lock import LOCK, acquire, is_running, release, runs
from evo.plugins.registry import command
from evo.store.checkpoints import KEEP_LAST, damaged_records, population_file, verified
from evo.store.manifest import Line, Manifest, header, parse
from evo.version import __version__

ROOT = Path(__file__).parents[2]
PACKAGES = ("deap", "gymnasium", "h5py", "keras", "llvmlite", "numba", "numpy", "pydantic", "tensorflow")

Made = TypeVar("Made")

_REMOVABLE = re.compile(r"(gen-\d+(-\d+)?|[0-9a-f]{64})\.h5(\.tmp)?")


def make_run_directory(directory: Path, config_toml: str, identity: Mapping[str, object]) -> int:
    """Build the directory under a temporary name, rename it, and return the descriptor of its lock.

    ConfigurationError where something is there already, ResourceError where the disk cannot be written.
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
            with suppress(PermissionError):  # of a file system without modes
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


def occupied(path: Path) -> str:
    """Return which file or run stands in the place of a directory or above it, as in "x is a run"; empty: none."""
    target = Path(os.path.realpath(path))
    run = next((one for one in (target, *target.parents) if (one / MANIFEST).is_file()), None)
    name = file_instead(path)
    return f"{name} is a file" if name else f"{printable(run.name)} is a run" if run else ""


def refuse_existing(directory: Path, option: str = "--run-dir") -> None:
    """Raise a ConfigurationError that says what to type, unless `option` names a free place or an empty directory."""
    refuse_control(str(directory))  # no command could name it
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
    if os.path.samestat(os.stat(target), os.stat(".")):
        raise ConfigurationError(f"{directory} is the current directory, which a run replaces; choose another {option}")


def _make_parents(directory: Path) -> None:
    if not directory.exists():
        _make_parents(directory.parent)
        directory.mkdir(exist_ok=True)
        sync_directory(directory.parent)


def remove_new(building: Path) -> None:
    """Remove a run directory without generations file by file, as a descriptor to list it may be lacking."""
    for name in (LOCK, CONFIG, MANIFEST):
        for path in (building / name, building / (name + TEMPORARY)):
            with suppress(OSError):
                path.unlink()
    for path in (building / POPULATION, building / RECORDS, building / PUBLISHED, building):
        with suppress(OSError):
            path.rmdir()


def _remove_abandoned(target: Path) -> None:
    """Remove partly built directories of dead processes for the same run directory, also of other containers."""
    name = re.compile(rf"\.{re.escape(target.name)}\.(\d+)\..*{re.escape(TEMPORARY)}")
    for path in target.parent.iterdir():
        if (match := name.fullmatch(path.name)) and not (runs(int(match[1])) or is_running(path)):
            shutil.rmtree(path, ignore_errors=True)


def free_directory(experiment: Path, algorithm: str, seed: int) -> Path:
    """Return the first free directory runs/STEM-ALGORITHM-seedS-NNN."""
    name = f"{plain(experiment.stem)}-{algorithm}-seed{seed}"
    numbers = itertools.count(1)
    return next(path for n in numbers if not os.path.lexists(path := Path("runs") / f"{name}-{n:03}"))


def plain(stem: str) -> str:
    """Return a file's name as a part of a directory's name."""
    return re.sub(r"[^A-Za-z0-9._]+", "-", stem).strip("-.")[:80] or "run"


def in_free_directory(experiment: Path, algorithm: str, seed: int, make: Callable[[Path], Made]) -> Made:
    """Return `make` of the first free directory; try the next one where another run has just taken it."""
    while True:
        directory = free_directory(experiment, algorithm, seed)
        try:
            return make(directory)
        except ConfigurationError:
            if not os.path.lexists(directory):
                raise


class Recovered(NamedTuple):
    """The intact part of a run."""

    manifest: Manifest
    lines: Sequence[Line]  # up to the newest one with an intact checkpoint
    size: int  # bytes of the manifest up to there
    notices: tuple[str, ...]  # what is damaged, and what is done about it
    damaged: bool  # whether anything but an interrupted append has to be set aside


def require_run_directory(directory: Path) -> None:
    """Raise a DataError unless the directory looks like a run directory."""
    with resources("read", directory):
        if not directory.exists():
            raise DataError(f"{directory}: no such file or directory{near(directory)}")
        if not directory.is_dir():
            raise DataError(f"{directory}: a file, not a run directory")
        if not (directory / MANIFEST).exists():
            raise DataError(f"{directory}: not a run directory: it has no {MANIFEST}")
        for folder in (POPULATION, RECORDS, PUBLISHED, DAMAGED):
            path = directory / folder
            if path.is_symlink() or (path.exists() and not path.is_dir()):
                # Files are created and removed in these folders, so they must not lead out of the run directory.
                raise DataError(f"{path}: a link or a file, not a folder of the run")
        for path in (directory / START, *directory.glob(OPPONENT.format("*"))):
            if path.is_symlink() or path.is_dir():  # a folder would stand for the champion in it
                raise DataError(f"{path}: a link or a folder, not a file of the run")


def recover(directory: Path, descriptor: int | None = None) -> Recovered:
    """Read the manifest up to the newest generation with an intact checkpoint; change nothing.

    With the `descriptor` of the manifest, its lines take no memory, and of the newest checkpoints one is preferred
    whose generation has an intact record too, which an algorithm may need to go on. Raises DataError where the first
    line is invalid, or no intact checkpoint is left.
    """
    path = directory / MANIFEST
    manifest = parse(lines_of(path), str(path), descriptor)
    notices = []
    damaged = bool(manifest.damage) and not manifest.torn
    if manifest.damage:
        reason = "an append was interrupted" if manifest.torn else "this line and all after it are ignored"
        notices.append(f"{path}: {manifest.damage}; {reason}")
    recent = 0 if damaged else KEEP_LAST  # retention removes older checkpoints, so only these are reported as missing
    without_record = None
    for line in reversed(manifest.lines):
        name = population_file(line.generation)
        if name not in line.files:
            continue
        try:
            verified(directory, name, line.files[name])
        except DataError as error:
            if recent > 0 or os.path.lexists(directory / name):
                notices.append(str(error))
            damaged, recent = True, recent - 1
            continue
        count = line.generation + 1
        before = f"{directory}: continues from the checkpoint before, after {counted(count, 'generation')}"
        said = (*notices, before) if damaged else tuple(notices)
        found = Recovered(manifest, manifest.lines[:count], manifest.ends[count], said, damaged)
        lost = damaged_records(directory, [line]) if descriptor is not None else []
        if not lost:
            return found
        if without_record is None:
            without_record = found
        if recent <= 0:
            break
        notices, damaged, recent = [*notices, *lost], True, recent - 1
    if without_record is not None:
        return without_record
    if damaged:
        raise DataError(f"{directory}: no intact checkpoint is left: {'; '.join(notices)}")
    return Recovered(manifest, manifest.lines[:0], manifest.ends[0], tuple(notices), damaged)


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
    """Make a folder for damaged files, with copies of the whole manifest and metrics."""
    numbers = itertools.count()
    aside = next(path for number in numbers if not (path := directory / DAMAGED / f"{number:03d}").exists())
    aside.mkdir(parents=True)
    shutil.copyfile(directory / MANIFEST, aside / MANIFEST)
    with suppress(OSError):
        shutil.copyfile(directory / METRICS, aside / METRICS, follow_symlinks=False)
    sync_directory(aside)
    return aside


def provenance() -> dict[str, object]:
    """Return the [provenance] section of a resolved configuration."""
    return {
        "format": FORMAT,
        "python": platform.python_version(),
        "machine": f"{platform.system()} {platform.machine()}",
        "versions": {"snake-evo": __version__, **_versions()},
        "git_commit": made_by()["git_commit"],
        "fingerprint": "",  # those of a run have files of their own
    }


@cache
def _versions() -> dict[str, str]:
    """Return the versions of the packages that are installed: read once a process, which keeps what it has loaded."""
    found = {}
    for package in (*PACKAGES, "tensorflow-cpu"):
        with suppress(metadata.PackageNotFoundError):
            found[package] = metadata.version(package)
    return found


@cache
def made_by() -> dict[str, str]:
    """Return the version of this package and the commit of its source tree, which may be empty."""
    return {"version": __version__, "git_commit": git_commit(ROOT)}


def git_commit(root: Path) -> str:
    """Return the commit that is checked out, with "-dirty" where files differ from it; empty without a repository."""
    if not (root / ".git").exists():
        return ""
    command = ["git", "-C", str(root), "describe", "--always", "--dirty", "--abbrev=40", "--exclude=*"]
    with suppress(OSError, subprocess.SubprocessError):
        done = subprocess.run(
            command, capture_output=True, encoding="utf-8", timeout=10, check=True, stdin=subprocess.DEVNULL
        )
        return done.stdout.strip()
    return ""


def keep_fingerprint(directory: Path, fingerprint: str, allow_drift: bool = False, file: str = FINGERPRINT) -> None:
    """Save a run's numeric fingerprint, unless it is empty, as of exact arithmetic; DataError: another is saved."""
    path = directory / file
    if not fingerprint:
        return
    before = read_file(path, most=LARGEST_FINGERPRINT).decode(errors="replace") if os.path.lexists(path) else ""
    if before == fingerprint:
        return
    if before and not allow_drift:
        raise DataError(
            f"{directory}: the numeric fingerprint of this machine differs from that of the run, so results would "
            "differ too; resume on such a machine, or accept that with --allow-drift",
            f"  the run: {before}",
            f"  here:    {fingerprint}",
        )
    with resources("write", path):
        replace_file(path, fingerprint.encode())
