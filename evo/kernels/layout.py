"""Memory layout of the kernels: the table of layers, and the blocks of packed weights."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from math import prod
from typing import Any, NamedTuple

import numpy as np
from numba import njit
from numba.extending import overload
from numpy.typing import NDArray

from evo.compiled import cache as kernel_cache
from evo.networks.layer import Layer
from evo.networks.network import Network

kernel_cache.use(__name__)

# Filters whose sums stay in registers: 8 filters of 16 lanes fill those of AVX-512; other machines have a half or a
# quarter of them. Lanes and filters are independent, so the block size changes no bit.
BLOCK = 8 if "+avx512f" in kernel_cache.features().split(",") else 4
WIDE = 16  # the block size of layers that skip zero inputs (`evo.kernels.sparse`)
LARGE = 1 << 16  # weights of the smallest layer that skips zero inputs; smaller ones gain nothing from it
FAR = np.float32(1 << 24)  # from where on float32 cannot represent every whole number
LEAST = 3 * WIDE + 1  # filters of such a layer, at least: four blocks, whose sums advance together

# A layer as the kernels read it. packed: its offset in the packed weights. norm: the offset of gamma there, which beta
# follows; -1: no layer norm. group: filters packed together, BLOCK or WIDE. weights, biases, gamma: where they lie in
# the flat weights; biases -1: they are zero.
SHAPE = ("height", "width", "channels", "filters", "kernel", "stride", "pad", "pad_left", "out_height", "out_width")
PLACES = ("packed", "relu", "norm", "group", "weights", "biases", "gamma")
LAYER = np.dtype([(name, np.int64) for name in (*SHAPE, *PLACES)])
# A layer of a network that has more than convolutions, dense layers and a ReLU behind each. By this type Numba compiles
# other kernels, so those of the usual networks are free of what follows. kind: a place in KINDS; activation: one in
# ACTIVATIONS, of what is left to do when the sums are taken (a ReLU without normalisation is done with them). They come
# first: Numba takes a record that only adds fields at its end for the shorter one, and warns.
# source, target: where in the buffer of observations its inputs and its outputs are; -1: they are in the other buffers.
FIRST = ("kind", "activation", "source", "target")
ANY_LAYER = np.dtype([*((name, np.int64) for name in FIRST), *LAYER.descr])
KINDS = ("weighted", "one_hot", "max_pool", "average_pool", "identity", "tree", "state", "gru", "lstm")
WEIGHTED, ONE_HOT, MAX_POOL, AVERAGE_POOL, IDENTITY, TREE, STATE, GRU, LSTM = range(len(KINDS))
ACTIVATIONS = ("", "relu", "tanh")
_, RELU, TANH = range(len(ACTIVATIONS))
# A row of a network with memory. A recurrent layer has three: the sums of its inputs, those of its state, its gates.
# memory, memory_size: the place of its state in that of the network.
MEMORY_LAYER = np.dtype([("memory", np.int64), ("memory_size", np.int64), *ANY_LAYER.descr])


class _Row(NamedTuple):
    """A row of the table."""

    kind: str  # one of KINDS
    layer: Layer  # what is computed; `offset` is that of its kernel
    biases: int  # their place in the flat weights; -1: none
    memory: int = 0  # the place of its state
    memory_size: int = 0
    source: int = -1  # in the buffer of observations, behind which are the outputs of all entries
    target: int = -1


def rows_of(network: Network) -> Iterator[_Row]:
    """Yield the rows of the table of a network."""
    memory, seen = 0, prod(network.shape)
    for number, layer in enumerate(network.layers):
        after, flow = layer.offset + layer.kernel_size, network.flow(number)
        source = seen if network.joins and number == network.joins else flow.observed
        target = seen + flow.into if number < network.joins == flow.following else -1
        if layer.gates:
            inputs = replace(layer, kind="dense", filters=layer.gates * layer.filters, activation="", norm=False)
            state = replace(inputs, channels=layer.filters, offset=layer.offset + inputs.kernel_size)
            after = state.offset + state.kernel_size
            yield _Row("weighted", inputs, after, source=source)
            source = -1
            yield _Row("state", state, after + state.filters if layer.kind == "gru" else -1, memory, layer.memory)
        kind = "weighted" if layer.weighted else layer.kind
        yield _Row(kind, layer, after, memory, layer.memory, source, target)
        memory += layer.memory


def table(network: Network) -> NDArray[np.void]:
    """Return the layers as the kernels read them.  # [rows] LAYER, ANY_LAYER, MEMORY_LAYER"""
    rows, packed, parts = [], 0, list(rows_of(network))
    usual = all(layer.weighted and layer.activation == "relu" for layer in network.layers[:-1])
    usual = usual and not network.layers[-1].activation and not network.parts
    for i, (kind, layer, biases, memory, memory_size, *places) in enumerate(parts):
        group = _group(parts, i)
        norm = packed + _blocks_size(layer, group)
        shape = (getattr(layer, name) for name in SHAPE)
        fused = layer.weighted and not layer.norm and layer.activation == "relu"
        row: tuple[Any, ...] = (*shape, packed, fused, norm if layer.norm else -1, group)
        row += (layer.offset, biases, layer.offset + layer.size - layer.norm_size)
        if not usual:
            row = (KINDS.index(kind), ACTIVATIONS.index("" if fused else layer.activation), *places, *row)
        if network.memory:
            row = (memory, memory_size, *row)
        rows.append(row)
        packed = norm + layer.norm_size
    return np.array(rows, LAYER if usual else MEMORY_LAYER if network.memory else ANY_LAYER)


