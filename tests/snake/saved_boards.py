"""Snapshots of some of many boards, for tests."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from snake.batch import Boards
from snake.snapshots import load, row_size, save


def snapshots(boards: Boards, index: Sequence[int]) -> NDArray[np.uint8]:
    rows = np.empty((len(index), row_size(boards)), np.uint8)
    for row, b in zip(rows, index, strict=True):
        save(boards, None, b, row)
    return rows


def snapshot(boards: Boards, b: int) -> NDArray[np.uint8]:
    return snapshots(boards, [b])[0]


def restore(boards: Boards, index: Sequence[int], rows: NDArray[np.uint8]) -> None:
    for row, b in zip(rows, index, strict=True):
        if not load(boards, None, b, row):
            raise ValueError("a snapshot names cells that the board does not have")
