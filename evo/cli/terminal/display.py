"""What a run shows while it trains: a live table on a terminal, a plain line a generation anywhere else.

Where the time of a generation went stands under the names of the metrics in `evo.training.accounting`.
"""

from __future__ import annotations

import math
import os
import sys
import time
from collections import deque
from collections.abc import Mapping
from typing import TYPE_CHECKING, TextIO

from evo.errors import printable_lines

if TYPE_CHECKING:
    from rich.console import RenderableType
    from rich.live import Live

    from evo.run import Row

ROWS = 12  # generations in the table
COLUMNS = {  # and the least width of a terminal that shows them
    "generation": 0, "best": 0, "mean": 60, "validation": 0, "test": 0, "frames/s": 76, "lane utilisation": 92,
    "time left": 60,
}  # fmt: skip
SCORES = ("best", "mean", "validation", "test")
RECENT = 20  # generations that the time left is estimated from
UNKNOWN = "-"
BYTES = ("bytes_published", "bytes_sent", "bytes_received")


class Display:
    """Shows only what is said; everything goes to standard output."""

    awaited = "starting workers, then the first generation"  # what is done until the first generation ends

    def __enter__(self) -> Display:
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def say(self, text: str) -> None:
        """Show a line that stays."""
        print(printable_lines(text), flush=True)

    def generation(self, row: Row, generations: int) -> None:
        """Show a generation of so many: here, nothing."""


class Lines(Display):
    """Shows a plain line a generation."""

    def __init__(self) -> None:
        self._pace, self._shown = Pace(), dict[str, str]()

    def generation(self, row: Row, generations: int) -> None:
        """Show a generation of so many."""
        self._shown = shown = figures(row, self._shown)
        self._pace.add(row)
        width = len(str(generations))
        parts = [
            f"generation {row.generation + 1:>{width}}/{generations}",
            *(f"{name} {shown[name]}" for name in SCORES),
            f"{shown['frames/s']} frames/s",
            f"lane utilisation {shown['lane utilisation']}",
            share_of_acting(row.metrics),
            f"time left {duration(self._pace.left(row, generations))}",
        ]
        print("  ".join(parts), flush=True)


class Table(Display):
    """Shows a live table on a terminal, and below it how far the run is."""

    def __init__(self) -> None:
        from rich.console import Console

        self._console = Console(file=sys.stdout)
        self._rows: deque[tuple[Row, dict[str, str]]] = deque(maxlen=ROWS)
        self._pace = Pace()
        self._generations = 0
        self._began = time.monotonic()
        self._last = self._began  # when the newest generation ended
        self._live: Live | None = None

    def __enter__(self) -> Table:
        from rich.live import Live

        self._live = Live(get_renderable=self._table, console=self._console, refresh_per_second=4)
        self._began = self._last = time.monotonic()
        self._live.start(refresh=True)
        return self

    def __exit__(self, *_: object) -> None:
        if self._live is not None:
            live, self._live = self._live, None
            live.transient = not self._rows
            live.stop()

    def say(self, text: str) -> None:
        """Show a line that stays, above the table."""
        self._console.print(printable_lines(text), markup=False, highlight=False, soft_wrap=True)

    def generation(self, row: Row, generations: int) -> None:
        """Show a generation of so many."""
        self._pace.add(row)
        self._rows.append((row, figures(row, self._rows[-1][1] if self._rows else {})))
        self._generations = generations
        self._last = time.monotonic()
        if self._live is not None:
            self._live.refresh()

    def _table(self) -> RenderableType:
        from rich import box
        from rich.console import Group
        from rich.progress_bar import ProgressBar
        from rich.table import Table as Grid
        from rich.text import Text

        if not self._rows:
            return Text(f"{self.awaited} ... {time.monotonic() - self._began:.0f} s", style="dim")
        # Narrow enough that scores of four digits keep all of them on a terminal of 80 columns.
        grid = Grid(box=box.SIMPLE_HEAD, header_style="bold", pad_edge=False, padding=(0, 1, 0, 0))
        shown = [title for title, least in COLUMNS.items() if self._console.width >= least]
        for title in shown:
            grid.add_column(title, justify="right", no_wrap=True)
        last = self._rows[-1][0]
        for row, figures_of_row in self._rows:
            newest = row is last
            waited = time.monotonic() - self._last
            left = duration(max(self._pace.left(row, self._generations) - waited, 0.0)) if newest else ""
            champion = Text(figures_of_row["validation"], style="bold green" if row.new_champion else "")
            ordinal = f"{row.generation + 1}/{self._generations}" if newest else f"{row.generation + 1}"
            cells: dict[str, RenderableType] = {
                **figures_of_row, "generation": ordinal, "validation": champion, "time left": left
            }  # fmt: skip
            grid.add_row(*(cells[title] for title in shown), style="" if newest else "dim")
        bar = ProgressBar(total=self._generations, completed=last.generation + 1, width=min(76, self._console.width))
        idle = Text("\n".join(where_time_went(last.metrics)), style="dim")
        return Group(grid, idle, bar)