def by_table(
    usual: Callable[..., Any],
    general: Callable[..., Any] | None = None,
    recurrent: Callable[..., Any] | None = None,
    **options: Any,
) -> Any:
    """Return a function (layer, ...) for compiled code: `usual` where the layer is a LAYER, `general` of ANY_LAYER.

    Of MEMORY_LAYER it is `recurrent`; each is by default the one before.
    """
    general = general or usual
    remembering = recurrent or general

    def compiled(*arguments: Any) -> Any:
        raise NotImplementedError("compiled code only")

    overload(compiled, strict=False, **options)(
        lambda layer, *_: remembering if "memory" in layer.fields else general if "kind" in layer.fields else usual
    )
    return compiled


# Whether a layer has a kernel and a bias and is no sum of a state, and whether its normalisation ends with a ReLU.
is_weighted = by_table(lambda layer: True, lambda layer: layer.kind == WEIGHTED, inline="always")
rectifies = by_table(lambda layer: True, lambda layer: layer.activation == RELU, inline="always")

# Where in the buffer of observations a layer's inputs and outputs are; -1: they are in the other buffers, in turns.
source_of = by_table(lambda layer, i: -1 if i else 0, lambda layer, i: layer.source, inline="always")
target_of = by_table(lambda layer: -1, lambda layer: layer.target, inline="always")


def packed_size(network: Network) -> int:
    """Return the size of the packed weights of a network, in float32."""
    rows = list(rows_of(network))
    return sum(_blocks_size(row.layer, _group(rows, i)) + row.layer.norm_size for i, row in enumerate(rows))


def _blocks_size(layer: Layer, group: int) -> int:
    return -(-layer.filters // group) * group * (layer.fan_in + 1) if layer.weighted else 2 * layer.nodes


def _group(rows: list[_Row], i: int) -> int:
    """Return how many filters of row `i` are packed together: WIDE for a large layer behind zeros, else BLOCK."""
    layer = rows[i].layer
    large = layer.weighted and layer.filters >= LEAST and layer.kernel_size >= LARGE
    skips = large and i < len(rows) - 1 and rows[i].source < 0
    return WIDE if skips and _gives_zeros(rows, i - 1) else BLOCK


def _gives_zeros(rows: list[_Row], i: int) -> bool:
    """Return whether many outputs of row `i` are zero: behind a ReLU, also when pooled, or where they are one-hot."""
    if i < 0:
        return False
    layer = rows[i].layer
    if layer.activation or layer.norm or layer.weighted or layer.gates:
        return layer.activation == "relu"
    return layer.kind == "one_hot" or _gives_zeros(rows, i - 1)


def observation_size(network: Network) -> int:
    """Return the float32 of an observation in one lane, and of the outputs of all its entries, if it has any."""
    return prod(network.shape) + (network.layers[network.joins].channels if network.joins else 0)


def activation_size(network: Network) -> int:
    """Return the float32 that the largest layer output takes in one lane, rounded up to a multiple of WIDE.

    Behind the sums of a state stands the state.
    """
    return max(-(-(row.layer.outputs + row.memory_size) // WIDE) * WIDE for row in rows_of(network))


@njit(cache=True, error_model="numpy", nogil=True)
def pack(layers, weights, packed):  # type: ignore[no-untyped-def]
    """Pack `weights` [P] block by block: the biases of a block of filters, then the rows of its kernel.

    With layer norm, gamma and beta follow the blocks of the layer.
    """
    for i in range(layers.shape[0]):
        layer = layers[i]
        if _has_kernel(layer):
            _pack_kernel(layer, weights, packed)
        _pack_tree(layer, weights, packed)
        if layer.norm >= 0:
            for k in range(2 * layer.filters):
                packed[layer.norm + k] = weights[layer.gamma + k]


def _nodes(layer, weights, packed):  # type: ignore[no-untyped-def]
    """Copy the nodes of a tree, with whole numbers of inputs."""
    nodes = layer.filters - 1 if layer.kind == TREE else 0
    for k in range(nodes):
        packed[layer.packed + k] = np.float32(input_of(weights[layer.weights + k], layer.channels))
        packed[layer.packed + nodes + k] = weights[layer.weights + nodes + k]


_pack_tree = by_table(lambda layer, weights, packed: None, _nodes, inline="always")
_has_kernel = by_table(lambda layer: True, lambda layer: layer.kind == WEIGHTED or layer.kind == STATE, inline="always")


@njit(cache=True, error_model="numpy", nogil=True)
def input_of(weight, inputs):  # type: ignore[no-untyped-def]
    """Return the number of the input that a node of a tree compares: its weight, rounded down, modulo `inputs`.

    So noise of any size names one of them. A weight of k + 0.5 names input k, and small noise does not change that.
    """
    return np.int64(np.floor(weight)) % inputs if abs(weight) < FAR else np.int64(0)


@njit(cache=True, error_model="numpy", nogil=True, inline="always")
def _pack_kernel(layer, weights, packed):  # type: ignore[no-untyped-def]
    """Pack the kernel of one layer and its biases."""
    fan_in, group, biases = layer.kernel * layer.kernel * layer.channels, layer.group, layer.biases
    filters, at, block = layer.filters, layer.packed, (fan_in + 1) * group
    for row in range(fan_in + 1):
        # Unsigned indices spare Numba the test for negative ones.
        source = np.uint64(biases if row == 0 else layer.weights + (row - 1) * filters)
        stored = filters if row > 0 or biases >= 0 else 0
        for first in range(0, filters, group):
            target = np.uint64(at + first // group * block + row * group)
            for f in range(group):
                weight = weights[source + np.uint64(first + f)] if first + f < stored else np.float32(0)
                packed[target + np.uint64(f)] = weight
    # A bias of -0 becomes 0: a sum that begins at 0 is never -0, so adding a product with zero changes no bit of it.
    for f in range(filters):
        packed[at + f // group * block + f % group] += np.float32(0)
