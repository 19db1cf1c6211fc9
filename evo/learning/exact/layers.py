"""What an update does in a layer besides its products: copy values between layers, gather patches, pool, normalise.

All are compiled into the passes. Numbers of a layer that a loop needs are read before it: behind a store, the compiler
would read them again.
"""

from __future__ import annotations

import numpy as np
from numba import njit

from evo.compiled import cache as kernel_cache
from evo.kernels.layer_norm import VARIANCE_EPSILON
from evo.kernels.layout import AVERAGE_POOL, IDENTITY, MAX_POOL, ONE_HOT, RELU
from evo.learning.exact.runs import (
    WIDTH,
    add,
    add_product,
    add_vector,
    copy,
    copy_rectified,
    copy_vector,
    copy_where_positive,
    less,
    less_times,
    multiply_vector,
    sum_of_products,
    times,
)

kernel_cache.use(__name__)

ZERO, ONE = np.float32(0), np.float32(1)
NONE = np.int64(0)  # not a literal, for which Numba would compile everything once more
ALONE = np.int64(-1)


@njit(cache=True, error_model="numpy", nogil=True, _nrt=False, inline="always")
def observe(layer, observations, rows, x, place, count):  # type: ignore[no-untyped-def]
    """Copy `observations[rows[place + e]]`, or the entry of them that a layer sees, to its inputs."""
    width = layer.width * layer.channels
    for e in range(count):
        source, to = observations[rows[place + e]], layer.input + e * layer.input_size + layer.inside
        for i in range(layer.height):
            at = layer.observed + i * width
            run = width if at + -(-width // WIDTH) * WIDTH <= source.shape[0] else width // WIDTH * WIDTH
            copy(x, to + i * layer.input_row, source, at, run)
            for k in range(run, width):  # `copy` would read behind the example
                x[to + i * layer.input_row + k] = source[at + k]


@njit(cache=True, error_model="numpy", nogil=True, _nrt=False, inline="always")
def copy_to_inputs(layer, following, x, place, count):  # type: ignore[no-untyped-def]
    """Copy the outputs of a layer to the inputs of the following one; a ReLU is applied on the way.

    `place` is the first example's in the block, for inputs that are kept.
    """
    height, (row, filters, width) = layer.out_height, _runs(layer)
    size, line, rectifies = following.input_size, _line(layer, following), layer.activation == RELU
    inputs = following.input + following.inside + layer.into + (place * size if following.kept else 0)
    for e in range(count):
        for i in range(height):
            pixel, to = layer.output + (e * height + i) * layer.out_width * layer.row, inputs + e * size + i * line
            for _ in range(width):
                if rectifies:
                    copy_rectified(x, to, x, pixel, filters)
                else:
                    copy(x, to, x, pixel, filters)
                pixel, to = pixel + row, to + filters


@njit(cache=True, error_model="numpy", nogil=True, _nrt=False, inline="always")
def copy_gradients_back(layer, following, x, count):  # type: ignore[no-untyped-def]
    """Copy the gradients of the following layer's inputs to those of a layer's outputs, through its ReLU."""
    height, (row, filters, width) = layer.out_height, _runs(layer)
    size, line, rectifies = following.input_size, _line(layer, following), layer.activation == RELU
    output = layer.output - layer.d_output
    for e in range(count):
        for i in range(height):
            pixel, at = layer.d_output + (e * height + i) * layer.out_width * layer.row, following.d_input + e * size
            at += following.inside + layer.into + i * line
            for _ in range(width):
                if rectifies:
                    copy_where_positive(x, pixel, x, at, x, pixel + output, filters)
                else:
                    copy(x, pixel, x, at, filters)
                pixel, at = pixel + row, at + filters


@njit(cache=True, error_model="numpy", nogil=True, _nrt=False, inline="always")
def _runs(layer):  # type: ignore[no-untyped-def]
    """Return distance, length and number of the runs of outputs in a row of pixels; one where no space is between."""
    if layer.row == layer.filters:
        return layer.row, layer.out_width * layer.filters, 1
    return layer.row, layer.filters, layer.out_width


@njit(cache=True, error_model="numpy", nogil=True, _nrt=False, inline="always")
def _line(layer, following):  # type: ignore[no-untyped-def]
    """Return the distance of a layer's rows of pixels among the inputs of the following one."""
    return following.input_row if following.height > 1 else layer.out_width * layer.filters


@njit(cache=True, error_model="numpy", nogil=True, _nrt=False, inline="always")
def gather(layer, x, count):  # type: ignore[no-untyped-def]
    """Copy the inputs of each output into a row of patches; what a vector spills over the end is overwritten next."""
    kernel, width, row = layer.kernel, layer.kernel * layer.channels, layer.input_row
    step, patch, columns = layer.stride * layer.channels, layer.patch, layer.out_width
    to = layer.patches
    for e in range(count):
        for i in range(layer.out_height):
            at = layer.input + e * layer.input_size + i * layer.stride * row
            for _ in range(columns):
                for r in range(kernel):
                    for k in range(0, width, WIDTH):
                        copy_vector(x, to + r * width + k, x, at + r * row + k)
                to, at = to + patch, at + step


@njit(cache=True, error_model="numpy", nogil=True, _nrt=False, inline="always")
def scatter(layer, x, count, workspace):  # type: ignore[no-untyped-def]
    """Add the gradients of patches to those of the inputs, pixel by pixel."""
    kernel, width, row = layer.kernel, layer.kernel * layer.channels, layer.input_row
    step, patch, columns, at = layer.stride * layer.channels, layer.patch, layer.out_width, NONE
    for e in range(count):
        image = layer.d_input + e * layer.input_size
        for k in range(0, layer.input_size, WIDTH):
            copy_vector(x, image + k, workspace.zeros, 0)
        for i in range(layer.out_height):
            to = image + i * layer.stride * row
            for _ in range(columns):
                for r in range(kernel):
                    add(x, to + r * row, workspace.columns, at + r * width, width)
                to, at = to + step, at + patch


@njit(cache=True, error_model="numpy", nogil=True, _nrt=False)
def without_weights(layer, x, count):  # type: ignore[no-untyped-def]
    """Compute one-hot planes, pools, or copies, as `evo.kernels.weightless` does."""
    for e in range(count):
        for pixel in range(layer.pixels):
            pixel_without_weights(layer, x, e, pixel)


@njit(cache=True, error_model="numpy", nogil=True, _nrt=False, inline="always")
def pixel_without_weights(layer, x, e, pixel):  # type: ignore[no-untyped-def]
    """Compute the outputs of one pixel of an example."""
    channels, image = layer.channels, layer.input + e * layer.input_size
    to = layer.output + (e * layer.pixels + pixel) * layer.row
    if layer.kind == ONE_HOT:
        codes = layer.filters // channels
        for c in range(channels):
            value, at = x[image + pixel * channels + c], to + c * codes
            for code in range(codes):
                x[at + code] = ONE if value == np.float32(code) else (value if value != value else ZERO)
    elif layer.kind == IDENTITY:
        for c in range(channels):
            x[to + c] = x[image + pixel * channels + c]
    else:
        _pool(layer, x, image, to, pixel // layer.out_width, pixel % layer.out_width)


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
def pool_back(layer, x, e, first, end):  # type: ignore[no-untyped-def]
    """Add each output's gradient to the inputs of its window: to the first of the largest, or equally to all.

    It is done for an example's channels from `first` to `end`.
    """
    channels = layer.channels
    image, d_image = layer.input + e * layer.input_size, layer.d_input + e * layer.input_size
    for cell in range(layer.height * layer.width):
        for c in range(first, end):
            x[d_image + cell * channels + c] = ZERO
    for i in range(layer.out_height):
        for j in range(layer.out_width):
            gradient = layer.d_output + (e * layer.pixels + i * layer.out_width + j) * layer.row
            top, left, bottom, right = _window(layer, i, j)
            cells = np.float32((bottom - top) * (right - left))
            for c in range(first, end):
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
def normalise(layer, weights, x, count):  # type: ignore[no-untyped-def]
    """Normalise each pixel's outputs over the filters, as `evo.kernels.layer_norm`; keep what gradients need."""
    filters, gamma = layer.filters, layer.norm_offset
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
def normalise_back(layer, weights, x, count, sums):  # type: ignore[no-untyped-def]
    """Turn gradients behind a normalisation into those before it; add gamma's and beta's to the sums.

    With n the normalised values and g the gradients times gamma: inverse * (g - mean(g) - n * mean(g * n)).
    """
    filters, gamma = layer.filters, layer.norm_offset
    for r in range(count * layer.pixels):
        at, normal = layer.d_output + r * layer.row, layer.normal + r * layer.row
        for f in range(0, filters, WIDTH):
            if sums is not None:
                add_product(sums, layer.scale + f, x, at + f, x, normal + f)
                add_vector(sums, layer.shift + f, x, at + f)
            multiply_vector(x, at + f, weights, gamma + f)
        mean = sum_of_products(x, at, ALONE, filters) / np.float32(filters)
        along = sum_of_products(x, at, normal, filters) / np.float32(filters)
        for f in range(0, filters, WIDTH):
            less(x, at + f, x, at + f, mean)
            less_times(x, at + f, x, normal + f, along)
            times(x, at + f, x, at + f, x[layer.inverse + r])
