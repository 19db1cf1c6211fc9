"""Plays tasks on a Ray cluster, each as a plain Ray task: the same results, from as many machines as there are.

Weights are put into the object store once and fetched once a node; results come back through it. Ray hands out tasks
to whichever worker is free, and plays those of a lost worker or node again; results stand in task order.
"""

from __future__ import annotations

import hashlib
import json
import math
import sys
import time
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from dataclasses import asdict, fields, is_dataclass, replace
from functools import partial
from itertools import count
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from evo.devices import cores
from evo.errors import ConfigurationError, PoisonError, ResourceError
from evo.evaluators.cluster import Cluster, first_line, installed, lacking
from evo.evaluators.context import Context, measures_of
from evo.evaluators.effort import Effort
from evo.evaluators.nursery import THREADS
from evo.evaluators.pace import Pace
from evo.evaluators.processes import PATIENCE, UNMEASURED
from evo.evaluators.ray_worker import Lost, Played, code_digest, play
from evo.evaluators.round import Round, size, worst_result
from evo.evaluators.worker import Failed
from evo.records import Result, Task

KEPT = 2  # published matrices in the object store
LOOK = 1.0  # seconds between looks at the cluster while nothing arrives
NO_ROOM = 60.0  # seconds in which no node may be alive that could play


class Ray:
    """An evaluator on a cluster, of which at most `most` tasks at a time are in flight.

    `map` raises PoisonError as `Processes` does, ResourceError where the cluster is lost or has no node left that
    could play, and an exception of a worker's Python code as it is.
    """

    def __init__(
        self,
        context: Context,
        cluster: Cluster,
        request: Mapping[str, float],
        most: float = math.inf,
        patience: float = PATIENCE,
    ) -> None:
        self.effort = Effort()
        self.fingerprint = ""
        self.poisoned: Sequence[PoisonError] = ()
        self._cluster, self._request, self._most = cluster, request, most
        self._run_dir, self._context = context.run_dir, replace(context, run_dir=Path())
        self._key, self._code = key_of(self._context), code_digest()
        named = {"num_cpus": request.get("CPU", 0), "num_gpus": request.get("GPU", 0)}
        others = {name: amount for name, amount in request.items() if name not in ("CPU", "GPU", "memory")}
        if "memory" in request:
            named["memory"] = request["memory"]
        # Workers live on from task to task, and a task outlives whatever happens to its worker or its node.
        self._play = cluster.ray.remote(max_retries=-1, max_calls=0, resources=others, **named)(play)
        self._put: OrderedDict[str, Any] = OrderedDict()  # references of published matrices
        self._pace = Pace(patience, max(patience, UNMEASURED))
        self._tickets = count()
        worst = partial(_worst, context) if context.workers.get("on_poison") == "worst" else None
        self._round = partial(Round, attempts=1, separable=context.inference == "lanes", worst=worst)

    def __enter__(self) -> Ray:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def map(self, tasks: Sequence[Task]) -> list[Result]:
        """Return the results in task order, whatever order they were played in, and wherever."""
        began, busy = time.monotonic(), dict[str, float]()
        self.effort = Effort()
        now = self._round(tasks, self._tickets)
        flying: dict[Any, int] = {}
        try:
            while not now.finished:
                while now.waiting and len(flying) < self._most:
                    ticket = now.waiting.popleft()
                    flying[self._hand(ticket, now.task(ticket))] = ticket
                for reference in self._landed(list(flying), now):
                    self._hear(self._answer(reference), flying.pop(reference), now, busy)
        except BaseException:
            self._abandon(list(flying))
            raise
        self.effort.seconds, self.effort.busy = time.monotonic() - began, list(busy.values())
        self.poisoned = now.poisoned
        return now.results()

    def close(self) -> None:
        """Leave the cluster; of one of our own no process is left."""
        self._put.clear()
        self._cluster.close()

    def _hand(self, ticket: int, task: Task) -> Any:
        name = task.weights.published
        if name not in self._put:
            self._put[name] = self._cluster.ray.put(matrix_of(self._run_dir, name))
            if len(self._put) > KEPT:
                self._put.popitem(last=False)
        self.effort.sent += carried(task)
        patience = self._pace.limit(size(task))
        return self._play.remote(self._code, self._key, self._context, self._put[name], task, ticket, patience)

    def _landed(self, flying: list[Any], now: Round) -> list[Any]:
        """Wait for answers, and return the references of those that are here."""
        since = time.monotonic()
        while True:
            wanted = 1 if now.waiting else len(flying)
            try:
                here, _ = self._cluster.ray.wait(flying, num_returns=wanted, timeout=LOOK)
            except (ConnectionError, RuntimeError) as error:
                raise self._lost(error) from error
            try:
                self._cluster.look()
                if here:
                    return list(here)
                if time.monotonic() - since > NO_ROOM:
                    self._refuse_to_wait()
                    since = time.monotonic()
            except ResourceError as error:
                raise self._lost(error) from error

    def _refuse_to_wait(self) -> None:
        if missing := lacking([node["Resources"] for node in self._cluster.nodes], self._request):
            raise ResourceError(f"workers.resources: {missing}")

    def _answer(self, reference: Any) -> Played | Lost | Failed | None:
        """Return what came of a task; None where its result was lost and it has to be played again."""
        errors = self._cluster.ray.exceptions
        try:
            answer: Played | Lost | Failed = self._cluster.ray.get(reference)
            return answer
        except errors.RayTaskError as error:  # it never reached our code
            raise ConfigurationError(
                "workers.backend: a Ray worker cannot take a task; every node needs the same Python and the packages "
                f"of requirements.lock: {first_line(getattr(error, 'cause', error))}"
            ) from error
        except (errors.ObjectLostError, errors.WorkerCrashedError, errors.NodeDiedError, errors.OutOfMemoryError):
            return None
        except (errors.RayError, ConnectionError) as error:
            raise self._lost(error) from error

    def _hear(self, answer: Played | Lost | Failed | None, ticket: int, now: Round, busy: dict[str, float]) -> None:
        if answer is None:
            self.effort.replaced += 1
            now.waiting.appendleft(ticket)
        elif isinstance(answer, Failed):
            raise answer.error()
        elif isinstance(answer, Lost):
            self.effort.replaced += answer.attempts
            now.put_back(ticket, f"died, as {answer.attempts - 1} before it did")
        else:
            if self.fingerprint and answer.fingerprint != self.fingerprint:
                raise ResourceError(f"workers compute differently: {answer.fingerprint}, others are {self.fingerprint}")
            self.fingerprint = answer.fingerprint
            self.effort.replaced += answer.attempt
            self.effort.received += carried(answer.result)
            busy[answer.worker] = busy.get(answer.worker, 0.0) + answer.seconds
            self._pace.note(answer.seconds, size(now.task(ticket)))
            now.answer(ticket, answer.result)

    def _lost(self, error: Exception) -> ResourceError:
        again = f"python -m evo.run --resume {self._run_dir} --backend processes"
        told = error if isinstance(error, ResourceError) else self._cluster.lost(error)
        return ResourceError(f"{told}; what is committed is safe, go on with it without Ray by: {again}")

    def _abandon(self, flying: list[Any]) -> None:
        try:
            self._cluster.look()
            for reference in flying:
                self._cluster.ray.cancel(reference, force=True)
        except Exception as error:
            print(f"note: tasks on Ray were not cancelled: {first_line(error)}", file=sys.stderr)


