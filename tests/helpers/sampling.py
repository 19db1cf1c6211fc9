"""Parameters of a test of which the short suite takes a sample, and the long one all."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pytest


def sampled(cases: Iterable[Any], *short: int) -> list[Any]:
    """Return all cases; those that stand at none of the places `short` (the first alone, if left out) are long."""
    kept = short or (0,)
    return [
        pytest.param(*(case if isinstance(case, tuple) else (case,)), marks=() if place in kept else pytest.mark.long)
        for place, case in enumerate(cases)
    ]
