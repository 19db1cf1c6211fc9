"""What a run shows while it trains: a live screen on a terminal, a plain line a generation anywhere else.

Where the time of a generation went, shown where it is asked for, stands under the names of the metrics in
`evo.training.accounting`.
"""

from __future__ import annotations

import math
import os
import shutil
import sys
from collections import deque
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from typing import IO, Any, TextIO

from numpy.typing import NDArray

from evo.config.experiment import Experiment
from evo.config.sections import amount_text
from evo.errors import counted, printable_lines
from evo.numbers import UNKNOWN, amount, duration, number, percentage, size
from evo.run import SCORES, TITLES, Row
from evo.store.champion import Score
from evo.training.testing import Baseline

RECENT = 20  # generations that the time left is estimated from
HIDE, SHOW = "\x1b[?25l", "\x1b[?25h"  # the cursor
BYTES = ("bytes_published", "bytes_sent", "bytes_received")


class Display(AbstractContextManager["Display"]):
    """Shows messages only, on standard output."""

    watched = False  # by a person, in a terminal
    awaited = "starting workers, then the first generation"  # what is done until the first generation ends

    def __exit__(self, *_: object) -> None:
        pass

    def say(self, text: str) -> None:
        """Show a line that stays."""
        print(printable_lines(text), flush=True)

    def generation(self, row: Row, generations: int) -> None:
        """Show a generation; `generations` is their number in total."""

    def past(self, generation: int, metrics: Mapping[str, float]) -> None:
        """Take in a generation that was trained before."""

    def champion(self, experiment: Experiment, weights: NDArray[Any], generation: int) -> None:
        """Show the champion [P] that a generation brought."""


class Lines(Display):
    """Shows a plain line a generation; with `verbose`, also how well workers and lanes are used."""

    def __init__(self, verbose: bool = False) -> None:
        self._pace, self._shown, self._verbose = Pace(), dict[str, str](), verbose

    def generation(self, row: Row, generations: int) -> None:
        """Show a generation; `generations` is their number in total."""
        self._shown = figures(row, self._shown)
        self._pace.add(row)
        print(line_of(self._shown, row, generations, self._pace, self._verbose), flush=True)


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
        """Return the seconds that remain after a generation; NaN while they are unknown."""
        if self._count < 2 and row.generation + 1 < generations:
            return math.nan
        return (generations - row.generation - 1) * sum(self._seconds) / len(self._seconds)


def is_live(output: TextIO) -> bool:
    """Return whether an output is an interactive terminal whose lines can be overwritten."""
    able = output.isatty() and os.environ.get("TERM", "dumb") not in ("dumb", "unknown")
    return able and not os.environ.get("CI") and in_foreground(output)


def in_foreground(terminal: IO[str]) -> bool:
    """Return whether this process may set and redraw a terminal: a job in the background would be stopped."""
    try:
        return os.tcgetpgrp(terminal.fileno()) == os.getpgrp()
    except (OSError, ValueError):  # not the terminal of a shell
        return True


def print_line(text: str) -> None:
    """Print a line that stays, over one that `show_in_place` has shown."""
    print(("\r\x1b[K" if is_live(sys.stdout) else "") + printable_lines(text), flush=True)


def show_in_place(stream: TextIO | None = None) -> Callable[[str], None] | None:
    """Return a function that shows a line in place of the last one; None where `stream` (stdout) is no terminal."""
    if not is_live(stream or sys.stdout):
        return None

    def show(text: str) -> None:
        if not in_foreground(sys.stdout):
            return
        width = shutil.get_terminal_size().columns - 1
        print(f"\r\x1b[K{printable_lines(text)[:width]}", end="", file=stream, flush=True)

    return show


def line_of(shown: Mapping[str, str], row: Row, generations: int, pace: Pace, verbose: bool) -> str:
    """Return a generation, with its `figures`, as a line."""
    parts = [
        f"generation {row.generation + 1:>{len(str(generations))}}/{generations}",
        *(f"{TITLES.get(name, name)} {shown[name]}" for name in SCORES),
        f"{shown['frames/s']} frames/s",
        *([f"lane utilisation {shown['lane utilisation']}", share_of_acting(row.metrics)] if verbose else []),
        f"time left {duration(pace.left(row, generations))}",
    ]
    return "  ".join(parts)


