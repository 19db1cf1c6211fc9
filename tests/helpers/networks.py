"""Random networks for the tests, and the plainest form of their arithmetic."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import replace

import numpy as np
from hypothesis import strategies as st

from evo.errors import ConfigurationError
from evo.kernels.weightless import DENOMINATOR, NUMERATOR, SATURATED
from evo.networks.layer import GATES, Layer
from evo.networks.network import EPSILON, Network, Options

FEW = st.integers(1, 19)
NORMS = st.sampled_from(("none", "layer"))


@st.composite
def networks(draw: st.DrawFn, filters: st.SearchStrategy[int] = FEW) -> Network:
    """Draw a network of up to two convolutions and two hidden layers, for an image of any sides."""
    height, width, channels = draw(st.integers(1, 9)), draw(st.integers(1, 9)), draw(st.integers(1, 6))
    layer = st.tuples(filters, st.integers(1, 5), st.integers(1, 3)).map(list)
    conv = draw(st.lists(layer, max_size=2))
    dense = draw(st.lists(filters, max_size=2))
    padding = draw(st.sampled_from(("same", "valid")))
    actions = draw(st.integers(1, 5))
    layers = {"kind": "cnn" if conv else "mlp", "conv": conv, "dense": dense, "norm": draw(NORMS)}
    try:
        return Network.build(Options(**layers, padding=padding), (height, width, channels), actions)
    except ConfigurationError:  # too small for a valid convolution
        return Network.build(Options(**layers, padding="same"), (height, width, channels), actions)


@st.composite
def layered(
    draw: st.DrawFn, filters: st.SearchStrategy[int] = FEW, trees: bool = False, memory: bool = False
) -> Network:
    """Draw a network of hidden layers in any order that is allowed, for an image or a row of numbers.

    Decision trees, which have no gradients, are among them with `trees`, and recurrent layers, one at least, with
    `memory`.
    """
    shape = draw(st.sampled_from(((7, 8, 3), (9, 4, 1), (1, 5, 2), (3, 3, 17), (11,))))
    side, image = st.integers(1, 4), len(shape) == 3
    texts = [f"one_hot {draw(st.integers(2, 5))}"] if draw(st.booleans()) else []
    for _ in range(draw(st.integers(0, 6))):
        kinds = ["norm", "relu", "tanh", "dense", *(["conv", "max_pool", "average_pool"] if image else [])]
        kinds += ["tree"] * trees + [*GATES] * memory
        kind = draw(st.sampled_from(kinds))
        numbers = {
            "dense": [filters],
            "gru": [filters],
            "lstm": [filters],
            "conv": [filters, side, side],
            "tree": [side],
        }.get(kind, [side, side] if "_" in kind else [])
        words = [kind, *(str(draw(number)) for number in numbers)]
        texts.append(" ".join([*words, *(["same"] if len(words) > 2 else [])]))
        image = image and kind not in ("dense", "tree", *GATES)
    texts = texts or ["tanh"]
    if memory and not any(text.startswith((*GATES,)) for text in texts):
        texts.append(f"{draw(st.sampled_from([*GATES]))} {draw(filters)}")
    valid = [text.replace("same", "valid") if draw(st.booleans()) else text for text in texts]
    actions = draw(st.integers(1, 5))
    try:
        return Network.build(Options(layers=valid), shape, actions)
    except ConfigurationError:  # too small for a valid window
        return Network.build(Options(layers=texts), shape, actions)


ENTRIES = {"grid": (4, 5, 2), "flags": (3,), "map": (3, 3, 1), "rest": (9,)}


def branched(memory: str = "") -> Network:
    """Return a network with layers for each of ENTRIES: windows, none, one-hot planes, a norm and an activation."""
    inputs = {
        "rest": {"layers": ["norm", "tanh"]},
        "grid": {"layers": ["conv 5 3 1", "norm", "relu", "max_pool 2", "conv 17 2 1", "tanh"]},
        "flags": {},
        "map": {"layers": ["one_hot 3", "average_pool 2", "dense 7", "relu"]},
    }
    options = Options(inputs=inputs, layers=["norm", *([memory] if memory else []), "dense 6", "relu"])
    return Network.build(options.resolved(0, ENTRIES), (sum(map(math.prod, ENTRIES.values())),), 3)


def random_weights(network: Network, seed: int) -> np.ndarray:
    """Return weights of a size that keeps scores near 1.  # [P]"""
    random = np.random.default_rng(seed)
    weights = random.standard_normal(network.size).astype(np.float32)
    for layer in network.layers:
        kernel = slice(layer.offset, layer.offset + layer.kernel_size)
        weights[kernel] *= np.float32(np.sqrt(2 / layer.fan_in))
        if layer.gates:
            kernels = slice(layer.offset, layer.offset + layer.multiply_adds)
            weights[kernels] *= np.float32(np.sqrt(2 / (layer.fan_in + layer.filters)))
        if layer.norm:
            gamma = slice(layer.offset + layer.size - layer.norm_size, layer.offset + layer.size - layer.filters)
            weights[gamma] = 1 + weights[gamma] / 4
    return weights


