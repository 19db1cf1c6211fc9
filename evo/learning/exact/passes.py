"""Forward and backward passes over a group of examples.

A pass computes layer by layer. Outputs of hidden layers are those with which the same network plays, bit for bit. What
a batch's gradient is: the sums of blocks of 128 examples, added in pairs as a tree; of a block, the sum over examples
in their order, and of one example over its pixels in theirs. So neither the number of threads nor the size of a group
changes a bit. With memory, examples are the steps of whole pieces, piece by piece.
"""

from __future__ import annotations

import numpy as np
from numba import njit

from evo.compiled import cache as kernel_cache
from evo.kernels.layout import AVERAGE_POOL, IDENTITY, MAX_POOL, RELU, TANH, WEIGHTED, by_table
from evo.kernels.weightless import tanh
from evo.learning.exact.layers import (
    NONE,
    ONE,
    ZERO,
    copy_gradients_back,
    copy_to_inputs,
    gather,
    normalise,
    normalise_back,
    observe,
    pool_back,
    scatter,
    without_weights,
)
from evo.learning.exact.losses import derive
from evo.learning.exact.plan import BLOCK
from evo.learning.exact.products import PACKED, multiply, pack, pack_transposed, transpose_packed
from evo.learning.exact.recurrent import backward_in_time, forward_in_time
from evo.learning.exact.runs import WIDTH, add_rows, copy_rectified, copy_where_positive, fill, spaced, transpose

kernel_cache.use(__name__)

BLOCK_DISTANCE = np.int64(spaced(BLOCK))  # of rows of a block's transposed gradients; typed, as NONE is


@njit(cache=True, error_model="numpy", nogil=True, _nrt=False)
def pack_weights(layers, weights, packed, is_learned):  # type: ignore[no-untyped-def]
    """Pack the kernels of all layers; of what is learned, their transposes too, which gradients need.

    `weights` has space behind its end, for squares are read.
    """
    for i in range(layers.shape[0]):
        layer = layers[i]
        if layer.kind != WEIGHTED:
            continue
        terms, filters = layer.terms, layer.filters
        pack(weights, layer.offset, terms, filters, filters, packed, layer.packed)
        for f in range(filters):  # -0 becomes 0, as in `evo.kernels.layout.pack`
            packed[layer.biases + f] = weights[layer.bias_offset + f] + ZERO if layer.bias_offset >= 0 else ZERO
        if is_learned and layer.passes_on:
            pack_transposed(weights, layer.offset, terms, filters, packed, layer.turned)


def _gates(layer, layers, packed, place, count, workspace):  # type: ignore[no-untyped-def]
    if layer.gates:
        forward_in_time(layer, layers[layer.recurrent], packed, place, count, workspace)
    else:
        without_weights(layer, workspace.floats, count)


def _gates_back(layer, layers, packed, place, count, workspace, sums):  # type: ignore[no-untyped-def]
    if layer.gates:
        recurrent = layers[layer.recurrent]
        backward_in_time(layer, recurrent, packed, place, count, workspace)
        _add_gradients(recurrent, place, count, workspace, sums)


chain_length = by_table(
    lambda layer, layers: layers.shape[0], recurrent=lambda layer, layers: layer.chain, inline="always"
)
_kernel_of = by_table(
    lambda layer, number: number,
    recurrent=lambda layer, number: layer.recurrent if layer.gates else number,
    inline="always",
)
_unweighted = by_table(
    lambda layer, layers, packed, place, count, workspace: without_weights(layer, workspace.floats, count),
    recurrent=_gates,
)
_gates_backward = by_table(lambda layer, layers, packed, place, count, workspace, sums: None, recurrent=_gates_back)


