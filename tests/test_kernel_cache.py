"""Compiled kernels are kept, found again by the next process, and never found after an edit."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from snake import kernel_cache

ROOT = Path(__file__).parent.parent


def test_every_module_with_kernels_says_where_they_are_kept() -> None:
    modules = [path for package in ("snake", "evo") for path in (ROOT / package).rglob("*.py")]
    compiled = [path for path in modules if "@njit(" in path.read_text("utf-8")]
    assert {path.name for path in compiled} >= {
        "lanes.py",
        "narrow.py",
        "episodes.py",
        "batch.py",
        "observe.py",
        "weights.py",
    }
    for path in compiled:
        source = path.read_text("utf-8")
        assert "kernel_cache.use(__name__)" in source.partition("@njit(")[0], path


@pytest.fixture
def sources(tmp_path: Path) -> Path:
    """Return a copy of the packages that may be edited."""
    for package in ("snake", "evo"):
        shutil.copytree(ROOT / package, tmp_path / package, ignore=shutil.ignore_patterns("__pycache__"))
    return tmp_path


@pytest.mark.parametrize(
    "edited",
    ["snake/philox_compiled.py", "evo/rollouts/episodes.py"]
    + [f"evo/policies/{name}.py" for name in ("lanes", "layout", "narrow")],
)
def test_an_edited_kernel_is_kept_elsewhere(sources: Path, edited: str) -> None:
    folders = [sources / "evo", sources / "snake"]
    before = kernel_cache.directory_name(folders)
    assert before == kernel_cache.directory_name(folders)
    with (sources / edited).open("a") as file:
        file.write("\n")
    assert kernel_cache.directory_name(folders) != before


def test_another_processor_or_an_edit_of_something_else_is_told_apart(
    sources: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folders = [sources / "evo", sources / "snake"]
    before = kernel_cache.directory_name(folders)
    with (sources / "evo" / "errors.py").open("a") as file:
        file.write("\n")
    assert kernel_cache.directory_name(folders) == before
    monkeypatch.setattr(kernel_cache.config, "CPU_FEATURES", "+sse2")
    assert kernel_cache.directory_name(folders) != before


PROGRAM = """
import numpy as np
from snake.philox_compiled import draw
print(draw(np.uint64(7), np.uint64(1), 10, np.uint64(0)), sum(draw.stats.cache_hits.values()))
"""


def run(sources: Path, cache: Path | str) -> list[str]:
    # -B: sources of one length that are edited within a second look unchanged to Python's own cache.
    environment = {**os.environ, "NUMBA_CACHE_DIR": str(cache), "PYTHONPATH": str(sources)}
    program = [sys.executable, "-B", "-c", PROGRAM]
    return subprocess.run(
        program, env=environment, cwd=sources, capture_output=True, text=True, check=True
    ).stdout.split()


def test_a_second_process_starts_from_the_cache_and_an_edit_in_another_file_does_not(sources: Path) -> None:
    cache = sources / "cache"
    value, hits = run(sources, cache)
    assert hits == "0"
    assert run(sources, cache) == [value, "1"]
    # Numba alone looks only at the file of `draw`, and would serve the old machine code.
    (sources / "snake" / "rounds.py").write_text("# numba\n")
    assert run(sources, cache) == [value, "0"]


def test_a_directory_that_cannot_be_written_is_replaced_by_a_private_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    blocked = tmp_path / "file"
    blocked.write_text("")
    monkeypatch.setenv("NUMBA_CACHE_DIR", str(blocked))
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    first = kernel_cache.root()
    assert first == kernel_cache.root()
    assert first.parent == tmp_path
    assert first.stat().st_mode & 0o777 == 0o700
    first.chmod(0o777)  # anybody could have put machine code there
    assert kernel_cache.root() != first
