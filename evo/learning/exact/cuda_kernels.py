"""Device code of updates besides their products: layers, losses and Adam, with the sums of the learner on CPUs.

Rows of values lie next to each other, without padding; convolutions read their inputs as rows of patches.

This is plain Python whose functions `Retargeter` replaces by device functions, as in `evo.cuda.kernels`. A `range` of
steps would begin with a division of 64 bits, which takes longer than most of what a thread has to do.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import cuda, types

from evo.cuda.layers import F0, F1, mean_of, rectified
from evo.cuda.plain import barrier, divided, is_finite, load1, quotient, square_root, store1
from evo.kernels.layer_norm import PARTS, VARIANCE_EPSILON
from evo.kernels.layout import AVERAGE_POOL, MAX_POOL, ONE_HOT, TANH
from evo.kernels.weightless import tanh
from evo.learning.exact.layers import pixel_without_weights, pool_back
from evo.learning.exact.plan import BLOCK
from evo.learning.exact.weights import step_one

NORM_PARTS = 16  # as in `evo.learning.exact.runs.sum_of_squares`
STRETCH: Any = None  # squares of the norm that a block of threads computes at once, 8 each; a constant of the kernel


def loss_of_example(outputs, x, at, to, batch, settings, row, values):
    """Compute the loss of an example, as one of `evo.learning.exact.losses`."""
    raise NotImplementedError


def take_examples(layers, observations, rows, x):
    """Copy the observations of some rows to the inputs of the first layer."""
    size = observations.shape[1]
    k = cuda.grid(1)
    while k < rows.shape[0] * size:
        row, place = divided(k, size)
        x[layers[0].input + k] = observations[rows[row], place]
        k += cuda.gridsize(1)


def gather_patches(layers, number, count, x):
    """Copy the inputs of each output of a convolution into a row of patches."""
    layer = layers[number]
    terms, pixels, channels, width, height = layer.terms, layer.pixels, layer.channels, layer.width, layer.height
    k = cuda.grid(1)
    while k < count * pixels * terms:
        row, term = divided(k, terms)
        (example, pixel), (cell, channel) = divided(row, pixels), divided(term, channels)
        (i, j), (down, right) = divided(pixel, layer.out_width), divided(cell, layer.kernel)
        i, j = i * layer.stride - layer.pad + down, j * layer.stride - layer.pad_left + right
        value = F0
        if 0 <= i < height and 0 <= j < width:
            value = load1(x, layer.input + ((example * height + i) * width + j) * channels + channel)
        store1(x, layer.patches + k, value)
        k += cuda.gridsize(1)


def add_patches(layers, number, count, x):
    """Add the gradients of patches to those of the inputs, pixel by pixel."""
    layer = layers[number]
    size, channels, stride, kernel = layer.input_size, layer.channels, layer.stride, layer.kernel
    k = cuda.grid(1)
    while k < count * size:
        e, place = divided(k, size)
        cell, c = divided(place, channels)
        top, left = divided(cell, layer.width)
        top, left = top + layer.pad, left + layer.pad_left
        first, begin = max(0, top - kernel + stride), max(0, left - kernel + stride)
        total = F0
        for i in range(quotient(first, stride), min(layer.out_height, quotient(top, stride) + 1)):
            for j in range(quotient(begin, stride), min(layer.out_width, quotient(left, stride) + 1)):
                term = ((top - i * stride) * kernel + left - j * stride) * channels + c
                row = e * layer.pixels + i * layer.out_width + j
                total += load1(x, layer.patches + row * layer.terms + term)
        store1(x, layer.d_input + k, total)
        k += cuda.gridsize(1)


def transform(layers, number, count, x):
    """Compute a layer without weights."""
    layer = layers[number]
    k = cuda.grid(1)
    while k < count * layer.pixels:
        e, pixel = divided(k, layer.pixels)
        pixel_without_weights(layer, x, e, pixel)
        k += cuda.gridsize(1)


def transform_back(layers, number, count, x):
    """Compute the gradients of the inputs of a layer without weights."""
    layer = layers[number]
    k = cuda.grid(1)
    while k < count * layer.channels:
        e, c = divided(k, layer.channels)
        if layer.kind == MAX_POOL or layer.kind == AVERAGE_POOL:
            pool_back(layer, x, e, c, c + 1)
        else:
            for pixel in range(layer.pixels):
                at = (e * layer.pixels + pixel) * layer.channels + c
                x[layer.d_input + at] = F0 if layer.kind == ONE_HOT else x[layer.d_output + at]
        k += cuda.gridsize(1)


def normalise(layers, number, count, w, x):
    """Normalise each pixel's outputs over the filters; keep what gradients need."""
    layer = layers[number]
    filters, gamma = layer.filters, layer.norm_offset
    row = cuda.grid(1)
    while row < count * layer.pixels:
        at, normal = layer.output + row * filters, layer.normal + row * filters
        mean = mean_of(x, at, filters, 1, F0, False)
        inverse = F1 / square_root(mean_of(x, at, filters, 1, mean, True) + VARIANCE_EPSILON)
        x[layer.inverse + row] = inverse
        for f in range(filters):
            value = (load1(x, at + f) - mean) * inverse
            store1(x, normal + f, value)
            store1(x, at + f, value * load1(w, gamma + f) + load1(w, gamma + filters + f))
        row += cuda.gridsize(1)


