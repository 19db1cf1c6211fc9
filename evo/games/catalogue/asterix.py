"""Asterix: gold and enemies rush past in eight rows (MinAtar's, Young and Tian, 2019)."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from evo.games import below, uniform
from evo.games.catalogue._minatar import DOWN, LEFT, NONE, RIGHT, UP, game, played
from evo.games.catalogue._minatar import RampingOptions as Options

MINIMAL = (NONE, LEFT, UP, RIGHT, DOWN)
PLAYER, ENEMY, TRAIL, GOLD = range(4)  # channels
NOBODY = -1
SPAWN, MOVE, RAMP = 10, 5, 100  # steps at the start from one newcomer, move and ramp to the next


class State(NamedTuple):
    """The player, what is in each of the rows 1 to 8, and what is due when."""

    row: Any  # of the player
    column: Any
    things: Any  # [8] columns of enemies and gold, or NOBODY
    rightward: Any  # [8] whether they move to the right
    gold: Any  # [8] whether they are gold
    spawn: Any  # steps until one comes
    move: Any  # steps until all move
    ramp: Any  # steps until the game gets harder
    spawn_interval: Any
    move_interval: Any
    level: Any  # how often it got harder
    last: Any  # the action of the step before


def begin(state, options, b, random):
    """Put the player into the middle of an empty board."""
    state.row[b] = state.column[b] = 5
    for i in range(8):
        state.things[b, i] = NOBODY
        state.rightward[b, i] = state.gold[b, i] = False
    state.spawn[b] = state.spawn_interval[b] = SPAWN
    state.move[b] = state.move_interval[b] = MOVE
    state.ramp[b] = RAMP
    state.level[b] = 0
    state.last[b] = NONE


def step(state, options, b, action, random):
    """Let somebody come, move the player and then, at times, all others."""
    action = played(state, options, b, action, random, MINIMAL)
    if state.spawn[b] == 0:
        spawn(state, b, random)
        state.spawn[b] = state.spawn_interval[b]
    if action == LEFT:
        state.column[b] = max(state.column[b] - 1, 0)
    elif action == UP:
        state.row[b] = max(state.row[b] - 1, 1)
    elif action == RIGHT:
        state.column[b] = min(state.column[b] + 1, 9)
    elif action == DOWN:
        state.row[b] = min(state.row[b] + 1, 8)
    reward, ended = met(state, b)
    if state.move[b] == 0:
        state.move[b] = state.move_interval[b]
        for i in range(8):
            if state.things[b, i] != NOBODY:
                column = state.things[b, i] + (1 if state.rightward[b, i] else -1)
                state.things[b, i] = column if column <= 9 else NOBODY  # left of column 0 is NOBODY too
        more, hit = met(state, b)
        reward, ended = reward + more, ended or hit
    state.spawn[b] -= 1
    state.move[b] -= 1
    if options.ramping != 0:
        get_harder(state, b)
    return reward, ended


def spawn(state, b, random):
    """Let an enemy or gold come into one of the empty rows, from one of its ends."""
    rightward, gold = uniform(random, 0.0, 1.0) < 1 / 2, uniform(random, 0.0, 1.0) < 1 / 3
    empty = 0
    for i in range(8):
        empty += state.things[b, i] == NOBODY
    if empty == 0:
        return
    skipped = below(random, empty)
    for i in range(8):
        if state.things[b, i] == NOBODY:
            if skipped == 0:
                state.things[b, i] = 0 if rightward else 9
                state.rightward[b, i], state.gold[b, i] = rightward, gold
                return
            skipped -= 1


def met(state, b):
    """Return the reward for what is where the player is, which is taken if it is gold, and whether it is an enemy."""
    i = state.row[b] - 1
    if state.things[b, i] != state.column[b]:
        return 0.0, False
    if not state.gold[b, i]:
        return 0.0, True
    state.things[b, i] = NOBODY
    return 1.0, False


def get_harder(state, b):
    """Shorten the intervals when it is time: between newcomers always, between moves every second time."""
    if state.spawn_interval[b] == 1 and state.move_interval[b] == 1:
        return
    state.ramp[b] -= 1
    if state.ramp[b] >= -1:
        return
    if state.move_interval[b] > 1 and state.level[b] % 2 == 1:
        state.move_interval[b] -= 1
    state.spawn_interval[b] = max(state.spawn_interval[b] - 1, 1)
    state.level[b] += 1
    state.ramp[b] = RAMP


def observe(state, options, b, out):
    """Show the player, enemies, gold, and behind each of these its trail."""
    out[state.row[b], state.column[b], PLAYER] = 1.0
    for i in range(8):
        column = state.things[b, i]
        if column == NOBODY:
            continue
        out[i + 1, column, GOLD if state.gold[b, i] else ENEMY] = 1.0
        behind = column + (-1 if state.rightward[b, i] else 1)
        if 0 <= behind <= 9:
            out[i + 1, behind, TRAIL] = 1.0


def arrays(options):
    """Return the state of one environment."""
    parts = dict.fromkeys(State._fields, np.int8(0)) | {"things": np.zeros(8, np.int8)}
    return State(**parts | dict.fromkeys(("rightward", "gold"), np.zeros(8, np.bool_)))


make = game(MINIMAL, 4, options=Options, arrays=arrays, begin=begin, step=step, observe=observe)
