"""Encode frames as an animated GIF (GIF89a), with one palette and only the changed pixels of every frame."""

from __future__ import annotations

import struct
from collections.abc import Sequence

import numpy as np
from numba import njit
from numpy.typing import NDArray

from evo.compiled import cache as kernel_cache

kernel_cache.use(__name__)

COLOURS = 255  # and one that lets the frame before shine through
BITS = 8


def encode(frames: Sequence[NDArray[np.uint8]], frames_per_second: float, last_seconds: float = 0.0) -> bytes:
    """Return a GIF that repeats for ever; `last_seconds` is added to the last frame.  # frames uint8 [H, W, 3]"""
    if not 1 <= frames_per_second <= 50:
        raise ValueError(f"{frames_per_second} frames per second, not between 1 and 50")
    height, width = frames[0].shape[:2]
    if any(frame.shape != (height, width, 3) for frame in frames):
        raise ValueError("the frames differ in shape")
    palette, table = palette_of(frames)
    film = b"GIF89a" + struct.pack("<HHBBB", width, height, 0xF7, 0, 0)
    film += np.vstack([palette, np.zeros((1, 3), np.uint8)]).tobytes()
    film += b"\x21\xff\x0bNETSCAPE2.0\x03\x01\x00\x00\x00"
    shown = np.full((height, width), COLOURS, np.uint8)
    for number, frame in enumerate(frames):
        seconds = 1 / frames_per_second + (last_seconds if number == len(frames) - 1 else 0.0)
        places = table[bins_of(frame)]
        changed = np.where(places == shown, np.uint8(COLOURS), places)
        film += b"\x21\xf9\x04\x05" + struct.pack("<HB", round(100 * seconds), COLOURS) + b"\x00"
        film += b"\x2c" + struct.pack("<HHHHB", 0, 0, width, height, 0) + bytes([BITS])
        film += blocks(compress(changed.reshape(-1)).tobytes())
        shown = places
    return film + b"\x3b"


def bins_of(frame: NDArray[np.uint8]) -> NDArray[np.int64]:
    """Return the bin of every pixel's colour on a grid of 32 x 32 x 32.  # [H, W]"""
    coarse = frame.astype(np.int64) >> 3
    bins: NDArray[np.int64] = coarse[..., 0] << 10 | coarse[..., 1] << 5 | coarse[..., 2]
    return bins


def palette_of(frames: Sequence[NDArray[np.uint8]]) -> tuple[NDArray[np.uint8], NDArray[np.uint8]]:
    """Return the most frequent colours, and the index of the nearest of them for every bin.

    # [COLOURS, 3], [32768]
    """
    counts = np.zeros(1 << 15, np.int64)
    sums = np.zeros((1 << 15, 3), np.int64)
    for frame in frames:
        bins = bins_of(frame).reshape(-1)
        counts += np.bincount(bins, minlength=1 << 15)
        for channel in range(3):
            weights = frame[..., channel].reshape(-1)
            sums[:, channel] += np.bincount(bins, weights, minlength=1 << 15).astype(np.int64)
    seen = np.flatnonzero(counts)
    means = sums[seen] / counts[seen, None]
    frequent = np.argsort(-counts[seen], kind="stable")[:COLOURS]
    palette = np.zeros((COLOURS, 3), np.uint8)
    palette[: len(frequent)] = np.rint(means[frequent]).astype(np.uint8)
    table = np.zeros(1 << 15, np.uint8)
    for place, colour in zip(seen, means, strict=True):
        table[place] = np.argmin(((means[frequent] - colour) ** 2).sum(1))
    return palette, table


def blocks(data: bytes) -> bytes:
    """Return data as GIF sub-blocks of at most 255 bytes, each after its length, and an empty one."""
    cuts = [data[first : first + 255] for first in range(0, len(data), 255)]
    return b"".join(bytes([len(cut)]) + cut for cut in cuts) + b"\x00"


@njit(cache=True, error_model="numpy")
def compress(pixels):  # type: ignore[no-untyped-def]
    """Return pixels (uint8) compressed by LZW (Welch, 1984), with codes of 9 to 12 bits, low bits first."""
    clear, end = 1 << BITS, (1 << BITS) + 1
    after = np.full((4096, 1 << BITS), -1, np.int16)  # the code of a known string and one pixel more
    out = np.zeros(2 * pixels.shape[0] + 16, np.uint8)
    size = 0
    held, held_bits = np.int64(clear), BITS + 1
    width, codes = BITS + 1, end + 1
    code = np.int64(pixels[0])
    for k in range(1, pixels.shape[0] + 1):
        if k < pixels.shape[0] and after[code, pixels[k]] >= 0:
            code = np.int64(after[code, pixels[k]])
            continue
        held |= code << held_bits
        held_bits += width
        while held_bits >= 8:
            out[size] = held & 255
            size += 1
            held >>= 8
            held_bits -= 8
        if k == pixels.shape[0]:
            break
        if codes < 4096:
            after[code, pixels[k]] = codes
            if codes == 1 << width and width < 12:
                width += 1
            codes += 1
        else:
            held |= clear << held_bits
            held_bits += width
            after[:] = -1
            width, codes = BITS + 1, end + 1
        code = np.int64(pixels[k])
    held |= end << held_bits
    held_bits += width
    while held_bits > 0:
        out[size] = held & 255
        size += 1
        held >>= 8
        held_bits -= 8
    return out[:size]
