"""What a run was, as the one JSON object that `--json` ends with, whatever happened."""

from __future__ import annotations

import json
import math
from dataclasses import asdict, dataclass
from typing import Any, Literal


@dataclass
class Heldout:
    """Scores of a champion on sealed episodes."""

    episodes: int
    mean: float
    ci95: tuple[float, float]  # Student's t
    median: float
    max: float
    win_rate: float | None  # None where there is no win
    win_ci95: tuple[float, float] | None  # Wilson's
    mean_length: float  # frames an episode


@dataclass
class Champion:
    """The crowned network."""

    fitness: float  # mean unshaped return on select episodes
    heldout: Heldout | None = None


@dataclass
class Summary:
    """A run so far; whoever learns something writes it here, and the command line prints it once, at the end."""

    status: Literal["done", "interrupted", "failed"] = "failed"
    error: str | None = None
    run_dir: str | None = None
    algorithm: str | None = None
    seed: int | None = None
    generations: int | None = None  # committed
    frames: int | None = None
    seconds: float | None = None
    state_hash: str | None = None
    champion: Champion | None = None

    def to_json(self) -> str:
        """Return one line with every key; what is unknown or not finite is null."""
        return one_line(asdict(self))


def one_line(values: object) -> str:
    """Return JSON on one line, with null for numbers that JSON does not have."""
    return json.dumps(finite(values), allow_nan=False)


def finite(value: Any) -> Any:
    """Return a JSON value with null for every number that is not finite."""
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, dict):
        return {key: finite(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [finite(item) for item in value]
    return value
