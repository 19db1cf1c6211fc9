"""Read an untrusted champion in a sandbox: a child process with limits on memory, time and open files.

The HDF5 library is a large body of C code, with vulnerabilities in its history. So an untrusted file is parsed by a
short-lived child, which receives an open descriptor and returns plain bytes over a pipe. The parent trusts the child no
more than the file: it checks the description, and the weights against their SHA-256.

A clean process, the opener, has imported what children need and forks one for each file. It reads no file itself.
"""

from __future__ import annotations

import os
import resource
import select
import signal
import socket
import struct
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import closing, contextmanager, nullcontext, suppress
from contextvars import ContextVar
from importlib import import_module
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from evo.errors import ConfigurationError, DataError, ResourceError
from evo.files.arrays import Layout, arrays_below, decode, entries
from evo.files.durable import open_regular, resources, write_all
from evo.files.layout import LARGEST_CHAMPION
from evo.networks.onnx_file import BEGINNING
from evo.process import end_with_parent
from evo.store.champion import (
    ABOUT_LARGEST,
    Champion,
    champion_file,
    checked_champion,
    facts_of,
    network_layers,
    unpack,
)

WALL_SECONDS = 60.0  # time limit, also on a busy machine
CPU_SECONDS = 10  # processor time limit; one second more per 64 MiB
MEMORY = 128 << 20  # bytes, added to the libraries and four times the size of the file
LIBRARIES = 512 << 20  # bytes of address space that Python, NumPy and HDF5 take, at most
PROGRAM = "import sys; sys.path[:] = sys.argv[1:]; from evo.store.sandbox import serve; serve()"
ENVIRONMENT = {
    "HDF5_PLUGIN_PRELOAD": "::",  # load no filter plugins
    "OPENBLAS_NUM_THREADS": "1",
    "OMP_NUM_THREADS": "1",
    "PYTHONDONTWRITEBYTECODE": "1",
}
SIGNATURE, ZIP = b"\x89HDF\r\n\x1a\n", b"PK\x03\x04"  # how HDF5 files and .keras archives begin
CHAMPIONS, MODELS = b"c", b"m"  # before the name of a file: what it may be
SIZES, CODE = struct.Struct("<QQ"), struct.Struct("<i")
GOOD = CODE.pack(0), CODE.pack(3)
LONGEST_PATH = 1 << 16  # bytes
OVERHEAD = SIZES.size + ABOUT_LARGEST + 4096  # bytes of an answer, at most, without the weights


def read_champion(path: Path, *, models: bool = False) -> Champion:
    """Return the champion of an untrusted run directory or champion.h5.

    `models`: or the network of a .keras archive or an ONNX file, or the arrays of a .weights.h5 file, by their paths.
    Nothing in the file is executed, and no link in it is followed. Raises DataError where the file is invalid,
    ResourceError where no process can be started.
    """
    file = champion_file(path)
    if models:
        from evo.networks.model_files import refuse_graph

        try:
            refuse_graph(path)
        except ConfigurationError as error:
            raise DataError(f"{path}: {error}") from error
    with open_regular(file, most=LARGEST_CHAMPION) as descriptor:
        with resources("read", file):
            head = os.pread(descriptor, 512, 0)
        if not head.startswith((SIGNATURE, ZIP, BEGINNING) if models else SIGNATURE):
            raise DataError(
                f"{file}: not a readable HDF5 file of arrays; it seems to be {guess_kind(head)}; "
                "give a run directory or a champion.h5"
            )
        kept = _kept.get()
        with nullcontext(kept) if kept and kept.parent == os.getpid() else closing(Opener()) as opener:
            answer, code = opener.ask(descriptor, str(file), os.fstat(descriptor).st_size, models)
    if code == 3:
        raise DataError(answer.decode(errors="replace"))
    if code == 4:
        raise ResourceError(f"cannot start a process to read {file}")
    if code == 5:
        raise DataError(f"{file}: reading it takes more memory than any champion of its size needs")
    if code or len(answer) < SIZES.size:
        how = f"signal {signal.Signals(-code).name}" if code < 0 else f"exit {code}"
        raise DataError(f"{file}: the process that read it crashed ({how}); the file is damaged or hostile")
    length, stored = SIZES.unpack_from(answer)
    if len(answer) != SIZES.size + length + stored or stored % 4:
        raise DataError(f"{file}: the process that read it gave an incomplete answer")
    facts = answer[SIZES.size : SIZES.size + length]
    return checked_champion(facts, np.frombuffer(answer, "<f4", offset=SIZES.size + length).copy(), str(file))


