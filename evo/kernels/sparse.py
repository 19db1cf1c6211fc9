"""Large layers, one lane after the other, from the inputs that are not zero: behind a relu many are.

A product with a zero adds nothing, so it is left out: sums take the same steps in the same order without them, and as
none begins with -0, not even the sign of a zero is another. Which inputs of a lane are not zero is kept as bits. Up to
64 neighbouring inputs of a row of the kernel are one walk over the bits that are set, during which the sums of up to
112 filters of a pixel stay in registers; the weights of a walk stay in the nearest cache for all pixels and lanes.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from llvmlite import ir
from numba import njit, types
from numba.core import cgutils
from numba.extending import intrinsic
from numpy.typing import NDArray

from evo.compiled import cache as kernel_cache
from evo.compiled.buffers import aligned
from evo.kernels.layout import (
    CHANNELS,
    FILTERS,
    GROUP,
    HEIGHT,
    KERNEL,
    OUT_HEIGHT,
    OUT_WIDTH,
    PACKED,
    PAD,
    PAD_LEFT,
    RELU,
    STRIDE,
    WIDE,
    WIDTH,
)
from evo.kernels.vectors import apart, bits_from, clip, each_bit, in_turns, load, spread, store

kernel_cache.use(__name__)

WALK = 64  # inputs at most, a bit each
MOST = 7  # blocks of filters whose sums stay in registers; any number from 4 on is a sum of 4 to 7


def room_for(layers: NDArray[np.int64]) -> tuple[NDArray[Any], ...] | None:
    """Return room for the inputs by lanes [16, N], their bits and the sums, or None where no layer is of this kind."""
    ours = layers[layers[:, GROUP] == WIDE]
    if not len(ours):
        return None
    inputs = int((ours[:, HEIGHT] * ours[:, WIDTH] * ours[:, CHANNELS]).max())
    pixels = int((ours[:, OUT_HEIGHT] * ours[:, OUT_WIDTH]).max())
    words = -(-inputs // 64)
    return aligned(16 * words * 64), aligned(16 * (words + 1), np.uint64), aligned(16 * pixels * MOST * WIDE)


@intrinsic(prefer_literal=True)
def _by_lanes(typing, lanes, x, x_at, rows, rows_at, stride, bits, bits_at, words):  # type: ignore[no-untyped-def]
    """Write x[x_at + 16 inputs, lane] to rows[rows_at + lane stride], and which are not zero, 16 bits of a word.

    `bits_at` counts in sixteen bits, `words` in words of 64 a lane.
    """
    if not isinstance(lanes, types.IntegerLiteral):
        return None
    count = lanes.literal_value
    signature = types.void(lanes, x, types.intp, rows, types.intp, types.intp, bits, types.intp, types.intp)

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        _, _, x_at_, _, rows_at_, stride_, _, bits_at_, words_ = arguments
        x_, rows_, bits_ = (
            context.make_array(signature.args[k])(context, builder, arguments[k]).data for k in (1, 3, 6)
        )
        vector, i16 = ir.VectorType(ir.FloatType(), WIDE), ir.IntType(16)
        shorts = builder.bitcast(bits_, i16.as_pointer())
        zero = ir.Constant(vector, [0.0] * WIDE)

        def further(at: Any, step: Any, times: int) -> Any:
            return builder.add(at, builder.mul(step, step.type(times)))

        read = [load(builder, x_, further(x_at_, x_at_.type(WIDE), v), vector) for v in range(count)]
        for lane, row in enumerate(apart(builder, read)):
            store(builder, row, rows_, further(rows_at_, stride_, lane))
            some = builder.bitcast(builder.fcmp_unordered("!=", row, zero), i16)
            builder.store(some, builder.gep(shorts, [further(bits_at_, words_, 4 * lane)]))
        return context.get_dummy_value()

    return signature, generate


@intrinsic(prefer_literal=True)
def _walk(typing, blocks, told):  # type: ignore[no-untyped-def]
    """Add the products of some neighbouring inputs, at most WALK, to the sums of one pixel, for each lane.

    sums[at + lane blocks WIDE + f] begins at packed[bias + b w_block + f] where `first` is not zero; inputs are
    rows[rows_at + lane stride], `amount` of them, their bits those from bits_at + lane words on; weights of block b,
    input k and filter f are packed[w_at + b w_block + k WIDE + f].
    """
    if not isinstance(blocks, types.IntegerLiteral):
        return None
    count = blocks.literal_value

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        parts = [cgutils.unpack_tuple(builder, part) for part in cgutils.unpack_tuple(builder, arguments[1])]
        kinds = signature.args[1]
        sums, rows, bits, packed = (
            context.make_array(kinds[k][0])(context, builder, parts[k][0]).data for k in range(4)
        )
        at, first = parts[0][1:]
        rows_at, stride = parts[1][1:]
        bits_at, words, amount = parts[2][1:]
        w_at, w_block, bias = parts[3][1:]
        i64, vector = ir.IntType(64), ir.VectorType(ir.FloatType(), WIDE)

        def whole(value: int) -> Any:
            return ir.Constant(i64, value)

        starts = [builder.mul(w_block, whole(b)) for b in range(count)]
        weights = [builder.gep(packed, [builder.add(w_at, start)]) for start in starts]
        biases = [builder.gep(packed, [builder.add(bias, start)]) for start in starts]
        begins = builder.icmp_signed("!=", first, whole(0))
        totals = [cgutils.alloca_once(builder, vector) for _ in range(count)]
        with cgutils.for_range(builder, parts[4][0]) as lane:
            start = builder.add(bits_at, builder.mul(lane.index, words))
            place = builder.add(at, builder.mul(lane.index, whole(count * WIDE)))
            targets = [builder.gep(sums, [builder.add(place, whole(b * WIDE))]) for b in range(count)]
            for total, target, begin in zip(totals, targets, biases, strict=True):
                source = builder.select(begins, begin, target)
                builder.store(load(builder, source, whole(0), vector), total)
            inputs = builder.gep(rows, [builder.add(rows_at, builder.mul(lane.index, stride))])

            def add(k: Any, inputs: Any = inputs) -> None:
                x, row = spread(builder, inputs, k, ir.FloatType(), WIDE), builder.mul(k, whole(WIDE))
                for total, weight in zip(totals, weights, strict=True):
                    product = builder.fmul(load(builder, weight, row, vector), x)
                    builder.store(builder.fadd(builder.load(total), product), total)

            each_bit(builder, bits_from(builder, bits, start, amount), add)
            for total, target in zip(totals, targets, strict=True):
                store(builder, builder.load(total), target, whole(0))
        return context.get_dummy_value()

    return types.void(blocks, told), generate


@intrinsic(prefer_literal=True)
def _by_filters(typing, lanes, sums, at, stride, out, out_at, relu):  # type: ignore[no-untyped-def]
    """Write sums[at + lane stride + f] of WIDE filters to out[out_at + f lanes + lane], clipped if `relu` is not 0."""
    if not isinstance(lanes, types.IntegerLiteral):
        return None
    count = lanes.literal_value
    signature = types.void(lanes, sums, types.intp, types.intp, out, types.intp, types.intp)

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        _, _, at_, stride_, _, out_at_, relu_ = arguments
        sums_, out_ = (context.make_array(signature.args[k])(context, builder, arguments[k]).data for k in (1, 4))
        vector, clipped = ir.VectorType(ir.FloatType(), WIDE), builder.icmp_signed("!=", relu_, relu_.type(0))
        totals = []
        for lane in range(count):
            place = builder.add(at_, builder.mul(stride_, stride_.type(lane)))
            totals.append(clip(builder, load(builder, sums_, place, vector), clipped))
        for v, turned in enumerate(in_turns(builder, totals)):
            store(builder, turned, out_, builder.add(out_at_, out_at_.type(v * WIDE)))
        return context.get_dummy_value()

    return signature, generate


@njit(cache=True, error_model="numpy", nogil=True, _nrt=False)
def compute(layer, packed, x, out, lanes, live, room):  # type: ignore[no-untyped-def]
    """Write the output of one layer for `live` of 16, 8, 4 or 2 lanes; what the others get has no meaning.

    `x` [inputs, lanes] and `out` [outputs, lanes] are flat; up to fifteen inputs more are read, and not used.
    """
    rows, bits, sums = room
    height, width, channels, filters = layer[HEIGHT], layer[WIDTH], layer[CHANNELS], layer[FILTERS]
    kernel, stride, pad, pad_left = layer[KERNEL], layer[STRIDE], layer[PAD], layer[PAD_LEFT]
    out_height, out_width = layer[OUT_HEIGHT], layer[OUT_WIDTH]
    row_stride, words = rows.shape[0] // 16, bits.shape[0] // 16
    for k in range(0, height * width * channels, WIDE):
        _turn_in(lanes, x, k, rows, row_stride, bits, words)
    w_block, w_row = (kernel * kernel * channels + 1) * WIDE, kernel * channels
    done, blocks = 0, -(-filters // WIDE)
    while done < blocks:
        parts = -(-(blocks - done) // MOST)
        count = -(-(blocks - done) // parts)
        bias = layer[PACKED] + done * w_block
        for r in range(kernel):
            for k in range(0, w_row, WALK):
                for i in range(out_height):
                    row = i * stride - pad + r
                    if row < 0 or row >= height:
                        continue
                    for j in range(out_width):
                        left = (j * stride - pad_left) * channels  # where the kernel's row would begin in the image's
                        begin, end = max(0, left + k), min(width * channels, left + min(w_row, k + WALK))
                        if begin >= end:
                            continue
                        first = (r == 0 or row == 0) and (k == 0 or left + k <= 0)
                        at = row * width * channels + begin
                        told = (
                            (sums, (i * out_width + j) * lanes * count * WIDE, np.int64(first)),
                            (rows, at, row_stride),
                            (bits, at, words * 64, end - begin),
                            (packed, bias + WIDE * (1 + r * w_row + begin - left), w_block, bias),
                            (live,),
                        )
                        _any_walk(count, told)
        for p in range(out_height * out_width):
            for b in range(count):
                f0 = (done + b) * WIDE
                at = (p * lanes * count + b) * WIDE
                _turn_out(lanes, sums, at, count * WIDE, out, (p * filters + f0) * lanes, layer[RELU], filters - f0)
        done += count


@njit(cache=True, error_model="numpy", nogil=True, _nrt=False, inline="always")
def _turn_in(lanes, x, k, rows, stride, bits, words):  # type: ignore[no-untyped-def]
    if lanes == 16:
        _by_lanes(16, x, k * 16, rows, k, stride, bits, k // 16, words)
    elif lanes == 8:
        _by_lanes(8, x, k * 8, rows, k, stride, bits, k // 16, words)
    elif lanes == 4:
        _by_lanes(4, x, k * 4, rows, k, stride, bits, k // 16, words)
    else:
        _by_lanes(2, x, k * 2, rows, k, stride, bits, k // 16, words)


@njit(cache=True, error_model="numpy", nogil=True, _nrt=False, inline="always")
def _any_walk(blocks, told):  # type: ignore[no-untyped-def]
    if blocks == 7:
        _walk(7, told)
    elif blocks == 6:
        _walk(6, told)
    elif blocks == 5:
        _walk(5, told)
    else:
        _walk(4, told)


@njit(cache=True, error_model="numpy", nogil=True, _nrt=False, inline="always")
def _turn_out(lanes, sums, at, stride, out, out_at, relu, left):  # type: ignore[no-untyped-def]
    """Write WIDE filters of all lanes, or one by one what is `left` of them."""
    if left < WIDE:
        for f in range(left):
            for lane in range(lanes):
                total = sums[at + lane * stride + f]
                out[out_at + f * lanes + lane] = np.float32(0) if relu and total < np.float32(0) else total
    elif lanes == 16:
        _by_filters(16, sums, at, stride, out, out_at, relu)
    elif lanes == 8:
        _by_filters(8, sums, at, stride, out, out_at, relu)
    elif lanes == 4:
        _by_filters(4, sums, at, stride, out, out_at, relu)
    else:
        _by_filters(2, sums, at, stride, out, out_at, relu)
