"""Observations: boards written as planes into the caller's float32 array.

| name | side | planes in order |
|---|---|---|
| frame | N | 0 empty, 1 head, 2 fruit, 3 body |
| planes | N | head; body; age (steps until the cell is free / N^2); fruit; hunger / starvation everywhere |
| ego | N | the same five, the whole board turned so that the head looks up; ones |
| window | odd | head in the centre, looking up: wall; body; age; fruit; hunger |
| local | odd | the same five, alike on boards of any size: `age` and `fruit` as said below |
| features | 1 | the numbers of FEATURE_NAMES, for whoever looks where the head looks |

`body` excludes the head, `age` includes it (the tail has age 1, the head the length); hunger is 0 where there is no
starvation. In local, age is steps / LOCAL_AGE, at most 1, and a fruit outside of the window is seen at the nearest cell
of its edge. Every value is one float32 quotient, the same on every path. Features are: whether a move would be the last
one; free cells up to the wall or the body / N; how far fruit and tail are to the right and ahead / N, negative to the
left and behind, 0 where there is no fruit; length / N^2; hunger.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from evo.games import flat
from evo.games.catalogue.snake.rules import blocked, cell_ahead, head_cell, on_body, tail_cell

OBSERVATIONS = ("frame", "planes", "ego", "window", "features", "local")
FRAME, PLANES, EGO, WINDOW, FEATURES, LOCAL = range(6)
LOCAL_AGE = 50  # local: steps until a cell is free that are seen as 1, and more as well
LOCAL_SIDE = 7  # local: of the window, where none is given
FEATURE_NAMES = (
    "blocked_left", "blocked_ahead", "blocked_right", "free_left", "free_ahead", "free_right",
    "fruit_right", "fruit_ahead", "tail_right", "tail_ahead", "length", "hunger",
)  # fmt: skip
CHANNELS = (1, 5, 6, 5, len(FEATURE_NAMES), 5)  # planes of an observation
LOWEST = (0.0, 0.0, 0.0, 0.0, -1.0, 0.0)  # of any value of an observation
HIGHEST = (3.0, 1.0, 1.0, 1.0, 1.0, 1.0)

COPIED = 2048  # floats: the source of the background stays in the nearest cache
BLOCK = 240  # floats: whole vectors and whole cells, be they of five or six planes
CELL_OF_FIVE, CELL_OF_SIX = np.arange(BLOCK) % 5, np.arange(BLOCK) % 6
HUNGER_OF_FIVE, HUNGER_OF_SIX = np.float32(CELL_OF_FIVE == 4), np.float32(CELL_OF_SIX == 4)
NOTHING = np.zeros(BLOCK, np.float32)
FIRST_OF_FIVE, LAST_OF_SIX = np.float32(CELL_OF_FIVE == 0), np.float32(CELL_OF_SIX == 5)


def hunger_of(state, options, b):
    """Return hunger / starvation as float32, 0 where there is no starvation."""
    if options.starvation == 0:
        return np.float32(0)
    return np.float32(state.hunger[b]) / np.float32(options.starvation)


def view(state, size, code, side, b):
    """Return (i0, ir, ic, j0, jr, jc): (row, column) is seen at (i0 + ir row + ic column, j0 + jr row + jc column)."""
    last = size - 1
    heading = state.heading[b]
    i0, ir, ic, j0, jr, jc = 0, 1, 0, 0, 0, 1
    if code >= EGO:
        if heading == 1:
            i0, ir, ic, j0, jr, jc = last, 0, -1, 0, 1, 0
        elif heading == 2:
            i0, ir, ic, j0, jr, jc = last, -1, 0, last, 0, -1
        elif heading == 3:
            i0, ir, ic, j0, jr, jc = 0, 0, 1, last, -1, 0
    if code == WINDOW:  # move the head to the centre
        cell = head_cell(state, b)
        row = np.int64(np.uint32(cell) // np.uint32(size))
        column = cell - row * size
        i0 = (side >> 1) - ir * row - ic * column
        j0 = (side >> 1) - jr * row - jc * column
    return i0, ir, ic, j0, jr, jc


def repeat(values, period):
    """Fill `values` with copies of its first `period` values, in long vector moves."""
    total = values.shape[0]
    source = period
    filled = period
    while filled < total:
        count = min(source, total - filled)
        part = values[filled : filled + count]
        for k in range(count):
            part[k] = values[k]
        filled += count
        if source < COPIED:
            source = filled


def fill(values, times, ones, hunger):
    """Fill `values` with repeats of times * hunger + ones.  # times, ones [BLOCK]"""
    total = values.shape[0]
    first = 0
    while first + BLOCK <= total:
        block = values[first : first + BLOCK]
        for k in range(BLOCK):
            block[k] = times[k] * hunger + ones[k]
        first += BLOCK
    rest = values[first:]
    for k in range(rest.shape[0]):
        rest[k] = times[k] * hunger + ones[k]


