"""What a run will take on this machine, from a probe: memory, disk, and the time to each of its budgets."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from evo.config.experiment import Experiment
from evo.config.sections import SPENT, amount_text
from evo.errors import counted
from evo.planning.probe import Generation, Probe
from evo.store.store import KEEP_EVERY

CHECKPOINTS = 4  # kept besides every hundredth: the last three and the best
FULL = 0.9  # share of free memory or disk from which on there is a warning
PARTS = {
    "seconds_acting": "workers play",
    "seconds_idle": "workers wait for tasks, or for the slowest of them",
    "seconds_moving": "weights and transitions are moved",
    "seconds_learning": "gradients",
    "seconds_master": "the master alone: candidates, ranks, parents",
    "seconds_committing": "commits",
    "seconds_testing": "test episodes",
}


@dataclass(frozen=True)
class Goal:
    """One end that a run can have."""

    name: str  # "generations", or an amount of `run.budget`
    amount: float
    generations: int  # after which it is reached
    seconds: float  # wall clock until then, with start, commits and tests
    training: float  # the part of it that `seconds` of the metrics counts
    frames: float
    disk: int  # bytes of the run directory then


@dataclass(frozen=True)
class With:
    """The same with another number of workers, each on a core of its own."""

    workers: int
    seconds: float  # to the first end
    speedup: float  # over the run as it is configured
    memory: int | None  # bytes
    why: str  # what keeps it from being faster


@dataclass(frozen=True)
class Estimate:
    """What a run takes."""

    goals: tuple[Goal, ...]  # the one that ends the run first
    workers: int  # of the run as it is configured, which everything but `with_workers` is for
    memory: int | None  # peak of all processes, bytes; None: the system does not say
    memory_available: int | None
    disk_per_generation: float  # bytes that stay
    disk_free: int
    frames_per_second: float
    lane_utilisation: float | None  # share of computed lanes that played a frame
    worker_utilisation: float  # share of the time in which workers play
    seconds_per_generation: float
    shares: dict[str, float]  # of the time, by part
    with_workers: tuple[With, ...]
    warnings: tuple[str, ...]
    probed: str  # what the probe has played, in words


@dataclass(frozen=True)
class _Steady:
    """A generation as the probe has it on average, once workers have started."""

    parts: dict[str, float]  # seconds, without those of tests
    amounts: dict[str, float]  # spent, by the names of `Spent`
    tasks: float  # of a round in training


def estimated(
    experiment: Experiment, probe: Probe, available: int | None, free: int, workers: Sequence[int] = ()
) -> Estimate:
    """Return the estimate; `available` bytes of memory and `free` bytes of disk are what this machine has."""
    steady, test = _steady(experiment, probe), probe.test.whole if probe.test else 0.0
    each = sum(steady.parts.values())
    tests = test / min(experiment.test.every, experiment.generations)
    goals = sorted(_goals(experiment, probe, steady, test), key=lambda goal: goal.seconds)
    first = goals[0]
    memory = None if probe.peak is None else probe.peak.total + probe.growth
    now = max(1, round(probe.generations[-1].metrics.get("workers") or 1))
    whole = each + tests
    shares = {name: seconds / whole for name, seconds in steady.parts.items()} | {"seconds_testing": tests / whole}
    slots = [one.metrics.get("lane_utilisation") for one in probe.generations]
    lanes = [value for value in slots if value is not None]
    played = f"{counted(len(probe.generations), 'generation')}"
    if any(one.played < one.tasks for row in probe.generations for one in row.rounds):
        played += ", of which only a part was played"
    return Estimate(
        goals=tuple(goals),
        workers=now,
        memory=memory,
        memory_available=available,
        disk_per_generation=probe.each + probe.checkpoint / KEEP_EVERY,
        disk_free=free,
        frames_per_second=first.frames / first.training,
        lane_utilisation=sum(lanes) / len(lanes) if lanes else None,
        worker_utilisation=steady.parts["seconds_acting"] / each,
        seconds_per_generation=each,
        shares={name: share for name, share in shares.items() if share > 0},
        with_workers=tuple(_with(count, now, probe, steady, test, first, memory) for count in workers),
        warnings=tuple(_warnings(first, memory, available, free)),
        probed=played,
    )


def _steady(experiment: Experiment, probe: Probe) -> _Steady:
    """Return the mean generation of those to come; validation counts as often as it is due."""
    turns = max(1, len(experiment.environment.changes))
    late = _last_third(probe.generations, turns)
    trained = [_without_validation(one) for one in late]
    parts = {name: _mean([one[name] for one in trained]) for name in trained[0]}
    those = [one for one in probe.generations if any(each.evaluation for each in one.rounds)]
    validated = [_validation(one) for one in _last_third(those)]
    every = min(experiment.validation.every, experiment.generations)
    parts["seconds_acting"] += _mean([one["seconds"] for one in validated]) / every
    amounts = {}
    for name in SPENT:
        if name != "seconds":
            own = _mean([_amount(one, name) - _of_validation(one, name) for one in late])
            amounts[name] = own + _mean([one[name] for one in validated]) / every
    amounts["seconds"] = sum(seconds for name, seconds in parts.items() if name != "seconds_committing")
    rounds = [one.tasks for row in late for one in row.rounds if not one.evaluation]
    return _Steady(parts, amounts, _mean(rounds) if rounds else 1.0)


def _last_third(generations: Sequence[Generation], turns: int = 1) -> Sequence[Generation]:
    """Return the last third, which is most like what is to come: episodes get longer as players learn.

    Of rules in turn, each counts as often as the others, where there are so many generations.
    """
    third = max(1, len(generations) // 3)
    return generations[-max(turns, third // turns * turns) :]


def _without_validation(one: Generation) -> dict[str, float]:
    """Return the parts of a generation's time, as if all of its tasks were played, without validation."""
    parts = {name: one.metrics.get(name) or 0.0 for name in PARTS if name != "seconds_testing"}
    training = [each for each in one.rounds if not each.evaluation]
    missing = sum(each.whole - each.seconds for each in training)
    validation = sum(each.seconds for each in one.rounds if each.evaluation)
    playing = parts["seconds_acting"] + parts["seconds_idle"]
    share = parts["seconds_acting"] / playing if playing else 1.0
    parts["seconds_acting"] += share * (missing - validation)
    parts["seconds_idle"] += (1 - share) * (missing - validation)
    return parts


