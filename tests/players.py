"""Players for the tests of the worker layer: quick, and able to misbehave in every way that a worker can."""

from __future__ import annotations

import ctypes
import os
import signal
import time
from dataclasses import dataclass
from pathlib import Path

from evo.errors import DataError


@dataclass(frozen=True)
class Job:
    """A task that returns ten times its number, after `seconds`; `mischief` happens first, `times` times."""

    number: int
    seconds: float = 0.0
    mischief: str = ""
    times: int = 1
    tally: Path | None = None  # a directory that keeps count over processes
    padding: bytes = b""

    @property
    def name(self) -> str:
        return f"job {self.number}"


class StandIn:
    def __init__(self, context: object) -> None:
        self.fingerprint = str(os.environ.get("STAND_IN_FINGERPRINT", ""))

    def play(self, job: Job) -> tuple[int, bytes]:
        if job.mischief and self._still_due(job):
            getattr(self, "_" + job.mischief)()
        time.sleep(job.seconds)
        return 10 * job.number, job.padding

    def _still_due(self, job: Job) -> bool:
        assert job.tally is not None
        marks = len(list(job.tally.glob(f"{job.number}-*")))
        if marks < job.times:
            (job.tally / f"{job.number}-{marks}").touch()
        return marks < job.times

    def _kill(self) -> None:
        os.kill(os.getpid(), signal.SIGKILL)

    def _stop(self) -> None:
        os.kill(os.getpid(), signal.SIGSTOP)

    def _exit(self) -> None:
        os._exit(0)

    def _abort(self) -> None:
        os.abort()

    def _spin(self) -> None:
        while True:
            pass

    def _hold(self) -> None:
        ctypes.PyDLL(None).sleep(60)  # with Python's lock, so no thread of this process runs

    def _memory(self) -> None:
        raise MemoryError

    def _data_error(self) -> None:
        raise DataError("row 7 is not there")

    def _bug(self) -> None:
        raise ZeroDivisionError("in a worker")

    def _print(self) -> None:
        print("this belongs on standard error")


class Where:
    """Tells what its worker is pinned to."""

    fingerprint = ""

    def __init__(self, context: object) -> None:
        pass

    def play(self, variables: list[str]) -> tuple[int, list[str]]:
        return os.getpid(), [os.environ.get(name, "") for name in variables]


def make(context: object) -> StandIn:
    return StandIn(context)


def make_where(context: object) -> Where:
    return Where(context)


def make_broken(context: object) -> StandIn:
    raise DataError("no such thing")


def make_dying(context: object) -> StandIn:
    os._exit(7)


def prepare_broken(context: object) -> None:
    raise DataError("cannot prepare")


def make_pinned(context: object) -> StandIn:
    from evo import devices

    devices.claim()
    return StandIn(context)


def prepare_slowly(context: object) -> None:
    time.sleep(60)
