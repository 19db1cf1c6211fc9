"""The provenance of a run: file format, versions, machine, and commit of the source tree."""

from __future__ import annotations

import platform
import subprocess
import tomllib
from contextlib import suppress
from functools import cache
from importlib import metadata
from pathlib import Path

from evo.files.format import FORMAT

ROOT = Path(__file__).parents[2]
PACKAGES = ("snake-evo", "deap", "gymnasium", "h5py", "keras", "llvmlite", "numba", "numpy", "pydantic", "tensorflow")


def provenance(fingerprint: str = "") -> dict[str, object]:
    """Return the [provenance] section of a resolved configuration; `fingerprint` is empty for exact arithmetic."""
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
        "fingerprint": fingerprint,
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
