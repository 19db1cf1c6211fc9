"""A small run, played in every way there is; as a program, what came of each way, for another instruction set."""

from __future__ import annotations

import json
import os
import sys
import tempfile
from collections.abc import Sequence
from itertools import count
from pathlib import Path

from evo.compiled import cache as kernel_cache
from evo.files.arrays import next_hash
from evo.store.store import Store
from tests.helpers.calling import summary_of
from tests.run import shaken

GENERATIONS = 4
COMMON = f"""
generations = {GENERATIONS}
[environment]
size = 6
starvation = 40
[policy]
conv = [[6, 3, 2]]
dense = [9]
[workers]
candidates_per_task = 2
[validation]
every = 2
episodes = 20
finalists = 3
[test]
every = 100
episodes = 20
"""
OWN = {
    "ga": """
population = 40
parents = 6
elites = 3
episodes = 20
sigma_spread = 1.0
""",
    "ppo": """
envs = 20
horizon = 30
envs_per_task = 7
epochs = 2
minibatches = 2
value_clip_range = 0.5
normalise_rewards = true
""",
    "pqn": """
envs = 20
horizon = 30
envs_per_task = 7
epochs = 2
minibatches = 2
""",
    "dqn": """
envs = 20
horizon = 15
envs_per_task = 7
batch_size = 300
learning_starts = 250
replay_size = 700
frames_per_update = 100
symmetry = true
""",
}
PLUGIN = ("--plugin", "tests.run.shaken", "--backend", "shaken")
NUMBERS = count()


def ended(
    where: Path,
    workers: int,
    *,
    resumed: bool = False,
    kills: int = 0,
    seed: int = 0,
    algorithm: str = "ga",
    backend: Sequence[str] = PLUGIN,
    more: Sequence[str] = (),
) -> dict[str, str]:
    """Return what a run ends with: serially for no workers, else on such that are shaken; resumed after every step.

    A learner has as many threads as there are workers; `more` are further words of the first command.
    """
    (where / "golden.toml").write_text(experiment_of(algorithm))
    os.environ["SHAKEN"] = f"{seed}:{kills}"
    words = (*backend, "--workers", workers) if workers else ("--backend", "serial")
    words = (*words, "--set", f"learner.threads={max(workers, 1)}") if algorithm != "ga" else words
    directory = f"run-{next(NUMBERS)}"
    first = 1 if resumed else GENERATIONS
    summary = summary_of(where, "golden.toml", "--run-dir", directory, "--generations", first, *words, *more)
    for generations in range(first + 1, GENERATIONS + 1):
        summary = summary_of(where, "--resume", directory, "--generations", generations, *words)
    golden, champion = golden_of(where / directory), json.dumps(summary["champion"])
    return {"golden": golden, "state_hash": summary["state_hash"], "frames": summary["frames"], "champion": champion}


def experiment_of(algorithm: str) -> str:
    """Return the experiment of such a run."""
    return f'[run]\nalgorithm = "{algorithm}"{COMMON}[{algorithm}]{OWN[algorithm]}'


def golden_of(directory: Path) -> str:
    """Return the hash over the arrays of every generation of a run, with nothing before them."""
    golden = "0" * 64
    for line in Store.read(directory).lines:
        golden = next_hash(golden, line.generation, line.arrays)
    return golden


def in_every_way(where: Path, kills: int, algorithm: str = "ga") -> list[dict[str, str]]:
    """Return what comes of a sample of all ways, in which every way to play occurs."""
    ways = [ended(where, 0, algorithm=algorithm), ended(where, 0, resumed=True, algorithm=algorithm)]
    for n in (1, 2, 3, 7):
        ways.append(ended(where, n, resumed=n == 2, kills=kills, seed=n, algorithm=algorithm))
    return ways


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as place:
        found = in_every_way(Path(place), int(sys.argv[1]), sys.argv[2])
    print(json.dumps({"features": kernel_cache.features(), "killed": shaken.killed, "ways": found}))
