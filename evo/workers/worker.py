"""The processes behind an evaluator: a fork_server that has everything imported, and the workers that it forks.

The fork_server is a fresh interpreter, so neither the master's threads nor its main module reach a worker. It imports
once what every worker needs and then only waits, so a worker is born in milliseconds, shares that memory, and is
always reaped or killed by its real parent, which is never busy. Both sides of every socket speak `Channel`. Workers
that are spawned are fresh interpreters, too: slower, and with their environment from their first instruction on.
"""

from __future__ import annotations

import errno
import os
import pickle
import select
import signal
import socket
import struct
import sys
import threading
import time
import traceback
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from importlib import import_module
from typing import Any, NamedTuple, NoReturn

from evo.errors import DeviceMemoryError

HEADER = struct.Struct("<QQ")  # bytes of an object, and of what stays packed behind it
PART = 1 << 18  # bytes that are read at once
START, END = b"+", b"-"
MASTERS_SIGNALS = (signal.SIGINT, signal.SIGHUP, signal.SIGTERM)  # a terminal sends them to us too
BORN = "import sys; sys.path[:] = sys.argv[2:]; from evo.workers.worker import born; born(int(sys.argv[1]))"
OUT_OF_MEMORY = errno.ENOMEM  # exit status of a worker that got a MemoryError


@dataclass(frozen=True, eq=False)
class Packed:
    """An object as the bytes that cross a socket: made beforehand, or to be made an object again later."""

    body: bytes = field(repr=False)

    @classmethod
    def of(cls, message: object) -> Packed:
        """Return an object as bytes."""
        return cls(pickle.dumps(message, pickle.HIGHEST_PROTOCOL))

    def unpacked(self) -> Any:
        """Return the object; only for what a process of ours has packed."""
        return pickle.loads(self.body)


class Channel:
    """Whole Python objects over one private socket, each behind its length, and what is to stay packed behind it."""

    def __init__(self, connection: socket.socket, timeout: float | None = None) -> None:
        self.connection = connection
        self._timeout = timeout  # seconds for a `send` or a `receive`
        self._bytes = bytearray()  # that have arrived and were not asked for yet
        self.received = 0  # bytes

    @property
    def room(self) -> int:
        """The bytes that the system keeps for the other side until it reads."""
        return self.connection.getsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF)

    def fileno(self) -> int:
        """Return the file descriptor, for selectors."""
        return self.connection.fileno()

    def close(self) -> None:
        """Close this side; the other side sees it at once."""
        self.connection.close()

    def send(self, message: object, last: Packed | None = None, most: int | None = None) -> int:
        """Send one object and return its bytes; of more than `most` bytes none is sent, which is 0.

        The other side is given a tuple with `last` as its last item, still packed. OSError where the other side is
        gone, TimeoutError where it does not read.
        """
        body = (message if isinstance(message, Packed) else Packed.of(message)).body
        rest = last.body if last else b""
        if most is not None and len(body) + len(rest) > most:
            return 0
        self.connection.settimeout(self._timeout)
        self.connection.sendall(b"".join((HEADER.pack(len(body), len(rest)), body, rest)))
        return HEADER.size + len(body) + len(rest)

    def receive(self) -> Any:
        """Wait for one object; EOFError where the other side is gone, TimeoutError where it says nothing.

        Nothing is read that stands behind it.
        """
        self.connection.settimeout(self._timeout)
        while missing := self._missing():
            if not self._take(self.connection.recv(min(missing, PART))):
                raise EOFError
        return self._next()

    def arrived(self) -> tuple[list[Any], bool]:
        """Return the objects that are here in full, without waiting for more, and whether the other side is gone."""
        gone, filled = False, True
        self.connection.settimeout(0)
        try:
            while filled:  # a part that is not full was the last; that nobody is there any more is seen the next time
                taken = self._take(self.connection.recv(PART))
                gone, filled = not taken, taken == PART
        except BlockingIOError:
            pass
        except OSError:
            gone = True
        messages = []
        while not self._missing():
            messages.append(self._next())
        return messages, gone

    def _take(self, part: bytes) -> int:
        self._bytes += part
        self.received += len(part)
        return len(part)

    def _missing(self) -> int:
        """Return how many bytes must arrive at the least before an object is here in full."""
        if len(self._bytes) < HEADER.size:
            return HEADER.size - len(self._bytes)
        body, rest = HEADER.unpack_from(self._bytes)
        return max(HEADER.size + int(body) + int(rest) - len(self._bytes), 0)

    def _next(self) -> Any:
        """Take out the next object, which is here in full."""
        body, rest = HEADER.unpack_from(self._bytes)
        middle, end = HEADER.size + body, HEADER.size + body + rest
        with memoryview(self._bytes) as view:
            message = pickle.loads(view[HEADER.size : middle])
            if rest:
                message = (*message, Packed(bytes(view[middle:end])))
        del self._bytes[:end]
        return message


