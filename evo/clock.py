"""Clocks of training, which pause while kernels are compiled, and the sign that a process plays on."""

from __future__ import annotations

import gc
import threading
import time
from collections.abc import Callable

OFTEN = 0.25  # seconds between two signs of progress


class Clock:
    """Seconds of one kind since some moment, less those in which it was paused; for all threads of a process."""

    def __init__(self, now: Callable[[], float]) -> None:
        self._now = now
        self._lock, self._depth = threading.Lock(), 0
        self._stopped: tuple[float | None, float] = None, 0.0  # since when, if it is paused; seconds of earlier pauses

    def __call__(self) -> float:
        """Return the elapsed seconds."""
        since, before = self._stopped  # read at once: another thread may change it
        return (self._now() if since is None else since) - before

    @property
    def paused(self) -> bool:
        """Return whether it is paused now."""
        return self._stopped[0] is not None

    @property
    def paused_seconds(self) -> float:
        """Return the seconds in which it was paused."""
        since, before = self._stopped
        return before if since is None else before + self._now() - since

    def stop(self) -> None:
        """Pause until `go_on` was called as often."""
        with self._lock:
            if not self._depth:
                self._stopped = self._now(), self._stopped[1]
            self._depth += 1

    def go_on(self) -> None:
        """Undo one `stop`; without effect where there was none."""
        with self._lock:
            since, before = self._stopped
            self._depth = max(self._depth - 1, 0)
            if not self._depth and since is not None:
                self._stopped = None, before + self._now() - since

    def leave_out(self, seconds: float, began: float) -> None:
        """Exclude `seconds`, at most those that have passed since the elapsed seconds were `began`."""
        with self._lock:
            self._stopped = self._stopped[0], self._stopped[1] + min(seconds, self() - began)


wall, cpu = Clock(time.monotonic), Clock(time.process_time)
_collects = True


def stop(_: object = None) -> None:
    """Stop both clocks while kernels are compiled, and collect no garbage, which would take an eighth of the time."""
    global _collects
    if not wall.paused:
        _collects = gc.isenabled()
        gc.disable()
    wall.stop()
    cpu.stop()


def go_on(_: object = None) -> None:
    """Have both clocks go on, once every `stop` is undone."""
    wall.go_on()
    cpu.go_on()
    if _collects and not wall.paused:
        gc.enable()


class Progress:
    """Calls `tell`, if it is set, at most once every `OFTEN` seconds while a task is played.

    `say_compiled` is called with the name of each kind of kernels that a process has compiled as it starts, and
    `say_called` with that of a user's function that is called then.
    """

    def __init__(self) -> None:
        self.tell: Callable[[], object] | None = None
        self.say_compiled: Callable[[str], object] = str
        self.say_called: Callable[[str], object] = str
        self._told = 0.0

    def made(self) -> None:
        """Report that a step or a candidate has been played."""
        if self.tell is not None and (now := time.monotonic()) - self._told > OFTEN:
            self._told = now
            self.tell()


progress = Progress()  # of this process
