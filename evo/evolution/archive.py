"""An archive of the best network of each kind of behaviour, which is evaluated again before it enters.

A grid over descriptors of behaviour divides networks into cells. A child that promises to enter a cell plays once more,
in the next generation, on its new episodes. Only that second score, and the behaviour shown in it, decide: the first
ones were looked at to choose it, so they are better than it is. Where children come from is up to the algorithm.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Generator, Sequence
from math import prod
from typing import Any, ClassVar, NamedTuple, Self

import numpy as np
from numpy.typing import NDArray
from pydantic import Field, model_validator

from evo.evolution.population import (
    FITNESS_WORST,
    LARGEST_POPULATION,
    Evaluated,
    PopulationOptions,
    mean_returns,
    metrics_of,
    tasks_of,
)
from evo.randomness.streams import Purpose, episode_keys
from evo.records import Algorithm, Arrays, Finalists, Generation, Metrics, Request, Result, WeightSource
from evo.setup import Setup

NOWHERE = -1  # the cell of a candidate whose scores are not finite
LARGEST_GRID = 1 << 16


class ArchiveOptions(PopulationOptions):
    """Options of an algorithm that keeps an archive."""

    algorithm: ClassVar[str]

    contenders: int = Field(
        128, ge=1, le=LARGEST_POPULATION, description="candidates that play again per generation, at most"
    )
    descriptors: list[str] = Field(
        ["length"], min_length=1, max_length=4, description='behaviour: "length", "return" or metrics of an episode'
    )
    low: list[float] = Field([0.0], description="smallest mean of each descriptor; what is below is in the first bin")
    high: list[float] = Field([1000.0], description="largest mean of each descriptor; what is above is in the last bin")
    bins: list[int] = Field([20], description="bins of each descriptor; a cell is a bin of each")
    check_every: int = Field(
        100, ge=0, description="generations after which every elite plays check_episodes fresh episodes; 0 = never"
    )
    check_episodes: int = Field(
        512, ge=1, le=100_000, description="fresh episodes of an elite in a check, which changes nothing"
    )

    @property
    def needs_stationary_training(self) -> str:
        """The archive."""
        return "the archive"

    @model_validator(mode="after")
    def _a_grid(self) -> Self:
        if self.contenders >= self.population:
            raise ValueError(f"contenders: {self.contenders} of a population of {self.population}, so none is new")
        for name in ("low", "high", "bins"):
            if len(getattr(self, name)) != len(self.descriptors):
                raise ValueError(f"{name}: {len(getattr(self, name))} numbers for {len(self.descriptors)} descriptors")
        if not all(low < high for low, high in zip(self.low, self.high, strict=True)):
            raise ValueError(f"low: {self.low} must be less than high, {self.high}")
        if min(self.bins) < 1 or prod(self.bins) > LARGEST_GRID:
            raise ValueError(f"bins: {self.bins} are not from 1 to {LARGEST_GRID:,} cells")
        if len(set(self.descriptors)) < len(self.descriptors):
            raise ValueError(f"descriptors: {self.descriptors} names one twice")
        return self

    def known(self, environment: Any) -> tuple[str, ...]:
        """Return the descriptors that there are; ConfigurationError where another one is named."""
        return metrics_of(environment, ("length", "return"), f"{self.algorithm}.descriptors", self.descriptors)

    def extra_outputs(self, environment: Any) -> int:
        """Return 0; ConfigurationError where the environment has no such descriptor."""
        self.known(environment)
        return 0


class Children(NamedTuple):
    """What the new candidates of a generation did, beside what the archive had."""

    cells: NDArray[np.int64]  # [N] NOWHERE where scores are not finite
    fitness: NDArray[np.int64]  # [N]
    gains: NDArray[np.int64]  # [N] fitness above that of the cell's elite, or above FITNESS_WORST in an empty cell
    empty: NDArray[np.bool_]  # [N] whether the cell has no elite

    def some(self, which: slice) -> Children:
        """Return what some of them did."""
        return Children(self.cells[which], self.fitness[which], self.gains[which], self.empty[which])


class Archive(Algorithm):
    """Elites by cells, and the contenders that play again."""

    def __init__(self, options: ArchiveOptions, setup: Setup) -> None:
        known = options.known(setup.environment)
        self.options, self.seed, self.network = options, setup.seed, setup.network
        self._per_task = setup.candidates_per_task
        self._columns = [known.index(name) for name in options.descriptors]
        fixed = (options.episodes, options.alive_bonus, options.alive_steps, *self._columns)
        self._grid = np.array([*fixed, *options.low, *options.high, *options.bins], np.float64)
        start = np.empty((0, setup.network.size)) if setup.start is None else setup.start[np.newaxis]
        self._elites = np.empty((0, setup.network.size), np.float32)  # [C, P] in the order of their cells
        self._cells = np.empty(0, np.int64)  # [C]
        self._fitness = np.empty(0, np.int64)  # [C] summed over episodes, when they entered
        self._returns = np.empty(0, np.int64)  # [C] the same without the bonus
        self._contenders = start.astype(np.float32)  # [K, P]
        self._record: dict[str, NDArray[Any]] = {}

    @abstractmethod
    def candidates(self, number: int) -> list[WeightSource]:
        """Return the candidates of a generation, of rows of `published`, in one source or several.

        Contenders come first and unchanged.
        """

    def learn(self, number: int, sources: Sequence[WeightSource], children: Children) -> Metrics:
        """Learn from the new candidates of a generation; return metrics."""
        return {}

    @abstractmethod
    def published(self) -> NDArray[np.float32]:
        """Return the rows that candidates are made of.  # [R, P]"""

    def generation(self, number: int) -> Generation:
        """Play contenders and children on the same episodes; contenders enter the archive, children contend."""
        options, sources, published = self.options, self.candidates(number), self.published()
        seeds = episode_keys(self.seed, Purpose.TRAINING, number, options.episodes)
        tasks = [task for source in sources for task in tasks_of(source, seeds, self._per_task)]
        results = yield Request(published if len(published) else None, tasks)
        outcome = Evaluated(results)
        fitness, recorded, again = outcome.fitness(options), outcome.record(), len(self._contenders)
        cells = self._cells_of(outcome, recorded["return"])
        entered, chosen, learned = self._take(number, published, sources, cells, fitness, recorded["return"])
        self._record = {
            "parent": np.concatenate([source.rows for source in sources]),
            "key": np.concatenate([source.keys for source in sources]),
            "sigma": np.concatenate([source.sigmas for source in sources]),
            **recorded,
            "fitness": fitness,
            "cell": cells,
            "elites": entered.astype(np.int32),
            "contenders": chosen.astype(np.int32),
        }
        sigma = float(np.median(self._record["sigma"][again:]))
        metrics = {**outcome.metrics(), **self._archive_metrics(), "sigma": sigma, **learned}
        if options.check_every and (number + 1) % options.check_every == 0 and len(self._elites):
            checked = yield from self._check(number)
            metrics = {**checked, **{name: value + checked.get(name, 0.0) for name, value in metrics.items()}}
        return metrics

    def _take(
        self,
        number: int,
        published: NDArray[np.float32],
        sources: Sequence[WeightSource],
        cells: NDArray[np.int64],
        fitness: NDArray[np.int64],
        returns: NDArray[np.int64],
    ) -> tuple[NDArray[np.int64], NDArray[np.int64], Metrics]:
        """Admit contenders and choose those of the next generation; return elites, contenders, and what was learned.

        published [R, P]; cells, fitness, returns [N] of all candidates -> rows [C], candidates [K]
        """
        again = len(self._contenders)
        entered = self._enter(cells[:again], fitness[:again])
        self._admit(entered, cells[:again], fitness[:again], returns[:again])
        children = self._compared(cells[again:], fitness[again:])
        chosen = again + self._promising(children)
        self._contenders = self._rebuilt(published, sources, chosen)
        return entered, chosen, self.learn(number, sources, children)

    def _cells_of(self, outcome: Evaluated, returns: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return the cell of every candidate's mean behaviour; NOWHERE where scores are not finite.

        returns [N], summed -> [N]
        """
        options, cells = self.options, np.zeros(len(outcome.finite), np.int64)
        table = [outcome.lengths.sum(axis=1, dtype=np.int64), returns / 1000.0]
        table += list(outcome.episode_metrics.sum(axis=1, dtype=np.int64).T)
        for column, low, high, bins in zip(self._columns, options.low, options.high, options.bins, strict=True):
            means = np.where(outcome.finite, table[column] / options.episodes, low)
            place = np.floor((means - low) / (high - low) * bins)
            cells = cells * bins + np.clip(place, 0, bins - 1).astype(np.int64)
        return np.where(outcome.finite, cells, NOWHERE)

    def _enter(self, cells: NDArray[np.int64], fitness: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return who is in the archive from now on, rows of elites and contenders in the order of cells.

        cells, fitness [K] of the contenders -> [C]
        """
        first, best = len(self._cells), {int(cell): row for row, cell in enumerate(self._cells)}
        values = np.concatenate([self._fitness, fitness])
        for k, cell in enumerate(cells.tolist()):
            if cell != NOWHERE and (cell not in best or fitness[k] > values[best[cell]]):
                best[cell] = first + k
        return np.array([best[cell] for cell in sorted(best)], np.int64)

    def _compared(self, cells: NDArray[np.int64], fitness: NDArray[np.int64]) -> Children:
        """Return what children do beside the archive.  # cells, fitness [N]"""
        place = np.searchsorted(self._cells, cells)
        known = np.append(self._cells, NOWHERE - 1)[place] == cells
        present = np.append(self._fitness, FITNESS_WORST)[np.where(known, place, -1)]
        return Children(cells, fitness, fitness - present, ~known & (cells != NOWHERE))

    def _promising(self, children: Children) -> NDArray[np.int64]:
        """Return the children that are to play again: the best of each cell, where it would enter the archive now.

        Those of empty cells come first, then those that gain most.  # -> [K]
        """
        best: dict[int, int] = {}
        for k in np.argsort(-children.fitness, kind="stable").tolist():
            if children.cells[k] != NOWHERE:
                best.setdefault(int(children.cells[k]), k)
        better = sorted((k for k in best.values() if children.gains[k] > 0), key=lambda k: (-children.gains[k], k))
        return np.array(better[: self.options.contenders], np.int64)

    def _admit(
        self,
        entered: NDArray[np.int64],
        cells: NDArray[np.int64],
        fitness: NDArray[np.int64],
        returns: NDArray[np.int64],
    ) -> None:
        """Take these rows of elites and contenders as elites; cells, fitness, returns [K] are the contenders'."""
        self._elites = np.concatenate([self._elites, self._contenders])[entered]
        self._cells = np.concatenate([self._cells, cells])[entered]
        self._fitness = np.concatenate([self._fitness, fitness])[entered]
        self._returns = np.concatenate([self._returns, returns])[entered]

    def _rebuilt(
        self, published: NDArray[np.float32], sources: Sequence[WeightSource], chosen: NDArray[np.int64]
    ) -> NDArray[np.float32]:
        from evo.networks.candidates import Rebuilder

        rebuilder, found, first = Rebuilder(self.network), np.empty((len(chosen), self.network.size), np.float32), 0
        for source in sources:
            here = (first <= chosen) & (chosen < first + len(source))
            if here.any():
                found[here] = rebuilder.all(published, source.some((chosen[here] - first).tolist()))
            first += len(source)
        return found

    def _archive_metrics(self) -> Metrics:
        """Return how many cells are taken, their share, and the sum of the elites' mean fitness when they entered."""
        means = self._fitness / (1000.0 * self.options.episodes)
        return {
            "elites": float(len(means)),
            "coverage": len(means) / prod(self.options.bins),
            "qd_score": float(means.sum()),
        }

    def _check(self, number: int) -> Generator[Request, Sequence[Result], Metrics]:
        """Play every elite on fresh episodes; return the sum of their mean fitness, and what that took."""
        options = self.options
        fresh = slice(options.episodes, options.episodes + options.check_episodes)
        seeds = episode_keys(self.seed, Purpose.TRAINING, number, fresh.stop)[fresh]
        results = yield Request(self._elites, tasks_of(WeightSource.of_rows(len(self._elites)), seeds, 1))
        outcome = Evaluated(results)
        means = outcome.fitness(options)[outcome.finite] / (1000.0 * options.check_episodes)
        return {"qd_score_checked": float(means.sum()), **outcome.effort()}

    def finalists(self, count: int) -> Finalists:
        """Return the elites of the highest fitness, or contenders where there is no elite yet.

        Where no network had finite scores so far, it is one of zeros.
        """
        if not len(self._elites):
            some = self._contenders[:count]
            return Finalists(some if len(some) else np.zeros((1, self.network.size), np.float32))
        order = np.argsort(-self._fitness, kind="stable")[:count]
        return Finalists(self._elites[order], None, mean_returns(self._returns[order], self.options.episodes))

    def state(self) -> Arrays:
        """Return the elites with their cells, fitness and returns, the contenders, and what the grid is."""
        return {
            "weights": self._elites,
            "cells": self._cells,
            "fitness": self._fitness,
            "returns": self._returns,
            "contenders": self._contenders,
            "grid": self._grid,
        }

    def record(self) -> Arrays:
        """Return parent, key, sigma, summed return, frames and cell of every candidate, the elites and contenders."""
        return self._record

    def restore(self, state: Arrays, records: Sequence[Arrays]) -> None:
        """Continue from an archive, and the record of the generation that left it.

        Elites of another grid, or whose fitness is of other episodes, have no place here; they contend for one.
        """
        elites, contenders = (np.ascontiguousarray(state[name], np.float32) for name in ("weights", "contenders"))
        cells, fitness, returns = (np.asarray(state[name], np.int64) for name in ("cells", "fitness", "returns"))
        if np.array_equal(state["grid"], self._grid):
            self._elites, self._cells, self._fitness, self._returns = elites, cells, fitness, returns
        else:
            contenders = np.concatenate([elites[np.argsort(-fitness, kind="stable")], contenders])
        self._contenders = contenders[: self.options.contenders]
        self._record = dict(records[-1]) if records else {}

    def retrace(self, number: int, record: Arrays) -> bool:
        """Take what a record says of every candidate."""
        columns = [record[name].astype(np.int64) for name in ("cell", "fitness", "return")]
        self._take(number, self.published(), self.candidates(number), *columns)
        return True

    def growth(self) -> int:
        """Return the bytes of the elites that cells have space for, which are published too."""
        return 2 * 4 * self.network.size * (prod(self.options.bins) - len(self._elites))
