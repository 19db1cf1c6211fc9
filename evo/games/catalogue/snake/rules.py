"""The rules of Snake: a board is a row of every array of the state, and a cell is the number row * N + column.

Functions that are given `options` use Snake's options as numbers. Draw 0 of an episode places the snake, and draw L the
fruit that appears when the body has L cells.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from evo.games import GOES_ON, TERMINATED, TRUNCATED, draw_number, get, get_signed, put, steps_played

RELATIVE, ABSOLUTE = 0, 1  # actions
LEGAL, FATAL = 0, 1  # entering the cell that the tail leaves
MASK_NONE, MASK_REVERSE, MASK_FATAL = 0, 1, 2
HEADINGS = ("up", "right", "down", "left")
EPISODE_METRICS = ("score", "won", "starved")
FIXED = 2 + 2 + 1 + 1 + 4  # bytes of a snapshot after the cells: length, fruit, heading, over, hunger
WORD = 32  # bits


class State(NamedTuple):
    """B boards of N x N cells."""

    body: Any  # [B, N*N] ring of cells, from `head` on to the tail; uint8 up to 16 x 16, else uint16
    occupied: Any  # [B, ceil(N*N / 32)] uint32, one bit a cell of the body; bits beyond the board are set
    hunger: Any  # [B] int32, steps since the last fruit
    head: Any  # [B] uint16, where the head is in the ring
    length: Any  # [B] uint16
    fruit: Any  # [B] int16, cell, or -1 on a full board
    heading: Any  # [B] uint8, 0 up, 1 right, 2 down, 3 left
    over: Any  # [B] uint8, GOES_ON, TERMINATED or TRUNCATED


def arrays(options: Any) -> State:
    """Return the state of one board."""
    cells = options.size**2
    return State(
        body=np.zeros(cells, np.uint8 if cells <= 256 else np.uint16),
        occupied=np.zeros(-(-cells // WORD), np.uint32),
        hunger=np.int32(0),
        head=np.uint16(0),
        length=np.uint16(0),
        fruit=np.int16(0),
        heading=np.uint8(0),
        over=np.uint8(0),
    )


def begin(state, options, b, random):
    """Place a straight body below a random head, looking up, and the first fruit."""
    size = options.size
    length = options.start_length
    clear(state, options, b)
    cell = draw_number(random, 0, (size - length + 1) * size)
    for k in range(length):
        state.body[b, k] = cell
        occupy(state, b, cell)
        cell += size
    state.length[b] = length
    place_fruit(state, options, b, random)


def clear(state, options, b):
    """Set the bits of no cell but those beyond the board."""
    cells = options.size * options.size
    words = state.occupied.shape[1]
    for word in range(words):
        state.occupied[b, word] = 0
    if cells % WORD:
        state.occupied[b, words - 1] = (1 << WORD) - (1 << (cells % WORD))


def occupy(state, b, cell):
    """Set the bit of a cell."""
    state.occupied[b, cell >> 5] = state.occupied[b, cell >> 5] | (1 << (cell & 31))


def on_body(state, b, cell):
    """Return whether the body covers a cell."""
    return (state.occupied[b, cell >> 5] >> (cell & 31)) & 1 != 0


def ones(word):
    """Return the number of set bits of a word below 2^32."""
    word = word - ((word >> 1) & 0x55555555)
    word = (word & 0x33333333) + ((word >> 2) & 0x33333333)
    word = (word + (word >> 4)) & 0x0F0F0F0F
    return ((word * 0x01010101) >> 24) & 0xFF


def free_cell(state, b, rank):
    """Return free cell number `rank`, counted row by row."""
    word_number = 0
    free = (1 << WORD) - 1 - np.int64(state.occupied[b, 0])
    while rank >= ones(free):
        rank -= ones(free)
        word_number += 1
        free = (1 << WORD) - 1 - np.int64(state.occupied[b, word_number])
    position, width = 0, WORD >> 1
    while width > 0:
        below = ones((free >> position) & ((1 << width) - 1))
        if rank >= below:
            rank -= below
            position += width
        width >>= 1
    return word_number * WORD + position


def place_fruit(state, options, b, random):
    """Place the next fruit by draw number `length` of the episode; none on a full board."""
    length = np.int64(state.length[b])
    free = options.size * options.size - length
    state.fruit[b] = -1 if free == 0 else free_cell(state, b, draw_number(random, length, free))


def cell_ahead(size, cell, direction):
    """Return the neighbour of a cell in a direction, or -1 beyond the wall."""
    row = np.int64(np.uint32(cell) // np.uint32(size))
    column = cell - row * size
    down = np.int64(direction == 2) - np.int64(direction == 0)
    right = np.int64(direction == 1) - np.int64(direction == 3)
    row += down
    column += right
    inside = (row >= 0) & (row < size) & (column >= 0) & (column < size)
    return cell + down * size + right if inside else -1


def head_cell(state, b):
    """Return the cell of the head."""
    return np.int64(state.body[b, np.int64(state.head[b])])


def tail_cell(state, b):
    """Return the cell of the tail."""
    position = np.int64(state.head[b]) + np.int64(state.length[b]) - 1
    cells = state.body.shape[1]
    return np.int64(state.body[b, position - cells if position >= cells else position])


def blocked(state, options, b, cell):
    """Return whether the head would die by entering a cell; -1 is the wall."""
    if cell < 0:
        return True
    if not on_body(state, b, cell):
        return False
    # The fruit never lies on the body, so whoever enters the tail's cell does not eat and the tail moves on.
    return options.tail == FATAL or state.length[b] == 1 or cell != tail_cell(state, b)


def direction_of(state, options, b, action):
    """Return where an action moves the head: 0 up, 1 right, 2 down, 3 left."""
    return (np.int64(state.heading[b]) + action + 3) & 3 if options.actions == RELATIVE else np.int64(action)


def step(state, options, b, action, random):
    """Move the head; return the reward, and whether the episode has ended and how."""
    size = options.size
    cells = size * size
    direction = direction_of(state, options, b, action)
    start = np.int64(state.head[b])
    target = cell_ahead(size, np.int64(state.body[b, start]), direction)
    hunger = np.int64(state.hunger[b]) + 1
    state.hunger[b] = hunger
    if blocked(state, options, b, target):
        state.over[b] = TERMINATED
        return options.rewards_death, TERMINATED
    eats = target == state.fruit[b]
    if not eats:
        tail = tail_cell(state, b)
        state.occupied[b, tail >> 5] = state.occupied[b, tail >> 5] & ~(1 << (tail & 31))
    occupy(state, b, target)
    start = start - 1 if start > 0 else cells - 1
    state.body[b, start] = target
    state.head[b] = start
    state.heading[b] = direction
    status = GOES_ON
    reward = options.rewards_step
    if eats:
        length = np.int64(state.length[b]) + 1
        state.length[b] = length
        state.hunger[b] = 0
        hunger = np.int64(0)
        reward = options.rewards_fruit
        if length == cells:
            reward = options.rewards_fruit + options.rewards_win
            status = TERMINATED
        place_fruit(state, options, b, random)
    starved = 0 < options.starvation <= hunger
    if status == GOES_ON and (starved or 0 < options.max_steps <= steps_played(random) + 1):
        status = TRUNCATED
    if starved:  # no fruit was eaten, so the board is not full
        reward += options.rewards_starved
    state.over[b] = status
    return reward, status


def mask(state, options, b, out):
    """Write 1 for every action that the option `mask` allows, else 0; all ones where all are fatal."""
    size = options.size
    heading = np.int64(state.heading[b])
    head = head_cell(state, b)
    allowed = 0
    for action in range(out.shape[0]):
        direction = direction_of(state, options, b, action)
        forbidden = False
        if options.mask == MASK_REVERSE:
            forbidden = state.length[b] > 1 and direction == (heading + 2) & 3
        elif options.mask == MASK_FATAL:
            forbidden = blocked(state, options, b, cell_ahead(size, head, direction))
        out[action] = 0 if forbidden else 1
        allowed += out[action]
    if allowed == 0:
        for action in range(out.shape[0]):
            out[action] = 1


def metrics(state, options, b, out):
    """Write the fruits eaten so far, and whether the board is full and whether the episode was truncated."""
    length = np.int64(state.length[b])
    out[0] = length - options.start_length
    out[1] = 1 if length == options.size * options.size else 0
    out[2] = 1 if state.over[b] == TRUNCATED else 0


def snapshot_size(options: Any) -> int:
    """Return the bytes of a row that `save` writes."""
    return int(arrays(options).body.nbytes) + FIXED


def save(state, options, b, row):
    """Write the cells of the body from the head on, zeros after its end, and what else makes a board."""
    cells = state.body.shape[1]
    size = 1 if cells <= 256 else 2
    length, position = np.int64(state.length[b]), np.int64(state.head[b])
    at = 0
    for k in range(cells):
        at = put(row, at, np.int64(state.body[b, position]) if k < length else np.int64(0), size)
        position += 1
        if position == cells:
            position = np.int64(0)
    at = put(row, at, length, 2)
    at = put(row, at, np.int64(state.fruit[b]), 2)
    at = put(row, at, np.int64(state.heading[b]), 1)
    at = put(row, at, np.int64(state.over[b]), 1)
    put(row, at, np.int64(state.hunger[b]), 4)


def holds(state, row):
    """Return whether every cell of a snapshot is on the board."""
    cells = state.body.shape[1]
    size = 1 if cells <= 256 else 2
    after = size * cells
    length = get(row, after, 2)
    if length < 1 or length > cells:
        return False
    for k in range(length):
        if get(row, size * k, size) >= cells:
            return False
    return -1 <= get_signed(row, after + 2, 2) < cells and row[after + 4] < 4


def load(state, options, b, row):
    """Set a board to a snapshot; return False where it is of another size."""
    if not holds(state, row):
        return False
    cells = state.body.shape[1]
    size = 1 if cells <= 256 else 2
    at = size * cells
    length = get(row, at, 2)
    state.head[b] = 0
    state.length[b] = length
    state.fruit[b] = get_signed(row, at + 2, 2)
    state.heading[b] = row[at + 4]
    state.over[b] = row[at + 5]
    state.hunger[b] = get_signed(row, at + 6, 4)
    clear(state, options, b)
    for k in range(length):
        cell = get(row, size * k, size)
        state.body[b, k] = cell
        occupy(state, b, cell)
    return True
