"""Plays tasks in long-lived worker processes that may be killed, stopped or hung at any instant without a trace.

Every worker has a slot that keeps its number and its device when the worker is replaced, and one private socket.
The master puts results in task order, so neither the number of workers nor the order of completion shows in what
`map` returns. A worker has its next task at hand while it plays one, as long as plenty are left for the others.
"""

from __future__ import annotations

import math
import os
import selectors
import time
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from contextlib import closing, suppress
from dataclasses import dataclass
from functools import partial
from itertools import count, islice
from typing import Any

from pydantic import Field, model_validator

from evo.errors import ConfigurationError, DeviceMemoryError, PoisonError, ResourceError
from evo.records import Rebuild, Result, Task
from evo.rollouts.player import RunSpec, measures_of
from evo.workers.deadlines import Pace
from evo.workers.effort import Effort
from evo.workers.fork_server import START_PATIENCE, ForkServer, ForkServerLost
from evo.workers.options import LocalOptions, WorkersOptions
from evo.workers.placement import place
from evo.workers.round import ATTEMPTS, Round, size, worst_result
from evo.workers.worker import Channel, Failed, GivesUp, Packed, Played, Ready, WorkerSpec

STARTS = 10  # times in a row that a worker may be lost before it has played anything
NURSERIES = 3  # times in a row that the fork_server may be lost
PATIENCE = 30.0  # seconds that any task may take, however quick others are
UNMEASURED = 120.0  # seconds that tasks may take while none has been played
LOOK = 1.0  # seconds at the most, and a part of the patience, after which deadlines are looked at
STANDSTILL = 1.0  # seconds of the master's from which on workers are given as much more: it may have been stopped
AHEAD = 4  # what a socket may hold, over the most bytes of a task that may wait in one while its worker plays
BEFOREHAND = 16  # tasks that are packed one after the other, which is quicker than when each of them is due
LARGE = 1 << 16  # bytes of a result from which on it takes so long to unpack that it is done while others play
DONE = object()
GROWTH = 4.0  # a task that was overdue gets this much longer the next time


class Options(LocalOptions):
    """[workers] of the processes backend."""

    start: str = Field("forkserver", description='how workers start: "forkserver", or "spawn" (slower)')

    @model_validator(mode="after")
    def _start_is_known(self) -> Options:
        if self.start == "fork":
            raise ValueError('start: "fork" hangs workers where TensorFlow has run before; use "forkserver" or "spawn"')
        if self.start not in ("forkserver", "spawn"):
            raise ValueError(f'start: must be "forkserver" or "spawn", not "{self.start}"')
        return self


def one_worker(workers: WorkersOptions) -> Options:
    """Return options for one worker like those of a run, on its first GPU, if any; its poison is raised."""
    shared = workers.model_dump(include=set(WorkersOptions.model_fields))
    ids = workers.gpu_ids[:1] if isinstance(workers, LocalOptions) else []
    return Options(**{**shared, "backend": "processes", "count": 1, "gpu_ids": ids, "on_poison": "stop"})


@dataclass
class Slot:
    """A place for a worker: what it is pinned to, and what the worker in it is doing."""

    number: int
    environment: Mapping[str, str]  # set in the worker before it makes its player
    channel: Channel | None = None  # None: no worker
    pid: int = 0
    ready: bool = False
    ticket: int | None = None  # of the task that it plays
    ahead: int | None = None  # and of the one that it plays next
    since: float = 0.0  # monotonic seconds when it was started, got its task, or was last heard
    unheard: float = 0.0  # seconds with what it had at hand in which the master was at something else
    losses: int = 0  # workers lost in a row before they had played anything
    told: Ready | None = None  # the first words of the worker that was in it last


