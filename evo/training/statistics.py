"""Intervals at 95 % confidence: Gaffke's of a mean, Wilson's of a rate; and rates in per cent."""

from __future__ import annotations

import math
from collections.abc import Sequence
from statistics import NormalDist

import numpy as np

CONFIDENCE = 0.95
DRAWS = 10_000  # from the distribution of the mean
MOST_VALUES = 1000  # different ones; more are grouped


def mean_interval(
    values: Sequence[float], bounds: tuple[float, float] | None = None
) -> tuple[float, tuple[float, float]]:
    """Return the mean and its interval, which holds for skewed values too; that of a single value is NaN.

    Every value gets a random weight, uniform among all weights that sum to one, and so does one more value: the lower
    of `bounds` for the lower end of the interval, the upper one for its upper end. The ends are quantiles of the
    weighted mean (Gaffke, 2005; Phan, Thomas and Learned-Miller, 2021). Without bounds, the smallest and the largest
    value stand for them: rare values that were not seen are then missing from the interval. The draws are fixed, so
    equal values have equal intervals.
    """
    numbers = np.asarray(values, np.float64)
    mean = math.fsum(values) / len(numbers)
    if len(numbers) < 2:
        return mean, (math.nan, math.nan)
    distinct, counts = np.unique(numbers, return_counts=True)
    lowest, highest = bounds or (float(distinct[0]), float(distinct[-1]))
    if len(distinct) > MOST_VALUES:
        cells = np.floor((distinct - distinct[0]) / (distinct[-1] - distinct[0]) * (MOST_VALUES - 1)).astype(np.int64)
        groups = np.unique(cells, return_inverse=True)[1]
        sums, counts = np.bincount(groups, counts * distinct), np.bincount(groups, counts).astype(np.int64)
        distinct = sums / counts
    random = np.random.Generator(np.random.Philox(key=0))
    weights = random.standard_gamma(np.append(counts, 1.0), (DRAWS, len(counts) + 1))  # the last is the bound's
    seen, totals = weights[:, :-1] @ distinct, weights.sum(axis=1)
    tail = (1 - CONFIDENCE) / 2
    low = float(np.quantile((seen + weights[:, -1] * lowest) / totals, tail))
    high = float(np.quantile((seen + weights[:, -1] * highest) / totals, 1 - tail))
    return mean, (min(max(low, lowest), mean), max(min(high, highest), mean))


def rate_interval(successes: int, count: int) -> tuple[float, float]:
    """Return the score interval of a rate (Wilson, 1927), which stays within 0 and 1."""
    z = NormalDist().inv_cdf((1 + CONFIDENCE) / 2)
    rate, spread = successes / count, z * z / count
    middle = (rate + spread / 2) / (1 + spread)
    half = z / (1 + spread) * math.sqrt(rate * (1 - rate) / count + spread / (4 * count))
    low = 0.0 if successes == 0 else middle - half
    high = 1.0 if successes == count else middle + half
    return low, high


def percentage(share: float, form: str = ".3g") -> str:
    """Return a share of won episodes in per cent; where not all were won, this is below 100."""
    text = format(100 * share, form)
    return f"{math.floor(1e4 * share) / 100:.2f}" if share < 1 and float(text) == 100 else text
