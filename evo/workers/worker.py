"""The processes behind a pool: a fork server that has everything imported, and the workers that it forks.

The fork server is a fresh interpreter, so neither the master's threads nor its main module reach a worker. It imports
once what every worker needs and then only waits, so a worker starts in milliseconds, shares that memory, and is always
reaped or killed by its real parent, which is never busy. Workers that are spawned are fresh interpreters, too: slower,
and with their environment from their first instruction on.

A process that plays or starts tells the master that it makes progress, at most a few times a second.
"""

from __future__ import annotations

import os
import resource
import select
import signal
import socket
import sys
import threading
import time
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import Any, NoReturn

from evo import clock
from evo.environments.instances import IN_PROCESS, OPEN
from evo.errors import DeviceLostError, DeviceMemoryError, ResourceError, counted
from evo.plugins import directory, mistakes
from evo.process import end_with_parent
from evo.records import Player
from evo.workers.channel import OUT_OF_MEMORY, Channel, Ending, Failed, GivesUp, Packed, Ready, WorkerSpec

START, END = b"+", b"-"
MASTERS_SIGNALS = (signal.SIGINT, signal.SIGHUP, signal.SIGTERM)  # a terminal sends them to us too
SPAWNED = "import sys; sys.path[:] = sys.argv[2:]; from evo.workers.worker import spawned; spawned(int(sys.argv[1]))"
UNIT = 1 if sys.platform == "darwin" else 1024  # bytes, of memory in resource usage
WITHOUT_WAITING = os.WEXITED | os.WNOHANG | os.WNOWAIT
GRACE = 0.2  # seconds in which a worker closes its environments
LATEST = 5.0  # seconds in which a process that is killed ends
FIRST = 4.0  # deadline of a call of a plug-in while a worker starts, over that of its tasks
IDLE = 0.01  # part of a processor below which a process that starts does nothing
SPAWN = 'set workers.start = "spawn", as by --set workers.start=spawn: nothing is forked then'


def named(name: str) -> Callable[..., Any]:
    """Return the function of a "module:function" name."""
    module, _, function = name.partition(":")
    found: Callable[..., Any] = getattr(import_module(module), function)
    return found


def serve_forks(descriptor: int) -> NoReturn:
    """Be the fork server, on the socket with this file descriptor, until the master closes it or dies."""
    for number in MASTERS_SIGNALS:
        signal.signal(number, signal.SIG_IGN)
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)  # who ignores it, as the master may, cannot wait for children
    signal.pthread_sigmask(signal.SIG_UNBLOCK, MASTERS_SIGNALS)  # the master has blocked them until now
    control = Channel(socket.socket(fileno=descriptor))
    children: set[int] = set()
    try:
        spec: WorkerSpec = control.receive()
        left = ""
        try:
            if spec.prepare and spec.start != "spawn":
                clock.progress.say_compiled = control.send
                with watched(control, spec):
                    before = _shared_with_forks()  # with the watcher, which may be there a moment longer
                    named(spec.prepare)(spec.context)
                if left := _left(before):
                    spec = replace(spec, start="spawn")
            end_with_parent(0)
            control.send((clock.wall.paused_seconds, left))
        except BaseException as error:
            control.send(Failed.of(error))
        while True:
            request, descriptors, _, _ = socket.recv_fds(control.connection, 1, 1)
            if request == START:
                environment: dict[str, str] = control.receive()
                try:
                    child = os.fork() if spec.start != "spawn" else _spawn(descriptors[0], spec, environment)
                except OSError as error:
                    control.send(Failed.of(error))
                    continue
                if child == 0:
                    control.close()
                    work(Channel(socket.socket(fileno=descriptors[0])), spec, environment)
                os.close(descriptors[0])
                children.add(child)
                control.send(child)
            elif request == END:
                child = control.receive()
                children.discard(child)
                control.send(_end(child))
            else:
                break
    except (EOFError, OSError):
        pass
    finally:
        late = time.monotonic() + 2 * GRACE  # most have ended by now: the master has closed their channels
        for child in children:
            while os.waitid(os.P_PID, child, WITHOUT_WAITING) is None and time.monotonic() < late:
                time.sleep(GRACE / 50)
            _end(child)
        os._exit(0)


