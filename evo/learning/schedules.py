"""Schedules: an option as a function of the frames played, never of the length of a run."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Annotated

from pydantic import AfterValidator, Field

Points = list[list[float]]  # [frames, value], frames rising from 0


def annealed(initial: float, final: float, over: int, frames: int) -> float:
    """Anneal linearly from `initial` to `final` over the first `over` frames; with `over` 0 return `initial`."""
    if not over:
        return initial
    return final if frames >= over else initial + (final - initial) * (frames / over)


def check_points(points: Sequence[Sequence[float]]) -> None:
    """Raise ValueError unless these are [frames, value], the frames rising from 0, every value in [0, 1]."""
    if not points or any(len(point) != 2 for point in points):
        raise ValueError("not a list of [frames, value]")
    if points[0][0] != 0:
        raise ValueError(f"begins at frame {points[0][0]:g}, not at 0")
    if any(one[0] >= other[0] for one, other in pairwise(points)):
        raise ValueError("frames do not rise")
    for frames, value in points:
        if not 0 <= value <= 1:
            raise ValueError(f"{value:g} at frame {frames:g} is not between 0 and 1")


def value_at(points: Sequence[Sequence[float]], frames: int) -> float:
    """Return the value after `frames`, interpolated linearly between points; after the last point it is constant."""
    for (start, one), (end, other) in pairwise(points):
        if frames < end:
            return one + (other - one) * (frames - start) / (end - start)
    return float(points[-1][1])


def _in_order(points: Points) -> Points:
    if points:
        check_points(points)
    return points


GammaPoints = Annotated[
    Points,
    AfterValidator(_in_order),
    Field(
        exclude_if=lambda points: not points,
        description="discount factor as points [frames, gamma], interpolated linearly, in place of other options of "
        "gamma; [] = those",
    ),
]
