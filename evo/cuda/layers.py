"""Device code of networks: layers whose lanes and outputs a block's threads share.

Where the CPU's kernel has vectors over lanes, a warp has threads over lanes. Every output is one sum by one thread, in
the order bias, rows, columns, channels, with separate multiplication and addition: "muladd-1".

A value of a lane has the values of 31 other lanes behind it, computed or not, so distances are constants of a program.
Loops over a thread's share are `while`: Numba divides 64-bit numbers before a `range` of steps.
"""

from __future__ import annotations

import numpy as np

from evo.cuda.plain import barrier, divided, load1, load4, quotient, share, square_root, store1, store4
from evo.cuda.table import (
    ACTIVATION,
    BIAS,
    CHANNELS,
    FILTERS,
    FIRST,
    FUSED,
    GROUP,
    HEIGHT,
    KERNEL,
    KIND,
    LANES,
    MEMORY,
    MEMORY_SIZE,
    NORM,
    OUT_HEIGHT,
    OUT_WIDTH,
    PAD,
    PAD_LEFT,
    STRIDE,
    TILE,
    TOGETHER,
    WIDTH,
)
from evo.kernels.layer_norm import PARTS, VARIANCE_EPSILON
from evo.kernels.layout import AVERAGE_POOL, GRU, IDENTITY, LSTM, ONE_HOT, RELU, STATE, TANH, TREE, WEIGHTED
from evo.kernels.weightless import sigmoid, tanh

F0, F1 = np.float32(0), np.float32(1)


def rectified(value, relu):
    """Return a value, or 0 for a negative one if `relu`."""
    return F0 if relu and value < F0 else value


def add4(s, a, v):
    """Return four sums, of one filter in four lanes, with the products of weight `a` and inputs `v` added."""
    return s[0] + a * v[0], s[1] + a * v[1], s[2] + a * v[2], s[3] + a * v[3]


def add16(s, a, v):
    """Return the sums of four filters in four lanes with the products of their weights and inputs added."""
    return add4(s[0], a[0], v), add4(s[1], a[1], v), add4(s[2], a[2], v), add4(s[3], a[3], v)


def of_lanes(b):
    """Return the biases of four filters, each in four lanes."""
    return (b[0], b[0], b[0], b[0]), (b[1], b[1], b[1], b[1]), (b[2], b[2], b[2], b[2]), (b[3], b[3], b[3], b[3])


def put4(out, at, s, relu):
    """Store the outputs of one filter in four lanes."""
    store4(out, at, rectified(s[0], relu), rectified(s[1], relu), rectified(s[2], relu), rectified(s[3], relu))


def put16(out, at, count, s, relu):
    """Store the outputs of the first `count` of four filters in four lanes."""
    if count > 0:
        put4(out, at, s[0], relu)
    if count > 1:
        put4(out, at + LANES, s[1], relu)
    if count > 2:
        put4(out, at + 2 * LANES, s[2], relu)
    if count > 3:
        put4(out, at + 3 * LANES, s[3], relu)


# Weights come from far away, so several inputs are loaded before the first is multiplied. Those of GROUP filters are
# [count, GROUP] in a row, whatever the tile.


def tile8(w, bias, w_at, w_row, x, x_at, x_row, rows, count, out, out_at, store, relu):
    """Sum 8 filters of an output pixel: `rows` of `count` inputs from x[x_at], with weights from w[w_at]."""
    s, z = of_lanes(load4(w, bias)), of_lanes(load4(w, bias + 4))
    for r in range(rows):
        xa, wa = x_at + r * x_row, w_at + r * w_row
        end = wa + count * GROUP
        last = end - GROUP
        while wa < last:
            v0, v1 = load4(x, xa), load4(x, xa + LANES)
            a0, c0, a1, c1 = load4(w, wa), load4(w, wa + 4), load4(w, wa + GROUP), load4(w, wa + GROUP + 4)
            s, z = add16(add16(s, a0, v0), a1, v1), add16(add16(z, c0, v0), c1, v1)
            xa += 2 * LANES
            wa += 2 * GROUP
        if wa < end:
            v0 = load4(x, xa)
            s, z = add16(s, load4(w, wa), v0), add16(z, load4(w, wa + 4), v0)
    put16(out, out_at, store, s, relu)
    put16(out, out_at + 4 * LANES, store - 4, z, relu)


