"""MAP-Elites: the best network of each kind of behaviour (Mouret and Clune, 2015), evaluated again before it enters.

A grid over descriptors of behaviour divides networks into cells. A child that promises to enter a cell plays once more,
in the next generation, on its new episodes. Only that second score, and the behaviour shown in it, decide: the first
ones were looked at to choose it, so they are better than it is.
"""

from __future__ import annotations

from collections.abc import Generator, Sequence
from math import prod
from typing import Any

import numpy as np
from numpy.typing import NDArray
from pydantic import Field, model_validator

from evo.errors import ConfigurationError
from evo.evolution.population import (
    FITNESS_WORST,
    LARGEST_POPULATION,
    Offspring,
    Outcome,
    PopulationOptions,
    Sigma,
    SigmaSpread,
    mean_returns,
    tasks_of,
)
from evo.plugins.options import Setup
from evo.randomness.streams import Purpose, episode_keys
from evo.records import Algorithm, Arrays, Finalists, Generation, Metrics, Request, Result, WeightSource

NOWHERE = -1  # the cell of a candidate whose scores are not finite
LARGEST_GRID = 1 << 16


class Options(PopulationOptions):
    """The [map_elites] section."""

    contenders: int = Field(
        128, ge=1, le=LARGEST_POPULATION, description="candidates that play again per generation, at most"
    )
    descriptors: list[str] = Field(
        ["length"], min_length=1, max_length=4, description='behaviour: "length", "return" or metrics of an episode'
    )
    low: list[float] = Field([0.0], description="smallest mean of each descriptor; what is below is in the first bin")
    high: list[float] = Field([1000.0], description="largest mean of each descriptor; what is above is in the last bin")
    bins: list[int] = Field([20], description="bins of each descriptor; a cell is a bin of each")
    sigma: Sigma = 0.1
    sigma_spread: SigmaSpread = 0.7
    check_every: int = Field(
        100, ge=0, description="generations after which every elite plays check_episodes fresh episodes; 0 = never"
    )
    check_episodes: int = Field(
        512, ge=1, le=100_000, description="fresh episodes of an elite in a check, which changes nothing"
    )

    @model_validator(mode="after")
    def _consistent(self) -> Options:
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


