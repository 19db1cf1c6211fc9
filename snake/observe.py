"""Observations: boards written as planes into the caller's float32 array, compiled.

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

import numpy as np
from numba import njit

from evo.compiled import cache as kernel_cache
from evo.compiled.views import flat_of
from snake.batch import LEAN, blocked, cell_ahead, is_occupied, tail_cell
from snake.rules import CHANNELS, EGO, FEATURES, FRAME, LOCAL, LOCAL_AGE, PLANES, WINDOW

kernel_cache.use(__name__)

LOWEST = (0.0, 0.0, 0.0, 0.0, -1.0, 0.0)  # of any value of an observation
HIGHEST = (3.0, 1.0, 1.0, 1.0, 1.0, 1.0)

COPIED = 2048  # floats: the source of the background stays in the nearest cache
BLOCK = 240  # floats: whole vectors and whole cells, be they of five or six planes
CELL_OF_FIVE, CELL_OF_SIX = np.arange(BLOCK) % 5, np.arange(BLOCK) % 6
HUNGER_OF_FIVE, HUNGER_OF_SIX = np.float32(CELL_OF_FIVE == 4), np.float32(CELL_OF_SIX == 4)
NOTHING = np.zeros(BLOCK, np.float32)
FIRST_OF_FIVE, LAST_OF_SIX = np.float32(CELL_OF_FIVE == 0), np.float32(CELL_OF_SIX == 5)


@njit(inline="always", **LEAN)
def hunger_of(state, rules):  # type: ignore[no-untyped-def]
    """Return hunger / starvation of a board's state as float32, 0 where there is no starvation."""
    if rules.starvation == 0:
        return np.float32(0)
    return np.float32(state.hunger) / np.float32(rules.starvation)


