"""NSGA-II: a genetic algorithm for several objectives, selected by DEAP (Deb et al., 2002).

Survivors play every generation again, on its new episodes: no network stays in the front by one lucky score.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from evo.evolution.population import (
    LARGEST_POPULATION,
    Evaluated,
    Offspring,
    PopulationAlgorithm,
    PopulationOptions,
    Sigma,
    SigmaSpread,
    finalists_of,
    metrics_of,
    names_of,
)
from evo.evolution.toolbox import Individual, fitness_class
from evo.lazy import tools
from evo.networks.candidates import Rebuilder
from evo.records import Arrays, Finalists, Generation, WeightSource, unit_of
from evo.setup import Setup


class Options(PopulationOptions):
    """The [nsga2] section."""

    population: int = Field(256, ge=2, le=LARGEST_POPULATION, description="candidates per generation")
    survivors: int = Field(
        128,
        ge=1,
        le=LARGEST_POPULATION,
        description="candidates kept as parents of the next generation; fewer than population",
    )
    objectives: list[str] = Field(
        ["return", "-length"],
        min_length=1,
        max_length=8,
        description='maximised: "return", "length" or a metric of an episode; a leading "-" minimises',
    )
    sigma: Sigma = 0.1
    sigma_spread: SigmaSpread = 0.7

    def _check(self) -> None:
        if self.survivors >= self.population:
            raise ValueError(f"survivors: {self.survivors} of a population of {self.population}, so none is new")
        if len({name.removeprefix("-") for name in self.objectives}) < len(self.objectives):
            raise ValueError(f"objectives: {self.objectives} names one twice")

    def known(self, environment: Any) -> tuple[str, ...]:
        """Return the objectives that there are; ConfigurationError where another one is named."""
        named = [name.removeprefix("-") for name in self.objectives]
        return metrics_of(environment, ("return", "length"), "nsga2.objectives", named)

    def extra_outputs(self, environment: Any) -> int:
        """Return 0; ConfigurationError where the environment has no such objective."""
        self.known(environment)
        return 0


class Nsga2(PopulationAlgorithm):
    """A population, stored as its survivors."""

    def __init__(self, options: Options, setup: Setup) -> None:
        """Prepare; `setup.start` [P] is the first survivor. ConfigurationError: an objective is unknown."""
        known = options.known(setup.environment)
        super().__init__(options, setup)
        self._columns = [known.index(name.removeprefix("-")) for name in options.objectives]
        signs = tuple(-1 if name.startswith("-") else 1 for name in options.objectives)
        self._fitness = fitness_class(*signs)
        self._worst = tuple(-np.inf * sign for sign in signs)
        self._offspring = Offspring(setup.seed, options.sigma, options.sigma_spread)
        self._survivors = self._start  # [S, P] the best front first

    def generation(self, number: int) -> Generation:
        """Play survivors and children on the same episodes, and select the survivors of both."""
        options, source = self.options, self._candidates(number)
        outcome = yield from self.played(number, self._survivors, source)
        values = self._values(outcome)
        population = [
            Individual(k, -1, fitness=self._fitness(tuple(row) if outcome.finite[k] else self._worst))
            for k, row in enumerate(values.tolist())
        ]
        survivors = tools.selNSGA2(population, options.survivors)
        chosen = [individual.number for individual in survivors]
        front = len(tools.sortNondominated(survivors, len(survivors), first_front_only=True)[0])
        self._survivors = Rebuilder(self.network).all(self._survivors, source.some(chosen))
        self._record = {
            **names_of(source),
            **outcome.record(),
            "objectives": values,
            "survivors": np.array(chosen, np.int32),
        }
        best = {
            f"best_{name.lstrip('-')}": _best(values[outcome.finite, k], name, options.episodes)
            for k, name in enumerate(options.objectives)
        }
        return {**outcome.metrics(), "front": float(front), "sigma": float(np.median(source.sigmas)), **best}

    def _candidates(self, number: int) -> WeightSource:
        """Return the source of every candidate: survivors first and unchanged, then children."""
        stay = len(self._survivors)
        return self._offspring.of(number, range(stay), stay, self.options.population)

    def _values(self, outcome: Evaluated) -> NDArray[Any]:
        """Return the objectives, summed over episodes; returns have the bonus.  # [N, M]"""
        table = [outcome.fitness(self.options), outcome.lengths.sum(axis=1, dtype=np.int64)]
        table += list(outcome.episode_metrics.sum(axis=1).T)
        return np.stack([table[column] for column in self._columns], axis=1)

    def finalists(self, count: int) -> Finalists:
        """Return the first of the survivors, those of the highest returns before others."""
        survivors = np.asarray(self._record.get("survivors", np.arange(len(self._survivors))))
        returns = self._record["return"][survivors] if self._record else np.zeros(len(survivors))
        order = np.argsort(-returns, kind="stable")[:count].tolist()
        return finalists_of(self._survivors, order, self._record, survivors[order].tolist(), self.options.episodes)

    def state(self) -> Arrays:
        """Return the survivors."""
        return {"weights": self._survivors}

    def restore(self, state: Arrays, records: Sequence[Arrays]) -> None:
        """Continue from the survivors of a state, and the record of the generation that left them."""
        self._survivors = np.ascontiguousarray(state["weights"], np.float32)
        super().restore(state, records)

    def retrace(self, number: int, record: Arrays) -> bool:
        """Rebuild the survivors that a record names."""
        survivors = self._candidates(number).some(record["survivors"].tolist())
        self._survivors = Rebuilder(self.network).all(self._survivors, survivors)
        return True


def _best(values: NDArray[Any], name: str, episodes: int) -> float:
    scale = (unit_of(values) if name.removeprefix("-") == "return" else 1.0) * episodes
    best = (values.min() if name.startswith("-") else values.max()) if len(values) else np.nan
    return float(best) / scale


make = Nsga2
