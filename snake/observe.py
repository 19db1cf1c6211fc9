"""Boards to planes: what a player sees, written straight into the caller's float32 array, compiled.

| name | side | planes in order |
|---|---|---|
| frame | N | 0 empty, 1 head, 2 fruit, 3 body |
| planes | N | head; body; age (steps until the cell is free / N^2); fruit; hunger / starvation everywhere |
| ego | N | the same five, the whole board turned so that the head looks up; ones |
| window | odd, <= 2N - 1 | head in the centre, looking up: wall; body; age; fruit; hunger |

`body` excludes the head, `age` includes it (the tail has age 1, the head the length); hunger is 0 where there is no
starvation. Every value is one float32 quotient, the same on every path.
"""

from __future__ import annotations

import numpy as np
from numba import njit

from snake.batch import blocked, cell_ahead
from snake.rules import MASKS, one_of, whole

OBSERVATIONS = ("frame", "planes", "ego", "window")
FRAME, PLANES, EGO, WINDOW = range(4)
CHANNELS = (1, 5, 6, 5)
HIGHEST = (3.0, 1.0, 1.0, 1.0)  # of any value of an observation; the lowest is 0

COPIED = 2048  # floats: the source of the background stays in the nearest cache


def shape(observation: str, size: int, window: int = 0) -> tuple[int, int, int]:
    """Return (H, W, C) of an observation; `window` is the side of the window, 0 means 2 size - 1.

    Raises ValueError for an unknown observation, and for a window that is even or wider than 2 size - 1.
    """
    code = OBSERVATIONS.index(one_of("observation", observation, OBSERVATIONS))
    if code != WINDOW:
        return size, size, CHANNELS[code]
    side = whole("window", window, 0, 2 * size - 1) or 2 * size - 1
    if side % 2 == 0:
        raise ValueError(f"window is {side}, not an odd number")
    return side, side, CHANNELS[code]


@njit(cache=True, error_model="numpy")
def hunger_of(boards, rules, b):  # type: ignore[no-untyped-def]
    """Return hunger / starvation of board b as float32, 0 where there is no starvation."""
    if rules.starvation == 0:
        return np.float32(0)
    return np.float32(boards.hunger[b]) / np.float32(rules.starvation)


@njit(cache=True, error_model="numpy")
def repeat(flat, period):  # type: ignore[no-untyped-def]
    """Fill `flat` with copies of its first `period` values: the background, in long vector moves."""
    total = flat.shape[0]
    source = period
    filled = period
    while filled < total:
        count = min(source, total - filled)
        for k in range(count):
            flat[filled + k] = flat[k]
        filled += count
        if source < COPIED:
            source = filled


