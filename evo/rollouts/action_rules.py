"""Action rules: how an action follows from the network's outputs, with the same bits on every IEEE-754 machine.

Draws are named words of Philox, by the episode's seed and the step; arithmetic is additions and multiplications only.
A normal number is the Irwin-Hall sum of twelve uniform ones, less 6, which has mean 0 and variance 1.
"""

from __future__ import annotations

import numpy as np
from numba import njit

from evo.compiled import cache as kernel_cache
from evo.randomness.philox_compiled import draw, philox
from evo.randomness.streams import Purpose

kernel_cache.use(__name__)

SOFTMAX, EPSILON_GREEDY = 1, 2
RULES = {"greedy": None, "softmax": SOFTMAX, "epsilon_greedy": EPSILON_GREEDY}  # None: compiled without any draw
ACTION, EXPLORE = int(Purpose.ACTION), np.int64(Purpose.EXPLORE)
SQUARINGS = 10
LOWEST, HIGHEST = -20.0, 2.0  # log standard deviations are clipped to these
UNIT = 2.0**-32


@njit(cache=True, error_model="numpy", nogil=True)
def exponential(x):  # type: ignore[no-untyped-def]
    """Return exp(x) for x <= 2 by additions and multiplications only.

    (1 + y + y^2/2 + y^3/6 + y^4/24)^1024 with y = x / 1024, in float64; 0 below -600.
    """
    if x < -600.0:
        return 0.0
    y = x * (1.0 / 1024.0)
    power = 1.0 + y * (1.0 + y * (0.5 + y * (1.0 / 6.0 + y * (1.0 / 24.0))))
    for _ in range(SQUARINGS):
        power = power * power
    return power


@njit(cache=True, error_model="numpy", nogil=True, _nrt=False)
def choose_action(scores, width, lane, allowed, rule, epsilon, seed, step):  # type: ignore[no-untyped-def]
    """Return the action of a lane, the lowest of equals, or -1 where a score is not finite.

    `scores` flat float32 [A or more, width]; `allowed` int8 [A]; `rule` one of RULES. Draws are those of step `step` of
    the episode `seed`.
    """
    best = -1
    for action in range(allowed.shape[0]):
        score = scores[action * width + lane]
        if not np.isfinite(score):
            return -1
        if allowed[action] and (best < 0 or score > scores[best * width + lane]):
            best = action
    if rule is None:
        return best
    word, coin, _, _ = philox(seed, np.uint64(step), np.uint64(0), np.uint64(ACTION), np.uint64(0))
    if rule == EPSILON_GREEDY:
        if np.float64(coin) * (1.0 / 4294967296.0) >= epsilon:
            return best
        left = np.int64(0)
        for action in range(allowed.shape[0]):
            left += allowed[action]
        left = draw(seed, np.int64(step), left, EXPLORE)
        for action in range(allowed.shape[0]):
            if allowed[action]:
                if left == 0:
                    return action
                left -= 1
    top = np.float64(scores[best * width + lane])
    total = 0.0
    for action in range(allowed.shape[0]):
        if allowed[action]:
            total += exponential(np.float64(scores[action * width + lane]) - top)
    threshold = np.float64(word) * (1.0 / 4294967296.0) * total
    for action in range(allowed.shape[0]):
        if allowed[action]:
            threshold -= exponential(np.float64(scores[action * width + lane]) - top)
            if threshold < 0.0:
                return action
    return best


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
    """Write a continuous action, its means or, where it is `drawn`, a normal draw; return whether all is finite.

    `outputs` float32: D means, then D log standard deviations, then anything; `action` float32 [D].
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
