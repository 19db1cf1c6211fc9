"""Multi-start: searches that begin one after the other, of which the best one goes on."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np

from evo.errors import ConfigurationError
from evo.randomness.streams import Purpose, stream
from evo.records import Algorithm, Arrays, Finalists, Generation
from evo.setup import Setup

BEST = "best_start_"  # begins the names of arrays of a state that are of the best search before the present one
STARTS = "starts"  # the array of a state that says which search plays, and how good that one and the best are
COMPARED = 10  # the last tenth of a search's generations says how good it is
NONE, SETTLED = -1, -2  # numbers of a best search before the present one: there is none, or none is needed


def compared(generations: int) -> int:
    """Return how many of a search's generations say how good it is."""
    return max(1, generations // COMPARED)


class MultiStart(Algorithm):
    """The present search, and the best one before it; each has a seed of its own, and counts its own generations.

    The best is the one whose candidates had the highest median return, in training, in its last tenth of generations.
    A search for which that is `Starts.enough` goes on at once, and no other begins.
    """

    def __init__(self, make: Callable[[Setup], Algorithm], setup: Setup) -> None:
        """Begin the first search, with the seed of `setup`; `make` returns an algorithm without gradients."""
        self._make, self._setup, self._starts = make, setup, setup.starts
        self._search, self._score = 0, 0.0  # which search plays, and its sum of median returns that are compared
        self._best: tuple[int, float, Arrays] = (NONE, 0.0, {})  # number, score and state
        self.algorithm = self._begun(0)
        self.notices = self.algorithm.notices

    def _begun(self, search: int) -> Algorithm:
        seed = self._setup.seed
        return self._make(replace(self._setup, seed=stream(seed, Purpose.START, search) if search else seed))

    def generation(self, number: int) -> Generation:
        """Play a generation of the search that has its turn."""
        self._turn(number)
        metrics = yield from self.algorithm.generation(self.age(number))
        self._compare(number, self.algorithm.record())
        return {**metrics, "start": float(self._search)}

    def age(self, number: int) -> int:
        """Return the number of a generation in the search that plays it."""
        count, generations, _ = self._starts
        search = self._search if self._best[0] == SETTLED else min(number // generations, count - 1)
        return number - search * generations

    def _turn(self, number: int) -> None:
        """Begin the next search, or go on with the best one, where that is due."""
        count, generations, enough = self._starts
        if number == 0 or number % generations or number > count * generations or self._best[0] == SETTLED:
            return
        if self._score >= enough * compared(generations):
            self._best = SETTLED, 0.0, {}
            return
        if self._best[0] < 0 or self._score > self._best[1]:
            self._best = self._search, self._score, self.algorithm.state()
        over, (best, _, state) = number == count * generations, self._best
        if over and best == self._search:
            self._best = NONE, 0.0, {}
            return
        self.algorithm.close()
        self._search, self._score = best if over else number // generations, 0.0
        self.algorithm = self._begun(self._search)
        if over:
            self.algorithm.restore(state, ())
            self._best = NONE, 0.0, {}

    def _compare(self, number: int, record: Arrays) -> None:
        """Add the median return of a generation's candidates, where it counts."""
        generations = self._starts.generations
        if generations - compared(generations) <= self.age(number) < generations:
            if "return" not in record:
                raise ConfigurationError(
                    'run.starts: the record of this algorithm has no array "return", by which searches are compared'
                )
            self._score += float(np.median(np.asarray(record["return"], np.float64)))

    def finalists(self, count: int) -> Finalists:
        """Return those of the present search."""
        return self.algorithm.finalists(count)

    def record(self) -> Arrays:
        """Return what the last generation did."""
        return self.algorithm.record()

    def state(self) -> Arrays:
        """Return the present search, the best one before it, and how good they are."""
        number, score, state = self._best
        known = np.array([self._search, self._score, number, score])
        return {**self.algorithm.state(), **{f"{BEST}{name}": array for name, array in state.items()}, STARTS: known}

    def restore(self, state: Arrays, records: Sequence[Arrays]) -> None:
        """Continue from a state of this run: searches of another one would not be counted from here."""
        search, score, number, best = np.asarray(state[STARTS]).tolist()
        self._search, self._score = int(search), score
        kept = {name.removeprefix(BEST): np.array(array) for name, array in state.items() if name.startswith(BEST)}
        self._best = int(number), best, kept
        self.algorithm.close()
        self.algorithm = self._begun(self._search)
        own = {name: array for name, array in state.items() if not name.startswith(BEST) and name != STARTS}
        self.algorithm.restore(own, records[-1:])

    def retrace(self, number: int, record: Arrays) -> bool:
        """Become what a recorded generation left, as far as the search can."""
        self._turn(number)
        self._compare(number, record)
        return self.algorithm.retrace(self.age(number), record)

    def fingerprint(self) -> str:
        """Return that of the present search."""
        return self.algorithm.fingerprint()

    def growth(self) -> int:
        """Return the bytes that the present search will yet grow by."""
        return self.algorithm.growth()

    def close(self) -> None:
        """Release what the present search holds."""
        self.algorithm.close()
