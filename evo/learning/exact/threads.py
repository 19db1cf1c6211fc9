"""Threads that compute the blocks of a batch, each in a workspace of its own, and the tree in which sums are added."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from queue import SimpleQueue
from threading import Lock, Thread
from typing import Any

from evo.compiled.functions import check_arithmetic

MOST_BLOCKS = 8  # of a call where it is chosen freely: threads that are ready sooner take the next call


class Threads:
    """A number of threads, the calling one included, each of which takes the next place until none is left."""

    def __init__(self, count: int, make: Callable[[], Any] = tuple) -> None:
        """Prepare them; `make` returns a workspace."""
        self.count, self._make = count, make
        self._others = 0  # threads that were started
        self._tasks: SimpleQueue[Callable[[], None] | None] = SimpleQueue()  # None ends a thread
        self.workspaces: list[Any] = []  # that no thread has now

    def for_each(self, function: Callable[[int, Any], Any], places: range) -> None:
        """Call the function for every place, by all threads, this one too; nothing is at work any more at the end."""
        left = deque(places)

        def work() -> None:
            try:
                workspace = self.workspaces.pop()
            except IndexError:  # the first time, or an interrupt has lost one
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

        ended: SimpleQueue[BaseException | None] = SimpleQueue()

        def work_in_thread() -> None:
            try:
                work()
                ended.put(None)
            except BaseException as error:
                ended.put(error)

        others = min(self.count, len(places)) - 1
        for _ in range(self._others, others):
            Thread(target=_serve, args=(self._tasks,), name="learner", daemon=True).start()
            self._others += 1
        for _ in range(others):
            self._tasks.put(work_in_thread)
        try:
            work()
        finally:
            errors = [ended.get() for _ in range(others)]
        for error in filter(None, errors):
            raise error

    def close(self) -> None:
        """End the threads."""
        while self._others:
            self._others -= 1
            self._tasks.put(None)

    def __del__(self) -> None:
        self.close()


def _serve(tasks: SimpleQueue[Callable[[], None] | None]) -> None:
    """Do tasks until there is a None."""
    while (task := tasks.get()) is not None:
        task()
        del task  # it refers to arrays


def blocks_together(blocks: int, threads: int, least: float) -> int:
    """Return how many blocks a thread computes in one call, a power of two: `least` or more.

    Above that, only as many as give no thread more blocks than one by one.
    """
    most, together = -(-blocks // threads), MOST_BLOCKS
    while together > 1 and min(-(-blocks // (together * threads)) * together, blocks) > most:
        together //= 2
    while together < min(least, blocks):
        together *= 2
    return together


class BlockSums:
    """The sum of blocks 0 to n - 1, which threads add in any order.

    Sums are joined in pairs (0 and 1, 2 and 3, ...), level by level; the last of an odd number goes up alone. Whichever
    thread has the second of two sums joins them.
    """

    def __init__(self, blocks: int, join: Callable[[Any, Any], Any]) -> None:
        """Prepare the sum of at least one block; `join` returns the sum of two sums, the earlier first."""
        self._last, self._join, self._lock = blocks - 1, join, Lock()
        self._waiting: dict[tuple[int, int], Any] = {}  # sums by their number in a level, and the level's last number

    def add(self, block: int, sums: Any) -> None:
        """Add a block's sums, and join what is there."""
        last = self._last
        while last:
            pair = block ^ 1
            if pair <= last:
                with self._lock:
                    other = self._waiting.pop((pair, last), None)
                    if other is None:
                        self._waiting[block, last] = sums
                        return
                sums = self._join(sums, other) if block < pair else self._join(other, sums)
            block, last = block >> 1, last >> 1
        self._waiting[0, 0] = sums

    def total(self) -> Any:
        """Return the sum of all blocks, once every one was added."""
        return self._waiting.pop((0, 0))
