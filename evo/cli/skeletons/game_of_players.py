"""my_game: players take one to three stones in turn, and who takes the last one wins."""

from __future__ import annotations

from typing import Any, NamedTuple

from pydantic import Field

from evo.games import Game, GameOptions, below, one_of

PLAYERS = 2


# The state of one environment. Every field is an array with a place for each environment first: state.stones[b].
class State(NamedTuple):
    """Stones, and whose turn it is."""

    stones: Any
    turn: Any


# Options of the [environment] section. The functions below get them as `options`.
class Options(GameOptions):
    """The [environment] section of my_game."""

    stones: int = Field(21, ge=4, le=200, description="stones at the beginning, at most")


# These functions are plain Python, and are compiled by Numba. Numbers and arrays of numbers are fine; lists,
# dictionaries, texts and exceptions are not. Random numbers come from below(random, n), uniform(random, low, high) and
# normal(random, mean, deviation) alone.


def begin(state, options, b, random):
    """Begin an episode in environment b: write every field of its state."""
    state.stones[b] = options.stones - below(random, 4)
    state.turn[b] = 0


def turn(state, options, b):
    """Return the player that moves next. Without this function all move at once, and `step` is given their actions."""
    return state.turn[b]


def step(state, options, b, action, rewards, random):
    """Play an action of the player on turn; write the reward of each, and return whether the episode has ended."""
    player = state.turn[b]
    state.stones[b] -= min(action + 1, state.stones[b])
    state.turn[b] = (player + 1) % PLAYERS
    if state.stones[b] > 0:
        return False
    for other in range(PLAYERS):
        rewards[other] = 1.0 if other == player else -1.0 / (PLAYERS - 1)
    return True


def observe(state, options, b, player, out):
    """Write what this player sees and is not zero to `out`, float32, which has the shape below."""
    out[state.stones[b] % 4] = 1.0
    out[4] = state.stones[b] / options.stones


def fours(state, options, b, player, random):
    """A baseline, which returns an action: leave a multiple of four stones (best for two players), or else take any."""
    rest = state.stones[b] % 4
    return rest - 1 if rest else one_of(random, 7)


# Further fields: mask (a function that rules actions out), metrics with episode_metrics, and render for `evo replay`.
make = Game(
    options=Options,
    arrays=lambda options: State(0, 0),  # of one environment: types and shapes count
    players=PLAYERS,
    shape=(5,),
    actions=3,
    begin=begin,
    step=step,
    turn=turn,
    observe=observe,
    baselines=lambda options: {"fours": fours},
    score_bounds=(-1.0, 1.0),
)
