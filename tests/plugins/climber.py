"""A plug-in algorithm: one network that walks at random, as far as its return says."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np

from evo.options import AlgorithmOptions
from evo.randomness.streams import Purpose, episode_keys, stream
from evo.records import Algorithm, Arrays, Episodes, Finalists, Generation, Request, Task, WeightSource
from evo.setup import Setup

plugs_into = "algorithms"


class Options(AlgorithmOptions):
    """The [climber] section."""


class Climber(Algorithm):
    def __init__(self, setup: Setup) -> None:
        self.seed = setup.seed
        self.weights = np.zeros((1, setup.network.size), np.float32) if setup.start is None else setup.start[None]
        self.played: dict[str, Any] = {}

    def generation(self, number: int) -> Generation:
        key = np.array([stream(self.seed, Purpose.MUTATION, number)], np.uint64)
        zero, seeds = np.zeros(1, np.int32), episode_keys(self.seed, Purpose.TRAINING, number, 3)
        source = WeightSource(zero, zero - 1, key, np.full(1, 0.1, np.float32))
        (result,) = yield Request(self.weights, [Task(source, Episodes(seeds))])
        self.weights = self.weights + np.float32(result.returns.sum() / 1000)
        self.played = {"mean": np.array([result.returns.sum()], np.int64)}
        return {"mean": 0.0, "frames": float(result.frames), "slots": float(result.lane_slots)}

    def finalists(self, count: int) -> Finalists:
        return Finalists(self.weights)

    def state(self) -> Arrays:
        return {"position": self.weights}

    def record(self) -> Arrays:
        return self.played

    def restore(self, state: Arrays, records: Iterable[Arrays]) -> None:
        self.weights = np.array(state["position"], np.float32)


def make(options: Options, setup: Setup) -> Climber:
    return Climber(setup)
