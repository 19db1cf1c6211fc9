"""A plug-in backend: processes that get tasks in a random order, and of which random ones are killed while they play.

SHAKEN is "SEED:KILLS": what the order and the moments are drawn from, and how many workers to kill in one call.
"""

from __future__ import annotations

import os
import random
import signal
import threading
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Any

from evo.evaluators import processes
from evo.player import RunSpec
from evo.records import Played
from evo.workers.pool import Pool

plugs_into = "evaluators"

killed = 0  # in all


class Shaken:
    """Returns what the processes return, or the test that uses it fails."""

    def __init__(self, pool: Pool, dice: random.Random, kills: int) -> None:
        self._pool, self._dice, self._kills = pool, dice, kills

    def map(self, tasks: Sequence[Any]) -> Played:
        """Return the results in task order."""
        order = self._dice.sample(range(len(tasks)), len(tasks))
        done = threading.Event()
        killer = threading.Thread(target=self._kill, args=(done,))
        killer.start()
        try:
            played = self._pool.map([tasks[i] for i in order])
        finally:
            done.set()
            killer.join()
        results = dict(zip(order, played.results, strict=True))
        return replace(played, results=[results[i] for i in range(len(tasks))])

    def _kill(self, done: threading.Event) -> None:
        global killed
        before, pids = -1.0, list(self._pool.pids)
        for _ in range(self._kills):
            while self._busy() == before or not any(pids):  # a task is to meet one kill, not three
                if done.wait(0.001):
                    return
                pids = list(self._pool.pids)
            if done.wait(self._dice.random() * 0.02):
                return
            before, pid = self._busy(), self._dice.choice([pid for pid in self._pool.pids if pid] or [0])
            with suppress(ProcessLookupError):
                if pid:
                    os.kill(pid, signal.SIGKILL)
                    killed += 1

    def _busy(self) -> float:
        return sum(self._pool._now.busy.values())

    def close(self) -> None:
        """Stop every worker."""
        self._pool.close()


Options = processes.Options


def make(options: processes.Options, spec: RunSpec) -> Shaken:
    seed, _, kills = os.environ.get("SHAKEN", "0:0").partition(":")
    return Shaken(processes.make(options, spec), random.Random(seed), int(kills))
