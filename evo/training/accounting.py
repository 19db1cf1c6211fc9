"""Where the time of a generation goes, and what it moves: every second of it is counted once, so that it adds up.

    seconds = seconds_acting    workers play, and rebuild survivors, on the mean of them
            + seconds_waiting   the master waits, and workers have no task: starts, hand-overs, stragglers
            + seconds_moving    weights are published, and what was played is brought to where it is learnt from
            + seconds_learning  gradients; 0 in evolution
            + seconds_master    whatever else the master does: naming candidates, ranking

In the first two the master is idle, in the other three the workers are. While workers play, the master makes the
commit before durable; where they had to wait for that, it is in seconds_waiting.
"""

from __future__ import annotations

import math
import time
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from evo.records import Evaluator, Metrics

PARTS = ("seconds_acting", "seconds_waiting", "seconds_moving", "seconds_learning", "seconds_master")


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
    """The books of one generation, which begins now."""

    def __init__(self) -> None:
        self.publishing = Stopwatch()
        self._began = time.monotonic()
        self._playing = self._acting = self._alone = self._held = 0.0
        self._workers, self._replaced = math.nan, 0
        self._published = self._sent = self._received = 0

    def published(self, weights: NDArray[np.float32]) -> None:
        """Note weights that workers have not seen before."""
        self._published += weights.nbytes

    def play(self, evaluator: Evaluator, tasks: Sequence[Any]) -> list[Any]:
        """Have the tasks played, or whatever else they are, and note what that took."""
        began = time.monotonic()
        results = evaluator.map(tasks)
        seconds = time.monotonic() - began
        self._playing += seconds
        effort: Any = getattr(evaluator, "effort", None)
        if effort is None or not effort.busy:  # an evaluator that does not say
            self._acting += seconds
            return results
        self._workers = len(effort.busy)
        self._acting += min(sum(effort.busy) / len(effort.busy), seconds)
        self._alone, self._held = self._alone + effort.alone, self._held + effort.held
        self._replaced += effort.replaced
        self._sent, self._received = self._sent + effort.sent, self._received + effort.received
        return results

    def close(self, metrics: Mapping[str, float]) -> Metrics:
        """Return the metrics of the generation, which ends now, with what is in the books.

        Of the algorithm's own, `seconds_moving` and `seconds_learning` are what it spent between its requests.
        """
        seconds = time.monotonic() - self._began
        publishing, learning = self.publishing.take(), metrics.get("seconds_learning", 0.0)
        moving = publishing + metrics.get("seconds_moving", 0.0)
        slots = metrics.get("slots", 0.0)
        return {
            **metrics,
            "seconds": seconds,
            "seconds_acting": self._acting,
            "seconds_waiting": self._playing - self._acting,
            "seconds_moving": moving,
            "seconds_learning": learning,
            "seconds_master": seconds - self._playing - moving - learning,
            "seconds_alone": self._alone,
            "seconds_committing": self._held,
            "dead_lanes": 1.0 - metrics.get("frames", math.nan) / slots if slots else math.nan,
            "workers": self._workers,
            "workers_replaced": self._replaced,
            "bytes_published": self._published,
            "bytes_sent": self._sent,
            "bytes_received": self._received,
        }
