"""The memory of a process and of all that it has started, measured while they work, and what the machine has.

Pages of files do not count, such as those of libraries: the system drops them when memory is short. Of a page that
several processes share, each has its part.
"""

from __future__ import annotations

import os
import threading
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

PROC = Path("/proc")
EVERY = 0.2  # seconds between two looks
LIMITS = ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory.current")


@dataclass(frozen=True)
class Peak:
    """The most memory that processes had together."""

    total: int  # bytes; a page that several share counts once
    worker: int  # bytes that a worker has for itself alone, mean; 0: there is none


class Watch(threading.Thread):
    """Looks at a process and its descendants until it is stopped; use it in a `with` statement."""

    def __init__(self, pid: int) -> None:
        super().__init__(name="memory", daemon=True)
        self._pid, self._stopped = pid, threading.Event()
        self.peak: Peak | None = None  # None where the system does not say

    def run(self) -> None:
        """Look every now and then, and keep the highest sum."""
        while not self._stopped.is_set():
            now = look(self._pid)
            if now is not None and (self.peak is None or now.total > self.peak.total):
                self.peak = now
            self._stopped.wait(EVERY)

    def __enter__(self) -> Watch:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stopped.set()
        self.join()


def look(pid: int) -> Peak | None:
    """Return the memory that a process and its descendants have now; None where the system does not say."""
    depths = descendants(pid)
    sizes = {process: size for process in depths if (size := _size(process)) is not None}
    if not sizes:
        return None
    workers = [own for process, (_, own) in sizes.items() if depths[process] > 1]  # a fork server stands between
    total = sum(shared for shared, _ in sizes.values())
    return Peak(total, sum(workers) // len(workers) if workers else 0)


def descendants(pid: int) -> dict[int, int]:
    """Return a process and all that descend from it, with the number of parents between; empty without /proc."""
    parents: dict[int, int] = {}
    for entry in PROC.iterdir() if PROC.is_dir() else ():
        if entry.name.isdigit():
            with suppress(OSError, ValueError, IndexError):
                parents[int(entry.name)] = int((entry / "stat").read_text("utf-8").rpartition(")")[2].split()[1])
    found, depth, last = {pid: 0}, 0, {pid}
    while last := {child for child, parent in parents.items() if parent in last} - found.keys():
        depth += 1
        found |= dict.fromkeys(last, depth)
    return found if parents else {}


def _size(pid: int) -> tuple[int, int] | None:
    """Return the bytes of a process with its share of shared pages, and those of its own; None: it is gone."""
    try:
        lines = (PROC / str(pid) / "smaps_rollup").read_text("utf-8").splitlines()[1:]
        fields = {name: int(size.split()[0]) << 10 for name, _, size in (line.partition(":") for line in lines)}
        return fields["Pss_Anon"] + fields["Pss_Shmem"], fields["Private_Dirty"]
    except (OSError, ValueError, KeyError, IndexError):
        return None


def available() -> int | None:
    """Return the bytes that processes can still get, in this container if it has a limit; None: unknown."""
    found = []
    with suppress(OSError, ValueError, IndexError):
        _, _, rest = (PROC / "meminfo").read_text("utf-8").partition("MemAvailable:")
        found.append(int(rest.split()[0]) << 10)
    with suppress(OSError, ValueError):
        most, current = (int(Path(name).read_text("utf-8")) for name in LIMITS)
        found.append(max(most - current, 0))
    return min(found, default=None)


def free_disk(directory: Path) -> int:
    """Return the bytes that are free where a directory is, or will be."""
    place = directory.absolute()
    while not place.exists():
        place = place.parent
    about = os.statvfs(place)
    return about.f_bavail * about.f_frsize
