"""Checks of what callers give to games and environments."""

from __future__ import annotations

from operator import index
from typing import Any


def whole(name: str, value: Any, lowest: int, highest: int) -> int:
    """Return `value` as an int; ValueError where it is no integer or lies outside [lowest, highest]."""
    try:
        number = index(value)
    except TypeError:
        raise ValueError(f"{name} is a whole number, not {value!r}") from None
    if not lowest <= number <= highest:
        raise ValueError(f"{name} is {number}, not between {lowest} and {highest}")
    return number
