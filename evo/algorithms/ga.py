"""A genetic algorithm: truncation or tournament selection of weights, and mutation by noise (Such et al., 2017).

DEAP ranks individuals, which are only numbers. The weights of the parents are the rows of one matrix, and a child is
described by its parent's row, its mate's row, a noise key and a sigma. Elites are evaluated again in every generation,
on the new episodes, so no candidate survives on one lucky score.
"""

from __future__ import annotations

from collections.abc import Generator, Sequence
from hashlib import blake2b
from typing import Any, Literal, Self

import numpy as np
from numpy.typing import NDArray
from pydantic import Field, model_validator

from evo.evolution.population import (
    FITNESS_WORST,
    Outcome,
    between_islands,
    mean_returns,
    spread,
    tasks_of,
)
from evo.evolution.racing import race
from evo.evolution.restarts import Stall
from evo.evolution.selection import Selection, SelectionOptions
from evo.evolution.sigmas import OCTAVE, STEPS, drawn_steps, sigma_table
from evo.randomness.philox_arrays import draws
from evo.randomness.streams import Purpose, candidate_keys, episode_keys
from evo.records import Algorithm, Arrays, Finalists, Generation, Metrics, Request, Result, WeightSource
from evo.setup import Setup


class Options(SelectionOptions):
    """The [ga] section."""

    memory: int = Field(
        1, ge=1, le=1000, description="generations over which an elite's fitness is averaged; 1 = the last only"
    )
    sigma: float = Field(
        0.1, gt=0, le=1000, description="standard deviation of the mutation noise: the base of a child's sigma"
    )
    sigma_spread: float = Field(
        0.7, ge=0, le=4, description="log-normal spread of sigma: base * exp(sigma_spread * N(0, 1)); 0 = none"
    )
    sigma_halving: int = Field(0, ge=0, description="generations after which the base is halved; 0 = never")
    sigma_floor: float = Field(0.0, ge=0, le=1000, description="smallest sigma of a child; 0 = none")
    adapt: bool = Field(False, description="self-adaptive sigma: spread around the parent's sigma, not around the base")
    crossover: Literal["none", "uniform", "layers"] = Field(
        "none", description="crossover of two parents by single weights (uniform) or whole layers"
    )
    crossover_rate: float = Field(
        0.5, ge=0, le=1, description="probability that a child has two parents; not used where crossover = none"
    )

    restart_after: int = Field(
        0,
        ge=0,
        description="generations without a new highest mean fitness of the parents after which the population restarts "
        "from fresh networks; 0 = never",
    )
    race: int = Field(
        0,
        ge=0,
        le=100_000,
        description="episodes that all candidates play before those near the boundary of selection play on, in place "
        "of `episodes` each, with at most the same total; 0 = no race",
    )

    @model_validator(mode="after")
    def _a_race_has_a_boundary(self) -> Self:
        if self.race and not 2 <= self.race < self.episodes:
            raise ValueError(f"race: {self.race} must be at least 2, and less than episodes, {self.episodes}")
        if self.race and self.parents == self.population:
            raise ValueError(f"race: all {self.population} candidates become parents, so nobody is selected")
        if self.race and (self.selection != "truncation" or self.islands > 1):
            raise ValueError("race: needs selection = truncation, and no islands")
        return self

    @property
    def needs_stationary_training(self) -> str:
        """The memory of elites, or restarts, where there are any."""
        return "memory" if self.memory > 1 else "restart_after" if self.restart_after else ""

    def in_identity(self) -> dict[str, bool]:
        """Return whether an option is part of a run's identity; one that is not named here is."""
        return {**super().in_identity(), "race": self.race > 0, "restart_after": self.restart_after > 0}

    def episodes_per_candidate(self) -> int:
        """Return how many episodes each candidate plays in a generation, before a race."""
        return self.race or self.episodes


