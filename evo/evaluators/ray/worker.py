"""What a Ray worker does: it plays the task that it is handed, with a player that it keeps for the next one."""

from __future__ import annotations

import os
import socket
import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from evo.errors import ConfigurationError, DataError, DeviceMemoryError
from evo.evaluators.ray.cluster import imported
from evo.evaluators.ray.code import other_code
from evo.evaluators.ray.guard import Guard
from evo.records import Player, Result, Task
from evo.rollouts.player import RunSpec, make_player
from evo.workers.channel import OUT_OF_MEMORY, Failed, Packed
from evo.workers.fork_server import START_DEADLINE
from evo.workers.placement import NO_GPU, VISIBLE
from evo.workers.pool import GROWTH
from evo.workers.round import ATTEMPTS

LAST_WORDS = 1.0  # seconds for them to be sent


@dataclass(frozen=True)
class Answer:
    """A result, and what it took."""

    ticket: int
    result: Result
    seconds: float
    attempt: int  # times that it was begun before, by workers that were lost
    worker: str  # which one has played it
    fingerprint: str
    notices: tuple[str, ...] = ()  # what a user should know


@dataclass(frozen=True)
class Lost:
    """A task that has ended as many workers as it may."""

    ticket: int
    attempts: int


@dataclass(frozen=True)
class GivesUp:
    """A worker's last words: its device cannot hold what it is asked for, though another's may."""

    ticket: int
    why: str
    worker: str
    who: str  # the same, for people


class Handed:
    """The published matrix that came with the task at hand."""

    def __init__(self) -> None:
        self.parents: NDArray[np.float32] = np.empty((0, 0), np.float32)

    def matrix(self, name: str, size: int) -> NDArray[np.float32]:
        """Return it; DataError where it is of another network."""
        if self.parents.shape[1] != size and name:
            raise DataError(f"{name}: weights are {self.parents.shape}, not [S, {size}]")
        return self.parents if name else np.empty((0, size), np.float32)


_players: dict[str, tuple[Player, Handed]] = {}  # of this process, by the SHA-256 of their packed `RunSpec`
_guard = Guard()
_given_up: list[str] = []  # why this process plays no more


def play(
    code: Mapping[str, str],
    key: str,
    packed: Packed,
    parents: NDArray[np.float32],
    task: Task,
    ticket: int,
    patience: float,
) -> Answer | Lost | GivesUp | Failed:
    """Play one task in a Ray worker, which is ended where that takes longer than `patience` seconds.

    `packed` is a `RunSpec` and `key` its SHA-256. `code` is the master's `code_of`: a worker with other code plays
    nothing. One whose device is too small ends, for it could not free that device's memory otherwise.
    """
    attempt = _attempt()
    if attempt >= ATTEMPTS:
        return Lost(ticket, attempt)
    try:
        if _given_up:
            raise DeviceMemoryError(_given_up[0])
        if why := other_code(code):
            raise ConfigurationError(f"workers.address: {socket.gethostname()} {why}; every node needs the same one")
        player, handed = _player(key, packed)
        handed.parents = parents
        with _guard.watching(patience * GROWTH**attempt):
            began = time.perf_counter()
            result = player.play(task)
            seconds = time.perf_counter() - began
        return Answer(ticket, result, seconds, attempt, _worker(), player.fingerprint, _notices(player))
    except MemoryError:
        os._exit(OUT_OF_MEMORY)
    except DeviceMemoryError as error:
        _given_up.append(str(error))
        threading.Timer(LAST_WORDS, os._exit, [0]).start()
        return GivesUp(ticket, str(error), _worker(), _who())
    except Exception as error:
        return Failed.of(error, ticket)


def _player(key: str, packed: Packed) -> tuple[Player, Handed]:
    if key not in _players:
        spec: RunSpec = packed.unpacked()  # not before the code was compared: a plug-in's options are in it
        if spec.inference == "tensorflow" and not os.environ.get(VISIBLE):
            os.environ[VISIBLE] = NO_GPU
        _players.clear()
        handed = Handed()
        with _guard.watching(START_DEADLINE):
            _players[key] = make_player(spec, handed), handed
    return _players[key]


def _attempt() -> int:
    """Return how often this task was begun before."""
    worker: Any = imported()._private.worker.global_worker
    return int(worker.core_worker.get_current_task_attempt_number())


def _worker() -> str:
    return str(imported().get_runtime_context().get_worker_id())


def _notices(player: Player) -> tuple[str, ...]:
    notices, player.notices = player.notices, ()
    return tuple(f"{_who()}: {notice}" for notice in notices)


def _who() -> str:
    return f"worker {_worker()[:8]} (process {os.getpid()} on {socket.gethostname()})"
