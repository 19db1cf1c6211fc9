"""Signals that end a run: each arrives as an exception, so that what is committed is closed in order."""

from __future__ import annotations

import signal
from types import FrameType
from typing import NoReturn


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
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        if signal.getsignal(number) is not signal.SIG_IGN:
            signal.signal(number, _stop)


def _stop(number: int, frame: FrameType | None) -> NoReturn:  # noqa: ARG001 - the form of a handler
    raise Stopped(number)
