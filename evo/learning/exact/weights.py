"""A network's weights, packed for the passes."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from evo.compiled.buffers import aligned
from evo.learning.exact.passes import pack_weights
from evo.learning.exact.plan import Plan
from evo.learning.exact.runs import WIDTH, rounded
from evo.networks.network import Network


class Weights:
    """A flat vector of weights, and its kernels in blocks of columns, which are packed again where it has changed."""

    def __init__(self, network: Network, made: Plan) -> None:
        self._plan = made
        widest = max(layer.filters for layer in network.layers)
        weighted = [layer for layer in network.layers if layer.weighted]
        self._flat = aligned(network.size + WIDTH * (widest + 1))  # squares are read beyond the end
        self.vector: NDArray[np.float32] = self._flat[: network.size]
        self._packed = aligned(made.packed)
        self._scratch = aligned(max(rounded(layer.fan_in) * rounded(layer.filters) for layer in weighted))
        self._stale = True

    def changed(self) -> None:
        """Say that `vector` was written."""
        self._stale = True

    def packed(self) -> NDArray[np.float32]:
        """Return the packed kernels of the present weights."""
        if self._stale:
            pack_weights(self._plan.layers, self._flat, self._packed, self._scratch)
            self._stale = False
        return self._packed