def clear_inside(values, side, size, period, lane, place):
    """Clear the wall plane of a window inside the board, for one lane; `place` is what `view` returns."""
    i0, ir, ic, j0, jr, jc = place
    i1, j1 = i0 + (ir + ic) * (size - 1), j0 + (jr + jc) * (size - 1)
    first, last = max(min(j0, j1), 0), min(max(j0, j1), side - 1)
    for i in range(max(min(i0, i1), 0), min(max(i0, i1), side - 1) + 1):
        position = np.uint64((i * side + first) * period + lane)
        for _ in range(first, last + 1):
            values[position] = np.float32(0)
            position += np.uint64(period)


def foreground(state, size, code, oldest, b, values, side, channels, lanes, lane, place):
    """Write head, body, age / oldest and fruit for one lane; `place` is what `view` returns."""
    i0, ir, ic, j0, jr, jc = place
    cells = size * size
    start = np.int64(state.head[b])
    length = np.int64(state.length[b])
    clipped = code == WINDOW and side < 2 * size - 1
    # position in values = origin + row * down + column * right = origin + cell * right + row * wrap
    origin = (i0 * side + j0) * channels * lanes + lane
    right = (ic * side + jc) * channels * lanes
    wrap = (ir * side + jr) * channels * lanes - size * right
    inverse = (1 << 32) // size + 1  # cell // size = cell * inverse >> 32 for every cell of every size of board
    for k in range(length):
        at = start + k
        cell = np.int64(state.body[b, at if at < cells else at - cells])
        row = (cell * inverse) >> 32
        if clipped:
            column = cell - row * size
            i, j = i0 + ir * row + ic * column, j0 + jr * row + jc * column
            if not (0 <= i < side and 0 <= j < side):
                continue
        position = np.uint64(origin + cell * right + row * wrap)
        if code == FRAME:
            values[position] = np.float32(3)
        else:
            values[position + np.uint64(lanes)] = np.float32(1)
            values[position + np.uint64(2 * lanes)] = np.float32(length - k) / oldest
    cell = np.int64(state.body[b, start])
    position = np.uint64(origin + cell * right + ((cell * inverse) >> 32) * wrap)
    if code != FRAME:
        values[position + np.uint64(lanes)] = np.float32(0)
    if code != WINDOW:
        values[position] = np.float32(1)
    cell = np.int64(state.fruit[b])
    if cell >= 0:
        row = (cell * inverse) >> 32
        column = cell - row * size
        i, j = i0 + ir * row + ic * column, j0 + jr * row + jc * column
        if not clipped or (0 <= i < side and 0 <= j < side):
            position = np.uint64(origin + cell * right + row * wrap)
            if code == FRAME:
                values[position] = np.float32(2)
            else:
                values[position + np.uint64(3 * lanes)] = np.float32(1)


def drawn(state, size, code, b, values, side, channels, lanes, lane):
    """Write what is not the same in all cells, for one lane."""
    kind = WINDOW if code == LOCAL else code
    oldest = np.float32(LOCAL_AGE if code == LOCAL else size * size)
    place = view(state, size, kind, side, b)
    if kind == WINDOW:
        clear_inside(values, side, size, channels * lanes, lane, place)
    foreground(state, size, kind, oldest, b, values, side, channels, lanes, lane, place)
    if code != LOCAL:
        return
    for at in range(2 * lanes + lane, values.shape[0], channels * lanes):
        values[at] = min(values[at], np.float32(1))
    cell = np.int64(state.fruit[b])
    if cell >= 0:
        i0, ir, ic, j0, jr, jc = place
        row, column = cell // size, cell % size
        i = min(max(i0 + ir * row + ic * column, 0), side - 1)
        j = min(max(j0 + jr * row + jc * column, 0), side - 1)
        values[((i * side + j) * channels + 3) * lanes + lane] = np.float32(1)


