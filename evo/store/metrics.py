"""Lines of JSON: metrics.jsonl has one per generation, evaluations.jsonl one per look at a test block; and summaries.

No result depends on them, so the files are not synced.
"""

from __future__ import annotations

import json
import math
import os
import re
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from evo.errors import DataError, ResourceError
from evo.files.durable import read_file, replace_file, write_all
from evo.files.layout import EVALUATIONS, LARGEST_METRICS, METRICS

if TYPE_CHECKING:
    from evo.store.champion import ChampionScore

# Names of metrics. Others are no run's: names reach terminals, spreadsheets and pages.
NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_./-]{0,59}", re.ASCII)
LARGEST_VALUE = 1e300
LAST_GENERATION = 1 << 53


class MetricsFile:
    """The metrics file of a run directory."""

    def __init__(self, directory: Path) -> None:
        self.path = directory / METRICS
        self._failed = False

    def append(self, generation: int, metrics: Mapping[str, Any]) -> str:
        """Append the line of a generation; return a notice the first time that this fails, else ""."""
        # After a line that a full disk cut short, begin a new one.
        data = b"\n" * self._failed + _line({"generation": generation, **metrics})
        try:
            _append(self.path, data)
        except OSError as error:
            notice = "" if self._failed else f"cannot write {self.path}: {error.strerror}; the run goes on"
            self._failed = True
            return notice
        return ""

    def read(self) -> list[dict[str, Any]]:
        """Return the last line of every generation, in order; None stands for a number that is not finite.

        What is no metric is left out, as in `metrics_of`.
        """
        lines = {line["generation"]: line for found in _lines(self.path) if (line := metrics_of(found))}
        return [lines[generation] for generation in sorted(lines)]

    def trim(self, generations: int) -> None:
        """Remove the lines of generations that were not committed, and incomplete lines."""
        lines = {line["generation"]: found for found in _lines(self.path) if (line := metrics_of(found))}
        kept = [_line(lines[generation]) for generation in sorted(lines) if generation < generations]
        with suppress(OSError):
            replace_file(self.path, b"".join(kept), durable=False)


def metrics_of(line: Mapping[str, Any]) -> dict[str, Any]:
    """Return the metrics in a line of a file: numbers, or None, with the names that metrics have.

    Empty where its generation is no whole number from 0.
    """
    generation = line.get("generation")
    if type(generation) is not int or not 0 <= generation < LAST_GENERATION:
        return {}
    return {name: value for name, value in line.items() if NAME.fullmatch(name) and _is_value(value)}


def _is_value(value: object) -> bool:
    return value is None or (type(value) in (int, float) and abs(value) < LARGEST_VALUE)  # type: ignore[arg-type]


def looked_at(directory: Path, block: int, episodes: int) -> int:
    """Note that a block of test episodes was looked at, where that can be written; return how often it had been."""
    path = directory / EVALUATIONS
    before = sum(bool(line.get("block") == block) for line in _lines(path))
    with suppress(OSError):
        _append(path, _line({"block": block, "episodes": episodes}))
    return before


def _append(path: Path, data: bytes) -> None:
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW, 0o666)
    try:
        write_all(descriptor, data)
    finally:
        os.close(descriptor)


def _lines(path: Path) -> Iterator[dict[str, Any]]:
    """Yield the objects in a file of lines; what cannot be read is left out."""
    with suppress(DataError, ResourceError):
        for text in read_file(path, most=LARGEST_METRICS).split(b"\n"):
            with suppress(ValueError, RecursionError):
                line = json.loads(text)
                if isinstance(line, dict):
                    yield line


def _line(metrics: Mapping[str, Any]) -> bytes:
    return one_line(metrics).encode() + b"\n"


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