def guess_kind(head: bytes) -> str:
    """Guess what a file that is not HDF5 is, by its first bytes."""
    if head.startswith(ZIP):
        first = head[30 : 30 + int.from_bytes(head[26:28], "little")].decode(errors="replace")
        if first.endswith(".npy"):
            return "an .npz archive of NumPy"
        if first in ("metadata.json", "config.json", "model.weights.h5"):
            return "a .keras archive"
        if first.partition("/")[2] in ("data.pkl", "version", "byteorder", ".format_version"):
            return "a .pt file of PyTorch, which is a pickle"
        return "a zip archive"
    if head[:1] == b"\x80" and 2 <= (head[1:2] or b"\0")[0] <= 5:
        return "a pickle (or an old .pt or .joblib file)"
    if not head:
        return "empty"
    kinds = {b"\x93NUMPY": "an .npy array", b"\x1f\x8b": "compressed by gzip", b"{": "JSON or text", b"\0": "zeros"}
    return next((kind for start, kind in kinds.items() if head.startswith(start)), "something else")


def child(source: str, models: bool) -> None:
    """Read the champion on standard input and write it to standard output as plain bytes; exit 3 with a message."""
    try:
        size = os.fstat(0).st_size
        _end_with_parent()
        if models:  # takes as long to import as all else
            import_module("evo.networks.model_files")
        _limit(size)
        with open(0, "rb", closefd=False) as file:
            data = file.read(size)
        facts, weights = (unpack_model if models else unpack)(data, source)
        write_all(1, SIZES.pack(len(facts), weights.nbytes))
        write_all(1, facts)
        write_all(1, weights.data.cast("B"))
        code = 0
    except DataError as error:
        write_all(1, str(error).encode(errors="backslashreplace")[:4096])
        code = 3
    except MemoryError:
        code = 5
    os._exit(code)


def unpack_model(data: bytes, source: str) -> tuple[bytes, NDArray[np.float32]]:
    """Return the facts, as text, and the flat weights [P] of a champion or a model; DataError where it is invalid."""
    from evo.networks.onnx_import import layers_of_onnx

    try:
        if data.startswith(ZIP):
            return unpack_keras(data, source)
        if data.startswith(BEGINNING):
            found = layers_of_onnx(data)
            weights = found.weights().astype("<f4", copy=False)
            network = found.network()
            return facts_of(weights, network_layers(network), {"policy": network.options.model_dump()}), weights
        present = entries(data, source)
        if "about" in present or not {"layers", "vars"} <= present:
            return unpack(data, source)
        arrays = decode(data, arrays_below(data, "layers", source), source, others=True)
        weights = np.concatenate([array.ravel() for array in arrays.values()]).astype("<f4", copy=False)
        return facts_of(weights, [(name, array.shape) for name, array in arrays.items()], {}), weights
    except (ConfigurationError, ValueError) as error:
        raise DataError(f"{source}: {error}") from error


def unpack_keras(data: bytes, source: str) -> tuple[bytes, NDArray[np.float32]]:
    """Return the facts, as text, and the flat weights [P] of a .keras archive; raises also what reading layers does."""
    from evo.networks.keras_import import WEIGHTS, layers_in, member

    found = layers_in(data)
    network = found.network()
    layers = network_layers(network)
    places = [(path, fill, shape) for (path, fill), (_, shape) in zip(found.arrays, layers, strict=True)]
    expected = {path: Layout("<f4", shape) for path, _, shape in places if path}
    arrays = decode(member(data, WEIGHTS, LARGEST_CHAMPION), expected, source, others=True)
    parts = [arrays[path].ravel() if path else np.full(shape, fill, np.float32).ravel() for path, fill, shape in places]
    weights = np.concatenate(parts).astype("<f4", copy=False)
    return facts_of(weights, layers, {"policy": network.options.model_dump()}), weights


def _end_with_parent() -> None:
    """Have the system end this process after WALL_SECONDS and, on Linux, as soon as its parent is gone.

    Neither needs this process to run any Python code, which libhdf5 may not let it do for a minute.
    """
    signal.signal(signal.SIGALRM, signal.SIG_DFL)
    signal.setitimer(signal.ITIMER_REAL, WALL_SECONDS)
    end_with_parent()
    reader = select.poll()
    reader.register(1, 0)  # an error is always reported
    if reader.poll(0):  # the parent was gone before
        os._exit(1)


