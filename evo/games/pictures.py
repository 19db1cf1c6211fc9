"""What can be shown of an episode: pictures for films, and as coloured text for terminals."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from evo.environment import Frame

MOST_COLUMNS, MOST_ROWS = 76, 40  # pixels of a picture in a terminal, of which a line shows two rows
SIDE = 320  # pixels of the longer side of a film, about
SHADES = " .:-=+*#%@"  # from dark to light


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
