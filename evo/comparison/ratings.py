"""Ratings of players by the points that they win off each other (Bradley and Terry, 1952), on the scale of Elo (1978).

A rating of 400 more stands for odds of 10 to 1. Both players of a pair have some points before any game, by which
estimates lose their bias (Firth, 1993), and who wins all games has a finite rating.
"""

from __future__ import annotations

import math
from itertools import combinations

import numpy as np
from numpy.typing import NDArray

from evo.statistics import CONFIDENCE, Interval, t_quantile

ELO = 400 / math.log(10)
ROUNDS, CLOSE = 100, 1e-10  # of Newton's method; the largest step at its end
LARGEST_STEP = 2.0
LEAST_PRIOR, MOST_PRIOR = 0.05, 0.5  # points that both players of a pair have before any game
Matrix = NDArray[np.float64]


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
