"""Memory that begins where vectors are quickest."""

from __future__ import annotations

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
