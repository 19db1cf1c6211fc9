"""Individuals and operators of DEAP's toolbox, for networks whose weights the master never holds.

Operators of a plug-in have DEAP's signatures: `select(individuals, k)`, `mate(child, other)`, `mutate(child)`. Like
DEAP's own they draw from Python's `random`, which is seeded from a named stream while they are called.
"""

from __future__ import annotations

import gc
import math
import random
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from copy import copy
from dataclasses import dataclass
from functools import cache, wraps
from hashlib import blake2b
from typing import Annotated, Any, Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import AfterValidator, Field

from evo.errors import ConfigurationError
from evo.evolution.noise_sums import exp
from evo.lazy import base, tools
from evo.plugins import registry
from evo.process import ALONE
from evo.randomness.streams import draw, draws
from evo.records import Arrays, WeightSource

Crossover = Literal["mean", "uniform", "layers", "none"]
LOG_SIGMAS = -30.0, 15.0  # natural logarithms of the smallest and the largest sigma of a child
CHECKED = ("mate", "mutate")  # operators that change an individual in place
ROW = "it must be the row of an individual that the operator was called with"
SIGMA = f"it must be a float from {LOG_SIGMAS[0]} to {LOG_SIGMAS[1]}"
EXPECTED = {"log_sigma": SIGMA, "row": ROW, "mate": f"{ROW}, or -1"}
KEPT = ("number", "key", "age")  # what these leave as it is, besides the fitness
FIELDS = (*KEPT, *EXPECTED)  # what a selection leaves as it is


def _found(named: str) -> str:
    if named:
        registry.operator(named)
    return named


Operator = Annotated[str, AfterValidator(_found), Field(exclude_if=lambda named: not named)]  # of a plug-in


@dataclass(slots=True, eq=False)
class Individual:
    """A network by name, for DEAP to select, clone, mate and mutate."""

    number: int  # in its generation
    row: int  # of the parent in the matrix of parents, which is sorted best first; -1: a fresh network
    mate: int = -1  # row of the second parent; -1: none
    key: int = 0  # of its noise and its crossover; 0: an elite, the unchanged parent
    log_sigma: float = 0.0  # natural logarithm of the standard deviation of its noise, in LOG_SIGMAS
    age: int = 0  # generations in which it was evaluated
    fitness: Any = None  # DEAP's, of one value, a summed return; a child has its parent's until it is evaluated

    def __copy__(self) -> Individual:  # a tenth of the time of Python's own
        return Individual(self.number, self.row, self.mate, self.key, self.log_sigma, self.age, self.fitness)


@cache
def fitness_class(*weights: int) -> Any:
    """Return a class of DEAP's fitness; a positive weight maximises an objective, a negative one minimises it."""
    return type("Fitness", (base.Fitness,), {"weights": weights})


def fitness_of(individuals: Sequence[Individual]) -> NDArray[Any]:
    """Return the value of every individual's fitness, which is maximised.  # [N] of the type that it was set with"""
    return np.array([one.fitness.wvalues[0] for one in individuals], None if individuals else np.int64)


@contextmanager
def drawing_from(key: int) -> Iterator[None]:
    """Seed the global generators of Python, from which DEAP's operators draw, and NumPy; restore them afterwards."""
    with ALONE:
        before, numpy = random.getstate(), np.random.get_state()  # noqa: NPY002
        random.seed(key)
        np.random.seed([key >> 32, key & 0xFFFFFFFF])  # noqa: NPY002
        try:
            yield
        finally:
            random.setstate(before)
            np.random.set_state(numpy)  # noqa: NPY002


@contextmanager
def no_collection() -> Iterator[None]:
    """Collect no garbage while many individuals are made at once, which would take half of the time."""
    collects = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if collects:
            gc.enable()


def cross(child: Individual, other: Individual) -> tuple[Individual, Individual]:
    """Make an individual the child of a second parent too, with the geometric mean of their sigmas."""
    child.mate, child.log_sigma = other.row, (child.log_sigma + other.log_sigma) / 2
    return child, other


