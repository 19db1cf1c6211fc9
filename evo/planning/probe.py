"""Plays and learns for some seconds as a run would, in a temporary directory, and measures what that takes.

Rounds that would take too long are played in part: the results of tasks that were played stand in for those of all
others, so that the algorithm learns from, stores and publishes as much as ever.
"""

from __future__ import annotations

import json
import tempfile
import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from pydantic import TypeAdapter

from evo.config.experiment import Experiment
from evo.config.sections import Budget
from evo.errors import ConfigurationError, DataError, EvoError, LockedError, ResourceError, first_line
from evo.files.layout import CONFIG
from evo.planning.memory import Peak, Watch
from evo.plugins import registry
from evo.process import interpreter
from evo.records import Effort, Episodes, Evaluator, Played, Result, Task
from evo.run import generations
from evo.store.store import Store
from evo.training.beginning import open_or_begin
from evo.training.session import Session
from evo.workers.hardware import cores

SECONDS = 10.0  # of a probe, about
SHARE = 4  # parts of a probe: no round is longer than one of them
GENERATIONS = 2  # at least; the first one starts the workers
MOST_GENERATIONS = 10_000_000
COMPILING = 2.0  # times as long as any other generation: the first one had to compile
NEVER = 10_000_000  # generations between tests
FIRST_TASKS = 2  # of a worker, in the first part of a round
PROGRAM = (
    "from evo.cli.main import failure_of; from evo.planning.probe import main; from evo.process import leave; "
    "sys.exit(leave(main(sys.argv[1], sys.argv[2:], failure_of)))"
)
FAILURES = {one.exit_code: one for one in (EvoError, ConfigurationError, DataError, LockedError, ResourceError)}


@dataclass(frozen=True)
class ProbedRound:
    """Tasks that were played together, or some of them."""

    evaluation: bool  # validation or test
    tasks: int
    played: int  # of the tasks
    seconds: float  # that these took
    whole: float  # seconds that all of them take

    @property
    def missing(self) -> float:
        """Return the seconds of the tasks that were not played."""
        return self.whole - self.seconds


@dataclass(frozen=True)
class ProbedGeneration:
    """A generation of a probe."""

    metrics: dict[str, float | None]
    rounds: tuple[ProbedRound, ...]
    wall: float  # seconds since the one before was committed

    def spent(self, name: str) -> float:
        """Return what it spent of an amount; of time, as if all of its tasks were played."""
        amount, seconds = self.metrics[name] or 0.0, self.metrics["seconds"] or 1.0
        missing = sum(one.missing for one in self.rounds)
        if name == "cpu_seconds":
            return amount * (1 + missing / seconds)
        return amount + missing if name == "seconds" else amount

    @property
    def validates(self) -> bool:
        """Return whether it has played validation episodes."""
        return any(one.evaluation for one in self.rounds)

    def spent_validating(self, name: str) -> float:
        """Return the amount that its validation spent."""
        if name == "seconds":
            return sum(one.whole for one in self.rounds if one.evaluation)
        if not self.validates:
            return 0.0
        frames = self.metrics.get("frames_validating") or 0.0
        whole = (self.metrics["frames"] or 0.0) + frames or 1.0
        if name in ("frames", "forward_passes"):
            return frames if name == "forward_passes" else 0.0
        if name == "multiply_adds":
            passes = (self.metrics["forward_passes"] or 0.0) + 2 * (self.metrics["backward_passes"] or 0.0)
            return self.spent(name) * frames / max(passes, 1.0)
        return self.spent(name) * frames / whole


@dataclass(frozen=True)
class Probe:
    """What a probe has measured."""

    start: float  # seconds until the first generation began
    generations: tuple[ProbedGeneration, ...]
    test: ProbedRound | None  # None: there was no champion
    growth: int  # bytes that the algorithm's memory will yet grow by
    cores: int  # of this machine
    checkpoint: int  # bytes of one
    published: int  # bytes of weights that workers map
    champion: int  # bytes of its files
    each: float  # bytes that a generation adds for ever: record, line of the manifest, line of metrics
    peak: Peak | None = None


