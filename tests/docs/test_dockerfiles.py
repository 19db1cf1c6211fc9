"""Dockerfiles name what exists, install what a lock pins, and are built where Docker is at hand."""

from __future__ import annotations

import fnmatch
import re
import shlex
import shutil
import subprocess
import tomllib
from pathlib import Path

import pytest

from tests.helpers.calling import ROOT

FILES = [ROOT / "Dockerfile", ROOT / "docs" / "cluster" / "Dockerfile"]
INSTRUCTIONS = {"FROM", "COPY", "RUN", "ENV", "USER", "WORKDIR", "ENTRYPOINT", "CMD", "EXPOSE", "ARG"}


def instructions(file: Path) -> list[tuple[str, str]]:
    lines = file.read_text("utf-8").replace("\\\n", " ").splitlines()
    return [(line.split()[0], line.partition(" ")[2]) for line in lines if line and not line.startswith("#")]


def there_is_docker() -> bool:
    """Return whether a daemon of Docker answers; the program alone builds nothing."""
    return (
        shutil.which("docker") is not None and subprocess.run(["docker", "info"], capture_output=True).returncode == 0
    )


@pytest.mark.parametrize("file", FILES, ids=lambda file: str(file.parent.name))
def test_a_dockerfile_copies_what_exists_and_is_not_ignored(file: Path) -> None:
    found = instructions(file)
    assert {name for name, _ in found} <= INSTRUCTIONS
    ignored = [line.rstrip("/") for line in (ROOT / ".dockerignore").read_text().split() if not line.startswith("#")]
    copied = [source for name, rest in found if name == "COPY" for source in rest.split()[:-1] if source[:2] != "--"]
    assert copied
    for source in copied:
        assert (ROOT / source).exists(), source
        assert not any(fnmatch.fnmatch(source, pattern) for pattern in ignored), source
    (version,) = re.findall(r"^FROM (?:python:3\.|\S+-py3)(\d+)", file.read_text(), re.MULTILINE)
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert f"Programming Language :: Python :: 3.{version}" in project["classifiers"]


def test_the_command_of_the_first_line_trains_an_experiment_that_is_copied() -> None:
    first = FILES[0].read_text("utf-8").splitlines()[0]
    words = shlex.split(first.partition("docker run")[2])
    command = words[words.index("snake-evo") + 1 :]
    assert command[0] == "run"
    assert (ROOT / command[1]).is_file()
    assert ("COPY", "experiments /app/experiments") in instructions(FILES[0])


@pytest.mark.long
def test_the_image_is_built_and_lists_what_there_is() -> None:
    if not there_is_docker():
        pytest.skip("no daemon of Docker answers")
    subprocess.run(["docker", "build", "--quiet", "--tag", "snake-evo-test", "."], cwd=ROOT, check=True)
    subprocess.run(["docker", "run", "--rm", "snake-evo-test", "list"], check=True)
