"""The live screen of a run: curves of its scores, the champion at play, and a table of the newest generations.

It fits the terminal, whatever its size, and is drawn anew at each refresh. In a low terminal the champion's board, then
generations of the table, then curves are left out; in a narrow one columns of the table are.
"""

from __future__ import annotations

import math
import os
import signal
import sys
import threading
import time
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise
from textwrap import wrap
from typing import Any

import numpy as np
from numpy.typing import NDArray
from rich import box
from rich.console import Console, ConsoleOptions, ConsoleRenderable, Group, RenderableType
from rich.control import Control
from rich.live import Live
from rich.live_render import LiveRender
from rich.progress_bar import ProgressBar
from rich.segment import ControlType, Segment
from rich.table import Table
from rich.text import Text

from evo.cli.terminal.champion_board import ChampionBoard
from evo.cli.terminal.display import HIDE, SHOW, Display, Pace, figures, finite, in_foreground, line_of, where_time_went
from evo.config.experiment import Experiment
from evo.errors import counted, printable_lines
from evo.numbers import UNKNOWN, duration, number
from evo.run import SCORES, TITLES, Row

ROWS = (3, 12)  # least and most generations in the table
COLUMNS = {  # and the least width of a terminal that shows them
    "generation": 0, "best": 0, "mean": 60, "validation": 0, "test": 0, "frames/s": 76, "lane utilisation": 92,
    "time left": 60,
}  # fmt: skip
TABLE_LINES = 5  # of a table and the bar below it, besides its rows
BARS = " ▁▂▃▄▅▆▇█"
LABEL, CURVE = 12, (10, 80)  # characters of a curve's name, and of a curve
GAP = "   "
MOST_POINTS = 4000  # of a curve; an even number
SMALLEST_RANGE = 1e-300
REFRESHES = 8  # per second
ERASE_LINE = Segment("\x1b[K", None, [(ControlType.ERASE_IN_LINE, 0)])  # right of the cursor
ERASE_BELOW = Segment("\x1b[J", None, [(ControlType.CLEAR,)])


