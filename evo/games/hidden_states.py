"""Hidden states of networks with memory, a row for each environment; of networks without, None, also by its type."""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import types
from numba.extending import overload
from numpy.typing import NDArray

from evo.records import GOES_ON


def hidden_states(count: int, size: int, known: NDArray[np.float32] | None = None) -> NDArray[np.float32] | None:
    """Return a copy of `known` states, or zeros; None where `size` is 0. ValueError: another shape.  # [count, size]"""
    if not size:
        return None
    states = np.zeros((count, size), np.float32)
    if known is not None:
        if known.shape != states.shape:
            raise ValueError(f"hidden states of shape {known.shape} are not {states.shape}")
        states[:] = known
    return states


def remember(memory: Any, b: int, memories: Any, row: int) -> None:
    """Write the state of environment b to a row of a record; nothing where there is none."""


def forget(memory: Any, b: int) -> None:
    """Set the state of environment b to zero; nothing where there is none."""


@overload(remember)
def _remember(memory, b, memories, row):  # type: ignore[no-untyped-def]
    def copy(memory, b, memories, row):  # type: ignore[no-untyped-def]
        for s in range(memory.shape[1]):
            memories[row, s] = memory[b, s]

    none = isinstance(memory, types.NoneType) or isinstance(memories, types.NoneType)
    return (lambda memory, b, memories, row: None) if none else copy


@overload(forget)
def _forget(memory, b):  # type: ignore[no-untyped-def]
    def clear(memory, b):  # type: ignore[no-untyped-def]
        for s in range(memory.shape[1]):
            memory[b, s] = np.float32(0)

    return (lambda memory, b: None) if isinstance(memory, types.NoneType) else clear


def before(
    after: NDArray[np.float32], ends: NDArray[np.uint8], begins: tuple[NDArray[np.int64], NDArray[np.float32]] | None
) -> NDArray[np.float32]:
    """Return the states before steps, of those after them: zeros where an episode begins.  # [M, S] -> [M, S]

    `begins` are the first rows [L] of segments, and the states [L, S] with which they begin; None: of whole episodes.
    """
    states = np.zeros_like(after)
    states[1:] = np.where((ends == GOES_ON)[:-1, np.newaxis], after[:-1], np.float32(0))
    if begins is not None:
        states[begins[0]] = begins[1]
    return states
