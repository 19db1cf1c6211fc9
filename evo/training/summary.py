"""The summary of a run: the JSON object that `--json` ends with, whatever happened."""

from __future__ import annotations

import json
import math
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, Literal

if TYPE_CHECKING:
    from evo.store.champion import Score


@dataclass(frozen=True)
class Champion:
    """The network with the best validation return."""

    fitness: float  # mean validation return
    test: Score | None = None


@dataclass
class Summary:
    """A run so far."""

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
