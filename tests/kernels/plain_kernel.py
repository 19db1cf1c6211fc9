"""The arithmetic of the lanes kernel in plain loops: to read, and to hold the kernel to."""

from __future__ import annotations

import numpy as np
from numba import njit

from evo.compiled import cache as kernel_cache
from evo.kernels import weightless
from evo.kernels.layer_norm import PARTS, VARIANCE_EPSILON
from evo.kernels.layout import is_weighted, rectifies, source_of, target_of

kernel_cache.use(__name__)


@njit(cache=True, error_model="numpy", nogil=True)
def _sum_plain(parts):  # type: ignore[no-untyped-def]
    half = PARTS // 2
    while half:
        for k in range(half):
            parts[k] += parts[k + half]
        half //= 2
    return parts[0]


@njit(cache=True, error_model="numpy", nogil=True)
def normalise_plain(layer, packed, out, lanes):  # type: ignore[no-untyped-def]
    """Compute the bits of `normalise` in plain loops, for any number of lanes."""
    filters, gamma, relu = layer.filters, layer.norm, rectifies(layer)
    count, parts = np.float32(filters), np.empty(PARTS, np.float32)
    for pixel in range(layer.out_height * layer.out_width):
        for lane in range(lanes):
            start = pixel * filters * lanes + lane
            parts[:] = 0
            for f in range(filters):
                parts[f % PARTS] += out[start + f * lanes]
            mean = _sum_plain(parts) / count
            parts[:] = 0
            for f in range(filters):
                distance = out[start + f * lanes] - mean
                parts[f % PARTS] += distance * distance
            inverse = np.float32(1) / np.sqrt(_sum_plain(parts) / count + VARIANCE_EPSILON)
            for f in range(filters):
                value = (out[start + f * lanes] - mean) * inverse * packed[gamma + f] + packed[gamma + filters + f]
                out[start + f * lanes] = np.float32(0) if relu and value < np.float32(0) else value


@njit(cache=True, error_model="numpy", nogil=True)
def _layer_plain(layer, packed, x, out, lanes):  # type: ignore[no-untyped-def]
    height, width, channels, filters = layer.height, layer.width, layer.channels, layer.filters
    kernel, stride, pad, pad_left = layer.kernel, layer.stride, layer.pad, layer.pad_left
    group = layer.group
    for f in range(filters):
        start = layer.packed + f // group * (kernel * kernel * channels + 1) * group + f % group
        for i in range(layer.out_height):
            for j in range(layer.out_width):
                at = ((i * layer.out_width + j) * filters + f) * lanes
                for lane in range(lanes):
                    out[at + lane] = packed[start]
                for r in range(kernel):
                    row = i * stride - pad + r
                    for c in range(kernel):
                        column = j * stride - pad_left + c
                        if 0 <= row < height and 0 <= column < width:
                            for channel in range(channels):
                                weight = packed[start + (1 + (r * kernel + c) * channels + channel) * group]
                                source = ((row * width + column) * channels + channel) * lanes
                                for lane in range(lanes):
                                    out[at + lane] += weight * x[source + lane]
                if layer.relu:
                    for lane in range(lanes):
                        if out[at + lane] < np.float32(0):
                            out[at + lane] = np.float32(0)


@njit(cache=True, error_model="numpy", nogil=True)
def forward_plain(  # type: ignore[no-untyped-def]
    layers, packed, large, nonzero, x, first, second, scores, lanes, live, memory, index
):  # fmt: skip
    """Compute the bits of `forward` in plain loops, for any number of lanes."""
    last = layers.shape[0] - 1
    for i in range(last + 1):
        at, to = source_of(layers[i], i), target_of(layers[i])
        source = x[at * lanes :] if at >= 0 else (first if i % 2 == 1 else second)
        target = x[to * lanes :] if to >= 0 else scores if i == last else (first if i % 2 == 0 else second)
        if is_weighted(layers[i]):
            _layer_plain(layers[i], packed, source, target, lanes)
        else:
            weightless.transform(layers[i], packed, source, target, lanes, live, nonzero, memory, index)
        if layers[i].norm >= 0:
            normalise_plain(layers[i], packed, target, lanes)
        weightless.activate(layers[i], target, lanes)
