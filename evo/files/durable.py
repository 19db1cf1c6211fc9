"""Read and write files: atomically and durably, never through a link, and only where a user may mean it.

Also lines of JSON, each with a checksum as its last key: appended whole, and read one at a time. And commits that
become durable in time though nothing follows: their loop waits for its caller, or for a generation.
"""

from __future__ import annotations

import errno
import json
import math
import os
import re
import shutil
import signal
import stat
import tempfile
import threading
import time
import warnings
import weakref
import zlib
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, BinaryIO

from evo.errors import ConfigurationError, DataError, EvoError, ResourceError
from evo.toml import MOST_DIGITS

TEMPORARY = ".tmp"
LACKING = (errno.EMFILE, errno.ENFILE, errno.ENOMEM, errno.EACCES, errno.EPERM)  # which say nothing about a file
LONGEST = 1 << 24  # bytes of a line that is written, and that is read whole
PIECE = 1 << 16  # bytes in which the rest of a longer one is read

_CHECKSUM = re.compile(rb',"crc":"([0-9a-f]{8})"\}')
_CHECKSUM_LENGTH = len(b',"crc":"00000000"}')


@contextmanager
def resources(action: str, path: Path) -> Iterator[None]:
    """Turn an OSError or MemoryError into a ResourceError with action and path; too long a name: ConfigurationError."""
    try:
        yield
    except OSError as error:
        kind = ConfigurationError if error.errno == errno.ENAMETOOLONG else ResourceError
        raise kind(f"cannot {action} {path}: {error.strerror or error}") from error
    except MemoryError as error:
        raise ResourceError(f"cannot {action} {path}: out of memory") from error


def write_all(descriptor: int, data: bytes | memoryview) -> None:
    """Write all of `data`, also where the system writes a part of it per call."""
    rest = memoryview(data)
    while rest:
        rest = rest[os.write(descriptor, rest) :]


def replace_file(path: Path, data: bytes | memoryview | Iterable[bytes | memoryview], *, durable: bool = True) -> None:
    """Write a temporary file, `durable` with an fsync, and rename it, which `sync_directory` makes durable too."""
    temporary = path.with_name(path.name + TEMPORARY)
    try:
        if os.path.lexists(temporary):  # it may be another name of a file elsewhere
            temporary.unlink()
        descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW, 0o666)
        try:
            for piece in [data] if isinstance(data, bytes | memoryview) else data:
                write_all(descriptor, piece)
            if durable:
                os.fsync(descriptor)
        finally:
            os.close(descriptor)
        os.rename(temporary, path)
    except BaseException:
        with suppress(OSError):
            temporary.unlink(missing_ok=True)
        raise


def parted(path: Path) -> bool:
    """Give a file with other names, as in a copy by `cp -l`, its own content; return whether it had any."""
    status = os.lstat(path) if os.path.lexists(path) else None
    if status is None or not stat.S_ISREG(status.st_mode) or status.st_nlink == 1:
        return False
    replace_file(path, path.read_bytes())
    return True


def write_whole(file: Path, write: Callable[[Path], object]) -> None:
    """Have `write` write a file in a temporary folder, and move it to its place when it is complete.

    What was there stays where that fails. ResourceError: as `resources`.
    """
    with resources("write", file):
        place = _sibling_folder(file)
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # Keras's own, about NumPy's future
                write(place / file.name)
            (place / file.name).rename(file)
        finally:
            shutil.rmtree(place, ignore_errors=True)


def refuse_unwritable_whole(file: Path) -> None:
    """Raise as `resources` where `write_whole` could not begin to write this file."""
    with resources("write", file):
        _sibling_folder(file).rmdir()


def _sibling_folder(file: Path) -> Path:
    return Path(tempfile.mkdtemp(prefix=f".{file.name[:32]}.", dir=file.parent))


def sync_directory(path: Path) -> None:
    """Make creations, renames and removals in a directory durable, where its file system can do that."""
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    except OSError as error:
        if error.errno not in (errno.EINVAL, errno.EOPNOTSUPP, errno.ENOSYS):
            raise
    finally:
        os.close(descriptor)


