"""Recurrent layers of an update: backpropagation through time over pieces of consecutive steps (Werbos, 1990).

Sums over the inputs are those of a dense layer, for all steps at once. Here the steps follow each other, those of the
pieces in a group side by side: sums over the states, then the gates, and backwards their gradients. The gradients of
both kernels are again those of dense layers. Equations are Keras's defaults (Cho et al., 2014, with the reset gate
behind the product; Hochreiter and Schmidhuber, 1997), computed as the network plays, bit for bit.
"""

from __future__ import annotations

from numba import njit

from evo.compiled import cache as kernel_cache
from evo.kernels.layout import GRU, LSTM
from evo.kernels.weightless import sigmoid, tanh
from evo.learning.exact.layers import NONE, ONE, ZERO
from evo.learning.exact.products import PACKED, multiply
from evo.learning.exact.runs import copy

kernel_cache.use(__name__)


@njit(cache=True, error_model="numpy", nogil=True, _nrt=False)
def forward_in_time(layer, sums, packed, place, count, workspace):  # type: ignore[no-untyped-def]
    """Compute the outputs of `count` examples, whole pieces, from the sums over their inputs.

    sums: the layer of the sums over states; place: the first example's in the block.
    """
    x, steps, units = workspace.floats, layer.steps, layer.filters
    states = sums.patches + (place * sums.patch if sums.kept else 0)
    for t in range(steps):
        for e in range(t, count, steps):
            _before(layer, x, states + e * sums.patch, e, t == 0 or workspace.begins[place + e], place, workspace)
        multiply(
            (x, sums.output + t * sums.row, steps * sums.row),
            (packed, sums.biases, NONE),
            (x, states + t * sums.patch, steps * sums.patch),
            (packed, sums.packed, PACKED),
            workspace.words,
            (count // steps, units, sums.filters),
        )
        for e in range(t, count, steps):
            size, at = sums.filters, e * layer.input_size
            inputs, gates = x[layer.input + at : layer.input + at + size], x[layer.gates + at : layer.gates + at + size]
            hidden = x[sums.output + e * sums.row : sums.output + e * sums.row + size]
            if layer.kind == GRU:
                h = x[states + e * sums.patch : states + e * sums.patch + units]
                _gru(inputs, hidden, h, gates, x[layer.output + e * layer.row : layer.output + e * layer.row + units])
            else:
                _lstm(inputs, hidden, gates, layer, x, e * layer.row)


@njit(cache=True, error_model="numpy", nogil=True, _nrt=False, inline="always")
def _before(layer, x, to, e, begins, place, workspace):  # type: ignore[no-untyped-def]
    """Write the state before a step, h to x[to:]: the recorded one where it `begins`, else that of the step before."""
    units, row, cells = layer.filters, layer.row, layer.cells + e * layer.row
    if not begins:
        copy(x, to, x, layer.output + (e - 1) * row, units)
        if layer.kind == LSTM:
            copy(x, cells, x, layer.next_cells + (e - 1) * row, units)
        return
    recorded = workspace.memories[place + e]
    for k in range(units):
        x[to + k] = recorded[layer.memory + k]
    if layer.kind == LSTM:
        for k in range(units):
            x[cells + k] = recorded[layer.memory + units + k]


@njit(cache=True, error_model="numpy", nogil=True, _nrt=False)
def _gru(inputs, hidden, h, gates, out):  # type: ignore[no-untyped-def]
    """Write the gates z, r and the candidate, and the next h: z * h + (1 - z) * candidate."""
    units = h.shape[0]
    for k in range(2 * units):
        gates[k] = sigmoid(inputs[k] + hidden[k])
    z, r, candidate = gates[:units], gates[units : 2 * units], gates[2 * units :]
    from_inputs, from_state = inputs[2 * units :], hidden[2 * units :]
    for k in range(units):
        candidate[k] = tanh(from_inputs[k] + r[k] * from_state[k])
    for k in range(units):
        out[k] = z[k] * h[k] + (ONE - z[k]) * candidate[k]


@njit(cache=True, error_model="numpy", nogil=True, _nrt=False)
def _lstm(inputs, hidden, gates, layer, x, row):  # type: ignore[no-untyped-def]
    """Write the gates i, f, g, o, the next cells f * c + i * g, and the next h: o * tanh(c)."""
    units = layer.filters
    for k in range(gates.shape[0]):
        gates[k] = inputs[k] + hidden[k]
    first, g, o = gates[: 2 * units], gates[2 * units : 3 * units], gates[3 * units :]
    for k in range(2 * units):
        first[k] = sigmoid(first[k])
    for k in range(units):
        g[k] = tanh(g[k])
    for k in range(units):
        o[k] = sigmoid(o[k])
    i, f = first[:units], first[units:]
    cells, found = layer.cells + row, layer.next_cells + row
    before, after = x[cells : cells + units], x[found : found + units]
    for k in range(units):
        after[k] = f[k] * before[k] + i[k] * g[k]
    out = x[layer.output + row : layer.output + row + units]
    for k in range(units):
        out[k] = o[k] * tanh(after[k])


@njit(cache=True, error_model="numpy", nogil=True, _nrt=False)
def backward_in_time(layer, sums, packed, place, count, workspace):  # type: ignore[no-untyped-def]
    """Write the gradients of the sums over inputs and over states of `count` examples, of those of the outputs.

    No gradient crosses the beginning of an episode, nor the end of the burn-in.
    """
    x, steps, units, size = workspace.floats, layer.steps, layer.filters, sums.filters
    states = sums.patches + (place * sums.patch if sums.kept else 0)
    for t in range(steps - 1, -1, -1):
        for e in range(t, count, steps):
            piece = e // steps
            at, row, line = e * layer.input_size, e * sums.row, e * layer.row
            slope, d_cells = layer.d_output + line, layer.d_cells + piece * layer.row
            back = sums.d_input + piece * sums.input_size
            d_out, d_c, carried = x[slope : slope + units], x[d_cells : d_cells + units], x[back : back + units]
            if t + 1 == steps or t + 1 == layer.burn_in or workspace.begins[place + e + 1]:
                d_c[:] = ZERO
            else:
                for k in range(units):
                    d_out[k] += carried[k]
            gates, hidden = (
                x[layer.gates + at : layer.gates + at + size],
                x[sums.output + row : sums.output + row + size],
            )
            d_inputs = x[layer.d_input + at : layer.d_input + at + size]
            d_hidden = x[sums.d_output + row : sums.d_output + row + size]
            if layer.kind == GRU:
                h = x[states + e * sums.patch : states + e * sums.patch + units]
                _gru_back(gates, hidden, h, d_out, d_inputs, d_hidden, carried)
                copy(x, sums.d_output + row, x, layer.d_input + at, 2 * units)
            else:
                cells, after = layer.cells + line, layer.next_cells + line
                _lstm_back(gates, x[cells : cells + units], x[after : after + units], d_out, d_c, d_inputs)
                copy(x, sums.d_output + row, x, layer.d_input + at, size)
                carried[:] = ZERO
        if t > 0:
            multiply(
                (x, sums.d_input, sums.input_size),
                (x, sums.d_input, sums.input_size),
                (x, sums.d_output + t * sums.row, steps * sums.row),
                (packed, sums.turned, PACKED),
                workspace.words,
                (count // steps, size, units),
            )


@njit(cache=True, error_model="numpy", nogil=True, _nrt=False)
def _gru_back(gates, hidden, h, d_out, d_inputs, d_hidden, carried):  # type: ignore[no-untyped-def]
    """Write the gradients of the sums over inputs, of the candidate's over h, and what else goes back to h."""
    units = h.shape[0]
    z, r, candidate = gates[:units], gates[units : 2 * units], gates[2 * units :]
    d_z, d_r, d_candidate = d_inputs[:units], d_inputs[units : 2 * units], d_inputs[2 * units :]
    from_state, d_from_state = hidden[2 * units :], d_hidden[2 * units :]
    for k in range(units):
        d_z[k] = d_out[k] * (h[k] - candidate[k]) * (z[k] * (ONE - z[k]))
    for k in range(units):
        d_candidate[k] = d_out[k] * (ONE - z[k]) * (ONE - candidate[k] * candidate[k])
    for k in range(units):
        d_r[k] = d_candidate[k] * from_state[k] * (r[k] * (ONE - r[k]))
    for k in range(units):
        d_from_state[k] = d_candidate[k] * r[k]
    for k in range(units):
        carried[k] = d_out[k] * z[k] + ZERO  # not -0, as `multiply` asks of a sum's beginning


@njit(cache=True, error_model="numpy", nogil=True, _nrt=False)
def _lstm_back(gates, before, after, d_out, d_cells, d_inputs):  # type: ignore[no-untyped-def]
    """Write the gradients of both sums, which are equal, and turn that of the cells into that of those before."""
    units = before.shape[0]
    i, f, g, o = gates[:units], gates[units : 2 * units], gates[2 * units : 3 * units], gates[3 * units :]
    d_i, d_f, d_g = d_inputs[:units], d_inputs[units : 2 * units], d_inputs[2 * units : 3 * units]
    d_o = d_inputs[3 * units :]
    for k in range(units):
        squashed = tanh(after[k])
        d_o[k] = d_out[k] * squashed * (o[k] * (ONE - o[k]))
        d_cells[k] += d_out[k] * o[k] * (ONE - squashed * squashed)
    for k in range(units):
        d_i[k] = d_cells[k] * g[k] * (i[k] * (ONE - i[k]))
    for k in range(units):
        d_f[k] = d_cells[k] * before[k] * (f[k] * (ONE - f[k]))
    for k in range(units):
        d_g[k] = d_cells[k] * i[k] * (ONE - g[k] * g[k])
    for k in range(units):
        d_cells[k] *= f[k]
