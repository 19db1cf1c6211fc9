"""A layer for few episodes: vectors of filters instead of vectors of lanes, with the same bits.

With 8 lanes or fewer, a vector of lanes wastes the machine. Here a vector holds the filters of two blocks, which lie
side by side in the packed weights, and the input of a lane is broadcast. Eight sums of (pixel, lane) pairs advance
together, so that an addition need not wait for the one before it. Every sum takes the same steps in the same order as
in a kernel of many lanes.
"""

from __future__ import annotations

from typing import Any

from llvmlite import ir
from numba import njit, types
from numba.core import cgutils
from numba.extending import intrinsic

from evo.policies.layout import (
    BLOCK,
    CHANNELS,
    FILTERS,
    HEIGHT,
    KERNEL,
    OUT_HEIGHT,
    OUT_WIDTH,
    PACKED,
    PAD,
    PAD_LEFT,
    RELU,
    STRIDE,
    WIDTH,
)
from evo.policies.products import add_product
from snake import kernel_cache

kernel_cache.use(__name__)

FEW = 3  # pixels; fewer than that are summed one by one rather than as a tile that is partly idle


@intrinsic(prefer_literal=True)
def _tile(typing, lanes, pixels, block, x, x_at, x_row, w, w_at, w_row, w_block, rows, count, bias, out, out_at, store, relu, left, row_left, row_pixels, x_step, x_jump, out_step, out_jump):  # type: ignore[no-untyped-def]  # fmt: skip
    """out[pixel, f, lane] = bias[f] + sum over rows and count of w[., f] * x[pixel, ., lane], for two blocks.

    Row r of the sum starts at x[x_at + r x_row] and w[w_at + r w_row], the second block `w_block` later. The next pixel
    is `x_step` and `out_step` further, and `x_jump` and `out_jump` more where a row of `row_pixels` ends, of which
    `row_left` are left; behind the `left` pixels, the last is repeated. `store` of the filters are written. Where `x`
    and `w` are words, they are pairs of bfloat16, but for the floats of the bias; `out` is floats always.
    """
    literals = (lanes, pixels, block)
    if not all(isinstance(literal, types.IntegerLiteral) for literal in literals):
        return None
    lane_count, pixel_count, filters = (literal.literal_value for literal in literals)
    vector = 2 * filters
    size = types.intp
    signature = types.void(
        *literals, x, size, size, w, size, size, size, size, size, size, out, size, size, size, *(size,) * 7
    )

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        vector_type = ir.VectorType(ir.FloatType(), vector)
        input_type = ir.VectorType(context.get_value_type(signature.args[3].dtype), vector)
        zero = ir.Constant(vector_type, [0.0] * vector)
        x_at_, x_row_ = arguments[4:6]
        w_at_, w_row_, w_block_, rows_, count_, bias_ = arguments[7:13]
        out_at_, store_, relu_ = arguments[14:17]
        left_, row_left_, row_pixels_, x_step_, x_jump_, out_step_, out_jump_ = arguments[17:]

        def data(place: int) -> Any:
            return context.make_array(signature.args[place])(context, builder, arguments[place]).data

        x_data, w_data, out_data = data(3), data(6), data(13)
        i64 = x_at_.type

        def integer(value: int) -> Any:
            return ir.Constant(i64, value)

        def weights(at: Any, kind: Any) -> Any:
            parts, block_type = [], ir.VectorType(kind.element, filters)
            for _ in range(2):
                part = builder.load(builder.bitcast(builder.gep(w_data, [at]), block_type.as_pointer()))
                part.align = 4
                parts.append(part)
                at = builder.add(at, w_block_)
            both = ir.Constant(ir.VectorType(ir.IntType(32), vector), list(range(vector)))
            return builder.shuffle_vector(*parts, both)

        def splat(scalar: Any) -> Any:
            undefined = ir.Constant(input_type, ir.Undefined)
            one = builder.insert_element(undefined, scalar, ir.Constant(ir.IntType(32), 0))
            same = ir.Constant(ir.VectorType(ir.IntType(32), vector), [0] * vector)
            return builder.shuffle_vector(one, undefined, same)

        # Where every pixel of the tile lies.
        starts, targets = [x_at_], [out_at_]
        for pixel in range(1, pixel_count):
            more = builder.icmp_signed(">", left_, integer(pixel))
            wraps = builder.icmp_signed("==", row_left_, integer(1))
            row_left_ = builder.select(wraps, row_pixels_, builder.sub(row_left_, integer(1)))
            for places, step, jump in ((starts, x_step_, x_jump_), (targets, out_step_, out_jump_)):
                further = builder.add(step, builder.select(wraps, jump, integer(0)))
                places.append(builder.add(places[-1], builder.select(more, further, integer(0))))

        sums = [cgutils.alloca_once(builder, vector_type) for _ in range(pixel_count * lane_count)]
        biases = weights(bias_, vector_type)
        for total in sums:
            builder.store(biases, total)
        with cgutils.for_range(builder, rows_) as row:
            x_first = builder.mul(row.index, x_row_)
            w_first = builder.add(w_at_, builder.mul(row.index, w_row_))
            pointers = [builder.gep(x_data, [builder.add(start, x_first)]) for start in starts]
            with cgutils.for_range(builder, count_) as k:
                weight = weights(builder.add(w_first, builder.mul(k.index, integer(filters))), input_type)
                at = builder.mul(k.index, integer(lane_count))
                for pixel in range(pixel_count):
                    for lane in range(lane_count):
                        scalar = builder.load(builder.gep(pointers[pixel], [builder.add(at, integer(lane))]))
                        total = sums[pixel * lane_count + lane]
                        builder.store(add_product(builder, builder.load(total), weight, splat(scalar)), total)
        clipped = builder.icmp_signed("!=", relu_, integer(0))
        scratch = cgutils.alloca_once(builder, ir.ArrayType(ir.FloatType(), pixel_count * lane_count * vector))
        flat = builder.bitcast(scratch, ir.FloatType().as_pointer())
        for number, place in enumerate(sums):
            total = builder.load(place)
            # "below zero -> zero" keeps a NaN, where the maximum with zero would hide it.
            negative = builder.fcmp_ordered("<", total, zero)
            total = builder.select(clipped, builder.select(negative, zero, total), total)
            at = builder.bitcast(builder.gep(flat, [integer(number * vector)]), vector_type.as_pointer())
            builder.store(total, at).align = 4
        with cgutils.for_range(builder, store_) as f:
            for pixel in range(pixel_count):
                for lane in range(lane_count):
                    number = pixel * lane_count + lane
                    value = builder.load(builder.gep(flat, [builder.add(f.index, integer(number * vector))]))
                    at = builder.add(builder.mul(f.index, integer(lane_count)), integer(lane))
                    target = builder.gep(out_data, [builder.add(targets[pixel], at)])
                    builder.store(value, builder.bitcast(target, ir.FloatType().as_pointer()))
        return context.get_dummy_value()

    return signature, generate


