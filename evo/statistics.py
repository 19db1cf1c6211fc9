"""Intervals and tests: of episodes, of a few independent runs, and of two methods; intervals have 95 % confidence.

Of episodes: Gaffke's interval of a mean, Wilson's of a rate. Of seeds: Student's t, and bootstrap intervals of
interquartile means, of the probability of improvement and of performance profiles (Agarwal et al., 2021, "Deep
Reinforcement Learning at the Edge of the Statistical Precipice", sections 4.1 to 4.3). A table has one environment, so
a method is one stratum: seeds are drawn with replacement among its own. The ends of these intervals are percentiles of
the draws, and too narrow for few seeds.

Of two methods: a permutation test of the means over seeds (Fisher, 1935; Pitman, 1937). If both are alike, every way to
deal the scores to them is equally likely. The p value is the share of ways whose means differ at least as much. It
assumes only that runs are independent, so at most 5 % of comparisons of equal methods have a p value of 0.05 or less.

Of players: ratings by the points that they win off each other (Bradley and Terry, 1952), on the scale of Elo (1978),
where 400 more stands for odds of 10 to 1. Both players of a pair have some points before any game, by which estimates
lose their bias (Firth, 1993), and who wins all games has a finite rating.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import cache, lru_cache
from itertools import combinations, count
from statistics import NormalDist

import numpy as np
from numpy.typing import NDArray

CONFIDENCE = 0.95
TAIL = (1 - CONFIDENCE) / 2
DRAWS = 10_000  # of a bootstrap, or from the distribution of a mean
MOST_VALUES = 1000  # different ones in a mean's interval; more are grouped
LEVEL = 0.05  # a winner is named up to this p value
LEAST_SEEDS = 4  # of each method; with 3 and 3, no p value is below 0.1, and an interquartile mean leaves out nothing
MOST_WAYS = 200_000  # to deal scores to two methods, all of which are looked at
WAYS_DRAWN = 50_000  # where there are more
ROUNDING = 1e-12  # relative; sums of the same scores in another order are equal
ELO = 400 / math.log(10)
ROUNDS, CLOSE = 100, 1e-10  # of Newton's method; the largest step at its end
LARGEST_STEP = 2.0
LEAST_PRIOR, MOST_PRIOR = 0.05, 0.5  # points that both players of a pair have before any game

Interval = tuple[float, float]
Matrix = NDArray[np.float64]


def mean_interval(values: Sequence[float], bounds: Interval | None = None) -> tuple[float, Interval]:
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
    weights = _random().standard_gamma(np.append(counts, 1.0), (DRAWS, len(counts) + 1))  # the last is the bound's
    seen, totals = weights[:, :-1] @ distinct, weights.sum(axis=1)
    low = float(np.quantile((seen + weights[:, -1] * lowest) / totals, TAIL))
    high = float(np.quantile((seen + weights[:, -1] * highest) / totals, 1 - TAIL))
    return mean, (min(max(low, lowest), mean), max(min(high, highest), mean))


def rate_interval(successes: int, count: int) -> Interval:
    """Return the score interval of a rate (Wilson, 1927), which stays within 0 and 1."""
    z = NormalDist().inv_cdf((1 + CONFIDENCE) / 2)
    rate, spread = successes / count, z * z / count
    middle = (rate + spread / 2) / (1 + spread)
    half = z / (1 + spread) * math.sqrt(rate * (1 - rate) / count + spread / (4 * count))
    low = 0.0 if successes == 0 else middle - half
    high = 1.0 if successes == count else middle + half
    return low, high


def t_interval(scores: Sequence[float], confidence: float = CONFIDENCE) -> tuple[float | None, Interval | None]:
    """Return the mean and its interval with this confidence (Student, 1908); that of a single score, or none, is None.

    It holds for scores that are about normally distributed, and is nearly right for others of that many.
    """
    count = len(scores)
    if count < 2:
        return (scores[0] if scores else None), None
    mean = math.fsum(scores) / count
    variance = math.fsum((score - mean) ** 2 for score in scores) / (count - 1)
    half = t_quantile(confidence, count - 1) * math.sqrt(variance / count)
    return mean, (mean - half, mean + half)


@cache
def t_quantile(probability: float, freedom: int) -> float:
    """Return the t within which -t to t holds this probability with `freedom` degrees of freedom."""
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


def interquartile_mean(scores: Sequence[float]) -> float:
    """Return the mean without the lowest and the highest quarter, each rounded down to whole scores."""
    cut = len(scores) // 4
    return math.fsum(sorted(scores)[cut : len(scores) - cut]) / (len(scores) - 2 * cut)


def interquartile_interval(scores: Sequence[float]) -> Interval:
    """Return the interval of the interquartile mean at 95 %; equal scores have equal intervals."""
    values, count = np.sort(np.asarray(scores, np.float64)), len(scores)
    drawn = np.sort(values[_random().integers(count, size=(DRAWS, count))], axis=1)  # [D, S]
    return _percentiles(drawn[:, count // 4 : count - count // 4].mean(axis=1))


def probability_of_improvement(first: Sequence[float], second: Sequence[float]) -> float:
    """Return how often a run of the first is better than one of the second, equal ones by half (section 4.3)."""
    return float(_better(first, second).mean())


def improvement_interval(first: Sequence[float], second: Sequence[float]) -> Interval:
    """Return the interval of the probability of improvement at 95 %."""
    random = _random()
    times = [_times(random, len(scores)) for scores in (first, second)]  # [D, S] how often each seed is drawn
    return _percentiles(np.einsum("ds,st,dt->d", times[0], _better(first, second), times[1], optimize=True))


def performance_profile(
    scores: Sequence[float], limits: NDArray[np.float64]
) -> tuple[NDArray[np.float64], NDArray[np.float64], NDArray[np.float64]]:
    """Return the share of runs whose score is above each limit, and both ends of its interval (section 4.2).  # [L]"""
    above = np.asarray(scores, np.float64)[:, np.newaxis] > limits  # [S, L]
    drawn = _times(_random(), len(scores)) @ above  # [D, L]
    low, high = np.quantile(drawn, (TAIL, 1 - TAIL), axis=0)
    return above.mean(axis=0), low, high


