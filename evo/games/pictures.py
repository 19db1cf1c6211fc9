"""What can be shown of an episode: pictures, also as coloured text for terminals, and films.

Films are animated GIF, lossless WebP, and MP4, which FFmpeg writes (the extra `video` brings it).
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Sequence
from contextlib import suppress
from math import ceil, sqrt
from pathlib import Path
from shutil import which
from subprocess import PIPE, Popen
from typing import Any

import numpy as np

from evo.environment import Frame
from evo.errors import ConfigurationError, extra, first_line

PALETTE_FRAMES = 16  # of a GIF, that its colours are chosen from
SLOWEST, FASTEST = 1, 50  # frames per second
LAST = 1000  # milliseconds that the last frame is shown for beyond its own
MOST_COLUMNS, MOST_ROWS = 76, 40  # pixels of a picture in a terminal, of which a line shows two rows
MOST_KEPT = 250_000_000  # pixels of all pictures of an episode, of three bytes each, or fewer where they compress
SIDE = 480  # pixels of the longer side of a film, at least
SHADES = " .:-=+*#%@"  # from dark to light


class Picture:
    """A picture that a game has drawn, with a line below it."""

    def __init__(self, pixels: Frame, caption: str = "") -> None:
        """Keep a picture compressed, which takes a few per cent of its memory.  # uint8 [H, W, 3]"""
        self._packed, self.shape, self.caption = zlib.compress(pixels.tobytes(), 1), pixels.shape, caption

    @property
    def pixels(self) -> Frame:
        """The picture as it was drawn."""
        return np.frombuffer(zlib.decompress(self._packed), np.uint8).reshape(self.shape)

    def text(self, colour: bool) -> str:
        """Return half a character for each pixel, or two letters where there is no colour."""
        if colour:
            rows = _scaled(self.pixels, MOST_COLUMNS, MOST_ROWS)
            rows = rows if len(rows) % 2 == 0 else np.concatenate([rows, rows[-1:]])  # a last one alone is doubled
            lines = list(map(_coloured, rows[::2], rows[1::2]))
        else:
            lines = list(map(_shaded, _scaled(self.pixels, MOST_COLUMNS // 2, MOST_ROWS // 2)))
        return "\n".join([*lines, f" {self.caption}"])

    def rgb(self) -> Frame:
        """Return the picture, enlarged by a whole factor."""
        return enlarged(self.pixels)


def enlarged(pixels: Frame, side: int = SIDE) -> Frame:
    """Return a picture whose longer side has at least `side` pixels, enlarged by a whole factor."""
    factor = max(1, -(-side // max(pixels.shape[:2])))
    return np.ascontiguousarray(pixels.repeat(factor, 0).repeat(factor, 1))


def reduced(pixels: Frame, side: int = SIDE) -> Frame:
    """Return a picture whose longer side has at most `side` pixels, made smaller by averages."""
    return pixels.copy() if max(pixels.shape[:2]) <= side else _scaled(pixels, side, side)


def side_of(pixels: Frame, count: int) -> int:
    """Return the longer side at which `count` such pictures have at most MOST_KEPT pixels."""
    height, width = int(pixels.shape[0]), int(pixels.shape[1])
    return max(1, max(height, width) // ceil(sqrt(count * height * width / MOST_KEPT)))


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


def _coloured(upper: Frame, lower: Frame) -> str:
    parts = []
    for above, below in zip(upper.tolist(), lower.tolist(), strict=True):
        parts.append("\x1b[38;2;{};{};{}m\x1b[48;2;{};{};{}m▀".format(*above, *below))
    return "".join(parts) + "\x1b[0m"


def _shaded(row: Frame) -> str:
    light = row.mean(axis=1) / 256
    return "".join(2 * SHADES[int(one * len(SHADES))] for one in light)


def save_film(
    path: str | Path, shown: Sequence[Any], frames_per_second: float = 12.0, draw: Callable[[Any], Frame] = np.asarray
) -> None:
    """Write frames of one size as a film of the kind that its name ends with; the last one stands for a second.

    `draw` gives the frame of each of what is `shown`, and is called when that is written, except for WebP, whose
    encoder needs all frames together. GIF rounds colours to 256 and times to 10 ms; WebP keeps every colour; MP4 is
    H.264. ValueError where there are no frames, or not 1 to 50 of them per second; ConfigurationError where FFmpeg is
    missing, OSError where it fails.
    """
    if not shown:
        raise ValueError("a film needs at least one position")
    if not SLOWEST <= frames_per_second <= FASTEST:
        raise ValueError(f"{frames_per_second} frames per second, not between {SLOWEST} and {FASTEST}")
    save = {".gif": _save_gif, ".webp": _save_webp, ".mp4": _save_mp4}[Path(path).suffix.lower()]
    save(path, shown, frames_per_second, draw)


def _save_gif(path: str | Path, shown: Sequence[Any], frames_per_second: float, draw: Callable[[Any], Frame]) -> None:
    from PIL import Image  # only who makes a film waits for it

    sampled = [draw(one) for one in (*shown[:: -(-len(shown) // PALETTE_FRAMES)], shown[-1])]
    together = Image.fromarray(np.concatenate(sampled))  # one palette, so that pixels change with moves alone
    palette = together.quantize(method=Image.Quantize.FASTOCTREE)
    drawn = (Image.fromarray(draw(one)).quantize(palette=palette, dither=Image.Dither.NONE) for one in shown)
    milliseconds = [10 * round(100 / frames_per_second)] * len(shown)
    milliseconds[-1] += LAST
    next(drawn).save(path, "GIF", save_all=True, append_images=drawn, duration=milliseconds, loop=0)


def _save_webp(path: str | Path, shown: Sequence[Any], frames_per_second: float, draw: Callable[[Any], Frame]) -> None:
    from PIL import Image

    drawn, milliseconds = (Image.fromarray(draw(one)) for one in shown), [round(1000 / frames_per_second)] * len(shown)
    milliseconds[-1] += LAST
    next(drawn).save(
        path, "WEBP", save_all=True, append_images=drawn, duration=milliseconds, loop=0, lossless=True, method=4
    )


def _save_mp4(path: str | Path, shown: Sequence[Any], frames_per_second: float, draw: Callable[[Any], Frame]) -> None:
    program = which("ffmpeg")
    if program is None:
        try:
            program = extra("imageio_ffmpeg", Path(path).name).get_ffmpeg_exe()
        except RuntimeError as error:
            raise ConfigurationError(f"{Path(path).name}: {first_line(error)}") from error
    height, width = draw(shown[0]).shape[:2]
    even = ((0, height % 2), (0, width % 2), (0, 0))  # H.264 halves the sides for colours
    raw = ["-f", "rawvideo", "-pix_fmt", "rgb24", "-s", f"{width + width % 2}x{height + height % 2}"]
    film = ["-c:v", "libx264", "-pix_fmt", "yuv420p", "-crf", "16", "-f", "mp4", str(Path(path).absolute())]
    line = [program, "-y", "-loglevel", "error", *raw, "-r", str(frames_per_second), "-i", "-", *film]
    with Popen(line, stdin=PIPE, stderr=PIPE) as process:
        assert process.stdin is not None
        assert process.stderr is not None
        with suppress(BrokenPipeError):  # FFmpeg has ended, and says why
            for one in [*shown, *[shown[-1]] * round(frames_per_second * LAST / 1000)]:
                process.stdin.write(np.pad(draw(one), even, mode="edge").tobytes())
        with suppress(BrokenPipeError):
            process.stdin.close()
        message = process.stderr.read().decode(errors="replace")
    if process.returncode:
        raise OSError(f"ffmpeg: {first_line(message) or process.returncode}")
