"""Signals that end a run: each arrives as an exception, so that what is committed is closed in order."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import NoReturn

STOPPING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


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


def _stop(number: int, frame: FrameType | None) -> NoReturn:
    raise Stopped(number)
