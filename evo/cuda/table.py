"""A network as kernels of GPUs read it: a table of rows to compute, one of the parts of its flat weights, and tiles."""

from __future__ import annotations

from operator import itemgetter

import numpy as np
from numpy.typing import NDArray

from evo.kernels.layout import ACTIVATIONS, KINDS, rows_of
from evo.networks.layer import Layer
from evo.networks.network import Network

WARP = 32  # threads
TOGETHER = 4  # lanes that a thread sums together
TILES = {8: (74, 150), 4: (41, 75), 1: (17, 40)}  # filters of a thread: instructions and cycles of waiting, an input
WIDTHS = 32, 16, 8, 4  # lanes that are computed
# Columns of the table of rows; a recurrent layer has three, as on CPUs. FIRST, BIAS, NORM: where padded weights begin;
# -1: no layer norm. PADDED: filters of a row of weights. FUSED: a ReLU is done with the sums. MEMORY, MEMORY_SIZE: the
# place of its state in that of the network. TILE and the following: how many filters a thread sums together, for each
# of WIDTHS.
HEIGHT, WIDTH, CHANNELS, FILTERS, KERNEL, STRIDE, PAD, PAD_LEFT, OUT_HEIGHT, OUT_WIDTH = range(10)
KIND, ACTIVATION, FUSED, FIRST, BIAS, PADDED, NORM, MEMORY, MEMORY_SIZE, TILE = range(10, 20)
# Columns of the table of parts: what it is, where it begins and ends in the flat weights, where in the padded ones,
# the columns of both, the inputs of its layer, and the number of the layer.
WHAT, START, END, PLACE, COLUMNS, PADDED_COLUMNS, INPUTS, OF_LAYER = range(8)
WEIGHTS, BIASES, GAMMA, NODES = range(4)  # of parts; beta and thresholds are as weights
SIDES = (
    "height", "width", "channels", "filters", "kernel", "stride", "pad", "pad_left", "out_height", "out_width",
)  # fmt: skip


def table_of(network: Network, threads: int) -> tuple[NDArray[np.int32], NDArray[np.int32], int]:
    """Return the tables of rows [R, 23] and of parts [N, 8], and the number of padded weights of a candidate.

    `threads` are those of a block: layers with few outputs are cut into smaller tiles, so that all have something to
    do. A filter is always summed by one thread in one order: tiles change no bit.
    """
    rows, parts, at = [], list[tuple[int, ...]](), 0
    for kind, layer, biases, memory, memory_size, *_ in rows_of(network):
        tiles, filters = [_tile(layer, width, threads) for width in WIDTHS], layer.filters
        padded = -(-filters // max(*tiles, 4)) * max(*tiles, 4) if layer.weighted else 0
        bias = at + (layer.fan_in * padded if layer.weighted else 0)
        norm = bias + max(padded, 2 * layer.nodes)
        fused = layer.weighted and not layer.norm and layer.activation == "relu"
        left = ACTIVATIONS.index("" if fused else layer.activation)
        sides = (getattr(layer, name) for name in SIDES)
        placed = (at, bias, padded, norm if layer.norm else -1)
        rows.append((*sides, KINDS.index(kind), left, fused, *placed, memory, memory_size, *tiles))
        gamma = layer.offset + layer.size - layer.norm_size
        of_layer = [
            (WEIGHTS, layer.offset, layer.kernel_size, at, filters, padded),
            (BIASES, biases, filters if layer.weighted and biases >= 0 else 0, bias, filters, filters),
            (NODES, layer.offset, layer.nodes, bias, filters, filters),
            (WEIGHTS, layer.offset + layer.nodes, layer.nodes, bias + layer.nodes, filters, filters),
            (GAMMA, gamma, layer.norm_size // 2, norm, filters, filters),
            (WEIGHTS, gamma + layer.norm_size // 2, layer.norm_size // 2, norm + filters, filters, filters),
        ]
        for what, start, size, *place in of_layer:
            if size:
                ends = (one.offset + one.size for one in network.layers)
                number = next(number for number, end in enumerate(ends) if start < end)
                parts.append((what, start, start + size, *place, layer.channels, number))
        at = -(-(norm + layer.norm_size) // 4) * 4  # rows are loaded by fours
    return np.array(rows, np.int32), np.array(sorted(parts, key=itemgetter(START)), np.int32), max(at, 4)


def _tile(layer: Layer, width: int, threads: int) -> int:
    """Return how many filters a thread sums together so that an input of a layer takes fewest cycles, about.

    Those are the instructions of all threads, or what the thread that has most of them takes with its waiting.
    """

    def cycles(tile: int) -> int:
        slots, wait = TILES[tile]
        items, each = layer.out_height * layer.out_width * -(-layer.filters // tile), width // TOGETHER
        return max(slots * -(-items * each // WARP), (slots + wait) * -(-items // (threads // each)))

    return min(TILES, key=cycles)
