"""What a GPU adds: updates and episodes in TensorFlow, compared with the exact kernels.

    python -m benchmarks.gpu [--cpu] [--candidates N]

Workers are those of a run, pinned as a run pins them. Without a GPU there is nothing to measure, and it says so;
`--cpu` measures the same on one core, which shows that the benchmark works.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from statistics import median
from typing import Any

from benchmarks import learner
from benchmarks.peers import ROOT
from benchmarks.rollout import Case, cases, fresh
from benchmarks.tables import Table, machine, number, seconds
from evo.errors import DeviceError
from evo.player import RunSpec
from evo.randomness.streams import Purpose, episode_keys
from evo.records import Episodes, Result, Task
from evo.workers import hardware, placement
from evo.workers.channel import WorkerSpec
from evo.workers.options import WorkersOptions
from evo.workers.placement import LocalOptions
from evo.workers.pool import Pool

EPISODES = 32
WORKERS = (1, 2, 4, 8)
LIMIT = 2048  # megabytes
TURNS = 5
UPDATES = {
    "ppo_snake, fresh": learner.Case("ppo_snake", (), {}),
    "ppo_snake_seed, fresh": learner.Case("ppo_snake_seed", (), {}),
    "pqn_snake, fresh": learner.Case("pqn_snake", (), {}),
}
LEARNERS = {
    "exact": ["learner.arithmetic=exact"],
    "float32": ["learner.arithmetic=tensorflow"],
    "bfloat16": ["learner.arithmetic=tensorflow", "learner.dtype=bfloat16"],
}


def pool(case: Case, slots: list[dict[str, str]], inference: str, workers: Mapping[str, Any] | None = None) -> Pool:
    """Return workers, one a slot, that play with TensorFlow or with the exact kernel."""
    policy = case.network.options.model_copy(update={"inference": inference})
    place, options = Path(tempfile.gettempdir()), WorkersOptions(**(workers or {}))
    spec = RunSpec(place, case.environment.options, policy, options, inference)  # type: ignore[arg-type]
    return Pool(WorkerSpec("evo.player:make_player", spec, "evo.player:prepare"), slots)


def speed(workers: Pool, tasks: list[Task]) -> float:
    """Return frames a second, once everything is compiled."""
    workers.map(tasks)
    results: list[Result] = []
    took = seconds(lambda: results.extend(workers.map(tasks).results))
    return sum(result.frames for result in results) / took


def used(slot: Mapping[str, str]) -> int | None:
    """Return the megabytes that the driver says are used of a GPU, by whomever; None where it does not say."""
    query = ["nvidia-smi", "-i", slot[hardware.VISIBLE], "--query-gpu=memory.used", "--format=csv,noheader,nounits"]
    try:
        told = subprocess.run(query, capture_output=True, text=True, check=False).stdout.strip()
    except OSError:  # the driver is there without its tool
        return None
    return int(told) if told.isdecimal() else None


def frames(slot: dict[str, str], candidates: int) -> Table:
    """Return frames a second of one worker, and of one CPU core with the exact kernel."""
    table = Table(
        "Episodes in TensorFlow",
        f"Useful frames a second of one worker, {EPISODES} episodes a candidate, game and transfers included, the same "
        "fresh networks everywhere. *Core* is the exact kernel on one CPU core.",
        ("network", "TensorFlow", "core", "of the core's"),
    )
    for case in cases():
        tasks = [Task(fresh(candidates, 0), Episodes(episode_keys(0, Purpose.TRAINING, 0, EPISODES)))]
        with pool(case, [{}], "lanes") as workers:
            core = speed(workers, tasks)
        with pool(case, [slot], "tensorflow") as workers:
            ours = speed(workers, tasks)
        table.rows.append([case.name, number(ours), number(core), f"{ours / core:.2f}"])
        print(" ".join(table.rows[-1]), file=sys.stderr, flush=True)
    return table


def planned(options: Mapping[str, Any], visible: str | None) -> placement.Slots:
    """Return what pins workers to the GPUs that the user lets us see."""
    return placement.plan(LocalOptions(**options), "tensorflow", visible, hardware.found())


def memory(options: Mapping[str, Any], visible: str | None) -> Table:
    """Return what a pinned worker holds under each policy."""
    table = Table(
        "Memory of a pinned worker",
        "What more of the GPU the driver says is used after a task than before the worker was there, its CUDA context "
        "included; others have to leave the GPU alone meanwhile.",
        ("network, policy", "MB"),
    )
    for case in cases():
        for policy in ({"memory": "growth"}, {"memory": "limit", "memory_limit_mb": LIMIT}):
            (slot,) = planned({**options, **policy}, visible)
            before = used(slot)
            with pool(case, [slot], "tensorflow", policy) as workers:
                workers.map([Task(fresh(64, 0), Episodes(episode_keys(0, Purpose.TRAINING, 0, EPISODES)))])
                after = used(slot)
                told = f"limit {LIMIT} MB" if "memory_limit_mb" in policy else "growth"
                more = "not told" if before is None or after is None else str(after - before)
                table.rows.append([f"{case.name}, {told}", more])
    return table


def shared(slot: dict[str, str], candidates: int) -> Table:
    """Return what more workers on one GPU add."""
    table = Table(
        "Workers on one GPU",
        "Useful frames a second of all of them, tiny network. Without NVIDIA MPS they take turns.",
        ("workers", "frames/s", "of one's"),
    )
    case, first = cases()[0], 0.0
    for count in WORKERS:
        seeds = episode_keys(0, Purpose.TRAINING, 0, EPISODES)
        tasks = [Task(fresh(candidates, candidates * i), Episodes(seeds)) for i in range(4 * max(WORKERS))]
        with pool(case, [slot] * count, "tensorflow") as workers:
            found = speed(workers, tasks)
        first = first or found
        table.rows.append([str(count), number(found), f"{found / first:.2f}"])
    return table


def updates(slot: Mapping[str, str]) -> Table:
    """Return examples a second of a generation's updates: exact on all cores, and TensorFlow's on the device."""
    threads = hardware.cores()
    table = Table(
        "Updates",
        "Examples a second of all updates of one generation, with the same transitions; medians over turns. *Exact* is "
        f"on {threads} CPU threads, in float32.",
        ("experiment", "exact", "TensorFlow, float32", "of the exact", "TensorFlow, bfloat16", "of the exact"),
    )
    for name in UPDATES:
        command = [sys.executable, "-m", "benchmarks.gpu", "--updates", name]
        done = subprocess.run(
            command, cwd=ROOT, stdout=subprocess.PIPE, text=True, check=True, env={**os.environ, **slot}
        )
        found = json.loads(done.stdout.splitlines()[-1])
        exact, *others = (found["examples"] / median(found[kind]) for kind in LEARNERS)
        cells = [text for speed in others for text in (number(speed), f"{speed / exact:.2f}")]
        table.rows.append([name, number(exact), *cells])
        print(" ".join(table.rows[-1]), file=sys.stderr, flush=True)
    return table


def updates_of(name: str) -> dict[str, Any]:
    """Return the examples of an experiment's updates, and the seconds of each turn by learner, in this process."""
    threads = f"learner.threads={hardware.cores()}"
    settings = {kind: [*words, threads] for kind, words in LEARNERS.items()}
    return learner.of_case(UPDATES[name], settings, TURNS)


