"""A genetic algorithm: selection, crossover of all parents, and mutation with a self-adaptive sigma.

A child is the mean of all parents (intermediate recombination; Beyer and Schwefel, 2002), plus noise of its own
standard deviation sigma, which is log-normal around the geometric mean of theirs. With `crossover = "none"` a child
is mutated from one parent (Such et al., 2017). DEAP's toolbox drives it: select, clone, mate, mutate, evaluate and
migrate. Its individuals are names of networks: a row, a mate's row, a noise key and a sigma. Elites are evaluated again
in every generation, on the new episodes, so no candidate survives on one lucky score. Candidate k and parent k are on
island k % islands.
"""

from __future__ import annotations

import math
from collections.abc import Generator, Iterator, Sequence
from copy import copy
from functools import cache, partial
from itertools import count
from typing import Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from evo.evolution.noise_sums import ln
from evo.evolution.normal import StepPath
from evo.evolution.population import (
    LARGEST_POPULATION,
    Evaluated,
    PerCandidate,
    PopulationAlgorithm,
    PopulationOptions,
    all_tie,
    averaged,
    finalists_of,
    fitness_metrics,
    fitness_worst,
    names_of,
    normals,
    selection_metrics,
)
from evo.evolution.toolbox import (
    LOG_SIGMAS,
    Crossover,
    Individual,
    Operator,
    Parents,
    cross,
    drawing_from,
    fitness_class,
    fitness_of,
    island_rows,
    mean_parents,
    named,
    no_collection,
    operator,
    select_on_islands,
    tournaments,
    worst,
)
from evo.lazy import base, tools
from evo.networks.candidates import Rebuilder
from evo.options import added
from evo.randomness.streams import Purpose, candidate_keys, draws, stream
from evo.records import Arrays, Finalists, Generation, Request, Result, WeightSource
from evo.setup import Setup

OPERATORS = ("select", "mate", "mutate")  # of DEAP's toolbox, that a plug-in may have


class Options(PopulationOptions):
    """The [ga] section."""

    population: int = Field(256, ge=2, le=LARGEST_POPULATION, description="candidates per generation")
    episodes: PerCandidate = 4
    parents: int = Field(16, ge=1, le=LARGEST_POPULATION, description="candidates that may have children")
    elites: int = Field(0, ge=0, le=LARGEST_POPULATION, description="best candidates, which stay and play again")
    selection: Literal["truncation", "tournament"] = Field("truncation", description="selection of parents")
    tournament: int = Field(4, ge=1, le=1000, description="candidates per tournament, if selection = tournament")
    islands: int = added(
        1,
        ge=1,
        le=LARGEST_POPULATION,
        description="number of subpopulations, which must divide population, parents and elites",
    )
    migration_every: int = added(
        10, ge=0, description="generations between migrations from each island to the next; 0 = never"
    )
    migrants: int = added(
        1,
        ge=1,
        le=LARGEST_POPULATION,
        description="best candidates of an island that replace the worst of the next",
    )
    memory: int = Field(1, ge=1, le=1000, description="generations averaged in an elite's fitness; 1 = the last")
    sigma: float = Field(0.1, gt=0, le=1000, description="initial standard deviation of the mutation noise")
    sigma_spread: float = Field(
        1.0,
        ge=0,
        le=1000,
        description="self-adaptation: log-normal spread of a child's sigma around its parents', in units of 1 / "
        "sqrt(2 P), P weights; 0 = one sigma for all",
    )
    sigma_floor: float = Field(0.0, ge=0, le=1000, description="smallest sigma of a child; 0 = none")
    sigma_path: bool = added(
        False,
        description="grow sigma while the mean of all parents moves in one direction, else shrink it (cumulative "
        "step-size adaptation)",
    )
    crossover: Crossover = Field(
        "mean", description="mean of all parents; single weights (uniform) or whole layers of two parents; or none"
    )
    crossover_rate: float = Field(
        0.5, ge=0, le=1, description="probability that a child has two parents, if crossover = uniform or layers"
    )
    select: Operator = Field("", description='selection operator of a plug-in, as in "my_plugin:my_function"')
    mate: Operator = Field("", description="crossover operator of a plug-in, called for children of two parents")
    mutate: Operator = Field("", description="mutation operator of a plug-in, which sets the sigma of a child")

    def _check(self) -> None:
        if self.parents > self.population:
            raise ValueError(f"parents: {self.parents} of a population of {self.population}")
        if self.elites > self.parents:
            raise ValueError(f"elites: {self.elites} of {self.parents} parents")
        if self.elites == self.population:
            raise ValueError(f"elites: {self.elites} must be less than the population, {self.population}")
        for name in ("population", "parents", "elites"):
            if getattr(self, name) % self.islands:
                raise ValueError(f"{name}: {getattr(self, name)} is not a multiple of {self.islands} islands")
        population, parents = self.population // self.islands, self.parents // self.islands
        if self.selection == "tournament" and self.tournament > population:
            where = "on an island" if self.islands > 1 else "in the population"
            raise ValueError(f"tournament: {self.tournament} of {population} candidates {where}")
        if self.islands > 1 and self.migration_every and self.migrants > parents:
            raise ValueError(f"migrants: {self.migrants} of {parents} parents on an island")
        if self.sigma_path and self.crossover != "mean":
            raise ValueError("sigma_path: there is no mean of all parents; set crossover = mean, or leave it out")
        if self.mate and self.crossover in ("mean", "none"):
            raise ValueError("mate: no child has two parents; set crossover = uniform or layers")

    @property
    def own_operators(self) -> list[str]:
        """The operators of the toolbox that are a plug-in's."""
        return [name for name in OPERATORS if getattr(self, name)]

    @property
    def needs_stationary_training(self) -> str:
        """The memory of elites, where there is one."""
        return "memory" if self.memory > 1 else ""


