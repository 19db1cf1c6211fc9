"""What scaling costs, measured in this run: the master's work, what lies between it and a worker, a generation's own.

    python -m benchmarks.costs

Each is taken where playing costs nothing, so that nothing else is in it: workers that answer at once, or an evaluator
that does. As a program, it prints the CPU time of the master for a generation of two published experiments.
"""

from __future__ import annotations

import json
import socket
import tempfile
import threading
import time
from collections.abc import Sequence
from contextlib import closing
from dataclasses import astuple, dataclass
from pathlib import Path
from statistics import median
from typing import Any, cast

import numpy as np

from benchmarks.generations import experiment_of
from benchmarks.peers import ROOT
from benchmarks.rollout import Case
from benchmarks.tables import seconds
from evo.config.environments import environment_of
from evo.config.experiment import Experiment
from evo.records import Episodes, Played, Player, Result, Task
from evo.store.store import Store
from evo.training.beginning import make_algorithm
from evo.training.generation import play_out
from evo.workers.channel import WorkerSpec
from evo.workers.pool import Pool

WORKERS = (1, 2, 8, 24)  # that answer at once, for what the master does about each


@dataclass(frozen=True)
class Master:
    """Seconds of the master's processor, and of waiting that is not its own."""

    task: float  # handing out a task and taking in its result
    loop: float  # looking for results, once
    slot: float  # and for every worker that it looks at
    transit: float  # a task's way to a worker that waits and a result's way back, nobody else being there


class Idle(Player):
    """A player that has nothing to do."""

    def play(self, task: Task) -> Result:
        """Return a result of the right size."""
        return answer(task)


def make_idle(context: object) -> Idle:
    """Return one, in a worker."""
    return Idle()


def answer(task: Task) -> Result:
    """Return what playing could have brought back; fitness differs, so that there is something to rank."""
    assert isinstance(task.play, Episodes)
    shape = (len(task.weights), len(task.play.seeds))
    returns = (task.weights.keys.astype(np.int64) & 1023)[:, None] + np.zeros(shape, np.int64)
    lengths = np.ones(shape, np.int32)
    measures, finite = np.zeros((*shape, 3), np.int32), np.ones(shape[0], np.bool_)
    return Result(returns, lengths, measures, finite, lengths.size, lengths.size)


def idle_pool(workers: int) -> Pool:
    """Return a pool as runs have it, with workers that have nothing to do."""
    return Pool(WorkerSpec("benchmarks.costs:make_idle", None), [{}] * workers)


class Timed(Pool):
    """A pool that accounts for its processor time, and whose workers wait for every task."""

    loops, polling = 0, 0.0  # times that it has looked for results, and seconds of that

    def _prefetch(self, now: Any) -> None:
        pass

    def _play(self, now: Any) -> None:
        selector, self._selector = self._selector, cast(Any, _Watched(self._selector, self))
        began = time.process_time()
        try:
            super()._play(now)
        finally:
            self._selector = selector
            self.polling += time.process_time() - began

    def _send(self, slot: Any, now: Any, most: int | None = None) -> bool:
        began = time.process_time()
        sent = super()._send(slot, now, most)
        self.polling -= time.process_time() - began
        return sent

    def _receive(self, now: Any) -> Any:
        self.loops += 1
        began = time.process_time()
        received = super()._receive(now)
        self.polling -= time.process_time() - began
        return received

    def _overdue(self, sending: Any, now: Any, moment: float) -> Any:
        began = time.process_time()
        overdue = super()._overdue(sending, now, moment)
        self.polling += time.process_time() - began
        return overdue


class _Watched:
    """A selector whose waiting is accounted for in its pool."""

    def __init__(self, selector: Any, pool: Timed) -> None:
        self._selector, self._pool = selector, pool

    def __getattr__(self, name: str) -> Any:
        return getattr(self._selector, name)

    def select(self, timeout: float) -> Any:
        """Wait for results."""
        began = time.process_time()
        ready = self._selector.select(timeout)
        self._pool.polling += time.process_time() - began
        return ready


