"""What a second worker process adds, how much memory a worker takes, and how soon a killed one is replaced.

    python -m benchmarks --only scaling

The other way, for memory, is a process that has imported TensorFlow and built the same network in it.
"""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from statistics import median

import numpy as np

from benchmarks.rollout import Case, cases, fresh
from benchmarks.tables import Form, Limit, Table, number, seconds
from evo.evaluators import processes
from evo.evaluators.context import Context
from evo.records import Episodes, Result, Task
from evo.streams import Purpose, episode_keys

CANDIDATES = 16  # of a task
EPISODES = 32
RATIO = 1.9
MEMORY = 200.0  # megabytes
RESPAWN = 1.0  # seconds

TENSORFLOW = """
import sys
from benchmarks.rollout import cases
from benchmarks.seed_way import SeedWay
case = cases()[0]
SeedWay(case.network, case.environment)
print(open("/proc/self/status").read())
"""


# Counts for a while from a given moment on, so that several of these count at the same time.
SPIN = """
import sys, time
begin, count = float(sys.argv[1]), 0
while time.time() < begin:
    pass
while time.time() < begin + 0.4:
    count += 1
print(count)
"""


def spin(processes: int) -> int:
    """Return how far so many processes together count, that do nothing else: what the machine has to give now."""
    command = [sys.executable, "-c", SPIN, repr(time.time() + 0.3)]
    children = [subprocess.Popen(command, stdout=subprocess.PIPE, text=True) for _ in range(processes)]
    return sum(int(child.communicate()[0]) for child in children)


def tasks(case: Case, count: int) -> list[Task]:
    """Return `count` tasks, all of the same size."""
    seeds = episode_keys(0, Purpose.TRAIN, 0, EPISODES)
    return [Task(fresh(CANDIDATES, CANDIDATES * i), Episodes(seeds)) for i in range(count)]


def open_pool(case: Case, workers: int, directory: str) -> processes.Processes:
    """Return a pool with its workers at work."""
    environment, policy = case.environment.options.model_dump(), case.network.options.model_dump()
    pool = processes.make(Context(Path(directory), environment, policy, {"count": workers}))
    pool.map(tasks(case, 4 * workers))
    return pool


def megabytes(status: str) -> float:
    """Return the resident memory that a /proc/PID/status tells."""
    found = re.search(r"^VmRSS:\s+(\d+) kB$", status, re.MULTILINE)
    return float(found[1]) / 1024 if found else float("nan")


def resident(pid: int) -> float:
    """Return the resident memory of a process in megabytes."""
    return megabytes(Path(f"/proc/{pid}/status").read_text())


def respawn(pool: processes.Processes, case: Case) -> float:
    """Kill a worker; return the seconds until the one in its place has brought back a small task."""
    os.kill(pool.pids[0], signal.SIGKILL)
    small = Task(fresh(1, 0), Episodes(episode_keys(0, Purpose.TRAIN, 0, 1)))
    return seconds(lambda: pool.map([small]))


def run(form: Form) -> Table:
    """Return the table; where there is one core, the second worker has no limit to keep."""
    smoke = form.smoke
    case = cases()[0]
    rounds = 3 if smoke else 5
    work = tasks(case, 40 if smoke else 160)
    with tempfile.TemporaryDirectory() as directory:
        one, two = open_pool(case, 1, directory), open_pool(case, 2, directory)
        try:
            speeds: dict[int, list[float]] = {1: [], 2: []}
            returns, gains = [], []
            for _ in range(rounds):
                for pool, workers in ((one, 1), (two, 2)):
                    results: list[Result] = []
                    took = seconds(lambda pool=pool, results=results: results.extend(pool.map(work)))  # type: ignore[misc]
                    speeds[workers].append(sum(result.frames for result in results) / took)
                    returns.append(np.concatenate([result.returns for result in results]))
                gains.append(spin(2) / spin(1))
            memory = max(resident(pid) for pid in two.pids)
            waits = [respawn(one, case) for _ in range(3)]
        finally:
            one.close()
            two.close()
    if not all(np.array_equal(returns[0], other) for other in returns):
        raise RuntimeError("one worker and two have different results")
    ratio = median(b / a for a, b in zip(speeds[1], speeds[2], strict=True))
    gain = median(gains)
    child = subprocess.run([sys.executable, "-c", TENSORFLOW], capture_output=True, text=True, check=True)
    peer = megabytes(child.stdout)
    table = Table(
        "Worker processes",
        f"The tiny network, tasks of {CANDIDATES} candidates and {EPISODES} episodes, the same for one worker and two, "
        "in turns; medians over rounds. Both gave equal results. What two processes gain that only count is what "
        "the machine had to give. A replaced worker is timed from the kill to the result of a small task.",
        ("what", "ours", "TensorFlow in the worker", "ratio"),
        [
            ["frames/s, 1 worker", number(median(speeds[1])), "", ""],
            ["frames/s, 2 workers", number(median(speeds[2])), "", f"{ratio:.2f}"],
            ["two processes that only count, against one", "", "", f"{gain:.2f}"],
            ["resident memory of a worker, MB", number(memory), number(peer), f"{memory / peer:.2f}"],
            ["a killed worker is replaced, s", number(median(waits)), "", ""],
        ],
        [
            Limit("memory of a worker, MB", memory, MEMORY, most=True),
            Limit("memory of a worker against TensorFlow's", memory / peer, 0.5, most=True, ratio=True),
            Limit("a killed worker is replaced, s", median(waits), RESPAWN, most=True),
        ],
    )
    if len(os.sched_getaffinity(0)) >= 2:
        table.limits.insert(0, Limit("two workers against one", ratio, RATIO))
        table.limits.insert(1, Limit("the same, of what counting gains", ratio / gain, 0.95, ratio=True))
    return table
