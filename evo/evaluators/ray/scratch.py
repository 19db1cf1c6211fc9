"""The temporary directory of a Ray cluster of one's own, where no other user can read or write."""

from __future__ import annotations

import fcntl
import os
import shutil
import tempfile
from contextlib import suppress
from pathlib import Path

PREFIX = "evo-ray-"
LONGEST = 24  # characters of the directory around it: paths of sockets in it may have 107


class Scratch:
    """A new directory of mode 700, locked while this process lives; those of killed processes are removed.

    Ray gives its own directory, `inner`, to everybody (mode 777), and writes pickles there.
    """

    def __init__(self) -> None:
        around = Path(tempfile.gettempdir() if len(tempfile.gettempdir()) <= LONGEST else "/tmp")
        for path in around.glob(f"{PREFIX}*"):
            _remove_abandoned(path)
        while True:
            self._path = tempfile.mkdtemp(prefix=PREFIX, dir=around)
            self._lock = os.open(self._path, os.O_RDONLY | os.O_DIRECTORY)
            fcntl.flock(self._lock, fcntl.LOCK_EX)
            if os.path.exists(self._path):
                break
            os.close(self._lock)  # another process has removed it before it was locked
        self.inner = os.path.join(self._path, "r")

    def close(self) -> None:
        """Remove the directory."""
        if self._lock >= 0:
            shutil.rmtree(self._path, ignore_errors=True)
            os.close(self._lock)
            self._lock = -1


def _remove_abandoned(path: Path) -> None:
    """Remove a directory of this user that no process has locked."""
    with suppress(OSError):
        lock = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
        try:
            if os.fstat(lock).st_uid == os.getuid():
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                shutil.rmtree(path, ignore_errors=True)
        finally:
            os.close(lock)
