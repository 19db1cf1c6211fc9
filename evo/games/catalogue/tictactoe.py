"""Tic-tac-toe: two players put stones on a board of three by three; a row of three wins."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from pydantic import Field

from evo.games import Game, GameOptions, below, one_of

CELL = 12  # pixels of a picture
COLOURS = (88, 166, 255), (227, 179, 65)


class State(NamedTuple):
    """The stones of both players, a bit for each cell."""

    stones: Any  # [2]
    moves: Any


class Options(GameOptions):
    """The [environment] section of tic-tac-toe."""

    loss: float = Field(
        -1.0,
        ge=-100,
        le=0,
        exclude_if=lambda loss: loss == -1.0,
        description="reward of the loser; the winner gets 1, and a draw is 0",
    )
    opening: int = Field(
        0,
        ge=0,
        le=4,
        exclude_if=lambda opening: opening == 0,
        description="an episode begins with 0 to so many random moves, each number equally likely",
    )


def begin(state, options, b, random):
    """Begin with an empty board, which is all zeros, or behind random moves."""
    if options.opening:
        for move in range(below(random, options.opening + 1)):
            free = 511 & ~(state.stones[b, 0] | state.stones[b, 1])
            state.stones[b, move & 1] |= 1 << one_of(random, free)
            state.moves[b] += 1


def turn(state, options, b):
    """Return the player that moves next."""
    return state.moves[b] & 1


def has_row(stones):
    """Return whether stones have three in a row."""
    for row in range(3):
        if stones >> 3 * row & 7 == 7 or stones >> row & 73 == 73:
            return True
    return stones & 273 == 273 or stones & 84 == 84


def step(state, options, b, action, rewards, random):
    """Put a stone on a cell; who has three in a row wins, and a stone on another one loses."""
    player = state.moves[b] & 1
    stones = state.stones[b]
    state.moves[b] += 1
    lost = (stones[0] | stones[1]) >> action & 1 == 1
    if not lost:
        stones[player] |= 1 << action
        if not has_row(stones[player]):
            return state.moves[b] == 9
    rewards[player], rewards[1 - player] = (options.loss, 1.0) if lost else (1.0, options.loss)
    return True


def observe(state, options, b, player, out):
    """Show the player's own stones, and those of the other one."""
    mine, theirs = state.stones[b, player], state.stones[b, 1 - player]
    for cell in range(9):
        out[cell // 3, cell % 3, 0] = mine >> cell & 1
        out[cell // 3, cell % 3, 1] = theirs >> cell & 1


def mask(state, options, b, player, out):
    """Allow every empty cell."""
    for cell in range(9):
        out[cell] = 1 - ((state.stones[b, 0] | state.stones[b, 1]) >> cell & 1)


def solved():
    """Return the best moves of every position, a bit each, by its number.  # int16 [3 ** 9]"""
    best, worths = np.zeros(3**9, np.int16), {}

    def worth(mine, theirs):
        """Return what a position is worth to who moves: 1, 0 or -1."""
        if has_row(theirs):
            return -1
        if mine | theirs == 511:
            return 0
        number = THIRDS[mine] + 2 * THIRDS[theirs]
        if number not in worths:
            free = [cell for cell in range(9) if not (mine | theirs) >> cell & 1]
            after = [-worth(theirs, mine | 1 << cell) for cell in free]
            worths[number] = max(after)
            best[number] = sum(1 << cell for cell, one in zip(free, after, strict=True) if one == max(after))
        return worths[number]

    worth(0, 0)
    return best


# The number of a position has a digit for each cell to the base of three, 1 of who moves, and 2 of the other one.
THIRDS = np.array([int(f"{stones:b}", 3) for stones in range(512)], np.int16)
BEST = solved()


def perfect(state, options, b, player, random):
    """Return one of the best moves, each as probable."""
    mine, theirs = state.stones[b, player], state.stones[b, 1 - player]
    return one_of(random, int(BEST[THIRDS[mine] + 2 * THIRDS[theirs]]))


def render(state, options, b):
    """Draw the board with its stones."""
    picture = np.full((3, 3, 3), (36, 41, 51), np.uint8)
    for player, colour in enumerate(COLOURS):
        for cell in range(9):
            if state.stones[b, player] >> cell & 1:
                picture[cell // 3, cell % 3] = colour
    picture = picture.repeat(CELL, axis=0).repeat(CELL, axis=1)
    picture[CELL - 1 :: CELL] = picture[:, CELL - 1 :: CELL] = (24, 28, 38)
    return picture


make = Game(
    options=Options,
    arrays=lambda options: State(stones=np.zeros(2, np.int16), moves=np.int8(0)),
    players=2,
    shape=(3, 3, 2),
    actions=9,
    begin=begin,
    step=step,
    turn=turn,
    observe=observe,
    zeroed=False,
    mask=mask,
    render=render,
    baselines=lambda options: {"perfect": perfect},
    action_names=tuple(f"{row}{column}" for row in "abc" for column in "123"),
    score_bounds=lambda options: (options.loss, 1.0),
    low=0.0,
    high=1.0,
)
