"""Trains the runs of a comparison or a sweep, each in a process of its own, as many at a time as there are cores for.

TensorFlow is set up once in a process, so runs with other threads cannot share one. A run that crashes a library, or
that the system ends for memory, ends itself only. A run that was begun is continued, and one that has ended is only
read, so a comparison that was stopped in any way goes on by the same command.
"""

from __future__ import annotations

import json
import shutil
import signal
import subprocess
import sys
import time
from collections import deque
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, TypeVar

from evo.cli.terminal.display import is_live
from evo.errors import DataError, LockedError, ResourceError, first_line, printable
from evo.setup import CLUSTERS, LearnerOptions

if TYPE_CHECKING:
    from evo.comparison.outcomes import Outcome
    from evo.comparison.plan import Member
    from evo.config.experiment import Experiment

Trainer = Callable[["Member"], str]  # trains a run to its end; returns why it failed, or nothing

Begun = TypeVar("Begun")

PROGRAM = "from evo.cli.main import main_run; sys.exit(main_run())"
FAILURES = (DataError, ResourceError, MemoryError)  # of one run, which leave the others alone
NO_CHAMPION = "it has no champion: nothing was validated, or no finalist had finite scores"
SHOWN_EVERY = 1.0  # seconds, on a terminal
LOOK_EVERY = 0.05  # seconds for each of several runs


def train_all(
    members: Sequence[Member], trainer: Trainer | None = None, describe: Callable[[Outcome], str] | None = None
) -> list[Outcome]:
    """Train what is not yet trained, show a line a run in the words of `describe`, and return what came of each.

    Without a trainer, each run has a process of its own, and as many train side by side as there are cores for.
    """
    from evo.comparison import outcomes

    outcomes.refuse_others(members)
    found: dict[int, Outcome] = {}
    for number, outcome in _side_by_side(members) if trainer is None else _one_by_one(members, trainer):
        found[number] = outcome
        description = (describe or described)(outcome)
        _show(f"{len(found)}/{len(members)}  {outcome.method}  seed {outcome.seed}  {description}")
    return [found[number] for number in range(len(members))]


def described(outcome: Outcome) -> str:
    """Return what came of a run, in words."""
    score = outcome.score
    if score is None:
        return f"failed: {outcome.failure}"
    low, high = score.ci95
    scored = f"score {score.mean:z.2f} ({low:z.2f} to {high:z.2f})"
    return f"{outcome.frames:,} frames  {scored}  {outcome.seconds:,.0f} s"


