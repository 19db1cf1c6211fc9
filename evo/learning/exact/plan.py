"""Where everything of an update lies in memory: a table of a network's layers, and the buffers that it points into.

On GPUs it is another table, of the same fields.
"""

from __future__ import annotations

from dataclasses import replace
from math import prod
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from evo.compiled.views import aligned
from evo.errors import ConfigurationError
from evo.kernels.layout import ACTIVATIONS, AVERAGE_POOL, IDENTITY, KINDS, MAX_POOL, ONE_HOT, SHAPE, WEIGHTED, rows_of
from evo.learning.exact.products import CHUNK
from evo.learning.exact.runs import WIDTH, rounded, spaced
from evo.learning.learner import ActorLoss, KnownLoss, Pieces
from evo.networks.layer import Layer
from evo.networks.network import Network

BLOCK = 128  # examples whose gradients are summed one after the other; part of what "gradient-1" means
GROUP_FLOATS = 1 << 20  # of the buffers of the examples that are computed at once; it changes no bit
KEPT = 1 << 16  # weights of a dense kernel, whose sums (256 kB) then leave the nearer caches between two groups
KEPT_FLOATS = 1 << 20  # of a block's inputs, up to which these are kept for that

# A layer as the passes read it; places are those of the first example, or of the first row, in a workspace's floats.
#   terms: of an output's sum. offset, bias_offset, norm_offset: of kernel, bias and gamma in the flat vector.
#   input, input_size: of an example; input_row: of a row with its padding; inside: where it is not padding any more.
#   patches, patch: the inputs of each output as rows, and their distance; a dense layer's are its inputs themselves.
#   output, row: outputs by pixels, and the distance of pixels; d_output, d_input: the gradients of outputs and inputs.
#   normal, inverse: outputs before gamma and beta, and what they were multiplied by.
#   biases, packed, turned: of the biases, the packed kernel and the transposed one.
#   sums, bias, scale, shift: of the gradients' sums: the kernel's, the bias's, gamma's and beta's.
#   observed: the number of the observation with which the inputs begin; -1: they are outputs of layers.
#   following: the layer that takes the outputs. into: the first of its inputs that they are.
#   passes_on: whether layers before it have weights.
#   kept: of a block's transposed gradients of outputs, where the layer's inputs are kept for a whole block too; else 0.
PLACES = (
    "kind", "activation", "norm", "pixels", "terms", "offset", "bias_offset", "norm_offset", "input", "input_size",
    "input_row", "inside", "patches", "patch", "output", "row", "d_output", "d_input", "normal", "inverse", "biases",
    "packed", "turned", "sums", "bias", "scale", "shift", "observed", "following", "into", "passes_on", "kept",
)  # fmt: skip
LAYER = np.dtype([(name, np.int64) for name in (*SHAPE, *PLACES)])
# A layer of a network with memory; by this type Numba compiles other passes, as `by_table` of the kernels says. What a
# recurrent layer sums over its inputs is a dense layer, which it follows; what it sums over its state, one that stands
# behind the last layer of the chain. The layer itself is the arithmetic of the gates.
#   steps, burn_in: of a piece. chain: the number of layers that follow each other. recurrent: the layer of the sums
#   over the state h. memory: of its state in a network's. gates: their values, of each example, spaced as their sums.
#   cells, next_cells: an LSTM's before and behind each step; d_cells: their gradient, of each piece.
MEMORY = ("steps", "burn_in", "chain", "recurrent", "memory", "gates", "cells", "next_cells", "d_cells")
MEMORY_LAYER = np.dtype([*((name, np.int64) for name in MEMORY), *LAYER.descr])
ON_GPUS = WEIGHTED, ONE_HOT, MAX_POOL, AVERAGE_POOL, IDENTITY  # kinds of layers that are learned there
ALIGNED = np.dtype(LAYER.descr, align=True)  # read by words, not by bytes


class Plan(NamedTuple):
    """The table of layers, and the sizes of the buffers."""

    layers: NDArray[np.void]  # LAYER or MEMORY_LAYER; the sums over states stand behind the layers of the chain
    group: int  # examples that are computed at once
    floats: int  # of a workspace
    words: int  # of a workspace's masks
    packed: int  # floats of the packed weights
    sums: int  # floats of a block's sums


