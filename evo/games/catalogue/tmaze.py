"""T-maze: a cue, seen once at the start of a corridor, says which way to turn at its end (Bakker, 2002)."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from pydantic import Field

from evo.games import Game, GameOptions, below

CELL = 8  # pixels of a picture


class State(NamedTuple):
    """One walker."""

    place: Any  # cells from the start
    right: Any  # whether the cue says right
    shown: Any  # whether the cue has been shown


class Options(GameOptions):
    """The [environment] section of the T-maze."""

    length: int = Field(10, ge=1, le=10_000, description="steps from the start to the junction")
    step_cost: float = Field(0.0, ge=0, le=1, description="cost of every step that does not end the episode")


def begin(state, options, b, random):
    """Draw the cue."""
    state.right[b] = below(random, 2)


def step(state, options, b, action, random):
    """Go forward (1), or turn left (0) or right (2), which only the junction allows; a turn as the cue says pays 1."""
    state.shown[b] = True
    if state.place[b] < options.length:
        state.place[b] += action == 1
        return -options.step_cost, False
    if action == 1:
        return -options.step_cost, False
    return (1.0 if state.right[b] == (action == 2) else 0.0), True


def observe(state, options, b, out):
    """Show the cue before the first step, left or right, and whether this is the junction."""
    if not state.shown[b]:
        out[1 if state.right[b] else 0] = 1.0
    out[2] = state.place[b] == options.length


def render(state, options, b):
    """Draw the maze, with the cue as long as it is shown, and the walker."""
    picture = np.full((3, options.length + 3, 3), (24, 28, 38), np.uint8)
    picture[1, 1:-1] = picture[:, -2] = (139, 148, 158)
    if not state.shown[b]:
        picture[2 if state.right[b] else 0, 1] = (227, 179, 65)
    picture[1, 1 + state.place[b]] = (126, 231, 135)
    return picture.repeat(CELL, axis=0).repeat(CELL, axis=1)


make = Game(
    options=Options,
    arrays=lambda options: State(place=np.int32(0), right=np.bool_(False), shown=np.bool_(False)),
    shape=(3,),
    actions=3,
    begin=begin,
    step=step,
    observe=observe,
    render=render,
    action_names=("left", "forward", "right"),
    observation_names=("cue_left", "cue_right", "junction"),
    score_bounds=lambda options: (-options.step_cost * options.max_steps, 1.0),
    low=0.0,
    high=1.0,
)
