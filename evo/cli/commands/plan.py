"""Estimate the time, memory and disk of a run from a short probe."""

from __future__ import annotations

from argparse import ArgumentParser, Namespace
from dataclasses import asdict
from typing import TYPE_CHECKING

from evo.cli.arguments import add, flags
from evo.errors import ConfigurationError, counted, notice, printable_lines
from evo.numbers import duration, size

if TYPE_CHECKING:
    from evo.planning.estimate import Estimate


def add_arguments(parser: ArgumentParser) -> None:
    """Declare the command line."""
    parser.add_argument("experiment", metavar="EXPERIMENT.toml", help="the experiment file")
    add(parser, "--algorithm", "--set", "--seed", "--generations")
    text = "also estimate the time with these numbers of workers, as in 8,64, each on a core of its own"
    add(parser, "--workers", metavar="N,N,...", help=text)
    add(parser, "--backend", "--plugin", "--json")


def main(arguments: Namespace) -> tuple[int, object]:
    """Probe, and print the estimate."""
    from evo.config.checking import HERE
    from evo.config.experiment import Experiment
    from evo.config.experiment_file import key_of
    from evo.planning.estimate import plan
    from evo.planning.probe import SECONDS

    workers = _numbers(arguments.workers)
    named = {name: value for name, value in flags(arguments).items() if name != "workers"}
    experiment = Experiment.load(arguments.experiment, *arguments.set, **named)
    chosen = named["backend"] or "workers.backend" in map(key_of, arguments.set)
    if not chosen and experiment.workers.backend not in HERE:
        experiment = Experiment.load(arguments.experiment, *arguments.set, **{**named, "backend": HERE[0]})
        notice(f"the probe plays in {HERE[0]} of this machine; --backend chooses another backend")
    print(f"playing and learning for about {SECONDS:.0f} seconds, in a directory that is removed ...", flush=True)
    found = plan(experiment, workers)
    print(printable_lines(text(found)))
    for warning in found.warnings:
        notice(warning)
    return 0, asdict(found)


def text(found: Estimate) -> str:
    """Return the estimate as lines for a reader."""
    from evo.planning.estimate import PARTS

    lines = [f"probed        {found.probed}"]
    for number, goal in enumerate(found.goals):
        head = "" if number else "time"
        playing = "" if number else f" with {counted(found.workers, 'worker')}"
        ends = ", the run ends there" if not number and len(found.goals) > 1 else ""
        lines.append(f"{head:<13} {duration(goal.seconds)} to {goal.text}{playing}{ends}")
    unknown = "unknown on this system"
    memory = unknown if found.memory is None else size(found.memory)
    there = "" if found.memory_available is None else f", {size(found.memory_available)} available"
    lanes = "" if found.lane_utilisation is None else f", lanes {found.lane_utilisation:.0%}"
    lines += [
        f"speed         {found.frames_per_second:,.0f} frames/s, {found.seconds_per_generation:.3g} s a generation",
        f"memory        {memory} at most, all processes together{there}",
        f"disk          {size(found.disk_per_generation)} a generation, {size(found.goals[0].disk)} in the end, "
        f"{size(found.disk_free)} free",
        f"utilisation   workers {found.worker_utilisation:.0%}{lanes}",
        "where the time goes",
    ]
    for name, share in sorted(found.shares.items(), key=lambda item: -item[1]):
        if share >= 0.005:
            lines.append(f"  {share:>4.0%}  {PARTS[name]}")
    for one in found.with_workers:
        also = "" if one.memory is None else f", {size(one.memory)} of memory"
        workers = counted(one.workers, "worker")
        lines.append(f"{workers}: {duration(one.seconds)} ({one.speedup:.2g} times as fast{also}): {one.why}")
    return "\n".join(lines)


def _numbers(typed: str | None) -> list[int]:
    from evo.planning.estimate import MOST_WORKERS

    words = typed.split(",") if typed is not None else []
    for word in words:
        if not (word.isascii() and word.isdigit() and len(word) < 7 and 1 <= int(word) <= MOST_WORKERS):
            raise ConfigurationError(f"--workers: must be numbers from 1 to {MOST_WORKERS}, as in 8,64, not {typed!r}")
    return [int(word) for word in words]
