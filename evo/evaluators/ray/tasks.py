"""Send tasks to a Ray cluster and collect the results, whatever happens to workers and nodes.

This is done by Ray's driver, a process of its own: Ray ends it without a message where the head is lost, and the run
lives on.
"""

from __future__ import annotations

import hashlib
import math
import os
import signal
import socket
import sys
import threading
import time
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, is_dataclass, replace
from enum import Enum
from functools import partial
from itertools import count
from pathlib import Path
from typing import Any, NoReturn

import numpy as np
from numpy.typing import NDArray

from evo.errors import ConfigurationError, DeviceMemoryError, first_line, notice
from evo.evaluators.ray.cluster import RayCluster, capacity
from evo.evaluators.ray.worker import Lost, RayAnswer, play
from evo.player import RunSpec, worst
from evo.plugins.code import code_of
from evo.records import Played, Task
from evo.workers.channel import Channel, Failed, GivesUp, Packed
from evo.workers.fork_server import START_DEADLINE
from evo.workers.pool import FIRST_DEADLINE, GROWTH
from evo.workers.round import Deadlines, Round, agreed, size
from evo.workers.worker import leave_with_master

KEPT = 2  # published matrices in the object store
CHECK = 1.0  # seconds between checks of the cluster while nothing arrives
NO_NODE = 60.0  # seconds without an answer after which the resources of the nodes are checked


class Repeat(Enum):
    """Why a task has no answer, and is sent again."""

    LOST = 1  # with its worker, its node or its result
    CANCELLED = 2  # by this evaluator


