"""Standard deviations of mutations as steps of 2^(1/8), so that they have the same bits on every machine."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from evo.randomness.philox_arrays import philox

OCTAVE = 8  # steps that double sigma: one is a factor of 2^(1/8)
STEPS = range(-96, 97)  # of sigma around the base, twelve doublings either way
EIGHTHS = (1.0, 1.0905077, 1.1892071, 1.2968396, 1.4142135, 1.5422108, 1.6817929, 1.8340081)  # 2^(k / 8)


def sigma_table(base: float) -> NDArray[np.float32]:
    """Return base * 2^(k / 8) for every k of STEPS, from a fixed table and powers of two.  # [193] float32"""
    steps = np.array([np.float32(EIGHTHS[k % OCTAVE]) * np.float32(2.0 ** (k // OCTAVE)) for k in STEPS], np.float32)
    return np.float32(base) * steps


def drawn_steps(streams: NDArray[np.uint64], spread: float) -> NDArray[np.float64]:
    """Return whole steps whose factors are log-normal: exp(spread * N(0, 1)), one from each stream.  # [N] -> [N]"""
    words = philox(streams, 0, 0, 0, 0)[0]
    # (popcount - 16) / sqrt(8) is a standard normal; 8 / ln 2 steps of sigma are a factor of e.
    steps: NDArray[np.float64] = np.rint((np.bitwise_count(words).astype(np.int64) - 16) * spread * 4.0805567)
    return steps
