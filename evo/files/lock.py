"""The lock of a directory, held by its one master: a flock, which the system releases when the master dies."""

from __future__ import annotations

import errno
import fcntl
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from evo.errors import DataError, LockedError, ResourceError, notice
from evo.files.durable import open_regular, parted, resources
from evo.plugins.directory import is_changing

LOCK = "lock"
WITHOUT_LOCKS = {errno.ENOSYS, errno.ENOLCK, errno.EOPNOTSUPP}  # from file systems that do not support them
NO_LOCKS = (
    "this file system has no locks, so nothing but the process id in the lock file keeps a second process of this "
    "machine out of the directory: use a local disk, or have locks enabled (on Lustre: mount with -o flock)"
)
PROBES = 500  # trials to lock while others look whether it is locked
OF_SEVERAL = ".lock"  # of a folder of runs, where `FOLDER/*` names the runs alone


def acquire(directory: Path, name: str = LOCK) -> int:
    """Lock the directory and return the descriptor that holds the lock.

    Raises LockedError, naming the process that holds it. HDF5's own file locks, which many network file systems do not
    support, are not used. Where there are no locks at all, the process id in the file keeps others out.
    """
    path = directory / name
    with resources("lock", directory):
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o666)
    try:
        with resources("lock", directory):
            if not hold(descriptor, directory):
                if (holder := _holder(descriptor, 1)) not in (0, os.getpid()):
                    raise LockedError(f"{directory} is in use by process {holder}; if that is no run, delete {path}")
                notice(NO_LOCKS)
            if os.fstat(descriptor).st_nlink == 1:  # else it may be any other file of the user's too
                os.ftruncate(descriptor, 0)
                os.pwrite(descriptor, f"{os.getpid()}\n".encode(), 0)
    except BaseException:
        os.close(descriptor)
        raise
    return descriptor


def hold(descriptor: int, directory: Path) -> bool:
    """Lock an open file of the directory; return whether its file system has locks. LockedError: another holds it."""
    try:
        for _ in range(PROBES):
            with suppress(BlockingIOError):
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                return True
            fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)  # succeeds where only readers hold it
            fcntl.flock(descriptor, fcntl.LOCK_UN)
            time.sleep(0.01)
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError as error:
        holder = _holder(descriptor)
        if holder == os.getpid():
            this = f"process {holder}, which is this one: iterate to its end, or close, what trains there"
            raise LockedError(f"{directory} is in use by {this}") from error
        name = f"process {holder}" if holder else "another process"
        raise LockedError(f"{directory} is in use by {name}; wait for it to end, or stop it") from error
    except OSError as error:
        if error.errno not in WITHOUT_LOCKS:
            raise
        return False
    return True


def _holder(descriptor: int, trials: int = 50) -> int:
    """Return the process id of the lock's holder, which it writes just after locking; 0 if it does not."""
    for _ in range(trials):
        text = os.pread(descriptor, 32, 0).decode("ascii", "replace").strip()
        if text.isdigit() and runs(int(text)):
            return int(text)
        time.sleep(0.01)
    return 0


def runs(process: int) -> bool:
    """Return whether there is a process with this id, also of another user."""
    try:
        os.kill(process, 0)
    except (ProcessLookupError, OverflowError):
        return False
    except PermissionError:
        pass
    return True


def is_running(directory: Path) -> bool:
    """Return whether a process holds the lock; without locks, whether the one that its file names is there.

    The process id alone says little: it may be another process by now, or one of another container.
    """
    with suppress(DataError, ResourceError), open_regular(directory / LOCK) as descriptor:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
        except OSError as error:
            return error.errno in WITHOUT_LOCKS and _holder(descriptor, 1) != 0
    return False  # closing has released it


def release(descriptor: int) -> None:
    """Release the lock, also where a forked process still has a copy of the descriptor."""
    with suppress(OSError):  # where there are no locks
        fcntl.flock(descriptor, fcntl.LOCK_UN)
    os.close(descriptor)


class Held:
    """What a master holds: a directory, its lock, and a file in it, locked too in case the lock is deleted."""

    def __init__(self, directory: Path, lock: int, name: str) -> None:
        self.master, self.lock, self._descriptors = os.getpid(), lock, list[int]()
        self._given, self.absolute = directory, Path(os.path.abspath(directory))
        try:
            with resources("open", directory):
                self._directory = self._opened(directory, os.O_RDONLY | os.O_DIRECTORY)
                self.file = self._opened(directory / name, os.O_RDWR | os.O_APPEND | os.O_NOFOLLOW)
                hold(self.file, directory)
                if parted(directory / name):  # else what is written here would stand in a copy, too
                    release(self._descriptors.pop())
                    self.file = self._opened(directory / name, os.O_RDWR | os.O_APPEND | os.O_NOFOLLOW)
                    hold(self.file, directory)
        except BaseException:
            self.release()
            raise

    def _opened(self, path: Path, flags: int) -> int:
        self._descriptors.append(os.open(path, flags))
        return self._descriptors[-1]

    def place(self, directory: Path) -> Path:
        """Return the directory, or where it is now if it was renamed. ResourceError: it was removed."""
        ours = os.fstat(self._directory)
        # The latter where the process has another working directory now, or a user's code changes it meanwhile.
        for path in (directory, self.absolute)[is_changing() :]:
            with suppress(OSError):
                if os.path.samestat(ours, os.stat(path)):
                    return path
        with suppress(OSError):
            place = Path(os.readlink(f"/proc/self/fd/{self._directory}"))
            if os.path.samestat(ours, os.stat(place)):
                return place
        raise ResourceError(f"{directory}: the run directory was removed while the run trained")

    def named(self, directory: Path) -> Path:
        """Return the directory as it was first named, where that leads there from the current one."""
        with suppress(OSError):
            if os.path.samestat(os.fstat(self._directory), os.stat(self._given)):
                return self._given
        return directory

    def require(self, directory: Path) -> None:
        """Lock again, with a notice, where the lock's file was deleted or replaced; LockedError: by another process."""
        path = directory / LOCK
        if os.path.lexists(path) and os.path.samestat(os.fstat(self.lock), os.stat(path, follow_symlinks=False)):
            return
        before, self.lock = self.lock, acquire(directory)
        os.close(before)
        notice(f"{path} was deleted while the run trained, and is made again; leave it there until training ends")

    def release(self) -> None:
        """Release the locks."""
        for descriptor in (*self._descriptors, self.lock):
            release(descriptor)


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