class Ray:
    """An evaluator on a cluster, of which at most `most` tasks at a time are in flight.

    `map` raises PoisonError as `Pool` does, ResourceError where the cluster is lost or has no node left that
    could play, and an exception of a worker's Python code as it is. Where a worker's device is too small, one task
    fewer plays at a time from then on; DeviceMemoryError where that leaves none.
    """

    def __init__(
        self, spec: RunSpec, cluster: RayCluster, request: Mapping[str, float], most: float = math.inf
    ) -> None:
        self._fingerprint = ""
        self._notices: list[str] = []  # what a user should know, for the next `Played`
        self._cluster, self._request, self._most = cluster, request, most
        self._run_dir, self._spec = spec.run_dir, Packed.of(replace(spec, run_dir=Path()))
        self._key, self._code = hashlib.sha256(self._spec.body).hexdigest(), code_of(spec.plugins)
        named = {"num_cpus": request.get("CPU", 0), "num_gpus": request.get("GPU", 0)}
        others = {name: amount for name, amount in request.items() if name not in ("CPU", "GPU", "memory")}
        if "memory" in request:
            named["memory"] = request["memory"]
        # A worker plays many tasks; a task that is lost with its worker or node is repeated.
        self._play = cluster.ray.remote(max_retries=-1, max_calls=0, resources=others, **named)(play)
        self._put: OrderedDict[str, Any] = OrderedDict()  # references of published matrices
        self._deadlines = Deadlines(spec.workers.deadline, max(spec.workers.deadline, FIRST_DEADLINE))
        self._silences = 0  # timeouts in a row without a result
        self._spent: set[str] = set()  # workers whose device is too small
        self._tickets = count()
        poisoned = partial(worst, spec) if spec.workers.on_poison == "worst" else None
        self._round = partial(Round, attempts=1, separable=True, worst=poisoned)

    def map(self, tasks: Sequence[Task]) -> Played:
        """Play the tasks; results are in task order."""
        now = self._round(tasks, self._tickets)
        in_flight: dict[Any, int] = {}
        try:
            while not now.finished:
                while now.waiting and len(in_flight) < self._most:
                    ticket = now.waiting.popleft()
                    in_flight[self._send(ticket, now)] = ticket
                for reference in self._answered(in_flight, now):
                    answer, ticket = self._answer(reference), in_flight.pop(reference)
                    if isinstance(answer, GivesUp):
                        self._give_up(answer, in_flight)
                        now.waiting.appendleft(ticket)
                    else:
                        self._take(answer, ticket, now)
        except BaseException:
            self._abandon(list(in_flight))
            raise
        notices, self._notices = self._notices, []
        return now.played(notices, self._fingerprint)

    def close(self) -> None:
        """Leave the cluster; one of its own is ended with all its processes."""
        self._put.clear()
        self._cluster.close()

    def _send(self, ticket: int, now: Round) -> Any:
        task: Task = now.task(ticket)
        name = task.weights.published
        if name not in self._put:
            self._put[name] = self._cluster.ray.put(matrix_of(self._run_dir, name))
            if len(self._put) > KEPT:
                self._put.popitem(last=False)
        now.bytes_sent += array_bytes(task)
        deadline = self._deadlines.of(size(task))
        return self._play.remote(self._code, self._key, self._spec, self._put[name], task, deadline)

    def _answered(self, in_flight: Mapping[Any, int], now: Round) -> list[Any]:
        """Wait for answers, and return the references of those that have arrived."""
        since = checked = time.monotonic()
        while True:
            wanted = 1 if now.waiting else len(in_flight)
            try:
                here, _ = self._cluster.ray.wait(list(in_flight), num_returns=wanted, timeout=CHECK)
            except (ConnectionError, RuntimeError) as error:
                raise self._cluster.lost(error) from error
            self._cluster.check()
            if here:
                return list(here)
            if time.monotonic() - checked > NO_NODE:
                self._cluster.refuse(self._request)
                checked = time.monotonic()
            silent, longest = (
                time.monotonic() - since,
                max(self._deadlines.of(size(now.task(ticket))) for ticket in in_flight.values()),
            )
            # After so long without an answer, a worker must have been stopped before it had a guard.
            if silent > (START_DEADLINE + longest) * GROWTH**self._silences:
                self._silences += 1
                notice(f"no result came from Ray for {silent:.0f} seconds, so {len(in_flight)} tasks are sent again")
                self._cancel(in_flight)
                since = time.monotonic()

    def _cancel(self, in_flight: Mapping[Any, int]) -> None:
        """Cancel the tasks that are played or queued, so that they are sent again."""
        try:
            for reference in in_flight:
                self._cluster.ray.cancel(reference, force=True)
        except (ConnectionError, RuntimeError) as error:
            raise self._cluster.lost(error) from error

    def _answer(self, reference: Any) -> RayAnswer | Lost | GivesUp | Failed | Repeat:
        """Return the answer to a task."""
        errors = self._cluster.ray.exceptions
        try:
            answer: RayAnswer | Lost | GivesUp | Failed = self._cluster.ray.get(reference)
            return answer
        except errors.RayTaskError as error:  # it never reached `play`
            raise ConfigurationError(
                "workers.backend: a Ray worker cannot take a task; every node needs the same Python and the packages "
                f"of requirements.lock: {first_line(error.cause)}"
            ) from error
        except errors.TaskCancelledError:
            return Repeat.CANCELLED
        except (errors.ObjectLostError, errors.WorkerCrashedError, errors.NodeDiedError, errors.OutOfMemoryError):
            return Repeat.LOST
        except (errors.RayError, ConnectionError) as error:
            raise self._cluster.lost(error) from error

    def _take(self, answer: RayAnswer | Lost | Failed | Repeat, ticket: int, now: Round) -> None:
        if isinstance(answer, Repeat):
            now.replaced += answer is Repeat.LOST
            now.waiting.appendleft(ticket)
        elif isinstance(answer, Failed):
            raise answer.error()
        elif isinstance(answer, Lost):
            now.replaced += answer.attempts
            now.put_back(ticket, f"died, as {answer.attempts - 1} before it did")
        else:
            self._fingerprint = agreed(answer.fingerprint, self._fingerprint, f"worker {answer.worker[:8]}")
            self._silences = 0
            now.replaced += answer.attempt
            now.bytes_received += array_bytes(answer.result)
            self._notices += answer.notices
            self._deadlines.note(answer.seconds, size(now.task(ticket)))
            now.answer(ticket, answer.result, answer.worker, answer.seconds, answer.cpu_seconds)

    def _give_up(self, answer: GivesUp, in_flight: Mapping[Any, int]) -> None:
        """Play one task fewer at a time, since Ray chooses the device of a task."""
        if answer.who in self._spent:
            return
        self._spent.add(answer.who)
        at_a_time = min(self._most, sum(capacity(node["Resources"], self._request) for node in self._cluster.nodes))
        who = f"{answer.who} gives up: {answer.why}"
        if at_a_time <= 1:
            raise DeviceMemoryError(
                f"{who}; no worker is left. Give each more memory: a larger part of a GPU in workers.resources, or "
                "another workers.memory"
            )
        self._most = at_a_time - 1
        plays = "play" if self._most > 1 else "plays"
        self._notices.append(f"{who}; {self._most:g} at a time {plays} on without it")
        self._cancel(in_flight)  # else the tasks queued at the nodes would be played by as many as before

    def _abandon(self, in_flight: list[Any]) -> None:
        try:
            self._cluster.check()
            for reference in in_flight:
                self._cluster.ray.cancel(reference, force=True)
        except Exception as error:
            print(f"note: tasks on Ray were not cancelled: {first_line(error)}", file=sys.stderr)


