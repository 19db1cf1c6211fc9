"""Searches of other libraries as an algorithm of ours: `--plugin benchmarks.peers.searches --algorithm searches`.

Their candidates play our episodes, and our trainer validates and tests, so a run differs from ours in the search alone.
All begin around the fresh network of the seed, with `searches.sigma`; their other settings are those of the library's
own examples. Needs what is in searches.txt. A run cannot be resumed.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Generator
from functools import partial
from typing import Any, Literal, TypeAlias

import numpy as np
from numpy.typing import NDArray

from evo.errors import ConfigurationError
from evo.evolution import strategy
from evo.evolution.population import AliveBonus, AliveSteps, PerCandidate
from evo.records import Arrays, Metrics, WeightSource

plugs_into = "algorithms"

Floats: TypeAlias = NDArray[np.float64]
# Yields candidates [N, P] and the network to validate [P]; is sent fitness [N].
Asking: TypeAlias = Generator[tuple[Floats, Floats], Floats, None]


class Options(strategy.StrategyOptions):
    """The [searches] section."""

    library: Literal["pycma", "deap", "evosax_ga", "evosax_cma", "evotorch"] = "pycma"
    episodes: PerCandidate = 4  # and the rest as in ga_snake_6x6.toml
    alive_bonus: AliveBonus = 0.001
    alive_steps: AliveSteps = 50


def pycma(start: Floats, options: Options, seed: int) -> Asking:
    """Separable CMA-ES of pycma."""
    import cma

    settings = {"popsize": options.population, "CMA_diagonal": True, "seed": seed + 1, "verbose": -9}
    search = cma.CMAEvolutionStrategy(start, options.sigma, settings)
    while True:
        asked = search.ask()
        fitness = yield np.array(asked), search.mean
        search.tell(asked, (-fitness).tolist())


def deap(start: Floats, options: Options, seed: int) -> Asking:
    """The loop of DEAP's `eaSimple`, with `cxBlend`, `mutGaussian` and tournaments of three."""
    from deap import algorithms, base, creator, tools

    random.seed(seed)
    creator.create("Return", base.Fitness, weights=(1.0,))
    creator.create("Vector", list, fitness=creator.Return)
    toolbox = base.Toolbox()
    toolbox.register("mate", tools.cxBlend, alpha=0.5)
    toolbox.register("mutate", tools.mutGaussian, mu=0.0, sigma=options.sigma, indpb=0.1)
    population = [creator.Vector(row) for row in around(start, options, seed)]
    best = start
    while True:
        fitness = yield np.array(population), best
        for one, value in zip(population, fitness.tolist(), strict=True):
            one.fitness.values = (value,)
        best = np.array(tools.selBest(population, 1)[0])
        chosen = tools.selTournament(population, len(population), tournsize=3)
        population = algorithms.varAnd(chosen, toolbox, cxpb=0.5, mutpb=0.2)


def evosax(start: Floats, options: Options, seed: int, name: str) -> Asking:
    """A search of evosax, which minimises: its simple genetic algorithm, or separable CMA-ES."""
    import jax
    from evosax import algorithms

    key = jax.random.key(seed)
    if name == "SimpleGA":
        search = algorithms.SimpleGA(options.population, start, std_schedule=lambda _: options.sigma)
        parameters = search.default_params
        first = around(start, options, seed)
        fitness = yield first, start
        state = search.init(key, first, -fitness, parameters)
    else:
        search = getattr(algorithms, name)(options.population, start)
        parameters = search.default_params.replace(std_init=options.sigma)
        state = search.init(key, start, parameters)
    while True:
        key, asking, telling = jax.random.split(key, 3)
        asked, state = search.ask(asking, state, parameters)
        centre = search.get_best_solution(state) if name == "SimpleGA" else search.get_mean(state)
        fitness = yield np.asarray(asked, np.float64), np.asarray(centre, np.float64)
        state, _ = search.tell(telling, asked, -fitness, state, parameters)


def evotorch(start: Floats, options: Options, seed: int) -> Asking:
    """PGPE of EvoTorch with ClipUp, whose speeds follow from sigma as in its example of Humanoid."""
    import torch
    from evotorch.algorithms.functional import pgpe, pgpe_ask, pgpe_tell

    torch.manual_seed(seed)
    speed = options.sigma * len(start) ** 0.5 / 15
    state = pgpe(
        center_init=torch.from_numpy(start),
        center_learning_rate=speed / 2,
        stdev_learning_rate=0.1,
        objective_sense="max",
        ranking_method="centered",
        optimizer="clipup",
        optimizer_config={"max_speed": speed},
        stdev_init=options.sigma,
    )
    while True:
        asked = pgpe_ask(state, popsize=options.population)
        fitness = yield asked.numpy(), state.optimizer_state.center.numpy()
        state = pgpe_tell(state, asked, torch.from_numpy(fitness))


def around(start: Floats, options: Options, seed: int) -> Floats:
    """Return a first population: a network and noise.  # [N, P]"""
    noise = np.random.default_rng(seed).standard_normal((options.population, len(start)))
    return start + options.sigma * noise


LIBRARIES: dict[str, Callable[[Floats, Options, int], Asking]] = {
    "pycma": pycma,
    "deap": deap,
    "evosax_ga": partial(evosax, name="SimpleGA"),
    "evosax_cma": partial(evosax, name="Sep_CMA_ES"),
    "evotorch": evotorch,
}


class Asked(strategy.Distribution):
    """The candidates that a library asks for."""

    def __init__(self, options: Options, mean: Floats) -> None:
        self.options, self.mean = options, mean
        self._search: Asking | None = None

    def candidates(self, seed: int, number: int) -> WeightSource:
        """Return the network to validate, and the candidates, all of them published."""
        if self._search is None:
            self._search = LIBRARIES[self.options.library](self.mean, self.options, seed)
            self._asked, self.mean = next(self._search)
        return WeightSource.of_rows(1 + self.options.population)

    def published(self) -> NDArray[np.float32]:
        """Return the network to validate, and the candidates.  # [1 + N, P]"""
        return np.vstack((self.mean, self._asked)).astype(np.float32)

    def update(self, source: WeightSource, fitness: NDArray[Any], number: int) -> Metrics:
        """Tell the library."""
        assert self._search is not None
        self._asked, self.mean = self._search.send(fitness.astype(np.float64))
        return {}

    def state(self) -> dict[str, NDArray[Any]]:
        """Return nothing: the library has it."""
        return {}

    def restore(self, state: Arrays) -> None:
        """Raise ConfigurationError."""
        raise ConfigurationError("a search of another library cannot be resumed; train it anew")


make = partial(strategy.EvolutionStrategy, distribution=Asked)
