"""Catch: a paddle at the bottom moves under a ball that falls (bsuite's, Osband et al., 2020)."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from pydantic import Field

from evo.games import Game, GameOptions, below


class State(NamedTuple):
    """One ball and one paddle."""

    row: Any  # of the ball
    column: Any
    paddle: Any  # its column


class Options(GameOptions):
    """The [environment] section of Catch."""

    rows: int = Field(10, ge=2, le=100, description="height of the board; an episode has one step fewer")
    columns: int = Field(5, ge=1, le=100, description="width of the board")


def begin(state, options, b, random):
    """Drop a ball from a random column of the top row."""
    state.row[b] = 0
    state.column[b] = below(random, options.columns)
    state.paddle[b] = options.columns // 2


def step(state, options, b, action, random):
    """Move the paddle left (0), not (1) or right (2), and the ball down."""
    state.paddle[b] = min(max(state.paddle[b] + action - 1, 0), options.columns - 1)
    state.row[b] += 1
    if state.row[b] < options.rows - 1:
        return 0.0, False
    return (1.0 if state.paddle[b] == state.column[b] else -1.0), True


def observe(state, options, b, out):
    """Show the ball and the paddle as ones on a board of zeros."""
    out[state.row[b], state.column[b], 0] = 1.0
    out[options.rows - 1, state.paddle[b], 0] = 1.0


def render(state, options, b):
    """Draw the board."""
    picture = np.full((options.rows, options.columns, 3), (24, 28, 38), np.uint8)
    picture[options.rows - 1, state.paddle[b]] = (126, 231, 135)
    picture[state.row[b], state.column[b]] = (248, 81, 73)
    return picture


make = Game(
    options=Options,
    arrays=lambda options: State(row=np.int16(0), column=np.int16(0), paddle=np.int16(0)),
    shape=lambda options: (options.rows, options.columns, 1),
    actions=3,
    begin=begin,
    step=step,
    observe=observe,
    render=render,
    action_names=("left", "stay", "right"),
    score_bounds=(-1.0, 1.0),
    low=0.0,
    high=1.0,
)
