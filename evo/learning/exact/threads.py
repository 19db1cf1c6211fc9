"""Threads that compute the blocks of a batch, each in a workspace of its own, and the tree in which sums are added."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable
from concurrent.futures import Future, ThreadPoolExecutor, wait
from threading import Lock
from typing import Any

from evo.learning.exact.plan import Workspace
from evo.rollouts.rollout import check_arithmetic


class Threads:
    """A number of threads, the calling one included, each of which takes the next place until none is left."""

    def __init__(self, count: int, make: Callable[[], Workspace]) -> None:
        """Start them; `make` returns a workspace."""
        self._count, self._make = count, make
        self._pool = ThreadPoolExecutor(count - 1, "learner") if count > 1 else None
        self.workspaces = [make() for _ in range(count)]

    def for_each(self, function: Callable[[int, Workspace], Any], places: Iterable[int]) -> None:
        """Call the function for every place, by all threads, this one too; nothing is at work any more at the end."""
        left, others = deque(places), list[Future[None]]()

        def work() -> None:
            workspace = self._workspace()
            while True:
                try:
                    place = left.popleft()
                except IndexError:  # all are taken
                    break
                function(place, workspace)
            self.workspaces.append(workspace)

        def checked() -> None:
            try:
                check_arithmetic()
                work()
            except BaseException:
                left.clear()
                raise

        try:
            for _ in range(min(self._count, len(left)) - 1 if self._pool else 0):
                others.append(self._pool.submit(checked))  # type: ignore[union-attr]
            checked()
        finally:
            left.clear()
            wait(others)
        for other in others:
            other.result()

    def _workspace(self) -> Workspace:
        """Return a workspace that no thread has now; one that an error has left behind is gone."""
        try:
            return self.workspaces.pop()
        except IndexError:
            return self._make()

    def close(self) -> None:
        """End the threads."""
        if self._pool is not None:
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
