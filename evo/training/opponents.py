"""Networks that play the other seats in training: candidates of the generation, and former champions of the run."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from evo.environment import Curriculum
from evo.randomness.streams import Purpose, candidate_keys, draws
from evo.records import Arrays, Request, WeightSource

HALL = "hall_of_fame"  # the array of a checkpoint
MOST = 64  # former champions that are kept, the newest ones


class NetworkOpponents:
    """Names the opponents of every generation, and keeps the hall of fame where one is asked for."""

    def __init__(self, seed: int, curriculum: Curriculum | None) -> None:
        self._seed, self._curriculum = seed, curriculum
        training = () if curriculum is None else curriculum.training
        self.keeps = any(one.opponents is not None and "hall" in one.opponents.networks for one in training)
        self._hall: NDArray[np.float32] = np.empty((0, 0), np.float32)  # [H, P]
        self._first = 0  # row of the published matrix at which the hall begins

    def admit(self, champion: NDArray[np.float32]) -> None:
        """Keep a champion.  # [P]"""
        if self.keeps:
            self._hall = np.concatenate([self._hall.reshape(-1, len(champion)), champion[np.newaxis]])[-MOST:]

    def state(self) -> Arrays:
        """Return the hall of fame by name, if there is one."""
        return {HALL: self._hall} if self.keeps else {}

    def restore(self, state: Arrays) -> None:
        """Take the hall of fame from a checkpoint."""
        self._hall = np.ascontiguousarray(state.get(HALL, np.empty((0, 0))), np.float32)

    def matched(self, request: Request, number: int) -> Request:
        """Return the request of a generation with the opponents that its environment asks for.

        Of each kind in turn, `count` are drawn, and every candidate plays against all of them. Where nobody is in the
        hall of fame yet, the population stands in. A gradient method has a population of one.
        """
        options = None if self._curriculum is None else self._curriculum.environment(number).opponents
        if options is None or not request.tasks:
            return request
        weights, hall = request.weights, self._hall
        if weights is not None:
            self._first = len(weights)
            weights = np.concatenate([weights, hall]) if len(hall) else weights
        sources = [task.weights for task in request.tasks]
        keys = candidate_keys(self._seed, Purpose.OPPONENT, number, 0, options.count)
        population, former = draws(keys, 0, sum(map(len, sources))), draws(keys, 1, max(1, len(hall)))
        names = [options.networks[n % len(options.networks)] for n in range(options.count)]
        chosen = [
            WeightSource.of_row(self._first + int(former[n])) if name == "hall" and len(hall) else
            _candidate(sources, int(population[n])) for n, name in enumerate(names)
        ]  # fmt: skip
        opponents = _together(chosen)
        return Request(weights, [replace(task, opponents=opponents) for task in request.tasks])


def _candidate(sources: Sequence[WeightSource], number: int) -> WeightSource:
    """Return the source of one candidate of all tasks."""
    for source in sources:
        if number < len(source):
            return source.some([number])
        number -= len(source)
    raise IndexError(number)


def _together(sources: Sequence[WeightSource]) -> WeightSource:
    """Return the source of networks that have one each."""
    parts: dict[str, Any] = {
        name: np.concatenate([getattr(one, name) for one in sources]) for name in ("rows", "mates", "keys", "sigmas")
    }
    like = max(sources, key=lambda one: (one.crossover != "none", one.scale))
    return replace(like, published="", **parts)