class Masters:
    """Pools of different sizes whose workers answer at once, to measure their master again and again."""

    def __init__(self, smoke: bool) -> None:
        sizes = WORKERS[: 3 if smoke else None]
        self._pools = {n: Timed(WorkerSpec("benchmarks.costs:make_idle", None), [{}] * n) for n in sizes}

    def __enter__(self) -> Masters:
        return self

    def __exit__(self, *_: object) -> None:
        for pool in self._pools.values():
            pool.close()

    def measure(self, tasks: Sequence[Task]) -> Master:
        """Return what the master does: per task, per poll, and per worker that a poll looks at."""
        polls, used, wall = [], 0.0, 0.0
        for workers, pool in self._pools.items():
            pool.loops, pool.polling = 0, 0.0
            before, began = time.process_time(), time.perf_counter()
            pool.map(tasks)
            wall = wall or (time.perf_counter() - began) / len(tasks)  # of one worker
            used += time.process_time() - before - pool.polling
            polls.append((pool.loops, pool.loops * workers, pool.polling))
        *matrix, wanted = np.array(polls).T
        task = used / (len(tasks) * len(polls))
        loop, slot = _not_negative(np.array(matrix).T / wanted[:, None], np.ones(len(polls)))
        return Master(task, loop, slot, max(0.0, wall - task - loop - slot))


def typical(masters: Sequence[Master]) -> Master:
    """Return the medians of what was measured again and again."""
    return Master(*(median(costs) for costs in zip(*map(astuple, masters), strict=True)))


def _not_negative(matrix: Any, wanted: Any) -> list[float]:
    """Return least squares of which none is negative: what comes out so is left out."""
    columns = list(range(matrix.shape[1]))
    while True:
        found = np.linalg.lstsq(matrix[:, columns], wanted, rcond=None)[0]
        if (found >= 0).all():
            whole = np.zeros(matrix.shape[1])
            whole[columns] = found
            return [float(value) for value in whole]
        del columns[int(np.argmin(found))]


@dataclass(frozen=True)
class Own:
    """Seconds of a generation in which no worker plays, with a master that is alone."""

    candidate: float  # naming it, ranking it, recording it
    survivor: float  # of a new parent: rebuilding and committing
    fixed: float


def own(case: Case, populations: Sequence[tuple[int, int]], generations: int) -> tuple[Own, Own]:
    """Return what a generation of a GA costs its master, by least squares over (population, parents).

    Once by the median of its generations, and once by the quickest of them.
    """
    rows, took = [], []
    for population, parents in populations:
        with tempfile.TemporaryDirectory(dir=".", prefix=".benchmark-") as place:
            took.append(_generations(case, population, parents, Path(place) / "run", generations))
            rows.append((population, parents, 1.0))

    def fitted(seconds: Sequence[float]) -> Own:
        return Own(*_not_negative(np.array(rows) / np.array(seconds)[:, None], np.ones(len(seconds))))

    return fitted([median(each) for each in took]), fitted([min(each) for each in took])


class AtOnce:
    """An evaluator that answers at once."""

    answering = 0.0  # seconds

    def map(self, tasks: Sequence[Task]) -> Played:
        """Return the results in task order."""
        results: list[Result] = []
        self.answering += seconds(lambda: results.extend(map(answer, tasks)))
        return Played(results)

    def close(self) -> None:
        """Do nothing."""


