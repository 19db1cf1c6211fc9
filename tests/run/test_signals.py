"""Signals come at any moment, more than one at a time, and a run ends in order, at once, and can be gone on with."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import threading
import time
from functools import partial
from pathlib import Path

import pytest

import evo
from evo.clock import Clock
from evo.process import BURST, STOPPING, fork_doing, interrupts_wait
from tests.helpers.calling import ROOT, after, called, command, small_with, summary_of

SECONDS = 2.0  # that a process has to end in
LARGE = small_with(
    environment='size = 10\nobservation = "frame"\nactions = "absolute"\nstarvation = 30', policy='preset = "seed"'
)


def finished(where: Path, err: str) -> None:
    """Check that a run which was interrupted goes on to the hash of an undisturbed one."""
    assert err.splitlines()[-1].endswith("continue with: python -m evo resume run")
    assert "Traceback" not in err
    reached = int(err.splitlines()[-1].split(";")[1].split()[0])
    total = ("--generations", reached + 2, "--backend", "serial")
    straight = summary_of(where, "small.toml", "--run-dir", f"straight-{reached}", *total)
    assert summary_of(where, "--resume", "run", *total)["state_hash"] == straight["state_hash"]


@pytest.mark.parametrize(
    "gaps",
    [
        pytest.param((0.0,), id="together", marks=pytest.mark.long),
        pytest.param((0.02,), id="soon", marks=pytest.mark.long),
        pytest.param((0.001,) * 20, id="many", marks=pytest.mark.long),
    ],
)
def test_an_impatient_second_interrupt_loses_nothing_and_says_nothing(small: Path, gaps: tuple[float, ...]) -> None:
    words = ("small.toml", "--run-dir", "run", "--generations", 5000, "--backend", "processes", "--workers", 2)
    with command(small, *words) as process:
        after(process, 2)
        os.killpg(process.pid, signal.SIGINT)
        for gap in gaps:
            time.sleep(gap)
            try:
                os.killpg(process.pid, signal.SIGINT)
            except ProcessLookupError:
                break
        _, err = process.communicate(timeout=60)
    assert process.returncode == 130, err
    assert len(err.splitlines()) == 1
    finished(small, err)


PROGRAM = """
import time
from evo.process import raise_stopped
raise_stopped()
try:
    print("ready", flush=True)
    time.sleep(60)
except KeyboardInterrupt:
    time.sleep(0.5)  # closes what was open
    print("closed", flush=True)
    time.sleep(60)
"""


def test_a_burst_of_signals_is_one_and_a_later_one_is_another() -> None:
    pipe = subprocess.PIPE
    with subprocess.Popen([sys.executable, "-c", PROGRAM], stdout=pipe, stderr=pipe, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGINT):
            process.send_signal(number)
            time.sleep(0.1)
        assert process.stdout.readline() == "closed\n"
        time.sleep(BURST)
        process.send_signal(signal.SIGINT)
        _, err = process.communicate(timeout=20)
    assert "Stopped" in err


def stopped_at(where: Path, moment: float, backend: str) -> float:
    """Terminate a run at a moment after its first generation, finish it, and return how long it took to end."""
    words = ("small.toml", "--run-dir", "run", "--generations", 100_000, "--backend", backend)
    with command(where, *words) as process:
        after(process, 1)
        time.sleep(moment)
        process.terminate()
        began = time.monotonic()
        _, err = process.communicate(timeout=60)
        took = time.monotonic() - began
    assert process.returncode == 143, err
    finished(where, err)
    return took


def test_termination_drops_the_unfinished_generation_and_keeps_the_others(small: Path) -> None:
    assert stopped_at(small, 0.1, "processes") < SECONDS


@pytest.mark.long
@pytest.mark.parametrize("trial", range(20))
def test_termination_at_any_moment_leaves_the_hash_of_an_undisturbed_run(small: Path, trial: int) -> None:
    assert stopped_at(small, random.Random(trial).random(), ("serial", "processes")[trial % 2]) < SECONDS


@pytest.mark.long
@pytest.mark.parametrize("backend", ["serial", "processes"])
def test_a_large_network_does_not_delay_the_end(small: Path, backend: str) -> None:
    (small / "large.toml").write_text(LARGE)
    long = ("--generations", 100_000, "--set", "test.every=1000", "--set", "ga.episodes=64")
    with command(small, "large.toml", "--run-dir", "run", "--backend", backend, *long) as process:
        after(process, 1)
        process.terminate()
        began = time.monotonic()
        _, err = process.communicate(timeout=60)
        took = time.monotonic() - began
    assert process.returncode == 143, err
    assert took < SECONDS


@pytest.mark.long
def test_a_run_that_was_told_to_survive_a_hang_up_does(small: Path) -> None:
    words = [sys.executable, "-m", "evo.run", "small.toml", "--run-dir", "run", "--json"]
    words += ["--backend", "processes", "--generations", "30"]
    program = f"import os, signal; signal.signal(signal.SIGHUP, signal.SIG_IGN); os.execv({words[0]!r}, {words!r})"
    with subprocess.Popen([sys.executable, "-c", program], cwd=small, stdout=subprocess.PIPE, text=True) as process:
        out = after(process, 1)
        process.send_signal(signal.SIGHUP)
        rest, _ = process.communicate(timeout=60)
    assert process.returncode == 0
    assert json.loads((out + rest).splitlines()[-1])["generations"] == 30


@pytest.mark.long
def test_both_streams_may_close_and_the_run_goes_on(small: Path) -> None:
    called(small, "small.toml", "--run-dir", "straight", "--generations", 6)
    with command(small, "small.toml", "--run-dir", "run", "--generations", 6, "--backend", "processes") as process:
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdout.close()
        process.stderr.close()
        assert process.wait(timeout=60) == 0
    ends = [(small / name / "manifest.jsonl").read_text().splitlines()[-1] for name in ("run", "straight")]
    hashes = [json.loads(line)["state_hash"] for line in ends]
    assert hashes[0] == hashes[1]


SIGNALLED = """
import os, signal, sys, time
import numba
from numba.core.codegen import CPUCodeLibrary
from evo.process import interrupts_wait, raise_stopped
asked = CPUCodeLibrary.__dict__["_object_getbuffer_hook"]
def signalled(cls, library):
    os.kill(os.getpid(), int(sys.argv[1]))
    time.sleep(0.1)
    return asked.__get__(None, cls)(library)
