"""Actions tanh(u) of a normally distributed or a fixed u, their densities, and the loss of their actor, compiled.

With mean m, log standard deviation s and a standard normal number e, all [D]: u = m + exp(s) e, a = tanh(u), and
log pi(a) is the sum over D of -e^2 / 2 - s - log(2 pi) / 2 - log(1 - a^2) (Haarnoja et al., 2018b, equation 21).
Numbers are float64 in between, and float32 at both ends.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numba import njit
from numpy.typing import NDArray

from evo.compiled import cache as kernel_cache
from evo.compiled.functions import exp, log, tanh
from evo.rollouts.action_rules import SQUASHED_HIGHEST, SQUASHED_LOWEST, squashed_log_deviation, standard_normal

kernel_cache.use(__name__)

HALF_LOG_2_PI, LOG_2 = 0.5 * 1.8378770664093453, 0.6931471805599453
BEGINNING = np.int64(0)  # typed: a literal would have the functions compiled once more
SQUASHED_VALUES = ("loss", "log_probability")


class SquashedBatch(NamedTuple):
    """Arrays of the examples of a batch of an actor."""

    noise: NDArray[np.float32]  # [B, D]
    slopes: NDArray[np.float32]  # [B, D] of the critic's value by the action
    values: NDArray[np.float32]  # [B] of the action


@njit(cache=True, error_model="numpy", nogil=True, inline="always")
def _number(outputs, at, dimensions, drawn, noise, d):  # type: ignore[no-untyped-def]
    """Return number d of an action, its log probability, exp(s) e, and what it adds to s where its output grows."""
    u, spread, log_probability, slope = np.float64(outputs[at + d]), 0.0, 0.0, 0.0
    if drawn:
        squashed, e = tanh(np.float64(outputs[at + dimensions + d])), np.float64(noise[d])
        deviation = squashed_log_deviation(squashed)
        slope = 0.5 * (SQUASHED_HIGHEST - SQUASHED_LOWEST) * (1.0 - squashed * squashed)
        spread = exp(deviation) * e
        u += spread
        # log(1 - tanh(u)^2) = 2 (log 2 - u - log(1 + exp(-2 u))), which does not cancel where |u| is large
        size = abs(u)
        correction = 2.0 * (LOG_2 - size - log(1.0 + exp(-2.0 * size)))
        log_probability = -0.5 * e * e - deviation - HALF_LOG_2_PI - correction
    return tanh(u), log_probability, spread, slope


@njit(cache=True, error_model="numpy", nogil=True, inline="always")
def squashed_policy(outputs, x, at, to, batch, temperature, row, values):  # type: ignore[no-untyped-def]
    """Write the derivatives of temperature * log pi(a) - Q(s, a) by the outputs, where noise is fixed and a moves.

    By u, log pi(a) has the derivative 2 a, and by s it has -1 besides.
    """
    dimensions, total = batch.noise.shape[1], values.shape[1]
    drawn, log_probability = outputs == 2 * dimensions, 0.0
    for d in range(dimensions):
        a, density, spread, slope = _number(x, at, dimensions, drawn, batch.noise[row], d)
        log_probability += density
        by_u = (2.0 * temperature * a if drawn else 0.0) - np.float64(batch.slopes[row, d]) * (1.0 - a * a)
        x[to + d] = by_u / total
        if drawn:
            x[to + dimensions + d] = (by_u * spread - temperature) * slope / total
    values[0, row] = temperature * log_probability - np.float64(batch.values[row])
    values[1, row] = log_probability


@njit(cache=True, error_model="numpy", nogil=True)
def _draw(outputs, noise, actions, log_probabilities):  # type: ignore[no-untyped-def]
    dimensions = noise.shape[1]
    drawn = outputs.shape[1] == 2 * dimensions
    for row in range(outputs.shape[0]):
        total = 0.0
        for d in range(dimensions):
            a, density, _, _ = _number(outputs[row], BEGINNING, dimensions, drawn, noise[row], d)
            actions[row, d] = a
            total += density
        log_probabilities[row] = total


def squashed_actions(
    outputs: NDArray[np.float32], noise: NDArray[np.float32]
) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
    """Return actions and log probabilities of an actor's outputs.  # [B, 2 D], [B, D] -> [B, D], [B]

    Of outputs [B, D] the actions are tanh of the means, whatever the noise.
    """
    actions, logs = np.empty(noise.shape, np.float32), np.empty(len(noise), np.float32)
    _draw(outputs, noise, actions, logs)
    return actions, logs


@njit(cache=True, error_model="numpy", nogil=True)
def _normals(key, out):  # type: ignore[no-untyped-def]
    for row in range(out.shape[0]):
        for d in range(out.shape[1]):
            out[row, d] = standard_normal(key, row, d)


def normal_noise(key: int, rows: int, dimensions: int) -> NDArray[np.float32]:
    """Return standard normal numbers of the stream `key`.  # [B, D]"""
    out = np.empty((rows, dimensions), np.float32)
    _normals(np.uint64(key), out)
    return out
