"""Commits that become durable in time though nothing follows: their loop waits for its caller, or for a generation."""

from __future__ import annotations

import math
import os
import signal
import threading
import time
import weakref
from contextlib import suppress
from pathlib import Path
from typing import Protocol

from evo.errors import EvoError


class Flushed(Protocol):
    """What a deadline needs of a store."""

    directory: Path

    @property
    def is_ours(self) -> bool:
        """Whether this process writes it."""

    def flush(self) -> None:
        """Make everything that is pending durable; RuntimeError: it is closed."""


_stores = weakref.WeakSet[Flushed]()  # that this process writes


class Deadline:
    """A thread that flushes a store before anything in it is pending for too long; it starts when first needed."""

    def __init__(self, store: Flushed) -> None:
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