def _better(first: Sequence[float], second: Sequence[float]) -> NDArray[np.float64]:
    """Return 1 where a run of the first is better, 0.5 where it is equal.  # [S, T]"""
    difference = np.subtract.outer(np.sort(first), np.sort(second))
    return np.asarray((np.sign(difference) + 1) / 2, np.float64)


def _times(random: np.random.Generator, count: int) -> NDArray[np.float64]:
    return random.multinomial(count, np.full(count, 1 / count), DRAWS) / count


def _percentiles(drawn: NDArray[np.float64]) -> Interval:
    low, high = np.quantile(drawn, (TAIL, 1 - TAIL))
    return float(low), float(high)


def _random() -> np.random.Generator:
    return np.random.Generator(np.random.Philox(key=0))


def permutation_p_value(first: Sequence[float], second: Sequence[float]) -> float:
    """Return the two-sided p value of the difference of the means.

    It is exact up to 10 and 10 seeds. Beyond, it is of ways drawn at random with the one that was seen among them,
    which has the same property (Phipson and Smyth, 2010, equation 2).
    """
    scores = np.asarray([*first, *second], np.float64)
    size, all_of_them = len(first), len(scores)
    centred = scores - scores.mean()  # then a larger sum of the first is a larger difference of the means
    seen = abs(centred[:size].sum()) - ROUNDING * np.abs(scores).sum()
    if _is_exact(size, all_of_them - size):
        return float((np.abs(centred[_assignments(size, all_of_them)].sum(axis=1)) >= seen).mean())
    drawn = _random().permuted(np.tile(np.sort(centred), (WAYS_DRAWN, 1)), axis=1)[:, :size].sum(axis=1)
    return float((1 + (np.abs(drawn) >= seen).sum()) / (1 + WAYS_DRAWN))


def _is_exact(first: int, second: int) -> bool:
    return math.comb(first + second, first) <= MOST_WAYS


def holm(p_values: Sequence[float]) -> list[float]:
    """Return the p values adjusted for their number (Holm, 1979): at most one in twenty families has a false winner."""
    adjusted, highest = [0.0] * len(p_values), 0.0
    for rank, place in enumerate(sorted(range(len(p_values)), key=p_values.__getitem__)):
        highest = max(highest, min(1.0, (len(p_values) - rank) * p_values[place]))
        adjusted[place] = highest
    return adjusted


def least_p_value(first: int, second: int) -> float:
    """Return the lowest p value that these numbers of seeds can give: both extreme ways where the numbers are equal."""
    extreme = (1 + (first == second)) / math.comb(first + second, first)
    return max(extreme, 0.0 if _is_exact(first, second) else 1 / WAYS_DRAWN)