class MapElites(Algorithm):
    """An archive of elites by cells, and the contenders that play again."""

    def __init__(self, options: Options, setup: Setup) -> None:
        metrics = () if setup.environment is None else setup.environment.episode_metrics
        known = ("length", "return", *metrics)
        if wrong := [name for name in options.descriptors if name not in known]:
            raise ConfigurationError(
                f"map_elites.descriptors: {', '.join(wrong)} unknown here; there are {', '.join(known)}"
            )
        self.options, self.seed, self.network = options, setup.seed, setup.network
        self._per_task = setup.candidates_per_task
        self._columns = [known.index(name) for name in options.descriptors]
        fixed = (options.episodes, options.alive_bonus, options.alive_steps, *self._columns)
        self._grid = np.array([*fixed, *options.low, *options.high, *options.bins], np.float64)
        self._offspring = Offspring(setup.seed, options.sigma, options.sigma_spread)
        start = np.empty((0, setup.network.size)) if setup.start is None else setup.start[np.newaxis]
        self._elites = np.empty((0, setup.network.size), np.float32)  # [C, P] in the order of their cells
        self._cells = np.empty(0, np.int64)  # [C]
        self._fitness = np.empty(0, np.int64)  # [C] summed over episodes, when they entered
        self._returns = np.empty(0, np.int64)  # [C] the same without the bonus
        self._contenders = start.astype(np.float32)  # [K, P]
        self._record: dict[str, NDArray[Any]] = {}

    def generation(self, number: int) -> Generation:
        """Play contenders and children on the same episodes; contenders enter the archive, children contend."""
        options, source, published = self.options, self._candidates(number), self._published()
        seeds = episode_keys(self.seed, Purpose.TRAINING, number, options.episodes)
        results = yield Request(published if len(published) else None, tasks_of(source, seeds, self._per_task))
        outcome = Outcome(results)
        fitness, again, recorded = outcome.fitness(options), len(self._contenders), outcome.record()
        cells = self._cells_of(outcome, recorded["return"])
        entered = self._enter(cells[:again], fitness[:again])
        self._admit(published, entered, cells[:again], fitness[:again], recorded["return"][:again])
        chosen = again + self._promising(cells[again:], fitness[again:])
        self._contenders = self._rebuilt(published, source, chosen)
        self._record = {
            "parent": source.rows,
            "key": source.keys,
            "sigma": source.sigmas,
            **recorded,
            "fitness": fitness,
            "cell": cells,
            "elites": entered.astype(np.int32),
            "contenders": chosen.astype(np.int32),
        }
        metrics = {**outcome.metrics(), **self._archive_metrics(), "sigma": float(np.median(source.sigmas[again:]))}
        if options.check_every and (number + 1) % options.check_every == 0 and len(self._elites):
            checked = yield from self._check(number)
            metrics = {**checked, **{name: value + checked.get(name, 0.0) for name, value in metrics.items()}}
        return metrics

    def _candidates(self, number: int) -> WeightSource:
        """Return the source of every candidate: contenders first and unchanged, then children of these and elites."""
        first = len(self._elites)
        rows = range(first, first + len(self._contenders))
        return self._offspring.of(number, rows, first + len(self._contenders), self.options.population)

    def _published(self) -> NDArray[np.float32]:
        """Return elites and contenders.  # [C + K, P]"""
        return np.concatenate([self._elites, self._contenders])

    def _cells_of(self, outcome: Outcome, returns: NDArray[np.int64]) -> NDArray[np.int64]:
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

    def _promising(self, cells: NDArray[np.int64], fitness: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return the children that are to play again: the best of each cell, where it would enter the archive now.

        Those of empty cells come first, then those that gain most.  # cells, fitness [N] -> [K]
        """
        present = dict(zip(self._cells.tolist(), self._fitness.tolist(), strict=True))
        best: dict[int, int] = {}
        for k in np.argsort(-fitness, kind="stable").tolist():
            if cells[k] != NOWHERE:
                best.setdefault(int(cells[k]), k)
        gains = {k: int(fitness[k]) - present.get(cell, FITNESS_WORST) for cell, k in best.items()}
        better = sorted((k for k in gains if gains[k] > 0), key=lambda k: (-gains[k], k))
        return np.array(better[: self.options.contenders], np.int64)

    def _admit(
        self,
        published: NDArray[np.float32],
        entered: NDArray[np.int64],
        cells: NDArray[np.int64],
        fitness: NDArray[np.int64],
        returns: NDArray[np.int64],
    ) -> None:
        """Take these rows of what was published as elites; cells, fitness, returns [K] are the contenders'."""
        self._elites, self._cells = published[entered], np.concatenate([self._cells, cells])[entered]
        self._fitness = np.concatenate([self._fitness, fitness])[entered]
        self._returns = np.concatenate([self._returns, returns])[entered]

    def _rebuilt(
        self, published: NDArray[np.float32], source: WeightSource, chosen: NDArray[np.int64]
    ) -> NDArray[np.float32]:
        from evo.networks.candidates import Rebuilder

        return Rebuilder(self.network).all(published, source.some(chosen.tolist()))

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
        outcome = Outcome(results)
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
            self._contenders = contenders
        else:
            best = np.argsort(-fitness, kind="stable")
            self._contenders = np.concatenate([elites[best], contenders])[: self.options.contenders]
        self._record = dict(records[-1]) if records else {}

    def retrace(self, number: int, record: Arrays) -> bool:
        """Take the elites and contenders that a record names."""
        elites, chosen = np.asarray(record["elites"], np.int64), np.asarray(record["contenders"], np.int64)
        published, source = self._published(), self._candidates(number)
        columns = [record[name][: len(self._contenders)].astype(np.int64) for name in ("cell", "fitness", "return")]
        self._admit(published, elites, *columns)
        self._contenders = self._rebuilt(published, source, chosen)
        return True

    def growth(self) -> int:
        """Return the bytes of the elites that cells have space for, which are published too."""
        return 2 * 4 * self.network.size * (prod(self.options.bins) - len(self._elites))


def make(options: Options, setup: Setup) -> MapElites:
    """Return MAP-Elites; `setup.start` [P] is the first contender. ConfigurationError: a descriptor is unknown."""
    return MapElites(options, setup)
