"""Signals that end this process, standard streams that fail, and programs in interpreters of their own."""

from __future__ import annotations

import ctypes
import errno
import io
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from types import FrameType
from typing import Any

from evo import clock
from evo.errors import SHORTAGES, ResourceError, notice

# The system ends it as soon as the thread that started it is gone, as by SIGKILL (PR_SET_PDEATHSIG).
WITH_ITS_PARENT = """\
import ctypes, os, signal, sys
sys.platform == "linux" and ctypes.CDLL(None).prctl(1, int(signal.SIGKILL))
if os.getppid() != int(sys.argv.pop(1)):
    sys.exit(1)
"""
PR_SET_PDEATHSIG = 1  # <sys/prctl.h>
HASHES = "PYTHONHASHSEED"  # without it, Python draws the hashes of strings anew in each process
STOPPING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
BURST = 1.0  # seconds in which several signals count as one

GRACE = 5.0  # seconds that threads of plug-ins have to end when all else is done
RETRY = 0.01  # seconds after which a signal that could not be raised is sent again
ALONE = threading.RLock()  # who has it uses what all threads share, as the random numbers of Python and NumPy
COMPILER = "llvmlite.binding"  # modules that call LLVM, and that LLVM calls

_asked_at = -BURST  # monotonic
_deferred = signal.SIGINT  # the signal that is sent again
_others_alarm: tuple[Any, float, float] = (signal.SIG_DFL, 0.0, 0.0)  # a handler of SIGALRM, when it is due, interval
_waiting = 0  # calls of `interrupts_wait` that go on
_masks = threading.local()  # of signals that were blocked before a fork
_at_once = False  # whether `leave` skips the shutdown of the interpreter


class Stopped(KeyboardInterrupt):
    """Raised where a signal asks this process to end: Ctrl-C, SIGTERM or SIGHUP."""

    def __init__(self, number: int = signal.SIGINT) -> None:
        super().__init__(number)
        self.number = number

    @property
    def exit_code(self) -> int:
        """Return the exit code that a shell reports for the signal."""
        return 128 + self.number


def is_interrupt(error: BaseException) -> bool:
    """Return whether a user asks this process to end: plug-ins and libraries may raise KeyboardInterrupt too."""
    raises_stopped = signal.getsignal(signal.SIGINT) is _stop
    return isinstance(error, Stopped if raises_stopped else KeyboardInterrupt)


def is_passed_on(error: BaseException) -> bool:
    """Return whether an exception in a plug-in is no mistake of its author: an interrupt, or a shortage."""
    shortage = isinstance(error, OSError) and error.errno in SHORTAGES
    return shortage or isinstance(error, ResourceError | MemoryError | Stopped)


def raise_stopped() -> None:
    """Raise `Stopped` on SIGINT, SIGTERM and SIGHUP; a signal that is ignored, as under nohup, stays ignored."""
    global _asked_at
    _asked_at = -BURST
    for number in STOPPING:
        if signal.getsignal(number) is not signal.SIG_IGN:
            signal.signal(number, _stop)
    if not isinstance(sys.unraisablehook, _Unraisable):
        sys.unraisablehook = _Unraisable(sys.unraisablehook)
        os.register_at_fork(before=_block, after_in_parent=_unblock, after_in_child=_end_on_signals)


def _block() -> None:
    """Hold signals back while a process is forked: the interpreter would forget those that its child receives."""
    _masks.before = signal.pthread_sigmask(signal.SIG_BLOCK, STOPPING)


def _unblock() -> None:
    signal.pthread_sigmask(signal.SIG_SETMASK, _masks.before)


def _end_on_signals() -> None:
    """Let signals end a process that a plug-in has forked, as they end any other: it is no part of the run."""
    for number in STOPPING:
        if signal.getsignal(number) is _stop:
            signal.signal(number, signal.default_int_handler if number == signal.SIGINT else signal.SIG_DFL)
    _unblock()