def seeds_needed(pairs: int) -> int:
    """Return how many seeds each method needs so that the first of these pairs can have a winner."""
    return next(seeds for seeds in count(LEAST_SEEDS) if pairs * least_p_value(seeds, seeds) <= LEVEL)


@lru_cache(4)
def _assignments(size: int, all_of_them: int) -> NDArray[np.intp]:
    """Return every way to choose the first method's scores.  # [W, S]"""
    return np.array(list(combinations(range(all_of_them), size)), np.intp)


def kaplan_meier_median(ends: Sequence[tuple[float, bool]]) -> float | None:
    """Return the Kaplan-Meier median of times, each with whether the score was reached then; None where there is none.

    The share of runs that have not reached it is the product, over all times of reaching, of the share of runs still
    under way that did not reach it there. Where fewer than half of all runs are known to reach it, there is none: in
    the end the product hangs on the few runs that went a little further than the others.
    """
    if 2 * sum(there for _, there in ends) < len(ends):
        return None
    waiting = 1.0
    for time in sorted({time for time, there in ends if there}):
        under_way = sum(end >= time for end, _ in ends)
        waiting *= 1 - sum(there and end == time for end, there in ends) / under_way
        if waiting <= 0.5 or math.isclose(waiting, 0.5):
            return time
    return None


def ratings(shares: Matrix) -> list[tuple[float, Interval]]:
    """Return the rating of every player and its interval at 95 %; the mean of all ratings is 0.

    shares [M, M, E]: what player i wins of the points of each of E games, or groups of games that depend on each other,
    against player j, with draws as half; shares[j, i] = 1 - shares[i, j]. Intervals are those of the maximum of the
    likelihood where it is not taken to be true (White, 1982), and so hold for draws, and for games of equal seeds.
    """
    players, _, games = shares.shape
    prior = np.where(np.eye(players) > 0, 0.0, MOST_PRIOR)
    for _ in range(2):
        strength = _strength(shares.sum(axis=2), games, prior)
        expected, weight = _expected(strength)
        spread = ((shares - expected[:, :, np.newaxis]) ** 2).sum(axis=2) + prior * (expected**2 + expected.T**2)
        used, variance = prior, spread / (games + 2 * prior)  # of a game's share
        prior = np.where(prior > 0, np.clip(variance / (2 * weight), LEAST_PRIOR, MOST_PRIOR), 0.0)
    spread = np.where(used > 0, spread, 0.0)
    inverse = np.linalg.inv(_information(weight * (games + 2 * used) * (used > 0)))
    deviation = np.sqrt(np.diag(inverse @ (np.diag(spread.sum(axis=1)) - spread) @ inverse))
    half = ELO * t_quantile(CONFIDENCE, max(games - 1, 1)) * deviation
    return [(float(r), (float(r - h), float(r + h))) for r, h in zip(ELO * strength, half, strict=True)]


def _strength(points: Matrix, games: int, prior: Matrix) -> NDArray[np.float64]:
    """Return the strengths of largest likelihood, whose mean is 0, by Newton's method.  # [M]"""
    strength, there = np.zeros(len(points)), prior > 0
    for _ in range(ROUNDS):
        expected, weight = _expected(strength)
        total = games + 2 * prior
        gradient = np.where(there, points + prior - total * expected, 0.0).sum(axis=1)
        step = np.linalg.solve(_information(total * weight * there), gradient)
        strength += np.clip(step, -LARGEST_STEP, LARGEST_STEP)
        strength -= strength.mean()
        if np.abs(step).max() < CLOSE:
            break
    return strength


def _expected(strength: NDArray[np.float64]) -> tuple[Matrix, Matrix]:
    """Return the expected share of every pair, and its derivative by the strength."""
    expected = 1 / (1 + np.exp(strength[np.newaxis] - strength[:, np.newaxis]))
    return expected, expected * (1 - expected)


def _information(weight: Matrix) -> Matrix:
    """Return the information about strengths, with 1 added for their sum, which is free."""
    return np.diag(weight.sum(axis=1)) - weight + 1.0


def cycles(beats: NDArray[np.bool_]) -> list[tuple[int, int, int]]:
    """Return all triples of which each beats the next one, and the last one the first.  # [M, M]"""
    around = (order for a, b, c in combinations(range(len(beats)), 3) for order in ((a, b, c), (a, c, b)))
    return [(a, b, c) for a, b, c in around if beats[a, b] and beats[b, c] and beats[c, a]]
