"""Where the time of a generation went, under the names of the metrics in `evo.training.accounting`."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

UNKNOWN = "-"
BYTES = ("bytes_published", "bytes_sent", "bytes_received")


@dataclass(frozen=True)
class Idle:
    """One generation, by who was idle in it; NaN stands for what is not known."""

    acting: float = math.nan  # share of the generation
    idle: float = math.nan  # seconds, as all below
    moving: float = math.nan
    learning: float = math.nan
    master: float = math.nan
    straggling: float = math.nan
    committing: float = math.nan
    transferred: float = math.nan  # bytes, to workers and back

    @classmethod
    def of(cls, metrics: Mapping[str, float]) -> Idle:
        """Read the metrics of a generation."""

        def total(*names: str) -> float:
            return sum(float(metrics.get(name, math.nan)) for name in names)

        seconds = total("seconds")
        named = ("idle", "moving", "learning", "master", "straggling", "committing")
        return cls(
            acting=total("seconds_acting") / seconds if seconds else math.nan,
            transferred=total(*BYTES),
            **{name: total(f"seconds_{name}") for name in named},
        )

    @property
    def share(self) -> str:
        """Return the share of the generation in which workers played."""
        return f"acting {100 * self.acting:.0f} %" if math.isfinite(self.acting) else f"acting {UNKNOWN}"

    def lines(self) -> list[str]:
        """Return a line of the parts that add up to the generation, and one of the other figures."""
        parts = {"idle": self.idle, "moving": self.moving, "learning": self.learning, "master": self.master}
        others = {"straggling": self.straggling, "committing": self.committing}
        first, second = ([f"{name} {_seconds(value)}" for name, value in row.items()] for row in (parts, others))
        return ["  ".join([self.share, *first]), "  ".join([*second, f"bytes {size(self.transferred)}"])]


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
