"""The champions that ship with the project play as they say they do."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from evo.store.champion import read_champion

ROOT = Path(__file__).parents[2]
CHAMPIONS = sorted((ROOT / "champions").glob("*.h5"))


def test_champions_are_there_and_listed() -> None:
    page = (ROOT / "champions" / "README.md").read_text()
    assert CHAMPIONS
    assert [path.name for path in CHAMPIONS if f"`{path.name}`" not in page] == []


@pytest.mark.parametrize("path", CHAMPIONS, ids=lambda path: path.stem)
def test_the_list_states_the_score_that_a_champion_s_file_states(path: Path) -> None:
    page = (ROOT / "champions" / "README.md").read_text()
    assert f"`{path.name}` | {read_champion(path).about['test']['mean']:.2f}" in page


@pytest.mark.long
@pytest.mark.parametrize("path", CHAMPIONS, ids=lambda path: path.stem)
def test_a_champion_s_test_score_is_reproduced(path: Path) -> None:
    score = read_champion(path).about["test"]
    words = ["evaluate", str(path), "--episodes", str(score["episodes"]), "--block", str(score["block"]), "--json"]
    done = subprocess.run(
        [sys.executable, "-m", "evo", *words], cwd=ROOT, capture_output=True, text=True, check=True, timeout=900
    )
    assert json.loads(done.stdout.splitlines()[-1]) == {**score, "mode": "greedy"}
