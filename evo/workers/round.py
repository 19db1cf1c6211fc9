"""One round, which is a call of `map`: tasks left to play, their deadlines, time spent, and poisoned candidates.

A task that has ended three workers is played candidate by candidate, which does not change results, so that only the
candidate that causes it is named. A candidate that has ended three more workers, alone, is poison.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from evo.environment import Environment
from evo.errors import PoisonError, ResourceError
from evo.records import Effort, Episodes, Played, Result, Segment, Task, empty_result
from evo.workers.channel import Packed

ATTEMPTS = 3  # times that a task may end its worker
RECENT = 256  # tasks whose throughput counts
MEAN = 20.0  # deadline over the time of a task of this size at the mean throughput
SLOWEST = 4.0  # deadline over the time of the slowest of them, which may have been the first


@dataclass(frozen=True)
class Part:
    """What one ticket is for: a whole task, or one candidate of it."""

    task: Any
    index: int  # of the task among those of the round
    first: int | None = None  # the candidate, where it is one of several


class Round:
    """The tasks of a round, by ticket: a number that no other round uses, so a late answer is recognised.

    `workers` are those whose time counts. `worst` gives the result of poison; without it, poison is a PoisonError.
    `separable`: candidates may be played apart from each other.
    """

    def __init__(
        self,
        tasks: Sequence[Any],
        tickets: Iterator[int],
        workers: Iterable[Hashable] = (),
        *,
        attempts: int,
        separable: bool,
        worst: Callable[[Task], Result] | None,
    ) -> None:
        self.waiting: deque[int] = deque()
        self.busy: dict[Hashable, float] = dict.fromkeys(workers, 0.0)  # seconds of playing, by worker
        self.straggling = self.cpu_seconds = 0.0
        self.replaced = self.bytes_sent = self.bytes_received = 0  # as in `Effort`
        self._began = time.monotonic()
        self._poisoned: list[PoisonError] = []
        self._attempts, self._separable, self._worst = attempts, separable, worst
        self._tickets = tickets
        self._parts: dict[int, Part] = {}
        self._lost: dict[int, int] = {}  # workers that each ticket has ended
        self._results: dict[int, Any] = {}
        self._of: list[list[int]] = []  # the tickets of each task
        self._count = len(tasks)
        self.has_homes = any(home(task) for task in tasks)
        for index, task in enumerate(tasks):
            self._of.append([self._add(Part(task, index))])
            self.waiting.append(self._of[-1][0])

    @property
    def finished(self) -> bool:
        """Whether every task has its result."""
        return len(self._results) == len(self._parts)

    def __contains__(self, ticket: int | None) -> bool:
        """Return whether the ticket is of this round."""
        return ticket in self._parts

    def task(self, ticket: int) -> Any:
        """Return the task of a ticket."""
        return self._parts[ticket].task

    def episodes(self, tickets: Iterable[int]) -> int:
        """Return how many episodes the tasks of tickets are, without those of other rounds."""
        return sum(size(self.task(ticket)) for ticket in tickets if ticket in self)

    def home(self, ticket: int) -> int:
        """Return `home` of the task of a ticket."""
        return home(self._parts[ticket].task)

    def lost(self, ticket: int) -> int:
        """Return how many workers a ticket has ended."""
        return self._lost[ticket]

    def answer(self, ticket: int, result: Any, worker: Hashable, seconds: float, cpu_seconds: float = 0.0) -> None:
        """Take in a result, which may be packed, and the time that a worker took for it."""
        self._results[ticket] = result
        self.cpu_seconds += cpu_seconds
        self.busy[worker] = self.busy.get(worker, 0.0) + seconds

    def put_first(self, *tickets: int) -> None:
        """Let tasks be played next that were handed out but did not end a worker; those of other rounds are ignored."""
        self.waiting.extendleft(ticket for ticket in reversed(tickets) if ticket in self)

    def put_back(self, ticket: int, why: str) -> None:
        """Let a task be played again whose worker was lost; PoisonError where that has happened too often."""
        self._lost[ticket] += 1
        part = self._parts[ticket]
        if self._lost[ticket] < self._attempts:
            self.waiting.appendleft(ticket)
        elif self._separable and isinstance(part.task, Task) and len(part.task.weights) > 1:
            self._take_apart(ticket, part)
        else:
            poison = PoisonError(
                self._poison_message(part, why), part.index, part.first or 0, _candidates(part.task), why
            )
            task = part.task  # transitions to learn from cannot be made up
            whole = isinstance(task, Task) and isinstance(task.play, Episodes) and not task.record_transitions
            if self._worst is None or not whole:
                raise poison
            self._poisoned.append(poison)
            self._results[ticket] = self._worst(task)

    def played(self, notices: Sequence[str], fingerprint: str) -> Played:
        """Return the results and what they took; once, for those that came packed are given away as they are unpacked.

        Every task has its result by now.
        """
        results = [_together([_unpacked(self._results.pop(ticket)) for ticket in tickets]) for tickets in self._of]
        seconds, busy = time.monotonic() - self._began, list(self.busy.values())
        counts = self.replaced, self.bytes_sent, self.bytes_received
        effort = Effort(seconds, busy, self.straggling, *counts, self.cpu_seconds)
        return Played(results, effort, self._poisoned, notices, fingerprint)

    def _add(self, part: Part) -> int:
        ticket = next(self._tickets)
        self._parts[ticket], self._lost[ticket] = part, 0
        return ticket

    def _take_apart(self, ticket: int, part: Part) -> None:
        del self._parts[ticket], self._lost[ticket]
        source = part.task.weights
        alone = [replace(part.task, weights=source.some(slice(k, k + 1))) for k in range(len(source))]
        self._of[part.index] = [self._add(Part(task, part.index, k)) for k, task in enumerate(alone)]
        self.waiting.extendleft(reversed(self._of[part.index]))

    def _poison_message(self, part: Part, why: str) -> str:
        which = "" if part.first is None else f"candidate {part.first + 1} of "
        times = "" if self._attempts == 1 else f" {self._attempts} times, the last time"
        return (
            f"{which}task {part.index + 1} of {self._count} has ended its worker{times} because the worker {why}; "
            f"the task is {_task_text(part.task)}"
        )


def agreed(fingerprint: str, known: str, who: str) -> str:
    """Return a worker's fingerprint; ResourceError where other workers have another one."""
    if known and fingerprint != known:
        raise ResourceError(f"workers compute differently: {who} is {fingerprint}, others are {known}")
    return fingerprint


