"""Student's t: the interval of a mean of a few independent runs."""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import cache

from evo.training.statistics import CONFIDENCE


def t_interval(scores: Sequence[float], confidence: float = CONFIDENCE) -> tuple[float, tuple[float, float] | None]:
    """Return the mean and its interval with this confidence (Student, 1908); that of a single score is None.

    It holds for scores that are about normally distributed, and is nearly right for others of that many.
    """
    count, mean = len(scores), math.fsum(scores) / len(scores)
    if count < 2:
        return mean, None
    variance = math.fsum((score - mean) ** 2 for score in scores) / (count - 1)
    half = quantile(confidence, count - 1) * math.sqrt(variance / count)
    return mean, (mean - half, mean + half)


@cache
def quantile(probability: float, freedom: int) -> float:
    """Return the t within which -t to t holds this probability, with so many degrees of freedom."""
    low, high = 0.0, math.pi / 2  # of the angle whose tangent is t / sqrt(freedom)
    for _ in range(64):
        middle = (low + high) / 2
        low, high = (middle, high) if _within(middle, freedom) < probability else (low, middle)
    return math.sqrt(freedom) * math.tan((low + high) / 2)


def _within(angle: float, freedom: int) -> float:
    """Return the probability within t = sqrt(freedom) tan(angle) (Abramowitz and Stegun, 1964, 26.7.3 and 26.7.4)."""
    sine, cosine = math.sin(angle), math.cos(angle)
    odd = freedom % 2
    term = cosine if odd else 1.0
    total = 0.0
    for factor in range(2 + odd, freedom + 1, 2):
        total += term
        term *= cosine * cosine * (factor - 1) / factor
    return 2 / math.pi * (angle + sine * total) if odd else sine * total