MEASURED = TypeAdapter(Probe)


class Sampled:
    """An evaluator that plays some tasks of a round where all of them would take too long."""

    def __init__(self, evaluator: Evaluator, seconds: float, workers: int) -> None:
        self._evaluator, self._seconds, self._workers = evaluator, seconds, workers
        self._rates: dict[tuple[bool, int], float] = {}  # seconds of a task, by `evaluation` and `training`
        self._rounds: list[ProbedRound] = []

    def take(self) -> tuple[ProbedRound, ...]:
        """Return the rounds since the last call."""
        rounds, self._rounds = tuple(self._rounds), []
        return rounds

    def map(self, tasks: Sequence[Task]) -> Played:
        """Play the first tasks, as many as there is time for, and of every other shape one; copy the other results."""
        evaluation, began = bool(tasks) and tasks[0].evaluation, time.monotonic()
        place = evaluation, tasks[0].training if tasks else 0
        rate = self._rates.get(place)
        size = len(tasks) if rate and rate * len(tasks) < self._seconds else FIRST_TASKS * self._workers
        parts: list[tuple[int, float]] = []  # tasks and seconds
        results: list[Result] = []
        played: list[Played] = []
        while len(results) < len(tasks) and (not parts or time.monotonic() - began < self._seconds):
            part_began = time.monotonic()
            played.append(self._evaluator.map(tasks[len(results) : len(results) + size]))
            results += played[-1].results
            parts.append((len(played[-1].results), time.monotonic() - part_began))
            size *= 2
        steady = parts[1:] or parts  # workers start in the first part
        rate = self._rates[place] = sum(took for _, took in steady) / max(sum(count for count, _ in steady), 1)
        done, seconds = len(results), time.monotonic() - began
        known: dict[tuple[object, ...], deque[Result]] = {}
        for task, result in zip(tasks, results, strict=False):
            known.setdefault(_shape(task), deque()).append(result)
        for task in tasks[done:]:
            if _shape(task) not in known:
                played.append(self._evaluator.map([task]))
                known[_shape(task)] = deque(played[-1].results)
            results.append(known[_shape(task)][0])
            known[_shape(task)].rotate(-1)
        for poison in (poison for one in played for poison in one.poisoned):
            raise poison
        whole = seconds + rate * (len(tasks) - done)
        self._rounds.append(ProbedRound(evaluation, len(tasks), done, seconds, whole))
        notices = [text for one in played for text in one.notices]
        return Played(results, _together([one.effort for one in played]), (), notices, played[0].fingerprint)

    def close(self) -> None:
        """Stop every worker."""
        self._evaluator.close()


def _shape(task: Task) -> tuple[object, ...]:
    """Return what results of two tasks have in common where their arrays have equal shapes."""
    length = len(task.play.seeds) if isinstance(task.play, Episodes) else len(task.play.envs)
    return len(task.weights), type(task.play), length, task.record_actions, task.record_transitions, task.evaluation


def _together(efforts: Sequence[Effort]) -> Effort:
    busy = [sum(times) for times in zip(*(effort.busy for effort in efforts), strict=False)]
    sums: dict[str, Any] = {name: sum(vars(one)[name] for one in efforts) for name in vars(Effort()) if name != "busy"}
    return Effort(busy=busy, **sums)


def probe(experiment: Experiment, seconds: float = SECONDS) -> Probe:
    """Return what a run takes, without compiling kernels; the EvoError of the run where it cannot go on."""
    found = _probed(experiment, seconds)
    first, *others = (one.wall for one in found.generations)
    compiled = others and first > max(seconds / SHARE, COMPILING * max(others))
    return _probed(experiment, seconds) if compiled else found


