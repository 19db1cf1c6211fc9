"""Trains the runs of a comparison or a sweep, each in a process of its own, as many at a time as there are cores for.

TensorFlow is set up once in a process, so runs with other threads cannot share one. A run that crashes a library, or
that the system ends for memory, ends itself only. A run that was begun is continued, and one that has ended is only
read, so a comparison that was stopped in any way goes on by the same call.
"""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from collections import deque
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from pathlib import Path

from evo.comparison.file import ComparisonFile
from evo.comparison.runs import (
    NO_CHAMPION,
    ComparedRun,
    PlannedRun,
    failed_run,
    refuse_other_runs,
    runs_in,
    trained_run,
)
from evo.comparison.tables import Comparison, comparison_of
from evo.errors import (
    ConfigurationError,
    DataError,
    EvoError,
    LockedError,
    OutOfMemoryError,
    PoisonError,
    ResourceError,
    first_line,
    path_of,
    require_callable,
)
from evo.files.layout import MANIFEST
from evo.files.lock import held
from evo.plugins import registry
from evo.process import ignored, interpreter
from evo.setup import CLUSTERS, LearnerOptions
from evo.store.metrics import MetricsFile
from evo.training.beginning import open_or_begin
from evo.workers import hardware

Show = Callable[[str], object]  # shows a line
Trained = subprocess.Popen[str] | str  # a process that trains a run, or why one that is over failed, or nothing

# Exit codes of the processes of runs here; outside, these errors have that of any ResourceError.
OWN_EXIT_CODES: dict[int, type[ResourceError]] = {64: PoisonError, 65: OutOfMemoryError}
PROGRAM = "import evo.errors\n"
PROGRAM += "".join(f"evo.errors.{one.__name__}.exit_code = {code}\n" for code, one in OWN_EXIT_CODES.items())
PROGRAM += "from evo.cli.main import main_run\nsys.exit(main_run())"
FAILURES = (DataError, ResourceError, MemoryError)  # of one run, which leave the others alone
SHOWN_EVERY = 1.0  # seconds
FROM_OUTSIDE = {signal.SIGHUP, signal.SIGINT, signal.SIGQUIT, signal.SIGKILL, signal.SIGTERM}
LOOK_EVERY = 0.05  # seconds for each of several runs


def compare(
    *what: str | Path,
    workers: int | str | None = None,
    backend: str | None = None,
    plugins: Sequence[registry.Plugin] = (),
    progress: Show | None = None,
) -> Comparison:
    """Train what is left to train of a comparison file, or read run directories; return tables and verdicts.

    `progress` gets a line when a run ends. `workers`, `backend` and `plugins` are as the flags of a run. A run that
    fails ends none of the others: its row says why. ConfigurationError: all mistakes of the file, a line each.
    DataError: a directory is of no run. LockedError: another process trains it.
    """
    require_callable(progress)
    if not what:
        raise ConfigurationError("name a comparison file, or the directories of runs")
    file = comparison_file_among(paths := [path_of("compare", one) for one in what])
    registry.load(plugins, file)
    if file is None:
        return comparison_of(runs_in(paths))
    flags = {"workers": None if workers is None else str(workers), "backend": backend}
    return compared(ComparisonFile.read(file, flags), progress)


def compared(file: ComparisonFile, progress: Show | None = None, live: Show | None = None) -> Comparison:
    """Train what is left to train of a comparison, and return its tables and verdicts; see `train`."""
    with held(file.directory):
        runs = train(file.runs, progress=progress, live=live)
    return comparison_of(runs, file.section.reach)


def comparison_file_among(paths: Sequence[Path]) -> Path | None:
    """Return the comparison file where one was named, None for run directories; ConfigurationError: neither."""
    files = [path for path in paths if path.is_file() or path.suffix == ".toml"]
    for file in files:
        if (file.parent / MANIFEST).exists():
            raise ConfigurationError(f"{file}: is a file of a run; give its directory, {file.parent}")
        if file.suffix == ".h5":
            raise ConfigurationError(f"{file}: is a champion; give the directory of its run")
    if files and len(paths) > 1:
        raise ConfigurationError(f"{files[0]}: give one comparison file, or directories of runs only")
    return files[0] if files else None


def result_text(run: ComparedRun) -> str:
    """Return the result of a run in words."""
    if run.score is None:
        return f"failed: {run.failure}"
    (low, high), exact = run.score.ci95, run.experiment.make_environment().is_exact
    interval = f" ({low:z.2f} to {high:z.2f})" if run.score.episodes > 1 and not exact else ""
    return f"{run.spent.frames:,} frames  score {run.score.mean:z.2f}{interval}  {run.spent.seconds:,.0f} s"


def train(
    planned: Sequence[PlannedRun],
    *,
    progress: Show | None = None,
    live: Show | None = None,
    describe: Callable[[ComparedRun], str] = result_text,
    begin: Callable[[PlannedRun], Trained] | None = None,
    option: str = "comparison.directory",
) -> list[ComparedRun]:
    """Train what is not yet trained, and return the result of each run.

    `progress` gets a line in the words of `describe` when a run ends; `live` gets one about once a second that says
    how far the others are. Each run has a process of its own, which `begin` starts, and as many train side by side as
    there are cores for. ConfigurationError: a directory has another run; `option` says where directories are.
    """
    refuse_other_runs(planned, option)
    found: dict[int, ComparedRun] = {}
    for number, run in _side_by_side(planned, live, begin or _process_of):
        found[number] = run
        if progress is not None:
            progress(f"{len(found)}/{len(planned)}  {run.method}  seed {run.seed}  {describe(run)}")
    return [found[number] for number in range(len(planned))]


