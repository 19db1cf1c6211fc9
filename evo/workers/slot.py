"""A place for a worker in a pool, which keeps its number and its device when the worker is replaced."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from evo.workers.channel import Channel, Ready
from evo.workers.placement import place


@dataclass
class Slot:
    """What a worker is pinned to, and what the worker in the slot is doing."""

    number: int
    environment: Mapping[str, str]  # set in the worker before it makes its player
    channel: Channel | None = None  # None: no worker
    pid: int = 0
    ready: bool = False
    ticket: int | None = None  # of the task that it plays
    prefetched: int | None = None  # ticket of the task that it plays next
    since: float = 0.0  # monotonic seconds when it was started, got its task, or last answered
    losses: int = 0  # workers lost in a row before they had played anything
    introduced: Ready | None = None  # the first message of the worker that was in it last

    @property
    def where(self) -> str:
        """The device that the slot is pinned to, in words."""
        return place(self.environment)

    def __str__(self) -> str:
        return f"worker {self.number} (process {self.pid}) on {self.where}"

    def fill(self, channel: Channel, pid: int) -> None:
        """Put a new worker in; it sends a message when it is ready."""
        self.channel, self.pid, self.since = channel, pid, time.monotonic()

    def play(self, ticket: int) -> None:
        """Note that the worker was sent a task to play now."""
        self.ticket, self.since = ticket, time.monotonic()

    def done(self, ticket: int) -> None:
        """Note that the worker has ended a task, and goes on with the one that was prefetched."""
        self.losses = 0
        if ticket == self.ticket:
            self.ticket, self.prefetched, self.since = self.prefetched, None, time.monotonic()

    def empty(self) -> None:
        """Close the channel; there is no worker any more."""
        if self.channel is not None:
            self.channel.close()
        self.channel, self.pid, self.ready, self.ticket, self.prefetched = None, 0, False, None, None


def introductions(slots: Sequence[Slot]) -> Iterator[str]:
    """Yield a line for each device with workers on it: their processes and how large they are."""
    known = [(slot.where, slot.introduced) for slot in slots if slot.introduced is not None]
    for where in dict.fromkeys(name for name, ready in known if ready.device):
        here = [ready for name, ready in known if name == where]
        sizes = sorted(ready.megabytes for ready in here)
        model = f" ({here[0].device})" if here[0].device != "CPU" else ""
        plural = "es" if len(here) > 1 else ""
        yield (
            f"{len(here)} on {where}{model}: process{plural} {', '.join(str(ready.pid) for ready in here)}, "
            f"{f'{sizes[0]} to ' if sizes[0] < sizes[-1] else ''}{sizes[-1]} MB when ready"
        )
