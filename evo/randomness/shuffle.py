"""The order in which an epoch meets its examples, drawn from a named stream."""

from __future__ import annotations

import numpy as np
from numba import njit
from numpy.typing import NDArray

from evo.compiled import cache as kernel_cache
from evo.randomness.philox_compiled import draw
from evo.randomness.streams import Purpose, stream

kernel_cache.use(__name__)

SHUFFLE = int(Purpose.SHUFFLE)


@njit(cache=True, error_model="numpy")
def _shuffle(key, purpose, out):  # type: ignore[no-untyped-def]
    """Shuffle `out` [M], each order equally likely (Fisher and Yates; Durstenfeld, 1964)."""
    for i in range(out.shape[0] - 1, 0, -1):
        j = draw(key, i, i + 1, purpose)
        out[i], out[j] = out[j], out[i]


def minibatches(seed: int, generation: int, epoch: int, examples: int, count: int) -> list[NDArray[np.int32]]:
    """Split the numbers below `examples` at random into `count` disjoint parts, whose sizes differ by one at most."""
    order = np.arange(examples, dtype=np.int32)
    _shuffle(np.uint64(stream(seed, Purpose.SHUFFLE, generation, epoch)), SHUFFLE, order)
    return np.array_split(order, count)