@njit(cache=True, error_model="numpy", nogil=True, _nrt=False, inline="always")
def _end(start, stop, stride, pad, kernel, side):  # type: ignore[no-untyped-def]
    """Return the first position after `start` at which the border clips the kernel in another way."""
    first = start * stride - pad
    end = start + 1
    while end < stop:
        at = end * stride - pad
        if max(0, -at) != max(0, -first) or min(kernel, side - at) != min(kernel, side - first):
            break
        end += 1
    return end


@njit(cache=True, error_model="numpy", nogil=True, _nrt=False, inline="always")
def layer_narrow(layer, packed, x, out, lanes):  # type: ignore[no-untyped-def]
    """Write the output of one layer for 4, 2 or 1 lanes."""
    height, width, channels, filters = layer[HEIGHT], layer[WIDTH], layer[CHANNELS], layer[FILTERS]
    kernel, stride, pad, pad_left = layer[KERNEL], layer[STRIDE], layer[PAD], layer[PAD_LEFT]
    out_height, out_width, relu = layer[OUT_HEIGHT], layer[OUT_WIDTH], layer[RELU]
    w_block = (kernel * kernel * channels + 1) * BLOCK
    x_row, w_row = width * channels * lanes, kernel * channels * BLOCK
    x_step, out_step = stride * channels * lanes, filters * lanes
    tile = 8 // lanes
    for f0 in range(0, filters, 2 * BLOCK):
        bias = layer[PACKED] + f0 // BLOCK * w_block
        store = min(2 * BLOCK, filters - f0)
        second = w_block if store > BLOCK else 0  # a last block alone is taken twice
        i = 0
        while i < out_height:
            i_end = _end(i, out_height, stride, pad, kernel, height)
            top = i * stride - pad
            r0, r1 = max(0, -top), min(kernel, height - top)
            j = 0
            while j < out_width:
                # All pixels of rows i to i_end and columns j to j_end see the same part of the kernel.
                j_end = _end(j, out_width, stride, pad_left, kernel, width)
                first = j * stride - pad_left
                c0, c1 = max(0, -first), min(kernel, width - first)
                w_at = bias + BLOCK + (r0 * kernel + c0) * channels * BLOCK
                count = (c1 - c0) * channels
                row_pixels = j_end - j
                x_jump = stride * x_row - row_pixels * x_step
                out_jump = (out_width - row_pixels) * out_step
                left, row, column = (i_end - i) * row_pixels, i, j
                while left > 0:
                    x_at = ((row * stride - pad + r0) * width + column * stride - pad_left + c0) * channels * lanes
                    out_at = (row * out_width + column) * out_step + f0 * lanes
                    taken = min(left, tile) if left >= min(tile, FEW) else 1
                    single = taken == 1
                    row_left = j_end - column
                    _any_tile(lanes, single, x, x_at, x_row, packed, w_at, w_row, second, r1 - r0, count, bias, out, out_at, store, relu, left, row_left, row_pixels, x_step, x_jump, out_step, out_jump)  # fmt: skip
                    left -= taken
                    column += taken
                    while column >= j_end:
                        column -= row_pixels
                        row += 1
                j = j_end
            i = i_end


