"""Follows a run of another process by its files: its metrics, its champion, and whether its master is still there."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

from evo.errors import DataError
from evo.files.layout import CHAMPION, METRICS
from evo.networks.network import Network
from evo.store.champion import Champion
from evo.store.sandbox import read_champion


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
            with suppress(ValueError, RecursionError, TypeError, KeyError, OverflowError):
                line = json.loads(text)
                if int(line["generation"]) >= self._next:
                    self._pending[int(line["generation"])] = line
        return bool(whole)


class Champions:
    """The champion of a run that another process trains."""

    def __init__(self, directory: Path, network: Network) -> None:
        self._directory, self._network, self._seen = directory, network, (0, 0)

    def newer(self) -> Champion | None:
        """Return the champion if its file has changed since the last call and can be read, else None."""
        try:
            state = (self._directory / CHAMPION).stat()
            if self._seen == (seen := (state.st_mtime_ns, state.st_size)):
                return None
            self._seen = seen
            champion = read_champion(self._directory)
            return champion if champion.fits(self._network) else None
        except (OSError, DataError):  # it is not of this network, or just being replaced: the next one will do
            return None
