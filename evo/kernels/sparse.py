"""Large layers behind a ReLU, lane by lane, skipping inputs that are zero.

Skipping a product with zero changes no bit: the other products are added in the same order, and no sum begins with -0,
so not even the sign of a zero changes. Each lane has a nonzero mask of its inputs. The kernel's row is processed in
chunks of up to 64 neighbouring inputs, by iterating over the set bits of their mask. During that, the sums of up to 112
filters of a pixel stay in registers, and the weights of the chunk stay in the L1 cache for all pixels and lanes.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from llvmlite import ir
from numba import njit
from numba.core import cgutils
from numpy.typing import NDArray

from evo.compiled import cache as kernel_cache
from evo.compiled.views import aligned
from evo.kernels.layout import WIDE
from evo.kernels.vectors import (
    WIDTHS,
    bits_from,
    broadcast,
    deinterleave,
    each_bit,
    each_case,
    emitted,
    interleave,
    load,
    rectify,
    store,
)  # fmt: skip

kernel_cache.use(__name__)

VECTOR = ir.VectorType(ir.FloatType(), WIDE)
CHUNK = 64  # inputs per chunk, at most: the bits of a word
MOST_BLOCKS = 7  # blocks of filters whose sums stay in registers; any number >= 4 splits into parts of 4 to 7


def buffers_for(layers: NDArray[np.void]) -> tuple[NDArray[Any], ...] | None:
    """Return buffers for inputs [16, N] by lane, their nonzero masks, and sums; None where no layer skips zeros."""
    sparse_layers = layers[layers["group"] == WIDE]
    if not len(sparse_layers):
        return None
    inputs = int((sparse_layers["height"] * sparse_layers["width"] * sparse_layers["channels"]).max())
    pixels = int((sparse_layers["out_height"] * sparse_layers["out_width"]).max())
    words = -(-inputs // 64)
    return aligned(16 * words * 64), aligned(16 * (words + 1), np.uint64), aligned(16 * pixels * MOST_BLOCKS * WIDE)


@emitted()
def _split_lanes(builder, lanes, x, x_at, rows, rows_at, stride, bits, bits_at, words):  # type: ignore[no-untyped-def]
    """Copy 16 inputs of each lane from x[x_at:] to rows[rows_at + lane * stride:], with 16 bits of their mask.

    `bits_at` counts 16-bit units; `words` is the number of 64-bit words per lane.
    """
    i16, zero = ir.IntType(16), ir.Constant(VECTOR, [0.0] * WIDE)
    shorts = builder.bitcast(bits, i16.as_pointer())

    def offset(at: Any, step: Any, times: int) -> Any:
        return builder.add(at, builder.mul(step, step.type(times)))

    def split(count: int) -> None:
        read = [load(builder, x, offset(x_at, x_at.type(WIDE), v), VECTOR) for v in range(count)]
        for lane, row in enumerate(deinterleave(builder, read)):
            store(builder, row, rows, offset(rows_at, stride, lane))
            nonzero = builder.bitcast(builder.fcmp_unordered("!=", row, zero), i16)
            builder.store(nonzero, builder.gep(shorts, [offset(bits_at, words, 4 * lane)]))

    each_case(builder, lanes, WIDTHS, split)


@emitted()
def _add_chunk(builder, blocks, sums, rows, bits, packed, lanes):  # type: ignore[no-untyped-def]
    """Add the products of a chunk of at most CHUNK inputs to the sums of one pixel, for each lane.

    `sums` is (sums, at, first), `rows` (rows, rows_at, stride), `bits` (bits, bits_at, words, amount), and `packed`
    (packed, w_at, w_block, bias).

    Filter f of block b is summed in sums[at + (lane * blocks + b) * WIDE + f]; unless `first` is 0, the sum starts from
    packed[bias + b * w_block + f]. Input k < amount of a lane is rows[rows_at + lane * stride + k], and its mask bit is
    bits_at + lane * words + k. Its weight is packed[w_at + b * w_block + k * WIDE + f].
    """
    sums, at, first = sums
    rows, rows_at, stride = rows
    bits, bits_at, words, amount = bits
    packed, w_at, w_block, bias = packed
    integer = at.type

    def add_chunk(count: int) -> None:
        starts = [builder.mul(w_block, integer(b)) for b in range(count)]
        weights = [builder.gep(packed, [builder.add(w_at, start)]) for start in starts]
        biases = [builder.gep(packed, [builder.add(bias, start)]) for start in starts]
        begins = builder.icmp_signed("!=", first, integer(0))
        totals = [cgutils.alloca_once(builder, VECTOR) for _ in range(count)]
        with cgutils.for_range(builder, lanes) as lane:
            start = builder.add(bits_at, builder.mul(lane.index, words))
            lane_sums = builder.add(at, builder.mul(lane.index, integer(count * WIDE)))
            targets = [builder.gep(sums, [builder.add(lane_sums, integer(b * WIDE))]) for b in range(count)]
            for total, target, begin in zip(totals, targets, biases, strict=True):
                source = builder.select(begins, begin, target)
                builder.store(load(builder, source, integer(0), VECTOR), total)
            inputs = builder.gep(rows, [builder.add(rows_at, builder.mul(lane.index, stride))])

            def add(k: Any, inputs: Any = inputs) -> None:
                x, row = broadcast(builder, inputs, k, WIDE), builder.mul(k, integer(WIDE))
                for total, weight in zip(totals, weights, strict=True):
                    product = builder.fmul(load(builder, weight, row, VECTOR), x)
                    builder.store(builder.fadd(builder.load(total), product), total)

            each_bit(builder, bits_from(builder, bits, start, amount), add)
            for total, target in zip(totals, targets, strict=True):
                store(builder, builder.load(total), target, integer(0))

    each_case(builder, blocks, range(MOST_BLOCKS // 2 + 1, MOST_BLOCKS + 1), add_chunk)


@emitted()
def _join_lanes(builder, lanes, sums, at, stride, out, out_at, relu):  # type: ignore[no-untyped-def]
    """out[out_at + f * lanes + lane] = sums[at + lane * stride + f] for WIDE filters, rectified unless `relu` is 0."""
    rectified = builder.icmp_signed("!=", relu, relu.type(0))

    def join(count: int) -> None:
        starts = [builder.add(at, builder.mul(stride, stride.type(lane))) for lane in range(count)]
        totals = [rectify(builder, load(builder, sums, start, VECTOR), rectified) for start in starts]
        for v, interleaved in enumerate(interleave(builder, totals)):
            store(builder, interleaved, out, builder.add(out_at, out_at.type(v * WIDE)))

    each_case(builder, lanes, WIDTHS, join)


@njit(cache=True, error_model="numpy", nogil=True, _nrt=False)
def compute(layer, packed, x, out, lanes, live, buffers):  # type: ignore[no-untyped-def]
    """Write the output of one layer for the first `live` of 16, 8, 4 or 2 lanes; other lanes are undefined.

    `x` [inputs, lanes] and `out` [outputs, lanes] are flat. Up to 15 inputs behind the last are read and ignored.
    """
    rows, bits, sums = buffers
    height, width, channels, filters = layer.height, layer.width, layer.channels, layer.filters
    kernel, stride, pad, pad_left = layer.kernel, layer.stride, layer.pad, layer.pad_left
    out_height, out_width = layer.out_height, layer.out_width
    row_stride, words = rows.shape[0] // 16, bits.shape[0] // 16
    for k in range(0, height * width * channels, WIDE):
        _split_lanes(lanes, x, k * lanes, rows, k, row_stride, bits, k // 16, words)
    w_block, w_row = (kernel * kernel * channels + 1) * WIDE, kernel * channels
    done, blocks = 0, -(-filters // WIDE)
    while done < blocks:
        parts = -(-(blocks - done) // MOST_BLOCKS)
        count = -(-(blocks - done) // parts)
        bias = layer.packed + done * w_block
        for r in range(kernel):
            for k in range(0, w_row, CHUNK):
                for i in range(out_height):
                    row = i * stride - pad + r
                    if row < 0 or row >= height:
                        continue
                    for j in range(out_width):
                        left = (j * stride - pad_left) * channels  # where the kernel row begins in the image row
                        begin, end = max(0, left + k), min(width * channels, left + min(w_row, k + CHUNK))
                        if begin >= end:
                            continue
                        first = (r == 0 or row == 0) and (k == 0 or left + k <= 0)
                        at = row * width * channels + begin
                        _add_chunk(
                            count,
                            (sums, (i * out_width + j) * lanes * count * WIDE, np.int64(first)),
                            (rows, at, row_stride),
                            (bits, at, words * 64, end - begin),
                            (packed, bias + WIDE * (1 + r * w_row + begin - left), w_block, bias),
                            live,
                        )
        for p in range(out_height * out_width):
            for b in range(count):
                f0 = (done + b) * WIDE
                at = (p * lanes * count + b) * WIDE
                _join_any(lanes, sums, at, count * WIDE, out, (p * filters + f0) * lanes, layer.relu, filters - f0)
        done += count


@njit(cache=True, error_model="numpy", nogil=True, _nrt=False, inline="always")
def _join_any(lanes, sums, at, stride, out, out_at, relu, left):  # type: ignore[no-untyped-def]
    """Write WIDE filters of all lanes, or the last `left` filters one by one."""
    if left >= WIDE:
        _join_lanes(lanes, sums, at, stride, out, out_at, relu)
        return
    for f in range(left):
        for lane in range(lanes):
            total = sums[at + lane * stride + f]
            out[out_at + f * lanes + lane] = np.float32(0) if relu and total < np.float32(0) else total
