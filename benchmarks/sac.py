"""SAC compared with Stable-Baselines3's: the same environments, layers, batches and updates per frame.

    python -m benchmarks --only sac [--peers DIR]

Without the peer's environment nothing is measured.
"""

from __future__ import annotations

import json
import os
from pathlib import Path
from statistics import median

from benchmarks.peers import ROOT, interpreter, missing
from benchmarks.ppo import TIMEOUT, WARM, Lines, checked, ours, speed, told
from benchmarks.tables import Form, Limit, Table, number
from evo.config.experiment import Experiment

EXPERIMENT = ROOT / "experiments" / "games" / "sac_pendulum.toml"
SETTING = (
    "environment.id=gymnasium:Pendulum-v1", "environment.rescale_actions=true", "policy.dense=[256, 256]",
    "sac.envs=4", "sac.envs_per_task=2", "sac.batch_size=256", "sac.learning_starts=256",  # one generation
    "workers.count=2", "learner.threads=2",
)  # fmt: skip
COUNTED, TURNS = 8, 3
LEAST = 1.0  # times Stable-Baselines3's frames
PEER = "Stable-Baselines3"


def theirs(python: Path, frames: int) -> Lines:
    """Return frames and seconds after each rollout of Stable-Baselines3."""
    experiment = Experiment.load(EXPERIMENT, *SETTING)
    described = {
        "id": experiment.environment.id.removeprefix("gymnasium:"),
        "dense": experiment.policy.model_dump()["dense"],
        "sac": experiment.options.model_dump(),
        "threads": 2,
        "seed": 1,
    }
    words = json.dumps(described), str(TIMEOUT), str(frames)
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "CUDA_VISIBLE_DEVICES": ""}
    lines = told([str(python), "-m", "benchmarks.peers.sb3_sac", *words], "{", environment)
    return [{**json.loads(line), "seconds": seconds} for seconds, line in lines]


def run(form: Form) -> Table:
    """Return the table of frames a second of both."""
    table = Table(
        "SAC on a Gymnasium environment",
        "Frames per second on two cores, learning included, of Gymnasium's Pendulum: 4 environments, an update of 256 "
        "transitions per frame, and three networks of two hidden layers of 256 units. Ours plays on two workers, which "
        "wait while two threads learn. Medians over generations and alternating runs.",
        ("library", "frames/s", "ratio"),
    )
    python = form.peers and interpreter(form.peers, "torch")
    if not python:
        table.without(missing("torch", PEER))
        return table
    options = Experiment.load(EXPERIMENT, *SETTING).options.model_dump()
    # Three are enough for the 200 steps of an episode: a mean return shows that both play the same.
    generations, done = WARM + (3 if form.smoke else COUNTED), {PEER: list[Lines](), "ours": list[Lines]()}
    frames = generations * options["envs"] * options["horizon"]
    for _ in range(1 if form.smoke else TURNS):
        for who, lines in ((PEER, theirs(python, frames)), ("ours", ours(generations, SETTING, experiment=EXPERIMENT))):
            done[who].append(checked(who, lines, frames, (-2000, 1)))
    ratio = median(speed(a) / speed(b) for a, b in zip(done["ours"], done[PEER], strict=True))
    for who, turns in done.items():
        table.rows.append([who, number(median(map(speed, turns))), f"{ratio:.2f}" if who == "ours" else ""])
    table.limits.append(Limit(f"SAC: times {PEER}'s frames", ratio, LEAST, ratio=True))
    return table