class Pace:
    """The time that is left, from the newest generations; the first one has started the workers too."""

    def __init__(self) -> None:
        self._seconds: deque[float] = deque(maxlen=RECENT)
        self._count = 0

    def add(self, row: Row) -> None:
        """Take in a generation."""
        self._count += 1
        if self._count == 2:
            self._seconds.clear()
        self._seconds.append(row.metrics.get("seconds", math.nan))

    def left(self, row: Row, generations: int) -> float:
        """Return the seconds that remain after a generation of so many; NaN while they are unknown."""
        if self._count < 2 and row.generation + 1 < generations:
            return math.nan
        return (generations - row.generation - 1) * sum(self._seconds) / len(self._seconds)


def display_for(quiet: bool, output: TextIO | None = None) -> Display:
    """Return what suits the output: a table only where a person looks at a terminal that can show one."""
    if quiet:
        return Display()
    return Table() if is_live(output or sys.stdout) else Lines()


def is_live(output: TextIO) -> bool:
    """Return whether a person looks at a terminal whose lines can be written again."""
    able = output.isatty() and os.environ.get("TERM", "dumb") not in ("dumb", "unknown")
    return able and not os.environ.get("CI")


def figures(row: Row, before: Mapping[str, str]) -> dict[str, str]:
    """Return what is shown of a generation, by column; its test score is that of `before` where it was not tested."""
    found = {
        name: float(row.metrics.get(name, math.nan)) for name in (*SCORES, "frames", "seconds", "lane_utilisation")
    }
    shown = {name: number(found[name]) for name in SCORES}
    if math.isnan(found["test"]):
        shown["test"] = before.get("test", UNKNOWN)
    used, seconds = found["lane_utilisation"], found["seconds"]
    shown["frames/s"] = count(found["frames"] / seconds) if seconds > 0 else UNKNOWN
    shown["lane utilisation"] = f"{100 * used:.0f} %" if math.isfinite(used) else UNKNOWN
    return shown


def number(value: float) -> str:
    """Return a score with two decimals."""
    return f"{value:z.2f}" if math.isfinite(value) else UNKNOWN


def count(value: float, unit: str = "") -> str:
    """Return a large number with three figures, as in 1.14 M, or 1.14 MB with the unit B."""
    if not math.isfinite(value):
        return UNKNOWN
    for limit, prefix in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if value >= limit:
            return f"{value / limit:.3g} {prefix}{unit}"
    return f"{value:.0f} {unit}".rstrip()


def duration(seconds: float) -> str:
    """Return seconds as a person says them: 42 s, 3:05 min, 1:02 h."""
    if not math.isfinite(seconds):
        return UNKNOWN
    whole = math.ceil(seconds)
    if whole < 60:
        return f"{whole} s"
    if whole < 3600:
        return f"{whole // 60}:{whole % 60:02} min"
    return f"{whole // 3600}:{whole // 60 % 60:02} h"


def share_of_acting(metrics: Mapping[str, float]) -> str:
    """Return the share of a generation in which workers played."""
    seconds = metrics.get("seconds", math.nan)
    share = metrics.get("seconds_acting", math.nan) / seconds if seconds else math.nan
    return f"acting {100 * share:.0f} %" if math.isfinite(share) else f"acting {UNKNOWN}"


def where_time_went(metrics: Mapping[str, float]) -> list[str]:
    """Return a line of the parts that add up to a generation, and one of the other figures."""

    def told(name: str) -> str:
        value = metrics.get(f"seconds_{name}", math.nan)
        digits = 2 if value < 9.995 else 1 if value < 99.95 else 0  # five columns, so that a line fits
        return f"{name} {value:.{digits}f} s" if math.isfinite(value) else f"{name} {UNKNOWN}"

    transferred = sum(metrics.get(name, math.nan) for name in BYTES)
    parts = [share_of_acting(metrics), *map(told, ("idle", "moving", "learning", "master"))]
    others = [told("straggling"), told("committing"), f"bytes {count(transferred, 'B')}"]
    return ["  ".join(parts), "  ".join(others)]
