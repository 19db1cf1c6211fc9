"""The lanes kernel: one network on 16, 8, 4 or 2 episodes at a time, in float32 with the same bits on every machine.

The innermost axis of every activation is the lane, one episode each. A lane's sum is taken in one fixed order: bias,
then kernel rows, columns, channels. Multiplication and addition are separate, never fused or reassociated. So with
finite weights the bits of a lane do not depend on the other lanes, on the vector width of the machine, or on which
products with zero are skipped.

`evo.kernels.tiles` computes layers, `sparse` large layers that skip zeros, `weightless` what has no weights.
`forward` is the kernel; `tests/kernels/plain_kernel.py` has the same arithmetic in plain loops.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import njit, typeof
from numpy.typing import NDArray

from evo.compiled import cache as kernel_cache
from evo.compiled.views import aligned
from evo.kernels import sparse, weightless
from evo.kernels.layer_norm import normalise
from evo.kernels.layout import (
    WIDE,
    activation_size,
    is_weighted,
    observation_size,
    pack,
    packed_size,
    source_of,
    table,
    target_of,
)
from evo.kernels.tiles import compute
from evo.kernels.vectors import WIDTHS
from evo.networks.network import Network

kernel_cache.use(__name__)

ARITHMETIC = "muladd-1"  # the version of the order of operations: part of the state hash of runs that use it


@njit(cache=True, error_model="numpy", nogil=True)
def lanes_for(live):  # type: ignore[no-untyped-def]
    """Return how many lanes to compute next where `live` are left: 16, 8, 4 or 2.

    10 lanes are computed as 8 and 2, for example. Where a wider part costs less than several narrow ones (8 for 7, 8
    and 4 for 11, 16 for 13 to 15), some of its lanes are idle. The rule is fixed, so that the count of lane slots is.
    """
    if live >= 13:
        return 16
    if live >= 7:
        return 8
    return 4 if live >= 3 else 2


@njit(cache=True, error_model="numpy", nogil=True, _nrt=False, inline="always")
def forward(  # type: ignore[no-untyped-def]
    layers, packed, large, nonzero, x, first, second, scores, lanes, live, memory, index
):  # fmt: skip
    """Write the network's scores [A, lanes] for the observations `x` [H, W, C, lanes]; all arrays are flat float32.

    `x` has space for `observation_size` float32 per lane; `first` and `second` have it for `activation_size`. `lanes`
    is one of `vectors.WIDTHS`; only the first `live` are defined. `large` comes from `sparse.buffers_for`, `nonzero`
    from `nonzero_mask`.
    Lane k reads row index[k] of `memory` [B, S], the state, and writes the next one; None where there is none.
    """
    last = layers.shape[0] - 1
    for i in range(last + 1):
        at, to = source_of(layers[i], i), target_of(layers[i])
        source = x[at * lanes :] if at >= 0 else (first if i % 2 == 1 else second)
        target = x[to * lanes :] if to >= 0 else scores if i == last else (first if i % 2 == 0 else second)
        if is_weighted(layers[i]):
            if large is not None and layers[i].group == WIDE:  # None by its type: Numba prunes the branch
                sparse.compute(layers[i], packed, source, target, lanes, live, large)
            else:
                compute(layers[i], packed, source, target, lanes, nonzero)
        else:
            weightless.transform(layers[i], packed, source, target, lanes, live, nonzero, memory, index)
        if layers[i].norm >= 0:
            normalise(layers[i], packed, target, lanes)
        weightless.activate(layers[i], target, lanes)


def compile_layers(layers: Any, packed: Any, large: Any, nonzero: Any, x: Any) -> None:
    """Compile, or load from Numba's cache, the functions that `forward` calls with such arguments."""
    layer, lanes = layers[0], WIDTHS[0]
    compute.compile(tuple(map(typeof, (layer, packed, x, x, lanes, nonzero))))
    normalise.compile(tuple(map(typeof, (layer, packed, x, lanes))))
    if large is not None:
        sparse.compute.compile(tuple(map(typeof, (layer, packed, x, x, lanes, lanes, large))))


@njit(cache=True, error_model="numpy", nogil=True, _nrt=False)
def score_all(  # type: ignore[no-untyped-def]
    layers, packed, large, nonzero, x, first, second, scores, observations, out, memory, index
):  # fmt: skip
    """Write the network's outputs [E, O] of observations, flat [E, H W C], with their states; `index` is 0 to E - 1."""
    count, size = observations.shape
    start = 0
    while start < count:
        width = lanes_for(count - start)
        live = min(width, count - start)
        for lane in range(live):
            for i in range(size):
                x[i * width + lane] = observations[start + lane, i]
        forward(layers, packed, large, nonzero, x, first, second, scores, width, live, memory, index[start:])
        for lane in range(live):
            for o in range(out.shape[1]):
                out[start + lane, o] = scores[o * width + lane]
        start += live


def nonzero_mask(network: Network) -> NDArray[np.uint64]:
    """Return a buffer for a bit per input of the first weights, and one word more."""
    first = next(layer for layer in network.layers if layer.weighted or layer.gates)
    return aligned(-(-first.height * first.width * first.channels // 64) + 1, np.uint64)


def arguments_for(network: Network) -> tuple[Any, ...]:
    """Return compiled functions' arguments of a network: table, packed weights, masks; x, ..., scores for 16 lanes."""
    layers, most = table(network), activation_size(network) * 16
    buffers = observation_size(network) * 16, most, most, network.outputs * 16
    masks = sparse.buffers_for(layers), nonzero_mask(network)
    return (layers, aligned(packed_size(network)), *masks, *map(aligned, buffers))


def scores(
    network: Network,
    weights: NDArray[np.float32],
    observations: NDArray[np.float32],
    memory: NDArray[np.float32] | None = None,
) -> NDArray[np.float32]:
    """Return all outputs of one network for any number of observations.  # [E, H, W, C] -> [E, O]

    `memory` [E, S] is the state of each, and is overwritten by the next one; of a network with memory, None is the
    state in which an episode begins.
    """
    arguments = arguments_for(network)
    pack(arguments[0], np.ascontiguousarray(weights, np.float32), arguments[1])
    return score_with(arguments, network, observations, memory)


def score_with(
    arguments: tuple[Any, ...],
    network: Network,
    observations: NDArray[np.float32],
    memory: NDArray[np.float32] | None = None,
) -> NDArray[np.float32]:
    """Return the same as `scores`, with the weights that are packed in `arguments`."""
    count = len(observations)
    if not network.memory or memory is None:
        memory = np.zeros((count, network.memory), np.float32) if network.memory else None
    flat = np.ascontiguousarray(observations, np.float32).reshape(count, int(np.prod(network.shape)))
    out = np.empty((count, network.outputs), np.float32)
    score_all(*arguments, flat, out, memory, np.arange(count))
    return out
