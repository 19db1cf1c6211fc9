"""Plays tasks in the master itself, one after the other: the reference that every other evaluator must equal."""

from __future__ import annotations

import atexit
import os
import sys
import threading
import time
from collections.abc import Sequence
from typing import Any

from evo.rollouts.player import Context, Player, make_player
from evo.workers.devices import slot_of_master
from evo.workers.effort import Effort


class Serial:
    """An evaluator with no worker."""

    rebuilds = True

    def __init__(self, player: Player) -> None:
        self.effort = Effort()
        self.fingerprint = player.fingerprint
        self._player = player

    def map(self, tasks: Sequence[Any]) -> list[Any]:
        """Return the results in task order."""
        began = time.monotonic()
        results = [self._play(task) for task in tasks]
        seconds = time.monotonic() - began
        self.effort = Effort(seconds, [seconds])
        return results

    def close(self) -> None:
        """Do nothing: there is no worker to stop."""

    def _play(self, task: Any) -> Any:
        """Play beside this thread, which an interrupt reaches at once; compiled code would keep it waiting."""
        playing = _Playing(self._player, task)
        playing.start()
        try:
            playing.join()
        except KeyboardInterrupt as stop:
            atexit.register(_leave, playing, getattr(stop, "exit_code", 130))
            raise
        return playing.answer()


class _Playing(threading.Thread):
    """A task that is being played."""

    def __init__(self, player: Player, task: Any) -> None:
        super().__init__(daemon=True)
        self._player, self._task = player, task
        self._result: Any = None
        self._error: BaseException | None = None

    def run(self) -> None:
        try:
            self._result = self._player.play(self._task)
        except BaseException as error:
            self._error = error

    def answer(self) -> Any:
        """Return the result, or raise what the player raised."""
        if self._error is not None:
            raise self._error
        return self._result


def _leave(playing: threading.Thread, exit_code: int) -> None:
    """End the process while an abandoned task still plays: it would outlive the machine code that it runs."""
    if playing.is_alive():
        for stream in (sys.stdout, sys.stderr):
            stream.flush()
        os._exit(exit_code)


def make(context: Context) -> Serial:
    """Return the evaluator of a run, on the first of its devices."""
    if context.inference == "tensorflow":
        os.environ.update(slot_of_master(context.workers, context.inference))
    return Serial(make_player(context))
