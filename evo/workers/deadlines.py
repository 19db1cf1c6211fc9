"""Deadlines of tasks, from the throughput that this machine has shown."""

from __future__ import annotations

from collections import deque

RECENT = 256  # tasks that are remembered
MEAN = 20.0  # times what a task of this size takes at the mean throughput
SLOWEST = 4.0  # times what the slowest of them took, which may have been the first


class Deadlines:
    """Measured by a clock that no clock change touches; tasks of one kind differ in size, by episodes played."""

    def __init__(self, shortest: float, first: float) -> None:
        self._shortest = shortest  # seconds that any task may take: a machine may stand still for a while
        self._first = first  # seconds for tasks while none has been played
        self._recent: deque[tuple[float, int]] = deque(maxlen=RECENT)
        self._known: tuple[float, float] | None = None  # seconds of the slowest, and an episode, of those

    def note(self, seconds: float, size: int) -> None:
        """Note how long a task of `size` episodes took."""
        self._recent.append((seconds, size))
        self._known = None

    def of(self, size: int) -> float:
        """Return the seconds after which a task of `size` episodes is taken for hung."""
        if not self._recent:
            return self._first
        if self._known is None:
            seconds, sizes = zip(*self._recent, strict=True)
            self._known = max(seconds), sum(seconds) / sum(sizes)
        slowest, mean = self._known
        return max(self._shortest, SLOWEST * slowest, MEAN * mean * size)
