"""Vectors of floats in a learner's buffers: copies, sums, products with factors, and transposes.

Most functions compute y[to : to + 16] from x[at : at + 16], or the same of a run of any length. They are compiled into
their callers.
"""

from __future__ import annotations

from itertools import product
from typing import Any

from llvmlite import ir
from numba import njit, types
from numba.core import cgutils

from evo.compiled import cache as kernel_cache
from evo.kernels.vectors import emitted, load, rectify, repeated, shuffle, store

kernel_cache.use(__name__)

WIDTH = 16  # of a vector; rows of C and of packed weights are whole vectors
PARTS = 8  # partial sums over filters
VECTOR, EIGHT = (ir.VectorType(ir.FloatType(), width) for width in (WIDTH, PARTS))
# Of two rows of eight: their numbers, pairs and quarters in turn, which are one instruction of AVX each.
TURNS = (
    (1, ([0, 8, 1, 9, 4, 12, 5, 13], [2, 10, 3, 11, 6, 14, 7, 15])),
    (2, ([0, 1, 8, 9, 4, 5, 12, 13], [2, 3, 10, 11, 6, 7, 14, 15])),
    (4, ([0, 1, 2, 3, 8, 9, 10, 11], [4, 5, 6, 7, 12, 13, 14, 15])),
)


