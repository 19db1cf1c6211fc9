"""The plain form of the passes: what a gradient is, in NumPy, one example after the other; slow, with the same bits.

Arrays of float32 give the bits of `evo.learning.exact.passes`; of float64 they give nearly the true derivative.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from evo.kernels.weightless import tanh
from evo.learning.exact.plan import BLOCK
from evo.learning.learner import Pieces
from evo.networks.layer import Layer
from evo.networks.network import EPSILON, Network

Floats = NDArray[Any]
PARTS = 8


class Passed(NamedTuple):
    """What the forward pass of one layer leaves for the backward pass."""

    patches: Floats  # [pixels, terms] of layers with weights, or the input [H, W, C]
    normal: Floats  # [pixels, F] before gamma and beta
    inverse: Floats  # [pixels]
    out: Floats  # [pixels, F]
    before: Floats  # [S] state of a recurrent layer
    gates: tuple[Floats, ...]  # of it: z, r, candidate and the candidate's sum over h; or i, f, g, o and tanh(c)
    state: Floats  # [S] behind the step


class Addition(NamedTuple):
    """What an example adds to a sum: a row, or its product with what it was computed from, but for zeros of the row."""

    total: Floats
    row: Floats
    factors: Floats | None = None

    def add(self) -> None:
        if self.factors is None:
            np.add(self.total, self.row, out=self.total)
        else:
            self.total[:] = np.where(self.row != 0, self.total + self.row * self.factors[:, None], self.total)


def arrays_of(network: Network, vector: Floats) -> list[dict[str, Floats]]:
    """Return the arrays of every layer by their names, views of a flat vector.  # [P]"""
    found, start = [], 0
    for layer in network.layers:
        arrays = {}
        for part, shape in layer.arrays.items():
            end = start + int(np.prod(shape))
            arrays[part] = vector[start:end].reshape((-1, shape[-1]) if len(shape) > 1 else shape)
            start = end
        found.append(arrays)
    return found


def forward(network: Network, weights: Floats, observation: Floats, states: Floats | None = None) -> list[Passed]:
    """Compute all layers for one observation, and the network's states [S]; the outputs are `out` of the last.

    # [P], [...]
    """
    x, passed, place = observation, list[Passed](), 0
    for number, (layer, arrays) in enumerate(zip(network.layers, arrays_of(network, weights), strict=True)):
        begin = network.flow(number).observed
        if begin >= 0:
            x = observation.ravel()[begin : begin + layer.height * layer.width * layer.channels]
        elif number == network.joins:
            x = np.concatenate([passed[part.end - 1].out.ravel() for part in network.parts])
        x = x.reshape(layer.height, layer.width, layer.channels)
        before = state = np.zeros(0, x.dtype) if states is None else states[place : place + layer.memory]
        place, gates = place + layer.memory, ()
        patches = patches_of(layer, x) if layer.weighted or layer.gates else x
        if layer.gates:
            gates, state = _step(layer, arrays, patches, before)
            out = state[None, : layer.filters]
        else:
            out = _sums(patches, arrays["kernel"], arrays["bias"]) if layer.weighted else _without_weights(layer, x)
        normal, inverse = out, out[:, 0]
        if layer.norm:
            centred = out - _sum(out)[:, None] / out.dtype.type(layer.filters)
            variance = _sum(centred * centred) / out.dtype.type(layer.filters) + out.dtype.type(np.float32(EPSILON))
            inverse = out.dtype.type(1) / np.sqrt(variance)
            normal = centred * inverse[:, None]
            out = normal * arrays["gamma"] + arrays["beta"]
        if layer.activation == "relu":
            out = np.where(out < 0, out.dtype.type(0), out)
        elif layer.activation == "tanh":
            out = _tanh(out)
        passed.append(Passed(patches, normal, inverse, out, before, gates, state))
        x = out
    return passed


def states_of(passed: list[Passed]) -> Floats:
    """Return the network's state behind a step.  # [S]"""
    return np.concatenate([one.state for one in passed if one.gates] or [np.zeros(0, np.float32)])


