"""Forward and backward passes over a group of examples.

A pass computes layer by layer. Outputs of hidden layers are those with which the same network plays, bit for bit. What
a batch's gradient is: the sums of blocks of 128 examples, added in pairs as a tree; of a block, the sum over examples
in their order, and of one example over its pixels in theirs. So neither the number of threads nor the size of a group
changes a bit.
"""

from __future__ import annotations

import numpy as np
from numba import njit

from evo.compiled import cache as kernel_cache
from evo.kernels.layout import AVERAGE_POOL, IDENTITY, MAX_POOL, ONE_HOT, RELU, TANH, WEIGHTED
from evo.kernels.weightless import tanh
from evo.learning.exact.products import (
    WIDTH,
    add,
    add_product,
    add_rows,
    add_vector,
    copy,
    copy_vector,
    keep_positive,
    less,
    less_times,
    multiply,
    multiply_vector,
    pack,
    rectify_vector,
    sum_of_products,
    times,
    transpose,
)
from evo.networks.network import EPSILON

kernel_cache.use(__name__)

ZERO, ONE = np.float32(0), np.float32(1)
NONE = np.int64(0)  # not a literal, for which Numba would compile everything once more
VARIANCE_EPSILON = np.float32(EPSILON)
ALONE = np.int64(-1)


