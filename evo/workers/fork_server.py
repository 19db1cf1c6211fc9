"""The master's side of worker processes: the fork server that starts and ends them, and the slots that they fill."""

from __future__ import annotations

import os
import select
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

from evo import clock
from evo.errors import DeviceError, ResourceError, first_line
from evo.process import WITH_ITS_PARENT, hashes
from evo.workers.channel import Channel, Ending, Failed, GivesUp, Ready, WorkerSpec
from evo.workers.placement import CUDA_PLAYER, place
from evo.workers.worker import END, MASTERS_SIGNALS, START

START_DEADLINE = 600.0  # seconds to import and to compile
CLOSE_DEADLINE = 1.0
TOGETHER = 32  # tasks that a GPU has at most, which plays those at once that are alike
ENOUGH = 16_384  # episodes that fill a GPU, about
THREADS = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "VECLIB_MAXIMUM_THREADS", "NUMBA_NUM_THREADS")
PROGRAM = (
    f"{WITH_ITS_PARENT}sys.path[:] = sys.argv[2:]\n"
    "from evo.workers.worker import serve_forks\n"
    "serve_forks(int(sys.argv[1]))"
)


class ForkServerLost(Exception):
    """The fork server is gone, and its workers are going."""


class ForkServer:
    """A fork server that is starting up; its first `start` waits until it is ready.

    A fresh interpreter, and not one that runs the master's main module again: so it makes no difference whether that
    is a script with or without a guard, a test or an interactive session.
    """

    def __init__(self, spec: WorkerSpec, threads: int = 1) -> None:
        environment = {**os.environ, **hashes(), **dict.fromkeys(THREADS, str(threads))}
        blocked = signal.pthread_sigmask(signal.SIG_BLOCK, MASTERS_SIGNALS)  # inherited, until it can ignore them
        try:
            self._process, ours = start_connected(PROGRAM, str(os.getpid()), env=environment)
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, blocked)
        self._control = Channel(ours, START_DEADLINE)
        self._ready = False
        self.left = ""  # what `prepare` has left in the process, so that workers are spawned and not forked
        self._control.send(spec)

    def start(self, environment: Mapping[str, str], timeout: float) -> tuple[Channel, int]:
        """Start a worker with these environment variables; return its channel and its process id.

        ForkServerLost where there is no fork server any more, and what `prepare` has raised in it, if that has failed.
        """
        if not self._ready:
            began = clock.wall()
            while isinstance(answer := self._answer(), str | None):  # it makes progress, or has compiled something
                if answer is not None:
                    clock.progress.say_compiled(answer)
            self._ready = True
            if isinstance(answer, Failed):
                raise answer.error()
            compiling, self.left = answer
            clock.wall.leave_out(compiling, began)
        ours, theirs = _sockets()
        try:
            with theirs:
                pid = self._answer(START, dict(environment), [theirs.fileno()])
            if isinstance(pid, Failed):
                raise ResourceError(f"cannot start a worker: {pid.error()}")
        except BaseException:
            ours.close()
            raise
        return Channel(ours, timeout), pid

    def end(self, pid: int) -> Ending:
        """Kill a worker, unless it has ended by itself, and return how it ended."""
        ending: Ending = self._answer(END, pid)
        return ending

    def close(self) -> None:
        """End the fork server and with it every worker."""
        if self._control.fileno() < 0:
            return
        if not self._ready:
            self._process.kill()  # it is importing or compiling, and has no workers yet
        with suppress(OSError):
            # A fork server that sees this ends its workers and itself.
            self._control.connection.shutdown(socket.SHUT_WR)
        gone = select.poll()
        gone.register(self._control, 0)  # a hang-up is always reported
        if not gone.poll(1000 * CLOSE_DEADLINE):
            self._process.kill()  # its workers see the end of their own channels
        self._process.wait()
        self._control.close()

    def _answer(self, request: bytes = b"", argument: object = None, descriptors: Sequence[int] = ()) -> Any:
        try:
            if request:
                socket.send_fds(self._control.connection, [request], descriptors)
                self._control.send(argument)
            return self._control.receive()
        except (EOFError, OSError) as error:
            raise ForkServerLost from error


