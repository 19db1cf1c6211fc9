"""Actions that are numbers, drawn around the network's means: with the same bits on every IEEE-754 machine.

a = mean + exp(log deviation) z, where z is a sum of twelve uniform numbers less 6, which has mean 0 and variance 1:
named words, additions and multiplications only.
"""

from __future__ import annotations

import numpy as np
from numba import njit

from evo.compiled import cache as kernel_cache
from evo.randomness.philox_compiled import philox
from evo.rollouts.episodes import ACTION, exponential

kernel_cache.use(__name__)

LOWEST, HIGHEST = -20.0, 2.0  # log deviations are clipped to these
UNIT = 2.0**-32


@njit(cache=True, error_model="numpy", nogil=True)
def standard_normal(seed, step, number):  # type: ignore[no-untyped-def]
    """Return normal number `number` of a step of an episode: the Irwin-Hall sum of twelve, less 6."""
    total = 0.0
    for block in range(3):
        w0, w1, w2, w3 = philox(seed, np.uint64(step), np.uint64(number), np.uint64(ACTION), np.uint64(block))
        total += (np.float64(w0) + np.float64(w1)) + (np.float64(w2) + np.float64(w3))
    return (total + 6.0) * UNIT - 6.0  # every word stands for the middle of its interval


@njit(cache=True, error_model="numpy", nogil=True)
def draw_action(outputs, drawn, seed, step, action):  # type: ignore[no-untyped-def]
    """Write the action [D], float32, that follows from means and, where it is `drawn`, log deviations behind them.

    `outputs` [D or 2 D, or more] float32. Returns whether all that it took were finite.
    """
    count = action.shape[0]
    for d in range(2 * count if drawn else count):
        if not np.isfinite(outputs[d]):
            return False
    for d in range(count):
        value = np.float64(outputs[d])
        if drawn:
            spread = exponential(min(max(np.float64(outputs[count + d]), LOWEST), HIGHEST))
            value += spread * standard_normal(seed, step, d)
        action[d] = np.float32(value)
    return True
