"""What of a generation was idle, and what it moved, in a few words (see `evo.accounting` for what is counted)."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

UNKNOWN = "-"
MASTERS = ("seconds_moving", "seconds_learning", "seconds_master")
MOVED = ("bytes_published", "bytes_sent", "bytes_received")


@dataclass(frozen=True)
class Idle:
    """One generation, by those who waited in it; what is not known is not a number."""

    busy: float = math.nan  # the share of the generation in which workers played, on their mean
    alone: float = math.nan  # seconds in which the last task of a round ran alone
    master: float = math.nan  # seconds in which workers waited for the master
    committing: float = math.nan  # seconds, since the generation before
    moved: float = math.nan  # bytes, out to workers and back

    @classmethod
    def of(cls, metrics: Mapping[str, float]) -> Idle:
        """Read the metrics of a generation."""

        def total(*names: str) -> float:
            return sum(float(metrics.get(name, math.nan)) for name in names)

        seconds = total("seconds")
        return cls(
            busy=total("seconds_acting") / seconds if seconds else math.nan,
            alone=total("seconds_alone"),
            master=total(*MASTERS),
            committing=total("seconds_committing"),
            moved=total(*MOVED),
        )

    def parts(self) -> list[str]:
        """Return a name and a figure for each."""
        busy = f"{100 * self.busy:.0f} %" if math.isfinite(self.busy) else UNKNOWN
        return [
            f"workers {busy}",
            f"alone {_seconds(self.alone)}",
            f"master {_seconds(self.master)}",
            f"commit {_seconds(self.committing)}",
            f"moved {size(self.moved)}",
        ]


def _seconds(value: float) -> str:
    return f"{value:.2f} s" if math.isfinite(value) else UNKNOWN


def size(count: float) -> str:
    """Return bytes with three figures, as in 1.14 MB."""
    if not math.isfinite(count):
        return UNKNOWN
    for limit, unit in ((1e9, "GB"), (1e6, "MB"), (1e3, "kB")):
        if count >= limit:
            return f"{count / limit:.3g} {unit}"
    return f"{count:.0f} B"
