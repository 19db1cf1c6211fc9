"""Layers whose inputs and weights are pairs of bfloat16: twice the products a vector, on processors that know them.

The two numbers of a pair are neighbouring channels of one pixel; a lone last channel is paired with zero. Outputs are
float32 and are paired, in place, when the next layer asks for them. The output layer keeps its float32 weights.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from llvmlite import ir
from numba import njit, types
from numba.core import cgutils
from numba.extending import intrinsic
from numpy.typing import NDArray

from evo.policies.layout import BLOCK, CHANNELS, COLUMNS, FILTERS, HEIGHT, KERNEL, NORM, PACKED, WIDTH, pack_layer
from evo.policies.layout import table as float_table
from evo.policies.network import Network
from evo.policies.products import join
from snake import kernel_cache

kernel_cache.use(__name__)

ALONE = COLUMNS  # the column, behind those of a float table, that tells the channels before they were paired


def table(network: Network) -> NDArray[np.int64]:
    """Return the network's layers as the kernels read them, with pairs for channels.  # [layers, COLUMNS + 1]"""
    floats = float_table(network)
    layers = np.concatenate([floats, floats[:, [CHANNELS]]], axis=1)
    layers[:-1, CHANNELS] = (layers[:-1, CHANNELS] + 1) // 2
    return layers


@njit(cache=True, error_model="numpy", nogil=True)
def _rounded(bits):  # type: ignore[no-untyped-def]
    """Return the bfloat16 nearest to a finite float32, of two the even one, both as bits."""
    return (bits + np.uint32(0x7FFF) + ((bits >> np.uint32(16)) & np.uint32(1))) >> np.uint32(16)


@njit(cache=True, error_model="numpy", nogil=True)
def pack(layers, weights, packed):  # type: ignore[no-untyped-def]
    """Lay finite `weights` [P] out in the words `packed`, as `layout.pack` does, two rows of channels to a word."""
    floats, bits = packed.view(np.float32), weights.view(np.uint32)
    none = np.uint32(0)
    offset = 0
    for i in range(layers.shape[0] - 1):
        channels, filters = layers[i, ALONE], layers[i, FILTERS]
        pixels = layers[i, KERNEL] * layers[i, KERNEL]
        biases = offset + pixels * channels * filters
        at = layers[i, PACKED]
        for f0 in range(0, filters, BLOCK):
            n = min(BLOCK, filters - f0)
            for f in range(BLOCK):
                packed[at + f] = bits[biases + f0 + f] if f < n else none
            at += BLOCK
            for pixel in range(pixels):
                for channel in range(0, channels, 2):
                    row = offset + (pixel * channels + channel) * filters + f0
                    if n == BLOCK and channel + 1 < channels:  # a length that the compiler knows is one vector
                        for f in range(BLOCK):
                            above = _rounded(bits[row + filters + f])
                            packed[at + f] = _rounded(bits[row + f]) | above << np.uint32(16)
                    else:
                        for f in range(BLOCK):
                            below = bits[row + f] if f < n else none
                            above = bits[row + filters + f] if f < n and channel + 1 < channels else none
                            packed[at + f] = _rounded(below) | _rounded(above) << np.uint32(16)
                    at += BLOCK
        offset = biases + filters
        if layers[i, NORM] >= 0:
            for k in range(2 * filters):
                packed[layers[i, NORM] + k] = bits[offset + k]
            offset += 2 * filters
    pack_layer(layers[-1], weights, offset, floats)


@intrinsic(prefer_literal=True)
def _join(typing, lanes, x, below, above, out):  # type: ignore[no-untyped-def]
    """x[out + lane] = the pair of the floats at x[below + lane] and x[above + lane], or zero where `above` is -1."""
    if not isinstance(lanes, types.IntegerLiteral):
        return None
    width = lanes.literal_value
    signature = types.void(lanes, x, types.intp, types.intp, types.intp)

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        _, x_, below_, above_, out_ = arguments
        floats, words = ir.VectorType(ir.FloatType(), width), ir.VectorType(ir.IntType(32), width)
        data = context.make_array(signature.args[1])(context, builder, x_).data

        def load(at: Any) -> Any:
            value = builder.load(builder.bitcast(builder.gep(data, [at]), floats.as_pointer()))
            value.align = 4
            return value

        second = cgutils.alloca_once_value(builder, ir.Constant(floats, [0.0] * width))
        with builder.if_then(builder.icmp_signed(">=", above_, ir.Constant(above_.type, 0))):
            builder.store(load(above_), second)
        word = join(builder, load(below_), builder.load(second))
        builder.store(word, builder.bitcast(builder.gep(data, [out_]), words.as_pointer())).align = 4
        return context.get_dummy_value()

    return signature, generate


@njit(cache=True, error_model="numpy", nogil=True, _nrt=False, inline="always")
def pair_up(layer, x, lanes):  # type: ignore[no-untyped-def]
    """Make pairs of the floats that the words `x` hold, the inputs of a layer, in place."""
    channels, out = layer[ALONE], 0
    for start in range(0, layer[HEIGHT] * layer[WIDTH] * channels, channels):
        for channel in range(0, channels, 2):
            below = (start + channel) * lanes
            above = below + lanes if channel + 1 < channels else -1
            # What is read last lies where nothing was written yet: a pair takes half of the room of its numbers.
            if lanes == 16:
                _join(16, x, below, above, out)
            elif lanes == 8:
                _join(8, x, below, above, out)
            elif lanes == 4:
                _join(4, x, below, above, out)
            elif lanes == 2:
                _join(2, x, below, above, out)
            else:
                _join(1, x, below, above, out)
            out += lanes
