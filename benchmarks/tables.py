"""What a benchmark hands back: a table to print, and the figures that have a limit."""

from __future__ import annotations

import os
import platform
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

PACKAGES = ("numpy", "numba", "llvmlite", "tensorflow-cpu", "keras", "deap", "gymnasium")
SMOKE_MARGIN = 0.7  # a smoke run passes at this share of a ratio: it is short, and its machine may be busy


@dataclass(frozen=True)
class Form:
    """How to measure: at length or short, and with what."""

    smoke: bool = False  # of seconds, for ratios that fail
    peers: Path | None = None  # where the peers' environments are
    run: Path | None = None  # a run directory whose last population is played too

    @property
    def clock(self) -> Callable[[], float]:
        """Return what times work in this process: its own processor time, where short ratios must stand other work."""
        return time.process_time if self.smoke else time.perf_counter


@dataclass(frozen=True)
class Limit:
    """A figure and what it should be; `ratio` says that both sides were measured in this run.

    `best` is that of the best round, where the figure is the median of many: what one core does by itself is only ever
    made slower by whoever else is on the machine.
    """

    what: str
    value: float
    target: float
    most: bool = False  # the target is the most, not the least
    ratio: bool = False
    best: float | None = None

    def reached(self, value: float) -> bool:
        """Return whether a value is where the target is, or beyond."""
        return value <= self.target if self.most else value >= self.target

    @property
    def verdict(self) -> str:
        """Return whether the target is reached, in words."""
        if self.reached(self.value):
            return "met"
        return "not met" if self.best is None or not self.reached(self.best) else "met in the best round"

    def fails(self, stored: Mapping[str, float]) -> bool:
        """Return whether a smoke run should fail: for a ratio that is far below what it was, or else its target.

        `stored` are ratios of an earlier smoke run. Where less is better only the target counts.
        """
        if not self.ratio:
            return False
        if self.most:
            return self.value > self.target / SMOKE_MARGIN
        return self.value < stored.get(self.what, self.target) * SMOKE_MARGIN

    def row(self) -> list[str]:
        """Return the figure as a row of a table."""
        sign = "<=" if self.most else ">="
        best = "" if self.best is None else number(self.best)
        return [self.what, number(self.value), best, f"{sign} {number(self.target)}", self.verdict]


@dataclass
class Table:
    """The answer to one question."""

    title: str
    note: str
    columns: Sequence[str]
    rows: list[list[str]] = field(default_factory=list)
    limits: list[Limit] = field(default_factory=list)

    def without(self, line: str) -> None:
        """Say what is missing, once."""
        if line not in self.note:
            self.note += f"\n\n{line}"

    def markdown(self) -> str:
        """Return the table, its note and its limits as Markdown."""
        parts = [f"## {self.title}", self.note, grid(self.columns, self.rows)]
        if self.limits:
            rows = [limit.row() for limit in self.limits]
            names = ["figure", "measured", "best round", "target", ""]
            if not any(limit.best is not None for limit in self.limits):
                rows, names = [[*row[:2], *row[3:]] for row in rows], [*names[:2], *names[3:]]
            parts.append(grid(names, rows))
        return "\n\n".join(parts) + "\n"


def grid(columns: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Return a Markdown table; the first column is text, the others stand to the right."""
    widths = [max(len(row[i]) for row in [columns, *rows]) for i in range(len(columns))]

    def line(cells: Sequence[str]) -> str:
        aligned = [c.ljust(w) if i == 0 else c.rjust(w) for i, (c, w) in enumerate(zip(cells, widths, strict=True))]
        return f"| {' | '.join(aligned)} |"

    rule = "|" + "|".join("-" * (w + 2) if i == 0 else "-" * (w + 1) + ":" for i, w in enumerate(widths)) + "|"
    return "\n".join([line(columns), rule, *(line(row) for row in rows)])


def number(value: float) -> str:
    """Return a figure with three significant digits, or whole where it is large."""
    if value >= 1000:
        return f"{float(f'{value:.3g}'):,.0f}"
    return f"{value:.3g}"


def seconds(work: Callable[[], object], clock: Callable[[], float] = time.perf_counter) -> float:
    """Return how long `work` took."""
    began = clock()
    work()
    return clock() - began


def processor() -> str:
    """Return the processor, cores and system, and nothing that names the machine."""
    model = platform.processor() or platform.machine()
    information = Path("/proc/cpuinfo")
    if information.exists():
        lines = information.read_text().splitlines()
        model = next((line.partition(":")[2].strip() for line in lines if line.startswith("model name")), model)
    from llvmlite import binding

    vectors = [name for name in ("avx512f", "avx2", "sse4.2", "neon") if binding.get_host_cpu_features().get(name)]
    vector, cores = vectors[0] if vectors else "no vectors known", len(os.sched_getaffinity(0))
    return f"{model} ({binding.get_host_cpu_name()}), {cores} cores, {vector}, {platform.system()}"


def versions() -> str:
    """Return the versions of Python and of packages."""
    return ", ".join([f"Python {platform.python_version()}", *(f"{name} {_version(name)}" for name in PACKAGES)])


def machine() -> str:
    """Return the processor and the versions."""
    return f"{processor()}; {versions()}."


def _version(name: str) -> str:
    try:
        return version(name)
    except PackageNotFoundError:
        return "none"


def failing(tables: Sequence[Table], stored: Mapping[str, float]) -> list[Limit]:
    """Return every figure for which a smoke run should fail."""
    return [limit for table in tables for limit in table.limits if limit.fails(stored)]
