"""Threads that compute the parts of a batch, each in a workspace of its own."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable
from concurrent.futures import Future, ThreadPoolExecutor, wait
from typing import Any

from evo.learning.exact.plan import Workspace
from evo.rollouts.rollout import check_arithmetic


class Threads:
    """A number of threads, the calling one included, each of which takes the next place until none is left."""

    def __init__(self, count: int, make: Callable[[], Workspace]) -> None:
        """Start them; `make` returns a workspace."""
        self._count, self._make = count, make
        self._pool = ThreadPoolExecutor(count - 1, "learner") if count > 1 else None
        self.workspaces = [make() for _ in range(count)]

    def for_each(self, function: Callable[[int, Workspace], Any], places: Iterable[int]) -> None:
        """Call the function for every place, by all threads, this one too; nothing is at work any more at the end."""
        left, others = deque(places), list[Future[None]]()

        def work() -> None:
            workspace = self._workspace()
            while True:
                try:
                    place = left.popleft()
                except IndexError:  # all are taken
                    break
                function(place, workspace)
            self.workspaces.append(workspace)

        def checked() -> None:
            try:
                check_arithmetic()
                work()
            except BaseException:
                left.clear()
                raise

        try:
            for _ in range(min(self._count, len(left)) - 1 if self._pool else 0):
                others.append(self._pool.submit(checked))  # type: ignore[union-attr]
            checked()
        finally:
            left.clear()
            wait(others)
        for other in others:
            other.result()

    def _workspace(self) -> Workspace:
        """Return a workspace that no thread has now; one that an error has left behind is gone."""
        try:
            return self.workspaces.pop()
        except IndexError:
            return self._make()

    def close(self) -> None:
        """End the threads."""
        if self._pool is not None:
            self._pool.shutdown(cancel_futures=True)
