"""A process that ends a Ray worker which hangs or was stopped, and so cannot keep its own deadline.

The guard is this file, run by a bare interpreter that imports no other module of this program. It ends with its worker.
"""

from __future__ import annotations

import os
import select
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager

CHECK = 1.0  # seconds between checks


class Guard:
    """The worker's side, which sets deadlines."""

    def __init__(self) -> None:
        self._process: subprocess.Popen[bytes] | None = None
        self._pipe = -1

    @contextmanager
    def watching(self, seconds: float) -> Iterator[None]:
        """Have this process killed where the block takes longer, or the process is stopped for that long."""
        self.watch(seconds)
        try:
            yield
        finally:
            self._send("-\n")

    def watch(self, seconds: float) -> None:
        """Have this process killed `seconds` from now."""
        self._send(f"+{seconds:.3f}\n")

    def _send(self, word: str) -> None:
        if self._process is not None:
            try:
                os.write(self._pipe, word.encode())
                return
            except OSError:  # it was killed, or stopped itself and the pipe is full
                self._process.kill()
                self._process.communicate()
        self._process = subprocess.Popen(
            [sys.executable, "-I", "-S", __file__], stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, bufsize=0
        )
        assert self._process.stdin is not None
        self._pipe = self._process.stdin.fileno()
        os.set_blocking(self._pipe, False)
        os.write(self._pipe, word.encode())


def guard(worker: int) -> None:
    """Kill the parent process as soon as it is overdue; return when it has ended."""
    limit, playing, since = float("inf"), False, time.monotonic()
    while os.getppid() == worker:
        asked = min(CHECK, limit)
        before = time.monotonic()
        ready, _, _ = select.select([0], [], [], asked)
        now = time.monotonic()
        if ready:
            words = os.read(0, 1 << 16).split()
            if not words:
                return
            playing, since = words[-1] != b"-", now
            limit = ([limit] + [float(word) for word in words if word != b"-"])[-1]
            continue
        if now - before > asked + 1.0:  # this process was stopped, so the worker may have been
            since += now - before - asked
        if not playing and not stopped(worker):
            since = now
        if now - since > limit:
            os.kill(worker, signal.SIGKILL)
            return


def stopped(process: int) -> bool:
    """Return whether a process was stopped by a signal, where the system reports it; a debugger does not count."""
    try:
        with open(f"/proc/{process}/stat", "rb") as file:
            return file.read().rpartition(b")")[2].split()[0] == b"T"
    except OSError:
        return False


if __name__ == "__main__":
    for number in (signal.SIGINT, signal.SIGHUP, signal.SIGTERM):
        signal.signal(number, signal.SIG_IGN)  # it ends with its worker
    guard(os.getppid())