def start_connected(program: str, *words: str, **how: Any) -> tuple[subprocess.Popen[bytes], socket.socket]:
    """Start a program in a fresh interpreter; its arguments are `words`, a socket's file descriptor and the path.

    `how` is as in `subprocess.Popen`. ResourceError where the system has no room for it.
    """
    ours, theirs = _sockets()
    try:
        with theirs:
            process = subprocess.Popen(
                [sys.executable, "-c", program, *words, str(theirs.fileno()), *sys.path],
                pass_fds=[theirs.fileno()],
                stdin=subprocess.DEVNULL,
                stdout=2,  # standard output is the master's alone
                **how,
            )
    except OSError as error:
        ours.close()
        raise ResourceError(f"cannot start a process: {error}") from error
    return process, ours


def _sockets() -> tuple[socket.socket, socket.socket]:
    try:
        return socket.socketpair()
    except OSError as error:
        raise ResourceError(f"cannot open a channel to a worker: {error}") from error


@dataclass
class Slot:
    """A place for a worker in a pool: it keeps its number and its device when its worker is replaced."""

    number: int
    environment: Mapping[str, str]  # set in the worker before it makes its player
    channel: Channel | None = None  # None: no worker
    pid: int = 0
    ready: bool = False
    calls: str = ""  # the user's function that its worker has called last, as it starts
    tickets: dict[int, int] = field(default_factory=dict)  # of the task that it plays, then of those next: their bytes
    since: float = 0.0  # monotonic seconds when it was started, got its task, or last answered
    losses: int = 0  # workers lost in a row before they had played anything, or by their GPU
    introduced: Ready | None = None  # the first message of the worker that was in it last

    @property
    def where(self) -> str:
        """The device that the slot is pinned to, in words."""
        return place(self.environment)

    @property
    def cuda(self) -> bool:
        """Whether its worker plays on a GPU with the exact kernel, as others can on CPUs."""
        return CUDA_PLAYER in self.environment

    def lost_device(self, message: object) -> str:
        """Return a worker's message about a lost GPU, in words; empty: there is none.

        One that has played and cannot be started again is lost, too; one with other bits is an error, as is one that
        was never there.
        """
        if isinstance(message, GivesUp) and message.lost:
            return f"has lost its GPU: {message.why}"
        if isinstance(message, Failed) and message.ticket < 0 and self.cuda and self.introduced is not None:
            error = message.error()
            return "" if type(error) is DeviceError else f"cannot start again: {first_line(error)}"
        return ""

    def __str__(self) -> str:
        return f"worker {self.number} (process {self.pid}) on {self.where}"

    def fill(self, channel: Channel, pid: int) -> None:
        """Put a new worker in; it sends a message when it is ready."""
        self.channel, self.pid, self.since, self.calls = channel, pid, time.monotonic(), ""

    @property
    def ticket(self) -> int | None:
        """The ticket of the task that it plays."""
        return next(iter(self.tickets), None)

    def has_room(self, episodes: int) -> bool:
        """Return whether the worker is sent one task more; a GPU plays several at once, unless they are large.

        `episodes` are those of the tasks that it has.
        """
        return len(self.tickets) < (TOGETHER if self.cuda and episodes < ENOUGH else 2)

    def take(self, ticket: int, size: int) -> None:
        """Note that the worker was sent a task of `size` bytes."""
        if not self.tickets:
            self.since = time.monotonic()
        self.tickets[ticket] = size

    def done(self, ticket: int) -> None:
        """Note that the worker has ended a task, and goes on with those that were prefetched."""
        self.losses = 0
        if self.tickets.pop(ticket, None) is not None:
            self.since = time.monotonic()

    def empty(self) -> None:
        """Close the channel; there is no worker any more."""
        if self.channel is not None:
            self.channel.close()
        self.channel, self.pid, self.ready, self.tickets = None, 0, False, {}


def introductions(slots: Sequence[Slot]) -> Iterator[str]:
    """Yield a line for each device with workers on it: their processes and how large they are."""
    known = [(slot.where, slot.introduced) for slot in slots if slot.introduced is not None]
    for where in dict.fromkeys(name for name, ready in known if ready.device):
        here = [ready for name, ready in known if name == where]
        sizes = sorted(ready.megabytes for ready in here)
        model = f" ({here[0].device})" if here[0].device != "CPU" else ""
        workers, processes = ("workers", "processes") if len(here) > 1 else ("worker", "process")
        yield (
            f"{len(here)} {workers} on {where}{model}: {processes} {', '.join(str(ready.pid) for ready in here)}, "
            f"{f'{sizes[0]} to ' if sizes[0] < sizes[-1] else ''}{sizes[-1]} MB when ready"
        )
