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
UNKNOWN = -1  # in place of the generation at which a search began
NONE, SETTLED = -1, -2  # numbers of a best search before the present one: there is none, or none is needed


def compared(stages: Sequence[int], stage: int) -> int:
    """Return how many of a search's generations say how good it is at the end of a stage; all are of that stage."""
    begins = stages[stage - 1] if stage else 0
    return min(max(1, stages[stage] // COMPARED), stages[stage] - begins)


class MultiStart(Algorithm):
    """The present search, and the best one before it; each has a seed of its own, and counts its own generations.

    At the end of a stage the median returns of a search's candidates, in training, are compared over the last tenth of
    its generations. A search that has `Starts.enough` enters the next stage, and after the last one no other begins.
    The best is the one that ended in the latest stage, with the highest median return there.
    """

    def __init__(self, make: Callable[[Setup], Algorithm], setup: Setup) -> None:
        """Begin the first search, with the seed of `setup`; `make` returns an algorithm without gradients."""
        self._make, self._setup, self._starts = make, setup, setup.starts
        self._search, self._began, self._stage = 0, 0, 0  # which search plays, from which generation on, and its stage
        self._score = 0.0  # its sum of median returns that are compared
        self._best: tuple[int, int, float, Arrays] = (NONE, 0, 0.0, {})  # number, stage, score and state
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
        if self._began == UNKNOWN:  # searches of one stage are alike long
            count, (generations,), _ = self._starts
            search = self._search if self._best[0] == SETTLED else min(number // generations, count - 1)
            return number - search * generations
        return number - self._began

    def _turn(self, number: int) -> None:
        """Enter the next stage, begin the next search, or go on with the best one, where that is due."""
        count, stages, enough = self._starts
        if number == 0 or self._best[0] == SETTLED or self.age(number - 1) + 1 != stages[self._stage]:
            return
        if self._score >= enough[self._stage] * compared(stages, self._stage):
            if self._stage + 1 < len(stages):
                self._stage, self._score = self._stage + 1, 0.0
            else:
                self._best = SETTLED, 0, 0.0, {}
            return
        if self._best[0] == NONE or (self._stage, self._score) > self._best[1:3]:
            self._best = self._search, self._stage, self._score, self.algorithm.state()
        over, (best, stage, _, state) = self._search == count - 1, self._best
        if over and best == self._search:
            self._best = NONE, 0, 0.0, {}
            return
        self.algorithm.close()
        self._search, self._began, self._stage, self._score = self._search + 1, number, 0, 0.0
        if over:
            self._search, self._began, self._stage = best, number - stages[stage], stage
        self.algorithm = self._begun(self._search)
        if over:
            self.algorithm.restore(state, ())
            self._best = NONE, 0, 0.0, {}

    def _compare(self, number: int, record: Arrays) -> None:
        """Add the median return of a generation's candidates, where it counts."""
        end = self._starts.stages[self._stage]
        if end - compared(self._starts.stages, self._stage) <= self.age(number) < end:
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
        number, stage, score, state = self._best
        known = [self._search, self._score, number, score]
        known += [self._began, self._stage, stage] if len(self._starts.stages) > 1 else []
        best = {f"{BEST}{name}": array for name, array in state.items()}
        return {**self.algorithm.state(), **best, STARTS: np.array(known)}

    def restore(self, state: Arrays, records: Sequence[Arrays]) -> None:
        """Continue from a state of this run: searches of another one would not be counted from here."""
        search, self._score, number, best, *of_stages = np.asarray(state[STARTS]).tolist()
        self._search, (self._began, self._stage, last) = int(search), map(int, of_stages or (UNKNOWN, 0, 0))
        kept = {name.removeprefix(BEST): np.array(array) for name, array in state.items() if name.startswith(BEST)}
        self._best = int(number), last, best, kept
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