class Deadlines:
    """The time that tasks may take, from the throughput that this machine has shown; a task's size is its episodes."""

    def __init__(self, shortest: float, first: float) -> None:
        self._shortest = shortest  # seconds that any task may take: a machine may stand still for a while
        self._first = first  # seconds for tasks while none has been played
        self._recent: deque[tuple[float, int]] = deque(maxlen=RECENT)
        self._known: tuple[float, float] | None = None  # seconds of the slowest, and an episode, of those

    def note(self, seconds: float, size: int) -> None:
        """Note how long a task of `size` episodes took."""
        self._recent.append((seconds, size))
        self._known = None

    def of(self, size: int) -> float:
        """Return the seconds after which a task of `size` episodes is taken for hung."""
        if not self._recent:
            return self._first
        if self._known is None:
            seconds, sizes = zip(*self._recent, strict=True)
            self._known = max(seconds), sum(seconds) / sum(sizes)
        slowest, mean = self._known
        return max(self._shortest, SLOWEST * slowest, MEAN * mean * size)


def worst_result(task: Task, environment: Environment) -> Result:
    """Return the result of candidates that cannot be played: like scores that are not finite, and no frames."""
    assert isinstance(task.play, Episodes)
    candidates, episodes = len(task.weights), len(task.play.seeds)
    actions = (np.empty(0, np.int8),) * (candidates * episodes) if task.record_actions else None
    arrays = empty_result(candidates, episodes, len(environment.episode_metrics), environment.returns_type)
    return Result(**arrays, frames=0, lane_slots=0, actions=actions)


def _unpacked(result: Any) -> Any:
    return result.unpacked() if isinstance(result, Packed) else result


def _together(results: list[Any]) -> Any:
    """Return the result of a task from those of its candidates."""
    if len(results) == 1:
        return results[0]
    arrays: dict[str, Any] = {
        name: np.concatenate([getattr(result, name) for result in results])
        for name in ("returns", "lengths", "episode_metrics", "finite")
    }
    actions = None if results[0].actions is None else tuple(trace for result in results for trace in result.actions)
    sums = {name: sum(getattr(result, name) for result in results) for name in ("frames", "lane_slots", "unasked")}
    return Result(**arrays, **sums, actions=actions)


def home(task: Any) -> int:
    """Return the number of the environments of a task that stay open in its worker; 0: it has none."""
    stay_open = isinstance(task, Task) and isinstance(task.play, Segment) and task.play.stay_open
    return int(task.play.envs.first[0]) if stay_open else 0


def size(task: Any) -> int:
    """Return how many episodes a task is, for its deadline."""
    return len(task.weights) * len(task.play.seeds) if isinstance(task, Task) and isinstance(task.play, Episodes) else 1


def _candidates(task: Any) -> int:
    return len(task.weights) if isinstance(task, Task) else 1


def _task_text(task: Any) -> str:
    """Say which task this is, briefly, so that it can be found and played again."""
    if not isinstance(task, Task):
        return str(task)
    source, shown = task.weights, 8
    keys = ", ".join(f"{row}:{key:#x}" for row, key in list(zip(source.rows, source.keys, strict=True))[:shown])
    more = ", ..." if len(source) > shown else ""
    count = "one candidate" if len(source) == 1 else f"{len(source)} candidates"
    played = f"{len(task.play.seeds)} episodes" if isinstance(task.play, Episodes) else "a segment"
    return f"{count} (parent row:noise key {keys}{more}) of {source.published or 'no file'} in {played}"
