"""Recurrent layers: sums of the inputs, sums of the state, then the gates, as in Keras by default.

A GRU (Cho et al., 2014) multiplies by its reset gate behind the recurrent kernel. With x and h the sums of the inputs
and of the state: z = s(x_z + h_z), r = s(x_r + h_r), h' = z h + (1 - z) tanh(x_h + r h_h). An LSTM (Hochreiter and
Schmidhuber, 1997): c' = s(x_f + h_f) c + s(x_i + h_i) tanh(x_c + h_c), h' = s(x_o + h_o) tanh(c'). Here s is the
sigmoid, 0.5 + 0.5 tanh(0.5 x). The states of environments are rows of `memory`; lanes read and write those that `index`
names. A network without memory has kernels that contain none of this: its table has another type.
"""

from __future__ import annotations

import numpy as np
from numba import njit

from evo.compiled import cache as kernel_cache
from evo.kernels import weightless
from evo.kernels.layout import GRU, LSTM, STATE, by_table
from evo.kernels.tiles import compute
from evo.kernels.weightless import ONE, tanh

kernel_cache.use(__name__)

HALF = np.float32(0.5)


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


def _transform(layer, packed, x, out, lanes, live, nonzero, memory, index):  # type: ignore[no-untyped-def]
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
        weightless.transform(layer, packed, x, out, lanes)


transform = by_table(
    lambda layer, packed, x, out, lanes, live, nonzero, memory, index: None,
    lambda layer, packed, x, out, lanes, live, nonzero, memory, index: weightless.transform(
        layer, packed, x, out, lanes
    ),
    _transform,
    jit_options=weightless.OPTIONS,
)