def _shared_with_forks() -> tuple[dict[str, str], dict[str, str]]:
    """Return the names of this process's threads, which a forked one lacks, and of open files, whose place it shares.

    Keys are numbers of threads and paths of files.
    """
    named_ones = {str(thread.native_id): thread.name for thread in threading.enumerate()}
    try:
        threads = {number: named_ones.get(number, "unnamed") for number in os.listdir("/proc/self/task")}
        files = {os.path.realpath(path) for path in Path("/proc/self/fd").iterdir()}
    except OSError:  # not on this system
        return named_ones, {}
    return threads, {path: path for path in files if os.path.isfile(path)}


def _left(before: tuple[dict[str, str], dict[str, str]]) -> str:
    """Return in words which threads and which files there are, and were not before; empty where there are none."""
    found = []
    for noun, ones, others in zip(("thread", "open file"), _shared_with_forks(), before, strict=True):
        if new := [ones[key] for key in sorted(ones.keys() - others.keys())]:
            found.append(f"{counted(len(new), noun)} ({', '.join(new[:3])})")
    return " and ".join(found)


@contextmanager
def watched(channel: Channel, spec: WorkerSpec) -> Iterator[None]:
    """Report start-up progress to the master; exit if start-up stalls.

    A process that uses less of a processor than `IDLE` for `spec.deadline` seconds waits for what does not come, unless
    it waits for a processor, a disk, or a process that it has started and that computes. One that calls a plug-in has
    `FIRST` times as long for each step, however busy it is, while nothing is compiled.
    """
    if not spec.deadline:  # it may wait for others
        yield
        return
    started, starting, steps = threading.Event(), threading.get_ident(), [0.0]

    def watch() -> None:
        spent = time.process_time()
        while not started.wait(spec.deadline):
            before, spent = spent, time.process_time()
            waits = spent - before <= IDLE * spec.deadline and not _may_run()
            seconds = spec.deadline * (FIRST if steps[0] else 1)
            if clock.wall() - steps[0] < seconds if steps[0] and not clock.wall.paused else not waits:
                channel.send(None)
                continue
            if started.is_set():  # meanwhile, and waits for this thread to end
                return
            did = "waited for something" if waits else "not returned"
            fork = waits and spec.start != "spawn"
            advice = f"; what a plug-in holds at its import may be why: {SPAWN}" if fork else ""
            place = mistakes.place_in_plugins(sys._current_frames()[starting])
            what = f"workers cannot start: for {seconds:g} seconds (see workers.deadline) {place} has {did}{advice}"
            channel.send(Failed.of(ResourceError(what)))
            os._exit(1)

    def step() -> None:
        steps[0] = clock.wall()

    clock.progress.tell = step

    watcher = threading.Thread(target=watch, daemon=True)
    watcher.start()
    try:
        yield
    finally:
        started.set()
        watcher.join()


def _may_run() -> bool:
    """Return whether another thread, or a process below this one, runs, or waits for a processor or a disk.

    False where that is unknown.
    """
    states, own = [], str(threading.get_native_id())
    for process in _with_those_below():
        with suppress(OSError):  # not on this system, or a thread has just ended
            for thread in (process / "task").iterdir():
                if thread.name != own:
                    states.append(_stat(thread)[0])
    return any(state in "RD" for state in states)


def _with_those_below() -> list[Path]:
    """Return the folders in /proc of this process and of all that descend from it."""
    parents = dict[Path, str]()
    for process in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):  # it has just ended
            parents[process] = _stat(process)[1]
    found = newest = [Path("/proc", str(os.getpid()))]
    while newest := [process for process, parent in parents.items() if parent in {one.name for one in newest}]:
        found = found + newest
    return found


def _stat(process: Path) -> list[str]:
    """Return the fields of a process or thread in /proc, from its state and its parent on."""
    return (process / "stat").read_text("utf-8", "replace").rpartition(") ")[2].split()