class Workspace(NamedTuple):
    """Buffers of one thread. Padding is zero from the beginning, and is never written."""

    floats: NDArray[np.float32]  # what `Plan.layers` points into
    turned: NDArray[np.float32]  # transposed gradients of outputs
    columns: NDArray[np.float32]  # gradients of patches
    words: NDArray[np.uint64]  # masks of what is not zero
    zeros: NDArray[np.float32]
    observations: NDArray[np.float32]  # [BLOCK, inputs], rebuilt
    memories: NDArray[np.float32]  # [examples, S] states before them, of which those are read that `begins` names
    begins: NDArray[np.bool_]  # [examples] whether the state is not that of the example before
    counted: NDArray[np.int64]  # [pieces + 1] examples that count in the pieces of the batch before


class Places:
    """Hands out places in a buffer, one after the other."""

    def __init__(self) -> None:
        self.size = 0

    def take(self, size: int) -> int:
        """Return where the next `size` floats begin, at a cache line, with space for a vector behind them."""
        start, self.size = self.size, self.size + rounded(size) + WIDTH
        return start


def padded(layer: Layer) -> tuple[int, int]:
    """Return rows and columns of a layer's input with its padding, of all that a window reads."""
    if layer.kind != "conv":
        return layer.height, layer.width
    return (
        max((layer.out_height - 1) * layer.stride + layer.kernel, layer.height + layer.pad),
        max((layer.out_width - 1) * layer.stride + layer.kernel, layer.width + layer.pad_left),
    )


def group_of(network: Network, largest: int) -> int:
    """Return how many examples are computed at once: a power of two up to `largest`, so that buffers stay near."""
    floats = 0
    for layer in network.layers:
        rows, columns = padded(layer)
        floats += 2 * rows * columns * layer.channels + 2 * layer.out_height * layer.out_width * layer.filters
        floats += layer.out_height * layer.out_width * layer.fan_in if layer.kind == "conv" else 0
    group = largest
    while group > 1 and group * floats > GROUP_FLOATS:
        group //= 2
    return group


