"""Numbers as text, the same in every command and on every page."""

from __future__ import annotations

import math
from collections.abc import Sequence

UNKNOWN = "-"


def number(value: float | None) -> str:
    """Return a score with two decimals, whole from 10,000 on; three significant digits below 0.0005 or above 1e15."""
    if value is None or not math.isfinite(value):
        return UNKNOWN
    if 0 < abs(value) < 0.0005 or abs(value) >= 1e15:
        return f"{value:.3g}"
    return f"{value:z.2f}" if abs(value) < 10_000 else f"{value:,.0f}"


def interval(ends: Sequence[float | None] | None) -> str:
    """Return both ends of an interval of scores."""
    if ends is None or any(end is None or not math.isfinite(end) for end in ends):
        return UNKNOWN
    return f"{number(ends[0])} to {number(ends[1])}"


def figure(value: float) -> str:
    """Return a number with two significant digits, or three from 100 on, without an exponent where that is short."""
    return f"{value:.3g}" if abs(value) >= 100 else f"{value:.2g}"


def amount(value: float, unit: str = "") -> str:
    """Return a large number with three figures, as in 1.14 M."""
    if not math.isfinite(value):
        return UNKNOWN
    for limit, prefix in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if value >= limit:
            return f"{value / limit:.3g} {prefix}{unit}"
    return f"{value:.0f} {unit}".rstrip()


def size(count: float) -> str:
    """Return a number of bytes with three figures, as in 3.24 MB."""
    return amount(count, "B")


def percent(share: float) -> str:
    """Return a share in per cent."""
    return f"{100 * share:.2g} %" if share < 0.995 else f"{100 * share:.0f} %"


def percentage(share: float, form: str = ".3g") -> str:
    """Return a share of won episodes in per cent; where not all were won, this is below 100."""
    text = format(100 * share, form)
    return f"{math.floor(1e4 * share) / 100:.2f}" if share < 1 and float(text) == 100 else text


def duration(seconds: float) -> str:
    """Return a duration in seconds, minutes or hours: 42 s, 3:05 min, 1:02 h."""
    if not math.isfinite(seconds):
        return UNKNOWN
    whole = math.ceil(seconds)
    if whole < 60:
        return f"{whole} s"
    if whole < 3600:
        return f"{whole // 60}:{whole % 60:02} min"
    return f"{whole // 3600}:{whole // 60 % 60:02} h"
