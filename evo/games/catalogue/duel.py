"""A duel of two snakes on one board: both move at once, and whoever hits a wall or a snake loses."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from pydantic import Field

from evo.games import Game, GameOptions, below, one_of

CELL = 8  # pixels of a picture
COLOURS = (88, 166, 255), (227, 179, 65)


class State(NamedTuple):
    """Two snakes and a fruit."""

    free_at: Any  # [2, size * size] the tick at which a cell of each snake becomes free; earlier ones are free
    head: Any  # [2] cells
    length: Any  # [2]
    fruit: Any  # cell
    tick: Any
    distance: Any  # [size * size] for the search of a path, and zero otherwise


class Options(GameOptions):
    """The [environment] section of the duel."""

    size: int = Field(8, ge=5, le=16, description="cells of a side of the board")
    fruit_reward: float = Field(0.0, ge=0, le=1, description="reward for a fruit; the other player loses as much")
    crash: float = Field(
        0.0,
        ge=-1,
        le=0,
        exclude_if=lambda crash: not crash,
        description="reward of both players if both die at once, which is a draw",
    )
    centred: bool = Field(
        False,
        exclude_if=lambda centred: not centred,
        description="centre the board on the player's head and show walls",
    )
    ticks: int = Field(200, ge=1, le=10_000, description="moves of each player until the longer snake wins")


def begin(state, options, b, random):
    """Place two snakes of length three, heading up and down, and a fruit."""
    n = options.size
    for player in range(2):
        state.length[b, player] = 3
        column = 1 if player == 0 else n - 2
        for k in range(3):
            row = n // 2 + (1 - k if player == 0 else k - 2)
            state.head[b, player] = row * n + column
            state.free_at[b, player, row * n + column] = k + 1
    place_fruit(state, options, b, random)


def taken(state, b, cell, tick):
    """Return whether a snake lies on a cell at a tick."""
    return state.free_at[b, 0, cell] > tick or state.free_at[b, 1, cell] > tick


def place_fruit(state, options, b, random):
    """Place the fruit on a free cell, each as probable; nowhere, -1, where none is free."""
    cells, count = options.size * options.size, 0
    for cell in range(cells):
        count += 0 if taken(state, b, cell, state.tick[b]) else 1
    state.fruit[b] = -1
    left = below(random, count) if count else -1
    for cell in range(cells if count else 0):
        if not taken(state, b, cell, state.tick[b]):
            if left == 0:
                state.fruit[b] = cell
            left -= 1


def neighbour(cell, action, n):
    """Return the cell above (0), right of (1), below (2) or left of (3) another one; -1 is outside of the board."""
    row, column = cell // n, cell % n
    row += (action == 2) - (action == 0)
    column += (action == 1) - (action == 3)
    return row * n + column if 0 <= row < n and 0 <= column < n else -1


def step(state, options, b, actions, rewards, random):
    """Move both snakes; a tail leaves its cell before the heads arrive, unless its snake eats."""
    n, dead, eaten = options.size, 0, False
    heads, tick = state.head[b], state.tick[b] + 1
    state.tick[b] = tick
    for player in range(2):
        heads[player] = neighbour(heads[player], actions[player], n)
        if heads[player] == state.fruit[b] and heads[player] >= 0:
            eaten = True
            state.length[b, player] += 1
            rewards[player] += options.fruit_reward
            rewards[1 - player] -= options.fruit_reward
            for cell in range(n * n):
                if state.free_at[b, player, cell] >= tick:
                    state.free_at[b, player, cell] += 1
    for player in range(2):
        if heads[player] < 0 or taken(state, b, heads[player], tick) or heads[0] == heads[1]:
            dead |= 1 << player
    for player in range(2):
        if not dead >> player & 1:
            state.free_at[b, player, heads[player]] = tick + state.length[b, player]
    ahead = state.length[b, 0] - state.length[b, 1]
    if dead or tick == options.ticks:
        winner = (dead >> 1 & 1) - (dead & 1) if dead else (ahead > 0) - (ahead < 0)
        both = options.crash if dead == 3 else 0.0
        rewards[0] += both + winner
        rewards[1] += both - winner
        return True
    if eaten:
        place_fruit(state, options, b, random)
    return False


def seen_at(cell, n, size, down, right):
    """Return the row and the column in which a cell is seen that has moved by less than `size`, and gone round."""
    row, column = cell // n + down, cell % n + right
    return row - size if row >= size else row, column - size if column >= size else column


def observe(state, options, b, player, out):
    """Show the own head and body, those of the other snake, and the fruit; bodies by the time they stay.

    With `centred`, rows and columns go round so that the own head is in the middle. The first plane, which then would
    always show the same cell, has a row and a column of wall between the last ones of the board and the first ones.
    """
    n, head = options.size, state.head[b, player]
    size, down, right = n, 0, 0
    if options.centred:
        size = n + 1
        down, right = (size + n // 2 - head // n) % size, (size + n // 2 - head % n) % size
        for k in range(size):
            out[(n + down) % size, k, 0] = 1.0
            out[k, (n + right) % size, 0] = 1.0
    for side in range(2):
        who = player ^ side
        for cell in range(n * n):
            left = state.free_at[b, who, cell] - state.tick[b]
            if left > 0:
                row, column = seen_at(cell, n, size, down, right)
                out[row, column, 2 * side + 1] = left / state.length[b, who]
        if state.head[b, who] >= 0 and (side or not options.centred):
            row, column = seen_at(state.head[b, who], n, size, down, right)
            out[row, column, 2 * side] = 1.0
    if state.fruit[b] >= 0:
        row, column = seen_at(state.fruit[b], n, size, down, right)
        out[row, column, 4] = 1.0


def safe(state, options, b, player):
    """Return the actions, a bit each, after which the head is on a cell that is free at the next tick."""
    moves = 0
    for action in range(4):
        cell = neighbour(state.head[b, player], action, options.size)
        if cell >= 0 and not taken(state, b, cell, state.tick[b] + 1):
            moves |= 1 << action
    return moves


def greedy(state, options, b, player, random):
    """Go closer to the fruit by a safe action, or else take any safe action."""
    n, head, fruit = options.size, state.head[b, player], state.fruit[b]
    moves, closer = safe(state, options, b, player), 0
    for action in range(4):
        if moves >> action & 1 and fruit >= 0:
            cell = neighbour(head, action, n)
            before = abs(head // n - fruit // n) + abs(head % n - fruit % n)
            closer |= (abs(cell // n - fruit // n) + abs(cell % n - fruit % n) < before) << action
    return one_of(random, closer if closer else moves if moves else 15)


def shortest(state, options, b, player, random):
    """Take a shortest path to the fruit through cells that are free now, or else any safe action."""
    n, moves, best = options.size, safe(state, options, b, player), 0
    distance, changed, length = state.distance[b], state.fruit[b] >= 0, 0
    if changed:
        distance[state.fruit[b]] = 1
    while changed:
        length += 1
        changed = False
        for cell in range(n * n):
            if distance[cell] == length:
                for action in range(4):
                    near = neighbour(cell, action, n)
                    if near >= 0 and distance[near] == 0 and not taken(state, b, near, state.tick[b] + 1):
                        distance[near] = length + 1
                        changed = True
    least = n * n + 1
    for action in range(4):
        if moves >> action & 1:
            cell = neighbour(state.head[b, player], action, n)
            if 0 < distance[cell] <= least:
                best = 1 << action | (best if distance[cell] == least else 0)
                least = distance[cell]
    for cell in range(n * n):
        distance[cell] = 0
    return one_of(random, best if best else moves if moves else 15)


def render(state, options, b):
    """Draw the snakes, their heads lighter, and the fruit."""
    n = options.size
    picture = np.full((n * n, 3), (24, 28, 38), np.uint8)
    for player, colour in enumerate(COLOURS):
        for cell in range(n * n):
            if state.free_at[b, player, cell] > state.tick[b]:
                picture[cell] = colour
        if state.head[b, player] >= 0:
            picture[state.head[b, player]] = [(part + 255) // 2 for part in colour]
    if state.fruit[b] >= 0:
        picture[state.fruit[b]] = (248, 81, 73)
    return picture.reshape(n, n, 3).repeat(CELL, axis=0).repeat(CELL, axis=1)


def arrays(options):
    """Return the state of one duel."""
    cells, pair = options.size**2, np.zeros(2, np.int16)
    boards, distance = np.zeros((2, cells), np.int16), np.zeros(cells, np.int16)
    return State(boards, pair, pair, fruit=np.int16(0), tick=np.int16(0), distance=distance)


make = Game(
    options=Options,
    arrays=arrays,
    players=2,
    shape=lambda options: (options.size + options.centred, options.size + options.centred, 5),
    actions=4,
    begin=begin,
    step=step,
    observe=observe,
    render=render,
    baselines=lambda options: {"greedy": greedy, "shortest": shortest},
    action_names=("up", "right", "down", "left"),
    low=0.0,
    high=1.0,
)
