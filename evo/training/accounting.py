"""Where the time of a generation goes: every second of it is counted once, so that the parts add up.

    seconds = seconds_acting    workers play, mean over workers
            + seconds_idle      the master waits for workers that are idle: starts, hand-overs, stragglers
            + seconds_moving    weights are published, and transitions are brought to the learner
            + seconds_learning  gradient updates; 0 in evolution
            + seconds_master    everything else in the master: naming candidates, ranking, rebuilding survivors

In the first two the master is idle, in the other three the workers are. Two more lie within or beside them:
`seconds_straggling` of the first two, in which one worker played a round's last task and the others were idle, and
`seconds_committing`, spent on the commit of the generation before.
"""

from __future__ import annotations

import math
import time
from collections.abc import Mapping
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from evo.records import Effort, Metrics

PARTS = ("seconds_acting", "seconds_idle", "seconds_moving", "seconds_learning", "seconds_master")


class Stopwatch:
    """Adds up the time that is spent inside of it; going in again while inside counts once."""

    def __init__(self) -> None:
        self._seconds, self._began, self._depth = 0.0, 0.0, 0

    def __enter__(self) -> Stopwatch:
        if not self._depth:
            self._began = time.monotonic()
        self._depth += 1
        return self

    def __exit__(self, *_: object) -> None:
        self._depth -= 1
        if not self._depth:
            self._seconds += time.monotonic() - self._began

    def take(self) -> float:
        """Return the seconds so far, and begin again from 0, also while inside."""
        now = time.monotonic()
        seconds = self._seconds + (now - self._began if self._depth else 0.0)
        self._seconds, self._began = 0.0, now
        return seconds


class Account:
    """Adds up what the rounds of one generation take; the generation begins now."""

    def __init__(self) -> None:
        self.publishing, self.playing = Stopwatch(), Stopwatch()
        self._began = time.monotonic()
        self._playing = self._acting = self._straggling = 0.0
        self._workers, self._replaced = math.nan, 0
        self._published = self._sent = self._received = 0

    def published(self, weights: NDArray[np.float32] | None) -> None:
        """Add weights that workers have not seen before, if there are any."""
        self._published += 0 if weights is None else weights.nbytes

    def add(self, effort: Effort) -> None:
        """Add what playing one round took, whose time is on `playing`."""
        seconds = self.playing.take()
        self._playing += seconds
        self._acting += min(sum(effort.busy) / len(effort.busy), seconds) if effort.busy else seconds
        self._straggling += effort.straggling
        self._workers = len(effort.busy) or self._workers
        self._replaced += effort.replaced
        self._sent, self._received = self._sent + effort.bytes_sent, self._received + effort.bytes_received

    def close(self, metrics: Mapping[str, float]) -> Metrics:
        """Return the metrics of the generation, which ends now, with what its rounds took.

        The algorithm's `seconds_moving` and `seconds_learning` are what it spent between its requests.
        """
        seconds = time.monotonic() - self._began
        moving = self.publishing.take() + metrics.get("seconds_moving", 0.0)
        learning, slots = metrics.get("seconds_learning", 0.0), metrics.get("slots", 0.0)
        return {
            **metrics,
            "seconds": seconds,
            "seconds_acting": self._acting,
            "seconds_idle": self._playing - self._acting,
            "seconds_moving": moving,
            "seconds_learning": learning,
            "seconds_master": seconds - self._playing - moving - learning,
            "seconds_straggling": self._straggling,
            "lane_utilisation": metrics.get("frames", math.nan) / slots if slots else math.nan,
            "workers": self._workers,
            "workers_replaced": self._replaced,
            "bytes_published": self._published,
            "bytes_sent": self._sent,
            "bytes_received": self._received,
        }
