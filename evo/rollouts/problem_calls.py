"""Calls of a fitness function where others play episodes."""

from __future__ import annotations

import math
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from evo import clock
from evo.environment import Environment
from evo.errors import ConfigurationError
from evo.games.step import are_finite
from evo.networks.candidates import Rebuilder
from evo.networks.keras_models import KerasModel
from evo.networks.network import Network
from evo.records import Episodes, Result, Task, empty_result, worst_of
from evo.workers import devices
from evo.workers.options import WorkersOptions

PROBED = 7  # the seed of the two calls that must agree


class ProblemCalls:
    """Calls the function of a problem with each candidate of a task, once a seed; an exact one once a candidate."""

    def __init__(self, network: Network, environment: Environment, workers: WorkersOptions) -> None:
        self.network, self.environment, self.size, self.kernel = network, environment, network.size, self
        self._problem, self._rebuilder, self._workers = environment.problem, Rebuilder(network), workers

    @cached_property
    def device(self) -> str:
        """What the model computes on; empty where there is none.

        A user who has used TensorFlow in this process has its devices and threads.
        """
        if not self._problem.model:
            return ""
        return devices.in_use() or devices.claim(self._workers)

    @property
    def fingerprint(self) -> str:
        """What computes the model; empty where there is none."""
        return devices.arithmetic_on(self.device) if self.device else ""

    @cached_property
    def _model(self) -> KerasModel | None:
        """The model, which is built in the process that calls the function, once it is pinned."""
        return KerasModel(self._problem.model) if self.device else None

    def _values(self, weights: NDArray[np.float32], seed: int) -> NDArray[np.float64]:
        values: NDArray[np.float64] = self._problem.values(weights, seed, self._model)
        return values

    def play(self, task: Task, parents: NDArray[np.float32]) -> Result:
        """Return the fitness of each candidate as returns; `frames` are calls.  # parents [S, P]"""
        assert isinstance(task.play, Episodes)
        seeds, candidates = task.play.seeds, len(task.weights)
        measures = len(self._problem.measures)
        arrays = empty_result(candidates, len(seeds), measures, np.float64)
        arrays["episode_metrics"] = np.zeros((candidates, len(seeds), measures))  # in float64, as fitness is
        weights, calls = np.empty(self.size, np.float32), 0
        for k in range(candidates):
            clock.progress.made()
            self._rebuilder.rebuild(parents, task.weights, k, weights)
            if not np.isfinite(weights).all():
                continue
            called = [int(seed) for seed in (seeds if self._problem.seeded else seeds[:1])]
            values = np.array([self._values(weights, seed) for seed in called]).reshape(len(called), 1 + measures)
            calls += len(called)
            finite = np.array([are_finite(row) for row in values])  # [E], or [1]
            arrays["finite"][k] = finite.all()
            if arrays["finite"][k] or task.evaluation:  # in training one call that is not is enough to rank worst
                arrays["lengths"][k] = 1
                arrays["returns"][k] = np.where(finite, values[:, 0], worst_of(arrays["returns"]))
                arrays["episode_metrics"][k] = np.where(finite[:, np.newaxis], values[:, 1:], 0.0)
        return Result(**arrays, frames=calls, lane_slots=calls)

    def seed_check(self) -> str:
        """Return "ignored" where two calls with the first vector and the same seed differ; else ""."""
        clock.progress.made()
        clock.progress.say_called(f"{self._problem.module}:{self._problem.name}")
        try:
            one, other = (float(self._values(self._problem.first, PROBED)[0]) for _ in range(2))
        except ConfigurationError:  # zeros, where the search does not begin; else it is named where it is played
            return ""
        return "" if one == other or math.isnan(one) else "ignored"
