"""Threads that compute the blocks of a batch, each in a workspace of its own, and the tree in which sums are added."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor, wait
from threading import Lock
from typing import Any

from evo.learning.exact.plan import Workspace
from evo.rollouts.rollout import check_arithmetic


class Threads:
    """A number of threads, the calling one included, each of which takes the next place until none is left."""

    def __init__(self, count: int, make: Callable[[], Workspace]) -> None:
        """Start them; `make` returns a workspace."""
        self._count, self._make = count, make
        self._pool = ThreadPoolExecutor(count, "learner")
        self.workspaces = [make() for _ in range(count)]

    def for_each(self, function: Callable[[int, Workspace], Any], places: range) -> None:
        """Call the function for every place, by all threads, this one too; nothing is at work any more at the end."""
        left = deque(places)

        def work() -> None:
            try:
                workspace = self.workspaces.pop()
            except IndexError:  # an interrupt has lost one
                workspace = self._make()
            try:
                check_arithmetic()
                while True:
                    try:
                        place = left.popleft()
                    except IndexError:  # all are taken
                        return
                    function(place, workspace)
            finally:
                left.clear()  # after an error, others stop too
                self.workspaces.append(workspace)

        others = [self._pool.submit(work) for _ in range(min(self._count, len(places)) - 1)]
        try:
            work()
        finally:
            wait(others)
        for other in others:
            other.result()

    def close(self) -> None:
        """End the threads."""
        self._pool.shutdown(cancel_futures=True)


class BlockSums:
    """The sum of blocks 0 to n - 1, which threads add in any order.

    The first half of them, as many as the largest power of two below n, are summed in this way, then the others, and
    then both. Whichever thread has the second of two sums joins them.
    """

    def __init__(self, blocks: int, join: Callable[[Any, Any], Any]) -> None:
        """Prepare the sum of at least one block; `join` returns the sum of two sums, the earlier first."""
        self._blocks, self._join, self._lock = blocks, join, Lock()
        self._waiting: dict[tuple[int, int], Any] = {}  # sums by their first block and the one behind their last

    def add(self, block: int, sums: Any) -> None:
        """Add a block's sums, and join what is there."""
        path, begin, end = [], 0, self._blocks
        while end - begin > 1:
            middle = begin + (1 << (end - begin - 1).bit_length() - 1)
            path.append((begin, middle, end))
            begin, end = (begin, middle) if block < middle else (middle, end)
        here = begin, end
        for first, middle, last in reversed(path):
            left, right = (first, middle), (middle, last)
            with self._lock:
                other = self._waiting.pop(right if here == left else left, None)
                if other is None:
                    self._waiting[here] = sums
                    return
            sums = self._join(sums, other) if here == left else self._join(other, sums)
            here = first, last
        self._waiting[here] = sums

    def total(self) -> Any:
        """Return the sum of all blocks, once every one was added."""
        return self._waiting.pop((0, self._blocks))