def at_once(planned: Sequence[PlannedRun]) -> int:
    """Return how many of these runs there are cores for at a time; 1 where one of them takes all, or uses a GPU."""
    most, experiments = 1, [run.experiment for run in planned]
    on_gpus = any(one.learns_in_tensorflow or one.policy.player == "tensorflow" for one in experiments)
    if on_gpus and hardware.visible():
        return 1
    for experiment in experiments:
        learning = _cores_of(experiment.learner) if experiment.learns else 1
        most = max(most, experiment.workers.processes, learning)
    return max(1, hardware.cores() // most)


def _cores_of(learner: LearnerOptions) -> int:
    if learner.threads == "auto" and learner.is_exact:
        return 1  # those of the workers
    return learner.thread_count * (learner.processes if learner.strategy in CLUSTERS else 1)


def _side_by_side(
    planned: Sequence[PlannedRun], live: Show | None, begin: Callable[[PlannedRun], Trained]
) -> Iterator[tuple[int, ComparedRun]]:
    """Yield number and result of every run as it ends; LockedError: another process trains one, and all others stop."""
    most, waiting = at_once(planned), deque(enumerate(planned))
    running: dict[int, subprocess.Popen[str]] = {}
    try:
        while waiting or running:
            while waiting and len(running) < most:
                number, run = waiting.popleft()
                begun = _begin(run, begin)
                if isinstance(begun, subprocess.Popen):
                    running[number] = begun
                else:
                    yield number, _ended(run, EvoError(begun) if begun else None) if isinstance(begun, str) else begun
            if running:
                number, out, err = _first_to_end(planned, running, live)
                code = running.pop(number).returncode
                yield number, _ended(planned[number], _failure(code, out, err))
    finally:
        _stop(running.values())


def _begin(run: PlannedRun, begin: Callable[[PlannedRun], Trained]) -> Trained | ComparedRun:
    try:
        found = trained_run(run)
        return begin(run) if found is None else found
    except FAILURES as error:
        return failed_run(run, error)


def _ended(run: PlannedRun, failure: EvoError | None) -> ComparedRun:
    try:
        found = None if failure else trained_run(run)
    except FAILURES as error:
        return failed_run(run, error)
    return found or failed_run(run, failure or EvoError(NO_CHAMPION))


def _process_of(run: PlannedRun) -> subprocess.Popen[str]:
    """Begin or continue a run as `evo resume` does, in a process of its own."""
    open_or_begin(run.experiment, run.directory).close()
    total = str(run.experiment.generations)  # one that was begun for more only has its champion tested
    words = ["--resume", str(run.directory), "--generations", total, "--quiet", "--json"]
    plugins = [word for name in registry.loaded() for word in ("--plugin", name)]
    return interpreter(PROGRAM, [*words, *run.experiment.hosts, *plugins])  # one that lived on would hold the lock


def _first_to_end(
    planned: Sequence[PlannedRun], running: Mapping[int, subprocess.Popen[str]], live: Show | None
) -> tuple[int, str, str]:
    shown = time.monotonic()
    while True:
        for number, process in running.items():
            try:
                return number, *process.communicate(timeout=None if len(running) == 1 and not live else LOOK_EVERY)
            except subprocess.TimeoutExpired:
                pass
        if live and time.monotonic() - shown > SHOWN_EVERY:
            shown = time.monotonic()
            live("  |  ".join(_progress_line(planned[number]) for number in running))


def _progress_line(run: PlannedRun) -> str:
    lines = MetricsFile(run.directory).read()
    frames = sum(line.get("frames") or 0 for line in lines)
    return f"{run.method}  seed {run.experiment.run.seed}  {len(lines)} generations, {frames:,.0f} frames"


def _failure(code: int, out: str, err: str) -> EvoError | None:
    """Return why a run ended with an exit code; ResourceError, but no PoisonError: for no fault of its own.

    LockedError: another process trains it.
    """
    if code == 0:
        return None
    if code == LockedError.exit_code:
        raise LockedError(first_line(err))
    if code in (1, *(-number for number in (signal.SIGSEGV, signal.SIGABRT, signal.SIGILL))):
        print(err.rstrip("\n"), file=sys.stderr, flush=True)
    number = -code if code < 0 else code - 128  # as a process reports it that has ended itself
    if number in {*signal.Signals}:
        outside = OutOfMemoryError if number == signal.SIGKILL else ResourceError
        kind = outside if number in FROM_OUTSIDE else EvoError
        return kind(f"its process was ended by {signal.Signals(number).name}")
    try:
        error = json.loads(out.splitlines()[-1])["error"]
    except (IndexError, KeyError, TypeError, ValueError):
        error = None
    kind = OWN_EXIT_CODES.get(code, ResourceError) if code in (ResourceError.exit_code, *OWN_EXIT_CODES) else EvoError
    return kind(first_line(error) if error else f"its process ended with exit code {code}")


def _stop(processes: Collection[subprocess.Popen[str]]) -> None:
    with ignored():
        for process in processes:
            process.terminate()
        for process in processes:
            process.communicate()