CPUCodeLibrary._object_getbuffer_hook = classmethod(signalled)
"""

COMPILING = f"""{SIGNALLED}
raise_stopped()
try:
    numba.njit(lambda x: x + 1)(3)
    time.sleep(3)
except KeyboardInterrupt as stop:
    sys.exit(stop.exit_code)
"""

NOTEBOOK = f"""{SIGNALLED}
rang = []
signal.signal(signal.SIGALRM, lambda *_: rang.append(1))
signal.alarm(1)
try:
    with interrupts_wait():
        with interrupts_wait():
            pass
        numba.njit(lambda x: x + 1)(3)
        time.sleep(3)
except KeyboardInterrupt:
    restored = signal.getsignal(signal.SIGINT) is signal.default_int_handler
    time.sleep(1.5)
    sys.exit(130 if restored and rang else 1)
"""

DROPPING = """
import os, sys, time
from evo.process import raise_stopped
class Closing:
    def __del__(self):
        os.kill(os.getpid(), int(sys.argv[1]))
raise_stopped()
try:
    Closing()
    time.sleep(3)
except KeyboardInterrupt as stop:
    sys.exit(stop.exit_code)
"""


def assert_ended(program: str, by: int) -> None:
    """Check that a program of its own, which is told a signal's number, ends by it and says nothing."""
    words, environment = [sys.executable, "-c", program, str(int(by))], {**os.environ, "PYTHONPATH": str(ROOT)}
    ended = subprocess.run(words, env=environment, capture_output=True, text=True, timeout=60)
    assert (ended.returncode, ended.stderr) == (128 + by, "")


@pytest.mark.parametrize(
    "number", [pytest.param(one, marks=[] if one == signal.SIGINT else [pytest.mark.long]) for one in STOPPING]
)
@pytest.mark.parametrize("program", [COMPILING, DROPPING], ids=["compiler", "destructor"])
def test_a_signal_waits_for_a_compiler_or_a_destructor_that_cannot_be_interrupted(program: str, number: int) -> None:
    assert_ended(program, by=number)


TWICE = """
import signal, sys, time
from evo.process import _defer, raise_stopped
raise_stopped()
signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGALRM])
_defer(signal.SIGTERM)
time.sleep(0.1)
_defer(signal.SIGTERM)  # while the alarm of the first waits
try:
    signal.pthread_sigmask(signal.SIG_UNBLOCK, [signal.SIGALRM])
    time.sleep(3)
except KeyboardInterrupt as stop:
    time.sleep(0.1)
    sys.exit(stop.exit_code)
"""


def test_a_signal_that_is_put_off_twice_is_raised_once_and_leaves_no_alarm() -> None:
    assert_ended(TWICE, by=signal.SIGTERM)


def test_an_interrupt_of_a_notebook_waits_for_the_compiler_and_handlers_are_as_before() -> None:
    assert_ended(NOTEBOOK, by=signal.SIGINT)


def test_an_interrupt_waits_until_the_clocks_are_stopped_or_go_on() -> None:
    def interrupted() -> float:
        if signals:
            signal.raise_signal(signals.pop())
        return time.monotonic()

    def compiled() -> None:
        clock.stop()
        stopped.append(True)
        clock.go_on()
        time.sleep(60)  # the interrupt comes a moment later, and ends this

    signals, stopped = [signal.SIGINT], list[bool]()
    clock = Clock(interrupted)
    with pytest.raises(KeyboardInterrupt), interrupts_wait():
        compiled()
    assert stopped
    before = clock()
    time.sleep(0.01)
    assert clock() > before  # it goes on


