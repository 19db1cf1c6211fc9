"""MAP-Elites: keep the best network of each kind of behaviour, and mutate these (Mouret and Clune, 2015).

A grid over descriptors of behaviour divides networks into cells. A child that would enter a cell is evaluated again in
the next generation, on its new episodes, and only that second score and behaviour decide: the first ones were used to
choose it, so they are biased upwards. Where one evaluation is exact, it enters at once. An emitter names the children;
MAP-Elites' own mutates elites.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from functools import partial
from math import prod
from typing import Any, ClassVar, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from evo.evolution.population import (
    LARGEST_POPULATION,
    AliveBonus,
    AliveSteps,
    Evaluated,
    Offspring,
    PerCandidate,
    PopulationAlgorithm,
    Sigma,
    SigmaSpread,
    metrics_of,
    tasks_of,
)
from evo.networks.candidates import Rebuilder
from evo.options import AlgorithmOptions
from evo.randomness.streams import Purpose, episode_keys
from evo.records import Arrays, Finalists, Generation, Metrics, Request, Result, WeightSource, mean_returns
from evo.setup import Setup

NOWHERE = -1  # the cell of a candidate whose scores are not finite
LARGEST_GRID = 1 << 16
COLUMNS = ("cells", "fitness", "returns")  # of elites, by name in a state
Weights = NDArray[np.float32]


class ArchiveOptions(AlgorithmOptions):
    """Options of an algorithm that keeps an archive."""

    algorithm: ClassVar[str]

    population: int = Field(512, ge=2, le=LARGEST_POPULATION, description="candidates per generation")
    episodes: PerCandidate = 32
    alive_bonus: AliveBonus = 0.0
    alive_steps: AliveSteps = 100
    reevaluated: int = Field(
        128, ge=1, le=LARGEST_POPULATION,
        description="most candidates that play again per generation; if not set, a quarter of a population up to 128",
    )  # fmt: skip
    descriptors: list[str] = Field(
        ["length"], min_length=1, max_length=4, description='behaviour: "length", "return" or metrics of an episode'
    )
    low: list[float] = Field([0.0], description="lower bound of each descriptor's mean; less is in the first bin")
    high: list[float] = Field([1000.0], description="upper bound of each descriptor's mean; more is in the last bin")
    bins: list[int] = Field([20], description="bins per descriptor; a cell combines one of each")
    check_every: int = Field(
        100, ge=0, description="generations between checks of all elites on check_episodes fresh episodes; 0 = never"
    )
    check_episodes: int = Field(
        512, ge=1, le=100_000, description="fresh episodes per elite in a check, which is only reported"
    )

    @property
    def needs_stationary_training(self) -> str:
        """The archive."""
        return "the archive"

    @property
    def has_room(self) -> bool:
        """Whether a generation has new candidates besides those that are evaluated again."""
        return self.reevaluated < self.population

    def _check(self) -> None:
        if "reevaluated" not in self.model_fields_set and not self.has_room:
            self.__dict__["reevaluated"] = max(1, self.population // 4)  # options are frozen
        if self.reevaluated >= self.population:
            raise ValueError(f"reevaluated: {self.reevaluated} of a population of {self.population}, so none is new")
        for name in ("low", "high", "bins"):
            if len(getattr(self, name)) != len(self.descriptors):
                raise ValueError(f"{name}: {len(getattr(self, name))} numbers for {len(self.descriptors)} descriptors")
        if not all(low < high for low, high in zip(self.low, self.high, strict=True)):
            raise ValueError(f"low: {self.low} must be less than high, {self.high}")
        if min(self.bins) < 1 or prod(self.bins) > LARGEST_GRID:
            raise ValueError(f"bins: {self.bins} are not from 1 to {LARGEST_GRID:,} cells")
        if len(set(self.descriptors)) < len(self.descriptors):
            raise ValueError(f"descriptors: {self.descriptors} names one twice")

    def known(self, environment: Any) -> tuple[str, ...]:
        """Return the descriptors that there are; ConfigurationError where another one is named."""
        return metrics_of(environment, ("length", "return"), f"{self.algorithm}.descriptors", self.descriptors)

    def extra_outputs(self, environment: Any) -> int:
        """Return 0; ConfigurationError where the environment has no such descriptor."""
        self.known(environment)
        return 0


class Options(ArchiveOptions):
    """The [map_elites] section."""

    algorithm: ClassVar[str] = "map_elites"

    sigma: Sigma = 0.1
    sigma_spread: SigmaSpread = 0.7


class Children(NamedTuple):
    """What the new candidates of a generation would change in the archive."""

    cells: NDArray[np.int64]  # [N] NOWHERE where scores are not finite
    fitness: NDArray[Any]  # [N]
    gains: NDArray[Any]  # [N] fitness above that of the cell's elite; in an empty cell, fitness
    empty: NDArray[np.bool_]  # [N] whether the cell has no elite

    @property
    def improving(self) -> NDArray[np.bool_]:
        """Whether each would enter the archive.  # [N]"""
        return self.empty | (self.gains > 0)

    @property
    def promising(self) -> NDArray[np.int64]:
        """The best child of each cell, where it would enter the archive.

        Those of empty cells come first, then those that gain most.  # [K]
        """
        best: dict[int, int] = {}
        for k in np.argsort(-self.fitness, kind="stable").tolist():
            best.setdefault(int(self.cells[k]), k)
        better = [k for k in best.values() if self.improving[k]]  # none of them is NOWHERE
        better.sort(key=lambda k: (not self.empty[k], -self.gains[k], k))
        return np.array(better, np.int64)


