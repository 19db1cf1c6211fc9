"""Workers import a user's module anew: where that is other code than the session has, it is said and not played."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.helpers.calling import ROOT

FITNESS = "TARGET = 1.0\ndef fitness(x):\n    return -((x - TARGET) ** 2).sum()\n"
SESSION = """
import sys
from pathlib import Path

import anew
import evo

search = {"start": 3, "generations": 2, "sep_cma_es": {"sigma": 0.5}}
if __name__ == "__main__":
    evo.maximise(anew.fitness, workers=1, run_dir="one", **search)
    exec(sys.argv[1])
    try:
        evo.maximise(anew.fitness, workers={"count": 2, "start": sys.argv[2]}, run_dir="two", **search)
    except evo.EvoError as error:
        print(error)
"""

ENVIRONMENT = """
import gymnasium
import numpy as np
from gymnasium.spaces import Box, Discrete
CALLS, GOAL = 0, 2
LIMIT = 9
if CALLS == 0:
    LIMIT = 5

class Walk(gymnasium.Env):
    observation_space, action_space, size = Box(0, 9, (1,)), Discrete(2), 9

    def reset(self, *, seed=None, options=None):
        global CALLS
        CALLS += 1
        self.place = 0
        return np.zeros(1, np.float32), {}

    def step(self, action):
        self.place += int(action)
        return np.full(1, self.place % 9, np.float32), 0.0, self.place >= GOAL, False, {}

gymnasium.register("Walk-v0", Walk, max_episode_steps=LIMIT)
"""
WALK = """
run = { algorithm = "ga", generations = 1 }
environment.id = "gymnasium:Walk-v0"
policy = { kind = "mlp", dense = [4] }
ga = { population = 4, parents = 2, elites = 1 }
"""
OF_ENVIRONMENT = """
import sys
import walk
import evo
if __name__ == "__main__":
    exec(sys.argv[1])
    for _ in evo.train(evo.Experiment.load("walk.toml", workers=2), "run", plugins=["walk"]):
        pass
"""


def session(folder: Path, between: str, start: str) -> tuple[str, str]:
    """Return what a session prints, and its notes, that does something between a search and one with workers."""
    (folder / "anew.py").write_text(FITNESS)
    (folder / "session.py").write_text(SESSION)
    words = [sys.executable, "session.py", between, start]
    done = subprocess.run(words, cwd=folder, capture_output=True, text=True, check=True)
    return done.stdout, done.stderr


@pytest.mark.long
@pytest.mark.parametrize("start", ["forkserver", "spawn"])
def test_code_that_was_edited_after_it_was_imported_is_refused(tmp_path: Path, start: str) -> None:
    edit = "file = Path('anew.py'); file.write_text(file.read_text().replace('x - TARGET', 'x + TARGET'))"
    out, _ = session(tmp_path, edit, start)
    assert "anew: workers have imported other code than this process has" in out


@pytest.mark.long
def test_a_number_that_was_set_from_outside_is_noted(tmp_path: Path) -> None:
    out, err = session(tmp_path, "anew.TARGET = 3.0", "forkserver")
    assert not out
    assert err.count("it reads other numbers there than in this process") == 1


@pytest.mark.long
def test_nothing_is_said_where_all_is_as_it_was(tmp_path: Path) -> None:
    assert session(tmp_path, "", "forkserver") == ("", "")


@pytest.mark.long
def test_numbers_of_an_environment_that_were_set_from_outside_are_named(tmp_path: Path) -> None:
    (tmp_path / "walk.py").write_text(ENVIRONMENT)
    (tmp_path / "walk.toml").write_text(WALK)
    (tmp_path / "session.py").write_text(OF_ENVIRONMENT)
    for between, named in (
        ("walk.GOAL = 3; walk.Walk.size = 8", ": GOAL = 3, size = 8 here; set"),
        ("walk.CALLS = 7", ""),
    ):
        words = [sys.executable, "session.py", between]
        done = subprocess.run(words, cwd=tmp_path, capture_output=True, text=True, check=True)
        assert done.stderr.count("reads other numbers") == bool(named), done.stderr
        assert named in done.stderr
        shutil.rmtree(tmp_path / "run")


def test_a_helper_in_place_of_another_of_its_size_and_second_is_the_one_that_plays(tmp_path: Path) -> None:
    (tmp_path / "own_plug.py").write_text("from own_helper import NUMBER\nplugs_into = 'operators'\nprint(NUMBER)\n")
    program = "import sys; sys.path.insert(0, ''); from evo.plugins import registry; registry.load(['own_plug'])"
    environ = {name: text for name, text in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    environ["PYTHONPATH"] = str(ROOT)
    for number in (1, 9):
        (tmp_path / "own_helper.py").write_text(f"NUMBER = {number}\n")
        os.utime(tmp_path / "own_helper.py", (1e9, 1e9))
        words = [sys.executable, "-c", program]
        done = subprocess.run(words, cwd=tmp_path, env=environ, capture_output=True, text=True, timeout=60)
        assert done.stdout == f"{number}\n", done.stderr