@pytest.mark.long
@pytest.mark.parametrize("trial", range(24))
def test_a_signal_at_any_moment_of_a_cold_compilation_ends_in_order(
    small: Path, monkeypatch: pytest.MonkeyPatch, trial: int
) -> None:
    monkeypatch.setenv("NUMBA_CACHE_DIR", str(small / "cache"))
    number = STOPPING[trial % 3]
    with command(small, "small.toml", "--run-dir", "run", "--backend", ("serial", "processes")[trial % 2]) as process:
        assert process.stdout is not None
        process.stdout.readline()  # it has begun
        time.sleep(random.Random(trial).random() * 20)
        process.send_signal(number)
        began = time.monotonic()
        out, err = process.communicate(timeout=60)
        took = time.monotonic() - began
    late = "next:" in out  # it has said its last word; Python sets signals to their defaults as it exits
    assert process.returncode in (0, 128 + number, *([-number] if late else [])), err
    assert "Exception ignored" not in err
    assert took < SECONDS


@pytest.mark.parametrize("raised", [False, True])
def test_a_library_call_gives_the_handler_back(small: Path, raised: bool) -> None:
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        experiment = evo.Experiment.load(small / "small.toml")
        rows = evo.train(experiment, small / "called")
        next(rows)
        assert signal.getsignal(signal.SIGINT) is not signal.default_int_handler
        others = evo.train(experiment, small / "others")
        next(others)
        others.close()
        assert signal.getsignal(signal.SIGINT) is not signal.default_int_handler  # the first still trains
        if raised:
            with pytest.raises(KeyboardInterrupt):
                rows.throw(KeyboardInterrupt)
        rows.close()
        assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
    finally:
        signal.signal(signal.SIGINT, before)


def test_training_off_the_main_thread_gives_the_same_bits(small: Path) -> None:
    rows: list[evo.Row] = []
    experiment = evo.Experiment.load(small / "small.toml", "workers.backend=processes")

    def train() -> None:
        rows.extend(evo.train(experiment, small / "thread"))

    thread = threading.Thread(target=train)
    thread.start()
    thread.join()
    straight = summary_of(small, "small.toml", "--run-dir", "straight")
    assert [row.generation for row in rows] == list(range(4))
    last = (small / "thread" / "manifest.jsonl").read_text().splitlines()[-1]
    assert json.loads(last)["state_hash"] == straight["state_hash"]


def test_what_a_fork_does_meanwhile_may_be_done_where_children_are_not_awaited() -> None:
    before = signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    try:
        for seconds in (0, 600):  # it has ended, or is killed
            with fork_doing(partial(time.sleep, seconds)):
                time.sleep(0.1)
    finally:
        signal.signal(signal.SIGCHLD, before)


def test_what_a_fork_does_meanwhile_ends_with_the_block_and_with_its_parent(tmp_path: Path) -> None:
    def never_done() -> None:
        (tmp_path / "pid").write_text(str(os.getpid()))
        time.sleep(600)

    def fork() -> int:
        with fork_doing(never_done):
            while not (text := (tmp_path / "pid").exists() and (tmp_path / "pid").read_text()):
                time.sleep(0.01)
            if killed:
                os.kill(os.getpid(), signal.SIGKILL)
            return int(text)

    killed = False
    with pytest.raises(ProcessLookupError):
        os.kill(fork(), 0)
    killed = True
    (tmp_path / "pid").unlink()
    parent = os.fork()
    if not parent:
        fork()
    os.waitpid(parent, 0)
    until, child = time.monotonic() + 60, Path("/proc", (tmp_path / "pid").read_text())
    while child.exists() and time.monotonic() < until:
        time.sleep(0.01)
    assert not child.exists()


def test_sigterm_ends_what_a_plug_in_forks_at_once_and_silently() -> None:
    """Some of these signals were forgotten, so whoever waited for the process waited forever; others were traced."""
    program = """
import os, signal
from evo.process import raise_stopped
raise_stopped()
for _ in range(100):
    child = os.fork()
    if not child:
        signal.sigtimedwait([], 20)
        os._exit(1)
    os.kill(child, signal.SIGTERM)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == -signal.SIGTERM
assert not signal.pthread_sigmask(signal.SIG_BLOCK, [])
"""
    done = subprocess.run([sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, timeout=120)
    assert (done.returncode, done.stderr) == (0, "")


def test_a_program_ends_where_a_plug_in_has_left_a_thread_that_does_not() -> None:
    program = """
import sys, threading, time
from evo import process
process.GRACE = 0.1
threading.Thread(target=time.sleep, args=[60], name="feeder").start()
sys.exit(process.leave(3))
"""
    done = subprocess.run([sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, timeout=30)
    assert done.returncode == 3
    assert "has ended without them: feeder" in done.stderr