def plan(network: Network, pieces: Pieces | None = None, to_inputs: bool = False) -> Plan:
    """Return where everything of an update of this network lies; with memory, of `pieces`.

    Gradients go back `to_inputs` of the network, or to its first weights.
    """
    chain, recurrent = ([one for one in rows_of(network) if (one.kind == "state") is over] for over in (False, True))
    table = np.zeros(len(chain) + len(recurrent), MEMORY_LAYER if recurrent else LAYER)
    group = group_of(network, BLOCK if recurrent else 64)
    if pieces and recurrent:
        group = max(group, pieces.steps)
        table["steps"], table["burn_in"], table["chain"] = *pieces, len(chain)
    floats, packed, sums = Places(), Places(), Places()
    words, gated, weighted = 0, len(chain), set[int]()  # layers behind one with weights
    for number, (one, row) in enumerate(zip([*chain, *recurrent], table, strict=True)):
        layer = one.layer
        row["offset"], row["bias_offset"] = layer.offset, one.biases
        row["norm_offset"] = layer.offset + layer.size - layer.norm_size
        if layer.gates:
            layer = replace(layer, channels=layer.gates * layer.filters)  # its inputs are sums
        for name in SHAPE:
            row[name] = getattr(layer, name)
        row["kind"] = WEIGHTED if layer.weighted else KINDS.index(layer.kind)
        row["activation"], row["norm"] = ACTIVATIONS.index(layer.activation), layer.norm
        row["observed"], row["following"], row["into"] = network.flow(number)
        row["terms"], row["passes_on"] = layer.fan_in, to_inputs or number in weighted
        if row["passes_on"] or layer.arrays:
            weighted.add(int(row["following"]))
        row["pixels"] = pixels = layer.out_height * layer.out_width
        row["row"] = distance = spaced(layer.filters)
        height, width = padded(layer)
        row["input_row"] = width * layer.channels
        row["inside"] = (layer.pad * width + layer.pad_left) * layer.channels if layer.kind == "conv" else 0
        row["input_size"] = size = spaced(height * width * layer.channels)
        large = layer.kind == "dense" and layer.fan_in * layer.filters >= KEPT
        keeps = large and row["observed"] < 0 and BLOCK * size <= KEPT_FLOATS
        examples = BLOCK if keeps else group
        row["input"], row["d_input"] = floats.take(examples * size), floats.take(group * size)
        row["kept"] = floats.take(rounded(layer.filters) * spaced(BLOCK)) if keeps else 0
        whole = rounded(group * pixels) * distance  # transposing reads whole squares
        row["output"], row["d_output"] = floats.take(whole), floats.take(whole)
        if layer.kind == "dense":
            row["patches"], row["patch"] = row["input"], size
        elif layer.weighted:
            row["patch"] = spaced(layer.fan_in)
            row["patches"] = floats.take(group * pixels * int(row["patch"]))
        if layer.norm:
            row["normal"], row["inverse"] = floats.take(group * pixels * distance), floats.take(group * pixels)
            row["scale"], row["shift"] = sums.take(layer.filters), sums.take(layer.filters)
        if layer.weighted:
            terms, filters = layer.fan_in, layer.filters
            row["packed"], row["biases"] = packed.take(terms * rounded(filters)), packed.take(filters)
            row["turned"] = packed.take(rounded(filters) * rounded(terms))
            row["sums"], row["bias"] = sums.take(filters * rounded(terms)), sums.take(filters)
            chunks = (pixels * group * -(-max(terms, filters) // CHUNK), filters * -(-pixels * examples // CHUNK))
            words = max(words, *chunks)
        elif layer.gates:
            row["recurrent"], row["memory"], row["gates"] = gated, one.memory, floats.take(group * size)
            for name in ("cells", "next_cells", "d_cells"):
                row[name] = floats.take(group * distance)
            gated += 1
    return Plan(table, group, floats.size, words, packed.size + WIDTH, sums.size)


def workspace(made: Plan) -> Workspace:
    """Return zeros of the sizes of a plan."""
    weighted = made.layers[made.layers["kind"] == WEIGHTED]
    rows = weighted["pixels"] * made.group
    turned = int((weighted["row"] * [spaced(count) for count in rows]).max())
    columns = int((rows * weighted["patch"]).max())
    first = made.layers[made.layers["observed"] >= 0]
    inputs = int((first["height"] * first["width"] * first["channels"]).sum())
    return Workspace(
        floats=aligned(made.floats + CHUNK),
        turned=aligned(turned + CHUNK),
        columns=aligned(columns + WIDTH),
        words=aligned(made.words, np.uint64),
        zeros=aligned(int(made.layers["terms"].max()) + WIDTH),
        observations=aligned(BLOCK * inputs).reshape(BLOCK, inputs),
        memories=np.empty((0, 0), np.float32),
        begins=np.empty(0, np.bool_),
        counted=np.empty(0, np.int64),
    )


def table_of(network: Network, examples: int) -> tuple[NDArray[np.void], int]:
    """Return the table of layers for a number of examples, as `plan`, and the floats it points to.

    Rows have no padding, the outputs of a layer are the inputs of the next one, and one buffer of patches takes their
    gradients, too. ConfigurationError names layers that GPUs do not learn yet.
    """
    if network.memory or network.parts:
        what = "networks with memory are" if network.memory else "policy.inputs is"
        raise ConfigurationError(f'learner.device: {what} not learned on GPUs yet; use "cpu"')
    table, places = plan(network).layers.astype(ALIGNED), Places()
    place, d_place = places.take(examples * prod(network.shape)), 0
    for layer, row in zip(network.layers, table, strict=True):
        if row["kind"] not in ON_GPUS:
            raise ConfigurationError(f'learner.device: {layer.kind} layers are not learned on GPUs yet; use "cpu"')
        pixels, row["row"] = layer.out_height * layer.out_width, layer.filters
        row["input_row"], row["input_size"] = layer.width * layer.channels, layer.height * layer.width * layer.channels
        row["input"], row["d_input"], row["patch"] = place, d_place, layer.fan_in
        convolves = layer.weighted and layer.kind != "dense"
        row["patches"] = places.take(examples * pixels * layer.fan_in) if convolves else place
        place, d_place = (places.take(examples * pixels * layer.filters) for _ in range(2))
        row["output"], row["d_output"] = place, d_place
        if layer.norm:
            row["normal"] = places.take(examples * pixels * layer.filters)
            row["inverse"] = places.take(examples * pixels)
    return table, places.size


def refuse(network: Network, loss: KnownLoss) -> None:
    """ConfigurationError names a loss, or a layer of the network, that GPUs do not learn yet."""
    if isinstance(loss, ActorLoss) or loss.target_network == "kept":
        kind = type(loss).__name__
        raise ConfigurationError(f'learner.device: {kind} is not computed on GPUs yet; use "cpu"')
    table_of(network, 1)
