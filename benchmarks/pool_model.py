"""A model of a generation with any number of workers: the loop of the pool, event by event, from measured costs.

The simulation is of the loop in `evo/workers/pool.py`: the master hands a task to every worker that waits, and one more
to each that plays, as long as more than two for each are left; looks for results, takes in those that have arrived, and
begins again. A worker that has answered goes on with what it has, or waits for its next.
"""

from __future__ import annotations

import heapq
from collections import deque
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from benchmarks.costs import Master, Own

CORES = 32  # assumed of a machine: workers beyond these are elsewhere
BANDWIDTH = 1.25e9  # bytes a second that the master's machine sends, assumed: 10 Gbit/s
TRIP = 1e-4  # seconds to another machine and back, assumed
WORTH = 0.5  # of a worker's time is spent playing
LARGEST = 1 << 20  # population that is looked at


def simulate(durations: NDArray[np.float64], workers: int, master: Master, transit: float) -> tuple[float, float]:
    """Return the seconds until the results of all tasks are there, and the share of them that the master works.

    `durations` [N] are seconds of playing, in the order of tasks; `transit` is a task's way and its result's.
    """
    now = worked = 0.0
    waiting = deque(durations.tolist())
    idle, alone = list(range(workers)), dict[int, None]()  # alone: whoever plays and has no task for afterwards
    playing: list[tuple[float, int]] = []  # when a worker's result is there
    ahead: dict[int, tuple[float, float]] = {}  # when a worker's next task is there, and how long it takes
    while waiting or playing:
        for worker in [idle.pop() for _ in range(min(len(idle), len(waiting)))]:
            now, worked = now + master.task / 2, worked + master.task / 2
            heapq.heappush(playing, (now + transit + waiting.popleft(), worker))
            alone[worker] = None
        while alone and len(waiting) > 2 * workers:
            now, worked = now + master.task / 2, worked + master.task / 2
            ahead[alone.popitem()[0]] = (now + transit, waiting.popleft())
        now = max(now, playing[0][0])
        look = master.loop + master.slot * workers
        until = now
        while playing and playing[0][0] <= until:
            ended, worker = heapq.heappop(playing)
            look += master.task / 2
            if worker in ahead:
                there, takes = ahead.pop(worker)
                heapq.heappush(playing, (max(ended, there) + takes, worker))
                alone[worker] = None
            else:
                del alone[worker]
                idle.append(worker)
        now, worked = now + look, worked + look
    return now, worked / now


@dataclass(frozen=True)
class Work:
    """A kind of generation: what its tasks take and what it costs its master."""

    name: str
    durations: NDArray[np.float64]  # [N] seconds of tasks, a sample
    per_task: int  # candidates
    frame: float  # seconds of an episode's frame, one worker
    rebuild: float  # seconds of a candidate before its first frame
    episodes: int
    spread: NDArray[np.float64]  # [N] tasks' durations over their mean
    own: Own
    row: int  # bytes of a survivor

    def tasks(self, population: int, length: float) -> NDArray[np.float64]:
        """Return the seconds of the tasks of a population whose episodes have `length` frames on average."""
        each = self.per_task * (self.rebuild + self.episodes * length * self.frame)
        draw = np.random.default_rng(population)
        return each * draw.choice(self.spread, -(-population // self.per_task))

    def serial(self, population: int, survivors: int, workers: int) -> float:
        """Return the seconds of a generation in which no worker plays."""
        machines = -(-workers // CORES) - 1
        sending = machines * survivors * self.row / BANDWIDTH
        return self.own.fixed + population * self.own.candidate + survivors * self.own.survivor + sending


def generation(work: Work, population: int, length: float, workers: int, master: Master) -> tuple[float, float, float]:
    """Return the seconds of a generation, the share of workers' time that is playing, and the master's busy share."""
    durations = work.tasks(population, length)
    transit = master.transit + (TRIP if workers > CORES else 0.0)
    mapping, busy = simulate(durations, workers, master, transit)
    serial = work.serial(population, min(64, population // 8), workers)
    whole = serial + mapping
    return whole, float(durations.sum()) / (workers * whole), (serial + busy * mapping) / whole


def needed(work: Work, length: float, workers: int, master: Master, least: int) -> int:
    """Return the smallest population, a power of two, that keeps workers playing for WORTH of their time; 0: none."""
    population = max(least, 256)
    while population <= LARGEST:
        if population >= workers and generation(work, population, length, workers, master)[1] >= WORTH:
            return population
        population *= 2
    return 0