def _tanh(values: Floats) -> Floats:
    return np.array([tanh.py_func(value) for value in values.ravel()], values.dtype).reshape(values.shape)


def _sigmoid(values: Floats) -> Floats:
    half = values.dtype.type(0.5)
    return half + half * _tanh(half * values)


def _step(layer: Layer, arrays: dict[str, Floats], inputs: Floats, before: Floats) -> tuple[tuple[Floats, ...], Floats]:
    """Return the gates of a recurrent layer and its next state."""
    units, one, bias = layer.filters, before.dtype.type(1), arrays["bias"]
    first, second = bias if layer.kind == "gru" else (bias, np.zeros_like(bias))
    sums = _sums(inputs, arrays["kernel"], first)[0]
    hidden = _sums(before[None, :units], arrays["recurrent_kernel"], second)[0]
    if layer.kind == "gru":
        z, r = np.split(_sigmoid(sums[: 2 * units] + hidden[: 2 * units]), 2)
        candidate = _tanh(sums[2 * units :] + r * hidden[2 * units :])
        return (z, r, candidate, hidden[2 * units :]), z * before + (one - z) * candidate
    i, f, g, o = np.split(sums + hidden, 4)
    i, f, g, o = _sigmoid(i), _sigmoid(f), _tanh(g), _sigmoid(o)
    cells = f * before[units:] + i * g
    squashed = _tanh(cells)
    return (i, f, g, o, squashed), np.concatenate([o * squashed, cells])


def patches_of(layer: Layer, x: Floats) -> Floats:
    """Return the inputs of every output, 0 where they lie outside.  # [H, W, C] -> [pixels, terms]"""
    if layer.kind != "conv":
        return x.reshape(1, -1)
    after = (layer.out_height + layer.out_width) * layer.stride + layer.kernel
    image = np.pad(x, ((layer.pad, after), (layer.pad_left, after), (0, 0)))
    rows = [
        image[i * layer.stride : i * layer.stride + layer.kernel, j * layer.stride : j * layer.stride + layer.kernel]
        for i in range(layer.out_height)
        for j in range(layer.out_width)
    ]
    return np.stack([row.ravel() for row in rows])


def _sums(left: Floats, right: Floats, start: Floats) -> Floats:
    """Return start + left @ right, term by term; products with a zero of `left` are left out."""
    out = np.repeat((start + start.dtype.type(0))[None], len(left), 0)
    for k in range(left.shape[1]):
        factor = left[:, k : k + 1]
        out = np.where(factor != 0, out + factor * right[k], out)
    return out


def _sum(rows: Floats) -> Floats:
    """Return sums over filters: of every eighth one in order, then (k, k + 4), (k, k + 2), (k, k + 1).  # [pixels]"""
    parts = np.zeros((len(rows), PARTS), rows.dtype)
    for f in range(rows.shape[1]):
        parts[:, f % PARTS] += rows[:, f]
    half = PARTS // 2
    while half:
        parts = parts[:, :half] + parts[:, half : 2 * half]
        half //= 2
    return parts[:, 0]


def _windows(layer: Layer) -> list[tuple[slice, slice]]:
    """Return the rows and columns of every pool's window that lie inside of the input."""
    tops = [i * layer.stride - layer.pad for i in range(layer.out_height)]
    lefts = [j * layer.stride - layer.pad_left for j in range(layer.out_width)]
    return [
        (
            slice(max(top, 0), min(top + layer.kernel, layer.height)),
            slice(max(left, 0), min(left + layer.kernel, layer.width)),
        )
        for top in tops
        for left in lefts
    ]


