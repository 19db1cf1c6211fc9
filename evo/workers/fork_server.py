"""The master's side of the fork server, the process that starts, ends and reaps workers."""

from __future__ import annotations

import os
import select
import signal
import socket
import subprocess
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any

from evo import clock
from evo.errors import ResourceError
from evo.workers.channel import Channel, Ending, Failed, WorkerSpec
from evo.workers.worker import END, MASTERS_SIGNALS, START

START_DEADLINE = 600.0  # seconds to import and to compile
CLOSE_DEADLINE = 1.0
THREADS = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "VECLIB_MAXIMUM_THREADS", "NUMBA_NUM_THREADS")
PROGRAM = (
    "import sys; sys.path[:] = sys.argv[2:]; from evo.workers.worker import serve_forks; serve_forks(int(sys.argv[1]))"
)


class ForkServerLost(Exception):
    """The fork server is gone, and its workers are going."""


class ForkServer:
    """A fork server that is starting up; its first `start` waits until it is ready.

    A fresh interpreter, and not one that runs the master's main module again: so it makes no difference whether that
    is a script with or without a guard, a test or an interactive session.
    """

    def __init__(self, spec: WorkerSpec, threads: int = 1) -> None:
        ours, theirs = _sockets()
        limits = dict.fromkeys(THREADS, str(threads))
        blocked = signal.pthread_sigmask(signal.SIG_BLOCK, MASTERS_SIGNALS)  # inherited, until it can ignore them
        try:
            with theirs:
                self._process = subprocess.Popen(
                    [sys.executable, "-c", PROGRAM, str(theirs.fileno()), *sys.path],
                    pass_fds=[theirs.fileno()],
                    env={**os.environ, **limits},
                    stdin=subprocess.DEVNULL,
                    stdout=2,  # standard output is the master's alone
                )
        except OSError as error:
            ours.close()
            raise ResourceError(f"cannot start a process: {error}") from error
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, blocked)
        self._control = Channel(ours, START_DEADLINE)
        self._ready = False
        self._control.send(spec)

    @property
    def pid(self) -> int:
        """The fork server's process id."""
        return self._process.pid

    def start(self, environment: Mapping[str, str], timeout: float) -> tuple[Channel, int]:
        """Start a worker with these environment variables; return its channel and its process id.

        ForkServerLost where there is no fork server any more, and what `prepare` has raised in it, if that has failed.
        """
        if not self._ready:
            began = clock.wall()
            compiling = self._answer()
            self._ready = True
            if isinstance(compiling, Failed):
                raise compiling.error()
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


def _sockets() -> tuple[socket.socket, socket.socket]:
    try:
        return socket.socketpair()
    except OSError as error:
        raise ResourceError(f"cannot open a channel to a worker: {error}") from error
