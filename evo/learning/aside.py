"""Work that is done in a thread of its own while workers play."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Generic, TypeVar

T = TypeVar("T")


class Aside(Generic[T]):
    """A function at work; it is given something to ask, now and then, whether to stop."""

    def __init__(self, work: Callable[[Callable[[], bool]], T]) -> None:
        """Begin at once."""
        self._work, self._stop = work, threading.Event()
        self._value: list[T] = []
        self._error: BaseException | None = None
        self._thread = threading.Thread(target=self._run, name="learner", daemon=True)
        self._thread.start()

    def _run(self) -> None:
        try:
            self._value.append(self._work(self._stop.is_set))
        except BaseException as error:
            self._error = error

    def result(self) -> T:
        """Wait for what the function returns, or raise what it raised."""
        self._thread.join()
        if self._error is not None:
            raise self._error
        return self._value[0]

    def abandon(self) -> None:
        """Ask it to stop, and wait until it has; nothing that it did counts."""
        self._stop.set()
        self._thread.join()