class GeneticAlgorithm(PopulationAlgorithm):
    """A population, stored as its parents; where crossover is of all of them, as their means and the elites."""

    def __init__(self, options: Options, setup: Setup) -> None:
        """Prepare; `setup.start` [P] becomes candidate 0 of generation 0, and all others its children."""
        super().__init__(options, setup)
        self._first, self._spread = ln(options.sigma), options.sigma_spread / math.sqrt(2 * setup.network.size)
        self.toolbox = toolbox = base.Toolbox()
        toolbox.register("clone", copy)
        best = partial(tools.selBest, fit_attr="fitness.wvalues")  # compared in C
        toolbox.register("select", best if options.selection == "truncation" else self._winners)
        toolbox.register("mate", cross)
        toolbox.register("mutate", self._mutate)
        toolbox.register("evaluate", self._evaluate)
        toolbox.register("migrate", tools.migRing, k=options.migrants, selection=tools.selBest, replacement=worst)
        for name in options.own_operators:
            toolbox.register(name, operator(f"ga.{name}", getattr(options, name)))
        self._tournaments: Iterator[int] = iter(())  # streams of a generation's tournaments
        self._drawn: Iterator[float] = iter(())  # normal numbers of a generation's children
        # The start, if any, is the only parent, and first candidate, of generation 0.
        self._parents = Parents(self._start, [self._first_one(0, 0) for _ in self._start])
        loses_best = options.crossover == "mean" or options.selection == "tournament" or bool(options.select)
        self._exact = setup.is_exact and loses_best  # the best candidate is a finalist, as no later episode refutes it
        self._found = np.empty((0, setup.network.size), np.float32)  # [0 or 1, P] the best of a generation, where exact
        islands = options.islands if options.sigma_path else 0
        self._paths = [StepPath(setup.network.size, options.parents / islands) for _ in range(islands)]

    def generation(self, number: int) -> Generation:
        """Vary the parents, evaluate the population, and select the parents of the next generation."""
        options, toolbox = self.options, self.toolbox
        population, elites = self._vary(number)
        source = named(population, options.sigma_floor, options.crossover)
        evaluated, recorded = yield from toolbox.evaluate(population, source, number)
        compared = evaluated.against_parents(source, 0 if self._means else elites, options)
        # Where all tie, nobody is chosen: the mean of the first ones would move by chance alone.
        tied = self._means > 0 and all_tie(fitness_of(population))
        chosen = [] if tied else self._select(population, number, elites)
        survivors = np.array([one.number for one in chosen], np.int32)
        weights = self._continue(chosen, source, recorded)
        means: Arrays = {"means": fitness_of(chosen)} if options.own_operators else {}  # these may depend on it
        self._record = {**recorded, "survivors": survivors, **means}
        return {
            **evaluated.metrics(),
            **fitness_metrics(fitness_of(population), options.episodes),
            "sigma": float(np.median(source.sigmas)),
            **compared,
            **selection_metrics(weights, source, survivors, elites, options.islands),
        }

    def _first_one(self, number: int, row: int, key: int = 0) -> Individual:
        return Individual(number, row, key=key, log_sigma=self._first, fitness=fitness_class(1)((0,)))

    @property
    def _means(self) -> int:
        """How many of the first parents are means of all parents of an island."""
        averaging = self.options.crossover == "mean"
        return min(self.options.islands, len(self._parents.individuals)) if averaging else 0

    def _vary(self, number: int) -> tuple[list[Individual], int]:
        """Return a population, and how many of it are elites: these first, then children, or fresh networks."""
        options, toolbox, parents, size = self.options, self.toolbox, self._parents.individuals, self.options.population
        kept = parents[:1] if number == 0 else parents[self._means : self._means + options.elites]
        elites = len(kept)

        def streams(purpose: Purpose) -> NDArray[np.uint64]:
            return candidate_keys(self.seed, purpose, number, elites, size)

        if not parents:
            return [self._first_one(k, -1, key) for k, key in enumerate(streams(Purpose.INITIAL).tolist())], 0
        names, keys = streams(Purpose.PARENT), streams(Purpose.MUTATION).tolist()
        if self._means:
            rows, others, crossed = (np.arange(elites, size) % self._means).tolist(), keys, [False] * len(keys)
        else:
            rows = island_rows(names, 0, elites, len(parents), options.islands).tolist()
            others = island_rows(names, 2, elites, len(parents), options.islands).tolist()
            rate = round(options.crossover_rate * 65536) if options.crossover != "none" else 0
            crossed = (draws(names, 1, 65536) < rate).tolist()
        self._drawn = iter((self._spread * normals(streams(Purpose.SIGMA))).tolist())
        population = [toolbox.clone(parent) for parent in kept]
        for k, elite in enumerate(population):
            elite.number = k
        with no_collection(), drawing_from(stream(self.seed, Purpose.MUTATION, number)):
            for row, other, two, key in zip(rows, others, crossed, keys, strict=True):
                child = toolbox.clone(parents[row])
                child.number, child.key, child.age = len(population), key, 0
                if two:
                    toolbox.mate(child, parents[other])
                toolbox.mutate(child)
                population.append(child)
        return population, elites

    def _mutate(self, child: Individual) -> tuple[Individual]:
        """Multiply a child's sigma by a log-normal number, as DEAP's mutESLogNormal does."""
        child.log_sigma = min(max(child.log_sigma + next(self._drawn), LOG_SIGMAS[0]), LOG_SIGMAS[1])
        return (child,)

    def _continue(self, chosen: list[Individual], source: WeightSource, record: Arrays) -> NDArray[np.float32]:
        """Make the chosen, if any, the next parents, and return these; `source` names the population.  # [S, P]"""
        options = self.options
        if self._exact:
            best = source.some([int(np.argmax(record["return"]))])
            self._found = Rebuilder(self.network).all(self._parents.weights, best)
        if not chosen:
            return self._parents.weights
        weights = Rebuilder(self.network).all(self._parents.weights, source.some([one.number for one in chosen]))
        if options.crossover == "mean":
            count = len(chosen) if self._parents.individuals else options.islands  # of fresh networks, the best alone
            means, individuals = mean_parents(weights[:count], chosen[:count], options.islands)
            for island, path in enumerate(self._paths if self._means else ()):  # generation 0 may have no mean before
                before, one = self._parents.weights[island % self._means], individuals[island]
                one.log_sigma = path.follow(before, means[island], one.log_sigma, options.sigma_floor)
            kept = np.concatenate((means, weights[: options.elites]))
            self._parents = Parents(kept, [*individuals, *chosen[: options.elites]])
        else:
            self._parents = Parents(weights, chosen)
        return weights

    def _evaluate(
        self, population: Sequence[Individual], source: WeightSource, number: int
    ) -> Generator[Request, Sequence[Result], tuple[Evaluated, Arrays]]:
        """Play a population and set its fitness; that of an elite is its mean over at most `memory` generations."""
        options, kind = self.options, cache(fitness_class(1))  # equal fitness is one object
        evaluated = yield from self.played(number, self._parents.weights, source)
        recorded = {**names_of(source), "mate": source.mates, **evaluated.record()}
        fitness = evaluated.fitness(options)
        failed = fitness_worst(fitness)
        with no_collection():
            for one, value in zip(population, fitness.tolist(), strict=True):
                past, before = min(one.age, options.memory - 1), one.fitness.wvalues[0] if one.age else failed
                if past and value > failed and before > failed:
                    value = averaged(before * past + value, past + 1)
                one.age, one.fitness = one.age + 1, kind((value,))
        return evaluated, recorded

    def _select(self, population: list[Individual], number: int, elites: int) -> list[Individual]:
        """Migrate where that is due, and return the parents of every island by rank."""
        options, toolbox = self.options, self.toolbox
        self._tournaments = (stream(self.seed, Purpose.TOURNAMENT, number, k) for k in count())
        with drawing_from(stream(self.seed, Purpose.TOURNAMENT, number)):
            if options.islands == 1:
                return list(toolbox.select(population, options.parents))
            due = options.migration_every > 0 and (number + 1) % options.migration_every == 0
            networks = self._parents.networks(population, elites)
            return select_on_islands(toolbox, population, options.parents, options.islands, due, networks)

    def _winners(self, individuals: Sequence[Individual], k: int) -> list[Individual]:
        """Select elites and winners of tournaments."""
        options = self.options
        return tournaments(individuals, k, options.tournament, options.elites // options.islands, self._tournaments)

    def finalists(self, count: int) -> Finalists:
        """Return the means of all parents and then the elites, or else the best of the parents.

        Of one island: elites, then the others by rank. Where fitness is exact, the best candidate comes first.
        """
        if self._means or self._exact:
            return Finalists(np.concatenate((self._found, self._parents.weights[:count])))
        ranked = self.options.islands == 1 and not self.options.select
        rows = list(range(min(count, len(self._parents.weights)))) if ranked else self._parents.best(count)
        chosen = self._record["survivors"][rows].tolist() if self._record else []
        return finalists_of(self._parents.weights, rows, self._record, chosen, self.options.episodes)

    def state(self) -> Arrays:
        """Return the parents, their sigmas, ages and mean fitness; the best candidate, if it would be lost."""
        found: Arrays = {"found": self._found} if self._exact else {}
        paths: Arrays = {"step_paths": np.stack([one.path for one in self._paths])} if self._paths else {}
        return {**self._parents.state(), **found, **paths}

    def restore(self, state: Arrays, records: Sequence[Arrays]) -> None:
        """Continue from the parents of a state, and the record of the generation that left them."""
        self._parents = Parents.restored(state)
        self._found = np.asarray(state.get("found", self._found), np.float32)
        for path, known in zip(self._paths, state.get("step_paths", ()), strict=False):  # a fork may have no paths
            path.path = np.array(known, np.float64)
        super().restore(state, records)

    def retrace(self, number: int, record: Arrays) -> bool:
        """Rebuild the survivors that a record names; only for a plug-in's operators does it know their fitness."""
        population, _ = self._vary(number)
        chosen = [population[k] for k in record["survivors"].tolist()]
        for one, mean in zip(chosen, record.get("means", np.zeros(len(chosen), np.int64)).tolist(), strict=True):
            one.age, one.fitness = 1, fitness_class(1)((mean,))
        source = named(population, self.options.sigma_floor, self.options.crossover)
        self._continue(chosen, source, record)
        return True


make = GeneticAlgorithm
