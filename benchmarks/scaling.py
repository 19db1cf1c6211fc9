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
from collections.abc import Sequence
from pathlib import Path
from statistics import median

import numpy as np

from benchmarks.rollout import Case, cases, fresh
from benchmarks.tables import Form, Limit, Table, number, seconds
from evo.evaluators import processes
from evo.player import RunSpec, make_player
from evo.randomness.streams import Purpose, episode_keys
from evo.records import Episodes, Player, Result, Task
from evo.workers.channel import WorkerSpec
from evo.workers.pool import Pool

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


class Everything(Player):
    """A player of whole lists of tasks, so that nobody has to be asked in between."""

    fingerprint = ""

    def __init__(self, spec: RunSpec) -> None:
        self._player = make_player(spec)

    def play(self, tasks: Sequence[Task]) -> None:
        """Play them all."""
        for task in tasks:
            self._player.play(task)


def make_everything(spec: RunSpec) -> Everything:
    """Return one, in a worker."""
    return Everything(spec)


class Alone:
    """So many processes that play all tasks, each for itself and without a master: what the machine has to give."""

    def __init__(self, spec: RunSpec, processes_: int) -> None:
        self._pool = Pool(WorkerSpec("benchmarks.scaling:make_everything", spec), [{}] * processes_)
        self._count = processes_

    def close(self) -> None:
        """End them."""
        self._pool.close()

    def seconds(self, tasks: Sequence[Task]) -> float:
        """Return how long each of them takes for all tasks, on their mean, at the same time."""
        return sum(self._pool.map([tasks] * self._count).effort.busy) / self._count


def tasks(case: Case, count: int) -> list[Task]:
    """Return `count` tasks, all of the same size."""
    seeds = episode_keys(0, Purpose.TRAINING, 0, EPISODES)
    return [Task(fresh(CANDIDATES, CANDIDATES * i), Episodes(seeds)) for i in range(count)]


def open_pool(case: Case, workers: int, directory: str) -> Pool:
    """Return a pool with its workers at work."""
    pool = processes.make(processes.Options(count=workers), spec_of(case, directory))
    pool.map(tasks(case, 4 * workers))
    return pool


def spec_of(case: Case, directory: str) -> RunSpec:
    """Return the specification of a run that plays the case."""
    return RunSpec(Path(directory), case.environment.options, case.network.options)


def megabytes(status: str) -> float:
    """Return the resident memory that a /proc/PID/status tells."""
    found = re.search(r"^VmRSS:\s+(\d+) kB$", status, re.MULTILINE)
    return float(found[1]) / 1024 if found else float("nan")


def resident(pid: int) -> float:
    """Return the resident memory of a process in megabytes."""
    return megabytes(Path(f"/proc/{pid}/status").read_text())


def respawn(pool: Pool, case: Case) -> float:
    """Kill a worker; return the seconds until the one in its place has brought back a small task."""
    os.kill(pool.pids[0], signal.SIGKILL)
    small = Task(fresh(1, 0), Episodes(episode_keys(0, Purpose.TRAINING, 0, 1)))
    return seconds(lambda: pool.map([small]))


def run(form: Form) -> Table:
    """Return the table; where there is one core, the second worker has no limit to keep."""
    smoke = form.smoke
    case = cases()[0]
    rounds = 3 if smoke else 7
    work = tasks(case, 40 if smoke else 160)
    with tempfile.TemporaryDirectory() as directory:
        one, two = open_pool(case, 1, directory), open_pool(case, 2, directory)
        alone = [Alone(spec_of(case, directory), processes_) for processes_ in (1, 2)]
        try:
            for players in alone:
                players.seconds(work[:4])
            speeds: dict[int, list[float]] = {1: [], 2: []}
            returns, gains = [], []
            for _ in range(rounds):
                for pool, workers in ((one, 1), (two, 2)):
                    results: list[Result] = []
                    took = seconds(lambda pool=pool, results=results: results.extend(pool.map(work).results))  # type: ignore[misc]
                    speeds[workers].append(sum(result.frames for result in results) / took)
                    returns.append(np.concatenate([result.returns for result in results]))
                took_alone, took_together = (players.seconds(work) for players in alone)
                gains.append(2 * took_alone / took_together)
            memory = max(resident(pid) for pid in two.pids)
            waits = [respawn(one, case) for _ in range(3)]
        finally:
            running: list[Pool | Alone] = [one, two, *alone]
            for opened in running:
                opened.close()
    if not all(np.array_equal(returns[0], other) for other in returns):
        raise RuntimeError("one worker and two have different results")
    ratio = median(b / a for a, b in zip(speeds[1], speeds[2], strict=True))
    gain = median(gains)
    command = [sys.executable, "-c", TENSORFLOW]
    children = [subprocess.run(command, capture_output=True, text=True, check=True) for _ in range(1 if smoke else 3)]
    peer = median(megabytes(child.stdout) for child in children)
    table = Table(
        "Worker processes",
        f"The tiny network, freshly initialised, tasks of {CANDIDATES} candidates and {EPISODES} episodes, the same "
        "for one worker and two, in alternation; medians over rounds. Both gave equal results. Two independent "
        "processes that play the same tasks without a master show what the machine allows. The replacement of a worker "
        "is timed from the kill to the result of a small task.",
        ("what", "ours", "TensorFlow in the worker", "ratio"),
        [
            ["frames/s, 1 worker", number(median(speeds[1])), "", ""],
            ["frames/s, 2 workers", number(median(speeds[2])), "", f"{ratio:.2f}"],
            ["two processes without a master, relative to one", "", "", f"{gain:.2f}"],
            ["resident memory of a worker, MB", number(memory), number(peer), f"{memory / peer:.2f}"],
            ["a killed worker is replaced, s", number(median(waits)), "", ""],
        ],
        [
            Limit("memory of a worker, MB", memory, MEMORY, most=True),
            Limit("memory of a worker, relative to TensorFlow's", memory / peer, 0.5, most=True, ratio=True),
            Limit("a killed worker is replaced, s", median(waits), RESPAWN, most=True),
        ],
    )
    if len(os.sched_getaffinity(0)) >= 2:
        table.limits.insert(0, Limit("two workers, relative to one", ratio, RATIO))
        table.limits.insert(
            1, Limit("the same, relative to two processes without a master", ratio / gain, 0.95, ratio=True)
        )
    return table