def tournaments(
    individuals: Sequence[Individual], k: int, size: int, elites: int, streams: Iterator[int]
) -> list[Individual]:
    """Return the best `elites` individuals and winners of tournaments, best first, in all k.

    A stream names the individuals of a tournament; DEAP's selTournament draws from the global generator.
    """
    best = tools.selBest(individuals, min(k, elites))
    winners: list[Individual] = []
    for _ in range(k - len(best)):
        name = next(streams)
        numbers = sorted({draw(name, i, len(individuals)) for i in range(size)})
        winners += tools.selBest([individuals[i] for i in numbers], 1)
    return best + tools.selBest(sorted(winners, key=lambda winner: winner.number), len(winners))  # type: ignore[no-any-return]


def worst(individuals: Sequence[Individual], k: int) -> list[Individual]:
    """Return the worst k individuals; of equal ones the last, where DEAP's selBest takes the first.

    So migration does not replace an individual because another one is as good.
    """
    return tools.selBest(individuals, len(individuals))[-k:]  # type: ignore[no-any-return]


def operator(option: str, named: str) -> Callable[..., Any]:
    """Return the operator that an option names, as "plug-in:function", with its result checked."""
    called, name = registry.operator(named), option.rpartition(".")[2]

    def wrong(expected: str, found: object) -> ConfigurationError:
        return ConfigurationError(f"{option}: {named} must {expected}, but it returned {found!r:.60}")

    def same(individuals: Sequence[Individual], names: Sequence[str], before: object = None) -> list[object]:
        found = [[getattr(one, name, None) for name in names] for one in individuals]
        found += [[getattr(one.fitness, "wvalues", None)] for one in individuals]
        if before not in (None, found):
            raise ConfigurationError(f"{option}: {named} must leave {', '.join(names)} and fitness as they are")
        return found  # type: ignore[return-value]

    @wraps(called)
    def changing(child: Individual, *others: Individual) -> tuple[Individual, ...]:
        rows = {child.row, child.mate, *(other.row for other in others), -1}
        before = same([child, *others], KEPT)
        found: tuple[Individual, ...] = called(child, *map(copy, others))  # DEAP's operators change both
        if not isinstance(found, tuple) or not found or found[0] is not child:
            raise wrong("change its first argument in place, and return a tuple that begins with it", found)
        values: dict[str, Any] = {name: getattr(child, name, None) for name in EXPECTED}
        log_sigma, row, mate = values.values()
        right = {
            "log_sigma": isinstance(log_sigma, float) and LOG_SIGMAS[0] <= log_sigma <= LOG_SIGMAS[1],
            "row": isinstance(row, int) and row in rows - {-1},
            "mate": isinstance(mate, int) and mate in rows,
        }
        for name in (name for name, good in right.items() if not good):
            raise ConfigurationError(f"{option}: {named} set {name} to {values[name]!r:.60}; {EXPECTED[name]}")
        same([child, *others], KEPT, before)
        return found

    @wraps(called)
    def selecting(individuals: Sequence[Individual], k: int) -> list[Individual]:
        before = same(individuals, FIELDS)
        found = called([*individuals], k)
        known = {id(one) for one in individuals}
        if not isinstance(found, list) or len(found) != k or not all(id(one) in known for one in found):
            raise wrong(f"return a list of k = {k} of the individuals", found)
        same(individuals, FIELDS, before)
        return found

    return changing if name in CHECKED else selecting


