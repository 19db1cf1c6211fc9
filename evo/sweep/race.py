"""The race: after fixed shares of the budget, trials that lose to the leader stop.

As in successive halving (Jamieson and Talwalkar, 2016), budgets grow from one stage to the next. Who stops is decided
as in the t-race of irace (López-Ibáñez et al., 2016): by paired differences, since all trials have the same seeds, and
so the same validation episodes. No share of the trials must stop: one stops only where the seeds show that it loses.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from evo.comparison import student

SHARES = (0.25, 0.5, 1.0)  # of the budget, at the end of each stage
TWO_SIDED = 0.9  # confidence of the interval whose lower end is above 0 with 95 %: only the leader can be better


@dataclass(frozen=True)
class Standing:
    """A trial at the end of a stage."""

    name: str
    scores: tuple[float, ...]  # the champions' mean validation returns, by seed
    stopped: str = ""  # why it goes no further


def mean_of(scores: Sequence[float]) -> float:
    """Return the mean score over seeds."""
    return math.fsum(scores) / len(scores)


def leader(scores: Mapping[str, Sequence[float]]) -> str:
    """Return the trial with the highest mean; of equal ones the first."""
    return max(scores, key=lambda name: mean_of(scores[name]))


def loses(ours: Sequence[float], best: Sequence[float]) -> str:
    """Return why a trial loses to the leader, scores paired by seed; empty where that is not shown.

    It loses where the mean difference is above 0 with 95 %, by Student's t, so never with a single seed.
    """
    differences = [theirs - our for our, theirs in zip(ours, best, strict=True)]
    mean, interval = student.t_interval(differences, TWO_SIDED)
    if interval is None or interval[0] <= 0:
        return ""
    return f"{mean:.2f} below the leader (at 90 %, {interval[0]:.2f} to {interval[1]:.2f})"


def judged(scores: Mapping[str, Sequence[float]], failures: Mapping[str, str], last: bool) -> list[Standing]:
    """Return how all trials of a stage stand; those that failed have no scores, and in the last stage nobody stops."""
    first = scores[leader(scores)] if scores else ()
    standings = [
        Standing(name, tuple(own), "" if last or own is first else loses(own, first)) for name, own in scores.items()
    ]
    return standings + [Standing(name, (), f"failed: {why}") for name, why in failures.items()]
