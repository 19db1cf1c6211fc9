"""Buffers aligned to cache lines."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

LINE = 64  # bytes of a cache line, and of the longest vector


def aligned(size: int, dtype: type[np.generic] = np.float32) -> NDArray[Any]:
    """Return zeros that begin at a cache line, so that no vector spans two lines.  # [size]

    TensorFlow uses such a buffer without copying it.
    """
    length = size * np.dtype(dtype).itemsize
    buffer = np.zeros(length + LINE, np.uint8)
    start = -buffer.ctypes.data % LINE
    return buffer[start : start + length].view(dtype)