def _spawn(descriptor: int, spec: WorkerSpec, environment: dict[str, str]) -> int:
    """Start a fresh interpreter as a worker on the socket with this file descriptor; return its process id."""
    reading, writing = os.pipe()
    os.set_inheritable(descriptor, True)
    command = [sys.executable, "-c", SPAWNED, str(descriptor), *sys.path]
    try:
        standard_input = [(os.POSIX_SPAWN_DUP2, reading, 0)]
        child = os.posix_spawn(sys.executable, command, {**os.environ, **environment}, file_actions=standard_input)
    finally:
        os.close(reading)
        with suppress(BrokenPipeError), open(writing, "wb") as pipe:
            pipe.write(Packed.of(spec).body)
    return child


def spawned(descriptor: int) -> NoReturn:
    """Be a worker that was spawned, on the socket with this file descriptor."""
    spec = Packed(sys.stdin.buffer.read()).unpacked()
    work(Channel(socket.socket(fileno=descriptor)), spec, {})


def _leave() -> None:
    """End this worker; where environments are open, it may close them first, and what they have started."""
    if IN_PROCESS:
        time.sleep(GRACE)
    os._exit(0)


def _end(child: int) -> Ending:
    """Kill a child, unless it is dead already, and return how it ended; one that a driver holds ends later."""
    os.kill(child, signal.SIGKILL)
    late = time.monotonic() + LATEST
    while not (found := os.wait4(child, os.WNOHANG))[0]:
        if time.monotonic() > late:
            return Ending(-signal.SIGKILL, 0)
        time.sleep(GRACE / 200)
    _, status, usage = found
    return Ending(os.waitstatus_to_exitcode(status), usage.ru_maxrss * UNIT // 1_000_000)


@directory.kept()
def work(channel: Channel, spec: WorkerSpec, environment: dict[str, str]) -> NoReturn:
    """Be a worker: play task after task, until the master closes the channel or dies."""
    try:
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        os.set_inheritable(channel.fileno(), False)
        os.environ.update(environment)
        threading.Thread(target=leave_with_master, args=(channel.fileno(), _leave), daemon=True).start()
        try:
            clock.progress.say_called = channel.send
            with watched(channel, spec):
                player: Player = named(spec.player)(spec.context)
            clock.progress.tell = partial(channel.send, None)
        except (DeviceMemoryError, DeviceLostError) as error:
            channel.send(GivesUp(-1, str(error), lost=isinstance(error, DeviceLostError)))
            os._exit(0)
        except BaseException as error:  # also what a plug-in raises to end a program
            channel.send(Failed.of(error))
            os._exit(1)
        spent = 0.0  # seconds of processor time that answers have reported
        most = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * UNIT
        channel.send(Ready(player.fingerprint, player.device, os.getpid(), most // 1_000_000))
        while True:
            tickets, tasks = zip(channel.receive(), *(channel.arrived()[0] if player.together else ()), strict=True)
            began, answers = time.perf_counter(), list[tuple[object, Packed | None]]()
            try:
                results = player.together(tasks) if player.together else [player.play(tasks[0])]
                seconds, before, spent = time.perf_counter() - began, spent, time.process_time()
                share = seconds / len(tasks), (spent - before) / len(tasks), tuple(player.notices)
                for ticket, result in zip(tickets, results, strict=True):
                    answers.append(((ticket, *share), Packed.of(result)))
                player.notices = ()
            except MemoryError:
                os._exit(OUT_OF_MEMORY)
            except (DeviceMemoryError, DeviceLostError) as error:
                channel.send(GivesUp(tickets[0], str(error), lost=isinstance(error, DeviceLostError)))
                os._exit(0)
            except BaseException as error:
                answers = [(Failed.of(error, ticket), None) for ticket in tickets]
            sys.stdout.flush()  # what a plug-in printed: a worker may be killed at any time
            for answer in answers:
                channel.send(*answer)
    except (EOFError, OSError):
        OPEN.here.close()
        os._exit(0)
    except BaseException:
        traceback.print_exc()
    finally:
        os._exit(1)


def leave_with_master(descriptor: int, leave: Callable[[], object]) -> None:
    """End this process by `leave`, whatever it is doing, as soon as the master's end of the socket is gone."""
    watch = select.poll()
    watch.register(descriptor, 0)  # a hang-up is always reported
    watch.poll()
    leave()
