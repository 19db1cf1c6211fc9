"""Work that is done in a thread of its own while workers play."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Generic, TypeVar

from evo.records import Metrics

T = TypeVar("T")


class Aside(Generic[T]):
    """A function at work; it is given something to ask, now and then, whether to stop."""

    def __init__(self, work: Callable[[Callable[[], bool]], T]) -> None:
        """Begin at once."""
        self._work, self._stop = work, threading.Event()
        self.seconds = 0.0  # that it took, once there is a result
        self._value: list[T] = []
        self._error: BaseException | None = None
        self._thread = threading.Thread(target=self._run, name="learner", daemon=True)
        self._thread.start()

    def _run(self) -> None:
        began = time.monotonic()
        try:
            self._value.append(self._work(self._stop.is_set))
        except BaseException as error:
            self._error = error
        self.seconds = time.monotonic() - began

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


def waited_for(aside: Aside[Metrics]) -> Metrics:
    """Return what learning beside the players came to; what they hid of its time is not the generation's."""
    began = time.monotonic()
    learnt = aside.result()
    waited = time.monotonic() - began
    hidden = max(aside.seconds - waited, 0.0)
    return {**learnt, "seconds_moving": 0.0, "seconds_learning": waited, "seconds_aside": hidden}
