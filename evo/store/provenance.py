"""The provenance of a run: file format, versions, machine, commit of the source tree, and numeric fingerprint."""

from __future__ import annotations

import os
import platform
import subprocess
import tomllib
from contextlib import suppress
from functools import cache
from importlib import metadata
from pathlib import Path

from evo.errors import DataError, printable
from evo.files.durable import read_file, replace_file, resources
from evo.files.layout import FINGERPRINT, FORMAT, LARGEST_FINGERPRINT

ROOT = Path(__file__).parents[2]
PACKAGES = ("snake-evo", "deap", "gymnasium", "h5py", "keras", "llvmlite", "numba", "numpy", "pydantic", "tensorflow")


def provenance() -> dict[str, object]:
    """Return the [provenance] section of a resolved configuration."""
    versions = {}
    for package in PACKAGES:
        with suppress(metadata.PackageNotFoundError):
            versions[package] = metadata.version(package)
    return {
        "format": FORMAT,
        "python": platform.python_version(),
        "machine": f"{platform.system()} {platform.machine()}",
        "versions": versions,
        "git_commit": git_commit(ROOT),
        "fingerprint": "",  # those of a run have files of their own
    }


@cache
def made_by() -> dict[str, str]:
    """Return the version of this package and the commit of its source tree; either may be empty."""
    try:
        version = str(tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["version"])
    except (OSError, tomllib.TOMLDecodeError, KeyError, TypeError):  # it does not run from its source tree
        version = ""
        with suppress(metadata.PackageNotFoundError):
            version = metadata.version(PACKAGES[0])
    return {"version": version, "git_commit": git_commit(ROOT)}


def git_commit(root: Path) -> str:
    """Return the commit that is checked out, with "-dirty" where files differ from it; empty without a repository."""
    if not (root / ".git").exists():
        return ""
    command = ["git", "-C", str(root), "describe", "--always", "--dirty", "--abbrev=40", "--exclude=*"]
    with suppress(OSError, subprocess.SubprocessError):
        done = subprocess.run(command, capture_output=True, text=True, timeout=10, check=True, stdin=subprocess.DEVNULL)
        return done.stdout.strip()
    return ""


def keep_fingerprint(directory: Path, fingerprint: str, allow_drift: bool = False, file: str = FINGERPRINT) -> None:
    """Save the numeric fingerprint of a run, which keeps it to one arithmetic; DataError where another one is saved.

    Exact arithmetic has an empty fingerprint, which is not saved. With `allow_drift` the new one replaces the saved.
    """
    path = directory / file
    if not fingerprint:
        return
    before = read_file(path, most=LARGEST_FINGERPRINT).decode(errors="replace") if os.path.lexists(path) else ""
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
