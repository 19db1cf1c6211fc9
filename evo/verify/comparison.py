"""Replay a generation without its poisoned candidates, and compare the replay with the manifest."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from evo.files.hashing import array_digest
from evo.records import WORST, Played, Result, Task
from evo.workers.round import worst_result

if TYPE_CHECKING:
    from evo.records import Arrays, Evaluator
    from evo.store.manifest import Line

SHOWN = 3  # differing candidates that a message names, at most


def has_candidates(line: Line) -> bool:
    """Return whether a generation's record has a row per candidate."""
    shapes = [line.arrays[name].shape for name in ("record/key", "record/return") if name in line.arrays]
    return len(shapes) == 2 and shapes[0] == shapes[1] and len(shapes[0]) == 1


def candidates(line: Line) -> int:
    """Return the number of candidates of a generation; 1 where the algorithm has no candidates."""
    return line.arrays["record/return"].shape[0] if has_candidates(line) else 1


def is_forked(line: Line) -> bool:
    """Return whether a generation is the state that a fork copied from another run."""
    return line.generation == 0 and not line.frames and not any(name.startswith("record/") for name in line.arrays)


def same_outcome(result: Result, record: Mapping[str, NDArray[np.generic]], part: slice) -> bool:
    """Return whether returns and frames of replayed candidates equal rows `part` of the record."""
    worst = (result.returns == WORST).any(axis=1)
    returns = np.where(worst, WORST, result.returns.sum(axis=1, where=result.returns != WORST))
    frames = result.lengths.sum(axis=1, dtype=np.int64)
    return np.array_equal(returns, record["return"][part]) and np.array_equal(frames, record["frames"][part])


def differing_arrays(line: Line, arrays: Arrays) -> list[str]:
    """Return the names ("state/..." or "record/...") of arrays whose digest is not the one in the manifest."""
    names = sorted(arrays.keys() | line.arrays.keys())
    return [n for n in names if n not in arrays or line.arrays.get(n) != array_digest(n, arrays[n])]


def difference(line: Line, name: str, stored: NDArray[np.generic] | None, replayed: NDArray[np.generic] | None) -> str:
    """Describe how a replayed array differs from the stored one; None stands for an array that is missing."""
    if replayed is None:
        return f"{name} is absent from the replay"
    if stored is None or stored.shape != replayed.shape or stored.ndim == 0:
        return f"{name} differs from the replay"
    rows = np.flatnonzero((stored != replayed).reshape(len(stored), -1).any(axis=1))
    if stored.ndim > 1:
        return f"{name} differs in {len(rows)} of {len(stored)} rows"
    row_name = "candidate" if name.startswith("record/") and len(stored) == candidates(line) else "row"
    shown = [f"{row_name} {row} has {stored[row]}, replayed {replayed[row]}" for row in rows[:SHOWN]]
    more = f", and {len(rows) - SHOWN} more" if len(rows) > SHOWN else ""
    return f"{name}: {'; '.join(shown)}{more}"


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
