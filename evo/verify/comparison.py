"""What a line of the manifest says of a generation, beside what playing it again has left."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from evo.files.hashing import array_digest
from evo.records import WORST

if TYPE_CHECKING:
    from evo.records import Arrays, Result
    from evo.store.manifest import Line

SHOWN = 3  # candidates that are named where many differ


def has_candidates(line: Line) -> bool:
    """Return whether a generation's record tells of every candidate by itself."""
    shapes = [line.arrays[name].shape for name in ("record/key", "record/return") if name in line.arrays]
    return len(shapes) == 2 and shapes[0] == shapes[1] and len(shapes[0]) == 1


def candidates(line: Line) -> int:
    """Return how many candidates a generation had; one that has none counts as one."""
    return line.arrays["record/return"].shape[0] if has_candidates(line) else 1


def taken_over(line: Line) -> bool:
    """Return whether a generation is the state that a fork began with."""
    return line.generation == 0 and not line.frames and not any(name.startswith("record/") for name in line.arrays)


def same_outcome(result: Result, record: Mapping[str, NDArray[np.generic]], part: slice) -> bool:
    """Return whether candidates did what the record says of them."""
    worst = (result.returns == WORST).any(axis=1)
    returns = np.where(worst, WORST, result.returns.sum(axis=1, where=result.returns != WORST))
    frames = result.lengths.sum(axis=1, dtype=np.int64)
    return np.array_equal(returns, record["return"][part]) and np.array_equal(frames, record["frames"][part])


def differing_arrays(line: Line, arrays: Arrays) -> list[str]:
    """Return the names ("state/..." and "record/...") under which not the same was hashed."""
    names = sorted(arrays.keys() | line.arrays.keys())
    return [n for n in names if n not in arrays or line.arrays.get(n) != array_digest(n, arrays[n])]


def difference(line: Line, name: str, kept: NDArray[np.generic] | None, replayed: NDArray[np.generic] | None) -> str:
    """Return in words how an array that was replayed differs from the one that was kept, if that can be read."""
    if replayed is None:
        return f"{name} is nothing that playing it again leaves"
    if kept is None or kept.shape != replayed.shape or kept.ndim == 0:
        return f"{name} is not what playing it again leaves"
    rows = np.flatnonzero((kept != replayed).reshape(len(kept), -1).any(axis=1))
    if kept.ndim > 1:
        return f"{name} differs in {len(rows)} of {len(kept)} rows"
    who = "candidate" if name.startswith("record/") and len(kept) == candidates(line) else "number"
    told = [f"{who} {row} has {kept[row]}, replayed {replayed[row]}" for row in rows[:SHOWN]]
    more = f", and {len(rows) - SHOWN} more" if len(rows) > SHOWN else ""
    return f"{name}: {'; '.join(told)}{more}"
