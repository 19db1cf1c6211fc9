"""Selection of parents by DEAP, on every island by itself; the best of an island migrate to the next one in a ring.

Candidate k and parent k are on island k % islands. So the best parent of each island comes first, then the second best
of each, and every island has as many elites as any other.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import count
from typing import Any, Literal, Self

import numpy as np
from numpy.typing import NDArray
from pydantic import Field, SerializerFunctionWrapHandler, model_serializer, model_validator

from evo.evolution.population import LARGEST_POPULATION, PopulationOptions
from evo.randomness.philox import draw
from evo.randomness.philox_arrays import draws
from evo.randomness.streams import Purpose, stream

MIGRATION_EVERY = 10  # generations, where an experiment does not say


class SelectionOptions(PopulationOptions):
    """Options of an algorithm whose parents are selected by fitness."""

    parents: int = Field(64, ge=1, le=LARGEST_POPULATION, description="candidates that may have children")
    elites: int = Field(
        64, ge=0, le=LARGEST_POPULATION, description="best candidates that stay unchanged, and are evaluated again"
    )
    selection: Literal["truncation", "tournament"] = Field("truncation", description="selection of parents")
    tournament: int = Field(4, ge=1, le=1000, description="candidates per tournament, where selection = tournament")
    islands: int = Field(
        1,
        ge=1,
        le=LARGEST_POPULATION,
        description="subpopulations that select among themselves; population, parents and elites are multiples of it",
    )
    migration_every: int = Field(
        MIGRATION_EVERY, ge=0, description="generations between migrations from each island to the next; 0 = never"
    )
    migrants: int = Field(
        1,
        ge=1,
        le=LARGEST_POPULATION,
        description="best candidates that each island copies to the next one before selection, in place of its worst",
    )

    @model_validator(mode="after")
    def _consistent(self) -> Self:
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
        return self

    @model_serializer(mode="wrap")
    def _without_unused(self, dump: SerializerFunctionWrapHandler) -> dict[str, Any]:
        # What is not used is no key of a run's identity, so that the hashes of runs without islands stay as they are.
        in_identity = self.in_identity()
        return {key: value for key, value in dump(self).items() if in_identity.get(key, True)}

    def in_identity(self) -> dict[str, bool]:
        """Return whether an option is part of a run's identity; one that is not named here is."""
        return {
            "islands": self.islands > 1,
            "migration_every": self.islands > 1 and self.migration_every != MIGRATION_EVERY,
            "migrants": self.islands > 1 and self.migration_every > 0 and self.migrants > 1,
        }


class Individual:
    """What DEAP ranks: a candidate's number and its fitness."""

    def __init__(self, number: int, fitness: Any) -> None:
        self.number, self.fitness = number, fitness


class Selection:
    """Chooses who may have children; `toolbox` has DEAP's operators."""

    def __init__(self, options: SelectionOptions, seed: int) -> None:
        from deap import base, tools

        self._options, self._seed = options, seed
        self._fitness = type("Fitness", (base.Fitness,), {"weights": (1,)})
        self._tournaments: Iterator[int] = iter(())  # streams of a generation's tournaments
        self.toolbox = base.Toolbox()
        self.toolbox.register("select", self._winners if options.selection == "tournament" else tools.selBest)
        self.toolbox.register("migrate", tools.migRing, k=options.migrants, selection=tools.selBest, replacement=last)

    def individuals(self, fitness: NDArray[np.int64]) -> list[Individual]:
        """Return what DEAP ranks, in the order of candidates.  # fitness [N]"""
        individuals = []
        for number, value in enumerate(fitness.tolist()):
            individuals.append(Individual(number, self._fitness()))
            individuals[-1].fitness.values = (value,)
        return individuals

    def parents(self, candidates: Sequence[Individual], generation: int, networks: Sequence[int]) -> list[int]:
        """Return the numbers of the candidates that become parents, after a migration where one is due.  # [S]

        Candidates of equal `networks` are copies, as those that have migrated; an island takes a second one only where
        it has no other candidate left.
        """
        options = self._options
        every, each = options.migration_every, options.parents // options.islands
        populations = [list(candidates[island :: options.islands]) for island in range(options.islands)]
        if options.islands > 1 and every and (generation + 1) % every == 0:
            self.toolbox.migrate(populations)
        self._tournaments = (stream(self._seed, Purpose.TOURNAMENT, generation, t) for t in count())
        if options.islands > 1:
            selected = [self._distinct(population, each, networks) for population in populations]
        else:
            selected = [self.toolbox.select(populations[0], each)]
        return [individual.number for rank in zip(*selected, strict=True) for individual in rank]

    def _distinct(self, population: Sequence[Individual], parents: int, networks: Sequence[int]) -> list[Individual]:
        """Return the parents of an island, copies of one network last."""
        from deap import tools

        first: dict[int, Individual] = {}
        for individual in population:
            first.setdefault(networks[individual.number], individual)
        copies = [individual for individual in population if first[networks[individual.number]] is not individual]
        selected: list[Individual] = self.toolbox.select(list(first.values()), min(parents, len(first)))
        return selected + list(tools.selBest(copies, parents - len(selected)))

    def _winners(self, population: Sequence[Individual], parents: int) -> list[Individual]:
        """Return the elites and tournament winners of an island; DEAP's own draws use a global generator."""
        from deap import tools

        elites = tools.selBest(population, min(parents, self._options.elites // self._options.islands))
        winners: list[Individual] = []
        for _ in range(parents - len(elites)):
            name = next(self._tournaments)
            numbers = sorted({draw(name, i, len(population)) for i in range(self._options.tournament)})
            winners += tools.selBest([population[i] for i in numbers], 1)
        return elites + tools.selBest(sorted(winners, key=lambda winner: winner.number), len(winners))  # type: ignore[no-any-return]

    def rows(self, names: NDArray[np.uint64], index: int, first: int, parents: int) -> NDArray[np.int64]:
        """Return a parent for each candidate from number `first` on, drawn from those of its island.

        There are no islands while there are fewer parents than islands, as where a run begins with one network.
        names [N] -> [N]
        """
        islands = self._options.islands if parents >= self._options.islands else 1
        island = np.arange(first, first + len(names)) % islands
        return island + islands * draws(names, index, (parents - 1 - island) // islands + 1)

    def best(self, weights: NDArray[np.float32], fitness: NDArray[np.int64], most: int) -> list[int]:
        """Return the rows of the best parents of all islands, without copies by migration.  # [S, P], [S]"""
        if self._options.islands == 1:
            return list(range(min(most, len(weights))))
        rows: list[int] = []
        for row in np.argsort(-fitness, kind="stable").tolist():
            if len(rows) < most and not any(np.array_equal(weights[row], weights[better]) for better in rows):
                rows.append(row)
        return rows


def last(population: Sequence[Individual], k: int) -> list[Individual]:
    """Return the worst candidates; of equal ones the last, where DEAP's selBest takes the first.

    So a candidate is not replaced because another one is as good.
    """
    from deap import tools

    return tools.selBest(population, len(population))[-k:]  # type: ignore[no-any-return]
