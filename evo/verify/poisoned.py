"""Replay generations with poisoned candidates: they get the worst result, as in the run, without being played."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from evo.records import Played, Result, Task
from evo.workers.round import worst_result

if TYPE_CHECKING:
    from evo.records import Evaluator


class PoisonSkipped:
    """An evaluator of one generation that does not play its poisoned candidates."""

    def __init__(self, evaluator: Evaluator, poisoned: NDArray[np.generic], episode_metrics: int) -> None:
        self._evaluator, self._episode_metrics, self._round = evaluator, episode_metrics, -1
        self._poisoned = {(int(number), int(candidate)) for number, candidate in poisoned}  # round and candidate

    def map(self, tasks: Sequence[Task]) -> Played:
        """Play the tasks; the poisoned have the worst result."""
        self._round += 1
        first, playable = 0, []  # candidates of each task that may be played
        for task in tasks:
            count = len(task.weights)
            playable.append([k for k in range(count) if (self._round, first + k) not in self._poisoned])
            first += count
        pairs = list(zip(tasks, playable, strict=True))
        played = self._evaluator.map([_only(task, some) for task, some in pairs if some])
        results = iter(played.results)
        return replace(
            played, results=[self._result(task, some, next(results) if some else None) for task, some in pairs]
        )

    def close(self) -> None:
        """Close the evaluator."""
        self._evaluator.close()

    def _result(self, task: Task, some: list[int], played: Result | None) -> Result:
        if played is not None and len(some) == len(task.weights):
            return played
        result = worst_result(task, self._episode_metrics)
        if played is None:
            return result
        result.returns[some], result.lengths[some] = played.returns, played.lengths
        result.episode_metrics[some], result.finite[some] = played.episode_metrics, played.finite
        return replace(result, frames=played.frames, lane_slots=played.lane_slots)


def _only(task: Task, some: list[int]) -> Task:
    """Return a task of some candidates of a task."""
    if len(some) == len(task.weights):
        return task
    return replace(task, weights=task.weights.some(some))