def at_once(members: Sequence[Member]) -> int:
    """Return how many of these runs there are cores for at a time; 1 where one of them takes all, or uses a GPU."""
    from evo.workers import gpus
    from evo.workers.devices import cores, processes

    there, most = cores(), 1
    if gpus.visible() and any(_may_use_a_gpu(member.experiment) for member in members):
        return 1
    for member in members:
        experiment = member.experiment
        learning = _cores_of(experiment.learner) if experiment.learns else 1
        most = max(most, processes(experiment.workers), learning)
    return max(1, there // most)


def _cores_of(learner: LearnerOptions) -> int:
    if learner.threads == "auto" and learner.is_exact:
        return 1  # those of the workers
    return learner.thread_count * (learner.processes if learner.strategy in CLUSTERS else 1)


def _may_use_a_gpu(experiment: Experiment) -> bool:
    return experiment.learns_in_tensorflow or experiment.policy.player == "tensorflow"


def _one_by_one(members: Sequence[Member], trainer: Trainer) -> Iterator[tuple[int, Outcome]]:
    """Yield the number and the outcome of every run, which `trainer` trains."""
    for number, member in enumerate(members):
        begun = _begin(member, trainer)
        yield number, _outcome(member, begun) if isinstance(begun, str) else begun


def _side_by_side(members: Sequence[Member]) -> Iterator[tuple[int, Outcome]]:
    """Yield the number and the outcome of every run as it ends, each in a process of its own.

    LockedError: another process trains one of them; then all others stop too.
    """
    most, waiting = at_once(members), deque(enumerate(members))
    running: dict[int, subprocess.Popen[str]] = {}
    try:
        while waiting or running:
            while waiting and len(running) < most:
                number, member = waiting.popleft()
                begun = _begin(member, _process_of)
                if isinstance(begun, subprocess.Popen):
                    running[number] = begun
                else:
                    yield number, begun
            if running:
                number, out, err = _first_to_end([members[number] for number in running], running)
                code = running.pop(number).returncode
                yield number, _outcome(members[number], _failure(code, out, err))
    finally:
        _end(running.values())


def _begin(member: Member, begin: Callable[[Member], Begun]) -> Begun | Outcome:
    """Begin to train, or return the outcome: of a run that has ended before, or of one that cannot begin."""
    from evo.comparison import outcomes

    try:
        outcome = outcomes.of_member(member)
        return begin(member) if outcome is None else outcome
    except FAILURES as error:
        return outcomes.failed(member, first_line(error))


def _outcome(member: Member, failure: str) -> Outcome:
    """Return the outcome of a run that has just ended, and may have failed."""
    from evo.comparison import outcomes

    try:
        outcome = None if failure else outcomes.of_member(member)
    except FAILURES as error:
        outcome, failure = None, first_line(error)
    return outcome or outcomes.failed(member, failure or NO_CHAMPION)


def _process_of(member: Member) -> subprocess.Popen[str]:
    """Begin or continue a run as `evo resume` does, in a process of its own."""
    from evo.plugins import registry
    from evo.training.resuming import open_or_begin
    from evo.workers.process import interpreter

    open_or_begin(member.experiment, member.directory).close()
    total = str(member.experiment.generations)  # one that was begun for more only has its champion tested
    words = ["--resume", str(member.directory), "--generations", total, "--quiet", "--json"]
    plugins = [word for name in registry.loaded() for word in ("--plugin", name)]
    return interpreter(PROGRAM, [*words, *plugins])  # one that lived on would hold the lock


def _first_to_end(members: Sequence[Member], running: Mapping[int, subprocess.Popen[str]]) -> tuple[int, str, str]:
    """Wait for one of these runs; return its number and its output. Show on a terminal how far all are."""
    shown = time.monotonic()
    while True:
        for number, process in running.items():
            try:
                return number, *process.communicate(timeout=None if len(running) == 1 and not live() else LOOK_EVERY)
            except subprocess.TimeoutExpired:
                pass
        if live() and time.monotonic() - shown > SHOWN_EVERY:
            shown = time.monotonic()
            _progress(members)


def live() -> bool:
    """Return whether progress is shown."""
    return is_live(sys.stdout)


def _failure(code: int, out: str, err: str) -> str:
    """Return why a run failed, or nothing; LockedError: another process trains it."""
    if code == 0:
        return ""
    if code == LockedError.exit_code:
        raise LockedError(first_line(err))
    if code in (1, *(-number for number in (signal.SIGSEGV, signal.SIGABRT, signal.SIGILL))):
        print(err.rstrip("\n"), file=sys.stderr, flush=True)
    return _why(code, out)


def _progress(members: Sequence[Member]) -> None:
    from evo.store.metrics import MetricsFile

    texts = []
    for member in members:
        lines = MetricsFile(member.directory).read()
        frames = sum(line.get("frames") or 0 for line in lines)
        about = f"{len(lines)} generations, {frames:,.0f} frames"
        texts.append(f"{member.method}  seed {member.experiment.run.seed}  {about}")
    width = shutil.get_terminal_size().columns - 1
    print(f"\r\x1b[K{printable('  |  '.join(texts))[:width]}", end="", flush=True)


def _show(line: str) -> None:
    print(("\r\x1b[K" if is_live(sys.stdout) else "") + printable(line), flush=True)


def _end(processes: Collection[subprocess.Popen[str]]) -> None:
    """Have runs stop at their last commits, and wait for them."""
    from evo.workers.process import ignored

    with ignored():
        for process in processes:
            process.terminate()
        for process in processes:
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
