"""A layer on some lanes: sixteen of them are a vector; of fewer, the filters are, so that vectors are full in any case.

A tile takes sums of a block of filters for all sixteen lanes of a pixel, or of one or two for a few lanes of some
pixels: up to eight vectors of sums that advance together, so that no addition waits for the one before it. One factor
is a vector of weights or inputs, the other a single number that the multiplication itself spreads. Every sum takes the
same steps in the same order in all of them; vectors of filters are turned into lanes when they are written.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from llvmlite import ir
from numba import njit, types
from numba.core import cgutils
from numba.extending import intrinsic

from evo.compiled import cache as kernel_cache
from evo.kernels.layout import (
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
from evo.kernels.multiply_add import add_product
from evo.kernels.vectors import bits_from, clip, each_bit, in_turns, load, shuffle, spread

kernel_cache.use(__name__)

LANES = 16
OFTEN = 16  # products of an input from which on a few lanes are looked at for zeros
FEW = 3  # pixels; fewer than that are summed one by one rather than as a tile that is partly idle


@intrinsic(prefer_literal=True)
def _tile(typing, lanes, pixels, blocks, marked, told):  # type: ignore[no-untyped-def]
    """out[pixel, f, lane] = bias[f] + sum over rows and count of w[., f] * x[pixel, ., lane], for some blocks of f.

    Row r of the sum starts at x[x_at + r x_row] and w[w_at + r w_row], the next block `w_block` later. The next pixel
    is `x_step` and `out_step` further, and `x_jump` and `out_jump` more where a row of `row_pixels` ends, of which
    `row_left` are left; behind the `left` pixels, the last is repeated. `store` of the filters are written. Where `x`
    and `w` are words, they are pairs of bfloat16, but for the floats of the bias; `out` is floats always. Where
    `marked` is 1, only inputs are added that have a mark: bit m + r m_row + i of `marks` for input i of row r.
    """
    literals = (lanes, pixels, blocks, marked)
    if not all(isinstance(literal, types.IntegerLiteral) for literal in literals):
        return None
    lane_count, pixel_count, block_count, by_marks = (literal.literal_value for literal in literals)
    by_lanes = lane_count == LANES  # else by filters
    filters = block_count * BLOCK
    width = lane_count if by_lanes else filters

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        parts = [cgutils.unpack_tuple(builder, part) for part in cgutils.unpack_tuple(builder, arguments[4])]
        arrays = [
            context.make_array(part[0])(context, builder, values[0]).data
            for part, values in zip(signature.args[4], parts[:3], strict=False)
        ]
        x_data, w_data, out_data = arrays
        x_at, x_row, x_step, x_jump = parts[0][1:]
        w_at, w_row, w_block, bias = parts[1][1:]
        out_at, out_step, out_jump = parts[2][1:]
        rows, count, store, relu, left, row_left, row_pixels = parts[3]
        number = context.get_value_type(signature.args[4][0][0].dtype)  # a float, or a word that is a pair
        floats = ir.VectorType(ir.FloatType(), width)
        i64 = x_at.type

        def whole(value: int) -> Any:
            return ir.Constant(i64, value)

        def filter_vector(at: Any, kind: Any) -> Any:
            part = ir.VectorType(kind, BLOCK)
            first = load(builder, w_data, at, part)
            if block_count == 1:
                return first
            return shuffle(builder, first, load(builder, w_data, builder.add(at, w_block), part), list(range(filters)))

        def each(at: Any, amount: int) -> list[Any]:
            return [builder.add(at, whole(k)) for k in range(amount)]

        # Where every pixel of the tile lies.
        starts, targets = [x_at], [out_at]
        for pixel in range(1, pixel_count):
            more = builder.icmp_signed(">", left, whole(pixel))
            wraps = builder.icmp_signed("==", row_left, whole(1))
            row_left = builder.select(wraps, row_pixels, builder.sub(row_left, whole(1)))
            for places, step, jump in ((starts, x_step, x_jump), (targets, out_step, out_jump)):
                further = builder.add(step, builder.select(wraps, jump, whole(0)))
                places.append(builder.add(places[-1], builder.select(more, further, whole(0))))

        if by_lanes:
            begin = [spread(builder, w_data, at, ir.FloatType(), width) for at in each(bias, filters)]
        else:
            begin = [filter_vector(bias, ir.FloatType())] * (pixel_count * lane_count)
        sums = [cgutils.alloca_once_value(builder, value) for value in begin]
        with cgutils.for_range(builder, rows) as row:
            x_first = builder.mul(row.index, x_row)
            w_first = builder.add(w_at, builder.mul(row.index, w_row))
            pointers = [builder.gep(x_data, [builder.add(start, x_first)]) for start in starts]

            def add(k: Any, pointers: Any = pointers, w_first: Any = w_first) -> None:
                """Add the products of input k of this row."""
                seen = each(builder.mul(k, whole(lane_count)), 1 if by_lanes else lane_count)
                weights = builder.add(w_first, builder.mul(k, whole(BLOCK)))
                if by_lanes:
                    inputs = load(builder, pointers[0], seen[0], ir.VectorType(number, width))
                    factors = [(inputs, spread(builder, w_data, at, number, width)) for at in each(weights, filters)]
                else:
                    vector = filter_vector(weights, number)
                    factors = [(vector, spread(builder, p, at, number, width)) for p in pointers for at in seen]
                for total, (one, other) in zip(sums, factors, strict=True):
                    builder.store(add_product(builder, builder.load(total), one, other), total)

            if by_marks:
                marks = context.make_array(signature.args[4][4][0])(context, builder, parts[4][0]).data
                begin_at = builder.add(parts[4][1], builder.mul(row.index, parts[4][2]))
                each_bit(builder, bits_from(builder, marks, begin_at, count), add)
            else:
                with cgutils.for_range(builder, count) as k:
                    add(k.index)
        clipped = builder.icmp_signed("!=", relu, whole(0))

        totals = [clip(builder, builder.load(total), clipped) for total in sums]
        spilled = cgutils.alloca_once(builder, floats)
        amount = builder.mul(store, whole(lane_count))  # of numbers that are written for a pixel
        for pixel, target in enumerate(targets):
            written = totals[pixel * lane_count : (pixel + 1) * lane_count]
            written = totals if by_lanes else in_turns(builder, written)
            for v, total in enumerate(written):
                to = builder.gep(out_data, [builder.add(target, whole(v * width))])
                to = builder.bitcast(to, ir.FloatType().as_pointer())
                full = builder.icmp_signed(">=", amount, whole((v + 1) * width))
                with builder.if_then(full):
                    builder.store(total, builder.bitcast(to, floats.as_pointer())).align = 4
                if width > lane_count:  # the last filters may take a part of a vector
                    with builder.if_then(builder.not_(full)):
                        builder.store(total, spilled)
                        flat = builder.bitcast(spilled, ir.FloatType().as_pointer())
                        with cgutils.for_range(
                            builder, builder.sub(amount, whole(v * width))
                        ) as i:  # none where it is negative
                            builder.store(builder.load(builder.gep(flat, [i.index])), builder.gep(to, [i.index]))
        return context.get_dummy_value()

    return types.void(*literals, told), generate


@intrinsic(prefer_literal=True)
def _any(typing, lanes, x, at):  # type: ignore[no-untyped-def]
    """Return 1 where one of x[at : at + lanes] is not zero, or 0."""
    if not isinstance(lanes, types.IntegerLiteral):
        return None
    width = lanes.literal_value

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        data = context.make_array(signature.args[1])(context, builder, arguments[1]).data
        vector = ir.VectorType(ir.FloatType(), width)
        some = builder.fcmp_unordered(
            "!=", load(builder, data, arguments[2], vector), ir.Constant(vector, [0.0] * width)
        )
        bits = builder.bitcast(some, ir.IntType(width))
        return builder.zext(builder.icmp_unsigned("!=", bits, ir.Constant(bits.type, 0)), ir.IntType(64))

    return types.uint64(lanes, x, types.intp), generate


@njit(cache=True, error_model="numpy", nogil=True, _nrt=False)
def mark(layer, x, lanes, marks):  # type: ignore[no-untyped-def]
    """Set the bit of every input that is not zero in one of 16, 8 or 4 lanes; return whether few of them are set.

    None is looked at where inputs of a row of the kernel do not fit into a word, with two lanes, or with a few where an
    input is used too seldom for it to pay.
    """
    pixels, taps = layer[OUT_HEIGHT] * layer[OUT_WIDTH], layer[KERNEL] * layer[KERNEL]
    seldom = pixels * taps * layer[FILTERS] < OFTEN * layer[HEIGHT] * layer[WIDTH]
    if layer[KERNEL] * layer[CHANNELS] > 64 or lanes == 2 or (lanes < LANES and seldom):
        return False
    inputs, found = layer[HEIGHT] * layer[WIDTH] * layer[CHANNELS], np.uint64(0)
    for word in range(-(-inputs // 64)):
        bits = np.uint64(0)
        for bit in range(min(64, inputs - word * 64)):
            at = (word * 64 + bit) * lanes
            if lanes == 16:
                some = _any(16, x, at)
            elif lanes == 8:
                some = _any(8, x, at)
            else:
                some = _any(4, x, at)
            bits |= some << np.uint64(bit)
            found += some
        marks[word] = bits
    return np.int64(found) * 2 <= inputs


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


@njit(cache=True, error_model="numpy", nogil=True, _nrt=False)
def compute(layer, packed, x, out, lanes, marks):  # type: ignore[no-untyped-def]
    """Write the output of one layer for 16, 8, 4 or 2 lanes.

    `marks` is room for a bit of every input of the first layer, of which few may not be zero, or None.
    """
    marked = False
    if marks is not None and layer[PACKED] == 0:
        marked = mark(layer, x, lanes, marks)
    height, width, channels, filters = layer[HEIGHT], layer[WIDTH], layer[CHANNELS], layer[FILTERS]
    kernel, stride, pad, pad_left = layer[KERNEL], layer[STRIDE], layer[PAD], layer[PAD_LEFT]
    out_height, out_width, relu = layer[OUT_HEIGHT], layer[OUT_WIDTH], layer[RELU]
    w_block = (kernel * kernel * channels + 1) * BLOCK
    x_row, w_row = width * channels * lanes, kernel * channels * BLOCK
    x_step, out_step = stride * channels * lanes, filters * lanes
    most = 1 if marked else max(1, 8 // lanes)  # pixels of a tile
    f0 = 0
    while f0 < filters:
        bias = layer[PACKED] + f0 // BLOCK * w_block
        blocks = 2 if filters - f0 > BLOCK and lanes < LANES and not marked else 1
        store = min(blocks * BLOCK, filters - f0)
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
                    taken = min(left, most) if left >= min(most, FEW) else 1
                    single = taken == 1
                    row_left = j_end - column
                    told = (
                        (x, x_at, x_row, x_step, x_jump),
                        (packed, w_at, w_row, w_block, bias),
                        (out, out_at, out_step, out_jump),
                        (r1 - r0, count, store, relu, left, row_left, row_pixels),
                        (marks, x_at // lanes, width * channels),
                    )
                    if marks is not None and marked:
                        _marked_tile(lanes, told)
                    else:
                        _any_tile(lanes, single, blocks, told)
                    left -= taken
                    column += taken
                    while column >= j_end:
                        column -= row_pixels
                        row += 1
                j = j_end
            i = i_end
        f0 += store


@njit(cache=True, error_model="numpy", nogil=True, _nrt=False, inline="always")
def _any_tile(lanes, single, blocks, told):  # type: ignore[no-untyped-def]
    if lanes == 16:
        _tile(16, 1, 1, 0, told)
    elif lanes == 8 and blocks == 2:
        _tile(8, 1, 2, 0, told)
    elif lanes == 8:
        _tile(8, 1, 1, 0, told)
    elif lanes == 4 and single and blocks == 2:
        _tile(4, 1, 2, 0, told)
    elif lanes == 4 and single:
        _tile(4, 1, 1, 0, told)
    elif lanes == 4 and blocks == 2:
        _tile(4, 2, 2, 0, told)
    elif lanes == 4:
        _tile(4, 2, 1, 0, told)
    elif single and blocks == 2:
        _tile(2, 1, 2, 0, told)
    elif single:
        _tile(2, 1, 1, 0, told)
    elif blocks == 2:
        _tile(2, 4, 2, 0, told)
    else:
        _tile(2, 4, 1, 0, told)


@njit(cache=True, error_model="numpy", nogil=True, _nrt=False, inline="always")
def _marked_tile(lanes, told):  # type: ignore[no-untyped-def]
    if lanes == 16:
        _tile(16, 1, 1, 1, told)
    elif lanes == 8:
        _tile(8, 1, 1, 1, told)
    else:
        _tile(4, 1, 1, 1, told)
