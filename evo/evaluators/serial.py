"""Plays tasks in the master itself, one after the other: the reference that every other evaluator must equal."""

from __future__ import annotations

import os
import time
from collections.abc import Sequence

from evo.devices import VISIBLE, plan
from evo.evaluators.context import Context, Effort, Player, make_player
from evo.records import Result, Task


class Serial:
    """An evaluator with no worker."""

    def __init__(self, player: Player) -> None:
        self.effort = Effort()
        self.fingerprint = player.fingerprint
        self._player = player

    def map(self, tasks: Sequence[Task]) -> list[Result]:
        """Return the results in task order."""
        began = time.monotonic()
        results = [self._player.play(task) for task in tasks]
        seconds = time.monotonic() - began
        self.effort = Effort(seconds, [seconds])
        return results

    def close(self) -> None:
        """Do nothing: there is no worker to stop."""


def make(context: Context) -> Serial:
    """Return the evaluator of a run, on the first of its devices."""
    if context.inference == "tensorflow":
        os.environ.update(plan({**context.workers, "count": "auto"}, context.inference, os.environ.get(VISIBLE))[0])
    return Serial(make_player(context))