@njit(cache=True, error_model="numpy", nogil=True, _nrt=False)
def forward(layers, weights, packed, observations, rows, place, count, workspace):  # type: ignore[no-untyped-def]
    """Compute the outputs of `count` examples: `observations[rows[place + e]]`, flat rows of floats.

    `rows` begin with those of a block. The outputs lie at `output` of the last layer, in rows.
    """
    x, last = workspace.floats, chain_length(layers[0], layers) - 1
    for number in range(last + 1):
        layer = layers[number]
        if layer.observed >= 0:
            observe(layer, observations, rows, x, place, count)
        if layer.kind == WEIGHTED:
            _weighted(layer, packed, place, count, workspace)
        else:
            _unweighted(layer, layers, packed, place, count, workspace)
        if layer.norm:
            normalise(layer, weights, x, count)
        if layer.activation == RELU and number == last:
            for r in range(count * layer.pixels):
                at = layer.output + r * layer.row
                copy_rectified(x, at, x, at, layer.filters)
        elif layer.activation == TANH:
            for r in range(count * layer.pixels):
                at = layer.output + r * layer.row
                for f in range(layer.filters):
                    x[at + f] = tanh(x[at + f])
        if number < last:
            copy_to_inputs(layer, layers[layer.following], x, place, count)


@njit(cache=True, error_model="numpy", nogil=True, _nrt=False, inline="always")
def _weighted(layer, packed, place, count, workspace):  # type: ignore[no-untyped-def]
    """Compute the sums of a convolution or a dense layer, which begin with the biases."""
    x, pixels = workspace.floats, layer.pixels
    if layer.patches != layer.input:
        gather(layer, x, count)
    patches = layer.patches + (place * layer.patch if layer.kept else 0)
    multiply(
        (x, layer.output, layer.row),
        (packed, layer.biases, NONE),
        (x, patches, layer.patch),
        (packed, layer.packed, PACKED),
        workspace.words,
        (count * pixels, layer.terms, layer.filters),
    )


@njit(cache=True, error_model="numpy", nogil=True, _nrt=False)
def backward(layers, weights, packed, place, count, workspace, sums):  # type: ignore[no-untyped-def]
    """Add the gradients of `count` examples to the sums, of gradients at `d_output` of the last layer.

    What lies behind the last filter of a row there is zero. At `place` 0, where a block begins, the sums are written,
    not added to. Those of kept layers are left to `finish`. With `sums` None only gradients of inputs are computed.
    """
    x, begins, last = workspace.floats, place == 0, chain_length(layers[0], layers) - 1
    for number in range(last, -1, -1):
        layer = layers[number]
        if number < last:
            following = layers[layer.following]
            if not following.passes_on:
                continue
            copy_gradients_back(layer, following, x, count)
        if layer.activation == RELU and number == last:
            for r in range(count * layer.pixels):
                at, value = layer.d_output + r * layer.row, layer.output + r * layer.row
                copy_where_positive(x, at, x, at, x, value, layer.filters)
        elif layer.activation == TANH:
            for r in range(count * layer.pixels):
                at, value = layer.d_output + r * layer.row, layer.output + r * layer.row
                for f in range(layer.filters):
                    x[at + f] *= ONE - x[value + f] * x[value + f]
        if layer.norm:
            if sums is not None:  # None by its type: Numba prunes the branch
                _begin_norm(layer, begins, workspace, sums)
            normalise_back(layer, weights, x, count, sums)
        if layer.kind == WEIGHTED:
            _weighted_back(layer, number, packed, place, count, workspace, sums)
        _gates_backward(layer, layers, packed, place, count, workspace, sums)
        if not layer.passes_on:
            continue
        if layer.kind == MAX_POOL or layer.kind == AVERAGE_POOL:
            for e in range(count):
                pool_back(layer, x, e, NONE, layer.channels)
        elif layer.kind == IDENTITY:
            for r in range(count * layer.pixels):
                e, pixel = r // layer.pixels, r % layer.pixels
                for c in range(layer.channels):
                    x[layer.d_input + e * layer.input_size + pixel * layer.channels + c] = x[
                        layer.d_output + r * layer.row + c
                    ]