@contextmanager
def ignored() -> Iterator[None]:
    """Ignore the signals while this process closes its files; in other threads than the main one, do nothing."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = {number: signal.signal(number, signal.SIG_IGN) for number in STOPPING}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def ignore() -> None:
    """Ignore the signals until this process ends."""
    for number in STOPPING:
        signal.signal(number, signal.SIG_IGN)


@contextmanager
def interrupts_wait() -> Iterator[None]:
    """Let Ctrl-C wait while LLVM compiles, in programs and notebooks that leave it to Python; else do nothing."""
    global _waiting
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    _waiting += 1
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, _interrupt)
    try:
        yield
    finally:
        _waiting -= 1
        main = threading.current_thread() is threading.main_thread()  # the collector may run in another
        if main and not _waiting and signal.getsignal(signal.SIGINT) is _interrupt:
            signal.signal(signal.SIGINT, signal.default_int_handler)


def skip_shutdown() -> None:
    """Have `leave` end this process at once: libraries would wait for a device that hangs."""
    global _at_once
    _at_once = True


def leave(code: int) -> int:
    """End this process at once if a signal asked for it, else return the code; the rest is for standard error.

    Everything is closed by now, and the shutdown of an interpreter with compilers takes seconds on a busy machine.
    """
    with suppress(OSError, ValueError):  # closed
        sys.stdout.flush()
        os.dup2(2, 1)  # what libraries print when the interpreter ends must not follow the last line
    sys.stdout = sys.stderr
    end = threading.Timer(GRACE, _end_without_threads, [code])
    end.daemon = True
    if _waited_threads():
        end.start()
    if code - 128 in STOPPING or _at_once:
        for stream in (sys.stdout, sys.stderr):
            stream.flush()
        os._exit(code)
    return code


def _waited_threads() -> list[threading.Thread]:
    """Return the threads that an interpreter waits for when it ends."""
    return [one for one in threading.enumerate() if one is not threading.main_thread() and not one.daemon]


def _end_without_threads(code: int) -> None:
    """End this process, whose interpreter waits for threads that a plug-in has left; say so."""
    names = ", ".join(thread.name for thread in _waited_threads())
    notice(f"a plug-in has left threads that do not end, so this process has ended without them: {names}")
    sys.stderr.flush()
    os._exit(code)


def _stop(number: int, frame: FrameType | None) -> None:
    """Raise `Stopped` once per burst: a second one could interrupt the code that closes files."""
    global _asked_at
    now = time.monotonic()
    if now - _asked_at < BURST:
        return
    if _compiles(frame):
        _defer(number)
        return
    _asked_at = now
    raise Stopped(number)


def _interrupt(number: int, frame: FrameType | None) -> None:
    if _compiles(frame):
        _defer(number)
    else:
        signal.default_int_handler(number, frame)


def _compiles(frame: FrameType | None) -> bool:
    """Return whether LLVM, which cannot unwind, or what stops the clocks while it compiles, is on the stack."""
    while frame is not None:
        if frame.f_globals.get("__name__", "").startswith((COMPILER, clock.__name__)):
            return True
        frame = frame.f_back
    return False


def _defer(number: int) -> None:
    """Send the signal again in a moment, by a timer, since no code of ours runs when the compiler returns."""
    global _deferred, _others_alarm
    _deferred = signal.Signals(number)
    before = signal.signal(signal.SIGALRM, _again)
    left, interval = signal.setitimer(signal.ITIMER_REAL, RETRY)
    if before is not _again:
        _others_alarm = before, time.monotonic() + left if left else 0.0, interval


def _again(number: int, frame: FrameType | None) -> None:
    handler, due, interval = _others_alarm
    signal.setitimer(signal.ITIMER_REAL, 0)  # set anew since, it would end the process once the handler is another
    signal.signal(signal.SIGALRM, signal.SIG_DFL if handler is None else handler)
    if due:
        signal.setitimer(signal.ITIMER_REAL, max(due - time.monotonic(), RETRY), interval)
    signal.raise_signal(_deferred)  # without effect where the signals are ignored by now


class _Unraisable:
    """A hook for exceptions that Python drops, as in a destructor: a dropped `Stopped` is raised again later."""

    def __init__(self, before: Callable[[sys.UnraisableHookArgs], object]) -> None:
        self._before = before

    def __call__(self, dropped: sys.UnraisableHookArgs) -> None:
        global _asked_at
        if isinstance(dropped.exc_value, Stopped):
            _asked_at = -BURST
            _defer(dropped.exc_value.number)
        else:
            self._before(dropped)


class TolerantFile(io.FileIO):
    """A file descriptor that drops what cannot be written, and remembers why where that is the disk's fault."""

    shortage: str = ""

    def write(self, data: object) -> int:
        """Write what can be written; return the size of all data."""
        size = memoryview(data).nbytes  # type: ignore[arg-type]
        try:
            written = super().write(data)  # type: ignore[arg-type]
        except OSError as error:
            if error.errno in SHORTAGES | {errno.EBADF}:
                self.shortage = str(error.strerror)
            return size
        return size if written is None else written

    def move(self, descriptor: int) -> None:
        """Write to another file descriptor from now on."""
        super().__init__(descriptor, "w", closefd=False)


