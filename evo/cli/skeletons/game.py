"""my_game: a walker in a corridor looks for a door, which is left or right of it."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from pydantic import Field

from evo.games import Game, GameOptions, below


# The state of one environment. Every field is an array with a place for each environment first: state.walker[b].
class State(NamedTuple):
    """A walker and a door."""

    walker: Any  # cell of the corridor
    door: Any  # 0, or the last cell


# Options of the [environment] section. The functions below get them as `options`.
class Options(GameOptions):
    """The [environment] section of my_game."""

    cells: int = Field(11, ge=3, le=101, description="length of the corridor")
    max_steps: int = Field(50, ge=1, le=1_000_000, description="steps after which an episode is truncated")


# These functions are plain Python, and are compiled by Numba. Numbers and arrays of numbers are fine; lists,
# dictionaries, texts and exceptions are not. Random numbers come from below(random, n), uniform(random, low, high) and
# normal(random, mean, deviation) alone. For the same results on every machine, take sin, cos, exp and tanh from
# evo.games, and write x * x for a square.


def begin(state, options, b, random):
    """Begin an episode in environment b: write every field of its state."""
    state.walker[b] = options.cells // 2
    state.door[b] = below(random, 2) * (options.cells - 1)


def step(state, options, b, action, random):
    """Play an action, 0 to actions - 1; return the reward and whether the episode has ended."""
    state.walker[b] += 1 if action == 1 else -1
    if state.walker[b] == state.door[b]:
        return 1.0, True
    return -0.01, state.walker[b] < 0 or state.walker[b] >= options.cells


def observe(state, options, b, out):
    """Write what is not zero to `out`, float32, which has the shape below."""
    out[0] = 2.0 * state.walker[b] / (options.cells - 1) - 1.0
    out[1] = 1.0 if state.door[b] > 0 else -1.0


def render(state, options, b):
    """Return a picture, uint8 [height, width, 3], for `evo replay`; this function is never compiled. Optional."""
    picture = np.full((1, options.cells, 3), (24, 28, 38), np.uint8)
    picture[0, state.door[b]] = (248, 81, 73)
    if 0 <= state.walker[b] < options.cells:
        picture[0, state.walker[b]] = (126, 231, 135)
    return picture


# Further fields: mask (a function that rules actions out), metrics with episode_metrics, score_bounds, low and high (of
# an observation), and continuous = True for actions that are numbers.
make = Game(
    options=Options,
    arrays=lambda options: State(walker=np.int32(0), door=np.int32(0)),  # of one environment: types and shapes count
    shape=(2,),
    actions=2,
    begin=begin,
    step=step,
    observe=observe,
    render=render,
)
