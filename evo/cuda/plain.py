"""What kernels call of a device, in plain Python for Numba's CUDA simulator; `compiling` has the same for GPUs."""

from __future__ import annotations

import threading
from typing import Any

import numpy as np

from evo.compiled import views

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


def _flat_of(array: Any) -> Any:
    return np.asarray(array).reshape(-1)


def _clear_row(arrays: Any, b: int) -> None:
    for part in arrays:
        if isinstance(part, tuple):
            _clear_row(part, b)
        else:
            part[b] = np.zeros((), part.dtype)


def _rows(arrays: Any, b: int) -> list[Any]:
    """Return row b of every array as one-dimensional bytes of the same memory."""
    found: list[Any] = []
    for part in arrays:
        if isinstance(part, tuple):
            found += _rows(part, b)
        else:
            found.append(part[b : b + 1].reshape(-1).view(np.uint8))
    return found


def _copy_to_row(arrays: Any, b: int, row: Any) -> None:
    row[:] = np.concatenate(_rows(arrays, b))


def _copy_from_row(arrays: Any, b: int, row: Any) -> None:
    at = 0
    for part in _rows(arrays, b):
        part[:] = row[at : at + len(part)]
        at += len(part)


TWINS = {  # of intrinsics that are of compiled code alone
    views.flat_of: _flat_of, views.shaped: shaped, views.clear_row: _clear_row,
    views.copy_to_row: _copy_to_row, views.copy_from_row: _copy_from_row,
}  # fmt: skip
