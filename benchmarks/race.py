"""Seconds until PPO is good, compared with Stable-Baselines3: the published experiment, as it is, with several seeds.

    python -m benchmarks --only race [--peers DIR]

Everything counts, from the start of the command on, until the newest episodes' mean return is good. Without the peers'
environment nothing is measured.
"""

from __future__ import annotations

from statistics import median
from typing import Any

from benchmarks.peers import interpreter, missing
from benchmarks.ppo import OURS, PEERS, Lines, ours, speed, theirs
from benchmarks.tables import Form, Limit, Table, number

SOONER = 3.0  # times, to the same return
GOOD = 40.0  # the mean return of the newest episodes that counts as that score
ENOUGH = 200  # generations of ours, in which it is there
SEEDS = (1, 2, 3, 4, 5)
SCHEDULES = (
    "ppo.gamma_final=0.999", "ppo.gamma_frames=20_000_000",
    "ppo.learning_rate_final=5e-5", "ppo.learning_rate_frames=24_000_000",
    "ppo.entropy_coefficient_final=0.0005", "ppo.entropy_coefficient_frames=24_000_000",
)  # fmt: skip


def run(form: Form) -> Table:
    """Learn the published experiment until it is good, with every seed; return the table of seconds."""
    table = Table(
        f"PPO to a mean return of {GOOD:g}",
        "Seconds from the start of the command until the mean return of the newest episodes reaches this value, with "
        "`experiments/ppo_snake.toml` and schedules of 24 million frames, on two threads, one after the other. "
        "Stable-Baselines3 learns the "
        "same network in float32 on our compiled boards with the same algorithm, and with the initial values of the "
        "schedules. "
        f"Medians of {len(SEEDS)} seeds, with the time of each seed.",
        ("library", "seconds", "per seed", "frames", "frames/s", "speed-up"),
    )
    python = form.peers and interpreter(form.peers, "torch")
    if form.smoke or not python:
        table.without(missing("torch", "Stable-Baselines3"))
        return table
    first, module = next(iter(PEERS.items()))
    learned_by: dict[str, list[Lines]] = {}
    for seed in SEEDS:
        learned_by.setdefault(first, []).append(theirs(python, module, 1 << 40, GOOD, SCHEDULES, seed))
        learned_by.setdefault(OURS, []).append(ours(ENOUGH, SCHEDULES, GOOD, seed))
    seconds = 0.0
    for who, runs in learned_by.items():
        there = [arrival(who, lines) for lines in runs]
        took = median(line["seconds"] for line in there)
        each, frames = ", ".join(number(line["seconds"]) for line in there), median(line["frames"] for line in there)
        row = [who, number(took), each, f"{frames:,.0f}", number(median(map(speed, runs))), ""]
        seconds = seconds or took
        if who != first:
            row[-1] = f"{seconds / took:.2f}"
            table.limits.append(Limit(f"{who}: speed-up", seconds / took, SOONER, ratio=True))
        table.rows.append(row)
    return table


def arrival(who: str, lines: Lines) -> dict[str, Any]:
    """Return the first line that is good; RuntimeError where there is none."""
    for line in lines:
        if line["mean"] is not None and line["mean"] >= GOOD:
            return line
    raise RuntimeError(f"{who}: a mean return of {GOOD:g} was not reached in {lines[-1]['frames']} frames")
