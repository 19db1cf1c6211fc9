"""Frames of an episode, packed for a page: the cells of a Snake board, or the colours of a game's pictures."""

from __future__ import annotations

import base64
import zlib
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from evo.environment import Shown
from evo.games.catalogue.snake.pictures import Board
from evo.games.pictures import Picture

MOST_PIXELS = 10_000_000  # of all frames of an episode; of more, every second frame is shown, or every third, ...
MOST_COLOURS = 256
LARGEST = 250_000  # bytes of one episode on a page


def packed(shown: Sequence[Shown]) -> dict[str, Any]:
    """Return the frames of an episode as JSON values; the last one is always among them."""
    boards = [one for one in shown if isinstance(one, Board)]
    if len(boards) == len(shown):
        return _boards(boards)
    pictures = [one.pixels if isinstance(one, Picture) else one.rgb() for one in shown]
    captions = [one.caption if isinstance(one, Picture) else "" for one in shown]
    every = max(1, -(-sum(picture.size // 3 for picture in pictures) // MOST_PIXELS))
    while True:
        chosen = list(range(len(pictures) - 1, -1, -every))[::-1]
        found = _pictures([pictures[i] for i in chosen], [captions[i] for i in chosen])
        if len(found["data"]) <= LARGEST or len(chosen) == 1:
            return {**found, "every": every}
        every *= 2


def _boards(boards: Sequence[Board]) -> dict[str, Any]:
    """Return heads, fruits, lengths and headings; the body is where the head was before, as a snake moves.

    int16 [T, 4], after the cells of the first body, its tail first.
    """
    positions = [board.position for board in boards]
    size = positions[0].size

    def place(cell: tuple[int, int] | None) -> int:
        return -1 if cell is None else cell[0] * size + cell[1]

    start = [place(cell) for cell in reversed(positions[0].body)]
    steps = [(place(one.body[0]), place(one.fruit), len(one.body), one.heading) for one in positions]
    return {
        "kind": "board",
        "size": size,
        "frames": len(steps),
        "start": start,
        "data": _text(np.array(steps, "<i2").tobytes()),
        "captions": _text("\n".join(f"score {one.score}{'  over' if one.over else ''}" for one in positions).encode()),
        "every": 1,
    }


def _pictures(pictures: Sequence[NDArray[np.uint8]], captions: Sequence[str]) -> dict[str, Any]:
    """Return a palette and the colour of every pixel, each frame as what differs (xor) from the one before."""
    height, width = pictures[0].shape[:2]
    colours = np.stack([_numbers(picture) for picture in pictures])  # [T, H, W]
    bits = 0
    while len(palette := np.unique(colours)) > MOST_COLOURS:
        bits += 1
        colours &= 0x010101 * (0xFF << bits & 0xFF)
    indices = np.searchsorted(palette, colours).astype(np.uint8)
    indices[1:] ^= indices[:-1].copy()
    return {
        "kind": "picture",
        "width": width,
        "height": height,
        "frames": len(pictures),
        "palette": [f"{colour:06x}" for colour in palette.tolist()],
        "data": _text(indices.tobytes()),
        "captions": _text("\n".join(captions).encode()),
    }


def _numbers(picture: NDArray[np.uint8]) -> NDArray[np.uint32]:
    """Return every pixel as one number.  # [H, W, 3] -> [H, W]"""
    red, green, blue = (picture[..., channel].astype(np.uint32) for channel in range(3))
    return np.asarray(red << 16 | green << 8 | blue, np.uint32)


def _text(data: bytes) -> str:
    return base64.b64encode(zlib.compress(data, 9)).decode()
