"""What a run will take on this machine, from a probe: memory, disk, and the time to each of its budgets."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from numbers import Real
from pathlib import Path
from statistics import fmean

from evo.config.experiment import Experiment
from evo.config.sections import SPENT, amount_text
from evo.errors import ConfigurationError, counted, require_integer
from evo.numbers import size
from evo.planning.memory import available, free_disk
from evo.planning.probe import SECONDS, Probe, ProbedGeneration, probe
from evo.training import accounting
from evo.training.beginning import require_experiment

CHECKPOINTS = 4  # kept besides those of `run.keep_every`: the last three and the best
EVALUATING = ("seconds_validating", "seconds_testing")
MOST_WORKERS = 100_000
FULL = 0.9  # share of free memory or disk from which on there is a warning
PARTS = {
    **accounting.PARTS,
    "seconds_committing": "commits",
    "seconds_validating": "validation episodes",
    "seconds_testing": "test episodes",
}


@dataclass(frozen=True)
class Goal:
    """One end that a run can have, and what it takes until then."""

    name: str  # "generations", or an amount of `run.budget`
    amount: float  # of it, at the end
    generations: int  # after which it is reached
    seconds: float  # wall clock until then, with start, commits and tests
    training: float  # seconds of it that count in `run.budget.seconds`
    frames: float  # of training
    disk: int  # bytes of the run directory then

    @property
    def text(self) -> str:
        """This end in words, as in 300 generations."""
        if self.name == "generations":
            return counted(int(self.amount), "generation")
        return f"{amount_text(self.name, self.amount)} ({counted(self.generations, 'generation')})"


@dataclass(frozen=True)
class WorkerEstimate:
    """What the run takes with another number of workers, each on a core of its own."""

    workers: int
    seconds: float  # to the first end
    speedup: float  # over the run as it is configured
    memory: int | None  # bytes, as of `Estimate`
    why: str  # what keeps it from being faster


@dataclass(frozen=True)
class Estimate:
    """The result of `plan`: what a run takes on this machine."""

    goals: tuple[Goal, ...]  # the one that ends the run first
    workers: int  # of the run as it is configured, which everything but `with_workers` is for
    memory: int | None  # peak of all processes, bytes; None: the system does not say
    memory_available: int | None  # bytes
    disk_per_generation: float  # bytes that stay
    disk_free: int  # bytes
    frames_per_second: float  # of training
    lane_utilisation: float | None  # share of computed lanes that played a frame
    worker_utilisation: float  # share of the time in which workers play
    seconds_per_generation: float
    shares: dict[str, float]  # of the time, 0 to 1, by part
    with_workers: tuple[WorkerEstimate, ...]  # for each number that was asked for
    warnings: tuple[str, ...]  # a line each
    probed: str  # what the probe has played, in words


def plan(experiment: Experiment, workers: Sequence[int] = (), seconds: float = SECONDS) -> Estimate:
    """Estimate time, memory and disk of a run, also with other workers, by a probe.

    `workers` are numbers of workers; the probe plays for about `seconds`. ConfigurationError: an argument or the
    experiment is wrong. ResourceError: the machine lacks what the probe needs.
    """
    require_experiment(experiment)
    if not isinstance(workers, list | tuple):
        raise ConfigurationError(f"workers: must be a list of numbers of workers, as in [2, 4], not {workers!r:.40}")
    for count in workers:
        require_integer("workers", count, 1, MOST_WORKERS)
    given: object = seconds
    if not isinstance(given, Real) or not 0 < float(given) < math.inf:
        raise ConfigurationError(f"seconds: must be a positive number, not {seconds!r:.40}")
    return estimated(experiment, probe(experiment, seconds), available(), free_disk(Path("runs")), workers)


def estimated(
    experiment: Experiment, probe: Probe, available: int | None, free: int, workers: Sequence[int] = ()
) -> Estimate:
    """Return the estimate; `available` bytes of memory and `free` bytes of disk are what this machine has."""
    forecast = _Forecast(experiment, probe)
    goals = sorted(forecast.goals(), key=lambda goal: goal.seconds)
    first, each = goals[0], sum(forecast.parts.values())
    memory = None if probe.peak is None else probe.peak.total + probe.growth
    now = max(1, round(probe.generations[-1].metrics.get("workers") or 1))
    tests = forecast.test * experiment.test.count(experiment.generations) / experiment.generations
    shares = {name: seconds / (each + tests) for name, seconds in {**forecast.parts, "seconds_testing": tests}.items()}
    lanes = [used for one in probe.generations if (used := one.metrics.get("lane_utilisation")) is not None]
    probed = counted(len(probe.generations), "generation")
    if any(one.played < one.tasks for row in probe.generations for one in row.rounds):
        probed += ", of which only a part was played"
    return Estimate(
        goals=tuple(goals),
        workers=now,
        memory=memory,
        memory_available=available,
        disk_per_generation=probe.each + probe.checkpoint / experiment.run.keep_every,
        disk_free=free,
        frames_per_second=first.frames / first.training,
        lane_utilisation=sum(lanes) / len(lanes) if lanes else None,
        worker_utilisation=(forecast.parts["seconds_acting"] + forecast.parts["seconds_validating"]) / each,
        seconds_per_generation=each,
        shares={name: share for name, share in shares.items() if share > 0},
        with_workers=tuple(forecast.with_workers(count, now, first, memory) for count in workers),
        warnings=tuple(_warnings(first, memory, available, free)),
        probed=probed,
    )


class _Forecast:
    """The generations to come: each as the probe's on average once workers have started, so its last third.

    Episodes get longer as players learn, so the last third is most like what is to come. Validation counts as often as
    it is due.
    """

    def __init__(self, experiment: Experiment, probe: Probe) -> None:
        self._experiment, self._probe = experiment, probe
        late = _last_third(probe.generations, max(1, len(experiment.environment.changes)))
        validated = _last_third([one for one in probe.generations if one.validates])
        every = min(experiment.validation.every, experiment.generations)
        trained = [_without_validation(one) for one in late]
        self.parts = {name: fmean(one[name] for one in trained) for name in trained[0]}  # seconds, without tests
        self.parts["seconds_validating"] = fmean(one.spent_validating("seconds") for one in validated) / every
        self._amounts = {  # spent by a generation
            name: fmean(one.spent(name) - one.spent_validating(name) for one in late)
            + fmean(one.spent_validating(name) for one in validated) / every
            for name in SPENT
            if name != "seconds"
        }
        self._amounts["seconds"] = sum(took for name, took in self.parts.items() if name != "seconds_committing")
        rounds = [one.tasks for row in late for one in row.rounds if not one.evaluation]
        self._tasks = fmean(rounds) if rounds else 1.0  # of a round in training
        self.test = probe.test.whole if probe.test else 0.0  # seconds

    def goals(self) -> Iterator[Goal]:
        """Yield every end that the experiment has, the number of generations included."""
        yield self._goal("generations", self._experiment.generations, self._experiment.generations)
        for name, limit in self._experiment.run.budget.limits().items():
            left, generations = float(limit), 0
            for one in self._probe.generations:
                if left > 0:
                    left, generations = left - one.spent(name), generations + 1
            generations += math.ceil(max(left, 0.0) / max(self._amounts[name], 1e-9))
            yield self._goal(name, limit, generations)

    def _goal(self, name: str, amount: float, generations: int) -> Goal:
        probe = self._probe
        known = probe.generations[:generations]  # as they were; the others are as the last of these
        training, frames = (
            sum(one.spent(what) for one in known) + self._amounts[what] * (generations - len(known))
            for what in ("seconds", "frames")
        )
        commits = self.parts["seconds_committing"] * generations
        tests = self._experiment.test.count(generations) * self.test
        files = probe.checkpoint * (min(generations, CHECKPOINTS) + generations // self._experiment.run.keep_every)
        disk = round(probe.each * generations + files + probe.published + probe.champion)
        return Goal(name, amount, generations, probe.start + training + commits + tests, training, frames, disk)

    def with_workers(self, count: int, now: int, first: Goal, memory: int | None) -> WorkerEstimate:
        """Return the time and the memory with `count` workers: playing is divided among them, the rest is not."""
        acting_now, probe = self.parts["seconds_acting"] + self.parts["seconds_validating"], self._probe
        rest = sum(self.parts.values()) - acting_now
        acting = acting_now * min(now, probe.cores) / max(1.0, min(count, self._tasks))
        unshared = first.seconds - first.generations * acting_now - self.test
        seconds = unshared + first.generations * acting + self.test * min(now, probe.cores) / count
        if count > self._tasks:
            why = f"a round has {self._tasks:.0f} tasks, so more workers than that have nothing to play"
        elif rest > acting:
            name = max(self.parts.keys() - {"seconds_acting", "seconds_validating"}, key=self.parts.__getitem__)
            why = f"{rest / (rest + acting):.0%} of a generation is not shared by workers; most of it: {PARTS[name]}"
        else:
            why = f"playing, which workers share, is {acting / (rest + acting):.0%} of a generation"
        own = probe.peak.worker if probe.peak else 0
        total = None if memory is None else memory + (count - now) * own
        return WorkerEstimate(count, seconds, first.seconds / seconds, total, why)


def _last_third(generations: Sequence[ProbedGeneration], turns: int = 1) -> Sequence[ProbedGeneration]:
    """Return the last third; of rules in turn, each counts as often as the others, where there are enough."""
    third = max(1, len(generations) // 3)
    return generations[-max(turns, third // turns * turns) :]


def _without_validation(one: ProbedGeneration) -> dict[str, float]:
    """Return the parts of a generation's time, as if all of its tasks were played, without validation."""
    parts = {name: one.metrics.get(name) or 0.0 for name in PARTS if name not in EVALUATING}
    missing = sum(each.missing for each in one.rounds if not each.evaluation)
    validation = sum(each.seconds for each in one.rounds if each.evaluation)
    playing = parts["seconds_acting"] + parts["seconds_idle"]
    share = parts["seconds_acting"] / playing if playing else 1.0
    parts["seconds_acting"] += share * (missing - validation)
    parts["seconds_idle"] += (1 - share) * (missing - validation)
    return parts


def _warnings(first: Goal, memory: int | None, available: int | None, free: int) -> list[str]:
    """Return warnings, a line each."""
    lines = []
    if memory is not None and available is not None and memory > FULL * available:
        lines.append(
            f"memory: the run takes about {size(memory)}, and {size(available)} are available; it may be ended for "
            "memory. Take fewer workers, a smaller batch or a smaller replay buffer"
        )
    if first.disk > FULL * free:
        lines.append(
            f"disk: the run directory grows to about {size(first.disk)}, and {size(free)} are free; choose another "
            "place with --run-dir"
        )
    return lines