def _probed(experiment: Experiment, seconds: float) -> Probe:
    with tempfile.TemporaryDirectory(prefix="evo-plan-") as folder:
        directory = Path(folder) / "run"
        open_or_begin(_for_a_probe(experiment), directory).close()
        numbers = [repr(seconds), str(experiment.generations), repr(time.time())]
        words = [str(directory), *numbers, *registry.loaded()]
        process = interpreter(PROGRAM, words)
        try:
            with Watch(process.pid) as watch:
                out, err = process.communicate()
        except BaseException:
            process.terminate()
            process.communicate()
            raise
        if process.returncode:
            if lines := _lines_of_failure(out):
                raise FAILURES.get(process.returncode, EvoError)(*lines)
            why = err.strip().splitlines()[-1:] or [f"its process ended with exit code {process.returncode}"]
            raise ResourceError(f"the probe failed: {first_line(why[0])}")
        return replace(MEASURED.validate_json(out.splitlines()[-1]), peak=watch.peak)


def _lines_of_failure(out: str) -> list[str]:
    """Return the lines of the EvoError that a probe has ended with; empty: it ended otherwise."""
    try:
        return [str(line) for line in json.loads(out.splitlines()[-1])["failure"]]
    except (IndexError, KeyError, TypeError, ValueError):
        return []


def _for_a_probe(experiment: Experiment) -> Experiment:
    """Return the experiment with what comes late in a run at once, and without limits."""
    options = experiment.options.model_copy(update={"generations": 0, **experiment.options.in_probe})
    run = experiment.run.model_copy(update={"budget": Budget(), "generations": MOST_GENERATIONS})
    test = experiment.test.model_copy(update={"every": NEVER})
    return replace(experiment, run=run, test=test, sections={**experiment.sections, experiment.algorithm: options})


def main(directory: str, words: Sequence[str], failure_of: Callable[[Exception], EvoError | None]) -> int:
    """Measure, and return the exit code; what `failure_of` knows is printed as one line of JSON."""
    try:
        _measure(directory, words)
    except Exception as error:
        failure = failure_of(error)
        if failure is None:
            raise
        print(json.dumps({"failure": failure.args}), flush=True)
        return failure.exit_code
    return 0


def _measure(directory: str, words: Sequence[str]) -> None:
    """Train in the directory of a run for some seconds, and print what that took as one line of JSON."""
    seconds, most, spawned, *plugins = words
    registry.load(plugins)
    experiment, limit = Experiment.load(Path(directory) / CONFIG, resolved=True, hosts="kept"), float(seconds)
    rows: list[ProbedGeneration] = []
    with Store.open(Path(directory)) as store, Session(experiment, store) as session:
        sampled = Sampled(session.evaluator, limit / SHARE, experiment.workers.processes)
        session.evaluator = sampled
        start, began = time.time() - float(spawned), time.monotonic()
        last = began
        for row in generations(session):
            now = time.monotonic()
            rows.append(ProbedGeneration({**row.metrics}, sampled.take(), now - last))
            last = now
            if len(rows) == 1 and now - began > limit / SHARE:
                began = now - limit / SHARE  # kernels were compiled, which is done once on a machine
            enough = len(rows) >= max(GENERATIONS, len(experiment.environment.changes))
            if (enough and now - began + rows[-1].wall / 2 > limit) or len(rows) >= int(most):
                break
        session.update_champion(test=True)
        rounds = sampled.take()
        store.flush()
        test, growth = rounds[-1] if rounds else None, session.algorithm.algorithm.growth()
        found = Probe(start, tuple(rows), test, growth, cores(), **_files(store.directory, len(rows)))
        print(MEASURED.dump_json(found).decode(), flush=True)


def _files(directory: Path, generations: int) -> dict[str, Any]:
    """Return the bytes of a run's files, by what they are."""

    def sizes(pattern: str) -> list[int]:
        return [path.stat().st_size for path in directory.glob(pattern)]

    checkpoints = sizes("population/*.h5")
    lasting = sum(sizes("records/*.h5")) + sum(sizes("manifest.jsonl")) + sum(sizes("metrics.jsonl"))
    return {
        "checkpoint": sum(checkpoints) // max(len(checkpoints), 1),
        "published": sum(sizes("published/*.h5")),
        "champion": sum(sizes("champion.*")),
        "each": lasting / max(generations, 1),
    }
