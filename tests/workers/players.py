"""Players for the tests of the worker layer: quick, and able to misbehave in every way that a worker can."""

from __future__ import annotations

import asyncio
import ctypes
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from evo import clock
from evo.errors import DataError, DeviceAbsentError, DeviceError, DeviceLostError, DeviceMemoryError
from evo.records import Player


@dataclass(frozen=True)
class Job:
    """A task that returns ten times its number, after `seconds`; `mischief` happens first, `times` times."""

    number: int
    seconds: float = 0.0
    mischief: str = ""
    times: int = 1
    tally: Path | None = None  # a directory that keeps count over processes
    padding: bytes = b""
    computing: float = 0.0  # seconds of processor time

    def __str__(self) -> str:
        return f"job {self.number}"


class Echo(Player):
    """Says what it was told."""

    def __init__(self, context: object) -> None:
        pass

    def play(self, task: object) -> object:
        return task


class Process(Player):
    """Returns the process that it is in, after the seconds of its context."""

    def __init__(self, context: float) -> None:
        self._seconds = context

    def play(self, task: object) -> int:
        time.sleep(self._seconds)
        return os.getpid()


class StandIn(Player):
    def __init__(self, context: object) -> None:
        self.fingerprint = str(os.environ.get("STAND_IN_FINGERPRINT", ""))

    def play(self, job: Job) -> tuple[int, bytes]:
        if job.mischief and self._still_due(job):
            getattr(self, "_" + job.mischief)()
        time.sleep(job.seconds)
        began = time.process_time()
        while time.process_time() < began + job.computing:
            pass
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

    def _interrupt(self) -> None:
        raise KeyboardInterrupt

    def _cancel(self) -> None:
        raise asyncio.CancelledError

    def _leave(self) -> None:
        sys.exit(3)

    def _print(self) -> None:
        print("this belongs on standard error")


class Where(Player):
    """Tells what its worker is pinned to."""

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
    from evo.workers import devices
    from evo.workers.options import WorkersOptions

    devices.claim(WorkersOptions())
    return StandIn(context)


def prepare_slowly(context: object) -> None:
    time.sleep(60)


def prepare_and_tell(path: object) -> None:
    Path(str(path)).write_text(str(os.getpid()))
    time.sleep(60)


def prepare_by_a_child(context: object) -> None:
    """Wait for another process that computes, as a compiler does."""
    spin = "import time\nwhile time.process_time() < 3.0: pass"
    subprocess.run([sys.executable, "-c", spin], check=True)


def make_waiting(context: object) -> StandIn:
    threading.Event().wait()  # nobody sets it
    return StandIn(context)


def make_spinning(context: object) -> StandIn:
    clock.progress.made()  # before it calls a plug-in, which does not return
    while True:
        pass


def make_compiling(context: object) -> StandIn:
    clock.progress.made()
    clock.stop()  # as Numba's events do
    ended = time.monotonic() + 3
    while time.monotonic() < ended:
        pass
    clock.go_on()
    return StandIn({})


def make_stepping(context: object) -> StandIn:
    for _ in range(7):
        time.sleep(0.4)
        clock.progress.made()
    return StandIn({})


def prepare_at_work(context: object) -> None:
    began = time.process_time()
    while time.process_time() < began + 1.2:
        pass


def prepare_with_a_thread(context: object) -> None:
    threading.Thread(target=time.sleep, args=(60,), name="engine", daemon=True).start()


OPENED = []


def prepare_with_a_file(path: object) -> None:
    OPENED.append(open(str(path)))  # noqa: SIM115 - left open, which is the mistake


class Slow(Player):
    """Plays eight steps of so many seconds, or sleeps as long without any."""

    def __init__(self, context: object) -> None:
        self._tally = Path(str(context))

    def play(self, job: Job) -> int:
        for _ in range(8):
            time.sleep(job.seconds)
            if not job.mischief:
                clock.progress.made()
        first = not list(self._tally.iterdir())
        (self._tally / str(os.getpid())).touch()
        return int(first)


def make_slow(context: object) -> Slow:
    return Slow(context)


