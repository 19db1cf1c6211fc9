"""What a Ray worker does: it plays the task that it is handed, with a player that it keeps for the next one."""

from __future__ import annotations

import faulthandler
import hashlib
import os
import socket
import time
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

import snake
from evo.devices import NO_GPU, VISIBLE
from evo.errors import ConfigurationError, DataError
from evo.evaluators.cluster import imported
from evo.evaluators.context import Context, Player, make_player
from evo.evaluators.processes import GROWTH
from evo.evaluators.round import ATTEMPTS
from evo.evaluators.worker import OUT_OF_MEMORY, Failed
from evo.records import Result, Task

EVO, SNAKE = Path(__file__).parents[1], Path(str(snake.__file__)).parent  # which Ray may have put apart


@dataclass(frozen=True)
class Played:
    """A result, and what it took."""

    ticket: int
    result: Result
    seconds: float
    attempt: int  # times that it was begun before, by workers that were lost
    worker: str  # which one has played it
    fingerprint: str


@dataclass(frozen=True)
class Lost:
    """A task that has ended as many workers as it may."""

    ticket: int
    attempts: int


class Handed:
    """The published matrix that came with the task at hand."""

    def __init__(self) -> None:
        self.parents: NDArray[np.float32] = np.empty((0, 0), np.float32)

    def matrix(self, name: str, size: int) -> NDArray[np.float32]:
        """Return it; DataError where it is of another network."""
        if self.parents.shape[1] != size and name:
            raise DataError(f"{name}: weights are {self.parents.shape}, not [S, {size}]")
        return self.parents if name else np.empty((0, size), np.float32)


_players: dict[str, tuple[Player, Handed]] = {}  # of this process, by `key_of` their context


def play(
    code: str, key: str, context: Context, parents: NDArray[np.float32], task: Task, ticket: int, patience: float
) -> Played | Lost | Failed:
    """Play one task in a Ray worker, and end the worker where that takes longer than `patience` seconds.

    `code` is the master's `code_digest`; a worker that has another plays nothing.
    """
    attempt = _attempt()
    if attempt >= ATTEMPTS:
        return Lost(ticket, attempt)
    try:
        if code != code_digest():
            raise ConfigurationError(
                f"workers.address: {socket.gethostname()} has another version of this program, in {EVO}; "
                "every node needs the same one"
            )
        player, handed = _player(key, context)
        handed.parents = parents
        faulthandler.dump_traceback_later(patience * GROWTH**attempt, exit=True)  # also where compiled code hangs
        began = time.perf_counter()
        result = player.play(task)
        return Played(ticket, result, time.perf_counter() - began, attempt, _worker(), player.fingerprint)
    except MemoryError:
        os._exit(OUT_OF_MEMORY)
    except Exception as error:
        return Failed.of(error, ticket)
    finally:
        faulthandler.cancel_dump_traceback_later()


@cache
def code_digest() -> str:
    """Return a SHA-256 of all source files of ours."""
    digest = hashlib.sha256()
    for package in (EVO, SNAKE):
        for path in sorted(package.rglob("*.py")):
            digest.update(repr((path.relative_to(package).as_posix(), path.stat().st_size)).encode())
            digest.update(path.read_bytes())
    return digest.hexdigest()


def _player(key: str, context: Context) -> tuple[Player, Handed]:
    if key not in _players:
        if context.inference == "tensorflow" and not os.environ.get(VISIBLE):
            os.environ[VISIBLE] = NO_GPU
        _players.clear()
        handed = Handed()
        _players[key] = make_player(context, handed), handed
    return _players[key]


def _attempt() -> int:
    """Return how often this task was begun before."""
    worker: Any = imported()._private.worker.global_worker
    return int(worker.core_worker.get_current_task_attempt_number())


def _worker() -> str:
    return str(imported().get_runtime_context().get_worker_id())