def _limit(size: int) -> None:
    """Limit the resources of this process, after all imports."""
    try:
        with open("/proc/self/statm", "rb") as file:
            present = int(file.read().split()[0]) * os.sysconf("SC_PAGE_SIZE")
    except OSError:  # the system does not say
        present = LIBRARIES
    for what, most in (
        (resource.RLIMIT_AS, present + MEMORY + 4 * size),
        (resource.RLIMIT_CPU, CPU_SECONDS + (size >> 26)),
        (resource.RLIMIT_CORE, 0),
        (resource.RLIMIT_FSIZE, 0),
        (resource.RLIMIT_NPROC, 0),
        (resource.RLIMIT_NOFILE, 0),  # no further file can be opened
    ):
        allowed = resource.getrlimit(what)[1]  # by a limit on the parent
        most = most if allowed == resource.RLIM_INFINITY else min(most, allowed)
        resource.setrlimit(what, (most, most))


def serve() -> None:
    """Fork a child for each file that comes over standard input, a socket; kill it and end with the other side."""
    asking = socket.socket(fileno=0)
    woken, wake = os.pipe()
    os.set_blocking(wake, False)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # whoever asks decides
    signal.signal(signal.SIGCHLD, lambda *_: None)
    signal.set_wakeup_fd(wake, warn_on_full_buffer=False)
    events = select.poll()
    events.register(asking, select.POLLIN)
    events.register(woken, select.POLLIN)
    while True:
        source, descriptors, _, _ = socket.recv_fds(asking, LONGEST_PATH, 2)
        if not source:
            os._exit(0)
        try:
            reading = os.fork()
        except OSError:
            os._exit(4)
        if not reading:
            try:
                for place, descriptor in enumerate(descriptors):
                    os.dup2(descriptor, place)
                os.closerange(3, max(wake, *descriptors) + 1)
                child(os.fsdecode(source[1:]), models=source[:1] == MODELS)
            finally:
                os._exit(1)
        for descriptor in descriptors:
            os.close(descriptor)
        while not (ended := os.waitpid(reading, os.WNOHANG))[0]:
            if asking.fileno() in dict(events.poll()):  # nobody waits any more
                os.kill(reading, signal.SIGKILL)
            else:
                os.read(woken, 4096)
        with suppress(ConnectionError):
            asking.sendall(CODE.pack(os.waitstatus_to_exitcode(ended[1])))


class Opener:
    """A clean process that starts with the first file and forks a child for each; its parent ends it."""

    _process: subprocess.Popen[bytes] | None = None

    def __init__(self) -> None:
        self.parent = os.getpid()

    def ask(self, descriptor: int, source: str, size: int, models: bool) -> tuple[bytes, int]:
        """Return the output and the exit code of a child that reads a file; it is killed after WALL_SECONDS."""
        process, code = self._process or self._start(source), b""
        named = (MODELS if models else CHAMPIONS) + os.fsencode(source)
        answers, theirs = os.pipe()
        timer = threading.Timer(WALL_SECONDS, self._socket.shutdown, [socket.SHUT_WR])
        timer.start()
        try:
            with open(answers, "rb") as pipe:
                try:
                    socket.send_fds(self._socket, [named], [descriptor, theirs])
                finally:
                    os.close(theirs)
                answer = pipe.read(size + OVERHEAD)
            code = self._socket.recv(CODE.size)
        except ConnectionError:  # it has ended
            answer = b""
        finally:
            timer.cancel()
            if code not in GOOD:  # whatever has happened there: the next file has another one
                self.close()
        return answer, CODE.unpack(code)[0] if code else process.returncode

    def close(self) -> None:
        """Have the process end, and the child that reads."""
        process, self._process = self._process, None
        if process is not None:
            self._socket.close()
            process.wait()

    def _start(self, source: str) -> subprocess.Popen[bytes]:
        self._socket, theirs = socket.socketpair()
        try:
            with theirs:
                self._process = subprocess.Popen(
                    [sys.executable, "-c", PROGRAM, *sys.path],
                    stdin=theirs.fileno(),
                    stdout=subprocess.DEVNULL,
                    stderr=subprocess.DEVNULL,
                    env={**os.environ, **ENVIRONMENT},
                )
        except OSError as error:
            self._socket.close()
            raise ResourceError(f"cannot start a process to read {source}: {error}") from error
        return self._process


_kept: ContextVar[Opener | None] = ContextVar("_kept", default=None)


@contextmanager
def reading_several() -> Iterator[None]:
    """Keep one opener for all champions that this thread reads: each but the first takes a tenth of the time."""
    if _kept.get() is not None:
        yield
        return
    with closing(Opener()) as opener:
        token = _kept.set(opener)
        try:
            yield
        finally:
            _kept.reset(token)