@njit(cache=True, error_model="numpy", nogil=True, _nrt=False)
def pack_weights(layers, weights, packed, buffer):  # type: ignore[no-untyped-def]
    """Pack the kernels of all layers, and their transposes; `weights` has space for a vector behind its end.

    `buffer` is overwritten; it holds the largest kernel, transposed.
    """
    for i in range(layers.shape[0]):
        layer = layers[i]
        if layer.kind != WEIGHTED:
            continue
        terms, filters = layer.terms, layer.filters
        distance = -(-terms // WIDTH) * WIDTH
        pack(weights, layer.offset, terms, filters, filters, packed, layer.packed)
        for f in range(filters):  # -0 becomes 0, as in `evo.kernels.layout.pack`
            packed[layer.biases + f] = weights[layer.offset + terms * filters + f] + ZERO
        if layer.passes_on:
            transpose(weights, layer.offset, terms, filters, filters, buffer, 0, distance)
            pack(buffer, NONE, filters, terms, distance, packed, layer.turned)


@njit(cache=True, error_model="numpy", nogil=True, _nrt=False)
def forward(layers, weights, packed, observations, rows, first, count, workspace):  # type: ignore[no-untyped-def]
    """Compute the outputs of `count` examples: `observations[rows[first + e]]`, flat rows of floats.

    They lie at `output` of the last layer, in rows.
    """
    x = workspace.floats
    layer = layers[0]
    for e in range(count):
        source = observations[rows[first + e]]
        to, width = layer.input + e * layer.input_size + layer.inside, layer.width * layer.channels
        for i in range(layer.height):
            at = i * width
            run = width if at + -(-width // WIDTH) * WIDTH <= layer.height * width else width // WIDTH * WIDTH
            copy(x, to + i * layer.input_row, source, at, run)
            for k in range(run, width):  # `copy` would read behind the example
                x[to + i * layer.input_row + k] = source[at + k]
    last = layers.shape[0] - 1
    for number in range(last + 1):
        layer = layers[number]
        if layer.kind == WEIGHTED:
            _weighted(layer, packed, count, workspace)
        else:
            _without_weights(layer, x, count)
        if layer.norm:
            _normalise(layer, weights, x, count)
        if layer.activation == RELU:
            for r in range(count * layer.pixels):
                at = layer.output + r * layer.row
                for f in range(0, layer.filters, WIDTH):
                    rectify_vector(x, at + f, x, at + f)
        elif layer.activation == TANH:
            for r in range(count * layer.pixels):
                at = layer.output + r * layer.row
                for f in range(layer.filters):
                    x[at + f] = tanh(x[at + f])
        if number < last:
            _hand_over(layer, layers[number + 1], x, count, False)


@njit(cache=True, error_model="numpy", nogil=True, _nrt=False, inline="always")
def _hand_over(layer, following, x, count, back):  # type: ignore[no-untyped-def]
    """Copy the outputs of a layer to the inputs of the following one, or their gradients back."""
    outputs, inputs = layer.output, following.input
    if back:
        outputs, inputs = layer.d_output, following.d_input
    for e in range(count):
        for i in range(layer.out_height):
            pixels = outputs + (e * layer.pixels + i * layer.out_width) * layer.row
            image = inputs + e * following.input_size + following.inside
            image += i * (following.input_row if following.height > 1 else layer.out_width * layer.filters)
            for j in range(layer.out_width):
                pixel, place = pixels + j * layer.row, image + j * layer.filters
                if back:
                    copy(x, pixel, x, place, layer.filters)
                else:
                    copy(x, place, x, pixel, layer.filters)


@njit(cache=True, error_model="numpy", nogil=True, _nrt=False, inline="always")
def _weighted(layer, packed, count, workspace):  # type: ignore[no-untyped-def]
    """Compute the sums of a convolution or a dense layer, which begin with the biases."""
    x, pixels = workspace.floats, layer.pixels
    if layer.patches != layer.input:
        _gather(layer, x, count)
    multiply(
        (x, layer.output, layer.row),
        (packed, layer.biases, NONE),
        (x, layer.patches, layer.patch),
        (packed, layer.packed, NONE),
        workspace.words,
        (count * pixels, layer.terms, layer.filters),
    )


@njit(cache=True, error_model="numpy", nogil=True, _nrt=False, inline="always")
def _gather(layer, x, count):  # type: ignore[no-untyped-def]
    """Copy the inputs of each output into a row of patches; what a vector spills over the end is overwritten next."""
    width = layer.kernel * layer.channels
    to = layer.patches
    for e in range(count):
        for i in range(layer.out_height):
            for j in range(layer.out_width):
                at = layer.input + e * layer.input_size + i * layer.stride * layer.input_row
                at += j * layer.stride * layer.channels
                for r in range(layer.kernel):
                    for k in range(0, width, WIDTH):
                        copy_vector(x, to + r * width + k, x, at + r * layer.input_row + k)
                to += layer.patch


@njit(cache=True, error_model="numpy", nogil=True, _nrt=False)
def _without_weights(layer, x, count):  # type: ignore[no-untyped-def]
    """Compute one-hot planes, pools, or copies, as `evo.kernels.weightless` does."""
    channels = layer.channels
    for e in range(count):
        image = layer.input + e * layer.input_size
        to = layer.output + e * layer.pixels * layer.row
        if layer.kind == ONE_HOT:
            codes = layer.filters // channels
            for k in range(layer.pixels * channels):
                value, at = x[image + k], to + k // channels * layer.row + k % channels * codes
                for code in range(codes):
                    x[at + code] = ONE if value == np.float32(code) else (value if value != value else ZERO)
        elif layer.kind == IDENTITY:
            for k in range(layer.pixels):
                for c in range(channels):
                    x[to + k * layer.row + c] = x[image + k * channels + c]
        else:
            for i in range(layer.out_height):
                for j in range(layer.out_width):
                    _pool(layer, x, image, to + (i * layer.out_width + j) * layer.row, i, j)


@njit(cache=True, error_model="numpy", nogil=True, _nrt=False, inline="always")
def _window(layer, i, j):  # type: ignore[no-untyped-def]
    """Return the first row and column of a window, and those behind its last."""
    top, left = i * layer.stride - layer.pad, j * layer.stride - layer.pad_left
    ends = min(top + layer.kernel, layer.height), min(left + layer.kernel, layer.width)
    return max(top, 0), max(left, 0), ends[0], ends[1]


@njit(cache=True, error_model="numpy", nogil=True, _nrt=False, inline="always")
def _pool(layer, x, image, to, i, j):  # type: ignore[no-untyped-def]
    top, left, bottom, right = _window(layer, i, j)
    for c in range(layer.channels):
        pooled = x[image + (top * layer.width + left) * layer.channels + c]
        for row in range(top, bottom):
            for column in range(left, right):
                if row == top and column == left:
                    continue
                seen = x[image + (row * layer.width + column) * layer.channels + c]
                if layer.kind == AVERAGE_POOL:
                    pooled += seen
                elif seen > pooled or seen != seen:
                    pooled = seen
        if layer.kind == AVERAGE_POOL:
            pooled /= np.float32((bottom - top) * (right - left))
        x[to + c] = pooled


@njit(cache=True, error_model="numpy", nogil=True, _nrt=False, inline="always")
def _pool_back(layer, x, count):  # type: ignore[no-untyped-def]
    """Add each output's gradient to the inputs of its window: to the first of the largest, or to all alike."""
    channels = layer.channels
    for e in range(count):
        image, d_image = layer.input + e * layer.input_size, layer.d_input + e * layer.input_size
        for k in range(layer.height * layer.width * channels):
            x[d_image + k] = ZERO
        for i in range(layer.out_height):
            for j in range(layer.out_width):
                gradient = layer.d_output + (e * layer.pixels + i * layer.out_width + j) * layer.row
                top, left, bottom, right = _window(layer, i, j)
                cells = np.float32((bottom - top) * (right - left))
                for c in range(channels):
                    largest = (top * layer.width + left) * channels + c
                    for row in range(top, bottom):
                        for column in range(left, right):
                            k = (row * layer.width + column) * channels + c
                            if layer.kind == AVERAGE_POOL:
                                x[d_image + k] += x[gradient + c] / cells
                            elif x[image + k] > x[image + largest]:
                                largest = k
                    if layer.kind == MAX_POOL:
                        x[d_image + largest] += x[gradient + c]


@njit(cache=True, error_model="numpy", nogil=True, _nrt=False, inline="always")
def _normalise(layer, weights, x, count):  # type: ignore[no-untyped-def]
    """Normalise each pixel's outputs over the filters, as `evo.kernels.layer_norm`; keep what gradients need."""
    filters = layer.filters
    gamma = layer.offset + (layer.terms + 1) * filters if layer.kind == WEIGHTED else layer.offset
    for r in range(count * layer.pixels):
        at, normal = layer.output + r * layer.row, layer.normal + r * layer.row
        mean = sum_of_products(x, at, ALONE, filters) / np.float32(filters)
        for f in range(0, filters, WIDTH):
            less(x, normal + f, x, at + f, mean)
        variance = sum_of_products(x, normal, normal, filters) / np.float32(filters)
        inverse = ONE / np.sqrt(variance + VARIANCE_EPSILON)
        x[layer.inverse + r] = inverse
        for f in range(0, filters, WIDTH):
            times(x, normal + f, x, normal + f, inverse)
            copy_vector(x, at + f, x, normal + f)
            multiply_vector(x, at + f, weights, gamma + f)
            add_vector(x, at + f, weights, gamma + filters + f)


@njit(cache=True, error_model="numpy", nogil=True, _nrt=False, inline="always")
def _normalise_back(layer, weights, x, count, sums):  # type: ignore[no-untyped-def]
    """Turn gradients behind a normalisation into those before it; add gamma's and beta's to the sums.

    With n the normalised values and g the gradients times gamma: inverse * (g - mean(g) - n * mean(g * n)).
    """
    filters = layer.filters
    gamma = layer.offset + (layer.terms + 1) * filters if layer.kind == WEIGHTED else layer.offset
    for r in range(count * layer.pixels):
        at, normal = layer.d_output + r * layer.row, layer.normal + r * layer.row
        for f in range(0, filters, WIDTH):
            add_product(sums, layer.scale + f, x, at + f, x, normal + f)
            add_vector(sums, layer.shift + f, x, at + f)
            multiply_vector(x, at + f, weights, gamma + f)
        mean = sum_of_products(x, at, ALONE, filters) / np.float32(filters)
        along = sum_of_products(x, at, normal, filters) / np.float32(filters)
        for f in range(0, filters, WIDTH):
            less(x, at + f, x, at + f, mean)
            less_times(x, at + f, x, normal + f, along)
            times(x, at + f, x, at + f, x[layer.inverse + r])


@njit(cache=True, error_model="numpy", nogil=True, _nrt=False)
def backward(layers, weights, packed, count, workspace, sums):  # type: ignore[no-untyped-def]
    """Add the gradients of `count` examples to the sums, of gradients at `d_output` of the last layer.

    What lies behind the last filter of a row there is zero.
    """
    x = workspace.floats
    for number in range(layers.shape[0] - 1, -1, -1):
        layer = layers[number]
        if layer.activation == RELU:
            for r in range(count * layer.pixels):
                at, value = layer.d_output + r * layer.row, layer.output + r * layer.row
                for f in range(0, layer.filters, WIDTH):
                    keep_positive(x, at + f, x, value + f)
        elif layer.activation == TANH:
            for r in range(count * layer.pixels):
                at, value = layer.d_output + r * layer.row, layer.output + r * layer.row
                for f in range(layer.filters):
                    x[at + f] *= ONE - x[value + f] * x[value + f]
        if layer.norm:
            _normalise_back(layer, weights, x, count, sums)
        if layer.kind == WEIGHTED:
            _weighted_back(layer, packed, count, workspace, sums)
        if not layer.passes_on:
            break
        if layer.kind == MAX_POOL or layer.kind == AVERAGE_POOL:
            _pool_back(layer, x, count)
        elif layer.kind == IDENTITY:
            for r in range(count * layer.pixels):
                e, pixel = r // layer.pixels, r % layer.pixels
                for c in range(layer.channels):
                    x[layer.d_input + e * layer.input_size + pixel * layer.channels + c] = x[
                        layer.d_output + r * layer.row + c
                    ]
        _hand_over(layers[number - 1], layer, x, count, True)


@njit(cache=True, error_model="numpy", nogil=True, _nrt=False, inline="always")
def _weighted_back(layer, packed, count, workspace, sums):  # type: ignore[no-untyped-def]
    """Add the gradients of kernel and bias to the sums; compute those of the inputs for layers before."""
    x, rows, terms, filters = workspace.floats, count * layer.pixels, layer.terms, layer.filters
    for f in range(0, filters, WIDTH):
        add_rows(sums, layer.bias + f, x, layer.d_output + f, layer.row, rows)
    distance = -(-rows // WIDTH) * WIDTH
    distance += WIDTH if distance % 128 == 0 else 0
    transpose(x, layer.d_output, rows, filters, layer.row, workspace.turned, 0, distance)
    multiply(
        (sums, layer.sums, -(-terms // WIDTH) * WIDTH),
        (sums, layer.sums, -(-terms // WIDTH) * WIDTH),
        (workspace.turned, NONE, distance),
        (x, layer.patches, layer.patch),
        workspace.words,
        (filters, rows, terms),
    )
    if not layer.passes_on:
        return
    dense = layer.patches == layer.input
    d_patches, to = (x, layer.d_input) if dense else (workspace.columns, NONE)
    multiply(
        (d_patches, to, layer.patch),
        (workspace.zeros, NONE, NONE),
        (x, layer.d_output, layer.row),
        (packed, layer.turned, NONE),
        workspace.words,
        (rows, filters, terms),
    )
    if not dense:
        _scatter(layer, x, count, workspace)


@njit(cache=True, error_model="numpy", nogil=True, _nrt=False, inline="always")
def _scatter(layer, x, count, workspace):  # type: ignore[no-untyped-def]
    """Add the gradients of patches to those of the inputs, pixel by pixel."""
    width, pixel = layer.kernel * layer.channels, 0
    for e in range(count):
        image = layer.d_input + e * layer.input_size
        for k in range(0, layer.input_size, WIDTH):
            copy_vector(x, image + k, workspace.zeros, 0)
        for i in range(layer.out_height):
            for j in range(layer.out_width):
                to = image + i * layer.stride * layer.input_row + j * layer.stride * layer.channels
                for r in range(layer.kernel):
                    add(x, to + r * layer.input_row, workspace.columns, pixel * layer.patch + r * width, width)
                pixel += 1


@njit(cache=True, error_model="numpy", nogil=True, _nrt=False)
def unpack(layers, sums, gradient):  # type: ignore[no-untyped-def]
    """Write the gradient in the order of the flat weights.  # sums -> [P]"""
    for i in range(layers.shape[0]):
        layer = layers[i]
        terms, filters, at = layer.terms, layer.filters, layer.offset
        if layer.kind == WEIGHTED:
            distance = -(-terms // WIDTH) * WIDTH
            for k in range(terms):
                for f in range(filters):
                    gradient[at + k * filters + f] = sums[layer.sums + f * distance + k]
            at += terms * filters
            for f in range(filters):
                gradient[at + f] = sums[layer.bias + f]
            at += filters
        if layer.norm:
            for f in range(filters):
                gradient[at + f] = sums[layer.scale + f]
                gradient[at + filters + f] = sums[layer.shift + f]


@njit(cache=True, error_model="numpy", nogil=True, _nrt=False)
def add_sums(sums, others):  # type: ignore[no-untyped-def]
    """Add the sums of other blocks to these."""
    for k in range(sums.shape[0]):
        sums[k] += others[k]
