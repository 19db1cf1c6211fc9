"""Generations of an algorithm in this process: what it asks for is answered by a function, or played."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from evo.environment import Environment
from evo.networks.network import Network
from evo.records import WORST, Metrics, Request, Result
from evo.rollouts.rollout import Rollout

Answer = Callable[[Request], Sequence[Result]]


def drive(algorithm: Any, number: int, answer: Answer) -> Metrics:
    """Run one generation, answering every request; return its metrics."""
    rounds, results = algorithm.generation(number), None
    while True:
        try:
            request = rounds.send(results)
        except StopIteration as stop:
            metrics: Metrics = stop.value
            return metrics
        results = answer(request)


def results_of(
    request: Request, returns: ArrayLike, lengths: ArrayLike = 1, metrics: ArrayLike | None = None
) -> list[Result]:
    """Return results in which each candidate has one return, length and metrics in all of its episodes.

    `returns` and `lengths` are [N] or one for all, `metrics` [N, M]; without them there are none.
    """
    count = sum(len(task.weights) for task in request.tasks)
    scores, steps = np.broadcast_to(returns, count), np.broadcast_to(lengths, count)
    measured = np.zeros((count, 0)) if metrics is None else np.asarray(metrics)
    results, first = [], 0
    for task in request.tasks:
        part, episodes = slice(first, first + len(task.weights)), len(task.play.seeds)
        per_episode = [np.repeat(values[part, np.newaxis], episodes, 1) for values in (scores, steps, measured)]
        played, taken, others = per_episode[0].astype(np.int64), *(x.astype(np.int32) for x in per_episode[1:])
        frames = int(taken.sum())
        results.append(Result(played, taken, others, played[:, 0] != WORST, frames, frames))
        first = part.stop
    return results


def player(network: Network, environment: Environment) -> Answer:
    """Return an answer that plays the tasks, by the weights that were published last."""
    rollout, published = Rollout(network, environment), np.empty((0, network.size), np.float32)

    def answer(request: Request) -> list[Result]:
        nonlocal published
        published = published if request.weights is None else request.weights
        return [rollout.play(task, published) for task in request.tasks]

    return answer
