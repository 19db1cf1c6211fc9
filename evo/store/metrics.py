"""Lines of JSON: metrics.jsonl has one per generation, evaluations.jsonl one per look at a test block; and summaries.

No result depends on them, so the files are not synced.
"""

from __future__ import annotations

import json
import math
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from numbers import Real
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from evo.errors import DataError, ResourceError, counted, notice
from evo.files.durable import append, checksummed, lines_in, lines_of, open_regular, parted, resources, without_checksum
from evo.files.layout import EVALUATIONS, METRICS

if TYPE_CHECKING:
    from evo.store.champion import ChampionScore
    from evo.store.manifest import Line

# Names of metrics. Others are no run's: names reach terminals, spreadsheets and pages.
NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_./-]{0,59}", re.ASCII)
LARGEST_VALUE = 1e150  # whose squares can be summed, as those of returns
LAST_GENERATION = 1 << 53
SUMMED = ("frames", "slots", "forward_passes", "backward_passes")  # of a generation


class MetricsFile:
    """The metrics file of a run directory."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory

    @property
    def path(self) -> Path:
        """The file."""
        return self.directory / METRICS

    def append(self, generation: int, metrics: Mapping[str, Any]) -> None:
        """Append the line of a generation. Raises ResourceError where that fails."""
        with resources("write", self.path):
            _append(self.path, {"generation": generation, **metrics})

    def read(self) -> list[dict[str, Any]]:
        """Return the last line of every generation, in order, without what is damaged; None: a number not finite."""
        lines = {line["generation"]: line for line in self._lines()}
        return [lines[generation] for generation in sorted(lines)]

    def _lines(self) -> Iterator[dict[str, Any]]:
        with suppress(DataError, ResourceError):
            for _, text in lines_of(self.path):
                with suppress(ValueError):
                    yield metrics_in(text)

    def missing(self, committed: int) -> list[str]:
        """Return that committed generations have no line that can be read: the disk was full, or lines were removed."""
        known = {line["generation"] for line in self._lines()}
        if not (lost := [generation for generation in range(committed) if generation not in known]):
            return []
        return [
            f"{self.path}: {len(lost)} of {counted(committed, 'generation')} lack a readable line, from {lost[0]} on"
        ]

    def mistakes(self, committed: Sequence[Line]) -> list[str]:
        """Return what is wrong with the file, the first of a kind: damaged lines, other amounts than the manifest."""
        damaged, differing = list[str](), list[str]()
        try:
            for number, (_, text) in enumerate(lines_of(self.path) if os.path.lexists(self.path) else (), 1):
                try:
                    line = metrics_in(text)
                except ValueError as error:
                    damaged += [f"line {number}: {error}"] if text.endswith(b"\n") else []
                    continue
                if (generation := line["generation"]) < len(committed):
                    spent = asdict(committed[generation].spent)
                    other = [name for name in spent if spent[name] != round(line.get(name) or 0, 6)]
                    what = f"line {number}: generation {generation} has other {', '.join(other)} than in the manifest"
                    differing += [what] if other else []
        except (DataError, ResourceError) as error:
            return [str(error)]
        return [
            f"{self.path}: {found[0]}{f'; and {len(found) - 1} more' if found[1:] else ''}"
            for found in (damaged, differing)
            if found
        ]

    def trim(self, generations: int) -> str:
        """Cut off the lines of generations that were not committed, and an incomplete one; return a notice, or "".

        No other line is removed, whether it can be read or not, and none where reading fails. A last line that lacks
        its line end alone is complete: the next append adds it.
        """
        end, cut = 0, None
        try:
            for after, text in lines_of(self.path) if os.path.lexists(self.path) else ():
                whole = text.endswith(b"\n")
                with suppress(ValueError):
                    committed = metrics_in(text)["generation"] < generations
                    cut = None if committed else end if cut is None else cut
                    whole = True
                end = after if whole else end
            with resources("write", self.path):
                if cut is not None or (os.path.lexists(self.path) and self.path.stat().st_size > end):
                    parted(self.path)
                    os.truncate(self.path, end if cut is None else cut)
        except (DataError, ResourceError) as error:
            return f"{error}; nothing is removed from it, and the run goes on"
        return ""


class MetricsTail:
    """The lines of metrics.jsonl as they are appended, as `metrics_in`."""

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
        before = self._offset
        with (
            suppress(OSError, DataError, ResourceError),  # not there yet, or no file
            open_regular(self._path) as descriptor,
            os.fdopen(descriptor, "rb", closefd=False) as file,
        ):
            if os.fstat(file.fileno()).st_size < self._offset:  # a resume has cut it
                before = self._offset = 0
            file.seek(self._offset)
            for end, text in lines_in(file):
                if not text.endswith(b"\n"):
                    break
                self._offset = end
                with suppress(ValueError):
                    line = metrics_in(text)
                    if line["generation"] >= self._next:
                        self._pending[line["generation"]] = line
        return self._offset > before


def metrics_in(text: bytes) -> dict[str, Any]:
    """Return the metrics in a line of the file, as `metrics_of`. Raises ValueError where it is damaged."""
    if not (found := metrics_of(without_checksum(text.rstrip(b"\n")))):
        raise ValueError("it is of no generation")
    return found


def metrics_of(line: Mapping[str, Any]) -> dict[str, Any]:
    """Return the metrics in a line, numbers or None by name; empty where its generation is no whole number from 0."""
    generation = line.get("generation")
    if type(generation) is not int or not 0 <= generation < LAST_GENERATION:
        return {}
    values = ((name, value) for name, value in line.items() if value is None or type(value) in (int, float))
    return {name: value for name, value in values if NAME.fullmatch(name) and abs(value or 0) < LARGEST_VALUE}


def is_metric(name: str, value: object) -> bool:
    """Return whether an algorithm may give this metric, so that every reader of the file takes it."""
    if name in ("generation", "validation", "test") or not NAME.fullmatch(name):
        return False
    if type(value) is bool or not isinstance(value, Real):
        return False
    return not (name in SUMMED or name.startswith("seconds_")) or 0 <= float(value) < LARGEST_VALUE


def looked_at(directory: Path, block: int, episodes: int) -> int:
    """Note that a block of test episodes was looked at, or say that it cannot; return how often it had been."""
    path, before = directory / EVALUATIONS, 0
    with suppress(DataError, ResourceError):
        for _, text in lines_of(path):
            with suppress(ValueError):
                before += without_checksum(text.rstrip(b"\n")).get("block") == block
    try:
        _append(path, {"block": block, "episodes": episodes})
    except OSError as error:
        notice(f"{path}: cannot be written ({error.strerror}), so it does not say that block {block} was looked at")
    return before


def _append(path: Path, values: Mapping[str, Any]) -> None:
    parted(path)  # a copy by `cp -l` has its own
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW, 0o666)
    try:
        size = os.fstat(descriptor).st_size
        cut_short = size > 0 and os.pread(descriptor, 1, size - 1) != b"\n"  # by a full disk or a crash
        append(descriptor, b"\n" * cut_short + checksummed(one_line(values).encode()) + b"\n", durable=False)
    finally:
        os.close(descriptor)


def one_line(values: object) -> str:
    """Return JSON on one line, with null for numbers that JSON does not have."""
    return json.dumps(finite(values), allow_nan=False)


def finite(value: Any) -> Any:
    """Return a JSON value with null for every number that is not finite."""
    if value is None or isinstance(value, bool | int | str):
        return value
    if isinstance(value, Mapping):
        return {key: finite(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [finite(item) for item in value]
    number = float(value)
    return number if math.isfinite(number) else None


@dataclass
class Summary:
    """A run so far: the JSON object that `--json` ends with, whatever happened."""

    status: Literal["done", "interrupted", "failed"] = "failed"
    error: str | None = None
    run_dir: str | None = None
    algorithm: str | None = None
    seed: int | None = None
    generations: int | None = None  # committed
    frames: int | None = None
    seconds: float | None = None
    state_hash: str | None = None
    champion: ChampionScore | None = None

    def to_json(self) -> str:
        """Return one line with every key; what is unknown or not finite is null."""
        return one_line(asdict(self))
