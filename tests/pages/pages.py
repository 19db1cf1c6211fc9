"""Pages of champions, what is in them, and Node, which runs their scripts."""

from __future__ import annotations

import base64
import json
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from evo.config.environments import environment_of
from evo.config.experiment import Experiment
from evo.environment import Environment
from evo.networks.network import Network
from evo.records import Episodes, Result, Task, WeightSource
from evo.report.champion import script, scripts_of
from evo.rollouts.rollout import Rollout

NODE = shutil.which("node")
HARNESS = Path(__file__).with_name("page_in_node.js")

needs_node = pytest.mark.skipif(NODE is None, reason="there is no node, which runs the scripts of a page")


def data_of(page: str) -> dict[str, Any]:
    """Return the data of a page."""
    (told,) = re.findall(r'<script type="application/json" id="data">(.*?)</script>', page, re.DOTALL)
    found: dict[str, Any] = json.loads(told)
    return found


def core_of(page: str) -> str:
    """Return the script of a page that plays."""
    (found,) = re.findall(r'<script id="core">(.*?)</script>', page, re.DOTALL)
    return str(found)


def core_for(game: str, **options: Any) -> str:
    """Return the scripts that play a game."""
    scripts = scripts_of(environment_named(game, **options))
    assert scripts is not None
    return script(scripts.core)


def environment_named(game: str, **options: Any) -> Any:
    """Return the environment of a game with these options."""
    return environment_of(Experiment.build(environment={"id": game, **options}).environment)


def in_node(where: Path, *jobs: dict[str, Any], core: str = "") -> list[Any]:
    """Return the answers of page_in_node.js to these jobs, by the script of a page or by those of the package."""
    file = where / "core.js"
    file.write_text(core or core_for("snake"))
    done = subprocess.run(
        [str(NODE), str(HARNESS), str(file)], input=json.dumps(jobs), capture_output=True, text=True, timeout=600
    )
    assert done.returncode == 0, done.stderr
    answers: list[Any] = json.loads(done.stdout)
    return answers


def said_of_damage(page: str) -> str:
    """Return what Node says that a page shows where it is not whole; nothing where it is."""
    words = [str(NODE), str(HARNESS.with_name("opened_in_node.js"))]
    return subprocess.run(words, input=page, capture_output=True, text=True, timeout=600, check=True).stdout


def hexed(seeds: NDArray[np.uint64]) -> list[str]:
    """Return 64-bit numbers as text: JSON in JavaScript holds no more than 53 bits."""
    return [f"{int(seed):016x}" for seed in seeds]


def bits_of(told: str, outputs: int) -> NDArray[np.uint32]:
    """Return the bits of outputs that Node has written.  # [T, O]"""
    return np.frombuffer(base64.b64decode(told), "<u4").reshape(-1, outputs)


def played(
    network: Network, environment: Environment, weights: NDArray[np.float32], seeds: NDArray[np.uint64]
) -> Result:
    """Return what the compiled kernel makes of these episodes, with every action and every output."""
    task = Task(WeightSource.of_row(), Episodes(seeds), record_actions=True, record_transitions=True)
    return Rollout(network, environment).play(task, weights[None])


def assert_equal(result: Result, answers: list[Any], outputs: int) -> None:
    """Compare every action and every bit of every output."""
    assert result.finite[0]
    assert result.transitions is not None
    assert result.actions is not None
    ends = np.cumsum(result.lengths[0], dtype=np.int64)[:-1]
    expected = np.split(np.ascontiguousarray(result.transitions.outputs).view(np.uint32), ends)
    for k, (bits, answer) in enumerate(zip(expected, answers, strict=True)):
        assert result.actions[k].tolist() == answer["actions"]
        np.testing.assert_array_equal(bits, bits_of(answer["outputs"], outputs))
        assert [answer["score"], int(answer["won"])] == result.episode_metrics[0, k, :2].tolist()
        assert answer["steps"] == result.lengths[0, k]
