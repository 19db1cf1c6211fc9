"""Memory that begins where vectors are quickest, and memory that is used again."""

from __future__ import annotations

import sys
from typing import Any

import numpy as np
from numpy.typing import NDArray

LINE = 64  # bytes of a line of the cache, and of the longest vector


def aligned(size: int, dtype: type[np.generic] = np.float32) -> NDArray[Any]:
    """Return zeros that begin where a line of the cache does, so that no vector lies in two lines.  # [size]

    TensorFlow takes such memory as it is.
    """
    length = size * np.dtype(dtype).itemsize
    room = np.zeros(length + LINE, np.uint8)
    start = -room.ctypes.data % LINE
    return room[start : start + length].view(dtype)


class Again:
    """Arrays whose memory is used again once nobody has them, or a view of them, any more.

    New memory is slow, for the system has to find and to clear it: under a hypervisor, 2 ms a megabyte and more.
    """

    def __init__(self) -> None:
        self._arrays: list[NDArray[np.float32]] = []

    def empty(self, shape: tuple[int, ...]) -> NDArray[np.float32]:
        """Return an array of anything, which may have been another one, marked as read-only, before.  # shape"""
        self._arrays = [array for array in self._arrays if array.shape == shape]
        for array in self._arrays:
            if sys.getrefcount(array) == _NOBODYS:
                array.setflags(write=True)
                return array
        self._arrays.append(np.empty(shape, np.float32))
        return self._arrays[-1]


def _references_of_nobody() -> int:
    """Return how many references there are to an array in a list that is being looked through, and nowhere else."""
    return next(sys.getrefcount(array) for array in [np.empty(0, np.float32)])


_NOBODYS = _references_of_nobody()
