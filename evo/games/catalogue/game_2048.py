"""2048: tiles slide over a 4 x 4 board, and equal tiles merge (Gabriele Cirulli, 2014)."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from pydantic import Field

from evo.games import Game, GameOptions, below

UP, RIGHT, DOWN, LEFT = range(4)
PLANES = 16  # of an observation; the last one has the tiles of 65536 and 131072 too
CELL, COLOURS = 24, ((88, 166, 255), (126, 231, 135), (227, 179, 65), (248, 81, 73))  # of a picture


class State(NamedTuple):
    """One board."""

    board: Any  # [16] row by row: the exponent of a tile, 0 where there is none
    score: Any


class Options(GameOptions):
    """The [environment] section of 2048."""

    max_steps: int = Field(
        200_000, ge=1, le=1_000_000_000, description="steps after which an episode is truncated; no game lasts 200,000"
    )


def add_tile(state, b, random):
    """Put a tile of 2, or of 4 once in ten times, into an empty cell."""
    exponent, empty = 2 if below(random, 10) == 0 else 1, 0
    for cell in range(16):
        if state.board[b, cell] == 0:
            empty += 1
    left = below(random, empty)
    for cell in range(16):
        if state.board[b, cell] == 0:
            if left == 0:
                state.board[b, cell] = exponent
            left -= 1


def begin(state, options, b, random):
    """Put two tiles on an empty board."""
    state.board[b] = 0
    state.score[b] = 0
    add_tile(state, b, random)
    add_tile(state, b, random)


def slide(board, b, start, stride):
    """Slide four tiles towards `start`; return whether that changes something, and the sum of merged tiles."""
    changed, gained, target, last = False, 0, start, 0  # last: the tile before the target, where it may merge
    for at in range(start, start + 4 * stride, stride):
        tile = int(board[b, at])
        if tile == 0:
            continue
        board[b, at] = 0
        if tile == last:
            board[b, target - stride] = tile + 1
            gained += 1 << (tile + 1)
            changed, last = True, 0
        else:
            board[b, target] = tile
            changed = changed or target != at
            target, last = target + stride, tile
    return changed, gained


def step(state, options, b, action, random):
    """Slide all tiles up (0), right (1), down (2) or left (3), and add one where that has changed something."""
    stride = 4 if action == UP else -1 if action == RIGHT else -4 if action == DOWN else 1
    corner = 12 if action == DOWN else 3 if action == RIGHT else 0
    changed, gained = False, 0
    for line in range(4):
        moved, merged = slide(state.board, b, corner + line * (4 if abs(stride) == 1 else 1), stride)
        changed, gained = changed or moved, gained + merged
    if changed:
        add_tile(state, b, random)
    state.score[b] += gained
    return float(gained), moves(state.board, b) == 0


def moves(board, b):
    """Return a bit for each action that changes something."""
    found = 0
    for line in range(4):
        for k in range(3):
            found |= pair(board[b, 4 * k + line], board[b, 4 * k + line + 4], 1 << UP, 1 << DOWN)
            found |= pair(board[b, 4 * line + k], board[b, 4 * line + k + 1], 1 << LEFT, 1 << RIGHT)
    return found


def pair(one, other, back, forth):
    """Return the bits of the directions, back and forth, in which one of two neighbours can move."""
    if one == other:
        return back | forth if one > 0 else 0
    return back if one == 0 else forth if other == 0 else 0


def mask(state, options, b, out):
    """Allow what changes something."""
    found = moves(state.board, b)
    for action in range(4):
        out[action] = found >> action & 1


def metrics(state, options, b, out):
    """Write the score and the largest tile."""
    out[0], out[1] = state.score[b], 0
    for cell in range(16):
        out[1] = max(out[1], 1 << state.board[b, cell])


def observe(state, options, b, out):
    """Show each tile as a one in the plane of its exponent; an empty cell has plane 0."""
    for cell in range(16):
        out[cell // 4, cell % 4, min(state.board[b, cell], PLANES - 1)] = 1.0


def render(state, options, b):
    """Draw the tiles with their numbers."""
    from PIL import Image, ImageDraw

    draw = ImageDraw.Draw(picture := Image.new("RGB", (4 * CELL, 4 * CELL), (24, 28, 38)))
    for cell, exponent in enumerate(state.board[b].tolist()):
        x, y = cell % 4 * CELL, cell // 4 * CELL
        colour = COLOURS[(exponent - 1) % 4] if exponent else (38, 44, 58)
        draw.rectangle((x + 1, y + 1, x + CELL - 2, y + CELL - 2), colour)
        if exponent:
            draw.text((x + CELL / 2, y + CELL / 2), str(1 << exponent), (24, 28, 38), anchor="mm", font_size=9)
    return np.asarray(picture)


make = Game(
    options=Options,
    arrays=lambda options: State(board=np.zeros(16, np.int8), score=np.int64(0)),
    shape=(4, 4, PLANES),
    actions=4,
    begin=begin,
    step=step,
    observe=observe,
    mask=mask,
    metrics=metrics,
    episode_metrics=("score", "largest"),
    render=render,
    low=0.0,
    high=1.0,
)
