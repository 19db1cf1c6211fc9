"""What is published stays true: experiment files load, and the quick one reaches the score that its page states."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from evo.config import loading

ROOT = Path(__file__).parent.parent
EXPERIMENTS = sorted((ROOT / "experiments").glob("*.toml"))
# Fruits: the lower end of the 95 % interval of the test score is above this. Each takes a minute or two, or less.
SCORES_6X6 = {"ga": 12.0, "ppo": 18.0, "a2c": 24.0, "pqn": 20.0, "dqn": 24.0}


@pytest.mark.parametrize("path", EXPERIMENTS, ids=[path.stem for path in EXPERIMENTS])
def test_a_published_experiment_loads_and_stops_by_generations(path: Path) -> None:
    experiment = loading.load(path)
    assert experiment.generations > 0
    assert not experiment.run.budget.seconds


@pytest.mark.long
@pytest.mark.parametrize("method", SCORES_6X6)
def test_the_small_board_is_learned_to_its_stated_score(method: str, tmp_path: Path) -> None:
    experiment = f"experiments/{method}_snake_6x6.toml"
    command = [sys.executable, "-m", "evo.run", experiment, "--run-dir", str(tmp_path / "run")]
    done = subprocess.run([*command, "--json"], cwd=ROOT, capture_output=True, text=True, check=True)
    summary = json.loads(done.stdout.splitlines()[-1])
    score = summary["champion"]["test"]
    assert summary["status"] == "done"
    assert score["episodes"] == 500
    assert score["ci95"][0] > SCORES_6X6[method]
