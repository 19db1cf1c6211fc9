"""Examines a run: everything that is looked at, and what was found."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from evo.diagnosis.evolution import evolution
from evo.diagnosis.gradients import gradients
from evo.diagnosis.scores import chance, optimism, still_rising
from evo.diagnosis.signs import LEAST_GENERATIONS, Finding, Signs, found
from evo.diagnosis.times import times
from evo.errors import counted
from evo.store.run import Run
from evo.training.testing import Baseline

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
