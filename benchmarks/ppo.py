"""Learning with PPO, compared with other libraries: the same network, game, minibatches and epochs, in alternation.

    python -m benchmarks --only ppo [--peers DIR]

Frames per second count everything: playing, moving, learning. Without the peers' environment ours is measured alone.
"""

from __future__ import annotations

import json
import math
import os
import re
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from statistics import median
from typing import Any

from benchmarks.peers import ROOT, interpreter, missing, surroundings
from benchmarks.tables import Form, Limit, Table, number
from evo.config.experiment import Experiment

EXPERIMENT = ROOT / "experiments" / "ppo_snake.toml"
# 415,000 weights, three epochs of eight batches: followed on, whatever the experiment has become.
THREE_EPOCHS = (
    "environment.observation=ego", "environment.actions=relative", "environment.starvation=200",
    "policy.conv=[[16, 3, 1], [32, 3, 1]]", "policy.dense=[128]", "policy.padding=same", "policy.norm=none",
    "ppo.envs=512", "ppo.horizon=64", "ppo.epochs=3", "ppo.minibatches=8", "ppo.gamma=0.98",
    "learner.threads=2", "workers.count=2",
)  # fmt: skip
QUIET = ("validation.every=1000000", "test.every=1000000", "test.episodes=1", "validation.episodes=1")
TARGET = 2.3
OURS = "ours, float32"
TIMEOUT = 1800.0  # seconds that a peer may take for it
WARM = 1  # generations that are not counted: compiling, caches
COUNTED = {"three epochs": 2, "as published": 8}  # generations of a turn that are, seven seconds of ours or more
TURNS = 3
PEERS = {"Stable-Baselines3": "sb3_way", "CleanRL's way": "cleanrl_way"}
MEAN = re.compile(r" mean +(-?[0-9.]+)")  # in a line of ours, where an episode has ended
Lines = list[dict[str, Any]]
Setting = tuple[str, ...]
SETTINGS: dict[str, Setting] = {"three epochs": THREE_EPOCHS, "as published": ()}


def told(
    command: list[str], begin: str, environment: dict[str, str], good: float = math.inf
) -> list[tuple[float, str]]:
    """Return the lines of a program that begin so, each with the seconds until it was there.

    A program whose line says that its mean is `good` is told to end.
    """
    began, lines, ended = time.perf_counter(), [], False
    with subprocess.Popen(command, cwd=ROOT, env=environment, stdout=subprocess.PIPE, text=True) as program:
        assert program.stdout is not None
        for line in program.stdout:
            if line.startswith(begin) and not ended:
                lines.append((time.perf_counter() - began, line))
                mean = MEAN.search(line)
                ended = mean is not None and float(mean[1]) > good  # it is rounded
                if ended:
                    program.send_signal(signal.SIGINT)
    if program.returncode and not ended:
        raise subprocess.CalledProcessError(program.returncode, command)
    return lines


def ours(
    generations: int,
    setting: Setting,
    good: float = math.inf,
    seed: int = 1,
    experiment: Path = EXPERIMENT,
    python: str = sys.executable,
    plugins: Setting = (),
) -> Lines:
    """Return frames, seconds since the command was given and the mean return after each generation of a run.

    It ends where the mean is `good`.
    """
    with tempfile.TemporaryDirectory() as directory:
        run = Path(directory) / "run"
        command = [python, "-u", "-m", "evo.run", str(experiment), "--run-dir", str(run)]
        command += ["--generations", str(generations), "--seed", str(seed)]
        for words in (*setting, *QUIET, "learner.arithmetic=exact"):
            command += ["--set", words]
        for name in plugins:
            command += ["--plugin", name]
        ends = told(command, "generation ", dict(os.environ), good)
        metrics = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    lines: Lines = [{"frames": 0, "seconds": 0.0, "mean": None}]
    for (seconds, _), line in zip(ends, metrics, strict=False):  # an ended run may have gone on for one
        lines.append({"frames": lines[-1]["frames"] + line["frames"], "seconds": seconds, "mean": line["mean"]})
    return lines


