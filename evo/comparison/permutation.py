"""Whether two methods differ: a permutation test of the means over seeds (Fisher, 1935; Pitman, 1937).

If both methods are alike, every way to deal the scores to them is equally likely. The p value is the share of ways
whose means differ at least as much as those that were seen. No assumption on the scores is needed but that runs are
independent, so a p value of at most 0.05 comes up in at most 5 % of comparisons of equal methods.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import lru_cache
from itertools import combinations, count

import numpy as np
from numpy.typing import NDArray

LEVEL = 0.05  # a winner is named up to this p value
LEAST_SEEDS = 4  # of each method; with 3 and 3, no p value is below 0.1
MOST_WAYS = 200_000  # that are all looked at
DRAWS = 50_000  # of the ways, where there are more
ROUNDING = 1e-12  # relative; sums of the same scores in another order are equal


def p_value(first: Sequence[float], second: Sequence[float]) -> float:
    """Return the two-sided p value of the difference of the means.

    It is exact up to 10 and 10 seeds. Beyond, it is of ways drawn at random with the one that was seen among them,
    which has the same property (Phipson and Smyth, 2010, equation 2).
    """
    scores = np.asarray([*first, *second], np.float64)
    size, all_of_them = len(first), len(scores)
    centred = scores - scores.mean()  # then a larger sum of the first is a larger difference of the means
    seen = abs(centred[:size].sum()) - ROUNDING * np.abs(scores).sum()
    if exact(size, all_of_them - size):
        return float((np.abs(centred[_ways(size, all_of_them)].sum(axis=1)) >= seen).mean())
    random = np.random.Generator(np.random.Philox(key=0))
    drawn = random.permuted(np.tile(np.sort(centred), (DRAWS, 1)), axis=1)[:, :size].sum(axis=1)
    return float((1 + (np.abs(drawn) >= seen).sum()) / (1 + DRAWS))


def exact(first: int, second: int) -> bool:
    """Return whether all ways are looked at for so many seeds."""
    return math.comb(first + second, first) <= MOST_WAYS


def holm(p_values: Sequence[float]) -> list[float]:
    """Return the p values adjusted for their number (Holm, 1979): at most one in twenty families has a false winner."""
    adjusted, highest = [0.0] * len(p_values), 0.0
    for rank, place in enumerate(sorted(range(len(p_values)), key=p_values.__getitem__)):
        highest = max(highest, min(1.0, (len(p_values) - rank) * p_values[place]))
        adjusted[place] = highest
    return adjusted


def least_p_value(first: int, second: int) -> float:
    """Return the lowest p value that so many seeds can give: both extreme ways where the numbers are equal."""
    return max((1 + (first == second)) / math.comb(first + second, first), 0.0 if exact(first, second) else 1 / DRAWS)


def seeds_needed(pairs: int) -> int:
    """Return how many seeds each method needs so that the first of so many pairs can have a winner."""
    return next(seeds for seeds in count(LEAST_SEEDS) if pairs * least_p_value(seeds, seeds) <= LEVEL)


@lru_cache(4)
def _ways(size: int, all_of_them: int) -> NDArray[np.intp]:
    """Return every way to choose the first method's scores.  # [W, S]"""
    return np.array(list(combinations(range(all_of_them), size)), np.intp)
