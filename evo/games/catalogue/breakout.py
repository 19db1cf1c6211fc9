"""Breakout: a paddle bounces a ball, which breaks bricks (MinAtar's, Young and Tian, 2019)."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from evo.games import below
from evo.games.catalogue._minatar import LEFT, NONE, RIGHT, Options, game, played

MINIMAL = (NONE, LEFT, RIGHT)
PADDLE, BALL, TRAIL, BRICK = range(4)  # channels


class State(NamedTuple):
    """The bricks, the ball, which moves along diagonals, and the paddle."""

    bricks: Any  # [3, 10] whether there is one, in rows 1 to 3
    left: Any  # how many bricks there are
    row: Any  # of the ball
    column: Any
    down: Any  # its direction, 1 or -1
    right: Any
    trail_row: Any  # where it was one step before
    trail_column: Any
    struck: Any  # whether it ran into a brick in that step; then the next one in its way is spared
    paddle: Any  # its column
    last: Any  # the action of the step before


def begin(state, options, b, random):
    """Build the wall, and let the ball come down from the left or the right."""
    build(state, b)
    state.right[b] = 1 - 2 * below(random, 2)
    state.down[b] = 1
    state.row[b] = state.trail_row[b] = 3
    state.column[b] = state.trail_column[b] = 0 if state.right[b] > 0 else 9
    state.struck[b] = False
    state.paddle[b] = 4
    state.last[b] = NONE


def build(state, b):
    """Set all bricks."""
    state.left[b] = 30
    for row in range(3):
        for column in range(10):
            state.bricks[b, row, column] = True


def step(state, options, b, action, random):
    """Move the paddle, then the ball, which turns back at walls, bricks and the paddle."""
    action = played(state, options, b, action, random, MINIMAL)
    if action == LEFT:
        state.paddle[b] = max(state.paddle[b] - 1, 0)
    elif action == RIGHT:
        state.paddle[b] = min(state.paddle[b] + 1, 9)
    row, column = state.row[b], state.column[b]
    down, right = state.down[b], state.right[b]
    to_row, to_column = row + down, column + right
    reward, ended = 0.0, False
    if to_column < 0 or to_column > 9:
        to_column, right = column, -right
    brick = 1 <= to_row <= 3 and state.bricks[b, to_row - 1, to_column]
    if to_row < 0:
        to_row, down = 0, -down
    elif brick and not state.struck[b]:
        reward = 1.0
        state.bricks[b, to_row - 1, to_column] = False
        state.left[b] -= 1
        to_row, down = row, -down
    elif to_row == 9:
        if state.left[b] == 0:
            build(state, b)
        if column == state.paddle[b]:
            to_row, down = row, -down
        elif to_column == state.paddle[b]:  # its edge sends the ball back to where it came from
            to_row, down, right = row, -down, -right
        else:
            ended = True
    state.struck[b] = brick
    state.trail_row[b], state.trail_column[b] = row, column
    state.row[b], state.column[b] = to_row, to_column
    state.down[b], state.right[b] = down, right
    return reward, ended


def observe(state, options, b, out):
    """Show the paddle, the ball, where it was, and the bricks."""
    out[9, state.paddle[b], PADDLE] = 1.0
    out[state.row[b], state.column[b], BALL] = 1.0
    out[state.trail_row[b], state.trail_column[b], TRAIL] = 1.0
    for row in range(3):
        for column in range(10):
            out[row + 1, column, BRICK] = state.bricks[b, row, column]


make = game(
    MINIMAL,
    4,
    options=Options,
    arrays=lambda options: State(np.zeros((3, 10), np.bool_), *np.zeros(10, np.int8)),
    begin=begin,
    step=step,
    observe=observe,
)