@dataclass(frozen=True)
class WorkerSpec:
    """What a fork_server is told once: how its workers come by a player, all of it by name."""

    player: str  # "module:function", called in each worker with `context`; returns something with play(task)
    context: object
    prepare: str = ""  # "module:function", called once in the fork_server with `context`, before the first fork
    start: str = "forkserver"  # or "spawn": every worker is a fresh interpreter


@dataclass(frozen=True)
class Ready:
    """A worker's first words."""

    fingerprint: str  # of its arithmetic: results of workers that differ here may differ
    device: str = ""  # what it computes on, where it was pinned to something
    pid: int = 0
    megabytes: int = 0  # resident memory


class Played(NamedTuple):
    """A result, under the ticket that its task came with.

    It crosses the socket as a plain tuple: to look up classes takes longer than the rest, in a process that sleeps
    between results.
    """

    ticket: int
    seconds: float
    notes: tuple[str, ...]  # what a user should know of
    result: Packed


@dataclass(frozen=True)
class GivesUp:
    """A worker's last words: its device cannot hold what it is asked for, though another's may."""

    ticket: int  # -1: while the player was being made
    why: str


@dataclass(frozen=True)
class Failed:
    """An exception in Python code, which is our bug or the user's mistake and no reason to play again."""

    ticket: int  # -1: while the player was being made
    text: str  # the traceback
    pickled: bytes = field(repr=False)  # empty where it cannot be pickled

    @classmethod
    def of(cls, error: BaseException, ticket: int = -1) -> Failed:
        """Describe the exception that is being handled."""
        text = "".join(traceback.format_exception(error))
        try:
            pickled = pickle.dumps(error)
            pickle.loads(pickled)  # some exceptions pickle well and then cannot be made again
        except Exception:
            pickled = b""
        return cls(ticket, text, pickled)

    def error(self) -> BaseException:
        """Return the exception with the worker's traceback as its cause."""
        error: BaseException = RuntimeError(self.text.strip().splitlines()[-1])
        if self.pickled:
            error = pickle.loads(self.pickled)
        error.__cause__ = WorkerTraceback(self.text)
        return error


@dataclass(frozen=True)
class Ending:
    """How a worker ended."""

    status: int  # an exit status, or minus a signal
    megabytes: int  # the most memory that it had

    def __str__(self) -> str:
        if self.status == OUT_OF_MEMORY:
            return f"ran out of memory at {self.megabytes} MB"
        if self.status == -signal.SIGKILL:
            return f"was killed by SIGKILL at {self.megabytes} MB, as the system does when memory is short"
        if self.status < 0:
            return f"was killed by {signal.Signals(-self.status).name}"
        return f"exited with status {self.status}"


class WorkerTraceback(Exception):
    """Carries the traceback of another process, to be printed above our own."""

    def __str__(self) -> str:
        return f"\n{self.args[0]}"


def named(name: str) -> Callable[..., Any]:
    """Return the function of a "module:function" name."""
    module, _, function = name.partition(":")
    found: Callable[..., Any] = getattr(import_module(module), function)
    return found


