"""An algorithm inside of another one: checked where it is from a plug-in, and in a training that changes its rules."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from evo.plugins.mistakes import expect, is_named
from evo.records import Algorithm, Finalists, Request

if TYPE_CHECKING:
    from evo.environment import Curriculum
    from evo.records import Arrays, Generation


class WrappedAlgorithm(Algorithm):
    """Passes every call on."""

    def __init__(self, algorithm: Algorithm) -> None:
        self._algorithm, self.notices = algorithm, algorithm.notices

    def generation(self, number: int) -> Generation:
        """Pass on requests, results and metrics."""
        return self._algorithm.generation(number)

    def finalists(self, count: int) -> Finalists:
        """Return networks for validation."""
        return self._algorithm.finalists(count)

    def state(self) -> Arrays:
        """Return everything that is needed to go on."""
        return self._algorithm.state()

    def record(self) -> Arrays:
        """Return what the last generation did."""
        return self._algorithm.record()

    def restore(self, state: Arrays, records: Sequence[Arrays]) -> None:
        """Continue from a state."""
        self._algorithm.restore(state, records)

    def retrace(self, number: int, record: Arrays) -> bool:
        """Become what a recorded generation left; return whether that is so."""
        return self._algorithm.retrace(number, record)

    def fingerprint(self) -> str:
        """Return what computes the updates."""
        return self._algorithm.fingerprint()

    def growth(self) -> int:
        """Return the bytes that its memory will yet grow by."""
        return self._algorithm.growth()

    def close(self) -> None:
        """Release what the algorithm holds."""
        self._algorithm.close()


class OnCurriculum(WrappedAlgorithm):
    """Plays every generation's training episodes in the environment that a curriculum has for it."""

    def __init__(self, algorithm: Algorithm, curriculum: Curriculum) -> None:
        super().__init__(algorithm)
        self._curriculum = curriculum

    def generation(self, number: int) -> Generation:
        """Pass on requests, results and metrics."""
        rounds = self._algorithm.generation(number)
        request = next(rounds)
        while True:
            tasks = [self._curriculum.placed(task, number) for task in request.tasks]
            try:
                request = rounds.send((yield replace(request, tasks=tasks)))
            except StopIteration as end:
                return {**end.value, **self._curriculum.metrics(number)}


class CheckedAlgorithm(WrappedAlgorithm):
    """Passes every call on; ConfigurationError where an answer is not what the protocol says."""

    def __init__(self, algorithm: Algorithm, module: str) -> None:
        super().__init__(algorithm)
        self._module = module

    def generation(self, number: int) -> Generation:
        """Pass on requests, results and metrics."""
        rounds, answers = self._algorithm.generation(number), None
        self._expect(hasattr(rounds, "send"), "generation", rounds)
        while True:
            try:
                request = rounds.send(answers)  # type: ignore[arg-type]
            except StopIteration as end:
                self._expect(answers is not None, "generation", None)  # it has asked for nothing
                fits = is_named(end.value) and all(np.isscalar(value) for value in end.value.values())
                self._expect(fits, "generation", end.value)
                return dict(end.value)
            self._expect(isinstance(request, Request), "generation", request)
            answers = yield request

    def finalists(self, count: int) -> Finalists:
        """Return networks for validation."""
        found = self._algorithm.finalists(count)
        self._expect(isinstance(found, Finalists) and np.ndim(found.weights) == 2, "finalists", found)
        return found

    def state(self) -> Arrays:
        """Return everything that is needed to go on."""
        return self._arrays("state", self._algorithm.state())

    def record(self) -> Arrays:
        """Return what the last generation did."""
        return self._arrays("record", self._algorithm.record())

    def _arrays(self, hook: str, found: Arrays) -> Arrays:
        fits = is_named(found) and all(isinstance(array, np.ndarray) for array in found.values())
        self._expect(fits, hook, found)
        return found

    def _expect(self, fits: Any, hook: str, found: object) -> None:
        expect(bool(fits), self._module, f"{type(self._algorithm).__name__}.{hook}", found)