def rounded(size: int) -> int:
    """Return a size as whole vectors."""
    return -(-size // WIDTH) * WIDTH


def spaced(size: int) -> int:
    """Return a distance of rows of `size`: whole vectors, and such that neighbours share no place in a cache."""
    distance = rounded(size)
    return distance + WIDTH if distance % 128 == 0 else distance


@emitted()
def _turn(builder, x, at, distance, y, to, step):  # type: ignore[no-untyped-def]
    """y[to + i * step + j] = x[at + j * distance + i] for i, j < 16."""

    def place(at: Any, step: Any, times: int, more: int) -> Any:
        return builder.add(at, builder.add(builder.mul(step, step.type(times)), step.type(more)))

    for j, i in product(range(0, WIDTH, PARTS), repeat=2):
        rows = [load(builder, x, place(at, distance, j + k, i), EIGHT) for k in range(PARTS)]
        for size, masks in TURNS:
            for k in range(PARTS):
                if not k & size:
                    pair = rows[k], rows[k + size]
                    rows[k], rows[k + size] = (shuffle(builder, *pair, mask) for mask in masks)
        for k, column in enumerate([0, 2, 1, 3, 4, 6, 5, 7]):
            store(builder, rows[column], y, place(to, step, i + k, j))


@njit(cache=True, error_model="numpy", nogil=True, _nrt=False)
def transpose(x, at, rows, columns, distance, y, to, step):  # type: ignore[no-untyped-def]
    """y[to + j * step + i] = x[at + i * distance + j]; both are read and written as squares of 16 x 16."""
    for i in range(0, rows, WIDTH):
        for j in range(0, columns, WIDTH):
            _turn(x, at + i * distance + j, distance, y, to + j * step + i, step)


def _vectors(compute: Any) -> Any:
    """Return a compiled function (y, to, x, at, ..., number): y[to : to + 16] = compute(y[...], x[...], ..., number).

    A number is left out where `compute` takes none.
    """

    @emitted()
    def apply(builder, *arguments):  # type: ignore[no-untyped-def]
        places = list(zip(arguments[::2], arguments[1::2], strict=False))  # a number stands behind them
        values = [load(builder, array, at, VECTOR) for array, at in places]
        if len(arguments) % 2:
            values.append(repeated(builder, arguments[-1], WIDTH))
        store(builder, compute(builder, *values), *places[0])

    return apply


def _runs(compute: Any) -> Any:
    """Return a compiled function (y, to, x, at, ..., count): y[to : to + count] = compute(y[...], x[...], ...).

    What lies behind them, up to a whole vector, is read, and written back to y as it is.
    """

    @emitted()
    def apply(builder, *arguments):  # type: ignore[no-untyped-def]
        *places, length = arguments
        bases = [builder.gep(places[k], [places[k + 1]]) for k in range(0, len(places), 2)]
        lanes, i64 = ir.VectorType(ir.IntType(32), WIDTH), length.type

        def computed(place: Any) -> tuple[Any, Any]:
            values = [load(builder, base, place, VECTOR) for base in bases]
            return values[0], compute(builder, *values)

        whole = builder.udiv(length, i64(WIDTH))
        with cgutils.for_range(builder, whole) as loop:
            place = builder.mul(loop.index, i64(WIDTH))
            store(builder, computed(place)[1], bases[0], place)
        rest = builder.trunc(builder.urem(length, i64(WIDTH)), lanes.element)
        with builder.if_then(builder.icmp_signed("!=", rest, lanes.element(0))):
            place = builder.mul(whole, i64(WIDTH))
            ends = repeated(builder, rest, WIDTH)
            inside = builder.icmp_signed("<", ir.Constant(lanes, list(range(WIDTH))), ends)
            present, found = computed(place)
            store(builder, builder.select(inside, found, present), bases[0], place)

    return apply


def _copied(builder: Any, present: Any, other: Any) -> Any:
    return other


def _added(builder: Any, present: Any, other: Any) -> Any:
    return builder.fadd(present, other)


def _rectified(builder: Any, present: Any, other: Any) -> Any:
    return rectify(builder, other)


def _where_positive(builder: Any, present: Any, other: Any, output: Any) -> Any:
    zero = ir.Constant(VECTOR, [0.0] * WIDTH)
    return builder.select(builder.fcmp_ordered(">", output, zero), other, zero)


copy_vector, copy = _vectors(_copied), _runs(_copied)
add_vector, add = _vectors(_added), _runs(_added)
copy_rectified = _runs(_rectified)
copy_where_positive = _runs(_where_positive)  # (y, to, x, at, z, from, count): x where z is positive, else 0
multiply_vector = _vectors(lambda builder, present, other: builder.fmul(present, other))
less = _vectors(lambda builder, present, other, number: builder.fsub(other, number))
times = _vectors(lambda builder, present, other, number: builder.fmul(other, number))
less_times = _vectors(lambda builder, present, other, number: builder.fsub(present, builder.fmul(other, number)))
add_product = _vectors(lambda builder, total, left, right: builder.fadd(total, builder.fmul(left, right)))


@njit(cache=True, error_model="numpy", nogil=True, _nrt=False, inline="always")
def fill(y, to, count, vector):  # type: ignore[no-untyped-def]
    """y[to : to + count] = a vector's 16 numbers, again and again, to the end of the last vector."""
    for k in range(0, count, WIDTH):
        copy_vector(y, to + k, vector, 0)


@emitted()
def add_rows(builder, y, to, x, at, distance, count):  # type: ignore[no-untyped-def]
    """y[to : to + 16] += x[at + r * distance : ... + 16], for r < count, one after the other."""
    total = cgutils.alloca_once(builder, VECTOR)
    builder.store(load(builder, y, to, VECTOR), total)
    with cgutils.for_range(builder, count) as row:
        row_values = load(builder, x, builder.add(at, builder.mul(row.index, distance)), VECTOR)
        builder.store(builder.fadd(builder.load(total), row_values), total)
    store(builder, builder.load(total), y, to)


def _sum(builder: Any, kept: int, x: Any, at: Any, other: Any, count: Any) -> Any:
    """Return the sum as `sum_of_products`, with this many partial sums."""
    parts, i64 = ir.VectorType(ir.FloatType(), kept), at.type
    alone = builder.icmp_signed("<", other, i64(0))
    total = cgutils.alloca_once(builder, parts)
    builder.store(ir.Constant(parts, [0.0] * kept), total)

    def term(k: Any, kind: Any) -> Any:
        left = load(builder, x, builder.add(at, k), kind)
        right = load(builder, x, builder.add(builder.select(alone, at, other), k), kind)
        return builder.select(alone, left, builder.fmul(left, right))

    with cgutils.for_range(builder, builder.udiv(count, i64(kept))) as loop:
        k = builder.mul(loop.index, i64(kept))
        builder.store(builder.fadd(builder.load(total), term(k, parts)), total)
    one = ir.VectorType(ir.FloatType(), 1)
    sums = builder.bitcast(total, ir.FloatType().as_pointer())
    rest = builder.urem(count, i64(kept))
    with cgutils.for_range(builder, rest) as loop:
        k = builder.add(builder.sub(count, rest), loop.index)
        store(builder, builder.fadd(load(builder, sums, loop.index, one), term(k, one)), sums, loop.index)
    left = [builder.load(builder.gep(sums, [i64(k)])) for k in range(kept)]
    while len(left) > 1:
        half = len(left) // 2
        left = [builder.fadd(left[k], left[k + half]) for k in range(half)]
    return left[0]


@emitted(types.float32)
def sum_of_products(builder, x, at, other, count):  # type: ignore[no-untyped-def]
    """Return the sum of x[at + k] * x[other + k], or of x[at + k] where `other` is negative, for k < count.

    It is kept as eight partial sums, of every eighth term in order, which are added as (k, k + 4), (k, k + 2),
    (k, k + 1), like those of `evo.kernels.layer_norm`.
    """
    return _sum(builder, PARTS, x, at, other, count)


@emitted(types.float32)
def sum_of_squares(builder, x, count):  # type: ignore[no-untyped-def]
    """Return the sum of x[k] * x[k] for k < count: 16 sums of every sixteenth square, added in pairs."""
    return _sum(builder, WIDTH, x, count.type(0), count.type(0), count)