def read_file(path: Path, *, most: int) -> bytes:
    """Return the bytes that a regular file has now. Raises DataError where it is missing, or has more than `most`."""
    with (
        open_regular(path, most=most) as descriptor,
        resources("read", path),
        os.fdopen(descriptor, "rb", closefd=False) as file,
    ):
        return file.read(os.fstat(descriptor).st_size)  # a buffer of that size is allocated


def read_at(descriptor: int, size: int, start: int) -> bytes:
    """Return the `size` bytes of a file from `start` on, or those up to its end; one call may read fewer."""
    data = b""
    while piece := os.pread(descriptor, size - len(data), start + len(data)):
        data += piece
    return data


@contextmanager
def open_regular(path: Path, *, most: int | None = None) -> Iterator[int]:
    """Open a regular file of at most `most` bytes, and yield its descriptor; DataError, ResourceError: it cannot be."""
    try:
        # Without O_NONBLOCK, opening a FIFO would block.
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOFOLLOW | os.O_CLOEXEC)
    except (FileNotFoundError, NotADirectoryError) as error:
        raise DataError(f"{path}: missing") from error
    except (OSError, ValueError) as error:
        if isinstance(error, OSError) and error.errno in LACKING:
            raise ResourceError(f"cannot open {path}: {error.strerror}") from error
        reason = error.strerror if isinstance(error, OSError) else error
        if isinstance(error, OSError) and error.errno == errno.ELOOP:
            reason = "it is a link; name the file itself"
        raise DataError(f"{path}: cannot be opened ({reason})") from error
    try:
        status = os.fstat(descriptor)
        if not stat.S_ISREG(status.st_mode):
            raise DataError(f"{path}: not a regular file")
        if most is not None and status.st_size > most:
            raise DataError(f"{path}: {status.st_size} bytes, expected at most {most}")
        yield descriptor
    finally:
        os.close(descriptor)


def destination(flag: str, name: str | Path, endings: Collection[str], why: str = "") -> Path:
    """Return the file that `flag` names; ConfigurationError: its ending or folder is wrong; ResourceError: no room."""
    path, named = Path(name), f"{flag} {str(name) or repr('')}"
    if path.suffix.lower() not in endings:
        raise ConfigurationError(f"{named}: the file name must end with {' or '.join(endings)}{why}")
    with resources("write", path):
        if not path.parent.is_dir() or (path.exists() and not path.is_file()):  # a pipe would wait for a reader
            raise ConfigurationError(f"{named}: no file can be written there; name one in a folder that exists")
    refuse_unwritable(path)
    return path


def refuse_unwritable(path: Path) -> None:
    """Raise as `resources` where no file can be made in the folder of this one, before the work for it begins."""
    temporary = path.with_name(path.name + TEMPORARY)
    with resources("write", path), suppress(FileExistsError):
        os.close(os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL))
        temporary.unlink()


def canonical_json(value: object) -> bytes:
    """Return canonical JSON: sorted keys, no spaces, UTF-8. Raises ValueError for NaN and infinities."""
    return json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False).encode()


def with_checksum(body: Mapping[str, object]) -> bytes:
    """Return canonical JSON with its CRC as the last key."""
    return checksummed(canonical_json(body))


def checksummed(text: bytes) -> bytes:
    """Return the JSON of an object that is not empty, with its CRC as the last key."""
    return text[:-1] + b',"crc":"%08x"}' % zlib.crc32(text)


def without_checksum(text: bytes) -> dict[str, Any]:
    """Return the object in a text with its checksum. Raises ValueError where it is incomplete or its CRC differs."""
    match = _CHECKSUM.fullmatch(text, max(len(text) - _CHECKSUM_LENGTH, 0))
    if match is None:
        raise ValueError("it is incomplete")
    body = text[:-_CHECKSUM_LENGTH] + b"}"
    if zlib.crc32(body) != int(match[1], 16):
        raise ValueError("its checksum is wrong")
    try:
        value = json.loads(body, parse_int=_whole)
    except (ValueError, RecursionError) as error:
        raise ValueError("it is not JSON") from error
    if not isinstance(value, dict):
        raise ValueError("it is not an object")
    return value


