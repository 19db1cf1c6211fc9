"""DEAP's way to a generation: children are copied and mutated, and pickled to `multiprocessing.Pool`.

Mutation is `mutGaussian`, which draws number by number in Python, or the same noise drawn by NumPy. Networks are played
by our kernel on our boards, so what is compared is all that is not playing.
"""

from __future__ import annotations

import array
import multiprocessing
import random
import time
from typing import Any

import numpy as np
from deap import base, creator, tools

from benchmarks.peers import answer
from evo.games.catalogue import snake
from evo.networks.network import Network
from evo.networks.network import Options as Policy
from evo.records import Episodes, Task, WeightSource
from evo.rollouts.rollout import Rollout

creator.create("Fitness", base.Fitness, weights=(1.0,))
creator.create("Individual", array.array, typecode="f", fitness=creator.Fitness)

PLAYER: dict[str, Any] = {}
ITSELF = WeightSource(np.zeros(1, np.int32), np.full(1, -1, np.int32), np.zeros(1, np.uint64), np.zeros(1, np.float32))
RANDOM = np.random.default_rng(1)


def mutate_by_numpy(individual: Any, sigma: float) -> tuple[Any]:
    """Add normal noise to all weights of a candidate, in place, as `mutGaussian` with `indpb` 1 does."""
    weights = np.frombuffer(individual, np.float32)
    weights += np.float32(sigma) * RANDOM.standard_normal(len(weights), np.float32)
    return (individual,)


def prepare(policy: dict[str, Any], environment: dict[str, Any], seeds: list[int]) -> None:
    """Make what plays, once in every worker."""
    made = snake.make(snake.Options(**environment))
    PLAYER["rollout"] = Rollout(Network.build(Policy(**policy), made.shape, made.actions), made)
    PLAYER["seeds"] = np.array(seeds, np.uint64)


def evaluate(individual: Any) -> tuple[float, int]:
    """Return the summed return of a candidate, in thousandths, and the frames that it has played."""
    weights = np.frombuffer(individual, np.float32).reshape(1, -1)
    result = PLAYER["rollout"].play(Task(ITSELF, Episodes(PLAYER["seeds"])), weights)
    return float(result.returns.sum()), result.frames


class Evolution:
    """A genetic algorithm whose pool waits between two generations."""

    def begin(
        self, mutation: str, policy: dict[str, Any], environment: dict[str, Any], seeds: list[int], weights: str,
        parents: int, sigma: float, workers: int,
    ) -> dict[str, Any]:  # fmt: skip
        """Play the candidates of a file [N, P]; return their returns. `mutation`: "mutGaussian" or "NumPy noise"."""
        self._toolbox = toolbox = base.Toolbox()
        if mutation == "mutGaussian":
            toolbox.register("mutate", tools.mutGaussian, mu=0.0, sigma=sigma, indpb=1.0)
        else:
            toolbox.register("mutate", mutate_by_numpy, sigma=sigma)
        toolbox.register("select", tools.selBest, k=parents)
        toolbox.register("evaluate", evaluate)
        random.seed(1)
        pool = multiprocessing.get_context("fork").Pool(workers, prepare, (policy, environment, seeds))
        toolbox.register("map", pool.map)
        self._population = [creator.Individual(row) for row in np.load(weights)]
        ranked(toolbox, self._population)
        return {"first": [individual.fitness.values[0] for individual in self._population]}

    def generation(self) -> dict[str, Any]:
        """Make and play a generation; return what it took."""
        toolbox, began = self._toolbox, time.perf_counter()
        chosen = toolbox.select(self._population)
        children = [toolbox.clone(random.choice(chosen)) for _ in self._population]
        for child in children:
            toolbox.mutate(child)
            del child.fitness.values
        mutated = time.perf_counter()
        frames = ranked(toolbox, children)
        self._population = children
        return {"seconds": time.perf_counter() - began, "breeding": mutated - began, "frames": sum(frames)}

    def answer(self, what: str, **arguments: Any) -> dict[str, Any]:
        """Begin, or play a generation."""
        return self.begin(**arguments) if what == "begin" else self.generation()


def ranked(toolbox: Any, population: list[Any]) -> list[int]:
    """Give every candidate its fitness; return the frames of each."""
    played = toolbox.map(toolbox.evaluate, population)
    for individual, (fitness, _) in zip(population, played, strict=True):
        individual.fitness.values = (fitness,)
    return [frames for _, frames in played]


if __name__ == "__main__":
    answer(Evolution().answer)
