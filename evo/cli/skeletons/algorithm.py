"""my_algorithm: random search around the best network so far."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from pydantic import Field

from evo.networks.candidates import Rebuilder
from evo.options import AlgorithmOptions
from evo.randomness.streams import Purpose, candidate_keys, episode_keys
from evo.records import Algorithm, Arrays, Episodes, Finalists, Generation, Request, Task, WeightSource, summed, unit_of
from evo.setup import Setup

plugs_into = "algorithms"


class Options(AlgorithmOptions):
    """The [my_algorithm] section."""

    children: int = Field(64, ge=1, le=100_000, description="networks per generation")
    episodes: int = Field(8, ge=1, le=100_000, description="episodes of each")
    sigma: float = Field(0.1, gt=0, le=1000, description="standard deviation of the noise on a child's weights")


class MyAlgorithm(Algorithm):
    """One network, which the best of its children replaces where it is no worse."""

    def __init__(self, options: Options, setup: Setup) -> None:
        self.options, self.seed, self.network = options, setup.seed, setup.network
        begun = np.empty((0, setup.network.size), np.float32)
        self.weights = begun if setup.start is None else setup.start[np.newaxis]  # [0 or 1, P]
        self.returns = np.zeros(0, np.int64)

    # A generation is a coroutine: it yields a request, is sent one result for each task, and returns its metrics.
    def generation(self, number: int) -> Generation:
        """Play the network and its children on the same episodes, and keep the best."""
        count = self.options.children + 1
        # Networks cross process borders as recipes: child k is a row of the published weights, plus sigma times the
        # noise that its key names; row -1 is a new network. All random numbers come from named streams.
        rows = np.full(count, len(self.weights) - 1, np.int32)
        keys = candidate_keys(self.seed, Purpose.MUTATION, number, 0, count)
        sigmas = np.full(count, self.options.sigma, np.float32)
        sigmas[0] = 0.0  # candidate 0 is the network itself
        source = WeightSource(rows, np.full(count, -1, np.int32), keys, sigmas)
        seeds = episode_keys(self.seed, Purpose.TRAINING, number, self.options.episodes)
        parts = [slice(first, first + 16) for first in range(0, count, 16)]
        tasks = [Task(source.some(part), Episodes(seeds)) for part in parts]
        results = yield Request(self.weights if len(self.weights) else None, tasks)
        # Sums [children + 1], the lowest number where outputs were not finite. Games count in whole thousandths.
        self.returns = summed(np.concatenate([result.returns for result in results]))
        best = int(np.argmax(self.returns))
        kept = np.empty((1, self.network.size), np.float32)
        Rebuilder(self.network).rebuild(self.weights, source, best, kept[0])
        self.weights = kept
        return {
            "best": float(self.returns[best]) / (unit_of(self.returns) * self.options.episodes),
            "frames": float(sum(result.frames for result in results)),
            "slots": float(sum(result.lane_slots for result in results)),
        }

    def finalists(self, count: int) -> Finalists:
        """Return the networks that may become champion; the trainer validates them."""
        return Finalists(self.weights)

    # A run goes on from what these return, with the same bits. All arrays are hashed.
    def state(self) -> Arrays:
        """Return all that is needed to go on."""
        return {"weights": self.weights}

    def record(self) -> Arrays:
        """Return what the last generation did."""
        return {"return": self.returns}

    def restore(self, state: Arrays, records: Sequence[Arrays]) -> None:
        """Go on from what `state` returned."""
        self.weights = np.array(state["weights"], np.float32)


def make(options: Options, setup: Setup) -> MyAlgorithm:
    """Return the algorithm."""
    return MyAlgorithm(options, setup)