class Emitter(Protocol):
    """Names new candidates, and learns from what they would change in the archive."""

    def published(self, elites: Weights, again: Weights) -> Weights:
        """Return the rows that candidates are made of, of elites and of those to evaluate again.  # [R, P]"""

    def candidates(self, number: int, elites: int, again: int) -> list[WeightSource]:
        """Return the candidates of a generation, of rows of `published`: those that are evaluated again come first."""

    def learn(self, number: int, sources: Sequence[WeightSource], children: Children, elites: Weights) -> Metrics:
        """Learn from the new candidates of a generation; return metrics."""
        return {}

    def state(self) -> Arrays:
        """Return everything that is needed to go on, by name."""
        return {}

    def restore(self, state: Arrays, known: Weights) -> None:
        """Continue from what `state` returned; `known` are networks of the archive, where to begin anew."""
        return


class Mutation(Emitter):
    """Mutated copies of elites, and of candidates that are evaluated again."""

    def __init__(self, options: Options, setup: Setup) -> None:
        self._offspring = Offspring(setup.seed, options.sigma, options.sigma_spread)
        self._population = options.population

    def published(self, elites: Weights, again: Weights) -> Weights:
        """Return both.  # [C + K, P]"""
        return np.concatenate([elites, again])

    def candidates(self, number: int, elites: int, again: int) -> list[WeightSource]:
        """Return those that are evaluated again, and children of both."""
        return [self._offspring.of(number, range(elites, elites + again), elites + again, self._population)]


