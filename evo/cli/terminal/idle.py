"""Where the time of a generation went, and what it moved: words are the metrics of `evo.training.accounting`."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

UNKNOWN = "-"
MOVED = ("bytes_published", "bytes_sent", "bytes_received")


@dataclass(frozen=True)
class Idle:
    """One generation, by who waited for whom in it; what is not known is not a number."""

    acting: float = math.nan  # the share of the generation in which workers played, on their mean
    waiting: float = math.nan  # seconds in which workers had no task, on their mean, and the master waited too
    moving: float = math.nan  # seconds in which weights were published, and steps brought to the learner
    learning: float = math.nan  # seconds
    master: float = math.nan  # seconds of whatever else the master did
    alone: float = math.nan  # seconds in which the last task of a round ran alone
    committing: float = math.nan  # seconds, since the generation before
    moved: float = math.nan  # bytes, out to workers and back

    @classmethod
    def of(cls, metrics: Mapping[str, float]) -> Idle:
        """Read the metrics of a generation."""

        def total(*names: str) -> float:
            return sum(float(metrics.get(name, math.nan)) for name in names)

        seconds = total("seconds")
        named = ("waiting", "moving", "learning", "master", "alone", "committing")
        return cls(
            acting=total("seconds_acting") / seconds if seconds else math.nan,
            moved=total(*MOVED),
            **{name: total(f"seconds_{name}") for name in named},
        )

    @property
    def share(self) -> str:
        """Return the share of the generation in which workers played."""
        return f"acting {100 * self.acting:.0f} %" if math.isfinite(self.acting) else f"acting {UNKNOWN}"

    def lines(self) -> list[str]:
        """Return what adds up to the generation, and then what lies in it or beside it; a name and a figure each."""
        whole = [f"{name} {_seconds(getattr(self, name))}" for name in ("waiting", "moving", "learning", "master")]
        beside = [f"{name} {_seconds(getattr(self, name))}" for name in ("alone", "committing")]
        return ["  ".join([self.share, *whole]), "  ".join([*beside, f"moved {size(self.moved)}"])]


def _seconds(value: float) -> str:
    if not math.isfinite(value):
        return UNKNOWN
    return f"{value:.{2 if value < 9.995 else 1 if value < 99.95 else 0}f} s"  # five columns, so that a line fits


def size(count: float) -> str:
    """Return bytes with three figures, as in 1.14 MB."""
    if not math.isfinite(count):
        return UNKNOWN
    for limit, unit in ((1e9, "GB"), (1e6, "MB"), (1e3, "kB")):
        if count >= limit:
            return f"{count / limit:.3g} {unit}"
    return f"{count:.0f} B"