def figures(row: Row, before: Mapping[str, str]) -> dict[str, str]:
    """Return the figures of a generation as text, by column; an untested one has the test score of `before`."""
    names = (*SCORES, "frames", "seconds", "lane_utilisation")
    found = {name: float(row.metrics.get(name, math.nan)) for name in names}
    shown = {name: number(found[name]) for name in SCORES}
    if math.isnan(found["test"]):
        shown["test"] = before.get("test", UNKNOWN)
    used, seconds = found["lane_utilisation"], found["seconds"] - row.metrics.get("seconds_validating", 0.0)
    shown["frames/s"] = amount(found["frames"] / seconds) if seconds > 0 else UNKNOWN
    shown["lane utilisation"] = f"{100 * used:.0f} %" if math.isfinite(used) else UNKNOWN
    return shown


def finite(value: object) -> float | None:
    """Return a metric as a finite number; None where it is not a number or not finite, as in an untrusted file."""
    try:
        found = float(value) if isinstance(value, int | float) else math.nan
    except OverflowError:
        return None
    return found if math.isfinite(found) else None


def share_of_acting(metrics: Mapping[str, float]) -> str:
    """Return the share of a generation in which workers played."""
    seconds = metrics.get("seconds", math.nan)
    share = metrics.get("seconds_acting", math.nan) / seconds if seconds else math.nan
    return f"acting {100 * share:.0f} %" if math.isfinite(share) else f"acting {UNKNOWN}"


def where_time_went(metrics: Mapping[str, float]) -> list[str]:
    """Return a line of the parts that add up to a generation, and one of the other figures."""

    def shown(name: str) -> str:
        value = metrics.get(f"seconds_{name}", math.nan)
        digits = 2 if value < 9.995 else 1 if value < 99.95 else 0  # five columns, so that a line fits
        return f"{name} {value:.{digits}f} s" if math.isfinite(value) else f"{name} {UNKNOWN}"

    transferred = sum(metrics.get(name, math.nan) for name in BYTES)
    parts = [share_of_acting(metrics), *map(shown, ("idle", "moving", "learning", "master"))]
    others = [shown("straggling"), shown("committing"), f"bytes {size(transferred)}"]
    return ["  ".join(parts), "  ".join(others)]


def headline(experiment: Experiment) -> str:
    """Return what will be done, in lines that fit into 80 columns; also budgets, and evaluation of dear frames."""
    limits = experiment.run.budget.limits().items()
    evaluation = "".join(f"\nbudget of {amount_text(*one)}, which the last generation may exceed" for one in limits)
    last = experiment.generations
    played = last * experiment.options.frames_per_generation()
    if 0 < played < experiment.run.budget.frames:
        evaluation += f"\n{counted(last, 'generation')} play {played:,} of them: for more, set run.generations"
    if experiment.make_environment().dear:
        validation, test = experiment.validation, experiment.test
        how = f"{counted(validation.episodes, 'episode')} each for {counted(validation.finalists, 'network')}"
        when = f"every {counted(test.every, 'generation')}" if test.every else "at the end"
        often = f"every {counted(validation.every, 'generation')}"
        evaluation += (
            f"\nvalidation {often if validation.every < last else 'of the first and last generation'}, {how}\n"
            f"test of {counted(test.episodes, 'episode')} {when}"
        )
    return (
        f"{experiment.algorithm} on {experiment.environment.title()}\n"
        f"{experiment.network().short_name} of {experiment.network().size:,} weights; seed {experiment.run.seed}; "
        f"{counted(experiment.generations, 'generation')}{evaluation}"
    )


def score_text(score: Score, exact: bool) -> str:
    """Return a test score in two lines, which fit into 80 columns; in one where one call of a function is `exact`."""
    if exact:
        return f"{score.mean:z.2f}, exact: the function takes no seed and was called once"
    low, high = score.ci95
    interval = f", 95 % interval {low:z.2f} to {high:z.2f}" if score.episodes > 1 else ""
    wins = f", won {percentage(score.win_rate)} %" if score.win_rate is not None else ""
    return (
        f"{score.mean:z.2f} on {counted(score.episodes, 'test episode')}{interval}\n"
        f"median {score.median:zg}, best {score.max:zg}{wins}"
    )


def baselines_text(baselines: Mapping[str, Baseline], score: Score) -> str:
    """Return the test scores of players that need no learning, a line each, which say how many episodes they played."""
    lines = []
    for name, other in baselines.items():
        low, high = other.ci95
        interval = f" ({low:z.1f} to {high:z.1f})" if other.episodes > 1 else ""
        first = f", on the first {counted(other.episodes, 'episode')}" if other.episodes < score.episodes else ""
        lines.append(f"{name} player {other.mean:z.1f}{interval}{first}")
    return "\n".join(lines)