def _generations(case: Case, population: int, parents: int, directory: Path, generations: int) -> list[float]:
    experiment = experiment_of(case, population, parents)
    algorithm = make_algorithm(experiment, environment_of(experiment.environment))
    evaluator, took = AtOnce(), list[float]()
    with Store.create(directory, experiment.to_toml(), experiment.identity()) as store:
        for generation in range(generations + 1):
            evaluator.answering, began = 0.0, time.perf_counter()
            metrics = play_out(algorithm.generation(generation), evaluator, store.publish)
            store.commit(generation, algorithm.state(), algorithm.record(), {**metrics, "seconds": 1.0})
            if generation == generations:
                store.flush()
            if generation:  # the first one has no parents
                took.append(time.perf_counter() - began - evaluator.answering)
    return took


@dataclass
class Handed:
    """A pool whose workers answer at once, and the CPU seconds of the master that it takes."""

    pool: Pool
    seconds: float = 0.0

    def map(self, tasks: Sequence[Task]) -> Played:
        """Return the results in task order."""
        played: list[Played] = []
        self.seconds += seconds(lambda: played.append(self.pool.map(tasks)), time.process_time)
        return played[0]

    def close(self) -> None:
        """Close the pool."""
        self.pool.close()


def master_of_a_run(name: str, population: int, generations: int, turns: int = 5) -> dict[str, float]:
    """Return milliseconds of the master's processor a generation of an experiment: medians over turns."""
    settings = f"ga.population={population}", "validation.every=1000000", "test.every=0"
    experiment = Experiment.load(ROOT / "experiments" / f"{name}.toml", *settings)
    algorithm, handed = make_algorithm(experiment, environment_of(experiment.environment)), Handed(idle_pool(2))
    took: dict[str, list[float]] = {}
    with (
        closing(handed),
        tempfile.TemporaryDirectory(dir=".", prefix=".benchmark-") as place,
        Store.create(Path(place) / "run", experiment.to_toml(), experiment.identity()) as store,
    ):
        for turn in range(turns + 1):  # the first one compiles
            spent = dict.fromkeys(("create, rank and rebuild", "hand over", "commit", "make durable"), 0.0)
            for generation in range(turn * generations, (turn + 1) * generations):
                moments, before = [time.process_time()], handed.seconds
                metrics = play_out(algorithm.generation(generation), handed, store.publish)
                moments.append(time.process_time())
                store.commit(generation, algorithm.state(), algorithm.record(), {**metrics, "seconds": 1.0})
                moments.append(time.process_time())
                store.flush()
                moments.append(time.process_time())
                parts = np.diff(moments).tolist()
                own = [parts[0] - handed.seconds + before, handed.seconds - before, *parts[1:]]
                spent = {name: spent[name] + part for name, part in zip(spent, own, strict=True)}
            for name, each in spent.items():
                took.setdefault(name, []).append(1000 * each / generations)
    return {name: round(median(each[1:]), 2) for name, each in took.items()}


def network(size: int = 1 << 16, messages: int = 200) -> tuple[float, float]:
    """Return the seconds of a small message there and back by TCP on this machine, and bytes a second one way."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        echo = threading.Thread(target=_echo, args=(server, size), daemon=True)
        echo.start()
        with socket.create_connection(server.getsockname()) as there:
            there.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

            def small() -> None:
                for _ in range(messages):
                    there.sendall(b"x")
                    there.recv(1)

            def large() -> None:
                for _ in range(messages):
                    there.sendall(bytes(size))
                there.recv(1)

            small()
            trip = seconds(small) / messages
            there.sendall(b"!")
            there.recv(1)
            speed = size * messages / seconds(large)
        echo.join(5)
    return trip, speed


def _echo(server: socket.socket, size: int, messages: int = 200) -> None:
    connection, _ = server.accept()
    with connection:
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        while connection.recv(1) == b"x":
            connection.sendall(b"x")
        connection.sendall(b"x")
        left = size * messages
        while left and (part := connection.recv(1 << 18)):
            left -= len(part)
        connection.sendall(b"x")


if __name__ == "__main__":
    for name, population, generations in (("ga_snake", 512, 20), ("ga_snake_seed", 64, 5)):
        print(name, population, json.dumps(master_of_a_run(name, population, generations)), flush=True)
