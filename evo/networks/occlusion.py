"""What a network's scores depend on: how much they change where a part of the observation is hidden.

Occlusion (Zeiler and Fergus, 2014, section 4.2) with squares that touch but do not overlap.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

MOST = 24  # squares a side; those of a larger picture are more than a pixel wide


def occlusion(
    scores: Callable[[NDArray[np.float32]], NDArray[np.float32]], observation: NDArray[np.float32]
) -> NDArray[np.float32]:
    """Return the sum of all changes of the scores where each square of an observation is zero.

    `scores` maps [B, *shape] to [B, A]. Of an observation [H, W, C] it is [ceil(H / side), ceil(W / side)], where all
    channels of a square are hidden together; of [N] and [1, 1, N] it is [1, N], for each number by itself.
    """
    line = observation.shape[:-1] in ((), (1, 1))
    height, width = (1, observation.shape[-1]) if line else observation.shape[:2]
    side = 1 if line else -(-max(height, width) // MOST)
    rows, columns = -(-height // side), -(-width // side)
    hidden = np.repeat(observation[np.newaxis], rows * columns, axis=0)
    cells = hidden.reshape(rows * columns, height, width, -1)  # a view
    for square in range(rows * columns):
        down, right = square // columns * side, square % columns * side
        cells[square, down : down + side, right : right + side] = 0.0
    change: NDArray[np.float32] = np.abs(scores(hidden) - scores(observation[np.newaxis])).sum(axis=1)
    return change.reshape(rows, columns)