class Parents:
    """The networks that children are made of, best first (of each island), and the individuals that name them."""

    def __init__(self, weights: NDArray[np.floating[Any]], individuals: Sequence[Individual]) -> None:
        """Take networks [S, P], with log_sigma, age and fitness of the individuals."""
        self.weights = np.ascontiguousarray(weights, np.float32)
        self.individuals = [
            Individual(row, row, log_sigma=one.log_sigma, age=one.age, fitness=one.fitness)
            for row, one in enumerate(individuals)
        ]

    @classmethod
    def restored(cls, state: Arrays) -> Parents:
        """Return the parents of a state."""
        kind, columns = fitness_class(1), (np.asarray(state[name]).tolist() for name in ("log_sigmas", "ages", "means"))
        return cls(
            np.asarray(state["weights"], np.float32),
            [
                Individual(0, 0, log_sigma=log_sigma, age=age, fitness=kind((mean,)))
                for log_sigma, age, mean in zip(*columns, strict=True)
            ],
        )

    def state(self) -> dict[str, NDArray[Any]]:
        """Return weights, logarithms of sigma, ages and mean fitness, by name."""
        return {
            "weights": self.weights,
            "log_sigmas": np.array([one.log_sigma for one in self.individuals], np.float64),
            "ages": np.array([one.age for one in self.individuals], np.int32),
            "means": fitness_of(self.individuals),
        }

    def networks(self, population: Sequence[Individual], elites: int) -> list[int]:
        """Return a number of each candidate's network: that of the first candidate which is the same one.  # [N]"""
        numbers = list(range(len(population)))
        first: dict[bytes, int] = {}
        for one in population[:elites]:
            numbers[one.number] = first.setdefault(blake2b(self.weights[one.row]).digest(), one.number)
        return numbers

    def best(self, most: int) -> list[int]:
        """Return the rows of the best parents, best first, without copies of a network."""
        rows: list[int] = []
        for row in np.argsort(-fitness_of(self.individuals), kind="stable").tolist():
            if len(rows) < most and not any(np.array_equal(self.weights[row], self.weights[other]) for other in rows):
                rows.append(row)
        return rows


def mean_parents(
    weights: NDArray[np.float32], chosen: Sequence[Individual], islands: int
) -> tuple[NDArray[np.float32], list[Individual]]:
    """Return the mean of the parents of each island, and an individual for it.  # weights [S, P] -> [islands, P]

    Its sigma is the geometric mean of theirs, and its fitness that of the first. Rows are added one after the other.
    """
    means, individuals = np.empty((islands, weights.shape[1]), np.float32), []
    for island in range(islands):
        parents, total = chosen[island::islands], np.zeros(weights.shape[1])
        for row in weights[island::islands]:
            total += row
        means[island] = total / len(parents)
        log_sigma = math.fsum(one.log_sigma for one in parents) / len(parents)
        individuals.append(Individual(0, 0, log_sigma=log_sigma, fitness=parents[0].fitness))
    return means, individuals


def named(population: Sequence[Individual], floor: float, crossover: Crossover) -> WeightSource:
    """Return the names of a population's weights."""
    rows = np.array([one.row for one in population], np.int32)
    mates = np.array([one.mate for one in population], np.int32)
    keys = np.array([one.key for one in population], np.uint64)
    sigmas = np.maximum(exp(np.array([one.log_sigma for one in population], np.float64)), floor)
    found = np.where((keys != 0) & (rows >= 0), sigmas, 0.0).astype(np.float32)
    return WeightSource(rows, mates, keys, found, "none" if crossover == "mean" else crossover)


def island_rows(names: NDArray[np.uint64], index: int, first: int, parents: int, islands: int) -> NDArray[np.int64]:
    """Return a parent for each candidate from number `first` on, drawn from those of its island.

    Candidate k and parent k are on island k % islands. There are no islands while there are fewer parents than islands,
    as where a run begins with one network.  names [N] -> [N]
    """
    islands = islands if parents >= islands else 1
    island = np.arange(first, first + len(names)) % islands
    return island + islands * draws(names, index, (parents - 1 - island) // islands + 1)


def select_on_islands(
    toolbox: Any, population: Sequence[Individual], k: int, islands: int, migration: bool, networks: Sequence[int]
) -> list[Individual]:
    """Return k parents, the best of each island first, after a migration where that is due.

    Candidates of equal `networks` [N] are copies, as those that have migrated.
    """
    parts = [list(population[island::islands]) for island in range(islands)]
    if migration:
        toolbox.migrate(parts)
    selected = [_without_copies(toolbox.select, part, k // islands, networks) for part in parts]
    return [one for rank in zip(*selected, strict=True) for one in rank]


def _without_copies(
    select: Callable[[Sequence[Individual], int], list[Individual]],
    island: Sequence[Individual],
    k: int,
    networks: Sequence[int],
) -> list[Individual]:
    """Return k selected individuals of an island; copies of one network only where nothing else is left."""
    first: dict[int, Individual] = {}
    for one in island:
        first.setdefault(networks[one.number], one)
    copies = [one for one in island if first[networks[one.number]] is not one]
    selected = list(select(list(first.values()), min(k, len(first))))
    return selected + list(tools.selBest(copies, k - len(selected)))