class MapElites(PopulationAlgorithm):
    """Elites by cells, and candidates that are evaluated again."""

    def __init__(self, options: Any, setup: Setup, emitter: Callable[[Any, Setup], Emitter]) -> None:
        """Prepare; `setup.start` [P] is evaluated first. ConfigurationError: a descriptor is unknown."""
        known = options.known(setup.environment)
        super().__init__(options, setup)
        self.emitter = emitter(options, setup)
        self._columns = [known.index(name) for name in options.descriptors]
        fixed = (options.episodes, options.alive_bonus, options.alive_steps, *self._columns)
        self._grid = np.array([*fixed, *options.low, *options.high, *options.bins], np.float64)
        self._again = self._start  # [K, P] to be evaluated again
        self._elites = self._again[:0]  # [C, P] in the order of their cells
        self._table: NDArray[Any] = np.empty((0, len(COLUMNS)), np.int64)  # [C, 3] sums, when they entered
        self._exact = setup.is_exact

    def generation(self, number: int) -> Generation:
        """Evaluate on the same episodes; some may enter the archive, and others are to be evaluated again."""
        options, again = self.options, len(self._again)
        sources = self.emitter.candidates(number, len(self._elites), again)
        published = self.emitter.published(self._elites, self._again)
        evaluated = yield from self.played(number, published, *sources)
        recorded, fitness = evaluated.record(), evaluated.fitness(options)
        cells = self._cells_of(evaluated, recorded["return"])
        table = np.stack([cells, fitness, recorded["return"]], axis=1)
        entered, chosen, learned = self._take(number, published, sources, table)
        self._record = {
            "parent": np.concatenate([source.rows for source in sources]),
            "key": np.concatenate([source.keys for source in sources]),
            "sigma": np.concatenate([source.sigmas for source in sources]),
            **recorded,
            "fitness": fitness,
            "cell": cells,
            "elites": entered.astype(np.int32),
            "reevaluated": chosen.astype(np.int32),
        }
        means = mean_returns(self._table[:, 1], options.episodes)
        metrics = {
            **evaluated.metrics(),
            "elites": float(len(means)),
            "coverage": len(means) / prod(options.bins),
            "qd_score": float(means.sum()),
            "sigma": float(np.median(np.concatenate([source.sigmas for source in sources])[again:])),
            **learned,
        }
        if options.check_every and (number + 1) % options.check_every == 0 and len(self._elites):
            checked = yield from self._check(number)
            metrics = {**checked, **{name: value + checked.get(name, 0.0) for name, value in metrics.items()}}
        return metrics

    def _take(
        self, number: int, published: Weights, sources: Sequence[WeightSource], table: NDArray[Any]
    ) -> tuple[NDArray[np.int64], NDArray[np.int64], Metrics]:
        """Update the archive, choose whom to evaluate again, and let the emitter learn.

        table [N, 3] of all candidates -> elites in the order of cells [C], as rows of former elites, of those evaluated
        again and, where exact, of those chosen; candidates that are evaluated again or, where exact, enter [K]; metrics
        """
        again, elites = len(self._again), len(self._elites)
        entered = self._enter(self._again, table[:again])
        children = self._compared(table[again:, 0].astype(np.int64), table[again:, 1])
        chosen = again + children.promising[: None if self._exact else self.options.reevaluated]
        self._again = self._rebuilt(published, sources, chosen)
        if self._exact:
            rows = np.concatenate([entered, elites + again + np.arange(len(chosen))])
            entered = rows[self._enter(self._again, table[chosen])]
            self._again = self._again[:0]
        return entered, chosen, self.emitter.learn(number, sources, children, self._elites)

    def _enter(self, weights: Weights, table: NDArray[Any]) -> NDArray[np.int64]:
        """Keep the best network of each cell, the first of equal ones, of the elites and others.

        weights [N, P], table [N, 3] -> elites [C] in the order of cells, as rows of former elites and of the others
        """
        both = np.concatenate([self._table, table])
        best: dict[int, int] = {}
        for row, (cell, fitness, _) in enumerate(both.tolist()):
            if cell != NOWHERE and (cell not in best or fitness > both[best[cell], 1]):
                best[cell] = row
        entered = np.array([best[cell] for cell in sorted(best)], np.int64)
        self._elites, self._table = np.concatenate([self._elites, weights])[entered], both[entered]
        return entered

    def _cells_of(self, evaluated: Evaluated, returns: NDArray[Any]) -> NDArray[np.int64]:
        """Return the cell of every candidate's mean behaviour; NOWHERE where scores are not finite.

        returns [N], summed -> [N]
        """
        options, cells = self.options, np.zeros(len(evaluated.finite), np.int64)
        table = [evaluated.lengths.sum(axis=1, dtype=np.int64), mean_returns(returns, 1)]
        table += list(evaluated.episode_metrics.sum(axis=1).T)
        for column, low, high, bins in zip(self._columns, options.low, options.high, options.bins, strict=True):
            means = np.where(evaluated.finite, table[column] / options.episodes, low)
            place = np.floor((means - low) / (high - low) * bins)
            cells = cells * bins + np.clip(place, 0, bins - 1).astype(np.int64)
        return np.where(evaluated.finite, cells, NOWHERE)

    def _compared(self, cells: NDArray[np.int64], fitness: NDArray[Any]) -> Children:
        """Return the changes that children would make to the archive.  # cells, fitness [N]"""
        place = np.searchsorted(self._table[:, 0], cells)
        known = np.append(self._table[:, 0], NOWHERE - 1)[place] == cells
        present = np.append(self._table[:, 1], 0)[np.where(known, place, -1)]
        return Children(cells, fitness, fitness - present, ~known & (cells != NOWHERE))

    def _rebuilt(self, published: Weights, sources: Sequence[WeightSource], chosen: NDArray[np.int64]) -> Weights:
        """Return the weights of chosen candidates.  # [K] -> [K, P]"""
        rebuilder, found, first = Rebuilder(self.network), np.empty((len(chosen), self.network.size), np.float32), 0
        for source in sources:
            here = (first <= chosen) & (chosen < first + len(source))
            if here.any():
                found[here] = rebuilder.all(published, source.some((chosen[here] - first).tolist()))
            first += len(source)
        return found

    def _check(self, number: int) -> Generator[Request, Sequence[Result], Metrics]:
        """Play every elite on fresh episodes; return the sum of their mean fitness, and what that took."""
        options = self.options
        fresh = slice(options.episodes, options.episodes + options.check_episodes)
        seeds = episode_keys(self.seed, Purpose.TRAINING, number, fresh.stop)[fresh]
        results = yield Request(self._elites, tasks_of(WeightSource.of_rows(len(self._elites)), seeds, 1))
        evaluated = Evaluated(results)
        means = mean_returns(evaluated.fitness(options)[evaluated.finite], options.check_episodes)
        return {"qd_score_checked": float(means.sum()), **evaluated.effort()}

    def finalists(self, count: int) -> Finalists:
        """Return the elites of the highest fitness, or candidates to evaluate again where there is no elite yet.

        Where no network had finite scores so far, it is one of zeros.
        """
        if not len(self._elites):
            some = self._again[:count]
            return Finalists(some if len(some) else np.zeros((1, self.network.size), np.float32))
        order = np.argsort(-self._table[:, 1], kind="stable")[:count]
        return Finalists(self._elites[order], None, mean_returns(self._table[order, 2], self.options.episodes))

    def state(self) -> Arrays:
        """Return elites with their cells, fitness and returns, those to evaluate again, the grid, and the emitter."""
        cells, fitness, returns = self._table.T.copy()
        table = {"cells": cells.astype(np.int64), "fitness": fitness, "returns": returns, "grid": self._grid}
        return {"weights": self._elites, "reevaluated": self._again, **table, **self.emitter.state()}

    def restore(self, state: Arrays, records: Sequence[Arrays]) -> None:
        """Continue from an archive, and the record of the generation that left it.

        Elites of another grid, or whose fitness is of other episodes, are evaluated again.
        """
        elites, again = (np.ascontiguousarray(state[name], np.float32) for name in ("weights", "reevaluated"))
        table: NDArray[Any] = np.stack([state[name] for name in COLUMNS], axis=1)
        if np.array_equal(state["grid"], self._grid):
            self._elites, self._table = elites, table
        else:
            again = np.concatenate([elites[np.argsort(-table[:, 1], kind="stable")], again])
        self._again = again[: self.options.reevaluated]
        self.emitter.restore(state, np.concatenate([self._elites, self._again]))
        super().restore(state, records)

    def retrace(self, number: int, record: Arrays) -> bool:
        """Take what a record says of every candidate."""
        sources = self.emitter.candidates(number, len(self._elites), len(self._again))
        table = np.stack([record[name] for name in ("cell", "fitness", "return")], axis=1)
        self._take(number, self.emitter.published(self._elites, self._again), sources, table)
        return True

    def growth(self) -> int:
        """Return the bytes of the elites that cells have space for, which are published too."""
        return 2 * 4 * self.network.size * (int(prod(self.options.bins)) - len(self._elites))


make = partial(MapElites, emitter=Mutation)
