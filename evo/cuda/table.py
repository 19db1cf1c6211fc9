"""The table of a network as kernels of GPUs read it, and how the sums of a layer are shared by a block's threads."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from evo.errors import ConfigurationError
from evo.kernels.layout import ACTIVATIONS, KINDS
from evo.networks.layer import Layer
from evo.networks.network import Network

WARP = 32  # threads
TOGETHER = 4  # lanes that a thread sums together
TILES = {8: (74, 150), 4: (41, 75), 1: (17, 40)}  # filters of a thread: instructions and cycles of waiting, an input
WIDTHS = 32, 16, 8, 4  # lanes that are computed
# Columns of the table. FIRST, BIAS, NORM: where padded weights begin; -1: no layer norm. PADDED: filters of a row.
# FUSED: a ReLU is done with the sums. SOURCE and the following: where the kernel, the biases (of a tree, its nodes),
# gamma and beta begin in the flat vector, and where the layer ends. TILE and the following: how many filters a thread
# sums together, for each of WIDTHS.
HEIGHT, WIDTH, CHANNELS, FILTERS, KERNEL, STRIDE, PAD, PAD_LEFT, OUT_HEIGHT, OUT_WIDTH = range(10)
KIND, ACTIVATION, FUSED, FIRST, BIAS, PADDED, NORM = range(10, 17)
SOURCE, SOURCE_BIAS, SOURCE_NORM, SOURCE_END, NODES, TILE = range(17, 23)
SIDES = (
    "height", "width", "channels", "filters", "kernel", "stride", "pad", "pad_left", "out_height", "out_width",
)  # fmt: skip


def table_of(network: Network, threads: int) -> tuple[NDArray[np.int32], int]:
    """Return the table [layers, 26], and the number of padded weights of a candidate.

    `threads` are those of a block: layers with few outputs are cut into smaller tiles, so that all have something to
    do. A filter is always summed by one thread in one order: tiles change no bit.
    ConfigurationError names layers that GPUs do not have yet.
    """
    rows, at = [], 0
    for layer in network.layers:
        if layer.gates or (not layer.weighted and layer.kind not in KINDS):
            raise ConfigurationError(f"workers.kind: {layer.kind} layers are not played on GPUs yet; use the CPU")
        tiles = [_tile(layer, width, threads) for width in WIDTHS]
        padded = -(-layer.filters // max(*tiles, 4)) * max(*tiles, 4) if layer.weighted else 0
        fan_in = layer.fan_in if layer.weighted else 0
        bias = at + fan_in * padded
        norm = bias + max(padded, 2 * layer.nodes)
        fused = layer.weighted and not layer.norm and layer.activation == "relu"
        kind = KINDS.index("weighted" if layer.weighted else layer.kind)
        left = ACTIVATIONS.index("" if fused else layer.activation)
        source_bias = layer.offset + layer.kernel_size
        source = (layer.offset, source_bias, layer.offset + layer.size - layer.norm_size, layer.offset + layer.size)
        sides = (getattr(layer, name) for name in SIDES)
        placed = (at, bias, padded, norm if layer.norm else -1)
        rows.append((*sides, kind, left, fused, *placed, *source, layer.nodes, *tiles))
        at = -(-(norm + layer.norm_size) // 4) * 4  # rows are loaded by fours
    return np.array(rows, np.int32), max(at, 4)


def _tile(layer: Layer, width: int, threads: int) -> int:
    """Return how many filters a thread sums together so that an input of a layer takes fewest cycles, about.

    Those are the instructions of all threads, or what the thread that has most of them takes with its waiting.
    """

    def cycles(tile: int) -> int:
        slots, wait = TILES[tile]
        items, each = layer.out_height * layer.out_width * -(-layer.filters // tile), width // TOGETHER
        return max(slots * -(-items * each // WARP), (slots + wait) * -(-items // (threads // each)))

    return min(TILES, key=cycles)
