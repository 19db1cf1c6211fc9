"""Examine a run: what keeps it from learning, and what wastes its time."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from evo.diagnosis.evolution import evolution
from evo.diagnosis.gradients import gradients
from evo.diagnosis.scores import chance, optimism, still_rising
from evo.diagnosis.signs import LEAST_GENERATIONS, Checked, Finding, Signs, found
from evo.errors import counted
from evo.numbers import percent
from evo.store.run import Run
from evo.training.testing import Baseline

LEAST_LANES = 0.65  # share of the lane slots that play a frame; healthy: 0.85 and more
LANES = 16
MOST_IDLE, MOST_MASTER = 0.4, 0.5  # shares of the time of all generations but the first
LEAST_SECONDS = 0.02  # of a generation; a shorter one is mostly overhead, and takes no time worth saving
NUMBER = re.compile(r"--set ([\w.]+)=(\d+)(?!\w|\.\d)")


@dataclass(frozen=True)
class Diagnosis:
    """What was found in a run, the most important first, and what was looked at."""

    generations: int
    findings: list[Finding]
    looked_at: list[str]  # with values
    notes: list[str]  # why something could not be looked at

    def lines(self) -> list[str]:
        """Return it in words; a single line where no problem was found."""
        seen = f"looked at {', '.join(self.looked_at)}" if self.looked_at else "nothing could be looked at"
        length = counted(self.generations, "generation")
        if not self.findings:
            return [f"no problem found in {length}; {seen}", *self.notes]
        lines = []
        for number, finding in enumerate(self.findings, 1):
            lines += [f"{number}. {finding.wrong}", f"   {finding.evidence}", f"   {finding.change}"]
        return [*lines, f"{counted(len(self.findings), 'finding')} in {length}; {seen}", *self.notes]

    def facts(self) -> dict[str, Any]:
        """Return it as a JSON object."""
        return {"healthy": not self.findings, **asdict(self)}


def examine(directory: Path) -> Diagnosis:
    """Read a run and examine it.

    Raises DataError where it is no run, or its configuration or all of its checkpoints are damaged.
    """
    return diagnosis(Run(directory))


def diagnosis(run: Run, players: Mapping[str, Baseline] | None = None) -> Diagnosis:
    """Examine a run that was read; `players` are those that need no learning, where they have played already."""
    signs, notes = Signs(run), list(run.notes)
    done = run.store.next_generation
    checks = []
    if done < LEAST_GENERATIONS:
        notes.append(f"only {counted(done, 'generation')}: whether it learns is examined from {LEAST_GENERATIONS} on")
    elif signs.solved:
        notes.append("the champion scores nearly all there is, so only its time was looked at")
    else:
        checks = [*evolution(signs), *gradients(signs)]
        checks += [check for check in [chance(signs, players), optimism(signs)] if check is not None]
        notes += [note for note in [still_rising(signs)] if note]
    if done > 1:
        checks += times(signs)
    return Diagnosis(done, agreeing(found(checks)), [check.label for check in checks], notes)


def agreeing(findings: Sequence[Finding]) -> list[Finding]:
    """Return findings that set an option to one number, the largest that any of them wants."""
    wanted: dict[str, float] = {}
    for name, value in (pair for finding in findings for pair in NUMBER.findall(finding.change)):
        if ".episodes" in name:
            wanted[name] = max(wanted.get(name, 0.0), float(value))

    def largest(match: re.Match[str]) -> str:
        return f"--set {match[1]}={wanted[match[1]]:g}" if match[1] in wanted else match[0]

    return [replace(finding, change=NUMBER.sub(largest, finding.change)) for finding in findings]


def times(signs: Signs) -> list[Checked]:
    """Return what was looked at of the time that generations took."""
    checks = [lanes(signs)]
    seconds, count = signs.total("seconds"), len(signs.run.metrics) - 1
    if count > 0 and seconds >= LEAST_SECONDS * count:
        checks += [idle(signs, seconds), master(signs, seconds)]
    return [check for check in checks if check is not None]


def lanes(signs: Signs) -> Checked | None:
    """Look for lanes of the kernel that play nothing."""
    used = signs.late("lane_utilisation")
    if math.isnan(used):
        return None
    label = f"lanes used {percent(used)}"
    if used >= LEAST_LANES:
        return Checked(label)
    envs = signs.option("envs")
    per_task = signs.option("envs_per_task")
    if envs is not None:
        change = signs.set("envs_per_task", LANES * max(1, -(-int(per_task or LANES) // LANES)))
        if envs < LANES:
            change = f"{signs.set('envs', LANES)} {change}"
    else:
        change = signs.more_episodes(max(LANES, 2 * signs.episodes))
    return Checked(
        label,
        Finding(
            "idle_lanes",
            "Lanes are idle: the kernel plays 16 episodes of a network at once, and has fewer.",
            f"{percent(used)} of the lane slots played a frame (healthy runs: 85 % and more).",
            f"Give it multiples of {LANES}: {change}.",
        ),
    )


def idle(signs: Signs, seconds: float) -> Checked | None:
    """Look for workers that wait for a task while the master waits for results."""
    workers = signs.late("workers")
    if not workers >= 2:
        return None
    share, straggling = signs.total("seconds_idle") / seconds, signs.total("seconds_straggling") / seconds
    label = f"workers idle {percent(share)}"
    if share <= MOST_IDLE:
        return Checked(label)
    if signs.options.candidates() > 1:
        change = "--set workers.candidates_per_task=1"
    else:
        change = signs.set("envs_per_task", LANES)
    return Checked(
        label,
        Finding(
            "idle_workers",
            "Workers are idle: tasks are too few, or too short.",
            f"{workers:.0f} workers had no task in {percent(share)} of the time while the others played, "
            f"{percent(straggling)} of it for the last task of a round.",
            f"Cut the work into more tasks, or use fewer workers: {change} or --workers {max(1, int(workers) // 2)}.",
        ),
    )


def master(signs: Signs, seconds: float) -> Checked:
    """Look for a run that waits for its master, which ranks, rebuilds and commits while workers are idle."""
    own, commits = signs.total("seconds_master"), signs.total("seconds_committing")
    share = (own + commits) / (seconds + commits)
    label = f"master's share of the time {percent(share)}"
    if share <= MOST_MASTER:
        return Checked(label)
    evolves = signs.option("population") is not None
    change = signs.more_episodes(2 * signs.episodes)
    if not evolves and signs.option("horizon") is not None:
        change = signs.set("horizon", 2 * int(signs.option("horizon")))
    return Checked(
        label,
        Finding(
            "master_bound",
            "The run waits for its master: more workers cannot make it faster.",
            f"The master's own work took {percent(own / (seconds + commits))} of the time and commits "
            f"{percent(commits / (seconds + commits))}, while workers were idle.",
            f"Let a generation play more: {change}.",
        ),
    )
