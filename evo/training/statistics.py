"""Intervals at 95 % confidence: Student's t of a mean, Wilson's of a rate."""

from __future__ import annotations

import math
from collections.abc import Sequence
from statistics import NormalDist

CONFIDENCE = 0.95


def mean_interval(values: Sequence[float]) -> tuple[float, tuple[float, float]]:
    """Return the mean and its t interval; the interval of a single value is NaN."""
    count = len(values)
    mean = math.fsum(values) / count
    if count < 2:
        return mean, (math.nan, math.nan)
    variance = math.fsum((value - mean) ** 2 for value in values) / (count - 1)
    half = student_quantile(count - 1) * math.sqrt(variance / count)
    return mean, (mean - half, mean + half)


def rate_interval(successes: int, count: int) -> tuple[float, float]:
    """Return the score interval of a rate (Wilson, 1927), which stays within 0 and 1."""
    z = NormalDist().inv_cdf((1 + CONFIDENCE) / 2)
    rate, spread = successes / count, z * z / count
    middle = (rate + spread / 2) / (1 + spread)
    half = z / (1 + spread) * math.sqrt(rate * (1 - rate) / count + spread / (4 * count))
    low = 0.0 if successes == 0 else middle - half
    high = 1.0 if successes == count else middle + half
    return low, high


def student_quantile(degrees: int) -> float:
    """Return t with P(|T| <= t) = 0.95 for `degrees` degrees of freedom, by bisection."""
    low, high = 0.0, 16.0  # one degree has 12.7
    for _ in range(80):
        middle = (low + high) / 2
        # P(|T| > t) = I_x(degrees / 2, 1 / 2) with x = degrees / (degrees + t^2)
        tail = incomplete_beta(degrees / (degrees + middle * middle), degrees / 2, 0.5)
        low, high = (middle, high) if tail > 1 - CONFIDENCE else (low, middle)
    return (low + high) / 2


def incomplete_beta(x: float, a: float, b: float) -> float:
    """Return the regularised incomplete beta function I_x(a, b) by its continued fraction (DLMF 8.17.22)."""
    if x <= 0 or x >= 1:
        return float(x >= 1)
    if x > (a + 1) / (a + b + 2):  # where the fraction of the other side converges faster
        return 1 - incomplete_beta(1 - x, b, a)
    logarithm = math.lgamma(a + b) - math.lgamma(a) - math.lgamma(b) + a * math.log(x) + b * math.log1p(-x)
    fraction = 1.0
    for m in range(200, 0, -1):  # from the inside out: d(2m), then d(2m - 1)
        even = m * (b - m) * x / ((a + 2 * m - 1) * (a + 2 * m))
        odd = -(a + m - 1) * (a + b + m - 1) * x / ((a + 2 * m - 2) * (a + 2 * m - 1))
        fraction = 1 + odd / (1 + even / fraction)
    return math.exp(logarithm) / (a * fraction)