class Screen(Display):
    """Shows the run on a terminal; with `verbose`, also where the time of the newest generation went."""

    watched = True

    def __init__(self, verbose: bool = False, console: Console | None = None) -> None:
        self._console, self._verbose = console or Console(file=sys.stdout), verbose
        self._rows: deque[tuple[Row, dict[str, str]]] = deque(maxlen=ROWS[1])
        self._curves: dict[str, list[tuple[int, float]]] = {name: [] for name in SCORES}  # (generation, value)
        self._pace = Pace()
        self._generations = self._replaced = 0
        self._began = time.monotonic()
        self._last = self._began  # when the newest generation ended
        self._board = ChampionBoard(colour=not os.environ.get("NO_COLOR"))
        self._known: tuple[float, ...] = ()  # the moment, width and lines that the curves in _lines were drawn for
        self._lines: list[Any] = []
        self._live: LiveInPlace | None = None

    def __enter__(self) -> Screen:
        self._live = LiveInPlace(get_renderable=self.drawn, console=self._console, refresh_per_second=REFRESHES)
        self._began = self._last = time.monotonic()
        self._live.start(refresh=True)
        if threading.current_thread() is threading.main_thread():
            signal.signal(signal.SIGTSTP, self._suspend)
        return self

    def __exit__(self, *_: object) -> None:
        if signal.getsignal(signal.SIGTSTP) == self._suspend:
            signal.signal(signal.SIGTSTP, signal.SIG_DFL)
        try:
            if self._live is not None:
                live, self._live = self._live, None
                live.transient = not self._rows
                live.stop()
        finally:
            self._board.close()

    def _suspend(self, number: int, frame: object) -> None:
        """Show the cursor while Ctrl-Z has stopped this process, and in the background after that."""
        terminal = self._console.file.fileno()
        os.write(terminal, f"{SHOW}\n".encode())  # the handler may have interrupted a write to the file
        if self._live is not None:
            self._live.begin_below()
        signal.signal(number, signal.SIG_DFL)
        os.kill(os.getpid(), number)  # it goes on here
        signal.signal(number, self._suspend)
        if in_foreground(self._console.file):
            os.write(terminal, HIDE.encode())

    def say(self, text: str) -> None:
        """Show a line that stays, above the rest."""
        self._console.print(printable_lines(text), markup=False, highlight=False, soft_wrap=True)

    def generation(self, row: Row, generations: int) -> None:
        """Show a generation; `generations` is their number in total."""
        self.past(row.generation, row.metrics)
        self._pace.add(row)
        self._rows.append((row, figures(row, self._rows[-1][1] if self._rows else {})))
        self._generations = generations
        self._last = time.monotonic()
        if not in_foreground(self._console.file):
            self.say(line_of(self._rows[-1][1], row, generations, self._pace, self._verbose))

    def past(self, generation: int, metrics: Mapping[str, float]) -> None:
        """Take a generation into the curves."""
        for name, values in list(self._curves.items()):
            if (value := finite(metrics.get(name))) is not None:
                values.append((generation, value))
            if len(values) > MOST_POINTS:  # drawing them takes its time from the training
                pairs = [(late, max(one, other)) for (_, one), (late, other) in pairwise(values[:-1])][::2]
                self._curves[name] = [*pairs, values[-1]]
        self._replaced += int(finite(metrics.get("workers_replaced")) or 0)

    def champion(self, experiment: Experiment, weights: NDArray[Any], generation: int) -> None:
        """Show the champion [P] that a generation brought at play, where the game can be shown."""
        self._board.take(experiment, weights, generation)

    def drawn(self) -> RenderableType:
        """Return the screen as it is now, fewer lines than the terminal has."""
        if not self._rows:
            return Text(f"{self.awaited} ... {time.monotonic() - self._began:.0f} s", style="dim")
        width, height = self._console.width, self._console.height - 1
        times = where_time_went(self._rows[-1][0].metrics) if self._verbose else []
        verbose = [part for line in times for part in wrap(line, width)]
        fixed = TABLE_LINES + len(verbose) + ROWS[0]
        board = self._board.lines() if self._live is not None else []  # what is left at the end does not move
        across = max((line.cell_len for line in board), default=0) + len(GAP)
        if len(board) > height - fixed or width < LABEL + 2 * CURVE[0] + 8 + across:
            board, across = [], 0
        state = self._state(width - across)
        room = (width - across, max(len(board) - len(state), len(SCORES)), height - fixed - len(state))
        if self._known != (key := (self._last, *room)):  # a long run has many generations, and a board moves often
            self._known, self._lines = key, self._curves_of(*room)
        left = [line.copy() for line in self._lines] + [Text(line, style="bold") for line in state]
        if board:
            left += [Text("") for _ in range(len(board) - len(left))]  # each is written to
            across = min(width - across, max(line.cell_len for line in left))
            for line, board_line in zip(left, board, strict=False):
                line.truncate(across, overflow="ellipsis", pad=True)
                line.append(GAP).append_text(board_line)
        rows = max(ROWS[0], min(ROWS[1], height - TABLE_LINES - len(verbose) - len(left)))
        timing = [Text("\n".join(verbose), style="dim")] if verbose else []
        done, across = self._rows[-1][0].generation + 1, min(76, self._console.width - 1)
        bar = ProgressBar(total=self._generations, completed=done, width=across)
        return Group(*left, self._table(rows), *timing, bar)

    def _state(self, width: int) -> list[str]:
        """Return time left, speed and the number of workers, in as few lines as `width` allows."""
        row, shown = self._rows[-1]
        parts, workers = [f"time left {self._time_left()}", f"{shown['frames/s']} frames/s"], row.metrics.get("workers")
        if (workers := finite(workers)) is not None:
            replaced = f" ({self._replaced} replaced)" if self._replaced else ""
            parts.append(f"{counted(int(workers), 'worker')}{replaced}")
        lines = parts[:1]
        for part in parts[1:]:
            fits = len(lines[-1]) + len(GAP) + len(part) <= width
            lines[-1:] = [lines[-1] + GAP + part] if fits else [lines[-1], part]
        return lines

    def _time_left(self) -> str:
        left = self._pace.left(self._rows[-1][0], self._generations)
        return duration(max(left - (time.monotonic() - self._last), 0.0)) if math.isfinite(left) else UNKNOWN

    def _curves_of(self, width: int, wanted: int, most: int) -> list[Any]:
        """Return the curves as about `wanted` lines, of which there may be `most`."""
        kept = {name: tuple(values) for name, values in self._curves.items()}  # training adds to them in another thread
        curves = {name: values for name, values in kept.items() if len(values) > 1}
        if not curves or most < len(curves) or width < LABEL + CURVE[0] + LABEL:
            return []
        each = max(1, min(wanted, most) // len(curves))
        last = max(len(number(values[-1][1])) for values in curves.values())
        room = max(CURVE[0], min(CURVE[1], width - LABEL - last - 1))
        lines = []
        for name, values in curves.items():
            drawn = bars(spread(values, self._rows[-1][0].generation + 1, room), each)
            label = Text().append(f"{TITLES.get(name, name):<{LABEL}}", style="dim").append(drawn[-1], style="cyan")
            blank = [Text(" " * LABEL).append(line, style="cyan") for line in drawn[:-1]]
            lines += [*blank, label.append(f" {number(values[-1][1]):>{last}}", style="bold")]
        return lines

    def _table(self, rows: int) -> RenderableType:
        # Narrow enough that scores of four digits keep all of them on a terminal of 80 columns.
        grid = Table(box=box.SIMPLE_HEAD, header_style="bold", pad_edge=False, padding=(0, 1, 0, 0))
        hidden = () if self._verbose else ("lane utilisation",)
        shown = [title for title, least in COLUMNS.items() if self._console.width >= least and title not in hidden]
        for title in shown:
            grid.add_column(TITLES.get(title, title), justify="right", no_wrap=True)
        newest = self._rows[-1][0]
        for row, figures_of_row in list(self._rows)[-rows:]:
            is_newest = row is newest
            champion = Text(figures_of_row["validation"], style="bold green" if row.new_champion else "")
            ordinal = f"{row.generation + 1}/{self._generations}" if is_newest else f"{row.generation + 1}"
            cells: dict[str, RenderableType] = {
                **figures_of_row, "generation": ordinal, "validation": champion,
                "time left": self._time_left() if is_newest else "",
            }  # fmt: skip
            grid.add_row(*(cells[title] for title in shown), style="" if is_newest else "dim")
        return grid


def spread(values: Sequence[tuple[int, float]], generations: int, width: int) -> list[float]:
    """Return the greatest value of every of `width` equal spans; NaN before the first, else the last one holds on."""
    known, columns = np.array(values), np.full(width, math.nan)
    np.fmax.at(columns, np.minimum(known[:, 0].astype(np.int64) * width // generations, width - 1), known[:, 1])
    newest = np.maximum.accumulate(np.where(np.isnan(columns), 0, np.arange(width)))
    return list(map(float, columns[newest]))


def bars(values: Sequence[float], height: int = 1) -> list[str]:
    """Return values as `height` lines of bars, from the least to the greatest; blank where one is NaN."""
    known = [value for value in values if not math.isnan(value)]
    low, high, steps = min(known), max(known), height * (len(BARS) - 1)
    scale = (steps - 1) / (high - low) if SMALLEST_RANGE < high - low < math.inf else 0.0
    levels = [0 if math.isnan(value) else 1 + (round((value - low) * scale) if scale else 0) for value in values]
    return [
        "".join(BARS[min(max(level - row * (len(BARS) - 1), 0), len(BARS) - 1)] for level in levels)
        for row in reversed(range(height))
    ]


class LiveInPlace(Live):
    """A Rich `Live` that does not erase its lines before it draws them anew, which would flicker."""

    def begin_below(self) -> None:
        """Draw the next time below what the terminal shows by then, not over these lines."""
        self._live_render._shape = None

    def process_renderables(self, renderables: list[ConsoleRenderable]) -> list[ConsoleRenderable]:
        """Return the output of a refresh; text that is printed above the display moves it, as in Rich."""
        with self._lock:
            if not in_foreground(self.console.file):
                self.begin_below()
                return renderables
            height = self._live_render.last_render_height
            if (
                not height
                or not self.console.is_interactive
                or any(not isinstance(one, Control) for one in renderables)
            ):
                return super().process_renderables(renderables)
            self._live_render.vertical_overflow = self.vertical_overflow
            top = Control(ControlType.CARRIAGE_RETURN, *[(ControlType.CURSOR_UP, 1)] * (height - 1))
            return [top, _Overwriting(self._live_render)]


class _Overwriting:
    """Draws lines over others: erases what is right of each, and what is below the last one."""

    def __init__(self, render: LiveRender) -> None:
        self._render = render

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> Iterator[Segment]:
        across = 0
        for segment in console.render(self._render, options):
            if segment.text == "\n":
                if across < options.max_width:  # else the cursor may stand on the last cell
                    yield ERASE_LINE
                across = 0
            else:
                across += segment.cell_length
            yield segment
        if across < options.max_width:
            yield ERASE_BELOW
