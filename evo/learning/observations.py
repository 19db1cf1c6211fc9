"""Observations of recorded steps: snapshots of a game are rebuilt into the network's inputs when these are needed."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from math import prod
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from evo.games.contract import CompiledGame

PART = 4096  # observations that a thread rebuilds, at least


class Snapshots:
    """Recorded snapshots in place of the observations that they are rebuilt into, row by row."""

    def __init__(self, game: CompiledGame, rows: NDArray[np.uint8]) -> None:
        """Keep the snapshots of a game.  # [M, S]; ValueError: they are of another size"""
        game.check(rows)
        self.size = prod(game.shape)  # of an observation
        self._game, self._snapshots = game, np.ascontiguousarray(rows)
        self._scratch: list[Any] = []  # states that no thread has now

    def __len__(self) -> int:
        return len(self._snapshots)

    def rebuild(self, rows: NDArray[np.int32], out: NDArray[np.float32]) -> None:
        """Write the network's inputs of some rows; ValueError: one is no position of the game.  # [B] -> [B, inputs]"""
        try:
            scratch = self._scratch.pop()
        except IndexError:
            scratch = self._game.make_state(1)
        self._game.observe_rows(scratch, self._snapshots, rows, out.reshape(len(rows), *self._game.shape))
        self._scratch.append(scratch)


def observed(
    environment: Any, rows: NDArray[Any], out: NDArray[np.float32] | None = None, threads: int = 1
) -> NDArray[np.float32]:
    """Return the network's inputs of recorded observations, snapshots or not.  # [M, S] or [M, ...] -> [M, ...]

    ValueError where a snapshot is of no such game.
    """
    if rows.dtype != np.uint8:
        return rows
    if out is None:
        out = np.empty((len(rows), *environment.game.shape), np.float32)
    size = max(PART, -(-len(rows) // threads))
    parts = [slice(first, first + size) for first in range(0, len(rows), size)]
    if len(parts) < 2:
        return environment.game.observe(rows, out)  # type: ignore[no-any-return]
    with ThreadPoolExecutor(threads) as pool:  # compiled code holds no lock
        list(pool.map(lambda part: environment.game.observe(rows[part], out[part]), parts))
    return out