def _whole(text: str) -> int | float:
    """Return a whole number; as an infinite one where it is larger than any float, since nothing computes with it."""
    return int(text) if len(text) <= MOST_DIGITS else float(text)


def lines_of(path: Path) -> Iterator[tuple[int, bytes]]:
    """Yield as `lines_in` for a regular file; DataError where there is none, ResourceError where reading fails."""
    with open_regular(path) as descriptor, resources("read", path), os.fdopen(descriptor, "rb", closefd=False) as file:
        yield from lines_in(file)


def lines_in(file: BinaryIO) -> Iterator[tuple[int, bytes]]:
    """Yield the offset after each line, and the line; one of more than LONGEST bytes as an empty one.

    Such a line may be a hole of any size, which takes no space. It is not read.
    """
    while text := file.readline(LONGEST):
        rest = text
        while not rest.endswith(b"\n") and (rest := _behind_hole(file).readline(PIECE)):
            text = b"\n" if rest.endswith(b"\n") else b" "
        yield file.tell(), text


def _behind_hole(file: BinaryIO) -> BinaryIO:
    """Move to the next byte that is not of a hole, or to the end of the file, and return it."""
    with suppress(OSError):  # where there is no file, or none with holes
        descriptor, here = file.fileno(), file.tell()
        place = os.lseek(descriptor, 0, os.SEEK_CUR)  # ahead of the buffer
        try:
            there = os.lseek(descriptor, here, os.SEEK_DATA)
        except OSError as error:
            there = os.fstat(descriptor).st_size if error.errno == errno.ENXIO else here
        os.lseek(descriptor, place, os.SEEK_SET)
        file.seek(there)
    return file


def append(descriptor: int, data: bytes, *, durable: bool) -> None:
    """Append complete lines to an open file, all or nothing; ResourceError where one is longer than a reader takes."""
    if len(data) > LONGEST and max(map(len, data.splitlines())) > LONGEST:
        raise ResourceError(f"a line of more than {LONGEST} bytes could not be read back: use fewer arrays or options")
    size = os.fstat(descriptor).st_size
    try:
        write_all(descriptor, data)
        if durable:
            os.fsync(descriptor)
    except OSError:
        with suppress(OSError):
            os.ftruncate(descriptor, size)
        raise


_stores = weakref.WeakSet[Any]()  # that this process writes, each of them a `Store`


class Deadline:
    """A thread that flushes a `Store` before anything in it is pending for too long; it starts when first needed."""

    def __init__(self, store: Any) -> None:
        self.since = math.inf  # monotonic time of the oldest pending commit
        self._store, self._closed = weakref.ref(store), threading.Event()
        self._thread: threading.Thread | None = None
        _stores.add(store)

    def start(self, now: float, seconds: float) -> None:
        """Make what is pending from `now` on durable within `seconds`."""
        self.since = min(self.since, now)
        if self._thread is None and seconds > 0:
            self._thread = threading.Thread(target=self._wait, args=[seconds], name="store", daemon=True)
            self._thread.start()

    def close(self) -> None:
        """Let the thread end."""
        self._closed.set()

    def _wait(self, seconds: float) -> None:
        signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())  # the main thread may hold them back
        left = seconds  # what is committed while it waits is due later
        while not self._closed.wait(left):
            left = min(self.since + seconds - time.monotonic(), seconds)
            if left <= 0:
                left, store = seconds, self._store()
                try:
                    if store is not None:
                        store.flush()
                except (EvoError, RuntimeError):  # the store raises it again; RuntimeError: it is closed
                    return
                del store
            if self._store() is None:
                return


def flush_here(path: Path) -> None:
    """Make durable what this process has committed in a run directory, or in that of a champion's file."""
    for store in list(_stores):
        with suppress(EvoError, RuntimeError, OSError):  # whoever trains is told
            if store.is_ours and os.path.samefile(store.directory, path if path.is_dir() else path.parent):
                store.flush()
