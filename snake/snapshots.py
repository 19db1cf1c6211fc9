"""Snapshots: exact copies of boards as rows of bytes, the same bytes for equal positions.

A row is the body from the head on (zeros after its end), then the forced fruits, and length, fruit, heading, over,
hunger, steps and seed, all little-endian; 122 bytes of a 10 x 10 board.
"""

from __future__ import annotations

import numpy as np
from numba import njit

from evo.compiled import cache as kernel_cache
from snake.batch import LEAN, ONE, Boards

kernel_cache.use(__name__)

FIXED = 2 + 2 + 1 + 1 + 4 + 4 + 8  # length, fruit, heading, over, hunger, steps, seed
BYTE = np.uint64(0xFF)
# Typed: every literal would be compiled for.
ONE_BYTE, TWO_BYTES, FOUR_BYTES, EIGHT_BYTES = np.int64(1), np.int64(2), np.int64(4), np.int64(8)


def row_size(boards: Boards) -> int:
    """Return how many bytes a snapshot has."""
    return int(boards.body[:1].nbytes + boards.forced[:1].nbytes + FIXED)


@njit(forceinline=True, **LEAN)
def _put(row, at, value, size):  # type: ignore[no-untyped-def]
    word = np.uint64(value)
    for k in range(size):
        row[at + k] = np.uint8((word >> np.uint64(8 * k)) & BYTE)
    return at + size


@njit(forceinline=True, **LEAN)
def _get(row, at, size):  # type: ignore[no-untyped-def]
    word = np.uint64(0)
    for k in range(size):
        word |= np.uint64(row[at + k]) << np.uint64(8 * k)
    return word


@njit(**LEAN)
def _get_signed(row, at, size):  # type: ignore[no-untyped-def]
    shift = np.int64(64 - 8 * size)
    return (np.int64(_get(row, at, size)) << shift) >> shift


@njit(**LEAN)
def save(boards, setting, b, row):  # type: ignore[no-untyped-def]
    """Write the snapshot of board b, whatever the game's setting.  # row uint8 [row_size]"""
    cells = boards.body.shape[1]
    size = 1 if cells <= 256 else 2
    state = boards.state[b]
    length, position = np.int64(state.length), np.int64(state.head)
    at = np.int64(0)
    for k in range(cells):
        at = _put(row, at, np.int64(boards.body[b, position]) if k < length else np.int64(0), size)
        position += np.int64(1)
        if position == cells:
            position = np.int64(0)
    for k in range(boards.forced.shape[1]):
        at = _put(row, at, np.int64(boards.forced[b, k]), TWO_BYTES)
    at = _put(row, at, length, TWO_BYTES)
    at = _put(row, at, np.int64(state.fruit), TWO_BYTES)
    at = _put(row, at, np.int64(state.heading), ONE_BYTE)
    at = _put(row, at, np.int64(state.over), ONE_BYTE)
    at = _put(row, at, np.int64(state.hunger), FOUR_BYTES)
    at = _put(row, at, np.int64(state.steps), FOUR_BYTES)
    seed = state.seed
    for k in range(8):
        row[at + k] = np.uint8((seed >> np.uint64(8 * k)) & BYTE)


@njit(inline="always", **LEAN)
def _holds(boards, row):  # type: ignore[no-untyped-def]
    """Return whether every cell of a snapshot is on the board."""
    cells = boards.body.shape[1]
    size = 1 if cells <= 256 else 2
    forced = size * cells
    length = np.int64(_get(row, forced + 2 * boards.forced.shape[1], TWO_BYTES))
    if length < 1 or length > cells:
        return False
    for k in range(length):
        if np.int64(_get(row, size * k, size)) >= cells:
            return False
    for k in range(boards.forced.shape[1] + 1):  # the fruit stands behind the length
        cell = _get_signed(row, forced + 2 * k + (2 if k == boards.forced.shape[1] else 0), TWO_BYTES)
        if cell < -1 or cell >= cells:
            return False
    return row[forced + 2 * boards.forced.shape[1] + 4] < 4


@njit(**LEAN)
def load(boards, setting, b, row):  # type: ignore[no-untyped-def]
    """Set board b to a snapshot; return False where it is of another size.  # row uint8 [row_size]"""
    if not _holds(boards, row):
        return False
    cells = boards.body.shape[1]
    size = 1 if cells <= 256 else 2
    at = size * cells
    for k in range(boards.forced.shape[1]):
        boards.forced[b, k] = _get_signed(row, at, TWO_BYTES)
        at += 2
    length = np.int64(_get(row, at, TWO_BYTES))
    state = boards.state[b]
    state.head = 0
    state.length = length
    state.fruit = _get_signed(row, at + 2, TWO_BYTES)
    state.heading = row[at + 4]
    state.over = row[at + 5]
    state.hunger = _get_signed(row, at + 6, FOUR_BYTES)
    state.steps = _get_signed(row, at + 10, FOUR_BYTES)
    state.seed = _get(row, at + 14, EIGHT_BYTES)
    words = boards.occupied.shape[1]
    for word in range(words):
        boards.occupied[b, word] = np.uint64(0)
    if cells & 63:
        boards.occupied[b, words - 1] = ~((ONE << np.uint64(cells & 63)) - ONE)
    for k in range(length):
        cell = np.int64(_get(row, size * k, size))
        boards.body[b, k] = cell
        boards.occupied[b, cell >> 6] |= ONE << np.uint64(cell & 63)
    return True
