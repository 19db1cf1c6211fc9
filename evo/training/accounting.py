"""Where the time of a generation goes: every second of it is counted once, so that the parts add up.

    seconds = seconds_acting    workers play, mean over workers
            + seconds_idle      the master waits for workers that are idle: starts, hand-overs, stragglers
            + seconds_moving    weights are published, and transitions are brought to the learner
            + seconds_learning  gradient updates; 0 in evolution
            + seconds_master    everything else in the master: naming candidates, ranking, rebuilding survivors

In the first two the master is idle, in the other three the workers are. Three more overlap with them, or are excluded:
`seconds_straggling` of the first two, in which one worker played a round's last task and the others were idle,
`seconds_committing`, spent on the commit of the generation before, and `seconds_compiling`, in which kernels were
compiled. A machine does that once for a kind of network and game, so neither `seconds` nor `cpu_seconds` has it.

What was spent is counted as well. A forward pass is one observation of which a network computes its outputs: one for
every frame that is played, one for every return that is bootstrapped, and in learning one for every example and network
that the loss asks. Empty lanes and places do not count, nor test episodes. A backward pass, one for every example of an
update, costs as many multiply-adds as two forward passes. Processor time is that of all threads of the master, and of
workers, between the same two moments as `seconds`.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict

import numpy as np
from numpy.typing import NDArray

from evo import clock
from evo.records import Effort, Metrics, Result, Spent

BACKWARD = 2  # multiply-adds of a backward pass over those of a forward pass
SO_FAR = "_so_far"  # ends the names of what the run has spent up to a generation
COUNTED = ("frames", "forward_passes", "multiply_adds", "cpu_seconds")
PARTS = {  # of the seconds of a generation, with their meanings
    "seconds_acting": "workers play",
    "seconds_idle": "the main process waits for workers that have no task",
    "seconds_moving": "weights and transitions are copied between processes",
    "seconds_learning": "gradient updates",
    "seconds_master": "the main process creates, ranks and rebuilds candidates",
}


class Stopwatch:
    """Adds up the time that is spent inside of it; going in again while inside counts once."""

    def __init__(self) -> None:
        self._seconds, self._began, self._depth = 0.0, 0.0, 0

    def __enter__(self) -> Stopwatch:
        if not self._depth:
            self._began = clock.wall()
        self._depth += 1
        return self

    def __exit__(self, *_: object) -> None:
        self._depth -= 1
        if not self._depth:
            self._seconds += clock.wall() - self._began

    def take(self) -> float:
        """Return the seconds so far, and begin again from 0, also while inside."""
        now = clock.wall()
        seconds = self._seconds + (now - self._began if self._depth else 0.0)
        self._seconds, self._began = 0.0, now
        return seconds


class Account:
    """Adds up what the rounds of one generation take; the generation begins now."""

    def __init__(self) -> None:
        self.publishing, self.playing = Stopwatch(), Stopwatch()
        self._began, self._cpu_began, self._paused_seconds = clock.wall(), clock.cpu(), clock.wall.paused_seconds
        self._cpu_of_workers, self._forward_passes = 0.0, 0
        self._playing = self._acting = self._straggling = 0.0
        self._workers, self._replaced = math.nan, 0
        self._published = self._sent = self._received = 0

    def published(self, weights: NDArray[np.float32] | None) -> None:
        """Add weights that workers have not seen before, if there are any."""
        self._published += 0 if weights is None else weights.nbytes

    def add(self, effort: Effort, results: Sequence[Result] = ()) -> None:
        """Add what playing one round took, whose time is on `playing`."""
        self._cpu_of_workers += effort.cpu_seconds
        self._forward_passes += sum(result.forward_passes for result in results)
        seconds = self.playing.take()
        self._playing += seconds
        self._acting += min(sum(effort.busy) / len(effort.busy), seconds) if effort.busy else seconds
        self._straggling += effort.straggling
        self._workers = len(effort.busy) or self._workers
        self._replaced += effort.replaced
        self._sent, self._received = self._sent + effort.bytes_sent, self._received + effort.bytes_received

    def close(self, metrics: Mapping[str, float]) -> Metrics:
        """Return the metrics of the generation, which ends now, with what its rounds took.

        The algorithm's `seconds_moving` and `seconds_learning` are what it spent between its requests, and its
        `forward_passes` and `backward_passes` those of learning.
        """
        seconds = clock.wall() - self._began
        moving = self.publishing.take() + metrics.get("seconds_moving", 0.0)
        learning, slots = metrics.get("seconds_learning", 0.0), metrics.get("slots", 0.0)
        in_lanes = metrics.get("frames", math.nan) - metrics.get("frames_of_baselines", 0.0)
        return {
            **metrics,
            "seconds": seconds,
            "seconds_acting": self._acting,
            "seconds_idle": self._playing - self._acting,
            "seconds_moving": moving,
            "seconds_learning": learning,
            "seconds_master": seconds - self._playing - moving - learning,
            "seconds_straggling": self._straggling,
            "seconds_compiling": clock.wall.paused_seconds - self._paused_seconds,
            "lane_utilisation": in_lanes / slots if slots else math.nan,
            "workers": self._workers,
            "workers_replaced": self._replaced,
            "forward_passes": self._forward_passes + metrics.get("forward_passes", 0),
            "backward_passes": metrics.get("backward_passes", 0),
            "cpu_seconds": clock.cpu() - self._cpu_began + self._cpu_of_workers,
            "bytes_published": self._published,
            "bytes_sent": self._sent,
            "bytes_received": self._received,
        }


def ledger(metrics: Mapping[str, float], multiply_adds: int, before: Spent) -> Metrics:
    """Return the multiply-adds of a generation, and what the run has spent up to its end.

    `multiply_adds` are those of one forward pass, `before` what was spent before the generation.
    """
    forward, backward = metrics.get("forward_passes", 0.0), metrics.get("backward_passes", 0.0)
    own = {"multiply_adds": multiply_adds * (int(forward) + BACKWARD * int(backward))}
    after = asdict(before.plus(Spent.of({**metrics, **own})))
    return {**own, **{name + SO_FAR: after[name] for name in COUNTED}}