@njit(cache=True, error_model="numpy", nogil=True, _nrt=False, inline="always")
def _begin_norm(layer, begins, workspace, sums):  # type: ignore[no-untyped-def]
    """Write zeros to the sums of gamma and beta where a block begins."""
    if begins:
        fill(sums, layer.scale, layer.filters, workspace.zeros)
        fill(sums, layer.shift, layer.filters, workspace.zeros)


@njit(cache=True, error_model="numpy", nogil=True, _nrt=False, inline="always")
def _weighted_back(layer, number, packed, place, count, workspace, sums):  # type: ignore[no-untyped-def]
    """Add the gradients of kernel and bias to the sums; compute those of the inputs for layers before.

    Where there are sums, nobody asks for those of the network's own inputs.
    """
    if sums is not None:
        _add_gradients(layer, place, count, workspace, sums)
    if not layer.passes_on or (sums is not None and number == 0):
        return
    x, dense = workspace.floats, layer.patches == layer.input
    d_patches, to = (x, layer.d_input) if dense else (workspace.columns, NONE)
    multiply(
        (d_patches, to, layer.patch),
        (workspace.zeros, NONE, NONE),
        (x, layer.d_output, layer.row),
        (packed, layer.turned, PACKED),
        workspace.words,
        (count * layer.pixels, layer.filters, layer.terms),
    )
    if not dense:
        scatter(layer, x, count, workspace)


