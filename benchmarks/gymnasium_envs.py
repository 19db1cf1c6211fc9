"""PPO on a registered Gymnasium environment, compared with Stable-Baselines3: the same network, batches and epochs.

    python -m benchmarks --only gymnasium_envs [--peers DIR]

Without the peer's environment nothing is measured.
"""

from __future__ import annotations

import json
import os
from pathlib import Path
from statistics import median

from benchmarks.peers import ROOT, interpreter, missing
from benchmarks.ppo import WARM, Lines, checked, ours, speed, told
from benchmarks.tables import Form, Limit, Table, number
from evo.config.experiment import Experiment

EXPERIMENT = ROOT / "experiments" / "gymnasium" / "ppo_pendulum.toml"
STEPS = 200  # of every episode, so that a generation of ours is a rollout of theirs
COUNTED, TURNS = 10, 3
LEAST = 1.0  # times Stable-Baselines3's frames
SAME = ("ppo.normalise_rewards=false", "workers.count=2")  # Stable-Baselines3 has a wrapper for it


def theirs(python: Path, frames: int) -> Lines:
    """Return frames and seconds after each rollout of Stable-Baselines3."""
    experiment = Experiment.load(EXPERIMENT, *SAME)
    described = {
        "id": experiment.environment.id.removeprefix("gymnasium:"),
        "dense": experiment.policy.model_dump()["dense"],
        "episodes": experiment.options.model_dump()["episodes"],
        "steps": STEPS,
        "ppo": experiment.options.model_dump(),
        "threads": experiment.learner.thread_count,
        "seed": 1,
    }
    command = [str(python), "-m", "benchmarks.peers.sb3_gymnasium", json.dumps(described), str(frames)]
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "CUDA_VISIBLE_DEVICES": ""}
    return [{**json.loads(line), "seconds": seconds} for seconds, line in told(command, "{", environment)]


def run(form: Form) -> Table:
    """Return the table of frames a second of both."""
    table = Table(
        "PPO on a Gymnasium environment",
        "Frames per second on two cores, learning included, of `experiments/gymnasium/ppo_pendulum.toml` without "
        "normalising rewards: 32 episodes of 200 steps a generation, 8 epochs of 8 minibatches. Ours plays whole "
        "episodes on two workers; Stable-Baselines3 steps 32 environments in its DummyVecEnv, with the same hidden "
        "layers. Medians over generations and alternating runs.",
        ("library", "frames/s", "ratio"),
    )
    python = form.peers and interpreter(form.peers, "torch")
    if not python:
        table.without(missing("torch", "Stable-Baselines3"))
        return table
    generations, done = WARM + COUNTED, {"Stable-Baselines3": list[Lines](), "ours": list[Lines]()}
    frames = generations * STEPS * Experiment.load(EXPERIMENT).options.model_dump()["episodes"]
    for _ in range(1 if form.smoke else TURNS):
        done["Stable-Baselines3"].append(theirs(python, frames))
        done["ours"].append(ours(generations, SAME, experiment=EXPERIMENT))
    for who, turns in done.items():
        for lines in turns:
            checked(who, lines, frames, (-2000, 0))
    ratio = median(speed(a) / speed(b) for a, b in zip(done["ours"], done["Stable-Baselines3"], strict=True))
    for who, turns in done.items():
        table.rows.append([who, number(median(map(speed, turns))), f"{ratio:.2f}" if who == "ours" else ""])
    table.limits.append(Limit("Gymnasium's Pendulum: times Stable-Baselines3's frames", ratio, LEAST, ratio=True))
    return table