def _validation(one: Generation) -> dict[str, float]:
    seconds = sum(each.whole for each in one.rounds if each.evaluation)
    return {"seconds": seconds, **{name: _of_validation(one, name) for name in SPENT if name != "seconds"}}


def _of_validation(one: Generation, name: str) -> float:
    """Return the share of an amount that a generation's validation spent."""
    if not any(each.evaluation for each in one.rounds):
        return 0.0
    frames, whole = one.metrics.get("frames_validating") or 0.0, one.metrics["frames"] or 1.0
    if name in ("frames", "forward_passes"):
        return frames
    if name == "multiply_adds":
        passes = (one.metrics["forward_passes"] or 0.0) + 2 * (one.metrics["backward_passes"] or 0.0)
        return _amount(one, name) * frames / max(passes, 1.0)
    return _amount(one, name) * frames / whole


def _amount(one: Generation, name: str) -> float:
    """Return what a generation spent; of processor time, as if all of its tasks were played."""
    amount, seconds = one.metrics[name] or 0.0, one.metrics["seconds"] or 1.0
    if name != "cpu_seconds":
        return amount
    return amount * (1 + sum(each.whole - each.seconds for each in one.rounds) / seconds)


def _goals(experiment: Experiment, probe: Probe, steady: _Steady, test: float) -> list[Goal]:
    """Return every end that the experiment has, the number of generations included."""
    goals = [_goal("generations", experiment.generations, experiment.generations, experiment, probe, steady, test)]
    for name, limit in experiment.run.budget.limits().items():
        left, generations = float(limit), 0
        for one in probe.generations:
            if left > 0:
                left, generations = left - _spent(one, name), generations + 1
        generations += math.ceil(max(left, 0.0) / max(steady.amounts[name], 1e-9))
        goals.append(_goal(name, limit, generations, experiment, probe, steady, test))
    return goals


def _goal(
    name: str, amount: float, generations: int, experiment: Experiment, probe: Probe, steady: _Steady, test: float
) -> Goal:
    known = probe.generations[:generations]  # as they were; the others are as the last of these
    training, frames = (
        sum(_spent(one, what) for one in known) + steady.amounts[what] * (generations - len(known))
        for what in ("seconds", "frames")
    )
    commits = steady.parts["seconds_committing"] * generations
    tests = max(1, -(-generations // experiment.test.every)) * test
    files = probe.checkpoint * (min(generations, CHECKPOINTS) + generations // KEEP_EVERY)
    disk = round(probe.each * generations + files + probe.published + probe.champion)
    return Goal(name, amount, generations, probe.start + training + commits + tests, training, frames, disk)


def _spent(one: Generation, name: str) -> float:
    """Return what a generation of the probe spent, as if all of its tasks were played."""
    if name == "seconds":
        return (one.metrics[name] or 0.0) + sum(each.whole - each.seconds for each in one.rounds)
    return _amount(one, name)


def _with(count: int, now: int, probe: Probe, steady: _Steady, test: float, first: Goal, memory: int | None) -> With:
    """Return the time and the memory with so many workers: playing is divided among them, the rest is not."""
    busy = steady.parts["seconds_acting"] * min(now, probe.cores)
    sharing = max(1.0, min(count, steady.tasks))
    acting = busy / sharing
    rest = sum(steady.parts.values()) - steady.parts["seconds_acting"]
    playing = first.generations * steady.parts["seconds_acting"] + test
    seconds = first.seconds - playing + first.generations * acting + test * min(now, probe.cores) / count
    own = probe.peak.worker if probe.peak else 0
    if count > steady.tasks:
        why = f"a round has {steady.tasks:.0f} tasks, so more workers than that have nothing to play"
    elif rest > acting:
        name = max((name for name in steady.parts if name != "seconds_acting"), key=steady.parts.__getitem__)
        why = f"{rest / (rest + acting):.0%} of a generation is not shared by workers; most of it: {PARTS[name]}"
    else:
        why = f"playing, which workers share, is {acting / (rest + acting):.0%} of a generation"
    total = None if memory is None else memory + (count - now) * own
    return With(count, seconds, first.seconds / seconds, total, why)


def _warnings(first: Goal, memory: int | None, available: int | None, free: int) -> list[str]:
    """Return what will go wrong, a line each."""
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


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values)


def size(count: float) -> str:
    """Return a number of bytes in words, as in 3.2 MB."""
    for unit in ("bytes", "kB", "MB", "GB"):
        if count < 1000 or unit == "GB":
            return f"{count:.0f} {unit}" if unit == "bytes" else f"{count:.1f} {unit}"
        count /= 1000
    return ""


def described(goal: Goal) -> str:
    """Return an end in words, as in 300 generations."""
    if goal.name == "generations":
        return counted(int(goal.amount), "generation")
    return f"{amount_text(goal.name, goal.amount)} ({counted(goal.generations, 'generation')})"