def tolerate_failures() -> None:
    """Replace Python's standard streams; a stream that was replaced before is kept."""
    if sys.stdin is None:  # closed before this process started
        sys.stdin = open(os.devnull, encoding="utf-8")  # noqa: SIM115 - open until the process ends
    for name, descriptor in (("stdout", 1), ("stderr", 2)):
        stream = getattr(sys, name)
        if stream is getattr(sys, f"__{name}__"):
            if stream is None:  # closed; nothing can be written to what is opened for reading
                descriptor = os.open(os.devnull, os.O_RDONLY)
            else:
                stream.flush()
            # Characters that the terminal's encoding lacks are escaped, so that they do not stop a run.
            stream = io.TextIOWrapper(
                io.BufferedWriter(TolerantFile(descriptor, "w", closefd=False)),
                encoding=stream.encoding if stream else "utf-8",
                errors="backslashreplace",
                line_buffering=True,
            )
        setattr(sys, name, stream)


def lost_output() -> str:
    """Return why standard output is not complete: the disk that it goes to is full, or has failed."""
    raw = getattr(getattr(sys.stdout, "buffer", None), "raw", None)
    if not isinstance(raw, TolerantFile):
        return ""
    sys.stdout.flush()
    return raw.shortage


def keep_from_libraries() -> None:
    """Send the output of C libraries to standard error, so that Python's own lines are the last on standard output."""
    raw = getattr(getattr(sys.stdout, "buffer", None), "raw", None)
    if isinstance(raw, TolerantFile) and raw.fileno() == 1:
        sys.stdout.flush()
        raw.move(os.dup(1))
        os.dup2(2, 1)


def end_with_parent(number: int = signal.SIGKILL) -> None:
    """Have Linux send this process a signal as soon as its parent is gone; 0: it sees that by itself."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, int(number))


@contextmanager
def fork_doing(work: Callable[[], object]) -> Iterator[None]:
    """Run `work` in a forked process until the block ends; its result is ignored."""
    parent = os.getpid()
    try:
        child = os.fork()
    except OSError:  # too many processes
        yield
        return
    if not child:
        with suppress(BaseException):
            end_with_parent()
            if os.getppid() == parent:
                work()
        os._exit(0)
    try:
        yield
    finally:
        with suppress(ProcessLookupError, ChildProcessError):  # it has ended, and a caller ignores or awaits SIGCHLD
            os.kill(child, signal.SIGKILL)
            os.waitpid(child, 0)


def hashes() -> dict[str, str]:
    """Return the variable that gives all interpreters of a run equal hashes of strings: user code may list a set."""
    chosen = os.environ.get(HASHES, "")
    return {HASHES: "0" if chosen in ("", "random") else chosen}


def interpreter(program: str, words: Sequence[str]) -> subprocess.Popen[str]:
    """Start a program in an interpreter of its own, with `words` as its arguments; it ends with this process."""
    return subprocess.Popen(
        [sys.executable, "-c", WITH_ITS_PARENT + program, str(os.getpid()), *words],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        encoding="utf-8",
        errors="replace",
        env={**os.environ, **hashes(), "PYTHONPATH": os.pathsep.join(path or os.getcwd() for path in sys.path)},
    )