def random_observations(network: Network, count: int, seed: int, zeros: float = 0.0) -> np.ndarray:
    """Return observations of both signs, a share of which is zero in all of them, and half of the rest.  # [E, ...]"""
    random = np.random.default_rng(seed)
    observations = random.standard_normal((count, *network.shape)).astype(np.float32)
    if network.layers[0].kind == "one_hot":
        observations = np.trunc(2 * observations)
    if zeros:
        observations *= (random.random(network.shape) >= zeros) & (random.random(observations.shape) < 0.5)
    return observations


def plain_scores(
    network: Network, weights: np.ndarray, observations: np.ndarray, memory: np.ndarray | None = None
) -> np.ndarray:
    """Return the scores by float32 loops in the order that the kernel promises.  # [E, ...] -> [E, A]

    Bias first, then kernel rows, columns, channels, each a product that is rounded before it is added. The state of
    each, `memory` [E, S], zeros where it is None, is overwritten by the next one.
    """
    arrays = iter(network.split(weights))
    x, outputs = observations, list[np.ndarray]()
    states = np.zeros((len(x), network.memory), np.float32) if memory is None else memory
    for number, layer in enumerate(network.layers):
        begin = network.flow(number).observed
        if begin >= 0:
            x = observations.reshape(len(x), -1)[:, begin : begin + layer.height * layer.width * layer.channels]
        elif number == network.joins:
            x = np.concatenate([outputs[part.end - 1].reshape(len(x), -1) for part in network.parts], axis=1)
        x = x.reshape(len(x), layer.height, layer.width, layer.channels)
        if layer.weighted:
            out = plain_sums(x, layer, next(arrays), next(arrays))
        elif layer.kind == "one_hot":
            out = np.repeat(x, layer.filters // layer.channels, -1)
            codes = np.tile(np.arange(layer.filters // layer.channels), layer.channels)
            out = np.where(np.isnan(out), out, (out == codes).astype(np.float32))
        elif layer.gates:
            out = plain_recurrent(x, layer, next(arrays), next(arrays), next(arrays), states[:, : layer.memory])
            states = states[:, layer.memory :]
        elif layer.kind == "tree":
            out = plain_tree(x.reshape(len(x), -1), next(arrays), next(arrays)).reshape(len(x), 1, 1, -1)
        else:
            out = x if layer.kind == "identity" else plain_pool(x, layer)
        if layer.norm:
            out = plain_norm(out, next(arrays), next(arrays))
        if layer.activation == "relu":
            out = np.where(out < 0, np.float32(0), out)
        if layer.activation == "tanh":
            out = plain_tanh(out)
        x = out
        outputs.append(out)
    return x.reshape(len(x), network.actions)


def plain_sums(x: np.ndarray, layer: Layer, kernel: np.ndarray, bias: np.ndarray) -> np.ndarray:
    """Return the sums of a convolution or a dense layer, as `plain_scores` says.  # [E, H, W, C] -> [E, h, w, F]"""
    kernel = kernel.reshape(layer.kernel, layer.kernel, layer.channels, layer.filters)
    out = np.empty((len(x), layer.out_height, layer.out_width, layer.filters), np.float32)
    for i in range(layer.out_height):
        for j in range(layer.out_width):
            total = np.tile(bias + np.float32(0), (len(x), 1))  # -0 counts as 0
            for row, column, r, c in cells(layer, i, j):
                for channel in range(layer.channels):
                    product = kernel[r, c, channel][None, :] * x[:, row, column, channel][:, None]
                    total = total + product
            out[:, i, j] = total
    return out


def plain_recurrent(
    x: np.ndarray, layer: Layer, kernel: np.ndarray, recurrent: np.ndarray, bias: np.ndarray, state: np.ndarray
) -> np.ndarray:
    """Return the output of a recurrent layer as Keras defines it; `state` [E, s] becomes the next one."""
    units, half, one = layer.filters, np.float32(0.5), np.float32(1)

    def sums(x: np.ndarray, kernel: np.ndarray, bias: np.ndarray) -> np.ndarray:
        dense = replace(layer, kind="dense", channels=x.shape[-1], filters=kernel.shape[1])
        return plain_sums(x.reshape(len(x), 1, 1, -1), dense, kernel, bias).reshape(len(x), -1, units).swapaxes(0, 1)

    def sigmoid(x: np.ndarray) -> np.ndarray:
        return half + half * plain_tanh(half * x)

    h = state[:, :units]
    if layer.kind == "gru":
        (z, r, candidate), (hz, hr, hh) = sums(x, kernel, bias[0]), sums(h, recurrent, bias[1])
        z, r = sigmoid(z + hz), sigmoid(r + hr)
        state[:] = z * h + (one - z) * plain_tanh(candidate + r * hh)
    else:
        i, f, c, o = sums(x, kernel, bias) + sums(h, recurrent, np.zeros_like(bias))
        state[:, units:] = sigmoid(f) * state[:, units:] + sigmoid(i) * plain_tanh(c)
        h[:] = sigmoid(o) * plain_tanh(state[:, units:])
    return h.reshape(len(x), 1, 1, units)


def cells(layer: Layer, i: int, j: int) -> Iterator[tuple[int, int, int, int]]:
    """Yield row and column of every real cell of a window, in the input and in the window."""
    for r in range(layer.kernel):
        for c in range(layer.kernel):
            row, column = i * layer.stride - layer.pad + r, j * layer.stride - layer.pad_left + c
            if 0 <= row < layer.height and 0 <= column < layer.width:
                yield row, column, r, c


def plain_pool(x: np.ndarray, layer: Layer) -> np.ndarray:
    """Return the largest or the mean of each window's cells, taken in order.  # [E, H, W, C] -> [E, h, w, C]"""
    out = np.empty((len(x), layer.out_height, layer.out_width, layer.channels), np.float32)
    for i in range(layer.out_height):
        for j in range(layer.out_width):
            first, *rest = [x[:, row, column] for row, column, _, _ in cells(layer, i, j)]
            for other in rest:
                larger = np.where((other > first) | np.isnan(other), other, first)
                first = larger if layer.kind == "max_pool" else first + other
            out[:, i, j] = first if layer.kind == "max_pool" else first / np.float32(1 + len(rest))
    return out


def plain_tree(x: np.ndarray, inputs: np.ndarray, thresholds: np.ndarray) -> np.ndarray:
    """Return 1 for the leaf that an example reaches, or a NaN that it has met, and 0 elsewhere.  # [E, C] -> [E, F]"""
    out = np.zeros((len(x), len(inputs) + 1), np.float32)
    for example, leaves in zip(x, out, strict=True):
        node, value = 0, np.float32(1)
        while node < len(inputs):
            seen = example[math.floor(inputs[node]) % len(example)]
            value = seen if np.isnan(seen) else value
            node = 2 * node + (2 if seen >= thresholds[node] else 1)
        leaves[node - len(inputs)] = value
    return out


def plain_tanh(x: np.ndarray) -> np.ndarray:
    """Return tanh in float32: a continued fraction, cut off, as a quotient of polynomials by Horner's rule."""
    with np.errstate(over="ignore", invalid="ignore"):
        z = x * x
        above, below = np.zeros_like(x), np.zeros_like(x)
        for coefficient in reversed(NUMERATOR):
            above = coefficient + z * above
        for coefficient in reversed(DENOMINATOR):
            below = coefficient + z * below
        quotient = x * above / below
        beyond = (np.abs(x) > SATURATED) | (np.abs(quotient) > 1)
        return np.where(beyond, np.sign(x), quotient).astype(np.float32)


def plain_norm(x: np.ndarray, gamma: np.ndarray, beta: np.ndarray) -> np.ndarray:
    """Return the last axis normalised in float32, in the order that the kernel promises.  # [..., F] -> [..., F]"""
    distance = x - (plain_sum(x) / np.float32(x.shape[-1]))[..., None]
    variance = plain_sum(distance * distance) / np.float32(x.shape[-1])
    inverse = np.float32(1) / np.sqrt(variance + np.float32(EPSILON))
    return distance * inverse[..., None] * gamma + beta


def plain_sum(x: np.ndarray) -> np.ndarray:
    """Return the sum over the last axis: eight sums of every eighth value, then pairs.  # [..., F] -> [...]"""
    parts = np.zeros((8, *x.shape[:-1]), np.float32)
    for f in range(x.shape[-1]):
        parts[f % 8] += x[..., f]
    fours = parts[:4] + parts[4:]
    twos = fours[:2] + fours[2:]
    return twos[0] + twos[1]
