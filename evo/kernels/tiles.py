"""One layer in tiles: vectors run over the 16 lanes, or over filters where there are fewer lanes, so they are full.

A tile computes one block of filters for all 16 lanes of a pixel, or one or two blocks for 8, 4 or 2 lanes of a few
pixels. Its up to eight vectors of sums advance together, so that no addition waits for the one before it. One factor is
a vector of weights or inputs, the other a number that the multiplication broadcasts. Every tile adds in the same order.
Vectors of filters are interleaved into lanes when they are written.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from llvmlite import ir
from numba import njit, types
from numba.core import cgutils

from evo.compiled import cache as kernel_cache
from evo.kernels.layout import BLOCK
from evo.kernels.vectors import (
    WIDTHS,
    bits_from,
    broadcast,
    each_bit,
    each_case,
    emitted,
    interleave,
    load,
    rectify,
    shuffle,
)

kernel_cache.use(__name__)

LANES = 16
MIN_PRODUCTS = 16  # products per input from which on a nonzero mask pays with fewer than 16 lanes
MIN_PIXELS = 3  # fewer pixels than this are computed one by one, rather than in a tile that is partly idle
# Tiles by number: lanes, pixels, blocks of filters, and whether a mask is used, which is not with two lanes.
TILES = {
    ((lanes * 10 + pixels) * 10 + blocks) * 10 + masked: (lanes, pixels, blocks, masked)
    for lanes in WIDTHS
    for pixels in {1, max(1, 8 // lanes)}
    for blocks in ((1,) if lanes == LANES else (1, 2))
    for masked in ((0, 1) if pixels == blocks == 1 and lanes > 2 else (0,))
}


@emitted()
def _tile(builder, tile, x, w, out, shape, mask):  # type: ignore[no-untyped-def]
    """out[pixel, f, lane] = bias[f] + sum over rows and count of w[., f] * x[pixel, ., lane], for `blocks` of f.

    `tile` is a number of TILES; the other arguments are (x, x_at, x_row, x_step, x_jump), (w, w_at, w_row, w_block,
    bias), (out, out_at, out_step, out_jump), (rows, count, store, relu, left, row_left, row_pixels), (nonzero, mask_at,
    mask_row).

    Row r of the sum starts at x[x_at + r * x_row] and w[w_at + r * w_row]; the next block of filters is `w_block`
    later. The next pixel is `x_step` and `out_step` later, plus `x_jump` and `out_jump` at the end of a row of
    `row_pixels`, of which `row_left` are left. Behind the `left` pixels the last one is repeated. `store` filters are
    written.

    With a mask, input i of row r is added only if bit mask_at + r * mask_row + i of `nonzero` is set.
    """
    tiles = {number: tile for number, tile in TILES.items() if mask[0] is not None or not tile[3]}
    each_case(builder, tile, tiles, lambda number: _emit(builder, *tiles[number], x, w, out, shape, mask))


def _emit(  # type: ignore[no-untyped-def]
    builder, lane_count: int, pixel_count: int, block_count: int, masked: int, x, w, out, shape, mask
) -> None:
    """Emit the code of one tile."""
    over_lanes = lane_count == LANES  # vectors over lanes, else over filters
    filters = block_count * BLOCK
    width = lane_count if over_lanes else filters
    x_data, x_at, x_row, x_step, x_jump = x
    w_data, w_at, w_row, w_block, bias = w
    out_data, out_at, out_step, out_jump = out
    rows, count, store, relu, left, row_left, row_pixels = shape
    nonzero, first_bit, bits_row = mask
    floats = ir.VectorType(ir.FloatType(), width)
    i64 = x_at.type

    def integer(value: int) -> Any:
        return ir.Constant(i64, value)

    def filter_vector(at: Any) -> Any:
        part = ir.VectorType(ir.FloatType(), BLOCK)
        first = load(builder, w_data, at, part)
        if block_count == 1:
            return first
        return shuffle(builder, first, load(builder, w_data, builder.add(at, w_block), part), list(range(filters)))

    def each(at: Any, amount: int) -> list[Any]:
        return [builder.add(at, integer(k)) for k in range(amount)]

    # Inputs and outputs of every pixel of the tile.
    starts, targets = [x_at], [out_at]
    for pixel in range(1, pixel_count):
        more = builder.icmp_signed(">", left, integer(pixel))
        wraps = builder.icmp_signed("==", row_left, integer(1))
        row_left = builder.select(wraps, row_pixels, builder.sub(row_left, integer(1)))
        for offsets, step, jump in ((starts, x_step, x_jump), (targets, out_step, out_jump)):
            advance = builder.add(step, builder.select(wraps, jump, integer(0)))
            offsets.append(builder.add(offsets[-1], builder.select(more, advance, integer(0))))

    if over_lanes:
        begin = [broadcast(builder, w_data, at, width) for at in each(bias, filters)]
    else:
        begin = [filter_vector(bias)] * (pixel_count * lane_count)
    sums = [cgutils.alloca_once_value(builder, value) for value in begin]
    with cgutils.for_range(builder, rows) as row:
        x_first = builder.mul(row.index, x_row)
        w_first = builder.add(w_at, builder.mul(row.index, w_row))
        pointers = [builder.gep(x_data, [builder.add(start, x_first)]) for start in starts]

        def add(k: Any, pointers: Any = pointers, w_first: Any = w_first) -> None:
            """Add the products of input k of this row."""
            inputs_at = each(builder.mul(k, integer(lane_count)), 1 if over_lanes else lane_count)
            weights = builder.add(w_first, builder.mul(k, integer(BLOCK)))
            if over_lanes:
                inputs = load(builder, pointers[0], inputs_at[0], floats)
                factors = [(inputs, broadcast(builder, w_data, at, width)) for at in each(weights, filters)]
            else:
                vector = filter_vector(weights)
                factors = [(vector, broadcast(builder, p, at, width)) for p in pointers for at in inputs_at]
            for total, (left_factor, right_factor) in zip(sums, factors, strict=True):
                product = builder.fmul(left_factor, right_factor)
                builder.store(builder.fadd(builder.load(total), product), total)

        if masked:
            mask_at = builder.add(first_bit, builder.mul(row.index, bits_row))
            each_bit(builder, bits_from(builder, nonzero, mask_at, count), add)
        else:
            with cgutils.for_range(builder, count) as k:
                add(k.index)
    rectified = builder.icmp_signed("!=", relu, integer(0))

    totals = [rectify(builder, builder.load(total), rectified) for total in sums]
    spilled = cgutils.alloca_once(builder, floats)
    amount = builder.mul(store, integer(lane_count))  # float32 written per pixel
    for pixel, target in enumerate(targets):
        written = totals[pixel * lane_count : (pixel + 1) * lane_count]
        written = totals if over_lanes else interleave(builder, written)
        for v, total in enumerate(written):
            to = builder.gep(out_data, [builder.add(target, integer(v * width))])
            to = builder.bitcast(to, ir.FloatType().as_pointer())
            full = builder.icmp_signed(">=", amount, integer((v + 1) * width))
            with builder.if_then(full):
                builder.store(total, builder.bitcast(to, floats.as_pointer())).align = 4
            if width > lane_count:  # the last filters may fill only a part of a vector
                with builder.if_then(builder.not_(full)):
                    builder.store(total, spilled)
                    flat = builder.bitcast(spilled, ir.FloatType().as_pointer())
                    with cgutils.for_range(
                        builder, builder.sub(amount, integer(v * width))
                    ) as i:  # none where it is negative
                        builder.store(builder.load(builder.gep(flat, [i.index])), builder.gep(to, [i.index]))


@emitted(types.uint64)
def _any_nonzero(builder, lanes, x, at):  # type: ignore[no-untyped-def]
    """Return 1 if any of x[at : at + lanes] is not zero, else 0."""
    found = cgutils.alloca_once(builder, ir.IntType(64))

    def look(width: int) -> None:
        vector = ir.VectorType(ir.FloatType(), width)
        nonzero = builder.fcmp_unordered("!=", load(builder, x, at, vector), ir.Constant(vector, [0.0] * width))
        bits = builder.bitcast(nonzero, ir.IntType(width))
        builder.store(builder.zext(builder.icmp_unsigned("!=", bits, bits.type(0)), ir.IntType(64)), found)

    each_case(builder, lanes, WIDTHS, look)
    return builder.load(found)


@njit(cache=True, error_model="numpy", nogil=True, _nrt=False, inline="always")
def mask_nonzero(layer, x, lanes, nonzero):  # type: ignore[no-untyped-def]
    """Write the mask of inputs that are not zero in some lane; return whether at most half of its bits are set.

    Returns False and writes nothing where a mask does not pay: with two lanes, where a row of the kernel has more than
    64 inputs, or with fewer than 16 lanes where an input enters fewer than MIN_PRODUCTS products.
    """
    pixels, taps = layer.out_height * layer.out_width, layer.kernel * layer.kernel
    rarely_used = pixels * taps * layer.filters < MIN_PRODUCTS * layer.height * layer.width
    if layer.kernel * layer.channels > 64 or lanes == 2 or (lanes < LANES and rarely_used):
        return False
    inputs, count = layer.height * layer.width * layer.channels, np.uint64(0)
    for word in range(-(-inputs // 64)):
        bits = np.uint64(0)
        for bit in range(min(64, inputs - word * 64)):
            bit_of_input = _any_nonzero(lanes, x, (word * 64 + bit) * lanes)
            bits |= bit_of_input << np.uint64(bit)
            count += bit_of_input
        nonzero[word] = bits
    return np.int64(count) * 2 <= inputs


@njit(cache=True, error_model="numpy", nogil=True, _nrt=False, inline="always")
def _end(start, stop, stride, pad, kernel, side):  # type: ignore[no-untyped-def]
    """Return the end of the run of positions from `start` on at which the border clips the kernel in the same way."""
    first = start * stride - pad
    end = start + 1
    while end < stop:
        at = end * stride - pad
        if max(0, -at) != max(0, -first) or min(kernel, side - at) != min(kernel, side - first):
            break
        end += 1
    return end


@njit(cache=True, error_model="numpy", nogil=True, _nrt=False)
def compute(layer, packed, x, out, lanes, nonzero):  # type: ignore[no-untyped-def]
    """Write the output of one layer for 16, 8, 4 or 2 lanes.

    `nonzero` is a buffer for the mask of the inputs of the first layer, or None: no mask is used.
    """
    masked = False
    if nonzero is not None and layer.packed == 0:
        masked = mask_nonzero(layer, x, lanes, nonzero)
    height, width, channels, filters = layer.height, layer.width, layer.channels, layer.filters
    kernel, stride, pad, pad_left = layer.kernel, layer.stride, layer.pad, layer.pad_left
    out_height, out_width, relu = layer.out_height, layer.out_width, layer.relu
    w_block = (kernel * kernel * channels + 1) * BLOCK
    x_row, w_row = width * channels * lanes, kernel * channels * BLOCK
    x_step, out_step = stride * channels * lanes, filters * lanes
    tile_pixels = 1 if masked else max(1, 8 // lanes)
    f0 = 0
    while f0 < filters:
        bias = layer.packed + f0 // BLOCK * w_block
        blocks = 2 if filters - f0 > BLOCK and lanes < LANES and not masked else 1
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
                    taken = min(left, tile_pixels) if left >= min(tile_pixels, MIN_PIXELS) else 1
                    pixels = 1 if taken == 1 else tile_pixels
                    _tile(
                        ((lanes * 10 + pixels) * 10 + blocks) * 10 + masked,
                        (x, x_at, x_row, x_step, x_jump),
                        (packed, w_at, w_row, w_block, bias),
                        (out, out_at, out_step, out_jump),
                        (r1 - r0, count, store, relu, left, j_end - column, row_pixels),
                        (nonzero, x_at // lanes, width * channels),
                    )
                    left -= taken
                    column += taken
                    while column >= j_end:
                        column -= row_pixels
                        row += 1
                j = j_end
            i = i_end
        f0 += store