class Processes:
    """A pool of workers, one for each of `slots`, which are environment variables that pin a worker to its device.

    `map` raises PoisonError where a task ends its workers (see `evo.workers.round`, and there `separable` and
    `worst`), ResourceError where no worker can be kept alive, and an exception of a worker's Python code as it is,
    with the worker's traceback as its cause. A slot whose device is too small is given up, and its task played in
    another one; DeviceMemoryError where none is left.
    """

    rebuilds = True

    def __init__(
        self,
        spec: WorkerSpec,
        slots: Sequence[Mapping[str, str]],
        threads: int = 1,
        patience: float | None = None,
        attempts: int = ATTEMPTS,
        separable: bool = False,
        worst: Callable[[Task], Result] | None = None,
    ) -> None:
        if not hasattr(os, "fork"):
            raise ConfigurationError('workers.backend: "processes" needs a POSIX system, use "serial" here')
        if not slots:
            raise ConfigurationError("workers.count: must be at least 1")
        self.effort = Effort()
        self.fingerprint = ""  # of the workers' arithmetic, once one is ready
        self._upbringing = spec
        self._threads = threads
        self.notes: list[str] = []  # what a user should know of, and nobody has told yet
        self.meanwhile: Callable[[], Iterator[None] | None] = _nothing  # the master's, to be called while workers play
        self.poisoned: Sequence[PoisonError] = ()  # what the last `map` answered by the worst result
        self._patience = PATIENCE if patience is None else patience
        self._round = partial(Round, attempts=attempts, separable=separable, worst=worst)
        self._slots = [Slot(number, environment) for number, environment in enumerate(slots)]
        self._pace = Pace(self._patience, UNMEASURED)
        self._count, self._introduced = len(slots), False
        self._tickets = count()
        self._packed: dict[int, Packed] = {}  # tasks that are to be handed out next
        self._due = 0.0  # monotonic seconds when deadlines are looked at again
        self._nurseries_lost = 0
        self._selector = selectors.DefaultSelector()  # of a round: an interrupted one leaves nothing to the next
        self._fork_server = ForkServer(spec, threads)

    def __enter__(self) -> Processes:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def pids(self) -> list[int]:
        """The process id of the worker in each slot, 0 where there is none."""
        return [slot.pid for slot in self._slots]

    def map(self, tasks: Sequence[Any]) -> list[Any]:
        """Return the results in task order, whatever order they were played in."""
        began = time.monotonic()
        self.effort = Effort(busy=[0.0] * self._count)
        now = self._round(tasks, self._tickets)
        self._selector.close()
        self._selector = selectors.DefaultSelector()
        self._packed.clear()
        self._due = 0.0
        for slot in self._slots:
            if slot.channel is not None:
                self._selector.register(slot.channel, selectors.EVENT_READ, slot)
        with closing(self._meanwhile()) as steps:
            self._play(now, steps)
            late = time.monotonic()
            for _ in steps:
                pass
            if tasks:
                self.effort.held += time.monotonic() - late
        if not self._introduced:
            self._introduce()
        results = now.results()
        self.effort.seconds = time.monotonic() - began
        self.poisoned = now.poisoned
        return results

    def _play(self, now: Round, steps: Iterator[None]) -> None:
        """Hand out tasks until all results are there; once workers have tasks, take these steps as well."""
        busy = True
        while not now.finished:
            try:
                for slot in self._slots:
                    if slot.ready and slot.ticket is None and now.waiting:
                        self._hand(slot, now)
                self._hand_ahead(now)
                for slot in self._slots:
                    if slot.channel is None:
                        self._start(slot)
                busy = busy and self._step(steps)
                alone, listening = self._alone(now), time.monotonic()
                lost = self._listen(now, wait=not busy)
                self.effort.alone += alone * (time.monotonic() - listening)
                for slot, why in lost:
                    self._lose(slot, why, now)
            except ForkServerLost:
                self._replace_nursery(now)

    def _meanwhile(self) -> Generator[None]:
        yield from self.meanwhile() or ()

    def _step(self, steps: Iterator[None]) -> bool:
        """Do a part of what is to be done meanwhile, and return whether there is more of it."""
        began = time.monotonic()
        more = next(steps, DONE) is not DONE
        ended = time.monotonic()
        for slot in self._slots:
            if slot.ticket is not None:
                slot.unheard = ended - slot.since
            if ended - began > STANDSTILL:
                slot.since += ended - began
        return more

    def close(self) -> None:
        """Stop every worker; afterwards no process of ours is left."""
        for slot in self._slots:
            self._empty(slot)
        self._selector.close()
        self._fork_server.close()

    def _replace_nursery(self, now: Round) -> None:
        self._nurseries_lost += 1
        if self._nurseries_lost >= NURSERIES:
            raise ResourceError(f"the process that starts workers was lost {NURSERIES} times in a row")
        for slot in self._slots:
            now.put_first(slot.ticket, slot.ahead)
            self._empty(slot)
        self._fork_server.close()
        self._fork_server = ForkServer(self._upbringing, self._threads)

    def _start(self, slot: Slot) -> None:
        """Put a new worker into an empty slot; it says by itself when it is ready."""
        slot.channel, slot.pid = self._fork_server.birth(slot.environment, self._patience)
        slot.since = time.monotonic()
        self._selector.register(slot.channel, selectors.EVENT_READ, slot)

    def _hand(self, slot: Slot, now: Round) -> None:
        """Give an idle worker the next task."""
        assert slot.channel is not None
        try:
            self.effort.sent += slot.channel.send(self._next(now))
        except TimeoutError:
            self._lose(slot, "did not take its task", now)
        except OSError:
            self._lose(slot, "", now)
        else:
            slot.ticket, slot.since, slot.unheard = self._handed(now), time.monotonic(), 0.0

    def _hand_ahead(self, now: Round) -> None:
        """Give workers that play one task more, as long as plenty are left for whoever is free first."""
        for slot in self._slots:
            if len(now.waiting) <= 2 * len(self._slots):
                break
            if slot.ahead is not None or slot.ticket not in now:
                continue
            assert slot.channel is not None
            try:
                sent = slot.channel.send(self._next(now), most=slot.channel.room // AHEAD)
            except TimeoutError:
                self._lose(slot, "did not take its task", now)
            except OSError:  # its last words are still to be heard
                continue
            else:
                if not sent:  # too large, for the next worker too
                    break
                self.effort.sent += sent
                slot.ahead = self._handed(now)

    def _next(self, now: Round) -> Packed:
        """Return the task that waits first, as it is sent."""
        if now.waiting[0] not in self._packed:
            for ticket in islice(now.waiting, BEFOREHAND):
                if ticket not in self._packed:
                    self._packed[ticket] = Packed.of((ticket, now.task(ticket)))
        return self._packed[now.waiting[0]]

    def _handed(self, now: Round) -> int:
        """Take what was sent from those that wait, and return its ticket."""
        ticket = now.waiting.popleft()
        del self._packed[ticket]
        return ticket

    def _listen(self, now: Round, wait: bool = True) -> list[tuple[Slot, str]]:
        """Take in what the workers say, and return the slots whose worker is gone (or overdue, and why)."""
        began = time.monotonic()
        asked = self._due - began if wait else 0.0
        heard: list[Slot] = [key.data for key, _ in self._selector.select(min(max(asked, 0.0), 3600.0))]
        lost, failures = [], []
        for slot in heard:
            assert slot.channel is not None
            before = slot.channel.received
            messages, gone = slot.channel.arrived()
            self.effort.received += slot.channel.received - before
            for message in messages:
                if isinstance(message, Failed) and (message.ticket in now or message.ticket < 0):
                    failures.append(message)
                self._hear(slot, message, now)
            if gone and slot in self._slots:
                lost.append((slot, ""))
        stood_still = time.monotonic() - began - max(asked, 0.0)  # the master was stopped, so its workers may have been
        if stood_still > STANDSTILL:
            for slot in self._slots:
                slot.since += stood_still
        if self._due <= (ended := time.monotonic()):
            lost += self._overdue(heard, now, ended)
        if failures:  # only now, since what follows a failure is heard once
            raise failures[0].error()
        return lost

    def _overdue(self, heard: list[Slot], now: Round, moment: float) -> list[tuple[Slot, str]]:
        """Return the slots whose worker takes too long, and why, and settle when to look again."""
        overdue, self._due = [], moment + min(LOOK, self._patience / 4)
        for slot in self._slots:
            limit = self._limit(slot, now)
            if slot not in heard and moment > slot.since + limit:
                overdue.append((slot, f"had no result after {limit:.0f} seconds"))
            self._due = min(self._due, max(slot.since + limit, moment))
        return overdue

    def _alone(self, now: Round) -> bool:
        """Return whether one worker of several plays, and no task is left for the others."""
        if now.waiting or len(self._slots) == 1:
            return False
        return sum(slot.ticket is not None and slot.ticket in now for slot in self._slots) == 1

    def _limit(self, slot: Slot, now: Round) -> float:
        """Return how many seconds a worker may take for what it is doing."""
        if not slot.ready:
            return START_PATIENCE
        if slot.ticket is None:
            return math.inf
        if slot.ticket not in now:  # what is left of a round that failed
            return START_PATIENCE
        task = now.task(slot.ticket)
        patience = self._patience if isinstance(task, Rebuild) else self._pace.limit(size(task))
        return patience * GROWTH ** now.lost(slot.ticket)

    def _hear(self, slot: Slot, message: Ready | Failed | GivesUp | tuple[Any, ...], now: Round) -> None:
        if isinstance(message, tuple):
            self._take(slot, Played(*message), now)
            return
        if isinstance(message, GivesUp):
            self._give_up(slot, message, now)
            return
        if isinstance(message, Ready):
            slot.ready, slot.told = True, message
            if self.fingerprint and message.fingerprint != self.fingerprint:
                raise ResourceError(
                    f"workers compute differently: slot {slot.number} is {message.fingerprint}, "
                    f"others are {self.fingerprint}"
                )
            self.fingerprint = message.fingerprint
            return
        self._done(slot, message.ticket)

    def _take(self, slot: Slot, played: Played, now: Round) -> None:
        """Take in a result."""
        self._done(slot, played.ticket)
        self._nurseries_lost = 0
        for note in played.notes:
            self.notes.append(f"worker {slot.number} (process {slot.pid}, {place(slot.environment)}): {note}")
        if played.ticket in now:
            task = now.task(played.ticket)
            if not isinstance(task, Rebuild):
                self._pace.note(played.seconds, size(task))
            is_large = len(played.result.body) > LARGE
            now.answer(played.ticket, played.result.unpacked() if is_large else played.result)
            self.effort.busy[slot.number] += played.seconds
            slot.unheard = max(slot.unheard - played.seconds, 0.0)
            if slot.ticket is None:
                self.effort.held += slot.unheard / self._count

    def _done(self, slot: Slot, ticket: int) -> None:
        """Note that a worker has come to the end of a task, and goes on with the one that it has at hand."""
        slot.losses = 0
        if ticket == slot.ticket:
            slot.ticket, slot.ahead, slot.since = slot.ahead, None, time.monotonic()

    def _lose(self, slot: Slot, why: str, now: Round) -> None:
        """Clear away the worker of a slot, and let its task be played again; what it had ahead is not to blame."""
        ending = self._fork_server.end(slot.pid)
        why = why or str(ending)
        ticket = slot.ticket
        now.put_first(slot.ahead)
        self._empty(slot)
        self.effort.replaced += 1
        if ticket is None:
            slot.losses += 1
            if slot.losses >= STARTS:
                raise ResourceError(
                    f"worker {slot.number} was lost {STARTS} times in a row before it had played anything; "
                    f"the last one {why}"
                )
        elif ticket in now:
            now.put_back(ticket, why)

    def _give_up(self, slot: Slot, message: GivesUp, now: Round) -> None:
        """Go on without a slot whose device is too small, and let its task be played in another."""
        who = f"worker {slot.number} (process {slot.pid}) on {place(slot.environment)} gives up: {message.why}"
        self._fork_server.end(slot.pid)
        now.put_first(message.ticket, slot.ahead)
        self._empty(slot)
        self._slots = [other for other in self._slots if other is not slot]
        if not self._slots:
            raise DeviceMemoryError(
                f"{who}; no worker is left. Give each more memory (fewer of them on a device, or another "
                "workers.memory), or let it compute less at once (workers.candidates_per_call)"
            )
        self.notes.append(f"{who}; {len(self._slots)} go on without it")

    def _introduce(self) -> None:
        """Note who plays where, once all workers have said it, if they were pinned to anything."""
        told = [(place(slot.environment), slot.told) for slot in self._slots if slot.told is not None]
        if len(told) < len(self._slots):
            return
        self._introduced = True
        for where in dict.fromkeys(name for name, ready in told if ready.device):
            there = [ready for name, ready in told if name == where]
            sizes = sorted(ready.megabytes for ready in there)
            model = f" ({there[0].device})" if there[0].device != "CPU" else ""
            plural = "es" if len(there) > 1 else ""
            self.notes.append(
                f"{len(there)} on {where}{model}: process{plural} {', '.join(str(ready.pid) for ready in there)}, "
                f"{f'{sizes[0]} to ' if sizes[0] < sizes[-1] else ''}{sizes[-1]} MB when ready"
            )

    def _empty(self, slot: Slot) -> None:
        if slot.channel is not None:
            with suppress(KeyError):  # between rounds nobody listens
                self._selector.unregister(slot.channel)
            slot.channel.close()
        slot.channel, slot.pid, slot.ready, slot.ticket, slot.ahead = None, 0, False, None, None


def _nothing() -> None:
    pass


def make(options: Options, spec: RunSpec, attempts: int = ATTEMPTS) -> Processes:
    """Return the evaluator of a run."""
    player = "evo.rollouts.player:make_player"
    return Processes(
        WorkerSpec(player, spec, "evo.rollouts.player:prepare", options.start),
        options.slots(spec.inference, spec.learner),
        options.threads,
        attempts=attempts,
        separable=True,
        worst=partial(_worst, spec) if options.on_poison == "worst" else None,
    )


def _worst(spec: RunSpec, task: Task) -> Result:
    return worst_result(task, measures_of(spec))
