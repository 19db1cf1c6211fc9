"""A pool of long-lived worker processes that may be killed, stopped or hung at any instant without a trace.

Every worker has a slot, and one private socket. The master puts results in task order, so neither the number of
workers nor the order of completion shows in them. A worker's next task is prefetched while it plays, as long as plenty
are left for the others. Environments that stay open between segments are played by the worker that has them.
"""

from __future__ import annotations

import math
import selectors
import socket
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, suppress
from functools import partial
from itertools import count, islice
from typing import Any

from evo.errors import ConfigurationError, DeviceError, DeviceLostError, DeviceMemoryError, ResourceError, notice
from evo.records import Played, Result, Task
from evo.workers.channel import Answer, Failed, GivesUp, Packed, Ready, WorkerSpec
from evo.workers.fork_server import START_DEADLINE, ForkServer, ForkServerLost, Slot, introductions
from evo.workers.round import ATTEMPTS, Deadlines, Round, agreed, size

STARTS = 10  # times in a row that a worker may be lost before it has played anything
GPU_LOSSES = 3  # times in a row that a worker may be lost by its GPU
FORK_SERVERS = 3  # times in a row that the fork server may be lost
FIRST_DEADLINE = 120.0  # seconds that tasks may take while none has been played
CHECK = 1.0  # seconds at most, and a part of the shortest deadline, after which deadlines are checked
STANDSTILL = 1.0  # seconds of the master's, from which on every deadline is put off: it may have been stopped
PREFETCH = 4  # the capacity of a socket over the bytes that a prefetched task may have
PACKED_TOGETHER = 16  # tasks that are packed one after the other, which is quicker than when each of them is due
LARGE = 1 << 16  # bytes of a result from which on it is unpacked while others play, since that takes long
GROWTH = 4.0  # a task that was overdue gets this much longer the next time
ADVICE: dict[type[DeviceError], str] = {
    DeviceMemoryError: "Give each more memory: fewer of them on a device, or another workers.memory",
    DeviceLostError: "Play on CPUs, with the same results: --set workers.kind=cpu",
}


