"""Learning by PPO, ours beside Stable-Baselines3's: the same network, game, batches and epochs, one after the other.

    python -m benchmarks.ppo [--smoke] [--peers PYTHON] [--good RETURN]

Frames per second count everything: playing, moving, learning. With --good both learn until the mean return of their
newest episodes is RETURN, and the seconds to get there are compared. PYTHON is an interpreter that has
`stable-baselines3`, `torch` and `numba`; by default this one, and without them ours is measured alone.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from benchmarks.tables import Limit, Table, number, show
from evo.configuration import config

ROOT = Path(__file__).parent.parent
EXPERIMENT = ROOT / "experiments" / "ppo_snake.toml"
RATIOS = {"float32": 2.3, "bfloat16": 3.0}
SOONER = 3.0  # times, to the same return
PATIENCE = 1800.0  # seconds that either may take with --good
WARM = 2  # generations that are not counted: compiling, caches


def ours(generations: int, dtype: str, good: float | None) -> tuple[float, float]:
    """Return frames a second of a run, and the seconds that it took to a mean return of `good`, or NaN."""
    with tempfile.TemporaryDirectory() as directory:
        run = Path(directory) / "run"
        command = [sys.executable, "-m", "evo.run", str(EXPERIMENT), "--run-dir", str(run), "--quiet"]
        command += ["--generations", str(generations), "--set", f"learner.dtype={dtype}", "--set", "workers.count=2"]
        command += ["--set", "pg.select_every=1000000", "--set", "evaluation.every=1000000"]
        command += ["--set", "evaluation.episodes=1", "--set", "pg.select_episodes=1"]
        subprocess.run(command, check=True, cwd=ROOT, stdout=subprocess.DEVNULL)
        lines = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    counted = lines[WARM:]
    speed = sum(line["frames"] for line in counted) / sum(line["seconds"] for line in counted)
    passed = 0.0
    for line in lines:
        passed += line["seconds"]
        if good is not None and line["mean"] is not None and line["mean"] >= good:
            return speed, passed
    return speed, float("nan")


def theirs(python: str, frames: int, good: float | None) -> tuple[float, float] | None:
    """Return the same of Stable-Baselines3, or None where that interpreter has none."""
    if subprocess.run([python, "-c", "import stable_baselines3, numba"], capture_output=True).returncode:
        return None
    experiment = config.load(EXPERIMENT)
    described: dict[str, Any] = {
        "environment": experiment.environment.model_dump(exclude={"id"}),
        "policy": experiment.policy.model_dump(),
        "pg": experiment.options.model_dump(),
        "threads": experiment.learner.threads,
    }
    command = [python, "-m", "benchmarks.sb3_way", json.dumps(described), str(PATIENCE), str(frames)]
    command.append("1e9" if good is None else str(good))
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "CUDA_VISIBLE_DEVICES": ""}
    text = subprocess.run(command, check=True, cwd=ROOT, env=environment, stdout=subprocess.PIPE, text=True).stdout
    lines = [json.loads(line) for line in text.splitlines() if line.startswith("{")]
    first, last = lines[min(WARM, len(lines) - 2)], lines[-1]
    speed = (last["frames"] - first["frames"]) / (last["seconds"] - first["seconds"])
    reached = last["seconds"] if good is not None and last["mean"] >= good else float("nan")
    return speed, reached


def run(smoke: bool, python: str = sys.executable, good: float | None = None) -> Table:
    """Measure both and return the table."""
    table = Table(
        "Learning by PPO",
        f"The network, game and batches of `experiments/{EXPERIMENT.name}`, learning included; both on two threads.",
        ("who", "frames/s", "beside the peer", *(() if good is None else (f"seconds to a return of {good:g}",))),
    )
    generations = 4 if smoke else (12 if good is None else 400)
    frames = (4 if smoke else 8) * 512 * 64 if good is None else 1 << 40
    peer = theirs(python, frames, good)
    for dtype, target in RATIOS.items():
        speed, passed = ours(generations, dtype, good)
        ratio = f"{speed / peer[0]:.2f}x" if peer else "-"
        row = [f"ours, {dtype}", number(speed), ratio]
        table.rows.append(row if good is None else [*row, number(passed)])
        if peer:
            table.limits.append(Limit(f"{dtype}, times the peer's frames", speed / peer[0], target, ratio=True))
            if good is not None:
                table.limits.append(Limit(f"{dtype}, times sooner", peer[1] / passed, SOONER, ratio=True))
    if peer:
        row = ["Stable-Baselines3", number(peer[0]), "1"]
        table.rows.append(row if good is None else [*row, number(peer[1])])
    return table


if __name__ == "__main__":
    parser = argparse.ArgumentParser(prog="python -m benchmarks.ppo")
    parser.add_argument("--smoke", action="store_true", help="short; fails on ratios only")
    parser.add_argument("--peers", default=sys.executable, metavar="PYTHON", help="an interpreter that has the peer")
    parser.add_argument("--good", type=float, metavar="RETURN", help="also compare the time to this mean return")
    arguments = parser.parse_args()
    sys.exit(show(run(arguments.smoke, arguments.peers, arguments.good), arguments.smoke))
