"""A network as kernels of GPUs read it: a table of rows to compute, one of the parts of its flat weights, and tiles."""

from __future__ import annotations

from operator import itemgetter

import numpy as np
from numpy.typing import NDArray

from evo.kernels.layout import ACTIVATIONS, KINDS, SHAPE, rows_of
from evo.networks.layer import Layer
from evo.networks.network import Network

WARP = 32  # threads
LANES = 32  # of a block
TOGETHER = 4  # lanes that a thread sums together
GROUP = 8  # filters whose weights of an input stand together
TILES = {8: (74, 150), 4: (38, 75), 1: (12, 40)}  # filters of a thread: instructions and cycles of waiting, an input
WIDTHS = 32, 16, 8, 4  # lanes that are computed
# Columns of the table of rows, those of SHAPE first; a recurrent layer has three, as on CPUs. FIRST, BIAS, NORM: where
# padded weights begin; -1: no layer norm. FUSED: a ReLU is done with the sums. MEMORY, MEMORY_SIZE: the place of its
# state in that of the network. TILE and the following: how many filters a thread sums together, for each of WIDTHS.
HEIGHT, WIDTH, CHANNELS, FILTERS, KERNEL, STRIDE, PAD, PAD_LEFT, OUT_HEIGHT, OUT_WIDTH = range(10)
KIND, ACTIVATION, FUSED, FIRST, BIAS, NORM, MEMORY, MEMORY_SIZE, TILE = range(10, 19)
# Columns of the table of parts: what it is, where it begins and ends in the flat weights [ROWS, COLUMNS], where in the
# padded ones, the group of the latter, the inputs of its layer, and the number of the layer.
WHAT, START, END, PLACE, COLUMNS, ROWS, INPUTS, OF_LAYER = range(8)
WEIGHTS, BIASES, GAMMA, NODES = range(4)  # of parts; beta and thresholds are as weights


def table_of(network: Network, threads: int) -> tuple[NDArray[np.int32], NDArray[np.int32], int]:
    """Return the tables of rows [R, 22] and of parts [N, 8], and the number of padded weights of a candidate.

    `threads` are those of a block: layers with few outputs are cut into smaller tiles, so that all have something to
    do. A filter is always summed by one thread in one order: tiles change no bit.
    """
    rows, parts, at = [], list[tuple[int, ...]](), 0
    for kind, layer, biases, memory, memory_size, *_ in rows_of(network):
        tiles, filters = [_tile(layer, width, threads) for width in WIDTHS], layer.filters
        padded = -(-filters // GROUP) * GROUP if layer.weighted else 0
        bias = at + (layer.fan_in * padded if layer.weighted else 0)
        norm = bias + max(padded, 2 * layer.nodes)
        fused = layer.weighted and not layer.norm and layer.activation == "relu"
        left = ACTIVATIONS.index("" if fused else layer.activation)
        sides = (getattr(layer, name) for name in SHAPE)
        placed = (at, bias, norm if layer.norm else -1)
        rows.append((*sides, KINDS.index(kind), left, fused, *placed, memory, memory_size, *tiles))
        gamma = layer.offset + layer.size - layer.norm_size
        nodes, half = layer.nodes, layer.norm_size // 2
        of_layer = [
            (WEIGHTS, layer.offset, layer.kernel_size, at, filters),
            (BIASES, biases, filters if layer.weighted and biases >= 0 else 0, bias, 0),
            (NODES, layer.offset, nodes, bias, 0),
            (WEIGHTS, layer.offset + nodes, nodes, bias + nodes, 0),
            (GAMMA, gamma, half, norm, 0),
            (WEIGHTS, gamma + half, half, norm + filters, 0),
        ]
        for what, start, size, place, columns in of_layer:
            if size:
                ends = (one.offset + one.size for one in network.layers)
                number = next(number for number, end in enumerate(ends) if start < end)
                columns = columns or size
                parts.append((what, start, start + size, place, columns, size // columns, layer.channels, number))
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
