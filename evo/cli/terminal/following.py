"""Follows a run of another process by its files: new lines of its metrics, and whether its master is still there."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from evo.cli.terminal.display import Table
from evo.files.lock import LOCK
from evo.store.metrics import METRICS

if TYPE_CHECKING:
    from rich.console import RenderableType

CURVES = ("best", "mean", "validation", "test")
BARS = "▁▂▃▄▅▆▇█"
WIDTH = 60  # of a curve, in characters


class MetricsTail:
    """The lines of metrics.jsonl as they are appended."""

    def __init__(self, directory: Path) -> None:
        self._path, self._offset = directory / METRICS, 0
        self._pending: dict[int, dict[str, Any]] = {}
        self._next = 0  # generation

    def read(self) -> Iterator[dict[str, Any]]:
        """Yield each generation once, in order; the newest waits for the next call, as its test score comes later."""
        quiet = not self._take()
        ready = sorted(self._pending)[: None if quiet else -1]
        for generation in ready:
            self._next = generation + 1
            yield self._pending.pop(generation)

    def _take(self) -> bool:
        """Take in what was appended, and return whether that was anything; an incomplete last line waits."""
        try:
            with open(self._path, "rb") as file:
                if os.fstat(file.fileno()).st_size < self._offset:  # a resume has cut it
                    self._offset = 0
                file.seek(self._offset)
                data = file.read()
        except OSError:
            return False
        whole = data[: data.rfind(b"\n") + 1]
        self._offset += len(whole)
        for text in whole.split(b"\n"):
            with suppress(ValueError, RecursionError, TypeError, KeyError):
                line = json.loads(text)
                if int(line["generation"]) >= self._next:
                    self._pending[int(line["generation"])] = line
        return bool(whole)


def is_running(directory: Path) -> bool:
    """Return whether the process that the lock file names is there; a master on another machine is not seen."""
    with suppress(OSError, ValueError, OverflowError):
        process = int((directory / LOCK).read_text()[:20])
        try:
            os.kill(process, 0)
        except PermissionError:
            return True
        return True
    return False


class Watched(Table):
    """The live table of a run, with its curves so far."""

    def __init__(self) -> None:
        super().__init__()
        self.curves: dict[str, list[float]] = {name: [] for name in CURVES}

    def _table(self) -> RenderableType:
        from rich.console import Group
        from rich.text import Text

        width = max(10, min(WIDTH, self._console.width - 14))
        shown = [f"{name:<12}{bars(values, width)}" for name, values in self.curves.items() if len(values) > 1]
        return Group(Text("\n".join(shown), style="cyan"), super()._table())


def bars(values: Sequence[float], width: int) -> str:
    """Return a curve as bars, one for several values where there are more than fit."""
    each = -(-len(values) // width)
    shown = [max(values[i : i + each]) for i in range(0, len(values), each)]
    low, high = min(values), max(values)
    scale = (len(BARS) - 1) / (high - low) if high > low else 0.0
    return "".join(BARS[round((value - low) * scale)] for value in shown)
