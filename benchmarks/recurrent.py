"""PPO with an LSTM, compared with sb3-contrib's RecurrentPPO: the same game, network, minibatches and epochs.

    python -m benchmarks --only recurrent [--peers DIR]

Without the peer's environment nothing is measured.
"""

from __future__ import annotations

import json
import math
import os
from pathlib import Path
from statistics import median
from typing import Any

from benchmarks.peers import ROOT, interpreter, missing
from benchmarks.ppo import TIMEOUT, WARM, Lines, checked, ours, speed, told
from benchmarks.tables import Form, Limit, Table, number
from evo.config.experiment import Experiment

EXPERIMENT = ROOT / "experiments" / "games" / "ppo_cartpole_positions.toml"
UNITS = 64
SETTING = (f"policy.memory=lstm:{UNITS}", "learner.threads=1", "workers.count=1")
COUNTED, TURNS, SEEDS = 10, 3, 5
GOOD, LONGEST = 400.0, 2_000_000  # a mean return, and frames after which nobody waits for it any more
FASTER, SOONER = 4.0, 3.0  # times RecurrentPPO's frames a second, and its seconds until the mean return is good
PEER = "sb3-contrib's RecurrentPPO"


def described(seed: int) -> dict[str, Any]:
    """Return what the peer learns, as a JSON object."""
    experiment = Experiment.load(EXPERIMENT, *SETTING)
    return {
        "environment": experiment.environment.model_dump(exclude={"training", "training_generations"}),
        "units": UNITS,
        "ppo": experiment.options.model_dump(),
        "threads": experiment.learner.thread_count,
        "seed": seed,
    }


def theirs(python: Path, frames: int, good: float = math.inf, seed: int = 1) -> Lines:
    """Return frames, seconds since the command was given and the mean return after each rollout of the peer."""
    words = json.dumps(described(seed)), str(TIMEOUT), str(frames), str(good)
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "CUDA_VISIBLE_DEVICES": ""}
    lines = told([str(python), "-m", "benchmarks.peers.recurrent_ppo", *words], "{", environment)
    return [{**json.loads(line), "seconds": seconds} for seconds, line in lines]


def seconds_to(lines: Lines) -> float:
    """Return after how many seconds the mean return was good; infinity where it never was."""
    return min((line["seconds"] for line in lines if (line["mean"] or 0.0) >= GOOD), default=math.inf)


def run(form: Form) -> Table:
    """Return the table of frames a second, and of seconds until a mean return is good."""
    table = Table(
        "PPO with memory",
        f"CartPole without velocities, an LSTM of {UNITS} units, learning included, on one core each: "
        "`experiments/games/ppo_cartpole_positions.toml`. RecurrentPPO steps our compiled vector environment. Frames "
        "per second are medians over generations and alternating runs; seconds to a mean return of "
        f"{GOOD:.0f}, from the command on, medians of {SEEDS} seeds.",
        ("library", "frames/s", f"seconds to {GOOD:.0f}"),
    )
    python = form.peers and interpreter(form.peers, "torch")
    if not python:
        table.without(missing("torch", PEER))
        return table
    options = Experiment.load(EXPERIMENT).options.model_dump()
    each = options["envs"] * options["horizon"]
    speeds: dict[str, list[float]] = {PEER: [], "ours": []}
    for _ in range(1 if form.smoke else TURNS):
        frames = (WARM + COUNTED) * each
        speeds[PEER].append(speed(checked(PEER, theirs(python, frames), frames, (0, 501))))
        speeds["ours"].append(
            speed(checked("ours", ours(WARM + COUNTED, SETTING, experiment=EXPERIMENT), frames, (0, 501)))
        )
    waits: dict[str, list[float]] = {PEER: [], "ours": []}
    for seed in range(1, 1 if form.smoke else SEEDS + 1):
        waits[PEER].append(seconds_to(theirs(python, LONGEST, GOOD, seed)))
        waits["ours"].append(seconds_to(ours(LONGEST // each, SETTING, GOOD, seed, EXPERIMENT)))
    for who, found in speeds.items():
        wait = f"{median(waits[who]):.1f}" if waits[who] else ""
        table.rows.append([who, number(median(found)), wait])
    ratio = median(a / b for a, b in zip(speeds["ours"], speeds[PEER], strict=True))
    table.limits.append(Limit(f"PPO with memory: times {PEER}'s frames", ratio, FASTER, ratio=True))
    if waits["ours"]:
        sooner = median(waits[PEER]) / median(waits["ours"])
        table.limits.append(
            Limit(f"PPO with memory: {PEER}'s seconds to {GOOD:.0f}, over ours", sooner, SOONER, ratio=True)
        )
    return table