def theirs(python: Path, module: str, frames: int, good: float, setting: Setting, seed: int = 1) -> Lines:
    """Return the same of a peer."""
    experiment = Experiment.load(EXPERIMENT, *setting)
    described: dict[str, Any] = {
        "environment": experiment.environment.model_dump(exclude={"id"}),
        "policy": experiment.policy.model_dump(),
        "ppo": experiment.options.model_dump(),
        "threads": experiment.learner.thread_count,
        "seed": seed,
    }
    return of_peer(python, module, described, TIMEOUT, frames, good)


def of_peer(python: Path, module: str, described: dict[str, Any], *words: object, cores: int = 2) -> Lines:
    """Return what the program of a peer prints after each rollout, with the seconds since the command was given."""
    command = [str(python), "-m", f"benchmarks.peers.{module}", json.dumps(described), *map(str, words)]
    return [{**json.loads(line), "seconds": seconds} for seconds, line in told(command, "{", surroundings(cores))]


def add_pair(table: Table, name: str, what: str, least: float, found: Sequence[tuple[float, float]]) -> None:
    """Add the frames a second of theirs and of ours, pairs of (ours, theirs); hold their ratio against `least`."""
    ratio = median(a / b for a, b in found)
    mine, peers = (median(side) for side in zip(*found, strict=True))
    table.rows.append([name, number(peers), number(mine), f"{ratio:.2f}"])
    table.limits.append(Limit(what, ratio, least, ratio=True))


def speed(lines: Lines) -> float:
    """Return frames a second, the median over generations that are counted."""
    pairs = list(zip(lines[WARM:], lines[WARM + 1 :], strict=False))
    return float(median((b["frames"] - a["frames"]) / (b["seconds"] - a["seconds"]) for a, b in pairs))


def checked(who: str, lines: Lines, frames: int, bounds: tuple[float, float] = (-1.5, 110)) -> Lines:
    """Return what somebody has done; RuntimeError where it is not what was asked for."""
    mean = lines[-1]["mean"] or 0.0
    over = not math.isnan(mean)  # else no episode has ended yet
    if lines[-1]["frames"] < frames or (over and not bounds[0] < mean < bounds[1]):
        raise RuntimeError(f"{who}: played {lines[-1]}, and should have played {frames} frames")
    return lines


def run(form: Form) -> Table:
    """Return the table of frames a second of all."""
    table = Table(
        "Learning with PPO",
        f"Frames per second, learning included, on two threads: {512 * 64:,} frames per generation in 512 "
        "environments. *Three epochs*: eight minibatches each, 415,000 weights, the `ego` observation. *As published*: "
        "`experiments/ppo_snake.toml` unchanged, one epoch of 32 minibatches. All learn and act in float32. Medians "
        "over generations and alternating runs. *Ratio* is relative to Stable-Baselines3 in the same setting. The "
        "other libraries step our compiled boards.",
        ("setting, library", "frames/s", "ratio"),
    )
    python = form.peers and interpreter(form.peers, "torch")
    if not python:
        table.without(missing("torch", "Stable-Baselines3 and CleanRL's way"))
    for name, setting in SETTINGS.items():
        done: dict[str, list[Lines]] = {}
        for _ in range(1 if form.smoke else TURNS):
            for who, lines in turn(python or None, setting, WARM + (1 if form.smoke else COUNTED[name])).items():
                done.setdefault(who, []).append(lines)
        add(table, name, done)
    return table


def turn(python: Path | None, setting: Setting, generations: int) -> dict[str, Lines]:
    """Let everybody learn once, one after the other."""
    frames = generations * 512 * 64
    done = {who: theirs(python, module, frames, 1e9, setting) for who, module in PEERS.items()} if python else {}
    done[OURS] = ours(generations, setting)
    return {who: checked(who, lines, frames) for who, lines in done.items()}


def add(table: Table, name: str, done: dict[str, list[Lines]]) -> None:
    """Add the rows of a setting, and what is held against targets."""
    first = next(iter(PEERS))
    for who, turns in done.items():
        row = [f"{name}, {who}", number(median(map(speed, turns))), ""]
        if first in done:
            ratio = median(speed(a) / speed(b) for a, b in zip(turns, done[first], strict=True))
            row[-1] = f"{ratio:.2f}"
            if who == OURS:
                what = f"{name}, {who}: times Stable-Baselines3's frames"
                table.limits.append(Limit(what, ratio, TARGET, ratio=True))
        table.rows.append(row)