def _without_weights(layer: Layer, x: Floats) -> Floats:
    if layer.kind == "one_hot":
        codes = np.arange(layer.filters // layer.channels)
        return np.asarray((x[..., None] == codes).astype(x.dtype).reshape(-1, layer.filters))
    if layer.kind == "identity":
        return x.reshape(-1, layer.filters)
    pooled = []
    for rows, columns in _windows(layer):
        cells = x[rows, columns].reshape(-1, layer.channels)
        total = cells[0]
        for cell in cells[1:]:
            total = total + cell if layer.kind == "average_pool" else np.maximum(total, cell)
        pooled.append(total / x.dtype.type(len(cells)) if layer.kind == "average_pool" else total)
    return np.stack(pooled)


def backward(
    network: Network,
    weights: Floats,
    passed: list[Passed],
    d_outputs: Floats,
    sums: Floats,
    carried: dict[int, list[Floats]] | None = None,
) -> Iterator[Addition]:
    """Yield what one example adds to the sums [P], of the gradient of its outputs [O].

    carried: gradients of the states of recurrent layers, by their place; those of the states before replace them.
    """
    layers = list(zip(network.layers, arrays_of(network, weights), arrays_of(network, sums), passed, strict=True))
    gives, of_inputs = set[int](), dict[int, Floats]()  # layers behind one with weights, and gradients of their inputs
    for i, layer in enumerate(network.layers):
        if layer.arrays or i in gives:
            gives.add(network.flow(i).following)
    for i, (layer, arrays, totals, kept) in reversed(list(enumerate(layers))):
        _, following, into = network.flow(i)
        if following not in gives:
            continue
        gradient = of_inputs[following].ravel()[into : into + kept.out.size] if i < len(layers) - 1 else d_outputs
        gradient = gradient.reshape(len(kept.out), layer.filters)
        if layer.activation == "relu":
            gradient = np.where(kept.out > 0, gradient, gradient.dtype.type(0))
        elif layer.activation == "tanh":
            gradient = gradient * (gradient.dtype.type(1) - kept.out * kept.out)
        if layer.norm:
            for one, normal in zip(gradient, kept.normal, strict=True):
                yield Addition(totals["gamma"], one * normal)
                yield Addition(totals["beta"], one)
            count, scaled = gradient.dtype.type(layer.filters), gradient * arrays["gamma"]
            mean, along = _sum(scaled)[:, None] / count, _sum(scaled * kept.normal)[:, None] / count
            gradient = kept.inverse[:, None] * (scaled - mean - kept.normal * along)
        if layer.gates:
            assert carried is not None
            gradient, d_hidden, carried[i] = _step_back(layer, arrays, kept, gradient[0], carried.get(i))
            yield Addition(totals["kernel"], gradient[0], kept.patches[0])
            yield Addition(totals["recurrent_kernel"], d_hidden, kept.before[: layer.filters])
            yield Addition(totals["bias"], np.stack([gradient[0], d_hidden]) if layer.kind == "gru" else gradient[0])
        if layer.weighted:
            for one, patch in zip(gradient, kept.patches, strict=True):
                yield Addition(totals["bias"], one)
                yield Addition(totals["kernel"], one, patch)
        if i in gives:
            of_inputs[i] = _of_inputs(layer, arrays, kept, gradient)


def _step_back(
    layer: Layer, arrays: dict[str, Floats], kept: Passed, gradient: Floats, carried: list[Floats] | None
) -> tuple[Floats, Floats, list[Floats]]:
    """Return the gradients of a recurrent layer's sums [1, G U] and [G U], and what goes back to the state before."""
    one, before, units = gradient.dtype.type(1), kept.before[: layer.filters], layer.filters
    gradient = gradient if carried is None else gradient + carried[0]
    turned = np.ascontiguousarray(arrays["recurrent_kernel"].T)
    if layer.kind == "gru":
        z, r, candidate, from_state = kept.gates
        d_z = gradient * (before - candidate) * (z * (one - z))
        d_candidate = gradient * (one - z) * (one - candidate * candidate)
        d_r = d_candidate * from_state * (r * (one - r))
        d_hidden = np.concatenate([d_z, d_r, d_candidate * r])
        return np.concatenate([d_z, d_r, d_candidate])[None], d_hidden, [_sums(d_hidden[None], turned, gradient * z)[0]]
    i, f, g, o, squashed = kept.gates
    d_o = gradient * squashed * (o * (one - o))
    d_cells = (np.zeros_like(gradient) if carried is None else carried[1]) + gradient * o * (one - squashed * squashed)
    d_i, d_f = d_cells * g * (i * (one - i)), d_cells * kept.before[units:] * (f * (one - f))
    d_sums = np.concatenate([d_i, d_f, d_cells * i * (one - g * g), d_o])
    return d_sums[None], d_sums, [_sums(d_sums[None], turned, np.zeros_like(gradient))[0], d_cells * f]


def _of_inputs(layer: Layer, arrays: dict[str, Floats], kept: Passed, gradient: Floats) -> Floats:
    """Return the gradient of a layer's inputs.  # [pixels, F] -> [H, W, C]"""
    if layer.weighted or layer.gates:
        nothing = np.zeros(layer.fan_in, gradient.dtype)
        of_patches = _sums(gradient, np.ascontiguousarray(arrays["kernel"].T), nothing)
        if layer.kind != "conv":
            return of_patches
        after = (layer.out_height + layer.out_width) * layer.stride + layer.kernel
        image = np.zeros((layer.height + after, layer.width + after, layer.channels), gradient.dtype)
        for pixel, patch in enumerate(of_patches.reshape(-1, layer.kernel, layer.kernel, layer.channels)):
            i, j = (place * layer.stride for place in divmod(pixel, layer.out_width))
            image[i : i + layer.kernel, j : j + layer.kernel] += patch
        return image[layer.pad : layer.pad + layer.height, layer.pad_left : layer.pad_left + layer.width]
    if layer.kind == "identity":
        return gradient
    image = np.zeros((layer.height, layer.width, layer.channels), gradient.dtype)
    for pixel, (rows, columns) in enumerate(_windows(layer)):
        window, cells = image[rows, columns], kept.patches[rows, columns]
        if layer.kind == "average_pool":
            window += gradient[pixel] / gradient.dtype.type(cells.shape[0] * cells.shape[1])
            continue
        for c in range(layer.channels):
            row, column = np.unravel_index(np.argmax(cells[..., c]), cells.shape[:2])
            window[row, column, c] += gradient[pixel, c]
    return image


class Sequences(NamedTuple):
    """Pieces of consecutive steps of a network with memory."""

    pieces: Pieces
    memories: Floats  # [B, S] recorded states before the steps
    begins: NDArray[np.bool_]  # [B] whether a step is the first of an episode or a segment


def passes(network: Network, weights: Floats, observations: Floats, along: Sequences) -> list[list[Passed]]:
    """Return the forward pass of every step, whose state is that of the step before, or the recorded one."""
    found = list[list[Passed]]()
    for row, seen in enumerate(observations):
        begins = row % along.pieces.steps == 0 or along.begins[row]
        found.append(forward(network, weights, seen, along.memories[row] if begins else states_of(found[-1])))
    return found


def gradient(
    network: Network, weights: Floats, observations: Floats, d_outputs: Floats, along: Sequences | None = None
) -> Floats:
    """Return a batch's gradient: of blocks of 128 examples, added in pairs.  # [P], [B, ...], [B, O] -> [P]

    With memory, examples are the steps of whole pieces; no gradient goes back from where a state is recorded, nor from
    the first step behind the burn-in.
    """
    count = len(observations)
    alone = Sequences(Pieces(1), np.zeros((count, 0), weights.dtype), np.ones(count, np.bool_))
    (steps, burn_in), memories, begins = along or alone
    passed, blocks = passes(network, weights, observations, Sequences(Pieces(steps), memories, begins)), []
    for start in range(0, count, BLOCK):
        sums = np.zeros_like(weights)
        for piece in range(start, min(start + BLOCK, count), steps):
            additions, carried = list[list[Addition]](), dict[int, list[Floats]]()
            for row in reversed(range(piece, piece + steps)):
                additions.append(list(backward(network, weights, passed[row], d_outputs[row], sums, carried)))
                if begins[row] or row == piece + burn_in:
                    carried = {}
            for addition in (one for step in reversed(additions) for one in step):
                addition.add()
        blocks.append(sums)
    while len(blocks) > 1:
        pairs = [blocks[k : k + 2] for k in range(0, len(blocks), 2)]
        blocks = [pair[0] + pair[1] if len(pair) > 1 else pair[0] for pair in pairs]
    return blocks[0]