class GeneticAlgorithm(Algorithm):
    """A population, stored as its parents."""

    def __init__(self, options: Options, setup: Setup) -> None:
        from deap import tools

        self.options, self.seed, self.network = options, setup.seed, setup.network
        self._per_task = setup.candidates_per_task
        self.selection = Selection(options, setup.seed)
        self.statistics = tools.Statistics(lambda individual: individual.fitness.values[0])
        self.statistics.register("best", max)
        self.statistics.register("mean", lambda values: sum(values) / len(values))
        self.logbook = tools.Logbook()
        self._sigmas = sigma_table(options.sigma)
        self._parents = np.empty((0, setup.network.size), np.float32)  # [S, P] best first, of each island
        self._steps = np.empty(0, np.int32)  # [S] the sigma that made each parent, as a step
        self._ages = np.empty(0, np.int32)  # [S] generations in which each parent was evaluated
        self._means = np.empty(0, np.int64)  # [S] mean fitness over at most `memory` of these
        self._stall, self._began = Stall(), 0  # the generation in which the population was fresh
        self._begins = setup.start is not None  # with this only parent, candidate 0 of generation 0
        if setup.start is not None:
            self._parents = np.ascontiguousarray(setup.start, np.float32)[None]
            self._steps, self._ages, self._means = np.zeros(1, np.int32), np.zeros(1, np.int32), np.zeros(1, np.int64)
        self._record: dict[str, NDArray[Any]] = {}

    def generation(self, number: int) -> Generation:
        """Play the population, and choose the parents of the next one."""
        options = self.options
        if 0 < options.restart_after <= self._stall.generations:
            self._stall.restart()
            self._begin_again(number)
        source, steps = self._candidates(number)
        seeds = episode_keys(self.seed, Purpose.TRAINING, number, options.episodes_per_candidate())
        published = self._parents if len(self._parents) else None
        results = yield Request(published, tasks_of(source, seeds, self._per_task))
        outcome = Outcome(results)
        compared = self._compared(source, outcome)
        measured, effort = outcome.fitness(options), outcome.effort()
        raced: dict[str, NDArray[Any]] = {}
        if options.race:
            raced, effort = yield from self._race(number, source, outcome)
            measured = raced["fitness"]
        known = measured > FITNESS_WORST
        fitness, ages = self._remember(measured.copy())
        population = self.selection.individuals(fitness)
        chosen = self.selection.parents(population, number, self._networks(source))
        finite = [individual for individual in population if known[individual.number]]
        self.logbook.record(generation=number, **self.statistics.compile(finite or population))
        survivors = self._rebuilt(source.some(chosen))
        self._parents, self._steps = survivors, steps[chosen]
        self._ages, self._means = ages[chosen], fitness[chosen]
        self._stall.after(self._means)
        self._record = {
            "parent": source.rows,
            "mate": source.mates,
            "key": source.keys,
            "sigma": source.sigmas,
            **outcome.record(),
            **raced,
            "survivors": np.array(chosen, np.int32),
            **self._progress(),
        }
        per = 1000.0 * options.episodes
        return {
            **outcome.metrics(),
            **effort,
            "nonfinite": float((~known).sum()),
            "best_fitness": self.logbook[-1]["best"] / per if finite else float("nan"),
            "mean_fitness": self.logbook[-1]["mean"] / per if finite else float("nan"),
            "sigma": float(np.median(source.sigmas)),
            **compared,
            **self._selected(source, np.array(chosen)),
            **({"restarts": float(self._stall.restarts)} if options.restart_after else {}),
        }

    def _begin_again(self, number: int) -> None:
        """Forget the parents, so that all candidates of a generation are fresh networks."""
        self._parents, self._began, self._begins = self._parents[:0], number, False
        self._steps, self._ages, self._means = self._steps[:0], self._ages[:0], self._means[:0]

    def _race(
        self, number: int, source: WeightSource, outcome: Outcome
    ) -> Generator[Request, Sequence[Result], tuple[dict[str, NDArray[Any]], Metrics]]:
        """Let candidates near the boundary of selection play on; return what is recorded of it, and what all took.

        The fitness [N] in the record is that of `episodes` episodes, FITNESS_WORST where a score is not finite.
        """
        options, known, effort = self.options, np.flatnonzero(outcome.finite), outcome.effort()

        def play(
            racers: NDArray[np.int64], numbers: slice
        ) -> Generator[Request, Sequence[Result], tuple[NDArray[np.int64], NDArray[np.bool_]]]:
            seeds = episode_keys(self.seed, Purpose.TRAINING, number, numbers.stop)[numbers]
            again = Outcome((yield Request(None, tasks_of(source.some(known[racers].tolist()), seeds, self._per_task))))
            for name, value in again.effort().items():
                effort[name] += value
            return again.values(options), again.finite

        raced = yield from race(outcome.values(options)[known], options.parents, options.episodes, play)
        fitness, episodes = np.full(len(source), FITNESS_WORST), np.full(len(source), options.race, np.int32)
        finite = np.isfinite(raced.means)
        fitness[known[finite]] = np.rint(raced.means[finite] * options.episodes)
        episodes[known] = raced.episodes
        return {"episodes": episodes, "fitness": fitness}, effort

    def _compared(self, source: WeightSource, outcome: Outcome) -> Metrics:
        """Return the shares of children that beat their parent on the same episodes, and that play exactly as it does.

        NaN where no parent plays.
        """
        fitness, rows = outcome.fitness(self.options), source.rows
        children = np.flatnonzero((rows >= 0) & (rows < _elites(source)) & (np.arange(len(source)) >= _elites(source)))
        if not len(children):
            return {"improving": float("nan"), "neutral": float("nan")}
        better = fitness[children] > fitness[rows[children]]
        neutral = [outcome.alike(int(child), int(rows[child])) for child in children]
        return {"improving": float(better.mean()), "neutral": float(np.mean(neutral))}

    def _selected(self, source: WeightSource, chosen: NDArray[np.int64]) -> Metrics:
        """Return what selection left: its diversity, the share of new networks, and the median sigma of these."""
        islands, new = self.options.islands, chosen[chosen >= _elites(source)]
        mutated = source.sigmas[new][source.rows[new] >= 0]
        return {
            **spread(self._parents),
            **({"between_islands": between_islands(self._parents, islands)} if islands > 1 else {}),
            "turnover": len(new) / len(chosen),
            "surviving_sigma": float(np.median(mutated)) if len(mutated) else float("nan"),
        }

    def _networks(self, source: WeightSource) -> list[int]:
        """Return a number of each candidate's network: that of the first candidate which is the same one."""
        numbers = list(range(len(source)))
        if self.options.islands > 1:  # elsewhere there are no copies to tell apart
            first: dict[bytes, int] = {}
            for candidate in range(_elites(source)):
                digest = blake2b(self._parents[source.rows[candidate]]).digest()
                numbers[candidate] = first.setdefault(digest, candidate)
        return numbers

    def finalists(self, count: int) -> Finalists:
        """Return the best of the survivors."""
        rows = self.selection.best(self._parents, self._means, count)
        survivors = self._record.get("survivors")  # not after a fork, before a generation is played
        if survivors is None:
            return Finalists(self._parents[rows])
        chosen = survivors[rows]
        returns = mean_returns(self._record["return"][chosen], self.options.episodes_per_candidate())
        return Finalists(self._parents[rows], chosen.tolist(), returns)

    def _candidates(self, number: int) -> tuple[WeightSource, NDArray[np.int32]]:
        """Return the source of every candidate, elites first and unchanged, and the sigma steps that made them."""
        options, n = self.options, self.options.population
        rows, mates = np.full(n, -1, np.int32), np.full(n, -1, np.int32)
        keys, steps = np.zeros(n, np.uint64), np.zeros(n, np.int32)
        sigmas = np.zeros(n, np.float32)
        elites = 1 if self._begins and number == 0 else min(options.elites, len(self._parents))
        rows[:elites], steps[:elites] = np.arange(elites), self._steps[:elites]
        schedule = -(OCTAVE * (number - self._began) // options.sigma_halving) if options.sigma_halving else 0
        crossed = round(options.crossover_rate * 65536) if options.crossover != "none" else 0
        new = slice(elites, n)

        def streams(purpose: Purpose) -> NDArray[np.uint64]:
            return candidate_keys(self.seed, purpose, number, elites, n)

        if not len(self._parents):
            keys[new] = streams(Purpose.INITIAL)
            return WeightSource(rows, mates, keys, sigmas, options.crossover), steps
        names = streams(Purpose.PARENT)
        rows[new] = self.selection.rows(names, 0, elites, len(self._parents))
        others = self.selection.rows(names, 2, elites, len(self._parents))
        mates[new] = np.where(draws(names, 1, 65536) < crossed, others, -1)
        keys[new] = streams(Purpose.MUTATION)
        centers = self._steps[rows[new]] if options.adapt else schedule
        spread = drawn_steps(streams(Purpose.SIGMA), options.sigma_spread)
        steps[new] = np.clip(centers + spread, STEPS.start, STEPS.stop - 1)
        sigmas[new] = np.maximum(self._sigmas[steps[new] - STEPS.start], np.float32(options.sigma_floor))
        return WeightSource(rows, mates, keys, sigmas, options.crossover), steps

    def _remember(self, fitness: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[np.int32]]:
        """Return fitness and age; the fitness of an elite is its mean over up to `memory` generations.  # [N] each"""
        ages = np.ones(len(fitness), np.int32)
        for i in range(min(self.options.elites, len(self._ages))):
            past = min(int(self._ages[i]), self.options.memory - 1)
            ages[i] = self._ages[i] + 1
            if past and fitness[i] > FITNESS_WORST and self._means[i] > FITNESS_WORST:
                fitness[i] = (int(self._means[i]) * past + int(fitness[i])) // (past + 1)
        return fitness, ages

    def _rebuilt(self, source: WeightSource) -> NDArray[np.float32]:
        from evo.networks.candidates import Rebuilder

        return Rebuilder(self.network).all(self._parents, source)

    def state(self) -> Arrays:
        """Return the parents, their sigma steps, ages and mean fitness, and what decides about a restart."""
        return {
            "weights": self._parents,
            "steps": self._steps,
            "ages": self._ages,
            "means": self._means,
            **self._progress(),
        }

    def _progress(self) -> dict[str, NDArray[np.int64]]:
        """Return what decides about a restart, where there are any."""
        known = np.array([*self._stall.state(), self._began], np.int64)
        return {"progress": known} if self.options.restart_after else {}

    def _resume(self, progress: NDArray[np.int64]) -> None:
        """Go on from what decides about a restart."""
        self._stall.restore(progress)
        self._began = int(progress[3])

    def record(self) -> Arrays:
        """Return parent, mate, key, sigma, summed return and frames of every candidate, and who survived."""
        return self._record

    def restore(self, state: Arrays, records: Sequence[Arrays]) -> None:
        """Continue from the parents of a state, and the record of the generation that left them."""
        self._parents = np.ascontiguousarray(state["weights"], np.float32)
        self._steps = np.asarray(state["steps"], np.int32)
        self._ages = np.asarray(state["ages"], np.int32)
        self._means = np.asarray(state["means"], np.int64)
        if self.options.restart_after and "progress" in state and len(records):  # a fork counts anew
            self._resume(np.asarray(state["progress"], np.int64))
        self._record = dict(records[-1]) if records else {}

    def retrace(self, number: int, record: Arrays) -> bool:
        """Rebuild the survivors that a record names."""
        if len(self._parents) and (np.asarray(record["parent"], np.int32) < 0).all():
            self._begin_again(number)
        if "progress" in record:
            self._resume(np.asarray(record["progress"], np.int64))
        source, steps = self._candidates(number)
        chosen = record["survivors"].tolist()
        self._parents, self._steps = self._rebuilt(source.some(chosen)), steps[chosen]
        self._ages, self._means = np.ones(len(chosen), np.int32), np.zeros(len(chosen), np.int64)
        return True


def _elites(source: WeightSource) -> int:
    """Return how many of the candidates are unchanged parents, which come first."""
    return int(((source.sigmas == 0) & (source.rows == np.arange(len(source)))).sum())


def make(options: Options, setup: Setup) -> GeneticAlgorithm:
    """Return the algorithm; `setup.start` [P] becomes candidate 0 of generation 0, and all others its children."""
    return GeneticAlgorithm(options, setup)
