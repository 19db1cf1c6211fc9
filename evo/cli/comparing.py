"""Trains the runs of a comparison or a sweep, one after the other, each in a process of its own.

TensorFlow is set up once in a process, so runs with other threads cannot share one. A run that crashes a library, or
that the system ends for memory, ends itself only. A run that was begun is continued, and one that has ended is only
read, so a comparison that was stopped in any way goes on by the same command.
"""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from evo.cli.terminal.display import is_live
from evo.errors import DataError, LockedError, ResourceError, first_line, printable

if TYPE_CHECKING:
    from evo.comparison.outcomes import Outcome
    from evo.comparison.plan import Member

Trainer = Callable[["Member"], str]  # trains a run to its end; returns why it failed, or nothing

PROGRAM = "from evo.cli.main import main_run; sys.exit(main_run())"
NO_CHAMPION = "it has no champion: nothing was validated, or no finalist had finite scores"
SHOWN_EVERY = 1.0  # seconds, on a terminal


def train_all(
    members: Sequence[Member], trainer: Trainer | None = None, describe: Callable[[Outcome], str] | None = None
) -> list[Outcome]:
    """Train what is not yet trained, show a line a run in the words of `describe`, and return what came of each."""
    from evo.comparison import outcomes

    outcomes.refuse_others(members)
    found = []
    for number, member in enumerate(members, 1):
        outcome = _trained(member, trainer or in_own_process)
        found.append(outcome)
        description = (describe or described)(outcome)
        _show(f"{number}/{len(members)}  {outcome.method}  seed {outcome.seed}  {description}")
    return found


def described(outcome: Outcome) -> str:
    """Return what came of a run, in words."""
    score = outcome.score
    if score is None:
        return f"failed: {outcome.failure}"
    low, high = score.ci95
    scored = f"score {score.mean:z.2f} ({low:z.2f} to {high:z.2f})"
    return f"{outcome.frames:,} frames  {scored}  {outcome.seconds:,.0f} s"


def _trained(member: Member, trainer: Trainer) -> Outcome:
    from evo.comparison import outcomes

    try:
        outcome = outcomes.of_member(member)
        if outcome is not None:
            return outcome
        failure = trainer(member)
        outcome = None if failure else outcomes.of_member(member)
    except (DataError, ResourceError, MemoryError) as error:
        outcome, failure = None, first_line(error)
    return outcome or outcomes.failed(member, failure or NO_CHAMPION)


def in_own_process(member: Member) -> str:
    """Begin or continue a run as `evo resume` does; return why it failed, or nothing.

    LockedError: another process trains it.
    """
    from evo.plugins import registry
    from evo.training.resuming import open_or_begin
    from evo.workers.process import interpreter

    open_or_begin(member.experiment, member.directory).close()
    words = ["--resume", str(member.directory), "--quiet", "--json"]
    plugins = [word for name in registry.loaded() for word in ("--plugin", name)]
    process = interpreter(PROGRAM, [*words, *plugins])  # one that lived on would hold the lock
    try:
        out, err = _communicated(process, member)
    except BaseException:
        _end(process)
        raise
    if process.returncode == 0:
        return ""
    if process.returncode == LockedError.exit_code:
        raise LockedError(first_line(err))
    if process.returncode in (1, *(-number for number in (signal.SIGSEGV, signal.SIGABRT, signal.SIGILL))):
        print(err.rstrip("\n"), file=sys.stderr, flush=True)
    return _why(process.returncode, out)


def _communicated(process: subprocess.Popen[str], member: Member) -> tuple[str, str]:
    """Return the output of a run; show on a terminal how far it is."""
    while True:
        try:
            return process.communicate(timeout=SHOWN_EVERY if is_live(sys.stdout) else None)
        except subprocess.TimeoutExpired:
            _progress(member)


def _progress(member: Member) -> None:
    from evo.store.metrics import MetricsFile

    lines = MetricsFile(member.directory).read()
    frames = sum(line.get("frames") or 0 for line in lines)
    progress = f"{member.method}  seed {member.experiment.run.seed}  {len(lines)} generations, {frames:,.0f} frames"
    print(f"\r\x1b[K{printable(progress)}", end="", flush=True)


def _show(line: str) -> None:
    print(("\r\x1b[K" if is_live(sys.stdout) else "") + printable(line), flush=True)


def _end(process: subprocess.Popen[str]) -> None:
    """Have a run stop at its last commit, and wait for it."""
    from evo.workers.process import ignored

    with ignored():
        process.terminate()
        process.communicate()


def _why(code: int, out: str) -> str:
    """Return in words why a run ended with an exit code."""
    if code < 0:
        return f"its process was ended by {signal.Signals(-code).name}"
    try:
        error = json.loads(out.splitlines()[-1])["error"]
    except (IndexError, KeyError, TypeError, ValueError):
        error = None
    return first_line(error) if error else f"its process ended with exit code {code}"
