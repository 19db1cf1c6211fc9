"""Freeway: a chicken crosses a road of eight lanes (MinAtar's, Young and Tian, 2019)."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from evo.games import below, uniform
from evo.games.catalogue._minatar import DOWN, NONE, UP, Options, game, played

MINIMAL = (NONE, UP, DOWN)
CHICKEN, CAR, SPEED = range(3)  # channels; from SPEED on one for each speed, where cars of that speed come from
REST = 3  # steps from one move of the chicken to the next
TIME = 2500  # steps; the one after these is the last


class State(NamedTuple):
    """The chicken, in column 4, and a car in each of the rows 1 to 8."""

    chicken: Any  # its row
    rest: Any  # steps until it can move
    time: Any  # steps that are left
    column: Any  # [8] of cars
    pause: Any  # [8] steps until a car moves
    speed: Any  # [8] 1 (fast) to 5 (slow), negative to the left
    last: Any  # the action of the step before


def begin(state, options, b, random):
    """Line the cars up on the left."""
    start(state, b, random)
    for car in range(8):
        state.column[b, car] = 0
    state.chicken[b] = 9
    state.rest[b] = REST
    state.time[b] = TIME
    state.last[b] = NONE


def start(state, b, random):
    """Draw new speeds and directions."""
    for car in range(8):
        state.speed[b, car] = state.pause[b, car] = 1 + below(random, 5)
    for car in range(8):
        if uniform(random, 0.0, 1.0) < 0.5:
            state.speed[b, car] = -state.speed[b, car]


def step(state, options, b, action, random):
    """Move the chicken, then the cars, which send it back where they meet it."""
    action = played(state, options, b, action, random, MINIMAL)
    reward = 0.0
    if state.rest[b] == 0 and action in (UP, DOWN):
        state.rest[b] = REST
        state.chicken[b] = min(state.chicken[b] + (1 if action == DOWN else -1), 9)
        if state.chicken[b] == 0:  # across
            reward = 1.0
            start(state, b, random)
            state.chicken[b] = 9
    threat = state.chicken[b] - 1  # the car of the chicken's row
    met = threat < 8 and state.column[b, threat] == 4
    for car in range(8):
        if state.pause[b, car] > 0:
            state.pause[b, car] -= 1
            continue
        state.pause[b, car] = abs(state.speed[b, car])
        state.column[b, car] = further(state.column[b, car], 1 if state.speed[b, car] > 0 else -1)
    if met or (threat < 8 and state.column[b, threat] == 4):
        state.chicken[b] = 9
    if state.rest[b] > 0:
        state.rest[b] -= 1
    state.time[b] -= 1
    return reward, state.time[b] < 0


def further(column, side):
    """Return the column that is one further on a road without ends."""
    column += side
    return column - 10 if column > 9 else (column + 10 if column < 0 else column)


def observe(state, options, b, out):
    """Show the chicken, the cars, and behind each of them its speed."""
    out[state.chicken[b], 4, CHICKEN] = 1.0
    for car in range(8):
        column, speed = state.column[b, car], state.speed[b, car]
        out[car + 1, column, CAR] = 1.0
        out[car + 1, further(column, -1 if speed > 0 else 1), SPEED + abs(speed) - 1] = 1.0


def arrays(options):
    """Return the state of one environment."""
    cars = dict.fromkeys(("column", "pause", "speed"), np.zeros(8, np.int8))
    return State(chicken=np.int8(0), rest=np.int8(0), time=np.int16(0), last=np.int8(0), **cars)


make = game(
    MINIMAL, 7, options=Options, arrays=arrays, begin=begin, step=step, observe=observe, score_bounds=(0.0, 92.0)
)
