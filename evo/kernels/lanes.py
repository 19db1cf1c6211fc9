"""The lanes kernel: one network on 16, 8, 4 or 2 episodes at a time, in float32 with the same bits on every machine.

The innermost axis of every activation is the lane, one episode each. Each lane's sum is taken in one fixed order (bias,
then kernel rows, columns, channels) with a separate multiplication and addition, never fused or reassociated; so with
finite weights a lane's bits depend neither on its neighbours, nor on the width of the machine's vectors, nor on which
products with zero are left out. What the vectors hold, lanes or filters, is the business of `evo.kernels.tiles`, and of
`sparse` in large layers; pairs of bfloat16, whose order is another one, that of `pairs`.

`forward` is the kernel; `forward_plain` is the same float32 arithmetic without intrinsics, to read and to test against.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numba import njit
from numpy.typing import NDArray

from evo.compiled import cache as kernel_cache
from evo.compiled.buffers import aligned
from evo.kernels import bfloat16_pairs, sparse
from evo.kernels.layer_norm import normalise, normalise_plain
from evo.kernels.layout import (
    CHANNELS,
    FILTERS,
    GROUP,
    HEIGHT,
    KERNEL,
    NORM,
    OUT_HEIGHT,
    OUT_WIDTH,
    PACKED,
    PAD,
    PAD_LEFT,
    RELU,
    STRIDE,
    WIDE,
    WIDTH,
    activation_size,
    pack,
    packed_size,
    table,
)
from evo.kernels.tiles import compute
from evo.networks.network import Network, Options

kernel_cache.use(__name__)

ARITHMETIC = "muladd-1"  # the version of the order of operations: part of the hash of every run that is played so
IN_PAIRS = "pairs-1"  # the same of hidden layers in bfloat16
WIDTHS = (16, 8, 4, 2)


@njit(cache=True, error_model="numpy", nogil=True, _nrt=False, inline="always")
def forward(layers, packed, norms, large, marks, x, first, second, scores, lanes, live):  # type: ignore[no-untyped-def]
    """Write the network's scores [A, lanes] for the observations `x` [H, W, C, lanes]; all arrays are flat float32.

    `first` and `second` hold `activation_size` floats a lane; `lanes` is one of WIDTHS, of which the first `live` are
    asked for. Where `packed` are words, hidden layers compute with pairs of bfloat16 (`evo.kernels.bfloat16_pairs`), and `x` is
    lost. `norms` is what `norms_of` returns, `large` what `sparse.room_for` does, `marks` what `marks_for` does.
    """
    floats = bfloat16_pairs.like(packed, x)
    last = layers.shape[0] - 1
    for i in range(last):
        source = x if i == 0 else (first if i % 2 == 1 else second)
        target = first if i % 2 == 0 else second
        inputs = bfloat16_pairs.like(source, packed)
        bfloat16_pairs.pair_up(layers[i], inputs, lanes)  # type: ignore[no-untyped-call]
        if large is not None and layers[i, GROUP] == WIDE:  # None is told by its type: the rest is not compiled
            sparse.compute(layers[i], packed, inputs, target, lanes, live, large)
        else:
            compute(layers[i], packed, inputs, target, lanes, marks)
        if norms is not None and layers[i, NORM] >= 0:
            normalise(layers[i], norms, target, lanes)
    compute(layers[last], floats, x if last == 0 else (first if last % 2 == 1 else second), scores, lanes, marks)


@njit(cache=True, error_model="numpy", nogil=True)
def _layer_plain(layer, packed, x, out, lanes):  # type: ignore[no-untyped-def]
    height, width, channels, filters = layer[HEIGHT], layer[WIDTH], layer[CHANNELS], layer[FILTERS]
    kernel, stride, pad, pad_left = layer[KERNEL], layer[STRIDE], layer[PAD], layer[PAD_LEFT]
    group = layer[GROUP]
    for f in range(filters):
        start = layer[PACKED] + f // group * (kernel * kernel * channels + 1) * group + f % group
        for i in range(layer[OUT_HEIGHT]):
            for j in range(layer[OUT_WIDTH]):
                at = ((i * layer[OUT_WIDTH] + j) * filters + f) * lanes
                for lane in range(lanes):
                    out[at + lane] = packed[start]
                for r in range(kernel):
                    row = i * stride - pad + r
                    for c in range(kernel):
                        column = j * stride - pad_left + c
                        if 0 <= row < height and 0 <= column < width:
                            for channel in range(channels):
                                weight = packed[start + (1 + (r * kernel + c) * channels + channel) * group]
                                source = ((row * width + column) * channels + channel) * lanes
                                for lane in range(lanes):
                                    out[at + lane] += weight * x[source + lane]
                if layer[RELU]:
                    for lane in range(lanes):
                        if out[at + lane] < np.float32(0):
                            out[at + lane] = np.float32(0)


@njit(cache=True, error_model="numpy", nogil=True)
def forward_plain(layers, packed, norms, large, marks, x, first, second, scores, lanes, live):  # type: ignore[no-untyped-def]
    """Do what `forward` does with floats, in plain loops and for any number of lanes, all of them."""
    last = layers.shape[0] - 1
    for i in range(last + 1):
        source = x if i == 0 else (first if i % 2 == 1 else second)
        target = scores if i == last else (first if i % 2 == 0 else second)
        _layer_plain(layers[i], packed, source, target, lanes)
        if norms is not None and layers[i, NORM] >= 0:
            normalise_plain(layers[i], norms, target, lanes)


def arithmetic(options: Options) -> str:
    """Return the version of the arithmetic in which such a network is played."""
    return IN_PAIRS if options.in_pairs else ARITHMETIC


def room_for_weights(network: Network) -> tuple[NDArray[np.int64], NDArray[Any], Callable[..., None]]:
    """Return the table of layers, room for packed weights, and what packs them: pack(layers, weights, room)."""
    if network.options.in_pairs:
        return bfloat16_pairs.table(network), aligned(packed_size(network), np.uint32), bfloat16_pairs.pack
    return table(network), aligned(packed_size(network)), pack


def marks_for(network: Network) -> NDArray[np.uint64] | None:
    """Return room for a bit of every input, and a word more; None in pairs, as adding zero may round a tiny sum there."""
    return None if network.options.in_pairs else aligned(-(-int(np.prod(network.shape)) // 64) + 1, np.uint64)


def norms_of(network: Network, packed: NDArray[Any]) -> NDArray[np.float32] | None:
    """Return packed weights as floats, among which layer norms find theirs; None where no layer has one."""
    return packed.view(np.float32) if any(layer.norm for layer in network.layers) else None


def scores(
    network: Network, weights: NDArray[np.float32], observations: NDArray[np.float32], width: int = 16
) -> NDArray[np.float32]:
    """Return the scores of one network for any number of observations.  # [E, H, W, C] -> [E, A]

    `width`, one of WIDTHS, is how many are computed together; it changes no bit.
    """
    layers, packed, fill = room_for_weights(network)
    norms, large, marks = norms_of(network, packed), sparse.room_for(layers), marks_for(network)
    fill(layers, np.ascontiguousarray(weights, np.float32), packed)
    size, room = int(np.prod(network.shape)), activation_size(network)
    first, second = np.empty(room * width, np.float32), np.empty(room * width, np.float32)
    out = np.empty((len(observations), network.outputs), np.float32)
    for start in range(0, len(observations), width):
        batch = np.zeros((width, size), np.float32)
        part = observations[start : start + width].reshape(-1, size)
        batch[: len(part)] = part
        lanes_out = np.empty(network.outputs * width, np.float32)
        x = np.ascontiguousarray(batch.T).ravel()
        forward(layers, packed, norms, large, marks, x, first, second, lanes_out, width, len(part))
        out[start : start + width] = lanes_out.reshape(network.outputs, width).T[: len(part)]
    return out