@njit(cache=True, error_model="numpy", nogil=True, _nrt=False, inline="always")
def _add_gradients(layer, place, count, workspace, sums):  # type: ignore[no-untyped-def]
    """Add the gradients of kernel and bias to the sums."""
    x, rows, filters = workspace.floats, count * layer.pixels, layer.filters
    if place == 0:
        fill(sums, layer.bias, filters, workspace.zeros)
    for f in range(0, filters, WIDTH):
        add_rows(sums, layer.bias + f, x, layer.d_output + f, layer.row, rows)
    if layer.kept:
        transpose(x, layer.d_output, rows, filters, layer.row, x, layer.kept + place, BLOCK_DISTANCE)
    else:
        distance = -(-rows // WIDTH) * WIDTH
        distance += WIDTH if distance % 128 == 0 else 0
        transpose(x, layer.d_output, rows, filters, layer.row, workspace.turned, NONE, distance)
        _kernel(layer, (workspace.turned, NONE, distance), place, rows, workspace, sums)


@njit(cache=True, error_model="numpy", nogil=True, _nrt=False)
def _kernel(layer, slopes, place, rows, workspace, sums):  # type: ignore[no-untyped-def]
    """Add a kernel's gradient to the sums, of transposed gradients of outputs [filters, rows]; at place 0, write it."""
    kernel = sums, layer.sums, PACKED
    multiply(
        kernel,
        (workspace.zeros, NONE, NONE) if place == 0 else kernel,
        slopes,
        (workspace.floats, layer.patches, layer.patch),
        workspace.words,
        (layer.filters, rows, layer.terms),
    )


@njit(cache=True, error_model="numpy", nogil=True, _nrt=False)
def finish(layers, count, workspace, sums):  # type: ignore[no-untyped-def]
    """Write the sums of kept layers, of a block of `count` examples: once, and not once a group."""
    for number in range(layers.shape[0]):
        layer = layers[number]
        if layer.kept:
            _kernel(layer, (workspace.floats, layer.kept, BLOCK_DISTANCE), NONE, count, workspace, sums)


def _derive_pieces(layer, workspace, loss, place, first, count, values):  # type: ignore[no-untyped-def]
    """Compute the losses of the steps that count; of the others the derivatives are zero."""
    batch, settings = loss
    x, steps = workspace.floats, layer.steps
    for e in range(count):
        fill(x, layer.d_output + e * layer.row, layer.filters, workspace.zeros)
    for piece in range(count // steps):
        number = place // steps + piece
        begin, end = workspace.counted[number], workspace.counted[number + 1]
        there = x[(piece * steps + layer.burn_in) * layer.row :]
        derive(layer, there, batch, settings, begin, end - begin, values)  # type: ignore[no-untyped-call]


_derive = by_table(
    lambda layer, workspace, loss, place, first, count, values: derive(  # type: ignore[no-untyped-call]
        layer, workspace.floats, loss[0], loss[1], first, count, values
    ),
    recurrent=_derive_pieces,
)


@njit(cache=True, error_model="numpy", nogil=True)
def gradients_of(layers, weights, packed, observations, rows, places, workspace, loss, values, sums):  # type: ignore[no-untyped-def]
    """Write the sums of the gradients of consecutive blocks to sums[0], and the values of their examples.

    observations, rows: as `forward` takes them; places: of the first block's first example in the batch, the one behind
    the last block's last, and how many are computed at once; loss: a batch and its settings, as
    `evo.learning.exact.losses.derive` takes them. Of n blocks, sums [bits of n, S] are added in pairs, as `BlockSums`
    adds them; a workspace with states is one block's.
    """
    begin, end, group = places
    last, depth = layers[chain_length(layers[0], layers) - 1], 0
    for number in range(-(-(end - begin) // BLOCK)):
        start, its_rows, own = begin + number * BLOCK, rows[number * BLOCK :], sums[depth]
        behind = min(start + BLOCK, end)
        for first in range(start, behind, group):
            count, place = min(group, behind - first), first - start
            forward(layers, weights, packed, observations, its_rows, place, count, workspace)
            _derive(last, workspace, loss, place, first, count, values)
            backward(layers, weights, packed, place, count, workspace, own)
        finish(layers, behind - start, workspace, own)
        depth += 1
        while depth > 1 and (behind == end or number & 1):
            depth, number = depth - 1, number >> 1
            for k in range(sums.shape[1]):
                sums[depth - 1, k] += sums[depth, k]


@njit(cache=True, error_model="numpy", nogil=True)
def outputs_of(layers, weights, packed, observations, rows, places, workspace, out, slopes):  # type: ignore[no-untyped-def]
    """Write the outputs [B, O] of blocks, and the `slopes` [B, I] of the first ones by the inputs; None: no slopes.

    Other arguments are as `gradients_of` takes them.
    """
    begin, end, group = places
    x, inputs, last = workspace.floats, layers[0], layers[chain_length(layers[0], layers) - 1]
    for first in range(begin, end, group):
        count, place = min(group, end - first), (first - begin) % BLOCK
        forward(layers, weights, packed, observations, rows[first - begin - place :], place, count, workspace)
        for e in range(count):
            for o in range(out.shape[1]):
                out[first + e, o] = x[last.output + e * last.row + o]
        if slopes is not None:
            for e in range(count):
                x[last.d_output + e * last.row] = ONE
            backward(layers, weights, packed, place, count, workspace, None)
            for e in range(count):
                for i in range(slopes.shape[1]):
                    slopes[first + e, i] = x[inputs.d_input + e * inputs.input_size + i]


@njit(cache=True, error_model="numpy", nogil=True, _nrt=False)
def unpack(layers, sums, gradient):  # type: ignore[no-untyped-def]
    """Write the gradient in the order of the flat weights; behind it is space for 16 columns of filters.  # -> [P]"""
    for i in range(chain_length(layers[0], layers)):  # in the order of the vector, for more is written than a kernel
        layer = layers[_kernel_of(layers[i], i)]
        if layer.kind == WEIGHTED:
            transpose_packed(sums, layer.sums, layer.filters, layer.terms, gradient, layer.offset)
    for i in range(layers.shape[0]):
        layer = layers[i]
        filters, at = layer.filters, layer.norm_offset
        if layer.kind == WEIGHTED and layer.bias_offset >= 0:
            for f in range(filters):
                gradient[layer.bias_offset + f] = sums[layer.bias + f]
        if layer.norm:
            for f in range(filters):
                gradient[at + f] = sums[layer.scale + f]
                gradient[at + filters + f] = sums[layer.shift + f]
