"""Networks that play the other seats: candidates of the generation, and champions of the run so far.

In training they are what a table names; in validation, finalists meet champions where the environment names the hall.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from evo.config.experiment import Experiment
from evo.environment import Curriculum, Environment
from evo.games.declaration import GameOptions
from evo.games.seats import ITSELF
from evo.randomness.streams import Purpose, candidate_keys, draws
from evo.records import Arrays, Request, Segment, WeightSource

HALL, SINCE, LOST = "hall_of_fame", "hall_of_fame_since", "hall_of_fame_lost"  # arrays of a checkpoint
MOST = 64  # networks in the hall of fame: those of files, and the newest champions
FILE = -1  # instead of a generation, of networks of files
UNKNOWN, ALL = 500, 1000  # thousandths of games that finalists lose to a champion: before any is known, and at most


class NetworkOpponents:
    """Names the opponents of every generation, and keeps the hall of fame where one is asked for."""

    def __init__(self, seed: int, curriculum: Curriculum) -> None:
        self._seed, self._curriculum = seed, curriculum
        self.keeps = any(one.opponents is not None and "hall" in one.opponents.networks for one in _all(curriculum))
        self._hall: NDArray[np.float32] = np.empty((0, 0), np.float32)  # [H, P]
        self._since: NDArray[np.int64] = np.empty(0, np.int64)  # [H] generations in which they became champions
        self._lost: NDArray[np.int64] = np.empty(0, np.int64)  # [H] thousandths of games that finalists lose to them
        self._first, self._at = 0, -1  # row of the matrix at which the hall begins, and generation that published it
        self._met: list[int] = []  # rows of the hall that the last validation meets

    def begin(self, weights: NDArray[np.float32]) -> None:
        """Begin with networks of files in the hall of fame.  # [F, P]"""
        self._hall, self._since = weights, np.full(len(weights), FILE, np.int64)
        self._lost = np.full(len(weights), UNKNOWN, np.int64)

    def admit(self, champion: NDArray[np.float32], generation: int) -> None:
        """Keep the champion of a generation.  # [P]"""
        if self.keeps:
            files = int((self._since == FILE).sum())
            stays = [*range(files), *range(max(files, len(self._since) + 1 + files - MOST), len(self._since))]
            self._hall = np.concatenate([self._hall[stays].reshape(-1, len(champion)), champion[np.newaxis]])
            self._since = np.append(self._since[stays], generation)
            self._lost = np.append(self._lost[stays], UNKNOWN)

    def state(self) -> Arrays:
        """Return the hall of fame by name, if there is one."""
        return {HALL: self._hall, SINCE: self._since, LOST: self._lost} if self.keeps else {}

    def restore(self, state: Arrays) -> None:
        """Take the hall of fame from a checkpoint."""
        self._hall = np.ascontiguousarray(state.get(HALL, np.empty((0, 0))), np.float32)
        self._since, self._lost = (np.asarray(state.get(name, ()), np.int64) for name in (SINCE, LOST))

    def of_validation(self) -> NDArray[np.float32]:
        """Return the champions that finalists meet: evenly from the first one on, with the newest.  # [N, P]"""
        options = self._curriculum.evaluation.opponents
        last = len(self._hall) - 1
        count = 0 if options is None else min(options.count, last + 1)
        self._met = [last - k * last // max(1, count - 1) for k in range(count)]
        return self._hall[self._met]

    def note(self, parts: Sequence[NDArray[np.int64]]) -> None:
        """Record how often finalists lost to each network of `of_validation`, met in turn in each part.  # [F, E]"""
        self._lost = self._lost.copy()  # a state that has it is kept elsewhere
        for k, row in enumerate(self._met):
            lost = np.concatenate([(part[:, k :: len(self._met)] < 0).ravel() for part in parts])
            self._lost[row] = ALL * int(lost.sum()) // max(1, len(lost))

    def _former(self, keys: NDArray[np.uint64], draw: str) -> NDArray[np.int64]:
        """Return rows of the hall that these keys draw; prioritised by the squares of what finalists lose to them."""
        count = len(self._hall)
        if draw == "prioritised" and count:
            ends = np.cumsum(np.maximum(self._lost, 1) ** 2)
            return np.asarray(np.searchsorted(ends, draws(keys, 1, int(ends[-1])), side="right"), np.int64)
        among = min(len(keys), count) if draw == "recent" else count
        return count - among + np.asarray(draws(keys, 1, max(1, among)), np.int64)

    def matched(self, request: Request, number: int, age: int) -> Request:
        """Return the request of a generation, of this `age` in its search, with opponents of its environment.

        `count` are named, each kind in turn, and every candidate plays against all of them. Where nobody is in the
        hall of fame yet, the population stands in. A gradient method has a population of one.
        """
        curriculum = self._curriculum
        if curriculum.turn(age) is None or not request.tasks:
            return request
        environment = curriculum.environment(age)
        options = environment.opponents
        if options is None:
            return request
        weights, hall = request.weights, self._hall
        if len(hall) and (weights is not None or self._at != number):  # fresh candidates need no weights
            self._first, self._at = (0 if weights is None else len(weights)), number
            weights = hall if weights is None else np.concatenate([weights, hall])
        sources = [task.weights for task in request.tasks]
        keys = candidate_keys(self._seed, Purpose.OPPONENT, number, 0, options.count)
        population = draws(keys, 0, sum(map(len, sources)))
        former = self._former(keys, options.draw)
        numbers = dict(zip(options.baselines, environment.game.opponents, strict=True))

        def chosen(n: int) -> WeightSource:
            name = options.players[n % len(options.players)]
            if name in numbers:
                return WeightSource.of_row(ITSELF + numbers[name])
            if name == "hall" and len(hall):
                return WeightSource.of_row(self._first + int(former[n]))
            if options.learn_from == "all" and isinstance(request.tasks[0].play, Segment):
                return WeightSource.of_row(ITSELF)
            return _candidate(sources, int(population[n]))

        opponents = _together([chosen(n) for n in range(options.count)])
        return Request(weights, [replace(task, opponents=opponents) for task in request.tasks])


def opponents_of(seed: int, curriculum: Curriculum | None) -> NetworkOpponents | None:
    """Return the opponents of a run, if an environment of it has any."""
    if curriculum is None or not any(one.opponents for one in _all(curriculum)):
        return None
    return NetworkOpponents(seed, curriculum)


def without_effect(experiment: Experiment) -> list[str]:
    """Return in a line which option of opponents this algorithm does not use, as the options of other algorithms."""
    tables = [one for one in experiment.environment.in_training() if isinstance(one, GameOptions)]
    if experiment.learns or not any(one.opponents.learn_from == "all" for one in tables):
        return []
    return [
        f"environment.training.opponents.learn_from has no effect: the algorithm is {experiment.algorithm}, which "
        "does not learn from steps"
    ]


def _all(curriculum: Curriculum) -> tuple[Environment, ...]:
    """Return the environments of validation and of training."""
    return curriculum.evaluation, *curriculum.training


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
