"""The exponential of every number of an array, with the same bits on every machine."""

from __future__ import annotations

import numpy as np
from numba import njit
from numpy.typing import NDArray

from evo.compiled import cache as kernel_cache
from evo.compiled import exact

kernel_cache.use(__name__)

_exp = njit(cache=True, error_model="numpy")(exact.exp)


@njit(cache=True, error_model="numpy", nogil=True)
def _fill(x, out):  # type: ignore[no-untyped-def]
    for i in range(x.shape[0]):
        out[i] = _exp(x[i])


def exp(x: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return e^x of every number.  # [P] -> [P]"""
    out = np.empty_like(x)
    _fill(x, out)
    return out
