"""When a search that stands still begins again, and with how many candidates.

IPOP: twice as many as before (Auger and Hansen, "A restart CMA evolution strategy with increasing population size",
2005). BIPOP: as IPOP, and in turn few candidates with a smaller sigma, whichever of both kinds has evaluated fewer of
them (Hansen, "Benchmarking a BI-population CMA-ES on the BBOB-2009 function testbed", 2009).
"""

from __future__ import annotations

from typing import Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from evo.compiled.exact import exp
from evo.evolution.noise_sums import ln
from evo.evolution.population import FITNESS_WORST, LARGEST_POPULATION
from evo.randomness.streams import Purpose, philox, stream

Growth = Literal["same", "ipop", "bipop"]
FIRST, LARGE, SMALL = range(3)  # kinds of searches
SMALLEST_SIGMA = 0.01  # of a small search, as a share of the first one's


class Stall:
    """Counts generations without a new highest mean fitness."""

    def __init__(self) -> None:
        self.restarts, self.best, self.generations = 0, FITNESS_WORST, 0

    def after(self, fitness: NDArray[np.int64]) -> int:
        """Count a generation with this fitness; return for how many generations there was no rise.  # [N]"""
        known = fitness[fitness > FITNESS_WORST]
        mean = int(known.sum()) // len(known) if len(known) else FITNESS_WORST
        self.best, self.generations = (mean, 0) if mean > self.best else (self.best, self.generations + 1)
        return self.generations

    def restart(self) -> None:
        """Reset the counts."""
        self.restarts += 1
        self.forget()

    def forget(self) -> None:
        """Count as if the search had just begun, as in a fork, whose fitness may be the sum of something else."""
        self.best, self.generations = FITNESS_WORST, 0

    def state(self) -> list[int]:
        """Return restarts, highest mean fitness and generations since then."""
        return [self.restarts, self.best, self.generations]

    def restore(self, state: NDArray[np.int64]) -> None:
        """Continue from a state."""
        self.restarts, self.best, self.generations = (int(value) for value in state[:3])


class Size(NamedTuple):
    """How a search begins."""

    population: int
    sigma: float


class Sizes:
    """The sizes of one search after the other."""

    def __init__(self, growth: Growth, first: Size, seed: int) -> None:
        self.size, self._growth, self._first, self._seed = first, growth, first, seed
        self._kind, self._largest, self._evaluated = FIRST, first.population, [0, 0, 0]  # of each kind

    def after(self, candidates: int) -> None:
        """Count what the current search has evaluated in a generation."""
        self._evaluated[self._kind] += candidates

    def restart(self, number: int) -> None:
        """Choose the size of search `number`, of which the first one after a restart is 1."""
        if self._growth == "same":
            return
        small = self._growth == "bipop" and self._evaluated[SMALL] < self._evaluated[LARGE]
        self._kind = SMALL if small else LARGE
        if not small:
            self._largest = min(2 * self._largest, LARGEST_POPULATION)
            self.size = Size(self._largest, self._first.sigma)
            return
        key, least = stream(self._seed, Purpose.RESTART, 0, number), self._first.population
        of_population, of_sigma = (word / (1 << 32) for word in philox(key, (0, 0, 0, 0))[:2])
        ratio = exp(of_population * of_population * ln(0.5 * self._largest / least))
        population = max(least, int(least * ratio) // 2 * 2)  # even, since candidates may come in pairs
        self.size = Size(population, self._first.sigma * exp(of_sigma * ln(SMALLEST_SIGMA)))

    def state(self) -> list[int]:
        """Return kind, largest population, candidates and means that each kind has evaluated, and population.

        Empty where none changes.
        """
        if self._growth == "same":
            return []
        return [self._kind, self._largest, *self._evaluated, self.size.population]

    def restore(self, state: NDArray[np.int64]) -> None:
        """Continue from a state; from none, with the first size."""
        if self._growth == "same" or not len(state):
            return
        kind, largest, *evaluated, population = (int(value) for value in state)
        self._kind, self._largest, self._evaluated = kind, largest, evaluated
        self.size = Size(population, self._first.sigma)  # the search has its sigma already