@njit(cache=True, error_model="numpy", nogil=True, _nrt=False, inline="always")
def _any_tile(lanes, single, x, x_at, x_row, w, w_at, w_row, w_block, rows, count, bias, out, out_at, store, relu, left, row_left, row_pixels, x_step, x_jump, out_step, out_jump):  # type: ignore[no-untyped-def]  # fmt: skip
    if lanes == 4 and single:
        _tile(4, 1, BLOCK, x, x_at, x_row, w, w_at, w_row, w_block, rows, count, bias, out, out_at, store, relu, left, row_left, row_pixels, x_step, x_jump, out_step, out_jump)  # fmt: skip
    elif lanes == 4:
        _tile(4, 2, BLOCK, x, x_at, x_row, w, w_at, w_row, w_block, rows, count, bias, out, out_at, store, relu, left, row_left, row_pixels, x_step, x_jump, out_step, out_jump)  # fmt: skip
    elif lanes == 2 and single:
        _tile(2, 1, BLOCK, x, x_at, x_row, w, w_at, w_row, w_block, rows, count, bias, out, out_at, store, relu, left, row_left, row_pixels, x_step, x_jump, out_step, out_jump)  # fmt: skip
    elif lanes == 2:
        _tile(2, 4, BLOCK, x, x_at, x_row, w, w_at, w_row, w_block, rows, count, bias, out, out_at, store, relu, left, row_left, row_pixels, x_step, x_jump, out_step, out_jump)  # fmt: skip
    elif single:
        _tile(1, 1, BLOCK, x, x_at, x_row, w, w_at, w_row, w_block, rows, count, bias, out, out_at, store, relu, left, row_left, row_pixels, x_step, x_jump, out_step, out_jump)  # fmt: skip
    else:
        _tile(1, 8, BLOCK, x, x_at, x_row, w, w_at, w_row, w_block, rows, count, bias, out, out_at, store, relu, left, row_left, row_pixels, x_step, x_jump, out_step, out_jump)  # fmt: skip
