"""Interquartile means, the probability of improvement and profiles, with bootstrap intervals (Agarwal et al., 2021).

"Deep Reinforcement Learning at the Edge of the Statistical Precipice", sections 4.1 to 4.3. A table has one
environment, so a method is one stratum: seeds are drawn with replacement among its own. Intervals are percentiles of
the draws, and too narrow for few seeds.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from evo.training.statistics import CONFIDENCE

DRAWS = 10_000
LEAST_SEEDS = 4  # with fewer, an interquartile mean leaves out nothing


def interquartile_mean(scores: Sequence[float]) -> float:
    """Return the mean without the lowest and the highest quarter, each rounded down to whole scores."""
    cut = len(scores) // 4
    return math.fsum(sorted(scores)[cut : len(scores) - cut]) / (len(scores) - 2 * cut)


def interquartile_interval(scores: Sequence[float]) -> tuple[float, float]:
    """Return the interval of the interquartile mean at 95 %; equal scores have equal intervals."""
    values, count = np.sort(np.asarray(scores, np.float64)), len(scores)
    drawn = np.sort(values[_random().integers(count, size=(DRAWS, count))], axis=1)  # [D, S]
    return _percentiles(drawn[:, count // 4 : count - count // 4].mean(axis=1))


def probability_of_improvement(first: Sequence[float], second: Sequence[float]) -> float:
    """Return how often a run of the first is better than one of the second, equal ones by half (section 4.3)."""
    return float(_better(first, second).mean())


def improvement_interval(first: Sequence[float], second: Sequence[float]) -> tuple[float, float]:
    """Return the interval of the probability of improvement at 95 %."""
    random = _random()
    times = [_times(random, len(scores)) for scores in (first, second)]  # [D, S] how often each seed is drawn
    return _percentiles(np.einsum("ds,st,dt->d", times[0], _better(first, second), times[1], optimize=True))


def profile(
    scores: Sequence[float], limits: NDArray[np.float64]
) -> tuple[NDArray[np.float64], NDArray[np.float64], NDArray[np.float64]]:
    """Return the share of runs whose score is above each limit, and both ends of its interval (section 4.2).  # [L]"""
    above = np.asarray(scores, np.float64)[:, np.newaxis] > limits  # [S, L]
    drawn = _times(_random(), len(scores)) @ above  # [D, L]
    tail = (1 - CONFIDENCE) / 2
    low, high = np.quantile(drawn, (tail, 1 - tail), axis=0)
    return above.mean(axis=0), low, high


def _better(first: Sequence[float], second: Sequence[float]) -> NDArray[np.float64]:
    """Return 1 where a run of the first is better, 0.5 where it is equal.  # [S, T]"""
    difference = np.subtract.outer(np.sort(first), np.sort(second))
    return np.asarray((np.sign(difference) + 1) / 2, np.float64)


def _times(random: np.random.Generator, count: int) -> NDArray[np.float64]:
    return random.multinomial(count, np.full(count, 1 / count), DRAWS) / count


def _percentiles(drawn: NDArray[np.float64]) -> tuple[float, float]:
    tail = (1 - CONFIDENCE) / 2
    low, high = np.quantile(drawn, (tail, 1 - tail))
    return float(low), float(high)


def _random() -> np.random.Generator:
    return np.random.Generator(np.random.Philox(key=0))
