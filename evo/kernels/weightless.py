"""What takes no sums of weights: one-hot planes, pools, decision trees, gates, and activations other than a sum's ReLU.

Every lane is computed alone and in one order, so the bits depend on neither the number of lanes nor the machine. These
are plain loops over neighbouring values, which Numba turns into vectors. A network without such layers has kernels that
contain none of this: its table of layers has another type (`evo.kernels.layout`).

A recurrent layer is the sums of its inputs, the sums of its state, then its gates, as in Keras by default. A GRU (Cho
et al., 2014) multiplies by its reset gate behind the recurrent kernel. With x and h the sums of the inputs and of the
state: z = s(x_z + h_z), r = s(x_r + h_r), h' = z h + (1 - z) tanh(x_h + r h_h). An LSTM (Hochreiter and Schmidhuber,
1997): c' = s(x_f + h_f) c + s(x_i + h_i) tanh(x_c + h_c), h' = s(x_o + h_o) tanh(c'). Here s is the sigmoid, 0.5 + 0.5
tanh(0.5 x). The states of environments are rows of `memory`; lanes read and write those that `index` names.
"""

from __future__ import annotations

import numpy as np
from numba import njit

from evo.compiled import cache as kernel_cache
from evo.kernels.layout import AVERAGE_POOL, GRU, LSTM, MAX_POOL, ONE_HOT, RELU, STATE, TANH, TREE, by_table
from evo.kernels.tiles import compute

kernel_cache.use(__name__)

ONE, HALF = np.float32(1), np.float32(0.5)
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


@njit(cache=True, error_model="numpy", nogil=True, inline="always")
def sigmoid(x):  # type: ignore[no-untyped-def]
    """Return the logistic function of a float32."""
    return HALF + HALF * tanh(HALF * x)


@njit(cache=True, error_model="numpy", nogil=True, _nrt=False)
def _state_sums(layer, packed, out, lanes, live, nonzero, memory, index):  # type: ignore[no-untyped-def]
    """Write the sums of the state [filters, lanes], and behind them the state itself."""
    state = out[layer.filters * lanes :]
    for k in range(layer.memory_size):
        for lane in range(lanes):  # idle ones are computed as the last live one
            state[k * lanes + lane] = memory[index[min(lane, live - 1)], layer.memory + k]
    compute(layer, packed, state, out, lanes, nonzero)


@njit(cache=True, error_model="numpy", nogil=True, _nrt=False)
def _gru(units, x, out):  # type: ignore[no-untyped-def]
    """Write the next state over the sums of the inputs, `out`; `x` are the sums of the state, and the state."""
    sums, state = x[: 3 * units], x[3 * units : 4 * units]
    for k in range(2 * units):
        out[k] = sigmoid(out[k] + sums[k])
    for k in range(units):
        update, reset = out[k], out[units + k]
        candidate = tanh(out[2 * units + k] + reset * sums[2 * units + k])
        out[k] = state[k] = update * state[k] + (ONE - update) * candidate


@njit(cache=True, error_model="numpy", nogil=True, _nrt=False)
def _lstm(units, x, out):  # type: ignore[no-untyped-def]
    """Write the next outputs over the sums of the inputs, as `_gru`; the state are the outputs, then the cells."""
    sums, state = x[: 4 * units], x[4 * units : 6 * units]
    for k in range(2 * units):
        out[k] = sigmoid(out[k] + sums[k])
    for k in range(units):
        candidate = tanh(out[2 * units + k] + sums[2 * units + k])
        cell = out[units + k] * state[units + k] + out[k] * candidate
        state[units + k] = cell
        out[k] = state[k] = sigmoid(out[3 * units + k] + sums[3 * units + k]) * tanh(cell)


def _remember(layer, packed, x, out, lanes, live, nonzero, memory, index):  # type: ignore[no-untyped-def]
    """Write the output of a row of the table that is no sum of inputs, for 16, 8, 4 or 2 lanes."""
    if layer.kind == STATE:
        _state_sums(layer, packed, out, lanes, live, nonzero, memory, index)
    elif layer.kind == GRU or layer.kind == LSTM:
        units = layer.filters * lanes
        if layer.kind == GRU:
            _gru(units, x, out)
        else:
            _lstm(units, x, out)
        state = x[(3 if layer.kind == GRU else 4) * units :]
        for k in range(layer.memory_size):
            for lane in range(live):
                memory[index[lane], layer.memory + k] = state[k * lanes + lane]
    else:
        _forgetful(layer, packed, x, out, lanes)


OPTIONS = {"error_model": "numpy", "_nrt": False}
_forgetful = by_table(lambda layer, packed, x, out, lanes: None, _transform, jit_options=OPTIONS)
transform = by_table(
    lambda layer, packed, x, out, lanes, live, nonzero, memory, index: None,
    lambda layer, packed, x, out, lanes, live, nonzero, memory, index: _forgetful(layer, packed, x, out, lanes),
    _remember,
    jit_options=OPTIONS,
)
activate = by_table(lambda layer, out, lanes: None, _activate, jit_options=OPTIONS)
