"""Writes the files of a release that later versions must read: `python -m tests.releases.stored`, before a release.

They are in a ZIP file of the version's name: runs, a champion, a sweep, a comparison, and for every algorithm
and every environment of this program the options that a run begun with the defaults is identified by.
"""

from __future__ import annotations

import json
import shutil
import tempfile
import zipfile
from pathlib import Path
from typing import Any

from evo import Experiment
from evo.plugins import registry
from evo.version import __version__
from tests.helpers.calling import called, summary_of

HERE = Path(__file__).parent
EXPERIMENT = """
[run]
generations = 3
[environment]
id = "catch"
[policy]
kind = "mlp"
dense = [4]
[workers]
backend = "serial"
[validation]
every = 1
episodes = 8
[test]
episodes = 32
[ga]
population = 8
parents = 4
elites = 2
episodes = 4
[ppo]
envs = 4
horizon = 8
minibatches = 2
[dqn]
envs = 4
horizon = 8
learning_starts = 32
replay_size = 512
batch_size = 8
"""
COMPARISON = """
[comparison]
experiments = ["experiment.toml"]
algorithms = ["ga", "ppo"]
seeds = [1, 2]
frames = 1000
"""
CONTINUOUS: dict[str, Any] = {"environment": {"id": "pendulum"}, "policy": {"kind": "mlp"}}
RUNS = ("ga", "ppo", "dqn")
MORE = 5  # generations that a run is resumed to
SWEEP = ("sweep", "experiment.toml", "--over", "ga.sigma=0.1,0.2", "--seeds", 2, "--retest", 2, "--directory", "sweep")


def identities() -> dict[str, dict[str, Any]]:
    """Return what identifies a run with the defaults of every algorithm, and the defaults of every environment."""
    ids = [name for name in registry.names("environments") if name not in ("gymnasium", "problem")]
    algorithms = {
        name: Experiment.build(run={"algorithm": name}, **(CONTINUOUS if name in ("sac", "td3") else {}))
        for name in registry.names("algorithms")
    }
    environments = {
        name: Experiment.build(environment={"id": name}, policy={"kind": "mlp"}).environment
        for name in (*ids, "gymnasium:CartPole-v1")
    }
    return {
        "algorithms": {name: experiment.identity() for name, experiment in algorithms.items()},
        "environments": {name: options.model_dump() for name, options in environments.items()},
    }


def write(place: Path) -> None:
    """Write a release's files into an empty folder."""
    (place / "experiment.toml").write_text(EXPERIMENT.lstrip())
    (place / "comparison.toml").write_text(COMPARISON.lstrip())
    hashes = {}
    for algorithm in RUNS:
        words = ("experiment.toml", "--algorithm", algorithm)
        summary_of(place, *words, "--run-dir", algorithm)
        hashes[algorithm] = summary_of(place, *words, "--run-dir", "whole", "--generations", MORE)["state_hash"]
        shutil.rmtree(place / "whole")
        (place / algorithm / "report.html").unlink()
    called(place, *SWEEP, program="evo")
    for folder in (path for path in (place / "sweep").iterdir() if path.is_dir()):
        shutil.rmtree(folder)
    shutil.copy(place / "ga" / "champion.h5", place)
    (place / "about.json").write_text(json.dumps({"state_hashes": hashes, **identities()}, sort_keys=True))


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        write(Path(folder))
        with zipfile.ZipFile(HERE / f"{__version__}.zip", "w", zipfile.ZIP_DEFLATED, compresslevel=9) as packed:
            for path in sorted(path for path in Path(folder).rglob("*") if path.is_file()):
                packed.write(path, path.relative_to(folder))
