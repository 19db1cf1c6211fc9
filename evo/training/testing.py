"""The score that can be trusted: a champion on sealed episodes, which training never sees, with 95 % intervals."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from statistics import NormalDist, median
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from evo.cli.terminal.summary import Heldout
from evo.errors import DataError
from evo.randomness.streams import seeds_of_test_episodes
from evo.records import ActionRule, Episodes, Evaluator, Result, Task, WeightSource

EPISODES_PER_TASK = 64
CONFIDENCE = 0.95

Publish = Callable[[NDArray[np.float32]], str]


def measure(
    weights: NDArray[np.float32],
    publish: Publish,
    evaluator: Evaluator,
    episode_metrics: Sequence[str],
    episodes: int,
    rule: Literal["greedy", "softmax", "gaussian"] = "greedy",
) -> tuple[Heldout, NDArray[np.float64]]:
    """Play `weights` [P] on the first sealed episodes; return what it did, and the score of every episode.  # [E]

    The score is the measure of that name, elsewhere the return. DataError: the network's scores are not finite.
    PoisonError: the network ends its workers.
    """
    source = itself(publish(weights[np.newaxis]))
    seeds = seeds_of_test_episodes(episodes)
    parts = [seeds[first : first + EPISODES_PER_TASK] for first in range(0, episodes, EPISODES_PER_TASK)]
    results = evaluator.map([Task(source, Episodes(part), ActionRule(rule)) for part in parts])
    for poison in getattr(evaluator, "poisoned", ()):
        raise poison  # a score that ranks worst in training is no score here
    if not all(result.finite[0] for result in results):
        raise DataError("the champion cannot be measured: its scores of actions are not finite")
    scores = np.concatenate([score_of(result, episode_metrics) for result in results])
    lengths = np.concatenate([result.lengths[0] for result in results])
    mean, interval = mean_interval(scores.tolist())
    wins = win_ci95 = None
    if "won" in episode_metrics:
        won = sum(int(result.episode_metrics[0, :, episode_metrics.index("won")].sum()) for result in results)
        wins, win_ci95 = won / episodes, rate_interval(won, episodes)
    heldout = Heldout(
        episodes=episodes,
        mean=mean,
        ci95=interval,
        median=float(median(scores.tolist())),
        max=float(scores.max()),
        win_rate=wins,
        win_ci95=win_ci95,
        mean_length=int(lengths.sum(dtype=np.int64)) / episodes,
    )
    return heldout, scores


def itself(published: str) -> WeightSource:
    """Return the source of the one network in a published file, unchanged."""
    zero = np.zeros(1, np.int32)
    return WeightSource(zero, zero - 1, zero.astype(np.uint64), zero.astype(np.float32), published=published)


def score_of(result: Result, episode_metrics: Sequence[str]) -> NDArray[np.float64]:
    """Return the score of every episode of a result's first candidate.  # [E]"""
    if "score" in episode_metrics:
        return result.episode_metrics[0, :, episode_metrics.index("score")].astype(np.float64)
    return np.asarray(result.returns[0] / 1000.0, np.float64)


def reference_scores(environment: Any, episodes: int) -> Mapping[str, float]:
    """Return the mean score of players that need no learning on the first sealed episodes; empty beside Snake."""
    if environment.id != "snake":
        return {}
    from snake.bots import play

    names = ("size", "starvation", "max_steps", "tail", "start_length", "actions")
    options = {name: getattr(environment, name) for name in names}
    seeds = seeds_of_test_episodes(episodes).tolist()
    scores = {name: sum(play(name, seed, **options) for seed in seeds) / episodes for name in ("random", "greedy")}
    return {**scores, "perfect": float(environment.size**2 - environment.start_length)}


def mean_interval(values: Sequence[float]) -> tuple[float, tuple[float, float]]:
    """Return the mean and Student's interval of it; one value alone has none, which is NaN."""
    count = len(values)
    mean = math.fsum(values) / count
    if count < 2:
        return mean, (math.nan, math.nan)
    variance = math.fsum((value - mean) ** 2 for value in values) / (count - 1)
    half = student_quantile(count - 1) * math.sqrt(variance / count)
    return mean, (mean - half, mean + half)


def rate_interval(successes: int, count: int) -> tuple[float, float]:
    """Return Wilson's score interval of a rate (Wilson, 1927), which stays within 0 and 1."""
    z = NormalDist().inv_cdf((1 + CONFIDENCE) / 2)
    rate, spread = successes / count, z * z / count
    middle = (rate + spread / 2) / (1 + spread)
    half = z / (1 + spread) * math.sqrt(rate * (1 - rate) / count + spread / (4 * count))
    low = 0.0 if successes == 0 else middle - half
    high = 1.0 if successes == count else middle + half
    return low, high


def student_quantile(degrees: int) -> float:
    """Return t with P(|T| <= t) = 0.95 for Student's T of so many degrees of freedom, by bisection."""
    low, high = 0.0, 16.0  # one degree has 12.7
    for _ in range(80):
        middle = (low + high) / 2
        # P(|T| > t) = I_x(degrees / 2, 1 / 2) with x = degrees / (degrees + t^2)
        tail = incomplete_beta(degrees / (degrees + middle * middle), degrees / 2, 0.5)
        low, high = (middle, high) if tail > 1 - CONFIDENCE else (low, middle)
    return (low + high) / 2


def incomplete_beta(x: float, a: float, b: float) -> float:
    """Return the regularised incomplete beta function I_x(a, b), by its continued fraction (DLMF 8.17.22)."""
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