def main() -> int:
    """Measure and print; return the exit code."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.gpu", description="What a GPU adds.")
    parser.add_argument("--cpu", action="store_true", help="measure on one core what would be measured on a GPU")
    parser.add_argument("--candidates", type=int, default=256, help="of a task (256)")
    parser.add_argument("--updates", choices=UPDATES, help=argparse.SUPPRESS)  # in a process of its own
    arguments = parser.parse_args()
    if arguments.updates:
        print(json.dumps(updates_of(arguments.updates)))
        return 0
    found = hardware.found()
    if not found and not arguments.cpu:
        print("no GPU here (`nvidia-smi -L` lists none), so there is nothing to measure; --cpu measures on a core")
        return 0
    print(machine() if arguments.cpu else f"{found[0].model}; {machine()}")
    options = {"kind": "gpu", "count": 1}
    visible = os.environ.pop(hardware.VISIBLE, placement.NO_GPU)
    shown = None if visible == placement.NO_GPU else visible  # the package says so: other benchmarks want no GPU
    try:
        slot = {hardware.VISIBLE: placement.NO_GPU} if arguments.cpu else planned(options, shown)[0]
        if not arguments.cpu:
            print(updates(slot).markdown(), flush=True)
        print(frames(slot, arguments.candidates).markdown(), flush=True)
        if not arguments.cpu:
            print(memory(options, shown).markdown(), flush=True)
            print(shared(slot, arguments.candidates).markdown(), flush=True)
    except DeviceError as error:
        print(error, file=sys.stderr)
        return error.exit_code
    return 0


if __name__ == "__main__":
    sys.exit(main())
