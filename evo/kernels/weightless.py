"""What takes no sums of weights: one-hot planes, pooling, decision trees, and activations other than a sum's ReLU.

Every lane is computed alone and in one order, so the bits depend on neither the number of lanes nor the machine. These
are plain loops over neighbouring values, which Numba turns into vectors. A network without such layers has kernels that
contain none of this: its table of layers has another type (`evo.kernels.layout`).
"""

from __future__ import annotations

import numpy as np
from numba import njit

from evo.compiled import cache as kernel_cache
from evo.kernels.layout import AVERAGE_POOL, MAX_POOL, ONE_HOT, RELU, TANH, TREE, by_table

kernel_cache.use(__name__)

ONE = np.float32(1)
DEPTH = 13  # of the continued fraction of tanh
SATURATED = np.float32(9)  # from here on tanh is 1 or -1 to a unit in the last place


def convergent(depth: int) -> tuple[list[np.float32], list[np.float32]]:
    """Return n and d of tanh x = x n(x^2) / d(x^2), cut off at `depth` (Lambert, 1770), lowest powers first.

    tanh x = x / (1 + x^2 / (3 + x^2 / (5 + ...))). Every coefficient is positive, so sums lose no digits.
    """
    above, below = [1], [2 * depth - 1]
    for odd in range(2 * depth - 3, 0, -2):
        shifted = [0, *above] + [0] * (len(below) - len(above) - 1)
        longer = below + [0] * (len(shifted) - len(below))
        above, below = below, [odd * b + a for b, a in zip(longer, shifted, strict=True)]
    return [np.float32(a / above[0]) for a in above], [np.float32(b / below[0]) for b in below]


NUMERATOR, DENOMINATOR = convergent(DEPTH)
_, N1, N2, N3, N4, N5, N6 = NUMERATOR
_, D1, D2, D3, D4, D5, D6 = DENOMINATOR


@njit(cache=True, error_model="numpy", nogil=True, inline="always")
def tanh(x):  # type: ignore[no-untyped-def]
    """Return the hyperbolic tangent of a float32, to seven units in the last place; a NaN stays one."""
    z = x * x
    above = ONE + z * (N1 + z * (N2 + z * (N3 + z * (N4 + z * (N5 + z * N6)))))
    below = ONE + z * (D1 + z * (D2 + z * (D3 + z * (D4 + z * (D5 + z * D6)))))
    y = x * above / below
    y = ONE if (x > SATURATED) | (y > ONE) else y
    return -ONE if (x < -SATURATED) | (y < -ONE) else y


@njit(cache=True, error_model="numpy", nogil=True, _nrt=False)
def _one_hot(layer, x, out, lanes):  # type: ignore[no-untyped-def]
    """Write a plane for each code of each channel: [pixels, channels, lanes] -> [pixels, channels, codes, lanes]."""
    codes = layer.filters // layer.channels
    for k in range(layer.height * layer.width * layer.channels):
        seen = x[k * lanes : (k + 1) * lanes]
        for code in range(codes):
            plane, number = out[(k * codes + code) * lanes : (k * codes + code + 1) * lanes], np.float32(code)
            for lane in range(lanes):  # a NaN stays one
                value = seen[lane]
                plane[lane] = ONE if value == number else (value if value != value else np.float32(0))


@njit(cache=True, error_model="numpy", nogil=True, _nrt=False)
def _pool(layer, x, out, lanes):  # type: ignore[no-untyped-def]
    """Write the largest value, or the mean, of each window's cells inside of the input, by rows and columns."""
    average, pixel = layer.kind == AVERAGE_POOL, layer.channels * lanes
    for i in range(layer.out_height):
        top = i * layer.stride - layer.pad
        first_row, end_row = max(top, 0), min(top + layer.kernel, layer.height)
        for j in range(layer.out_width):
            left = j * layer.stride - layer.pad_left
            first_column, end_column = max(left, 0), min(left + layer.kernel, layer.width)
            to = (i * layer.out_width + j) * pixel
            pooled = out[to : to + pixel]
            for row in range(first_row, end_row):
                for column in range(first_column, end_column):
                    at = (row * layer.width + column) * pixel
                    seen = x[at : at + pixel]
                    if row == first_row and column == first_column:
                        for k in range(pixel):
                            pooled[k] = seen[k]
                    elif average:
                        for k in range(pixel):
                            pooled[k] += seen[k]
                    else:
                        for k in range(pixel):  # a NaN stays one
                            larger = (seen[k] > pooled[k]) | (seen[k] != seen[k])
                            pooled[k] = seen[k] if larger else pooled[k]
            if average:
                count = np.float32((end_row - first_row) * (end_column - first_column))
                for k in range(pixel):
                    pooled[k] /= count


@njit(cache=True, error_model="numpy", nogil=True, _nrt=False)
def _decide(layer, packed, x, out, lanes):  # type: ignore[no-untyped-def]
    """Go down from the root, right where the input is at least the threshold; write 1 for the leaf, or a NaN seen."""
    leaves = layer.filters
    nodes, thresholds = layer.packed, layer.packed + leaves - 1
    out[: leaves * lanes] = np.float32(0)
    for lane in range(lanes):
        node, value = 0, ONE
        while node < leaves - 1:
            seen = x[np.int64(packed[nodes + node]) * lanes + lane]
            value = seen if seen != seen else value
            node = 2 * node + (2 if seen >= packed[thresholds + node] else 1)
        out[(node - leaves + 1) * lanes + lane] = value


def _transform(layer, packed, x, out, lanes):  # type: ignore[no-untyped-def]
    """Write the output of a layer that takes no sums, for any number of lanes; `packed` has the nodes of trees."""
    if layer.kind == ONE_HOT:
        _one_hot(layer, x, out, lanes)
    elif layer.kind == MAX_POOL or layer.kind == AVERAGE_POOL:
        _pool(layer, x, out, lanes)
    elif layer.kind == TREE:
        _decide(layer, packed, x, out, lanes)
    else:
        for k in range(layer.height * layer.width * layer.channels * lanes):
            out[k] = x[k]


def _activate(layer, out, lanes):  # type: ignore[no-untyped-def]
    """Apply what activation is left to the output of a layer, in place."""
    values = out[: layer.out_height * layer.out_width * layer.filters * lanes]
    if layer.activation == TANH:
        for k in range(values.shape[0]):
            values[k] = tanh(values[k])
    elif layer.activation == RELU and layer.norm < 0:
        for k in range(values.shape[0]):
            values[k] = np.float32(0) if values[k] < np.float32(0) else values[k]


OPTIONS = {"error_model": "numpy", "_nrt": False}
transform = by_table(lambda layer, packed, x, out, lanes: None, _transform, jit_options=OPTIONS)
activate = by_table(lambda layer, out, lanes: None, _activate, jit_options=OPTIONS)