def key_of(context: Context) -> str:
    """Return the SHA-256 of what a player is made from."""
    return hashlib.sha256(json.dumps(asdict(context), sort_keys=True, default=str).encode()).hexdigest()


def matrix_of(run_dir: Path, name: str) -> NDArray[np.float32]:
    """Return the published matrix of that name, which this process has written; of no name, one of no rows."""
    if not name:
        return np.empty((0, 0), np.float32)
    import h5py

    with h5py.File(run_dir / name, "r", locking=False) as file:
        weights: NDArray[np.float32] = file["weights"][:]  # [S, P]
    return weights


def carried(record: Any) -> int:
    """Return the bytes of all arrays in a task or a result."""
    if isinstance(record, np.ndarray):
        return record.nbytes
    if isinstance(record, tuple):
        return sum(map(carried, record))
    return sum(carried(getattr(record, one.name)) for one in fields(record)) if is_dataclass(record) else 0


def request_of(workers: Mapping[str, Any], inference: str) -> dict[str, float]:
    """Return what one task asks Ray for; ConfigurationError where the options do not fit together."""
    request = {"CPU": float(workers.get("threads", 1)), **workers.get("resources", {})}
    if workers.get("gpus"):
        raise ConfigurationError(
            "workers.gpus: pins processes of this machine; on Ray say which part of a GPU each evaluator takes, "
            "as in resources = {GPU = 0.1}"
        )
    if "GPU" in request and inference != "tensorflow":
        raise ConfigurationError('workers.resources: only policy.inference = "tensorflow" computes on GPUs')
    if request.get("GPU", 1) < 1 and workers.get("memory") == "all":
        raise ConfigurationError('workers.memory: "all" gives a whole GPU to one evaluator; use "growth" or "limit"')
    return request


def planned(workers: Mapping[str, Any], inference: str) -> str:
    """Return in one line what will play; ConfigurationError where Ray is missing or the options do not fit."""
    installed()
    asked = ", ".join(f"{name} = {amount:g}" for name, amount in request_of(workers, inference).items())
    where = {"local": "a Ray cluster of its own", "auto": "the Ray cluster that this machine is in"}
    address = str(workers.get("address", "local"))
    return f"tasks on {where.get(address, f'the Ray cluster at {address}')}, each with {asked}"


def make(context: Context) -> Ray:
    """Return the evaluator of a run."""
    workers, request = context.workers, request_of(context.workers, context.inference)
    most = math.inf if workers.get("count", "auto") == "auto" else int(workers["count"])
    cpus = request["CPU"] * (cores() if most == math.inf else most)
    growth = "true" if workers.get("memory", "growth") == "growth" else "false"
    environment = {**dict.fromkeys(THREADS, str(workers.get("threads", 1))), "TF_FORCE_GPU_ALLOW_GROWTH": growth}
    cluster = Cluster(workers.get("address", "local"), math.ceil(cpus), environment)
    try:
        cluster.refuse(request)
        return Ray(context, cluster, request, most)
    except BaseException:
        cluster.close()
        raise


def _worst(context: Context, task: Task) -> Result:
    return worst_result(task, measures_of(context))
