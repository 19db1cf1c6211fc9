"""Plays tasks in the master itself, one after the other: the reference for the results of all other backends."""

from __future__ import annotations

import atexit
import os
import sys
import threading
from collections.abc import Sequence
from queue import SimpleQueue

from evo import clock
from evo.environments.instances import OPEN
from evo.errors import DeviceError
from evo.player import RunSpec, make_player
from evo.plugins import directory
from evo.process import Stopped
from evo.records import Effort, Played, Player, Result, Task
from evo.workers.channel import Failed
from evo.workers.options import LearnerDevices, describe_learner
from evo.workers.placement import CUDA_PLAYER, LocalOptions, Slots


class Options(LocalOptions):
    """[workers] of the serial backend, which has no worker: the master plays on the device of the first."""

    def slots(self, inference: str, learner: LearnerDevices | None = None) -> Slots:
        """Return the environment variables of the master; DeviceError where a device is missing."""
        first = self.model_copy(update={"count": "auto" if self.gpus else 1})
        return LocalOptions.slots(first, inference, learner)[:1]

    def plan(self, inference: str, learner: LearnerDevices | None = None, other_machine: bool = False) -> str:
        """Return in one line where the master and the learner compute, as `WorkersOptions.plan`."""
        lines = f"no worker: the master plays{describe_learner(learner)}"
        try:
            self.slots(inference)
            LocalOptions(count=1).slots("lanes", learner)  # the learner, in the same process
        except DeviceError as absent:
            if not other_machine:
                raise
            lines += f"\n# not on this machine: {absent}"
        return lines


class Serial:
    """An evaluator with no worker."""

    def __init__(self, player: Player) -> None:
        self._player = player
        self._playing: _Playing | None = None

    def map(self, tasks: Sequence[Task]) -> Played:
        """Play the tasks in order."""
        began = clock.wall()
        results = [self._play(task) for task in tasks]
        seconds = clock.wall() - began
        notices, self._player.notices = self._player.notices, ()
        return Played(results, Effort(seconds, [seconds]), (), notices, self._player.fingerprint)

    def close(self) -> None:
        """Close the environments that are open; there is no worker to stop."""
        if self._playing is not None and not self._playing.busy:
            self._playing.tasks.put(None)
            self._playing.join()
        self._playing = None

    def _play(self, task: Task) -> Result:
        """Play in another thread, for an interrupt reaches this one at once; compiled code would keep it waiting.

        It is always the same one, as some environments can only be used where they were made.
        """
        playing = self._playing = self._playing or _Playing(self._player)
        try:
            with directory.kept():
                return playing.play(task)
        except KeyboardInterrupt as stop:
            self._playing = None
            atexit.register(_leave, playing, stop.exit_code if isinstance(stop, Stopped) else 130)
            raise


class _Playing(threading.Thread):
    """Plays one task after the other, until it is sent None."""

    def __init__(self, player: Player) -> None:
        super().__init__(daemon=True)
        self._player, self.busy = player, False
        self.tasks: SimpleQueue[Task | None] = SimpleQueue()
        self._answers: SimpleQueue[Result | BaseException] = SimpleQueue()
        self.start()

    def run(self) -> None:
        while (task := self.tasks.get()) is not None:
            answer: Result | BaseException
            try:
                answer = self._player.play(task)
            except BaseException as error:
                answer = error
            self.busy = False
            self._answers.put(answer)
        OPEN.here.close()

    def play(self, task: Task) -> Result:
        """Return the result, or raise what the player raised."""
        self.busy = True
        self.tasks.put(task)
        answer = self._answers.get()
        if isinstance(answer, BaseException) and not isinstance(answer, Exception):
            raise Failed.of(answer).error() from answer
        if isinstance(answer, BaseException):
            raise answer
        return answer


def _leave(playing: _Playing, exit_code: int) -> None:
    """End the process while an abandoned task still plays: it would outlive the machine code that it runs."""
    if playing.busy:
        for stream in (sys.stdout, sys.stderr):
            stream.flush()
        os._exit(exit_code)


@directory.kept()
def make(options: Options, spec: RunSpec) -> Serial:
    """Return the evaluator of a run, on the first of its devices."""
    os.environ.update(options.slots(spec.inference)[0])
    try:
        return Serial(make_player(spec))
    finally:
        os.environ.pop(CUDA_PLAYER, None)  # of this player alone
