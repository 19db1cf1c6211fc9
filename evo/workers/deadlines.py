"""How fast tasks are played on this machine, and so how long the next one may take."""

from __future__ import annotations

from collections import deque

RECENT = 256  # tasks that are remembered
MEAN = 20.0  # times what a task of this size takes at their mean speed
SLOWEST = 4.0  # times what the slowest of them took, which may have been the first


class Pace:
    """Measured by the clock that no clock change touches; tasks of one kind differ in size, by episodes played."""

    def __init__(self, shortest: float, unmeasured: float) -> None:
        self._shortest = shortest  # seconds that any task may take: a machine may hold its breath
        self._unmeasured = unmeasured  # seconds for tasks while none has been played
        self._recent: deque[tuple[float, int]] = deque(maxlen=RECENT)
        self._known: tuple[float, float] | None = None  # seconds of the slowest, and an episode, of those

    def note(self, seconds: float, size: int) -> None:
        """Take in how long a task of `size` episodes took."""
        self._recent.append((seconds, size))
        self._known = None

    def limit(self, size: int) -> float:
        """Return after how many seconds a task of `size` episodes is taken for hung."""
        if not self._recent:
            return self._unmeasured
        if self._known is None:
            seconds, sizes = zip(*self._recent, strict=True)
            self._known = max(seconds), sum(seconds) / sum(sizes)
        slowest, mean = self._known
        return max(self._shortest, SLOWEST * slowest, MEAN * mean * size)
