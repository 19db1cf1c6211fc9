"""A Ray worker: it plays a task with a player that it keeps for the next one."""

from __future__ import annotations

import os
import socket
import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from evo import clock
from evo.environments.instances import OPEN
from evo.errors import ConfigurationError, DataError, DeviceMemoryError
from evo.evaluators.ray.cluster import imported
from evo.evaluators.ray.guard import Guard
from evo.player import RunSpec, make_player
from evo.plugins import directory
from evo.plugins.code import other_code
from evo.records import Player, Result, Task
from evo.workers.channel import OUT_OF_MEMORY, Failed, GivesUp, Packed
from evo.workers.fork_server import START_DEADLINE
from evo.workers.hardware import VISIBLE
from evo.workers.placement import NO_GPU
from evo.workers.pool import GROWTH
from evo.workers.round import ATTEMPTS
from evo.workers.worker import FIRST

SENDING = 1.0  # seconds for an answer to be sent before the worker ends


@dataclass(frozen=True)
class RayAnswer:
    """A result, and what it took."""

    result: Result
    seconds: float
    attempt: int  # earlier attempts, whose workers were lost
    worker: str
    fingerprint: str
    notices: tuple[str, ...] = ()  # what a user should know
    cpu_seconds: float = 0.0  # of processor time of the task


@dataclass(frozen=True)
class Lost:
    """A task that has ended its last allowed worker."""

    attempts: int


class TaskMatrix:
    """The published matrix that came with the present task."""

    def __init__(self) -> None:
        self.parents: NDArray[np.float32] = np.empty((0, 0), np.float32)

    def matrix(self, name: str, size: int) -> NDArray[np.float32]:
        """Return the matrix; DataError where it is of another network."""
        if self.parents.shape[1] != size and name:
            raise DataError(f"{name}: weights are {self.parents.shape}, not [S, {size}]")
        return self.parents if name else np.empty((0, size), np.float32)


_players: dict[str, tuple[Player, TaskMatrix]] = {}  # of this process, by the SHA-256 of their packed `RunSpec`
_guard = Guard()
_given_up: list[str] = []  # why this process plays no more


@directory.kept()
def play(
    code: Mapping[str, str], key: str, packed: Packed, parents: NDArray[np.float32], task: Task, deadline: float
) -> RayAnswer | Lost | GivesUp | Failed:
    """Play one task in a Ray worker, which is ended where that takes longer than `deadline` seconds.

    `packed` is a `RunSpec` and `key` its SHA-256. `code` is the master's `code_of`: a worker with other code plays
    nothing. One whose device is too small ends, for it could not free that device's memory otherwise.
    """
    driver: Any = imported()._private.worker.global_worker
    attempt = int(driver.core_worker.get_current_task_attempt_number())  # earlier ones at this task
    if attempt >= ATTEMPTS:
        return Lost(attempt)
    try:
        if _given_up:
            raise DeviceMemoryError(_given_up[0])
        if why := other_code(code):
            raise ConfigurationError(f"workers.address: {socket.gethostname()} {why}; every node needs the same one")
        player, matrix = _player(key, packed)
        matrix.parents = parents
        seconds = deadline * GROWTH**attempt
        clock.progress.tell = partial(_guard.watch, seconds)
        with _guard.watching(seconds):
            began, cpu_began = time.perf_counter(), time.process_time()
            result = player.play(task)
            seconds, cpu_seconds = time.perf_counter() - began, time.process_time() - cpu_began
        return RayAnswer(result, seconds, attempt, _worker(), player.fingerprint, _notices(player), cpu_seconds)
    except MemoryError:
        os._exit(OUT_OF_MEMORY)
    except DeviceMemoryError as error:
        _given_up.append(str(error))
        threading.Timer(SENDING, os._exit, [0]).start()
        return GivesUp(-1, str(error), _worker_name())
    except BaseException as error:
        return Failed.of(error)


def _player(key: str, packed: Packed) -> tuple[Player, TaskMatrix]:
    if key not in _players:
        spec: RunSpec = packed.unpacked()  # after the code was compared, since it may contain a plug-in's options
        if spec.inference == "tensorflow" and not os.environ.get(VISIBLE):
            os.environ[VISIBLE] = NO_GPU
        _players.clear()
        OPEN.here.close()
        matrix = TaskMatrix()
        with _guard.watching(START_DEADLINE):  # until a plug-in is called, which has less for each call
            clock.progress.tell = partial(_guard.watch, FIRST * spec.workers.deadline)
            _players[key] = make_player(spec, matrix), matrix
    return _players[key]


def _worker() -> str:
    return str(imported().get_runtime_context().get_worker_id())


def _notices(player: Player) -> tuple[str, ...]:
    notices, player.notices = player.notices, ()
    return tuple(f"{_worker_name()}: {notice}" for notice in notices)


def _worker_name() -> str:
    return f"worker {_worker()[:8]} (process {os.getpid()} on {socket.gethostname()})"