def write_features(state, options, b, values, lanes, lane):
    """Write the features of board b into one lane.  # values [FEATURE_NAMES, lanes]"""
    size = options.size
    side, cells = np.float32(size), np.float32(size * size)
    head, heading = head_cell(state, b), np.int64(state.heading[b])
    for turn in range(3):
        direction = (heading + turn + 3) & 3
        ahead = cell_ahead(size, head, direction)
        values[turn * lanes + lane] = np.float32(1) if blocked(state, options, b, ahead) else np.float32(0)
        free = 0
        while ahead >= 0 and not on_body(state, b, ahead):
            free += 1
            ahead = cell_ahead(size, ahead, direction)
        values[(3 + turn) * lanes + lane] = np.float32(free) / side
    for what in range(2):
        cell = np.int64(state.fruit[b]) if what == 0 else tail_cell(state, b)
        right, forward = 0, 0
        if cell >= 0:
            east, north = cell % size - head % size, head // size - cell // size
            if heading == 0:
                right, forward = east, north
            elif heading == 1:
                right, forward = -north, east
            elif heading == 2:
                right, forward = -east, -north
            else:
                right, forward = north, -east
        values[(6 + 2 * what) * lanes + lane] = np.float32(right) / side
        values[(7 + 2 * what) * lanes + lane] = np.float32(forward) / side
    values[10 * lanes + lane] = np.float32(state.length[b]) / cells
    values[11 * lanes + lane] = hunger_of(state, options, b)


def cell(state, options, b, lane, out):
    """Write what every cell of board b shows before `draw` to the first cell of a lane.  # out [H, W, C, L]"""
    code, values, lanes = options.observation, flat(out), out.shape[3]
    if code == FEATURES:
        write_features(state, options, b, values, lanes, lane)
        return
    for channel in range(out.shape[2]):
        values[channel * lanes + lane] = np.float32(0)
    if code != FRAME:
        values[4 * lanes + lane] = hunger_of(state, options, b)
    if code == EGO:
        values[5 * lanes + lane] = np.float32(1)
    if code in (WINDOW, LOCAL):
        values[lane] = np.float32(1)


def draw(state, options, b, lane, out):
    """Write what the cells of board b do not all show to a lane, whose cells are all as `cell` wrote the first."""
    code, side, values = options.observation, out.shape[0], flat(out)
    if code != FEATURES:
        drawn(state, options.size, code, b, values, side, out.shape[2], out.shape[3], lane)


def observe_lanes(state, options, index, out):
    """Write the observation of board index[l] into lane l, for every lane.  # index [L], out [H, W, C, L] in C order"""
    for lane in range(index.shape[0]):
        cell(state, options, index[lane], lane, out)
    repeat(flat(out), out.shape[2] * index.shape[0])
    for lane in range(index.shape[0]):
        draw(state, options, index[lane], lane, out)


def observe(state, options, b, out):
    """Write the observation of board b, faster than `observe_lanes`.  # out float32 [H, W, C] in C order"""
    code, size, side, values = options.observation, options.size, out.shape[0], flat(out)
    if code == FEATURES:
        write_features(state, options, b, values, 1, 0)
        return
    hunger = hunger_of(state, options, b)
    if code == FRAME:
        values[:] = np.float32(0)
    elif code == PLANES:
        fill(values, HUNGER_OF_FIVE, NOTHING, hunger)
    elif code == EGO:
        fill(values, HUNGER_OF_SIX, LAST_OF_SIX, hunger)
    else:
        fill(values, HUNGER_OF_FIVE, FIRST_OF_FIVE, hunger)
    drawn(state, size, code, b, values, side, out.shape[2], 1, 0)


def observation_shape(options: Any) -> tuple[int, int, int]:
    """Return (H, W, C) of an observation."""
    code = OBSERVATIONS.index(options.observation)
    if code == FEATURES:
        return 1, 1, CHANNELS[code]
    if code not in (WINDOW, LOCAL):
        return options.size, options.size, CHANNELS[code]
    side = options.window or (LOCAL_SIDE if code == LOCAL else 2 * options.size - 1)
    return side, side, CHANNELS[code]