def tile4(w, bias, w_at, w_row, x, x_at, x_row, rows, count, out, out_at, store, relu):
    """Sum 4 filters of an output pixel, as `tile8` does."""
    s = of_lanes(load4(w, bias))
    for r in range(rows):
        xa, wa = x_at + r * x_row, w_at + r * w_row
        end = wa + count * GROUP
        fourth = end - 3 * GROUP
        while wa < fourth:
            v0, v1, v2, v3 = load4(x, xa), load4(x, xa + LANES), load4(x, xa + 2 * LANES), load4(x, xa + 3 * LANES)
            a0, a1, a2, a3 = load4(w, wa), load4(w, wa + GROUP), load4(w, wa + 2 * GROUP), load4(w, wa + 3 * GROUP)
            s = add16(add16(add16(add16(s, a0, v0), a1, v1), a2, v2), a3, v3)
            xa += 4 * LANES
            wa += 4 * GROUP
        if wa + GROUP < end:
            v0, v1, a0, a1 = load4(x, xa), load4(x, xa + LANES), load4(w, wa), load4(w, wa + GROUP)
            s = add16(add16(s, a0, v0), a1, v1)
            xa += 2 * LANES
            wa += 2 * GROUP
        if wa < end:
            s = add16(s, load4(w, wa), load4(x, xa))
    put16(out, out_at, store, s, relu)


def tile1(w, bias, w_at, w_row, x, x_at, x_row, rows, count, out, out_at, relu):
    """Sum one filter of an output pixel, as `tile4` does."""
    b = load1(w, bias)
    s = (b, b, b, b)
    for r in range(rows):
        xa, wa = x_at + r * x_row, w_at + r * w_row
        end = wa + count * GROUP
        eighth = end - 7 * GROUP
        while wa < eighth:
            v0, v1, v2, v3 = load4(x, xa), load4(x, xa + LANES), load4(x, xa + 2 * LANES), load4(x, xa + 3 * LANES)
            a0, a1, a2, a3 = load1(w, wa), load1(w, wa + GROUP), load1(w, wa + 2 * GROUP), load1(w, wa + 3 * GROUP)
            xb, wb = xa + 4 * LANES, wa + 4 * GROUP
            v4, v5, v6, v7 = load4(x, xb), load4(x, xb + LANES), load4(x, xb + 2 * LANES), load4(x, xb + 3 * LANES)
            a4, a5, a6, a7 = load1(w, wb), load1(w, wb + GROUP), load1(w, wb + 2 * GROUP), load1(w, wb + 3 * GROUP)
            s = add4(add4(add4(add4(s, a0, v0), a1, v1), a2, v2), a3, v3)
            s = add4(add4(add4(add4(s, a4, v4), a5, v5), a6, v6), a7, v7)
            xa += 8 * LANES
            wa += 8 * GROUP
        while wa < end:
            s = add4(s, load1(w, wa), load4(x, xa))
            xa += LANES
            wa += GROUP
    put4(out, out_at, s, relu)