def matrix_of(run_dir: Path, name: str) -> NDArray[np.float32]:
    """Return the published matrix of a name; without a name, one of no rows."""
    if not name:
        return np.empty((0, 0), np.float32)
    import h5py

    with h5py.File(run_dir / name, "r", locking=False) as file:
        weights: NDArray[np.float32] = file["weights"][:]  # [S, P]
    return weights


def array_bytes(record: Any) -> int:
    """Return the bytes of all arrays in a task or a result."""
    if isinstance(record, np.ndarray):
        return record.nbytes
    if isinstance(record, tuple):
        return sum(map(array_bytes, record))
    return sum(array_bytes(getattr(record, one.name)) for one in fields(record)) if is_dataclass(record) else 0


@dataclass(frozen=True)
class DriverSpec:
    """What the process needs to join a cluster."""

    run: RunSpec
    address: str
    request: Mapping[str, float]  # of resources, by one task
    most: float  # tasks in flight
    cpus: int  # of a cluster of its own
    environment: Mapping[str, str]  # of workers
    scratch: str  # a directory for a cluster of its own; the master removes it


def serve(descriptor: int) -> NoReturn:
    """Answer the master on the socket with this file descriptor, until it is closed or the master dies."""
    channel = Channel(socket.socket(fileno=descriptor))
    os.set_inheritable(descriptor, False)
    threading.Thread(target=leave_with_master, args=(descriptor, _leave), daemon=True).start()
    ray: Ray | None = None
    try:
        spec: DriverSpec = channel.receive()
        while True:
            try:
                if ray is None:
                    ray = join(spec)
                    channel.send(None)
                tasks = channel.receive()
                if tasks is None:
                    break
                channel.send(ray.map(tasks))
            except Exception as error:
                channel.send(Failed.of(error))
                if ray is None:
                    break
        if ray is not None:
            ray.close()
    finally:
        _leave()


def _leave() -> NoReturn:
    """End this process, with a cluster of its own, which is in its group; workers end with their node."""
    os.killpg(0, signal.SIGKILL)
    os._exit(1)


def join(spec: DriverSpec) -> Ray:
    """Join the cluster and return its evaluator; ResourceError where it lacks resources."""
    cluster = RayCluster(spec.address, spec.cpus, spec.environment, spec.scratch)
    try:
        cluster.refuse(spec.request)
        return Ray(spec.run, cluster, spec.request, spec.most)
    except BaseException:
        cluster.close()
        raise