class Pool(AbstractContextManager["Pool"]):
    """Workers, one for each of `slots`, which are environment variables that pin a worker to its device.

    `map` raises PoisonError where a task ends its workers (see `evo.workers.round`, and there `separable` and
    `worst`), ResourceError where no worker can be kept alive, and an exception of a worker's Python code as it is,
    with the worker's traceback as its cause. A slot whose device is too small is given up, and its task played in
    another one; DeviceMemoryError where none is left. The same holds for a slot of the exact kernel whose GPU fails or
    hangs `GPU_LOSSES` times in a row, or cannot be used again; DeviceLostError where none is left.
    """

    def __init__(
        self,
        spec: WorkerSpec,
        slots: Sequence[Mapping[str, str]],
        threads: int = 1,
        attempts: int = ATTEMPTS,
        separable: bool = False,
        worst: Callable[[Task], Result] | None = None,
    ) -> None:
        if not slots:
            raise ConfigurationError("workers.count: must be at least 1")
        self._spec, self._threads = spec, threads
        self._fingerprint = ""  # of the workers' arithmetic, once one is ready
        self._notices: list[str] = []  # what a user should know, for the next `Played`
        self._said: set[str] = set()  # notices that are given once
        self._shortest = spec.deadline
        self._slots = [Slot(number, environment) for number, environment in enumerate(slots)]
        numbers = range(len(slots))
        self._round = partial(Round, workers=numbers, attempts=attempts, separable=separable, worst=worst)
        self._deadlines = Deadlines(self._shortest, max(self._shortest, FIRST_DEADLINE))
        self._introduced = False
        self._tickets = count()
        self._homes: dict[int, int] = {}  # the slot whose worker has environments open, by `home`
        self._now = self._round((), self._tickets)
        self._packed: dict[int, Packed] = {}  # tasks that are to be sent next
        self._check_at = 0.0  # monotonic seconds when deadlines are checked again
        self._fork_servers_lost = 0
        self._selector = selectors.DefaultSelector()  # of a round: an interrupted one leaves nothing to the next
        self._fork_server = ForkServer(spec, threads)

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def pids(self) -> list[int]:
        """The process id of the worker in each slot, 0 where there is none."""
        return [slot.pid for slot in self._slots]

    def map(self, tasks: Sequence[Any]) -> Played:
        """Play the tasks; their results stand in task order, whatever order they were played in."""
        self._now = now = self._round(tasks, self._tickets)
        self._selector.close()
        self._selector = selectors.DefaultSelector()
        self._packed.clear()
        self._check_at = 0.0
        for slot in self._slots:
            if slot.channel is not None:
                self._selector.register(slot.channel, selectors.EVENT_READ, slot)
        self._play(now)
        if not self._introduced and all(slot.introduced for slot in self._slots):
            self._introduced = True
            self._notices += introductions(self._slots)
        notices, self._notices = self._notices, []
        return now.played(notices, self._fingerprint)

    def close(self) -> None:
        """Stop every worker; afterwards no process of ours is left."""
        for slot in self._slots:
            self._empty(slot)
        self._selector.close()
        self._fork_server.close()

    def _play(self, now: Round) -> None:
        """Hand out tasks until all results are there."""
        while not now.finished:
            try:
                for slot in self._slots:
                    if slot.ready and slot.ticket is None and self._choose(slot, now):
                        self._send(slot, now)
                self._prefetch(now)
                for slot in self._slots:
                    if slot.channel is None:
                        self._start(slot)
                alone = not now.waiting and sum(slot.ticket in now for slot in self._slots) == 1
                straggles, began = alone and len(self._slots) > 1, time.monotonic()
                lost = self._receive(now)
                now.straggling += straggles * (time.monotonic() - began)
                for slot, why in lost:
                    self._lose(slot, why, now)
            except ForkServerLost:
                self._replace_fork_server(now)

    def _start(self, slot: Slot) -> None:
        slot.fill(*self._fork_server.start(slot.environment, self._shortest))
        if left := self._fork_server.left:
            self._say(f"workers are spawned, not forked: the import of plug-ins has left {left}")
        assert slot.channel is not None
        self._selector.register(slot.channel, selectors.EVENT_READ, slot)

    def _send(self, slot: Slot, now: Round, most: int | None = None) -> bool:
        """Send a worker the next task; return whether that is done, which it is not with more than `most` bytes."""
        assert slot.channel is not None
        try:
            if not slot.channel.send(self._next(now), most=most):
                return False
        except TimeoutError:
            self._lose(slot, "did not take its task", now)
            return False
        except OSError:
            if most is None:  # of one that plays, the last message is still to be received
                self._lose(slot, "", now)
            return False
        ticket = now.waiting.popleft()
        size = self._packed.pop(ticket).size
        now.bytes_sent += size
        slot.take(ticket, size)
        if now.has_homes:
            self._homes[now.home(ticket)] = slot.number
        return True

    def _prefetch(self, now: Round) -> None:
        """Send workers that play a task more, GPUs several, as long as plenty are left for whoever is idle first."""
        for slot in self._slots:
            while (
                len(now.waiting) > 2 * len(self._slots)
                and slot.ticket in now
                and slot.has_room(now.episodes(slot.tickets))
                and self._choose(slot, now, takes_over=False)
            ):
                assert slot.channel is not None
                buffer = slot.channel.connection.getsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF)
                if not self._send(slot, now, most=buffer // PREFETCH - sum([*slot.tickets.values()][1:])):
                    break

    def _choose(self, slot: Slot, now: Round, takes_over: bool = True) -> bool:
        """Put the task first that a worker plays next, if there is one: one whose environments it or nobody has open.

        Else it takes over one from the worker with most of them waiting, if those are several.
        """
        if not now.waiting or not now.has_homes:
            return bool(now.waiting)
        homes = [(self._homes.get(now.home(ticket), slot.number), ticket) for ticket in now.waiting]
        others = Counter(number for number, _ in homes if number != slot.number).most_common(1)
        tickets = [ticket for number, ticket in homes if number == slot.number]
        if not tickets and takes_over and others[0][1] > 1:
            tickets = [ticket for number, ticket in homes if number == others[0][0]][-1:]
        if tickets:
            now.waiting.remove(tickets[0])
            now.waiting.appendleft(tickets[0])
        return bool(tickets)

    def _next(self, now: Round) -> Packed:
        """Return the task that waits first, as it is sent."""
        if now.waiting[0] not in self._packed:
            for ticket in islice(now.waiting, PACKED_TOGETHER):
                if ticket not in self._packed:
                    self._packed[ticket] = Packed.of((ticket, now.task(ticket)))
        return self._packed[now.waiting[0]]

    def _receive(self, now: Round) -> list[tuple[Slot, str]]:
        """Take in what workers have sent, and return the slots whose worker is gone (or overdue, and why)."""
        began = time.monotonic()
        wait = max(self._check_at - began, 0.0)
        sending: list[Slot] = [key.data for key, _ in self._selector.select(min(wait, 3600.0))]
        lost, failures = [], []
        for slot in sending:
            assert slot.channel is not None
            before = slot.channel.bytes_received
            messages, gone = slot.channel.arrived()
            now.bytes_received += slot.channel.bytes_received - before
            why = ""
            for message in messages:
                if why := slot.lost_device(message):
                    break
                if isinstance(message, Failed) and (message.ticket in now or message.ticket < 0):
                    failures.append(message)
                self._take(slot, message, now)
            if (gone or why) and slot in self._slots:
                lost.append((slot, why))
        stood_still = time.monotonic() - began - wait  # the master was stopped, so its workers may have been
        if stood_still > STANDSTILL:
            for slot in self._slots:
                slot.since += stood_still
        if self._check_at <= (ended := time.monotonic()):
            lost += self._overdue(sending, now, ended)
        if failures:  # only now, since what follows a failure is received once
            raise failures[0].error()
        return lost

    def _overdue(self, sending: list[Slot], now: Round, moment: float) -> list[tuple[Slot, str]]:
        """Return the slots whose worker has missed its deadline, and why; decide when to check again."""
        overdue, self._check_at = [], moment + min(CHECK, self._shortest / 4)
        for slot in self._slots:
            deadline = self._deadline(slot, now)
            if slot not in sending and moment > slot.since + deadline:
                overdue.append((slot, f"made no progress for {deadline:.0f} seconds (see workers.deadline)"))
            self._check_at = min(self._check_at, max(slot.since + deadline, moment))
        return overdue

    def _deadline(self, slot: Slot, now: Round) -> float:
        """Return how many seconds a worker may take for what it is doing."""
        if not slot.ready:
            return START_DEADLINE
        if slot.ticket is None:
            return math.inf
        if slot.ticket not in now:  # what is left of a round that failed
            return START_DEADLINE
        overdue = now.lost(slot.ticket) + slot.cuda * slot.losses
        return self._deadlines.of(now.episodes(slot.tickets if slot.cuda else [slot.ticket])) * GROWTH**overdue

    def _take(self, slot: Slot, message: Ready | Failed | GivesUp | tuple[Any, ...] | str | None, now: Round) -> None:
        if message is None:  # it makes progress
            slot.since = time.monotonic()
        elif isinstance(message, str):
            slot.calls = message
        elif isinstance(message, tuple):
            self._answer(slot, Answer(*message), now)
        elif isinstance(message, GivesUp):
            self._give_up(slot, DeviceMemoryError(message.why), now)
        elif isinstance(message, Failed):
            slot.done(message.ticket)
        else:
            slot.ready, slot.introduced = True, message
            self._fingerprint = agreed(message.fingerprint, self._fingerprint, f"slot {slot.number}")

    def _answer(self, slot: Slot, answer: Answer, now: Round) -> None:
        slot.done(answer.ticket)
        self._fork_servers_lost = 0
        on_gpu = slot.where != "the CPU"
        for text in answer.notices:
            self._say(text, f"worker {slot.number} (process {slot.pid}, {slot.where}): " if on_gpu else "")
        if answer.ticket in now:
            self._deadlines.note(answer.seconds, size(now.task(answer.ticket)))
            is_large = len(answer.result.body) > LARGE
            result = answer.result.unpacked() if is_large else answer.result
            now.answer(answer.ticket, result, slot.number, answer.seconds, answer.cpu_seconds)

    def _lose(self, slot: Slot, why: str, now: Round) -> None:
        """Clear away the worker of a slot, and let its task be played again; one only prefetched is not the cause.

        Nor is one whose GPU has failed or hangs, which `why` says then.
        """
        by_gpu = slot.cuda and bool(why)
        if by_gpu:
            slot.losses += 1
            if not slot.ready or slot.losses >= GPU_LOSSES:
                return self._give_up(slot, DeviceLostError(f"it {why}"), now)
        ending = self._fork_server.end(slot.pid)
        overdue, why, ticket = bool(why), why or str(ending), slot.ticket
        if ticket is not None:
            self._say(f"a worker {why}; another one plays its task again", at_once=overdue)
        now.put_first(*list(slot.tickets)[not by_gpu :])
        self._empty(slot)
        now.replaced += 1
        if by_gpu:
            return
        if ticket is None:
            slot.losses += 1
            if slot.losses >= STARTS:
                called = slot.calls and f"; it was calling {slot.calls}"
                raise ResourceError(
                    f"worker {slot.number} was lost {STARTS} times in a row before it had played anything; "
                    f"the last one {why}{called}"
                )
        elif ticket in now:
            now.put_back(ticket, why)

    def _say(self, text: str, who: str = "", at_once: bool = False) -> None:
        """Add a notice, once for each text; or print it `at_once`, as where the round may take minutes more."""
        if text not in self._said:
            self._said.add(text)
            (notice if at_once else self._notices.append)(f"{who}{text}")

    def _give_up(self, slot: Slot, error: DeviceError, now: Round) -> None:
        """Go on without a slot whose device is too small or lost, and let its task be played in another."""
        who = f"{slot} gives up: {error}"
        self._fork_server.end(slot.pid)
        now.put_first(*slot.tickets)
        self._empty(slot)
        self._slots = [other for other in self._slots if other is not slot]
        if not self._slots:
            raise type(error)(f"{who}; no worker is left. {ADVICE[type(error)]}")
        self._notices.append(f"{who}; {len(self._slots)} go on without it")

    def _replace_fork_server(self, now: Round) -> None:
        self._fork_servers_lost += 1
        if self._fork_servers_lost >= FORK_SERVERS:
            raise ResourceError(f"the process that starts workers was lost {FORK_SERVERS} times in a row")
        for slot in self._slots:
            now.put_first(*slot.tickets)
            self._empty(slot)
        self._fork_server.close()
        self._fork_server = ForkServer(self._spec, self._threads)

    def _empty(self, slot: Slot) -> None:
        if slot.channel is not None:
            with suppress(KeyError):  # between rounds no socket is registered
                self._selector.unregister(slot.channel)
        slot.empty()
        self._homes = {home: number for home, number in self._homes.items() if number != slot.number}
