"""What master, fork server and workers say to each other, and the private socket that carries it."""

from __future__ import annotations

import errno
import pickle
import signal
import socket
import struct
import traceback
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from evo.errors import ConfigurationError
from evo.plugins import mistakes

HEADER = struct.Struct("<QQ")  # bytes of an object, and of what stays packed behind it
PART = 1 << 18  # bytes that are read at once
OUT_OF_MEMORY = errno.ENOMEM  # exit status of a worker that got a MemoryError


@dataclass(frozen=True, eq=False)
class Packed:
    """An object as the bytes that cross a socket."""

    body: bytes = field(repr=False)

    @classmethod
    def of(cls, message: object) -> Packed:
        """Return an object as bytes."""
        return cls(pickle.dumps(message, pickle.HIGHEST_PROTOCOL))

    def unpacked(self) -> Any:
        """Return the object; only for what a process of ours has packed."""
        return pickle.loads(self.body)

    @property
    def size(self) -> int:
        """The bytes that it takes on a socket."""
        return HEADER.size + len(self.body)


class Channel:
    """Whole Python objects over one private socket, each behind its length, and what is to stay packed behind it."""

    def __init__(self, connection: socket.socket, timeout: float | None = None) -> None:
        self.connection = connection
        self._timeout = timeout  # seconds for a `send` or a `receive`
        self._bytes = bytearray()  # that have arrived and were not asked for yet
        self.bytes_received = 0

    def fileno(self) -> int:
        """Return the file descriptor, for selectors."""
        return self.connection.fileno()

    def close(self) -> None:
        """Close this side; the other side sees it at once."""
        self.connection.close()

    def send(self, message: object, last: Packed | None = None, most: int | None = None) -> int:
        """Send one object and return its bytes; of more than `most` bytes none is sent, which is 0.

        The other side receives a tuple with `last` as its last item, still packed. OSError where the other side is
        gone, TimeoutError where it does not read.
        """
        body = (message if isinstance(message, Packed) else Packed.of(message)).body
        rest = last.body if last else b""
        if most is not None and len(body) + len(rest) > most:
            return 0
        self.connection.settimeout(self._timeout)
        parts = [HEADER.pack(len(body), len(rest)), body, rest]
        for part in parts if len(rest) > PART else [b"".join(parts)]:  # what is large is not copied
            self.connection.sendall(part)
        return HEADER.size + len(body) + len(rest)

    def receive(self) -> Any:
        """Wait for one object; EOFError where the other side is gone, TimeoutError where it sends nothing.

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
        self.bytes_received += len(part)
        return len(part)

    def _missing(self) -> int:
        """Return how many bytes at least must arrive before an object is here in full."""
        if len(self._bytes) < HEADER.size:
            return HEADER.size - len(self._bytes)
        body, rest = HEADER.unpack_from(self._bytes)
        return max(HEADER.size + int(body) + int(rest) - len(self._bytes), 0)

    def _next(self) -> Any:
        """Take out the next object, which is here in full."""
        body, rest = HEADER.unpack_from(self._bytes)
        middle, end = HEADER.size + body, HEADER.size + body + rest
        if rest and end == len(self._bytes):  # nothing stands behind it, so what is large is not copied
            whole, self._bytes = memoryview(self._bytes), bytearray()
            last = Packed(whole[middle:])  # type: ignore[arg-type]  # a view, which is read in the same way
            return (*pickle.loads(whole[HEADER.size : middle]), last)
        with memoryview(self._bytes) as view:
            message = pickle.loads(view[HEADER.size : middle])
            if rest:
                message = (*message, Packed(bytes(view[middle:end])))
        del self._bytes[:end]
        return message


@dataclass(frozen=True)
class WorkerSpec:
    """What a worker needs to be started, by name; a fork server receives it once."""

    player: str  # "module:function", called in each worker with `context`; returns a `Player`
    context: object
    prepare: str = ""  # "module:function", called once in the fork server with `context`, before the first fork
    start: str = "forkserver"  # or "spawn": every worker is a fresh interpreter
    deadline: float = 30.0  # seconds without progress after which a process is taken for hung; 0: it may start for ever


@dataclass(frozen=True)
class Ready:
    """A worker's first message."""

    fingerprint: str  # of its arithmetic: results of workers that differ here may differ
    device: str = ""  # what it computes on, where it was pinned to something
    pid: int = 0
    megabytes: int = 0  # the most memory that it had until then


class Answer(NamedTuple):
    """A result, under the ticket that its task came with.

    It crosses the socket as a plain tuple: to look up classes takes longer than the rest, in a process that sleeps
    between results.
    """

    ticket: int
    seconds: float
    cpu_seconds: float  # of processor time, since the worker's last answer or its start
    notices: tuple[str, ...]  # what a user should know
    result: Packed


@dataclass(frozen=True)
class GivesUp:
    """A worker's last message: its device is too small for the task, or was lost, though another's may not be."""

    ticket: int  # -1: while the player was being made
    why: str
    who: str = ""  # the worker, its process and node, on a cluster
    lost: bool = False  # the device has failed; a new process may use it again


@dataclass(frozen=True)
class Failed:
    """An exception in Python code, which is our bug or the user's mistake and no reason to play again."""

    ticket: int  # -1: while the player was being made
    text: str  # the traceback
    pickled: bytes = field(repr=False)  # empty where it cannot be pickled

    @classmethod
    def of(cls, error: BaseException, ticket: int = -1) -> Failed:
        """Describe the exception that is being handled; one that would end a program becomes a mistake of a plug-in."""
        error = mistakes.raised(error) or error
        if not isinstance(error, Exception):
            error = ConfigurationError(f"a library {mistakes.exception_text(error)}{mistakes.place_of(error)}")
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


class WorkerTraceback(Exception):
    """Carries the traceback of another process, to be printed above our own."""

    def __str__(self) -> str:
        return f"\n{self.args[0]}"


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
            number = signal.Signals(-self.status)
            why = ", as code is that reads or writes outside of its arrays" if number == signal.SIGSEGV else ""
            return f"was killed by {number.name}{why}"
        return f"exited with status {self.status}"