def activate(layers, number, count, x):
    """Apply an activation that was not done with the sums."""
    layer = layers[number]
    k = cuda.grid(1)
    while k < count * layer.pixels * layer.filters:
        value = load1(x, layer.output + k)
        store1(x, layer.output + k, tanh(value) if layer.activation == TANH else rectified(value, True))
        k += cuda.gridsize(1)


def activate_back(layers, number, count, x):
    """Turn gradients behind an activation into those before it."""
    layer = layers[number]
    k = cuda.grid(1)
    while k < count * layer.pixels * layer.filters:
        value, slope = load1(x, layer.output + k), load1(x, layer.d_output + k)
        if layer.activation == TANH:
            slope = slope * (F1 - value * value)
        elif not value > F0:
            slope = F0
        store1(x, layer.d_output + k, slope)
        k += cuda.gridsize(1)


def norm_gradients(layers, number, count, size, x, gradients):
    """Compute the gradients of gamma and beta for each block of examples.  # [blocks * size]"""
    layer = layers[number]
    filters, pixels = layer.filters, layer.pixels
    k = cuda.grid(1)
    while k < (count + BLOCK - 1) // BLOCK * filters:
        block, f = divided(k, filters)
        scale, shift = F0, F0
        for row in range(block * BLOCK * pixels, min((block + 1) * BLOCK, count) * pixels):
            slope = load1(x, layer.d_output + row * filters + f)
            scale += slope * load1(x, layer.normal + row * filters + f)
            shift += slope
        at = block * size + layer.norm_offset + f
        gradients[at], gradients[at + filters] = scale, shift
        k += cuda.gridsize(1)


def eighth(x, at, w, gamma, normal, k, filters):
    """Return the sum over every eighth filter, from k on, of gradients times gamma, and times normalised values."""
    total = F0
    for f in range(k, filters, PARTS):
        value = load1(x, at + f) * load1(w, gamma + f)
        total = total + (value * load1(x, normal + f) if normal >= 0 else value)
    return total


def fourth(x, at, w, gamma, normal, k, filters):
    """Return the sum over every fourth filter, from k on, as two of `eighth`."""
    return eighth(x, at, w, gamma, normal, k, filters) + eighth(x, at, w, gamma, normal, k + 4, filters)


def mean_along(x, at, w, gamma, normal, filters):
    """Return the mean over filters of gradients times gamma, or of these times normalised values."""
    even = fourth(x, at, w, gamma, normal, 0, filters) + fourth(x, at, w, gamma, normal, 2, filters)
    odd = fourth(x, at, w, gamma, normal, 1, filters) + fourth(x, at, w, gamma, normal, 3, filters)
    return (even + odd) / np.float32(filters)


def normalise_back(layers, number, count, w, x):
    """Turn gradients behind a normalisation into those before it, as `evo.learning.exact.layers.normalise_back`."""
    layer = layers[number]
    filters, gamma = layer.filters, layer.norm_offset
    row = cuda.grid(1)
    while row < count * layer.pixels:
        at, normal, inverse = layer.d_output + row * filters, layer.normal + row * filters, x[layer.inverse + row]
        mean = mean_along(x, at, w, gamma, -1, filters)
        along = mean_along(x, at, w, gamma, normal, filters)
        for f in range(filters):
            value = load1(x, at + f) * load1(w, gamma + f) - mean
            store1(x, at + f, (value - load1(x, normal + f) * along) * inverse)
        row += cuda.gridsize(1)


