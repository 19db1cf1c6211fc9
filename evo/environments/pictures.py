"""What can be shown of an episode: pictures as coloured text for terminals, and as animated GIFs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

Frame = NDArray[np.uint8]  # [H, W, 3]

MOST_COLUMNS, MOST_ROWS = 76, 40  # pixels of a picture in a terminal, of which a line shows two rows
SIDE = 320  # pixels of the longer side of a film, about
SHADES = " .:-=+*#%@"  # from dark to light
PALETTE_FRAMES = 16  # of a film, that its colours are chosen from


class Shown(Protocol):
    """A position that can be shown."""

    def text(self, colour: bool) -> str:
        """Return lines of text, with escape sequences only where `colour` is true."""

    def rgb(self) -> Frame:
        """Return a picture for a film, uint8 [H, W, 3]."""


@dataclass(frozen=True)
class Picture:
    """A picture that a game has drawn, with a line below it."""

    pixels: Frame
    caption: str = ""

    def text(self, colour: bool) -> str:
        """Return half a character for each pixel, or two letters where there is no colour."""
        if colour:
            lines = [_coloured(*pair) for pair in _pairs(_scaled(self.pixels, MOST_COLUMNS, MOST_ROWS))]
        else:
            lines = list(map(_shaded, _scaled(self.pixels, MOST_COLUMNS // 2, MOST_ROWS // 2)))
        return "\n".join([*lines, f" {self.caption}"])

    def rgb(self) -> Frame:
        """Return the picture, enlarged by a whole factor."""
        factor = max(1, SIDE // max(self.pixels.shape[:2]))
        return np.ascontiguousarray(self.pixels.repeat(factor, 0).repeat(factor, 1))


def save_gif(path: str | Path, frames: Sequence[Frame], frames_per_second: float = 12.0) -> None:
    """Write frames as a GIF that repeats; the last one is shown for a second longer.

    ValueError where there are none, or not 1 to 50 of them per second.
    """
    from PIL import Image  # only who makes a film waits for it

    if not frames:
        raise ValueError("a GIF needs at least one position")
    if not 1 <= frames_per_second <= 50:
        raise ValueError(f"{frames_per_second} frames per second, not between 1 and 50")
    sampled = [*frames[:: -(-len(frames) // PALETTE_FRAMES)], frames[-1]]
    together = Image.fromarray(np.concatenate(sampled))  # one palette, so that pixels change with moves alone
    palette = together.quantize(method=Image.Quantize.FASTOCTREE)
    drawn = [Image.fromarray(frame).quantize(palette=palette, dither=Image.Dither.NONE) for frame in frames]
    milliseconds = [10 * round(100 / frames_per_second)] * len(frames)
    milliseconds[-1] += 1000
    drawn[0].save(path, "GIF", save_all=True, append_images=drawn[1:], duration=milliseconds, loop=0)


def _scaled(pixels: Frame, columns: int, rows: int) -> Frame:
    """Return a picture that fits, enlarged by a whole factor or made smaller by averages."""
    height, width = pixels.shape[:2]
    factor = min(columns // width, rows // height)
    if factor:
        return pixels.repeat(factor, 0).repeat(factor, 1)
    from PIL import Image

    share = min(columns / width, rows / height)
    size = max(1, int(width * share)), max(1, int(height * share))
    return np.asarray(Image.fromarray(pixels).resize(size, Image.Resampling.BOX))


def _pairs(pixels: Frame) -> list[tuple[Frame, Frame]]:
    """Return rows two by two; a last one alone is doubled."""
    lower = [*pixels[1::2], *pixels[-1:]] if len(pixels) % 2 else [*pixels[1::2]]
    return list(zip(pixels[::2], lower, strict=True))


def _coloured(upper: Frame, lower: Frame) -> str:
    parts = []
    for above, below in zip(upper.tolist(), lower.tolist(), strict=True):
        parts.append("\x1b[38;2;{};{};{}m\x1b[48;2;{};{};{}m▀".format(*above, *below))
    return "".join(parts) + "\x1b[0m"


def _shaded(row: Frame) -> str:
    light = row.mean(axis=1) / 256
    return "".join(2 * SHADES[int(one * len(SHADES))] for one in light)
