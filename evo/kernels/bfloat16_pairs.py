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
from numba.core.errors import TypingError
from numba.extending import intrinsic, overload
from numpy.typing import NDArray

from evo.compiled import cache as kernel_cache
from evo.kernels.layout import BLOCK, CHANNELS, COLUMNS, FILTERS, HEIGHT, KERNEL, NORM, PACKED, WIDTH, pack_layer
from evo.kernels.layout import table as float_table
from evo.kernels.multiply_add import join
from evo.networks.network import Network

kernel_cache.use(__name__)

ALONE = COLUMNS  # the column, behind those of a float table, that tells the channels before they were paired


def table(network: Network) -> NDArray[np.int64]:
    """Return the network's layers as the kernels read them, with pairs for channels.  # [layers, COLUMNS + 1]"""
    floats = float_table(network)
    layers = np.concatenate([floats, floats[:, [CHANNELS]]], axis=1)
    layers[:-1, CHANNELS] = (layers[:-1, CHANNELS] + 1) // 2
    return layers


@intrinsic(prefer_literal=True)
def _join(typing, lanes, out, at, x, below, above):  # type: ignore[no-untyped-def]
    """out[at + lane] = the pair of the floats at x[below + lane] and x[above + lane], or zero where `above` is -1."""
    if not isinstance(lanes, types.IntegerLiteral):
        return None
    if any(array.dtype.bitwidth != 32 or array.layout != "C" for array in (out, x)):
        raise TypingError("numbers and pairs have 32 bits, and lie in C order")
    width = lanes.literal_value
    signature = types.void(lanes, out, types.intp, x, types.intp, types.intp)

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        _, out_, at_, x_, below_, above_ = arguments
        floats, words = ir.VectorType(ir.FloatType(), width), ir.VectorType(ir.IntType(32), width)
        data, target = (
            context.make_array(kind)(context, builder, array).data for kind, array in ((x, x_), (out, out_))
        )

        def load(place: Any) -> Any:
            value = builder.load(builder.bitcast(builder.gep(data, [place]), floats.as_pointer()))
            value.align = 4
            return value

        second = cgutils.alloca_once_value(builder, ir.Constant(floats, [0.0] * width))
        with builder.if_then(builder.icmp_signed(">=", above_, ir.Constant(above_.type, 0))):
            builder.store(load(above_), second)
        word = join(builder, load(below_), builder.load(second))
        builder.store(word, builder.bitcast(builder.gep(target, [at_]), words.as_pointer())).align = 4
        return context.get_dummy_value()

    return signature, generate


@njit(cache=True, error_model="numpy", nogil=True)
def _rounded(bits):  # type: ignore[no-untyped-def]
    """Return the bfloat16 nearest to a finite float32, of two the even one, both as bits."""
    return (bits + np.uint32(0x7FFF) + ((bits >> np.uint32(16)) & np.uint32(1))) >> np.uint32(16)


@njit(cache=True, error_model="numpy", nogil=True)
def pack(layers, weights, packed):  # type: ignore[no-untyped-def]
    """Lay finite `weights` [P] out in the words `packed`, as `layout.pack` does, two rows of channels to a word."""
    bits, none = weights.view(np.uint32), np.uint32(0)
    offset = 0
    for i in range(layers.shape[0] - 1):
        pixels, channels, filters = layers[i, KERNEL] * layers[i, KERNEL], layers[i, ALONE], layers[i, FILTERS]
        words = layers[i, CHANNELS]
        block_size = (pixels * words + 1) * BLOCK
        biases = offset + pixels * channels * filters
        for row in range(-1, pixels * words):
            word = row % words
            source = np.uint64(biases if row < 0 else offset + (row // words * channels + 2 * word) * filters)
            target = np.uint64(layers[i, PACKED] + (row + 1) * BLOCK)
            alone = row >= 0 and 2 * word + 1 == channels
            for f0 in range(0, filters, BLOCK):
                full = f0 + BLOCK <= filters
                if row >= 0 and full:
                    below = np.int64(source)
                    _join(BLOCK, packed, np.int64(target), bits, below, -1 if alone else below + filters)
                else:
                    for f in range(BLOCK if full else filters - f0):
                        low = bits[source + np.uint64(f)]
                        if row >= 0:
                            high = none if alone else _rounded(bits[source + np.uint64(filters + f)])
                            low = _rounded(low) | high << np.uint32(16)
                        elif low == np.uint32(1 << 31):  # -0, as in `layout.pack_layer`
                            low = none
                        packed[target + np.uint64(f)] = low
                source += np.uint64(BLOCK)
                target += np.uint64(block_size)
        offset = biases + filters
        if layers[i, NORM] >= 0:
            for k in range(2 * filters):
                packed[layers[i, NORM] + k] = bits[offset + k]
            offset += 2 * filters
    pack_layer(layers[-1], weights, offset, packed.view(np.float32))


@intrinsic
def like(typing, array, other):  # type: ignore[no-untyped-def]
    """Return the numbers of an array as what those of `other` are: floats, or words."""
    result = array.copy(dtype=other.dtype)

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        source = context.make_array(array)(context, builder, arguments[0])
        target = context.make_array(result)(context, builder)
        cgutils.copy_struct(target, source, {"data": builder.bitcast(source.data, target.data.type)})
        return target._getvalue()

    return result(array, other), generate


def pair_up(layer, x, lanes):  # type: ignore[no-untyped-def]
    """Make pairs of the floats that the words `x` hold, the inputs of a layer, in place; leave floats as they are."""
    raise NotImplementedError("compiled code only")


@overload(pair_up, jit_options={"error_model": "numpy", "_nrt": False})
def _pair_up(layer, x, lanes):  # type: ignore[no-untyped-def]
    def nothing(layer, x, lanes):  # type: ignore[no-untyped-def]
        return None

    def paired(layer, x, lanes):  # type: ignore[no-untyped-def]
        channels, out = layer[ALONE], 0
        for start in range(0, layer[HEIGHT] * layer[WIDTH] * channels, channels):
            for channel in range(0, channels, 2):
                below = (start + channel) * lanes
                above = below + lanes if channel + 1 < channels else -1
                # What is read later lies behind what is written: a pair takes half of the room of its numbers.
                if lanes == 16:
                    _join(16, x, out, x, below, above)
                elif lanes == 8:
                    _join(8, x, out, x, below, above)
                elif lanes == 4:
                    _join(4, x, out, x, below, above)
                else:
                    _join(2, x, out, x, below, above)
                out += lanes

    return paired if x.dtype == types.uint32 else nothing