@njit(inline="always", **LEAN)
def view(body, state, size, code, side, b):  # type: ignore[no-untyped-def]
    """Return (i0, ir, ic, j0, jr, jc): (row, column) is seen at (i0 + ir row + ic column, j0 + jr row + jc column)."""
    last = size - 1
    heading = state.heading
    i0, ir, ic, j0, jr, jc = 0, 1, 0, 0, 0, 1
    if code >= EGO:
        if heading == 1:
            i0, ir, ic, j0, jr, jc = last, 0, -1, 0, 1, 0
        elif heading == 2:
            i0, ir, ic, j0, jr, jc = last, -1, 0, last, 0, -1
        elif heading == 3:
            i0, ir, ic, j0, jr, jc = 0, 0, 1, last, -1, 0
    if code == WINDOW:  # move the head to the centre
        cell = np.int64(body[b, np.int64(state.head)])
        row = np.int64(np.uint32(cell) // np.uint32(size))
        column = cell - row * size
        i0 = (side >> 1) - ir * row - ic * column
        j0 = (side >> 1) - jr * row - jc * column
    return i0, ir, ic, j0, jr, jc


@njit(inline="always", **LEAN)
def repeat(flat, period):  # type: ignore[no-untyped-def]
    """Fill `flat` with copies of its first `period` values, in long vector moves."""
    total = flat.shape[0]
    source = period
    filled = period
    while filled < total:
        count = min(source, total - filled)
        part = flat[filled : filled + count]
        for k in range(count):
            part[k] = flat[k]
        filled += count
        if source < COPIED:
            source = filled


@njit(inline="always", **LEAN)
def fill(flat, times, ones, hunger):  # type: ignore[no-untyped-def]
    """Fill `flat` with repeats of times * hunger + ones.  # times, ones [BLOCK]"""
    total = flat.shape[0]
    first = 0
    while first + BLOCK <= total:
        block = flat[first : first + BLOCK]
        for k in range(BLOCK):
            block[k] = times[k] * hunger + ones[k]
        first += BLOCK
    rest = flat[first:]
    for k in range(rest.shape[0]):
        rest[k] = times[k] * hunger + ones[k]


@njit(inline="always", **LEAN)
def clear_inside(flat, side, size, period, lane, place):  # type: ignore[no-untyped-def]
    """Clear the wall plane of a window inside the board, for one lane; `place` is what `view` returns."""
    i0, ir, ic, j0, jr, jc = place
    i1, j1 = i0 + (ir + ic) * (size - 1), j0 + (jr + jc) * (size - 1)
    first, last = max(min(j0, j1), 0), min(max(j0, j1), side - 1)
    for i in range(max(min(i0, i1), 0), min(max(i0, i1), side - 1) + 1):
        position = np.uint64((i * side + first) * period + lane)
        for _ in range(first, last + 1):
            flat[position] = np.float32(0)
            position += np.uint64(period)


@njit(inline="always", **LEAN)
def foreground(boards, rules, code, oldest, b, flat, side, channels, lanes, lane, place):  # type: ignore[no-untyped-def]
    """Write head, body, age / oldest and fruit for one lane; `place` is what `view` returns."""
    i0, ir, ic, j0, jr, jc = place
    size = rules.size
    cells = size * size
    state = boards.state[b]
    start = np.int64(state.head)
    length = np.int64(state.length)
    clipped = code == WINDOW and side < 2 * size - 1
    # position in flat = origin + row * down + column * right = origin + cell * right + row * wrap
    origin = (i0 * side + j0) * channels * lanes + lane
    right = (ic * side + jc) * channels * lanes
    wrap = (ir * side + jr) * channels * lanes - size * right
    inverse = (1 << 32) // size + 1  # cell // size = cell * inverse >> 32 for every cell of every size of board
    for k in range(length):
        at = start + k
        cell = np.int64(boards.body[b, at if at < cells else at - cells])
        row = (cell * inverse) >> 32
        if clipped:
            column = cell - row * size
            i, j = i0 + ir * row + ic * column, j0 + jr * row + jc * column
            if not (0 <= i < side and 0 <= j < side):
                continue
        position = np.uint64(origin + cell * right + row * wrap)
        if code == FRAME:
            flat[position] = np.float32(3)
        else:
            flat[position + np.uint64(lanes)] = np.float32(1)
            flat[position + np.uint64(2 * lanes)] = np.float32(length - k) / oldest
    cell = np.int64(boards.body[b, start])
    position = np.uint64(origin + cell * right + ((cell * inverse) >> 32) * wrap)
    if code != FRAME:
        flat[position + np.uint64(lanes)] = np.float32(0)
    if code != WINDOW:
        flat[position] = np.float32(1)
    cell = np.int64(state.fruit)
    if cell >= 0:
        row = (cell * inverse) >> 32
        column = cell - row * size
        i, j = i0 + ir * row + ic * column, j0 + jr * row + jc * column
        if not clipped or (0 <= i < side and 0 <= j < side):
            position = np.uint64(origin + cell * right + row * wrap)
            if code == FRAME:
                flat[position] = np.float32(2)
            else:
                flat[position + np.uint64(3 * lanes)] = np.float32(1)


@njit(inline="always", **LEAN)
def drawn(boards, rules, code, b, flat, side, channels, lanes, lane):  # type: ignore[no-untyped-def]
    """Write what is not the same in all cells, for one lane."""
    kind = WINDOW if code == LOCAL else code
    oldest = np.float32(LOCAL_AGE if code == LOCAL else rules.size * rules.size)
    place = view(boards.body, boards.state[b], rules.size, kind, side, b)
    if kind == WINDOW:
        clear_inside(flat, side, rules.size, channels * lanes, lane, place)
    foreground(boards, rules, kind, oldest, b, flat, side, channels, lanes, lane, place)
    if code != LOCAL:
        return
    for at in range(2 * lanes + lane, flat.shape[0], channels * lanes):
        flat[at] = min(flat[at], np.float32(1))
    cell = np.int64(boards.state[b].fruit)
    if cell >= 0:
        i0, ir, ic, j0, jr, jc = place
        row, column = cell // rules.size, cell % rules.size
        i = min(max(i0 + ir * row + ic * column, 0), side - 1)
        j = min(max(j0 + jr * row + jc * column, 0), side - 1)
        flat[((i * side + j) * channels + 3) * lanes + lane] = np.float32(1)


@njit(**LEAN)
def features(boards, rules, b, flat, lanes, lane):  # type: ignore[no-untyped-def]
    """Write the features of board b into one lane.  # flat [FEATURE_NAMES, lanes]"""
    state, size = boards.state[b], rules.size
    side, cells = np.float32(size), np.float32(size * size)
    head, heading = np.int64(boards.body[b, np.int64(state.head)]), np.int64(state.heading)
    for turn in range(3):
        direction = (heading + turn + 3) & 3
        ahead = cell_ahead(size, head, direction)
        flat[turn * lanes + lane] = np.float32(1) if blocked(boards, rules, b, ahead) else np.float32(0)
        free = 0
        while ahead >= 0 and not is_occupied(boards.occupied, b, ahead):
            free += 1
            ahead = cell_ahead(size, ahead, direction)
        flat[(3 + turn) * lanes + lane] = np.float32(free) / side
    for what in range(2):
        cell = np.int64(state.fruit) if what == 0 else tail_cell(boards.body, state, b)
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
        flat[(6 + 2 * what) * lanes + lane] = np.float32(right) / side
        flat[(7 + 2 * what) * lanes + lane] = np.float32(forward) / side
    flat[10 * lanes + lane] = np.float32(state.length) / cells
    flat[11 * lanes + lane] = hunger_of(state, rules)


@njit(**LEAN)
def write(boards, setting, index, out):  # type: ignore[no-untyped-def]
    """Write the observation of board index[l] into lane l, for every lane.  # index [L], out [H, W, C, L] in C order

    `setting` has `rules` and `observation`, a place in OBSERVATIONS.
    """
    rules, code, side, flat = setting.rules, setting.observation, out.shape[0], flat_of(out)
    channels, lanes = CHANNELS[code], index.shape[0]
    if code == FEATURES:
        for lane in range(lanes):
            features(boards, rules, index[lane], flat, lanes, lane)
        return
    period = channels * lanes
    flat[:period] = np.float32(0)
    for lane in range(lanes):
        if code != FRAME:
            flat[4 * lanes + lane] = hunger_of(boards.state[index[lane]], rules)
        if code == EGO:
            flat[5 * lanes + lane] = np.float32(1)
        if code in (WINDOW, LOCAL):
            flat[lane] = np.float32(1)
    repeat(flat, period)
    for lane in range(lanes):
        drawn(boards, rules, code, index[lane], flat, side, channels, lanes, lane)


# By LLVM, not by Numba: callers outside of this file may count references, and would for every slice in it.
@njit(forceinline=True, **LEAN)
def observe_board(boards, rules, code, b, out):  # type: ignore[no-untyped-def]
    """Write the observation of board b, faster than `write`.  # out float32 [H, W, C] in C order"""
    side = out.shape[0]
    flat = flat_of(out)
    if code == FEATURES:
        features(boards, rules, b, flat, 1, 0)
        return
    hunger = hunger_of(boards.state[b], rules)
    if code == FRAME:
        flat[:] = np.float32(0)
    elif code == PLANES:
        fill(flat, HUNGER_OF_FIVE, NOTHING, hunger)
    elif code == EGO:
        fill(flat, HUNGER_OF_SIX, LAST_OF_SIX, hunger)
    else:
        fill(flat, HUNGER_OF_FIVE, FIRST_OF_FIVE, hunger)
    drawn(boards, rules, code, b, flat, side, out.shape[2], 1, 0)


@njit(**LEAN)
def observe_many(boards, rules, code, out):  # type: ignore[no-untyped-def]
    """Write the observation of every board.  # out float32 [B, H, W, C] in C order"""
    for b in range(out.shape[0]):
        observe_board(boards, rules, code, b, out[b])


@njit(inline="always", **LEAN)
def mask(boards, rules, mask_code, b, out):  # type: ignore[no-untyped-def]
    """Write 1 for every action of board b that the mask allows, else 0; all ones where all are fatal.

    `mask_code` is a place in MASKS, `out` int8 [A], A = 3 relative or 4 absolute.
    """
    state = boards.state[b]
    heading = np.int64(state.heading)
    length = state.length
    head = np.int64(boards.body[b, np.int64(state.head)])
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
