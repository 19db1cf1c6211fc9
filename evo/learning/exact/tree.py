"""Sums of blocks, added in one order: as a tree whose shape follows from their number alone."""

from __future__ import annotations

from collections.abc import Callable
from threading import Lock
from typing import Any


class Tree:
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
