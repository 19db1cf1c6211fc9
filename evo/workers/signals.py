"""Signals that end a run: each arrives as an exception, so that what is committed is closed in order."""

from __future__ import annotations

import os
import signal
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

STOPPING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
BURST = 1.0  # seconds in which several signals ask for one thing

_asked_at = -BURST  # monotonic


class Stopped(KeyboardInterrupt):
    """Somebody asked this process to end, by Ctrl-C or by another signal."""

    def __init__(self, number: int = signal.SIGINT) -> None:
        super().__init__(number)
        self.number = number

    @property
    def exit_code(self) -> int:
        """Return what a shell reports for a process that the signal ended."""
        return 128 + self.number


def listen() -> None:
    """Turn SIGINT, SIGTERM and SIGHUP into `Stopped`; one that is ignored, as under nohup, stays so."""
    global _asked_at
    _asked_at = -BURST
    for number in STOPPING:
        if signal.getsignal(number) is not signal.SIG_IGN:
            signal.signal(number, _stop)


@contextmanager
def deaf() -> Iterator[None]:
    """Hold back what asks this process to end while it is ending: an impatient second Ctrl-C loses nothing."""
    before = {number: signal.signal(number, signal.SIG_IGN) for number in STOPPING}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def ignore() -> None:
    """Let nothing interrupt the last words of a process that has been asked to end."""
    for number in STOPPING:
        signal.signal(number, signal.SIG_IGN)


def leave(code: int) -> int:
    """End this process at once if a signal asked for it, else return the code.

    All that has to be closed is closed by now, and taking an interpreter with compilers in it apart takes seconds
    on a busy machine.
    """
    if code - 128 in STOPPING:
        for stream in (sys.stdout, sys.stderr):
            stream.flush()
        os._exit(code)
    return code


def _stop(number: int, frame: FrameType | None) -> None:
    """Raise `Stopped`, once in a burst: a second one could hit the code that closes what the first has interrupted."""
    global _asked_at
    now = time.monotonic()
    if now - _asked_at >= BURST:
        _asked_at = now
        raise Stopped(number)