@njit(cache=True, error_model="numpy")
def turn(code, size, side, cell, heading):  # type: ignore[no-untyped-def]
    """Return (i0, ir, ic, j0, jr, jc): (row, column) is seen at (i0 + ir row + ic column, j0 + jr row + jc column)."""
    last = size - 1
    if code < EGO or heading == 0:
        i0, ir, ic, j0, jr, jc = 0, 1, 0, 0, 0, 1
    elif heading == 1:
        i0, ir, ic, j0, jr, jc = last, 0, -1, 0, 1, 0
    elif heading == 2:
        i0, ir, ic, j0, jr, jc = last, -1, 0, last, 0, -1
    else:
        i0, ir, ic, j0, jr, jc = 0, 0, 1, last, -1, 0
    if code == WINDOW:  # move the head to the centre
        row = np.int64(np.uint32(cell) // np.uint32(size))
        column = cell - row * size
        i0 = (side >> 1) - ir * row - ic * column
        j0 = (side >> 1) - jr * row - jc * column
    return i0, ir, ic, j0, jr, jc


@njit(cache=True, error_model="numpy")
def background(boards, rules, code, index, flat, channels):  # type: ignore[no-untyped-def]
    """Write what is the same in every cell, for all lanes in one pass: zeros, hunger, ones, and wall everywhere."""
    lanes = index.shape[0]
    period = channels * lanes
    for k in range(period):
        flat[k] = np.float32(0)
    if code != FRAME:
        for lane in range(lanes):
            flat[4 * lanes + lane] = hunger_of(boards, rules, index[lane])
    if code == EGO:
        for lane in range(lanes):
            flat[5 * lanes + lane] = np.float32(1)
    if code == WINDOW:
        for lane in range(lanes):
            flat[lane] = np.float32(1)
    repeat(flat, period)


@njit(cache=True, error_model="numpy")
def foreground(boards, rules, code, b, flat, side, period, lanes, lane):  # type: ignore[no-untyped-def]
    """Write what differs from cell to cell for one lane: the inside of the walls, the body, its age, the fruit."""
    size = rules.size
    cells = size * size
    start = np.int64(boards.head[b])
    length = np.int64(boards.length[b])
    fruit = np.int64(boards.fruit[b])
    head = np.int64(boards.body[b, start])
    i0, ir, ic, j0, jr, jc = turn(code, size, side, head, np.int64(boards.heading[b]))
    clipped = code == WINDOW and side < 2 * size - 1
    if code == WINDOW:
        i1, j1 = i0 + (ir + ic) * (size - 1), j0 + (jr + jc) * (size - 1)
        for i in range(max(min(i0, i1), 0), min(max(i0, i1), side - 1) + 1):
            for j in range(max(min(j0, j1), 0), min(max(j0, j1), side - 1) + 1):
                flat[(i * side + j) * period + lane] = np.float32(0)
    whole_board = np.float32(cells)
    last = min(length, cells - start)
    for k in range(length):
        cell = np.int64(boards.body[b, start + k if k < last else start + k - cells])
        row = np.int64(np.uint32(cell) // np.uint32(size))
        column = cell - row * size
        i, j = i0 + ir * row + ic * column, j0 + jr * row + jc * column
        if clipped and not (0 <= i < side and 0 <= j < side):
            continue
        position = (i * side + j) * period + lane
        if code == FRAME:
            flat[position] = np.float32(1 if k == 0 else 3)
        else:
            flat[position + 2 * lanes] = np.float32(length - k) / whole_board
            if k > 0:
                flat[position + lanes] = np.float32(1)
            elif code != WINDOW:
                flat[position] = np.float32(1)
    if fruit >= 0:
        row = np.int64(np.uint32(fruit) // np.uint32(size))
        column = fruit - row * size
        i, j = i0 + ir * row + ic * column, j0 + jr * row + jc * column
        if not clipped or (0 <= i < side and 0 <= j < side):
            position = (i * side + j) * period + lane
            if code == FRAME:
                flat[position] = np.float32(2)
            else:
                flat[position + 3 * lanes] = np.float32(1)


@njit(cache=True, error_model="numpy")
def write(boards, rules, code, index, out):  # type: ignore[no-untyped-def]
    """Write what board index[l] looks like into out[..., l], for every lane l.

    `code` is a place in OBSERVATIONS, `index` int64 [L], `out` float32 [H, W, C, L] in C order, with (H, W, C) as
    `shape` says.
    """
    side, channels, lanes = out.shape[0], out.shape[2], out.shape[3]
    flat = out.reshape(-1)
    background(boards, rules, code, index, flat, channels)
    for lane in range(lanes):
        foreground(boards, rules, code, index[lane], flat, side, channels * lanes, lanes, lane)


@njit(cache=True, error_model="numpy")
def observe_many(boards, rules, code, out):  # type: ignore[no-untyped-def]
    """Write what every board looks like.  # out float32 [B, H, W, C] in C order"""
    index = np.zeros(1, np.int64)
    side, channels = out.shape[1], out.shape[3]
    for b in range(out.shape[0]):
        index[0] = b
        flat = out[b].reshape(-1)
        background(boards, rules, code, index, flat, channels)
        foreground(boards, rules, code, b, flat, side, channels, 1, 0)


@njit(cache=True, error_model="numpy")
def mask(boards, rules, mask_code, b, out):  # type: ignore[no-untyped-def]
    """Write 1 for every action of board b that the mask allows, else 0; all ones where all are fatal.

    `mask_code` is a place in MASKS, `out` int8 [A], A = 3 relative or 4 absolute.
    """
    heading = np.int64(boards.heading[b])
    length = boards.length[b]
    head = np.int64(boards.body[b, np.int64(boards.head[b])])
    allowed = 0
    for action in range(out.shape[0]):
        direction = (heading + action + 3) & 3 if rules.relative else action
        forbidden = False
        if mask_code == 1:
            forbidden = length > 1 and direction == (heading + 2) & 3
        elif mask_code == 2:
            forbidden = blocked(boards, rules, b, cell_ahead(rules.size, head, direction))
        out[action] = 0 if forbidden else 1
        allowed += out[action]
    if allowed == 0:
        for action in range(out.shape[0]):
            out[action] = 1