def losses(layers, number, count, x, batch, settings, values):
    """Compute the losses of the examples, and the derivatives by the last layer's outputs."""
    layer = layers[number]
    filters = layer.filters
    e = cuda.grid(1)
    while e < count:
        loss_of_example(
            filters, x, layer.output + e * filters, layer.d_output + e * filters, batch, settings, e, values
        )
        e += cuda.gridsize(1)


def outputs(layers, number, count, x, out):
    """Copy the outputs of the last layer.  # [B, O]"""
    filters = out.shape[1]
    k = cuda.grid(1)
    while k < count * filters:
        row, o = divided(k, filters)
        out[row, o] = x[layers[number].output + k]
        k += cuda.gridsize(1)


def follow(size, share, copies, weights, target):
    """Move a target network's weights by a share of the difference, or copy them."""
    k = cuda.grid(1)
    while k < size:
        target[k] = weights[k] if copies else target[k] + share[0] * (weights[k] - target[k])
        k += cuda.gridsize(1)


def add_blocks(count, size, gradients):
    """Add the gradients of blocks of examples in pairs, level by level: their sum is that of the first block."""
    k = cuda.grid(1)
    while k < size:
        distance = 1
        while distance < count:
            for block in range(0, count - distance, 2 * distance):
                at = block * size + k
                store1(gradients, at, load1(gradients, at) + load1(gradients, at + distance * size))
            distance *= 2
        k += cuda.gridsize(1)


def gradient(gradients, k, size):
    """Return gradient k; 0 behind the last."""
    value = load1(gradients, min(k, size - 1))
    return value if k < size else F0


def gradients8(gradients, k, step, size):
    """Return eight gradients, from k on, in this distance."""
    return (
        gradient(gradients, k, size), gradient(gradients, k + step, size), gradient(gradients, k + 2 * step, size),
        gradient(gradients, k + 3 * step, size), gradient(gradients, k + 4 * step, size),
        gradient(gradients, k + 5 * step, size), gradient(gradients, k + 6 * step, size),
        gradient(gradients, k + 7 * step, size),
    )  # fmt: skip


def norm(size, gradients, out):
    """Compute the Euclidean norm as `evo.learning.exact.weights.norm_of`; one block of threads.  # -> [1]"""
    squares = cuda.shared.array(STRETCH, types.float32)
    parts = cuda.shared.array(NORM_PARTS, types.float32)
    t, threads, total = cuda.threadIdx.x, STRETCH // 8, F0
    loaded = gradients8(gradients, t, threads, size)
    for begin in range(STRETCH, size + STRETCH, STRETCH):
        for k in range(8):
            store1(squares, t + k * threads, loaded[k] * loaded[k])
        barrier()
        loaded = gradients8(gradients, begin + t, threads, size)  # the next ones, while these are added
        if t < NORM_PARTS:
            for k in range(t, STRETCH, 8 * NORM_PARTS):
                s0, s1 = load1(squares, k), load1(squares, k + NORM_PARTS)
                s2, s3 = load1(squares, k + 2 * NORM_PARTS), load1(squares, k + 3 * NORM_PARTS)
                s4, s5 = load1(squares, k + 4 * NORM_PARTS), load1(squares, k + 5 * NORM_PARTS)
                s6, s7 = load1(squares, k + 6 * NORM_PARTS), load1(squares, k + 7 * NORM_PARTS)
                total = total + s0 + s1 + s2 + s3 + s4 + s5 + s6 + s7
        barrier()
    if t < NORM_PARTS:
        parts[t] = total
    barrier()
    if t == 0:
        half = NORM_PARTS // 2
        while half > 0:
            for k in range(half):
                parts[k] += parts[k + half]
            half //= 2
        out[0] = square_root(parts[0])


def step(size, most, rate, norm_of, gradients, weights, first, second):
    """Clip the gradient to the norm `most`, if it is not 0, and update weights and moments by Adam."""
    if not is_finite(norm_of[0]):
        return
    scale = most[0] / norm_of[0] if most[0] > F0 and norm_of[0] > most[0] else F1
    k = cuda.grid(1)
    while k < size:
        step_one(weights, first, second, k, gradients[k] * scale, rate[0])
        k += cuda.gridsize(1)
