"""Signals that end a run: each is raised as an exception, so that files are closed in order."""

from __future__ import annotations

import os
import signal
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

STOPPING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
BURST = 1.0  # seconds in which several signals count as one

_asked_at = -BURST  # monotonic


class Stopped(KeyboardInterrupt):
    """Raised where a signal asks this process to end: Ctrl-C, SIGTERM or SIGHUP."""

    def __init__(self, number: int = signal.SIGINT) -> None:
        super().__init__(number)
        self.number = number

    @property
    def exit_code(self) -> int:
        """Return the exit code that a shell reports for the signal."""
        return 128 + self.number


def raise_stopped() -> None:
    """Raise `Stopped` on SIGINT, SIGTERM and SIGHUP; a signal that is ignored, as under nohup, stays ignored."""
    global _asked_at
    _asked_at = -BURST
    for number in STOPPING:
        if signal.getsignal(number) is not signal.SIG_IGN:
            signal.signal(number, _stop)


@contextmanager
def ignored() -> Iterator[None]:
    """Ignore the signals while this process closes its files: a second Ctrl-C loses nothing."""
    before = {number: signal.signal(number, signal.SIG_IGN) for number in STOPPING}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def ignore() -> None:
    """Ignore the signals until this process ends."""
    for number in STOPPING:
        signal.signal(number, signal.SIG_IGN)


def leave(code: int) -> int:
    """End this process at once if a signal asked for it, else return the code.

    Everything is closed by now, and the shutdown of an interpreter with compilers takes seconds on a busy machine.
    """
    if code - 128 in STOPPING:
        for stream in (sys.stdout, sys.stderr):
            stream.flush()
        os._exit(code)
    return code


def _stop(number: int, frame: FrameType | None) -> None:
    """Raise `Stopped` once per burst: a second one could interrupt the code that closes files."""
    global _asked_at
    now = time.monotonic()
    if now - _asked_at >= BURST:
        _asked_at = now
        raise Stopped(number)
