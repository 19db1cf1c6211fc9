"""The lock of a directory, held by its one master: a flock, which the system releases when the master dies."""

from __future__ import annotations

import fcntl
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from evo.errors import LockedError
from evo.files.durable import resources

LOCK = "lock"
OF_SEVERAL = ".lock"  # of a folder of runs, where `FOLDER/*` names the runs alone


def acquire(directory: Path, name: str = LOCK) -> int:
    """Lock the directory and return the descriptor that holds the lock.

    Raises LockedError, naming the process that holds it. HDF5's own file locks, which many network file systems do not
    support, are not used.
    """
    path = directory / name
    with resources("lock", directory):
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o666)
    try:
        with resources("lock", directory):
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError as error:
                holder = _holder(descriptor)
                name = f"process {holder}" if holder else "another process"
                raise LockedError(f"{directory} is in use by {name}; wait for it to end, or stop it") from error
            os.ftruncate(descriptor, 0)
            os.pwrite(descriptor, f"{os.getpid()}\n".encode(), 0)
    except BaseException:
        os.close(descriptor)
        raise
    return descriptor


def _holder(descriptor: int) -> int:
    """Return the process id of the lock's holder, which it writes just after locking; 0 if it does not."""
    for _ in range(50):
        text = os.pread(descriptor, 32, 0).decode("ascii", "replace").strip()
        if text.isdigit():
            try:
                os.kill(int(text), 0)
            except ProcessLookupError:
                pass  # a former holder
            except PermissionError:
                return int(text)
            else:
                return int(text)
        time.sleep(0.01)
    return 0


def is_running(directory: Path) -> bool:
    """Return whether the process that the lock file names is there; one on another machine is not seen."""
    with suppress(OSError, ValueError, OverflowError):
        process = int((directory / LOCK).read_text()[:20])
        try:
            os.kill(process, 0)
        except PermissionError:
            return True
        return True
    return False


def release(descriptor: int) -> None:
    """Release the lock, also where a forked process still has a copy of the descriptor."""
    fcntl.flock(descriptor, fcntl.LOCK_UN)
    os.close(descriptor)


@contextmanager
def held(folder: Path) -> Iterator[None]:
    """Make a folder of several runs where it is missing, and lock it; LockedError where another process holds it."""
    with resources("create", folder):
        folder.mkdir(parents=True, exist_ok=True)
    descriptor = acquire(folder, OF_SEVERAL)
    try:
        yield
    finally:
        release(descriptor)
