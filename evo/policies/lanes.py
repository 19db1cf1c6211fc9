"""The lanes kernel: one network on 16, 8, 4, 2 or 1 episodes at a time, with the same bits on every IEEE-754 machine.

The innermost axis of every activation is the lane, one episode each. A weight is broadcast and multiplied into a
vector of lanes, and a block of filters keeps its sums in registers. Each lane's sum is taken in one fixed order
(bias, then kernel rows, columns, channels) with a separate multiplication and addition, never fused or
reassociated; so a lane's bits depend neither on its neighbours nor on the width of the machine's vectors.

Few lanes would waste vectors: `evo.policies.narrow` makes vectors of filters for them, with the same bits.
`forward` is the kernel; `forward_plain` is the same arithmetic without the intrinsic, to read, to test against, and
to fall back on.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from llvmlite import ir
from numba import njit, types
from numba.core import cgutils
from numba.extending import intrinsic, overload
from numpy.typing import NDArray

from evo.policies import pairs
from evo.policies.layer_norm import normalise, normalise_plain
from evo.policies.layout import (
    BLOCK,
    CHANNELS,
    FILTERS,
    HEIGHT,
    KERNEL,
    NORM,
    OUT_HEIGHT,
    OUT_WIDTH,
    PACKED,
    PAD,
    PAD_LEFT,
    RELU,
    STRIDE,
    WIDTH,
    activation_size,
    pack,
    packed_size,
    table,
)
from evo.policies.narrow import layer_narrow
from evo.policies.network import Network, Options
from evo.policies.products import add_product
from snake import kernel_cache

kernel_cache.use(__name__)

ARITHMETIC = "muladd-1"  # the version of the order of operations: part of every hash
IN_PAIRS = "pairs-1"  # the same of hidden layers in bfloat16
WIDTHS = (16, 8, 4, 2, 1)


@intrinsic(prefer_literal=True)
def _block(typing, lanes, block, x, x_start, x_row, w, w_start, w_row, rows, count, bias, out, out_start, store, relu):  # type: ignore[no-untyped-def]
    """out[f, lane] = bias[f] + sum over rows and count of w[., f] * x[., lane], for a block of filters.

    Row r of the sum starts at x[x_start + r x_row] and w[w_start + r w_row]; `store` of the filters are written.
    Where `x` and `w` are words, they are pairs of bfloat16, but for the floats of the bias; `out` is floats always.
    """
    if not (isinstance(lanes, types.IntegerLiteral) and isinstance(block, types.IntegerLiteral)):
        return None
    width, filters = lanes.literal_value, block.literal_value
    size = types.intp
    signature = types.void(lanes, block, x, size, size, w, size, size, size, size, size, out, size, size, size)

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        lane_type = ir.VectorType(ir.FloatType(), width)
        input_type = ir.VectorType(context.get_value_type(signature.args[2].dtype), width)
        zero = ir.Constant(lane_type, [0.0] * width)
        same = ir.Constant(ir.VectorType(ir.IntType(32), width), [0] * width)
        _, _, x_, x_start_, x_row_, w_, w_start_, w_row_, rows_, count_, bias_, out_, out_start_, store_, relu_ = (
            arguments
        )

        def data(kind: Any, value: Any) -> Any:
            return context.make_array(kind)(context, builder, value).data

        x_data, w_data, out_data = (
            data(signature.args[2], x_),
            data(signature.args[5], w_),
            data(signature.args[11], out_),
        )
        i64 = x_start_.type

        def splat(index: Any, vector: Any) -> Any:
            scalar = builder.load(builder.bitcast(builder.gep(w_data, [index]), vector.element.as_pointer()))
            one = builder.insert_element(ir.Constant(vector, ir.Undefined), scalar, ir.Constant(ir.IntType(32), 0))
            return builder.shuffle_vector(one, ir.Constant(vector, ir.Undefined), same)

        sums = [cgutils.alloca_once(builder, lane_type) for _ in range(filters)]
        for f in range(filters):
            builder.store(splat(builder.add(bias_, ir.Constant(i64, f)), lane_type), sums[f])
        with cgutils.for_range(builder, rows_) as row:
            x_at = builder.add(x_start_, builder.mul(row.index, x_row_))
            w_at = builder.add(w_start_, builder.mul(row.index, w_row_))
            with cgutils.for_range(builder, count_) as k:
                at = builder.add(x_at, builder.mul(k.index, ir.Constant(i64, width)))
                inputs = builder.load(builder.bitcast(builder.gep(x_data, [at]), input_type.as_pointer()))
                inputs.align = 4
                weight = builder.add(w_at, builder.mul(k.index, ir.Constant(i64, filters)))
                for f in range(filters):
                    factor = splat(builder.add(weight, ir.Constant(i64, f)), input_type)
                    builder.store(add_product(builder, builder.load(sums[f]), factor, inputs), sums[f])
        clipped = builder.icmp_signed("!=", relu_, ir.Constant(i64, 0))
        for f in range(filters):
            with builder.if_then(builder.icmp_signed(">", store_, ir.Constant(i64, f))):
                total = builder.load(sums[f])
                # "below zero -> zero" keeps a NaN, where the maximum with zero would hide it.
                negative = builder.fcmp_ordered("<", total, zero)
                total = builder.select(clipped, builder.select(negative, zero, total), total)
                at = builder.add(out_start_, ir.Constant(i64, f * width))
                stored = builder.store(total, builder.bitcast(builder.gep(out_data, [at]), lane_type.as_pointer()))
                stored.align = 4
        return context.get_dummy_value()

    return signature, generate


@njit(cache=True, error_model="numpy", nogil=True, _nrt=False, inline="always")
def _layer(layer, packed, x, out, lanes):  # type: ignore[no-untyped-def]
    height, width, channels, filters = layer[HEIGHT], layer[WIDTH], layer[CHANNELS], layer[FILTERS]
    kernel, stride, pad, pad_left = layer[KERNEL], layer[STRIDE], layer[PAD], layer[PAD_LEFT]
    block_size = (kernel * kernel * channels + 1) * BLOCK
    x_row, w_row = width * channels * lanes, kernel * channels * BLOCK
    for f0 in range(0, filters, BLOCK):
        start = layer[PACKED] + f0 // BLOCK * block_size
        store = min(BLOCK, filters - f0)
        for i in range(layer[OUT_HEIGHT]):
            top = i * stride - pad
            r0, r1 = max(0, -top), min(kernel, height - top)
            for j in range(layer[OUT_WIDTH]):
                left = j * stride - pad_left
                c0, c1 = max(0, -left), min(kernel, width - left)
                x_start = ((top + r0) * width + left + c0) * channels * lanes
                w_start = start + BLOCK + (r0 * kernel + c0) * channels * BLOCK
                out_start = ((i * layer[OUT_WIDTH] + j) * filters + f0) * lanes
                count = (c1 - c0) * channels
                if lanes == 16:
                    _block(16, BLOCK, x, x_start, x_row, packed, w_start, w_row, r1 - r0, count, start, out, out_start, store, layer[RELU])  # fmt: skip
                elif lanes == 8:
                    _block(8, BLOCK, x, x_start, x_row, packed, w_start, w_row, r1 - r0, count, start, out, out_start, store, layer[RELU])  # fmt: skip
                else:
                    _block(4, BLOCK, x, x_start, x_row, packed, w_start, w_row, r1 - r0, count, start, out, out_start, store, layer[RELU])  # fmt: skip


@njit(cache=True, error_model="numpy", nogil=True, _nrt=False, inline="always")
def _any_layer(layer, packed, x, out, lanes):  # type: ignore[no-untyped-def]
    # A block that is alone would leave half of a vector of filters idle, so four lanes share it as eight do.
    if lanes >= 8 or (lanes == 4 and layer[FILTERS] <= BLOCK):
        _layer(layer, packed, x, out, lanes)
    else:
        layer_narrow(layer, packed, x, out, lanes)


@njit(cache=True, error_model="numpy", nogil=True, _nrt=False)
def _forward(layers, packed, x, first, second, scores, lanes):  # type: ignore[no-untyped-def]
    last = layers.shape[0] - 1
    for i in range(last + 1):
        source = x if i == 0 else (first if i % 2 == 1 else second)
        target = scores if i == last else (first if i % 2 == 0 else second)
        _any_layer(layers[i], packed, source, target, lanes)
        if layers[i, NORM] >= 0:
            normalise(layers[i], packed, target, lanes)


@njit(cache=True, error_model="numpy", nogil=True, _nrt=False)
def _forward_in_pairs(layers, packed, x, first, second, scores, lanes):  # type: ignore[no-untyped-def]
    last = layers.shape[0] - 1
    floats = packed.view(np.float32)
    for i in range(last):
        source = x if i == 0 else (first if i % 2 == 1 else second)
        target = first if i % 2 == 0 else second
        words = source.view(np.uint32)
        pairs.pair_up(layers[i], words, lanes)
        _any_layer(layers[i], packed, words, target, lanes)
        if layers[i, NORM] >= 0:
            normalise(layers[i], floats, target, lanes)
    _any_layer(layers[last], floats, x if last == 0 else (first if last % 2 == 1 else second), scores, lanes)


def _dispatched(layers, packed, x, first, second, scores, lanes):  # type: ignore[no-untyped-def]
    raise NotImplementedError


@overload(_dispatched, inline="always")
def _dispatch(layers, packed, x, first, second, scores, lanes):  # type: ignore[no-untyped-def]
    one = _forward_in_pairs if packed.dtype == types.uint32 else _forward
    return lambda layers, packed, x, first, second, scores, lanes: one(layers, packed, x, first, second, scores, lanes)


@njit(cache=True, error_model="numpy", nogil=True, _nrt=False)
def forward(layers, packed, x, first, second, scores, lanes):  # type: ignore[no-untyped-def]
    """Write the network's scores [A, lanes] for the observations `x` [H, W, C, lanes]; all arrays are flat float32.

    `first` and `second` hold `activation_size` floats a lane; `lanes` is one of WIDTHS. Where `packed` are words, hidden
    layers compute with pairs of bfloat16 (`evo.policies.pairs`), and `x` is lost.
    """
    _dispatched(layers, packed, x, first, second, scores, lanes)


@njit(cache=True, error_model="numpy", nogil=True)
def _layer_plain(layer, packed, x, out, lanes):  # type: ignore[no-untyped-def]
    height, width, channels, filters = layer[HEIGHT], layer[WIDTH], layer[CHANNELS], layer[FILTERS]
    kernel, stride, pad, pad_left = layer[KERNEL], layer[STRIDE], layer[PAD], layer[PAD_LEFT]
    for f in range(filters):
        start = layer[PACKED] + f // BLOCK * (kernel * kernel * channels + 1) * BLOCK + f % BLOCK
        for i in range(layer[OUT_HEIGHT]):
            for j in range(layer[OUT_WIDTH]):
                at = ((i * layer[OUT_WIDTH] + j) * filters + f) * lanes
                for lane in range(lanes):
                    out[at + lane] = packed[start]
                for r in range(kernel):
                    row = i * stride - pad + r
                    for c in range(kernel):
                        column = j * stride - pad_left + c
                        if 0 <= row < height and 0 <= column < width:
                            for channel in range(channels):
                                weight = packed[start + (1 + (r * kernel + c) * channels + channel) * BLOCK]
                                source = ((row * width + column) * channels + channel) * lanes
                                for lane in range(lanes):
                                    out[at + lane] += weight * x[source + lane]
                if layer[RELU]:
                    for lane in range(lanes):
                        if out[at + lane] < np.float32(0):
                            out[at + lane] = np.float32(0)


@njit(cache=True, error_model="numpy", nogil=True)
def forward_plain(layers, packed, x, first, second, scores, lanes):  # type: ignore[no-untyped-def]
    """Do what `forward` does, in plain loops and for any number of lanes."""
    last = layers.shape[0] - 1
    for i in range(last + 1):
        source = x if i == 0 else (first if i % 2 == 1 else second)
        target = scores if i == last else (first if i % 2 == 0 else second)
        _layer_plain(layers[i], packed, source, target, lanes)
        if layers[i, NORM] >= 0:
            normalise_plain(layers[i], packed, target, lanes)


def arithmetic(options: Options) -> str:
    """Return the version of the arithmetic in which such a network is played."""
    return IN_PAIRS if options.in_pairs else ARITHMETIC


def room_for_weights(network: Network) -> tuple[NDArray[np.int64], NDArray[Any], Callable[..., None]]:
    """Return the table of layers, room for packed weights, and what packs them: pack(layers, weights, room)."""
    if network.options.in_pairs:
        return pairs.table(network), np.zeros(packed_size(network), np.uint32), pairs.pack
    return table(network), np.zeros(packed_size(network), np.float32), pack


def scores(
    network: Network, weights: NDArray[np.float32], observations: NDArray[np.float32], width: int = 16
) -> NDArray[np.float32]:
    """Return the scores of one network for any number of observations.  # [E, H, W, C] -> [E, A]

    `width`, one of WIDTHS, is how many are computed together; it changes no bit.
    """
    layers, packed, fill = room_for_weights(network)
    fill(layers, np.ascontiguousarray(weights, np.float32), packed)
    size, room = int(np.prod(network.shape)), activation_size(network)
    first, second = np.empty(room * width, np.float32), np.empty(room * width, np.float32)
    out = np.empty((len(observations), network.outputs), np.float32)
    for start in range(0, len(observations), width):
        batch = np.zeros((width, size), np.float32)
        part = observations[start : start + width].reshape(-1, size)
        batch[: len(part)] = part
        lanes_out = np.empty(network.outputs * width, np.float32)
        forward(layers, packed, np.ascontiguousarray(batch.T).ravel(), first, second, lanes_out, width)
        out[start : start + width] = lanes_out.reshape(network.outputs, width).T[: len(part)]
    return out
