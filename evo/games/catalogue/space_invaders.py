"""Space Invaders: a cannon against aliens that march down (MinAtar's, Young and Tian, 2019)."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from evo.games.catalogue._minatar import FIRE, LEFT, NONE, RIGHT, game, played
from evo.games.catalogue._minatar import RampingOptions as Options

MINIMAL = (NONE, LEFT, RIGHT, FIRE)
CANNON, ALIEN, LEFTWARD, RIGHTWARD, SHOT, BOMB = range(6)  # channels
ROWS, COLUMNS = 4, 6  # of aliens
NOWHERE = -1
RELOAD, MARCH, BOMBING = 5, 12, 10  # steps from shot to shot, from move to move of the aliens, from bomb to bomb
FASTEST = 6  # what MARCH comes down to, by one a wave


class State(NamedTuple):
    """The cannon, a formation of aliens, and what flies: the pauses allow for two shots and one bomb."""

    cannon: Any  # its column
    aliens: Any  # [4, 6] who is alive
    alive: Any  # how many are
    top: Any  # where the formation is
    left: Any
    direction: Any  # 1 or -1
    shot_row: Any  # [2], or NOWHERE
    shot_column: Any  # [2]
    bomb_row: Any  # or NOWHERE
    bomb_column: Any
    reload: Any  # steps until the cannon can shoot
    march: Any  # steps until the aliens move
    bombing: Any  # steps until one of them drops a bomb
    interval: Any  # of moves, at most
    last: Any  # the action of the step before


def begin(state, options, b, random):
    """Put the cannon into the middle, and the first wave above it."""
    send(state, b)
    state.cannon[b] = 5
    state.direction[b] = -1
    for i in range(2):
        state.shot_row[b, i] = state.shot_column[b, i] = NOWHERE
    state.bomb_row[b] = state.bomb_column[b] = NOWHERE
    state.reload[b] = 0
    state.march[b] = state.interval[b] = MARCH
    state.bombing[b] = BOMBING
    state.last[b] = NONE


def send(state, b):
    """Send a wave of aliens."""
    for row in range(ROWS):
        for column in range(COLUMNS):
            state.aliens[b, row, column] = True
    state.alive[b] = ROWS * COLUMNS
    state.top[b], state.left[b] = 0, 2


def at(state, b, row, column):
    """Return whether there is an alien at a place; below the last row the formation comes out at the top."""
    row, column = (row - state.top[b]) % 10, column - state.left[b]
    return row < ROWS and 0 <= column < COLUMNS and state.aliens[b, row, column]


def step(state, options, b, action, random):
    """Move the cannon, what flies, and the aliens, of whom those that are hit vanish."""
    action = played(state, options, b, action, random, MINIMAL)
    cannon = state.cannon[b]
    if action == LEFT:
        cannon = max(cannon - 1, 0)
    elif action == RIGHT:
        cannon = min(cannon + 1, 9)
    elif action == FIRE and state.reload[b] == 0:
        free = 0 if state.shot_row[b, 0] == NOWHERE else 1
        state.shot_row[b, free], state.shot_column[b, free] = 9, cannon
        state.reload[b] = RELOAD
    state.cannon[b] = cannon
    for i in range(2):
        state.shot_row[b, i] = max(state.shot_row[b, i] - 1, NOWHERE)
    if state.bomb_row[b] != NOWHERE:
        state.bomb_row[b] = state.bomb_row[b] + 1 if state.bomb_row[b] < 9 else NOWHERE
    ended = (state.bomb_row[b] == 9 and state.bomb_column[b] == cannon) or at(state, b, 9, cannon)
    if state.march[b] == 0:
        state.march[b] = min(state.alive[b], state.interval[b])
        landed = move(state, b)
        ended = ended or landed or at(state, b, 9, cannon)
    if state.bombing[b] == 0:
        state.bombing[b] = BOMBING
        drop(state, b, cannon)
    reward = 0.0
    for i in range(2):
        row, column = state.shot_row[b, i], state.shot_column[b, i]
        if row != NOWHERE and at(state, b, row, column):
            state.aliens[b, (row - state.top[b]) % 10, column - state.left[b]] = False
            state.alive[b] -= 1
            state.shot_row[b, i] = NOWHERE
            reward += 1.0
    state.reload[b] = max(state.reload[b] - 1, 0)
    state.march[b] -= 1
    state.bombing[b] -= 1
    if state.alive[b] == 0:
        if options.ramping != 0:
            state.interval[b] = max(state.interval[b] - 1, FASTEST)
        send(state, b)
    return reward, ended


def move(state, b):
    """Move the aliens on, or down where one of them is at the wall; return whether they leave the board below."""
    wall, turning, landed = (9 if state.direction[b] > 0 else 0), False, False
    for place in range(10):
        turning = turning or at(state, b, place, wall)
        landed = landed or at(state, b, 9, place)
    if not turning:
        state.left[b] += state.direction[b]
        return False
    state.direction[b] = -state.direction[b]
    state.top[b] += 1
    return landed


def drop(state, b, cannon):
    """Drop a bomb from the lowest alien of the nearest column that has any, the left one of two."""
    for distance in range(10):
        for column in (cannon - distance, cannon + distance):
            for row in range(9, -1, -1):
                if at(state, b, row, column):
                    state.bomb_row[b], state.bomb_column[b] = row, column
                    return


def observe(state, options, b, out):
    """Show the cannon, the aliens and where they are heading, and what flies."""
    out[9, state.cannon[b], CANNON] = 1.0
    heading = LEFTWARD if state.direction[b] < 0 else RIGHTWARD
    for row in range(ROWS):
        for column in range(COLUMNS):
            if state.aliens[b, row, column]:
                at_row, at_column = (state.top[b] + row) % 10, state.left[b] + column
                out[at_row, at_column, ALIEN] = out[at_row, at_column, heading] = 1.0
    for i in range(2):
        if state.shot_row[b, i] != NOWHERE:
            out[state.shot_row[b, i], state.shot_column[b, i], SHOT] = 1.0
    if state.bomb_row[b] != NOWHERE:
        out[state.bomb_row[b], state.bomb_column[b], BOMB] = 1.0


def arrays(options):
    """Return the state of one environment."""
    parts = dict.fromkeys(State._fields, np.int8(0)) | dict.fromkeys(("shot_row", "shot_column"), np.zeros(2, np.int8))
    return State(**parts | {"aliens": np.zeros((ROWS, COLUMNS), np.bool_)})


make = game(MINIMAL, 6, options=Options, arrays=arrays, begin=begin, step=step, observe=observe)