def serve_forks(descriptor: int) -> NoReturn:
    """Be the fork_server, on the socket with this file descriptor, until the master closes it or dies."""
    for number in MASTERS_SIGNALS:
        signal.signal(number, signal.SIG_IGN)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, MASTERS_SIGNALS)  # the master has blocked them until now
    control = Channel(socket.socket(fileno=descriptor))
    children: set[int] = set()
    try:
        spec: WorkerSpec = control.receive()
        try:
            if spec.prepare and spec.start != "spawn":
                named(spec.prepare)(spec.context)
            control.send(None)
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
        for child in children:
            _end(child)
        os._exit(0)


def _spawn(descriptor: int, spec: WorkerSpec, environment: dict[str, str]) -> int:
    """Start a fresh interpreter as a worker on the socket with this file descriptor; return its process id."""
    reading, writing = os.pipe()
    os.set_inheritable(descriptor, True)
    command = [sys.executable, "-c", BORN, str(descriptor), *sys.path]
    try:
        standard_input = [(os.POSIX_SPAWN_DUP2, reading, 0)]
        child = os.posix_spawn(sys.executable, command, {**os.environ, **environment}, file_actions=standard_input)
    finally:
        os.close(reading)
        with suppress(BrokenPipeError), open(writing, "wb") as pipe:
            pickle.dump(spec, pipe)
    return child


def born(descriptor: int) -> NoReturn:
    """Be a worker that was spawned, on the socket with this file descriptor."""
    spec = pickle.load(sys.stdin.buffer)
    work(Channel(socket.socket(fileno=descriptor)), spec, {})


def _end(child: int) -> Ending:
    """Kill a child, unless it is dead already, and return how it ended."""
    os.kill(child, signal.SIGKILL)
    _, status, usage = os.wait4(child, 0)
    unit = 1 if sys.platform == "darwin" else 1024
    return Ending(os.waitstatus_to_exitcode(status), usage.ru_maxrss * unit // 1_000_000)


def work(channel: Channel, spec: WorkerSpec, environment: dict[str, str]) -> NoReturn:
    """Be a worker: play what comes, until the master closes the channel or dies."""
    try:
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        os.set_inheritable(channel.fileno(), False)
        os.environ.update(environment)
        threading.Thread(target=_leave_with_master, args=(channel.fileno(),), daemon=True).start()
        try:
            player = named(spec.player)(spec.context)
        except DeviceMemoryError as error:
            channel.send(GivesUp(-1, str(error)))
            os._exit(0)
        except Exception as error:
            channel.send(Failed.of(error))
            os._exit(1)
        told = getattr(player, "fingerprint", ""), getattr(player, "device", "")
        channel.send(Ready(*told, os.getpid(), resident_megabytes()))
        notes: list[str] = getattr(player, "notes", [])
        while True:
            ticket, task = channel.receive()
            began = time.perf_counter()
            answer: object
            result = None
            try:
                played = player.play(task)
                answer = ticket, time.perf_counter() - began, tuple(notes)
                result = Packed.of(played)
                notes.clear()
            except MemoryError:
                os._exit(OUT_OF_MEMORY)
            except DeviceMemoryError as error:
                channel.send(GivesUp(ticket, str(error)))
                os._exit(0)
            except Exception as error:
                answer = Failed.of(error, ticket)
            sys.stdout.flush()  # what a plug-in printed: a worker may be killed at any time
            channel.send(answer, result)
    except (EOFError, OSError):
        os._exit(0)
    except BaseException:
        traceback.print_exc()
    finally:
        os._exit(1)


def resident_megabytes() -> int:
    """Return how much memory this process has now, or where the system does not say, the most that it had."""
    try:
        with open("/proc/self/statm", "rb") as file:
            return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE") // 1_000_000
    except OSError:
        import resource

        return (
            resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 1024) // 1_000_000
        )


def _leave_with_master(descriptor: int) -> None:
    """End this process, whatever it is doing, as soon as the master's end of the socket is gone."""
    watch = select.poll()
    watch.register(descriptor, 0)  # a hang-up is always reported
    watch.poll()
    os._exit(0)
