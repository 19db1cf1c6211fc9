"""The race: after fixed shares of the budget, a third of the trials go on, less those that lose to the leader.

As in successive halving (Jamieson and Talwalkar, 2016), budgets grow from one stage to the next, and the best third
goes on, as in Hyperband (Li et al., 2018); where trials are trained one after the other, the best third of those so far
(Li et al., 2020). More stop where the seeds show that they lose, as in the t-race of irace (López-Ibáñez et al., 2016):
by paired differences, since all trials have the same seeds, and so the same validation episodes.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from evo.comparison import student

SHARES = (0.2, 0.4, 1.0)  # of the budget, at the end of each stage
GOING = 3  # one of so many trials goes on
FEWEST = 3  # trials that a place does not stop
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


def falls_behind(ours: Sequence[float], rivals: Sequence[Sequence[float]]) -> str:
    """Return why a trial is not in the best third of those that have ended a stage, itself included; empty if it is.

    Of equal trials none falls behind the other, and the best three never do.
    """
    place = 1 + sum(mean_of(theirs) > mean_of(ours) for theirs in rivals)
    going = max(FEWEST, math.ceil(len(rivals) / GOING))
    return f"place {place} of {len(rivals)}, and {going} go on" if place > going else ""


def judged(scores: Mapping[str, Sequence[float]], failures: Mapping[str, str], last: bool) -> list[Standing]:
    """Return how all trials of a stage stand; those that failed have no scores, and in the last stage nobody stops."""
    rivals, best = list(scores.values()), scores[leader(scores)] if scores else ()
    standings = [Standing(name, tuple(own), "" if last else stops(own, best, rivals)) for name, own in scores.items()]
    return standings + [Standing(name, (), f"failed: {why}") for name, why in failures.items()]


def stops(ours: Sequence[float], best: Sequence[float], rivals: Sequence[Sequence[float]]) -> str:
    """Return why a trial stops at the end of a stage that is not the last; empty where it goes on."""
    return loses(ours, best) or falls_behind(ours, rivals)
