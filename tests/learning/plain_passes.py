"""The plain form of the passes: what a gradient is, in NumPy, one example after the other; slow, with the same bits.

Arrays of float32 give the bits of `evo.learning.exact.passes`; of float64 they give nearly the true derivative.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from evo.kernels.weightless import tanh
from evo.learning.exact.plan import BLOCK
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


def arrays_of(network: Network, vector: Floats) -> list[dict[str, Floats]]:
    """Return the arrays of every layer by their names, views of a flat vector.  # [P]"""
    found, start = [], 0
    for layer in network.layers:
        arrays = {}
        for part in layer.arrays:
            shape = (layer.fan_in, layer.filters) if part == "kernel" else (layer.filters,)
            arrays[part] = vector[start : start + int(np.prod(shape))].reshape(shape)
            start += arrays[part].size
        found.append(arrays)
    return found


def forward(network: Network, weights: Floats, observation: Floats) -> list[Passed]:
    """Compute all layers for one observation; the outputs are `out` of the last.  # [P], [...]"""
    x, passed = observation, []
    for layer, arrays in zip(network.layers, arrays_of(network, weights), strict=True):
        x = x.reshape(layer.height, layer.width, layer.channels)
        patches = patches_of(layer, x) if layer.weighted else x
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
            out = np.array([tanh.py_func(value) for value in out.ravel()], out.dtype).reshape(out.shape)
        passed.append(Passed(patches, normal, inverse, out))
        x = out
    return passed


def patches_of(layer: Layer, x: Floats) -> Floats:
    """Return the inputs of every output, 0 where they lie outside.  # [H, W, C] -> [pixels, terms]"""
    if layer.kind == "dense":
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


def backward(network: Network, weights: Floats, passed: list[Passed], d_outputs: Floats, sums: Floats) -> None:
    """Add one example's gradient to the sums [P], of the gradient of its outputs [O]."""
    gradient = d_outputs[None]
    layers = list(zip(network.layers, arrays_of(network, weights), arrays_of(network, sums), passed, strict=True))
    first = next(i for i, layer in enumerate(network.layers) if layer.arrays)
    for i, (layer, arrays, totals, kept) in reversed(list(enumerate(layers))):
        if i < first:
            break
        gradient = gradient.reshape(len(kept.out), layer.filters)
        if layer.activation == "relu":
            gradient = np.where(kept.out > 0, gradient, gradient.dtype.type(0))
        elif layer.activation == "tanh":
            gradient = gradient * (gradient.dtype.type(1) - kept.out * kept.out)
        if layer.norm:
            for one, normal in zip(gradient, kept.normal, strict=True):
                totals["gamma"] += one * normal
                totals["beta"] += one
            count, scaled = gradient.dtype.type(layer.filters), gradient * arrays["gamma"]
            mean, along = _sum(scaled)[:, None] / count, _sum(scaled * kept.normal)[:, None] / count
            gradient = kept.inverse[:, None] * (scaled - mean - kept.normal * along)
        if layer.weighted:
            for one, patch in zip(gradient, kept.patches, strict=True):
                totals["bias"] += one
                totals["kernel"][:] = np.where(one != 0, totals["kernel"] + one * patch[:, None], totals["kernel"])
        if i > first:
            gradient = _of_inputs(layer, arrays, kept, gradient)


def _of_inputs(layer: Layer, arrays: dict[str, Floats], kept: Passed, gradient: Floats) -> Floats:
    """Return the gradient of a layer's inputs.  # [pixels, F] -> [H, W, C]"""
    if layer.weighted:
        nothing = np.zeros(layer.fan_in, gradient.dtype)
        of_patches = _sums(gradient, np.ascontiguousarray(arrays["kernel"].T), nothing)
        if layer.kind == "dense":
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


def gradient(network: Network, weights: Floats, observations: Floats, d_outputs: Floats) -> Floats:
    """Return a batch's gradient: of blocks of 128 examples, added in pairs.  # [P], [B, ...], [B, O] -> [P]"""
    blocks = []
    for start in range(0, len(observations), BLOCK):
        sums = np.zeros_like(weights)
        for row in range(start, min(start + BLOCK, len(observations))):
            backward(network, weights, forward(network, weights, observations[row]), d_outputs[row], sums)
        blocks.append(sums)
    while len(blocks) > 1:
        pairs = [blocks[k : k + 2] for k in range(0, len(blocks), 2)]
        blocks = [pair[0] + pair[1] if len(pair) > 1 else pair[0] for pair in pairs]
    return blocks[0]