def sums(row, w, x, out, width, t, threads):
    """Write the outputs [pixels, filters, LANES] of a layer that this thread has to sum, four lanes at once."""
    height, wide, channels, filters = row[HEIGHT], row[WIDTH], row[CHANNELS], row[FILTERS]
    kernel, stride, relu = row[KERNEL], row[STRIDE], row[FUSED] != 0
    tile = row[TILE + (0 if width > 16 else (1 if width > 8 else (2 if width > 4 else 3)))]
    out_width, pixels, inputs = row[OUT_WIDTH], row[OUT_HEIGHT] * row[OUT_WIDTH], kernel * kernel * channels
    w_row, x_row = kernel * channels * GROUP, wide * channels * LANES
    lane, item, parts = share(t, threads, width // TOGETHER)
    lane *= TOGETHER
    items = pixels * quotient(
        filters + tile - 1, tile
    )  # all pixels of some filters: their weights stay in the L1 cache
    while item < items:
        of_filters, pixel = divided(item, pixels)
        f0 = of_filters * tile
        i, j = divided(pixel, out_width)
        top, left = i * stride - row[PAD], j * stride - row[PAD_LEFT]
        r0, r1 = max(0, -top), min(kernel, height - top)
        c0, c1 = max(0, -left), min(kernel, wide - left)
        within = f0 % GROUP
        w_at = row[FIRST] + (f0 - within) * inputs + within + (r0 * kernel + c0) * channels * GROUP
        x_at = ((top + r0) * wide + left + c0) * channels * LANES + lane
        at, bias, store = (pixel * filters + f0) * LANES + lane, row[BIAS] + f0, filters - f0
        rows, count = r1 - r0, (c1 - c0) * channels
        if tile == 8:
            tile8(w, bias, w_at, w_row, x, x_at, x_row, rows, count, out, at, store, relu)
        elif tile == 4:
            tile4(w, bias, w_at, w_row, x, x_at, x_row, rows, count, out, at, store, relu)
        else:
            tile1(w, bias, w_at, w_row, x, x_at, x_row, rows, count, out, at, relu)
        item += parts


def transform(row, w, x, out, width, t, threads):
    """Write the outputs of a layer that takes no sums, as `evo.kernels.weightless`."""
    filters, channels, kind = row[FILTERS], row[CHANNELS], row[KIND]
    lane, at, step = share(t, threads, width)
    if kind == TREE:
        while at < filters:
            store1(out, at * LANES + lane, F0)
            at += step
        barrier()
        if t < width:
            node, value = 0, F1
            while node < filters - 1:
                seen = x[np.int64(w[row[BIAS] + node]) * LANES + t]
                value = seen if seen != seen else value
                node = 2 * node + (2 if seen >= w[row[BIAS] + filters - 1 + node] else 1)
            out[(node - filters + 1) * LANES + t] = value
        return
    while at < row[OUT_HEIGHT] * row[OUT_WIDTH] * filters:
        pixel, f = divided(at, filters)
        if kind == ONE_HOT:
            channel, code = divided(f, quotient(filters, channels))
            seen = load1(x, (pixel * channels + channel) * LANES + lane)
            value = F1 if seen == np.float32(code) else (seen if seen != seen else F0)  # a NaN stays one
        elif kind != IDENTITY:
            value = pooled(row, x, pixel, f, lane)
        else:
            value = load1(x, at * LANES + lane)
        store1(out, at * LANES + lane, value)
        at += step


def pooled(row, x, pixel, channel, lane):
    """Return the largest value, or the mean, of a window's cells inside of the input."""
    i, j = divided(pixel, row[OUT_WIDTH])
    top, left = i * row[STRIDE] - row[PAD], j * row[STRIDE] - row[PAD_LEFT]
    first_row, end_row = max(top, 0), min(top + row[KERNEL], row[HEIGHT])
    first_column, end_column = max(left, 0), min(left + row[KERNEL], row[WIDTH])
    average, value = row[KIND] == AVERAGE_POOL, F0
    for i in range(first_row, end_row):
        for j in range(first_column, end_column):
            seen = load1(x, ((i * row[WIDTH] + j) * row[CHANNELS] + channel) * LANES + lane)
            if i == first_row and j == first_column:
                value = seen
            elif average:
                value = value + seen
            else:
                value = seen if seen > value or seen != seen else value
    return value / np.float32((end_row - first_row) * (end_column - first_column)) if average else value


def part_sum(out, at, k, filters, width, mean, squared):
    """Return the sum over every eighth filter, from k on, of values or of squared distances from the mean."""
    total = F0
    for f in range(k, filters, PARTS):
        value = load1(out, at + f * width)
        distance = value - mean
        total = total + (distance * distance if squared else value)
    return total


def two_parts(out, at, k, filters, width, mean, squared):
    """Return the sum over every fourth filter, from k on, as two parts."""
    first = part_sum(out, at, k, filters, width, mean, squared)
    return first + part_sum(out, at, k + PARTS // 2, filters, width, mean, squared)


def mean_of(out, at, filters, width, mean, squared):
    """Return the mean over filters of values, or of squared distances; sums are reduced as a tree."""
    even = two_parts(out, at, 0, filters, width, mean, squared) + two_parts(out, at, 2, filters, width, mean, squared)
    odd = two_parts(out, at, 1, filters, width, mean, squared) + two_parts(out, at, 3, filters, width, mean, squared)
    return (even + odd) / np.float32(filters)


def normalise(row, w, out, width, t, threads):
    """Normalise the outputs of a layer over the filters of each pixel and lane, as `evo.kernels.layer_norm`."""
    filters, gamma, relu = row[FILTERS], row[NORM], row[ACTIVATION] == RELU
    lane, pixel, step = share(t, threads, width)
    while pixel < row[OUT_HEIGHT] * row[OUT_WIDTH]:
        at = pixel * filters * LANES + lane
        mean = mean_of(out, at, filters, LANES, F0, False)
        inverse = F1 / square_root(mean_of(out, at, filters, LANES, mean, True) + VARIANCE_EPSILON)
        for f in range(filters):
            value = (load1(out, at + f * LANES) - mean) * inverse * w[gamma + f] + w[gamma + filters + f]
            store1(out, at + f * LANES, rectified(value, relu))
        pixel += step


def load_states(row, out, width, t, threads, memory, base, index, live):
    """Copy the states of environments base + index[lane] to `out` [S, LANES]; idle lanes begin with zeros."""
    lane, unit, step = share(t, threads, width)
    while unit < row[MEMORY_SIZE]:
        value = F0
        if lane < live:
            value = memory[base + index[lane], row[MEMORY] + unit]
        store1(out, unit * LANES + lane, value)
        unit += step


def gates(row, x, out, width, t, threads, memory, base, index, live):
    """Write outputs over the sums of the inputs, and the next states, as `evo.kernels.weightless`.

    `x` are the sums of the state, and behind them the state.
    """
    n = row[FILTERS] * LANES
    lane, unit, step = share(t, threads, width)
    while unit < row[FILTERS]:
        k, place = unit * LANES + lane, row[MEMORY] + unit
        first, second = sigmoid(load1(out, k) + load1(x, k)), sigmoid(load1(out, n + k) + load1(x, n + k))
        if row[KIND] == GRU:
            candidate = tanh(load1(out, 2 * n + k) + second * load1(x, 2 * n + k))
            value = first * load1(x, 3 * n + k) + (F1 - first) * candidate
        else:
            candidate = tanh(load1(out, 2 * n + k) + load1(x, 2 * n + k))
            cell = second * load1(x, 5 * n + k) + first * candidate
            value = sigmoid(load1(out, 3 * n + k) + load1(x, 3 * n + k)) * tanh(cell)
            if lane < live:
                memory[base + index[lane], place + row[FILTERS]] = cell
        if lane < live:
            memory[base + index[lane], place] = value
        store1(out, k, value)
        unit += step


def forward(table, w, x, first, second, width, t, threads, memory, base, index, live):
    """Compute the network for observations `x`; all threads of a block call it together.

    The outputs [O, LANES] are in `first` where the number of rows is odd, else in `second`. `memory` [B, S] has the
    states of environments base + index[lane], which are overwritten by the next ones; None: the network has none.
    """
    for i in range(table.shape[0]):
        row = table[i]
        source = x if i == 0 else (first if i % 2 == 1 else second)
        target = first if i % 2 == 0 else second
        if row[KIND] == WEIGHTED:
            sums(row, w, source, target, width, t, threads)
        elif memory is not None and row[KIND] == STATE:  # None by its type: not compiled
            source = target[row[FILTERS] * LANES :]
            load_states(row, source, width, t, threads, memory, base, index, live)
            barrier()
            sums(row, w, source, target, width, t, threads)
        elif memory is not None and (row[KIND] == GRU or row[KIND] == LSTM):
            gates(row, source, target, width, t, threads, memory, base, index, live)
        else:
            transform(row, w, source, target, width, t, threads)
        barrier()
        if row[NORM] >= 0:
            normalise(row, w, target, width, t, threads)
            barrier()
        if row[ACTIVATION] == TANH or (row[ACTIVATION] == RELU and row[NORM] < 0):
            lane, at, step = share(t, threads, width)
            while at < row[OUT_HEIGHT] * row[OUT_WIDTH] * row[FILTERS]:
                value = load1(target, at * LANES + lane)
                store1(target, at * LANES + lane, tanh(value) if row[ACTIVATION] == TANH else rectified(value, True))
                at += step
            barrier()
