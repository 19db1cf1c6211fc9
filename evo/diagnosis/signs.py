"""What a diagnosis is made of: the late metrics of a run, and findings that name what is wrong and what to change."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from evo.store.run import Run, column_of

LEAST_GENERATIONS = 10  # a shorter run shows its beginning only


@dataclass(frozen=True)
class Finding:
    """Something that keeps a run from learning, or that wastes its time."""

    name: str
    wrong: str  # one sentence each
    evidence: str
    change: str


@dataclass(frozen=True)
class Check:
    """A measured value and its finding, if any."""

    label: str
    finding: Finding | None = None


def checked(label: str, name: str, wrong: str, evidence: str, change: str, condition: bool = True) -> Check:
    """Return a check, with a finding where the condition holds."""
    return Check(label, Finding(name, wrong, evidence, change) if condition else None)


class Signs:
    """The metrics of a run: its last half shows how it learns, its first generations how it began."""

    def __init__(self, run: Run) -> None:
        self.run, self.options = run, run.config.options
        self.section = run.config.algorithm

    def column(self, name: str) -> NDArray[np.float64]:
        """Return a metric of every generation, NaN where there is none.  # [G]"""
        return column_of(self.run.metrics, name)

    def late(self, name: str, share: float = 0.5) -> float:
        """Return the mean of a metric over the last share of the generations, NaN where there is none."""
        values = self.column(name)
        return mean(values[len(values) - math.ceil(share * len(values)) :])

    def last(self, name: str) -> float:
        """Return the last value of a metric, NaN where there is none."""
        values = self.column(name)
        values = values[np.isfinite(values)]
        return float(values[-1]) if len(values) else math.nan

    def total(self, name: str) -> float:
        """Return the sum of a metric without that of the first generation, which starts workers."""
        return float(np.nansum(self.column(name)[1:]))

    def option(self, name: str) -> Any:
        """Return a number or a word among the algorithm's options, or None where it has no such option."""
        value = self.options.model_dump().get(name)
        return value if isinstance(value, int | float | str) else None

    def set(self, name: str, value: object) -> str:
        """Return the words on the command line that set an option of the algorithm's section."""
        return f"--set {self.section}.{name}={value}"

    @property
    def episodes(self) -> int:
        """Return how many episodes a candidate plays in a generation."""
        if self.options.candidates() > 1:
            return self.options.episodes_per_candidate()
        return int(self.option("episodes") or 1)

    @property
    def solved(self) -> bool:
        """Return whether the champion's score is close to the highest possible one."""
        score, bounds = self.run.score, self.run.environment.score_bounds
        return score is not None and bounds is not None and score.mean >= bounds[1] - 0.05 * (bounds[1] - bounds[0])


def mean(values: NDArray[np.float64]) -> float:
    """Return the mean of the finite values, NaN where there are none."""
    values = values[np.isfinite(values)]
    return float(values.mean()) if len(values) else math.nan


def found(checks: Sequence[Check | None]) -> list[Finding]:
    """Return the findings among checks."""
    return [check.finding for check in checks if check is not None and check.finding is not None]


def power_of_two(value: float) -> int:
    """Return the smallest power of two that is at least a value."""
    return 1 << max(0, math.ceil(math.log2(value)))
