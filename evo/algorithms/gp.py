"""Genetic programming: decision trees by DEAP's typed crossover and mutation (Koza, 1992; Montana, 1995).

Parents are selected by double tournaments, on fitness and on size, which keeps trees short (Luke and Panait, 2002).
Elites are evaluated again in every generation, on the new episodes.
"""

from __future__ import annotations

from collections.abc import Sequence
from operator import attrgetter
from typing import Any

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from evo.errors import ConfigurationError
from evo.evolution.population import LARGEST_POPULATION, PopulationAlgorithm, PopulationOptions, finalists_of
from evo.evolution.toolbox import drawing_from, fitness_class
from evo.randomness.streams import Purpose, stream
from evo.records import Arrays, Finalists, Generation, WeightSource
from evo.setup import Setup

TRIES = 4  # mutations of a child that is there already, at most


class Options(PopulationOptions):
    """The [gp] section."""

    elites: int = Field(16, ge=1, le=LARGEST_POPULATION, description="best trees, which stay unchanged and play again")
    tournament: int = Field(5, ge=1, le=1000, description="trees per tournament on fitness")
    parsimony: float = Field(
        1.2,
        ge=1,
        le=2,
        description="the shorter of two tournament winners is a parent with probability parsimony / 2",
    )
    crossover: float = Field(0.5, ge=0, le=1, description="share of the children that have two parents")
    nudge: float = Field(
        0.5, ge=0, le=1, description="share of mutations that move one threshold; the others replace a subtree"
    )
    largest_threshold: float = Field(
        1.0, gt=0, le=1e9, description="largest absolute value of a random threshold, in units of observations"
    )

    def _check(self) -> None:
        if self.elites >= self.population:
            raise ValueError(f"elites: {self.elites} must be less than the population, {self.population}")


class GeneticProgramming(PopulationAlgorithm):
    """A population of trees, stored as weights of the network that plays them."""

    def __init__(self, options: Options, setup: Setup) -> None:
        """Prepare; `setup.start` [P] is the only parent of the first trees.

        ConfigurationError: the policy is not a decision tree, or the environment's actions are no choices.
        """
        from deap import base, gp, tools

        from evo.evolution.trees import Trees

        if setup.environment is not None and setup.environment.continuous:
            raise ConfigurationError("gp: leaves of a tree are choices, but actions of this environment are numbers")
        super().__init__(options, setup)
        self.trees = trees = Trees(setup.network, options.largest_threshold)

        class Grown(gp.PrimitiveTree):  # type: ignore[misc]
            """A tree and its fitness."""

            def __init__(self, nodes: Any) -> None:
                super().__init__(nodes)
                self.fitness = fitness_class(1)()

        self._tree = Grown
        self.toolbox = toolbox = base.Toolbox()
        toolbox.register(
            "select",
            tools.selDoubleTournament,
            fitness_size=options.tournament,
            parsimony_size=options.parsimony,
            fitness_first=True,
        )
        toolbox.register("mate", gp.cxOnePoint)
        toolbox.register("mutate", trees.mutated, nudge=options.nudge)
        for operator in ("mate", "mutate"):
            toolbox.decorate(operator, gp.staticLimit(attrgetter("height"), trees.depth))
        self._population = self._start  # [N, P] that was evaluated last
        self._fitness: NDArray[Any] = np.zeros(len(self._start), np.int64)  # [N]
        self._nodes: list[list[Any]] = []  # of each tree of the population, once they have been read from its weights

    def generation(self, number: int) -> Generation:
        """Play a population of trees, of which the next one is made."""
        population = self._next(number)
        outcome = yield from self.played(number, population, WeightSource.of_rows(len(population)))
        self._take(population, outcome.fitness(self.options))
        self._record = {**outcome.record(), "fitness": self._fitness}
        splits = [len(nodes) // 4 for nodes in self._trees()]  # a split and its input, threshold and second branch
        best = float(splits[int(np.argmax(self._fitness))])
        return {**outcome.metrics(), "splits": best, "mean_splits": float(np.mean(splits))}

    def _next(self, number: int) -> NDArray[np.float32]:
        """Return the trees of a generation: elites first, then children of the last one, or random ones.  # [N, P]"""
        from deap import algorithms

        options, last = self.options, [self._tree(nodes) for nodes in self._trees()]
        for tree, value in zip(last, self._fitness.tolist(), strict=True):
            tree.fitness.values = (value,)
        with drawing_from(stream(self.seed, Purpose.MUTATION if last else Purpose.INITIAL, number)):
            if not last:
                depths = [1 + k % self.trees.depth for k in range(options.population)]
                grown = (self.trees.grown(depth if k % 2 else 1, depth) for k, depth in enumerate(depths))
                return np.stack([self.trees.weights(self._tree(nodes)) for nodes in grown])
            best = np.argsort(-self._fitness, kind="stable")[: options.elites].tolist()
            children = options.population - len(best)
            parents = self.toolbox.select(last, children)
            varied = algorithms.varOr(parents, self.toolbox, children, options.crossover, 1 - options.crossover)
            return self._distinct(self._population[best], varied)

    def _distinct(self, elites: NDArray[np.float32], children: Sequence[Any]) -> NDArray[np.float32]:
        """Return elites and children, which are mutated again where they are there already.  # [E, P] -> [N, P]"""
        rows = list(elites)
        known = {row.tobytes() for row in rows}
        for child in children:
            row = self.trees.weights(child)
            for _ in range(TRIES):
                if row.tobytes() not in known:
                    break
                (child,) = self.toolbox.mutate(child)
                row = self.trees.weights(child)
            known.add(row.tobytes())
            rows.append(row)
        return np.stack(rows)

    def _trees(self) -> list[list[Any]]:
        if not self._nodes:
            self._nodes = [self.trees.tree(weights) for weights in self._population]
        return self._nodes

    def _take(self, population: NDArray[np.float32], fitness: NDArray[Any]) -> None:
        self._population, self._fitness, self._nodes = population, fitness, []

    def finalists(self, count: int) -> Finalists:
        """Return the trees of the highest fitness."""
        order = np.argsort(-self._fitness, kind="stable")[:count].tolist()
        return finalists_of(self._population, order, self._record, order, self.options.episodes)

    def state(self) -> Arrays:
        """Return the population that was evaluated last, and its fitness."""
        return {"weights": self._population, "fitness": self._fitness}

    def restore(self, state: Arrays, records: Sequence[Arrays]) -> None:
        """Continue from a population, and the record of the generation that evaluated it."""
        self._take(np.ascontiguousarray(state["weights"], np.float32), np.asarray(state["fitness"]))
        super().restore(state, records)

    def retrace(self, number: int, record: Arrays) -> bool:
        """Make the population of a generation again, and give it its recorded fitness."""
        self._take(self._next(number), np.asarray(record["fitness"]))
        return True


make = GeneticProgramming
