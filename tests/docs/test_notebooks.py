"""The notebooks run from their first cell to their last, in a folder beside the experiments and the champions."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
NOTEBOOKS = sorted((ROOT / "docs" / "notebooks").glob("*.ipynb"))


def script(notebook: Path) -> str:
    """Return the code of a notebook as a script; lines that begin with "!" are commands."""
    lines = ["import shlex, subprocess, sys"]
    for cell in json.loads(notebook.read_text())["cells"]:
        for line in "".join(cell["source"]).splitlines() if cell["cell_type"] == "code" else ():
            command = line.removeprefix("!python ")
            ran = f"subprocess.run([sys.executable, *shlex.split({command!r})], check=True)"
            lines.append(line if command == line else ran)
    return "\n".join(lines)


@pytest.mark.long
@pytest.mark.parametrize("notebook", NOTEBOOKS, ids=lambda notebook: notebook.stem)
def test_a_notebook_runs_to_its_end(notebook: Path, tmp_path: Path) -> None:
    for folder in ("experiments", "champions"):
        (tmp_path / folder).symlink_to(ROOT / folder)
    (tmp_path / "notebook.py").write_text(script(notebook))
    command = [sys.executable, "notebook.py"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=900)
    assert done.returncode == 0, done.stdout + done.stderr
    assert len(done.stdout.splitlines()) > 3


def test_notebooks_are_there_without_outputs() -> None:
    cells = [cell for notebook in NOTEBOOKS for cell in json.loads(notebook.read_text())["cells"]]
    assert len(NOTEBOOKS) == 4
    assert [cell for cell in cells if cell.get("outputs")] == []
