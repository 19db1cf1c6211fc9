"""Clocks of training, which stand still while kernels are compiled: a machine does that once, and not for every run."""

from __future__ import annotations

import time
from collections.abc import Callable


class Clock:
    """Seconds of one kind since some moment, less those in which it stood still; for all threads of a process."""

    def __init__(self, now: Callable[[], float]) -> None:
        self._now = now
        self._stopped, self._depth = 0.0, 0
        self.stood_still = 0.0  # seconds so far

    def __call__(self) -> float:
        """Return what it shows."""
        return (self._stopped if self._depth else self._now()) - self.stood_still

    def stop(self) -> None:
        """Stand still until `go_on` was called as often."""
        if not self._depth:
            self._stopped = self._now()
        self._depth += 1

    def go_on(self) -> None:
        """Undo one `stop`."""
        self._depth -= 1
        if not self._depth:
            self.stood_still += self._now() - self._stopped

    def leave_out(self, seconds: float) -> None:
        """Have stood still for so many of the seconds that have just passed."""
        self.stood_still += seconds


wall, cpu = Clock(time.monotonic), Clock(time.process_time)
