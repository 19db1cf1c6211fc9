"""Hidden layers in bfloat16 pairs: twice the products per vector on processors with AVX512-BF16.

A pair holds neighbouring channels of one pixel; an odd last channel is paired with zero. Layer outputs are float32, and
the next layer packs them into pairs in place. The output layer keeps float32 weights.
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
from evo.kernels.layout import BLOCK, is_weighted, pack_layer, pack_norm
from evo.kernels.layout import table as float_table
from evo.kernels.multiply_add import pack_pairs
from evo.networks.network import Network

kernel_cache.use(__name__)


def table(network: Network) -> NDArray[np.void]:
    """Return the layers as `layout.table`, with the channels of hidden ones counted in pairs."""
    layers = float_table(network)
    for i, layer in enumerate(network.layers[:-1]):
        if layer.weighted:
            layers["channels"][i] = (layer.channels + 1) // 2
    return layers


@intrinsic(prefer_literal=True)
def _pack_pair(typing, lanes, out, at, x, low, high):  # type: ignore[no-untyped-def]
    """out[at + lane] = the pair of x[low + lane] and x[high + lane], which counts as 0 where `high` is -1."""
    if not isinstance(lanes, types.IntegerLiteral):
        return None
    if any(array.dtype.bitwidth != 32 or array.layout != "C" for array in (out, x)):
        raise TypingError("inputs and pairs must be 32-bit arrays in C order")
    width = lanes.literal_value
    signature = types.void(lanes, out, types.intp, x, types.intp, types.intp)

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        _, out_, at_, x_, low_, high_ = arguments
        floats, words = ir.VectorType(ir.FloatType(), width), ir.VectorType(ir.IntType(32), width)
        data, target = (
            context.make_array(kind)(context, builder, array).data for kind, array in ((x, x_), (out, out_))
        )

        def load(index: Any) -> Any:
            value = builder.load(builder.bitcast(builder.gep(data, [index]), floats.as_pointer()))
            value.align = 4
            return value

        second = cgutils.alloca_once_value(builder, ir.Constant(floats, [0.0] * width))
        with builder.if_then(builder.icmp_signed(">=", high_, ir.Constant(high_.type, 0))):
            builder.store(load(high_), second)
        word = pack_pairs(builder, load(low_), builder.load(second))
        builder.store(word, builder.bitcast(builder.gep(target, [at_]), words.as_pointer())).align = 4
        return context.get_dummy_value()

    return signature, generate


@njit(cache=True, error_model="numpy", nogil=True)
def _rounded(bits):  # type: ignore[no-untyped-def]
    """Round the bits of a finite float32 to those of the nearest bfloat16, ties to even."""
    return (bits + np.uint32(0x7FFF) + ((bits >> np.uint32(16)) & np.uint32(1))) >> np.uint32(16)


@njit(cache=True, error_model="numpy", nogil=True)
def pack(layers, weights, packed):  # type: ignore[no-untyped-def]
    """Pack finite `weights` [P] into words as `layout.pack` does, two rows of channels per word."""
    bits = weights.view(np.uint32)
    offset = 0
    for i in range(layers.shape[0] - 1):
        if is_weighted(layers[i]):  # type: ignore[no-untyped-call]
            offset = _pack_blocks(layers[i], bits, offset, packed)
        offset = pack_norm(layers[i], bits, offset, packed)
    pack_layer(layers[-1], weights, offset, packed.view(np.float32))


@njit(cache=True, error_model="numpy", nogil=True)
def _pack_blocks(layer, bits, offset, packed):  # type: ignore[no-untyped-def]
    """Pack the kernel and the biases of one layer; return the offset of what follows them."""
    pixels, channels, filters = layer.kernel * layer.kernel, layer.unpaired, layer.filters
    words, zero = layer.channels, np.uint32(0)
    block_size = (pixels * words + 1) * BLOCK
    biases = offset + pixels * channels * filters
    for row in range(-1, pixels * words):
        word = row % words
        source = np.uint64(biases if row < 0 else offset + (row // words * channels + 2 * word) * filters)
        target = np.uint64(layer.packed + (row + 1) * BLOCK)
        unpaired = row >= 0 and 2 * word + 1 == channels
        for f0 in range(0, filters, BLOCK):
            full = f0 + BLOCK <= filters
            if row >= 0 and full:
                first = np.int64(source)
                _pack_pair(BLOCK, packed, np.int64(target), bits, first, -1 if unpaired else first + filters)
            else:
                for f in range(BLOCK if full else filters - f0):
                    low = bits[source + np.uint64(f)]
                    if row >= 0:
                        high = zero if unpaired else _rounded(bits[source + np.uint64(filters + f)])
                        low = _rounded(low) | high << np.uint32(16)
                    elif low == np.uint32(1 << 31):  # -0, as in `layout.pack_layer`
                        low = zero
                    packed[target + np.uint64(f)] = low
            source += np.uint64(BLOCK)
            target += np.uint64(block_size)
    return biases + filters


@intrinsic
def view_as(typing, array, other):  # type: ignore[no-untyped-def]
    """Return a view of a 32-bit array with the dtype of `other`: float32, or words of bfloat16 pairs."""
    result = array.copy(dtype=other.dtype)

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        source = context.make_array(array)(context, builder, arguments[0])
        target = context.make_array(result)(context, builder)
        cgutils.copy_struct(target, source, {"data": builder.bitcast(source.data, target.data.type)})
        return target._getvalue()

    return result(array, other), generate


def pack_inputs(layer, x, lanes):  # type: ignore[no-untyped-def]
    """Pack the float32 inputs of a layer into bfloat16 pairs, in place; do nothing where `x` is float32."""
    raise NotImplementedError("compiled code only")


@overload(pack_inputs, jit_options={"error_model": "numpy", "_nrt": False})
def _pack_inputs(layer, x, lanes):  # type: ignore[no-untyped-def]
    def nothing(layer, x, lanes):  # type: ignore[no-untyped-def]
        return None

    def paired(layer, x, lanes):  # type: ignore[no-untyped-def]
        channels, out = layer.unpaired, 0
        for start in range(0, layer.height * layer.width * channels, channels):
            for channel in range(0, channels, 2):
                low = (start + channel) * lanes
                high = low + lanes if channel + 1 < channels else -1
                # Writing never overtakes reading: a pair takes half the space of its two inputs.
                if lanes == 16:
                    _pack_pair(16, x, out, x, low, high)
                elif lanes == 8:
                    _pack_pair(8, x, out, x, low, high)
                elif lanes == 4:
                    _pack_pair(4, x, out, x, low, high)
                else:
                    _pack_pair(2, x, out, x, low, high)
                out += lanes

    return paired if x.dtype == types.uint32 else nothing
