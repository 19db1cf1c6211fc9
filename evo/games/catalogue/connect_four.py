"""Connect Four: two players drop stones into seven columns; four in a row, straight or diagonal, win."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from evo.games import Game, GameOptions, one_of

ROWS, COLUMNS = 6, 7
HIGH = ROWS + 1  # bits of a column, lowest cell first; the highest one is never set
WON = 10_000  # what a won position is worth, more the earlier it is won
CELL = 8  # pixels of a picture
COLOURS = (88, 166, 255), (227, 179, 65)


class State(NamedTuple):
    """The stones of both players, a bit for each cell."""

    stones: Any  # [2]
    moves: Any


class Options(GameOptions):
    """The [environment] section of Connect Four."""


def begin(state, options, b, random):
    """Begin with an empty board, which is all zeros."""


def turn(state, options, b):
    """Return the player that moves next."""
    return state.moves[b] & 1


def has_four(stones):
    """Return whether stones have four in a row."""
    found = False
    for distance in (1, HIGH - 1, HIGH, HIGH + 1):
        pairs = stones & stones >> distance
        found = found or pairs & pairs >> 2 * distance != 0
    return found


def dropped(both, column):
    """Return the stone, a bit, that is dropped into a column; 0 where it is full."""
    bottom = 1 << HIGH * column
    return both + bottom & (bottom << ROWS) - bottom & ~both


def step(state, options, b, action, rewards, random):
    """Drop a stone into a column; who has four in a row wins 1, and a stone for a full column loses 1."""
    player = state.moves[b] & 1
    stones = state.stones[b]
    state.moves[b] += 1
    stone = dropped(stones[0] | stones[1], action)
    if stone:
        stones[player] |= stone
        if not has_four(stones[player]):
            return state.moves[b] == ROWS * COLUMNS
    rewards[player] = 1.0 if stone else -1.0
    rewards[1 - player] = -rewards[player]
    return True


def observe(state, options, b, player, out):
    """Show the player's own stones, and those of the other one; the lowest row is the last one."""
    mine, theirs = state.stones[b, player], state.stones[b, 1 - player]
    for row in range(ROWS):
        for column in range(COLUMNS):
            bit = HIGH * column + ROWS - 1 - row
            out[row, column, 0] = mine >> bit & 1
            out[row, column, 1] = theirs >> bit & 1


def mask(state, options, b, player, out):
    """Allow every column that is not full."""
    for column in range(COLUMNS):
        out[column] = 1 if dropped(state.stones[b, 0] | state.stones[b, 1], column) else 0


def places(stones):
    """Return how many lines of four go through the cells of stones, all together."""
    total = 0
    for column in range(COLUMNS):
        sides = min(column, COLUMNS - 1 - column)
        for row in range(ROWS):
            if stones >> HIGH * column + row & 1:
                up = min(row, ROWS - 1 - row)
                total += 3 + sides + up + sides * up + (1 - up if sides == 3 else 0)
    return total


def value(mine, theirs, depth, low, high):
    """Return what a position is worth to who moves, by a negamax search of some moves between two bounds."""
    if has_four(theirs):
        return -WON - depth
    if depth == 0:
        return places(mine) - places(theirs)
    moved = False
    for i in range(COLUMNS):
        column = COLUMNS // 2 + (i + 1) // 2 * (1 if i & 1 else -1)  # those in the middle first
        stone = dropped(mine | theirs, column)
        if stone:
            moved = True
            low = max(low, -value(theirs, mine | stone, depth - 1, -high, -low))
            if low >= high:
                return low
    return low if moved else 0


def searched(state, b, player, random, depth):
    """Return one of the best moves by a search of `depth` moves, each as probable."""
    mine, theirs = state.stones[b, player], state.stones[b, 1 - player]
    best, moves = -2 * WON, 0
    for column in range(COLUMNS):
        stone = dropped(mine | theirs, column)
        if stone:
            worth = -value(theirs, mine | stone, depth - 1, -2 * WON, 1 - best)
            if worth > best:
                best, moves = worth, 0
            if worth == best:
                moves |= 1 << column
    return one_of(random, moves)


def one_ply(state, options, b, player, random):
    """Win or else prevent a row of the other player, where one move does it; otherwise move at random."""
    mine, theirs = state.stones[b, player], state.stones[b, 1 - player]
    wins, saves, moves = 0, 0, 0
    for column in range(COLUMNS):
        stone = dropped(mine | theirs, column)
        if stone:
            moves |= 1 << column
            wins |= has_four(mine | stone) << column
            saves |= has_four(theirs | stone) << column
    return one_of(random, wins if wins else saves if saves else moves)


def minimax_2(state, options, b, player, random):
    """Search two moves."""
    return searched(state, b, player, random, 2)


def minimax_4(state, options, b, player, random):
    """Search four moves."""
    return searched(state, b, player, random, 4)


def minimax_6(state, options, b, player, random):
    """Search six moves."""
    return searched(state, b, player, random, 6)


def render(state, options, b):
    """Draw the board with its stones."""
    picture = np.full((ROWS, COLUMNS, 3), (36, 41, 51), np.uint8)
    for player, colour in enumerate(COLOURS):
        for column in range(COLUMNS):
            for row in range(ROWS):
                if state.stones[b, player] >> HIGH * column + row & 1:
                    picture[ROWS - 1 - row, column] = colour
    picture = picture.repeat(CELL, axis=0).repeat(CELL, axis=1)
    picture[CELL - 1 :: CELL] = picture[:, CELL - 1 :: CELL] = (24, 28, 38)
    return picture


BASELINES = {"one_ply": one_ply, "minimax_2": minimax_2, "minimax_4": minimax_4, "minimax_6": minimax_6}

make = Game(
    options=Options,
    arrays=lambda options: State(stones=np.zeros(2, np.int64), moves=np.int8(0)),
    players=2,
    shape=(ROWS, COLUMNS, 2),
    actions=COLUMNS,
    begin=begin,
    step=step,
    turn=turn,
    observe=observe,
    zeroed=False,
    mask=mask,
    render=render,
    baselines=lambda options: BASELINES,
    action_names=tuple(f"column {column + 1}" for column in range(COLUMNS)),
    score_bounds=(-1.0, 1.0),
    low=0.0,
    high=1.0,
)