class Pinned(StandIn):
    """Says what it is pinned to, and runs out of its device's memory where its environment says so."""

    def __init__(self, context: object) -> None:
        super().__init__(context)
        self.device = "Stand-in"
        if os.environ.get("ROOM") == "none":
            raise DeviceMemoryError("out of memory on the Stand-in: OOM while it began")

    def play(self, job: Job) -> tuple[int, bytes]:
        if os.environ.get("ROOM") == "little":
            time.sleep(job.seconds)
            raise DeviceMemoryError("out of memory on the Stand-in: OOM in a task")
        if os.environ.get("ROOM") == "half":
            self.notices = (*self.notices, f"half of {job}")
        return super().play(job)


def make_with_room(context: object) -> Pinned:
    return Pinned(context)


class OnGpu(StandIn):
    """Loses its GPU as its environment says: once, always, or for good; or finds other bits when it starts again."""

    def __init__(self, context: object) -> None:
        super().__init__(context)
        self._fails, self._mark = os.environ.get("GPU_FAILS", ""), Path(str(context)) / "failed"
        if self._fails == "absent":
            raise DeviceAbsentError("no GPU for CUDA_VISIBLE_DEVICES = '0'")
        if self._fails == "while it starts":
            self._fail()
        if self._mark.exists() and self._fails == "bits":
            raise DeviceError("the Stand-in does not compute the bits of the CPU's kernel")
        if self._mark.exists() and self._fails in ("for good", "hangs"):
            self._fail()

    def play(self, job: Job) -> tuple[int, bytes]:
        if self._fails and (self._fails == "always" or not self._mark.exists()):
            self._mark.touch()
            self._fail()
        return super().play(job)

    def _fail(self) -> None:
        if self._fails == "hangs":
            threading.Event().wait()
        raise DeviceLostError("an illegal memory access (700)")


def make_on_gpu(context: object) -> OnGpu:
    return OnGpu(context)


class Together(StandIn):
    """Plays all jobs that wait at once, and says how many; they fail together."""

    def __init__(self, context: object) -> None:
        super().__init__(context)
        self.together = self._play_all

    def _play_all(self, jobs: Sequence[Job]) -> list[tuple[int, bytes]]:
        return [(number, bytes(len(jobs))) for number, _ in map(self.play, jobs)]


def make_together(context: object) -> Together:
    return Together(context)


class RealEnvironment(Player):
    """Tells of variables as compiled code sees them, and as the process was started with them."""

    def __init__(self, context: object) -> None:
        pass

    def play(self, name: str) -> tuple[int, str, str]:
        getenv = ctypes.CDLL(None).getenv
        getenv.restype = ctypes.c_char_p
        begun = dict(part.partition("=")[::2] for part in Path("/proc/self/environ").read_text().split("\0"))
        return os.getpid(), (getenv(name.encode()) or b"").decode(), begun.get(name, "")


def make_real_environment(context: object) -> RealEnvironment:
    return RealEnvironment(context)


class AtStart(Player):
    """Tells which of some modules had been imported before its worker began to make its player."""

    def __init__(self, context: object) -> None:
        self._there = set(sys.modules)

    def play(self, names: list[str]) -> list[str]:
        return [name for name in names if name in self._there]


def make_at_start(context: object) -> AtStart:
    return AtStart(context)


def compile_a_kernel(_: object = None) -> None:
    """Have Numba compile something, as preparing a run does."""
    import numba

    from evo.compiled import cache  # noqa: F401 - it stops the clocks

    numba.njit(lambda number: number + 1)(1)


SPINNING = "import time; end = time.monotonic() + 4\nwhile time.monotonic() < end: pass"


def make_starved(context: object) -> StandIn:
    """Wait for a processor, on which another process runs, until that ends."""
    os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})  # of this thread
    spinning = subprocess.Popen([sys.executable, "-c", SPINNING])
    os.sched_setscheduler(0, os.SCHED_IDLE, os.sched_param(0))
    while spinning.poll() is None:
        pass
    return StandIn({})
