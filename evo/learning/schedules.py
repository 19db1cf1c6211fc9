"""What an option is after so many frames, in absolute frames and never a share of the run's length."""

from __future__ import annotations


def value_at(start: float, end: float, over: int, frames: int) -> float:
    """Return where a straight line from `start` to `end`, which takes `over` frames, stands after `frames` of them.

    From then on it is `end`; with `over` 0 nothing changes, and it is `start` for ever.
    """
    if not over:
        return start
    return end if frames >= over else start + (end - start) * (frames / over)
