"""What kernels call of a device, in plain Python for Numba's CUDA simulator; `compiling` has the same for GPUs."""

from __future__ import annotations

import threading
from typing import Any

import numpy as np

ADDING = threading.Lock()


def load1(array: Any, at: int) -> Any:
    """Return array[at]; `array` is flat, and `at` not negative."""
    return array[at]


def load4(array: Any, at: int) -> Any:
    """Return array[at : at + 4]; `array` is flat float32, and `at` a multiple of 4."""
    return array[at], array[at + 1], array[at + 2], array[at + 3]


def store1(array: Any, at: int, value: Any) -> None:
    """Set array[at]; `array` is flat, and `at` not negative."""
    array[at] = value


def store4(array: Any, at: int, a: Any, b: Any, c: Any, d: Any) -> None:
    """Set array[at : at + 4]; `array` is flat float32, and `at` a multiple of 4."""
    array[at], array[at + 1], array[at + 2], array[at + 3] = a, b, c, d


def quotient(a: int, b: int) -> int:
    """Return a // b of numbers of 31 bits that are not negative; GPUs divide by 64 bits in four times the time."""
    return a // b


def divided(a: int, b: int) -> tuple[int, int]:
    """Return a // b and a % b, of numbers of 31 bits that are not negative."""
    whole = quotient(a, b)
    return whole, a - whole * b


def share(t: int, threads: int, width: int) -> tuple[int, int, int]:
    """Return the lane of a thread among `width`, its first output of a lane, and the distance to its next one."""
    first, lane = divided(t, width)
    return lane, first, quotient(threads, width)


def add_at(array: Any, at: int, value: int) -> Any:
    """Add to array[at] for all threads at once; return what it was."""
    with ADDING:
        before = array[at]
        array[at] += value
    return before


def barrier() -> None:
    """Wait for all threads of the block."""
    threading.current_thread().syncthreads()  # type: ignore[attr-defined]  # of the simulator


def square_root(x: Any) -> Any:
    """Return the square root of a float32, rounded to nearest."""
    return np.sqrt(x)


def is_finite(x: Any) -> Any:
    """Return whether a float32 is finite."""
    return np.isfinite(x)


def shaped(row: Any, shape: tuple[int, ...]) -> Any:
    """Return the beginning of a row as an array of this shape, of the same memory."""
    return row[: int(np.prod(shape))].reshape(shape)
