"""Vectors of floats in a learner's buffers: copies, sums, products with factors, and transposes.

Most functions compute y[to : to + 16] from x[at : at + 16], or the same of a run of any length. They are compiled into
their callers.
"""

from __future__ import annotations

from functools import partial
from typing import Any

from llvmlite import ir
from numba import njit, types
from numba.core import cgutils
from numba.extending import intrinsic

from evo.compiled import cache as kernel_cache
from evo.kernels.vectors import interleave, load, rectify, shuffle, store

kernel_cache.use(__name__)

WIDTH = 16  # of a vector; rows of C and of packed weights are whole vectors
LINE = 16  # of a cache
PARTS = 8  # partial sums over filters
VECTOR = ir.VectorType(ir.FloatType(), WIDTH)


def rounded(size: int) -> int:
    """Return a size as whole vectors."""
    return -(-size // WIDTH) * WIDTH


def spaced(size: int) -> int:
    """Return a distance of rows of `size`: whole vectors, and such that neighbours share no place in a cache."""
    distance = rounded(size)
    return distance + WIDTH if distance % 128 == 0 else distance


def data_of(context: Any, builder: Any, kind: Any, array: Any) -> Any:
    """Return the pointer to an array's first element."""
    return context.make_array(kind)(context, builder, array).data


@intrinsic
def _turn(typing, x, at, distance, y, to, step):  # type: ignore[no-untyped-def]
    """y[to + i * step + j] = x[at + j * distance + i] for i, j < 16."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        _, at_, distance_, _, to_, step_ = arguments
        source, target = (data_of(context, builder, signature.args[k], arguments[k]) for k in (0, 3))

        def place(at: Any, step: Any, times: int) -> Any:
            return builder.add(at, builder.mul(step, step.type(times)))

        rows = [load(builder, source, place(at_, distance_, j), VECTOR) for j in range(WIDTH)]
        for i, column in enumerate(interleave(builder, rows)):
            store(builder, column, target, place(to_, step_, i))
        return context.get_dummy_value()

    return types.void(x, types.intp, types.intp, y, types.intp, types.intp), generate


@njit(cache=True, error_model="numpy", nogil=True, _nrt=False)
def transpose(x, at, rows, columns, distance, y, to, step):  # type: ignore[no-untyped-def]
    """y[to + j * step + i] = x[at + i * distance + j]; both are read and written as squares of 16 x 16."""
    for i in range(0, rows, WIDTH):
        for j in range(0, columns, WIDTH):
            _turn(x, at + i * distance + j, distance, y, to + j * step + i, step)


def _one_vector(compute: Any) -> Any:
    """Return code of (y, to, x, at, ..., number): y[to : to + 16] = compute(builder, y[...], x[...], ..., number)."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        arrays = zip(signature.args[::2], arguments[::2], arguments[1::2], strict=False)  # a number stands behind them
        places = [(data_of(context, builder, kind, array), at) for kind, array, at in arrays]
        values = [load(builder, array, at, VECTOR) for array, at in places]
        if len(arguments) % 2:
            one = builder.insert_element(ir.Constant(VECTOR, ir.Undefined), arguments[-1], ir.IntType(32)(0))
            values.append(shuffle(builder, one, one, [0] * WIDTH))
        store(builder, compute(builder, *values), *places[0])
        return context.get_dummy_value()

    return generate


def _on_vectors(compute: Any) -> Any:
    """Return a compiled function (y, to, x, at) of `_one_vector`."""

    @intrinsic
    def apply(typing, y, to, x, at):  # type: ignore[no-untyped-def]
        return types.void(y, types.intp, x, types.intp), _one_vector(compute)

    return apply


def _with_factor(compute: Any) -> Any:
    """Return a compiled function (y, to, x, at, number) of `_one_vector`."""

    @intrinsic
    def apply(typing, y, to, x, at, number):  # type: ignore[no-untyped-def]
        return types.void(y, types.intp, x, types.intp, types.float32), _one_vector(compute)

    return apply


@intrinsic
def add_product(typing, y, to, x, at, z, from_):  # type: ignore[no-untyped-def]
    """y[to : to + 16] += x[at : at + 16] * z[from_ : from_ + 16]."""
    code = _one_vector(lambda builder, total, left, right: builder.fadd(total, builder.fmul(left, right)))
    return types.void(y, types.intp, x, types.intp, z, types.intp), code


def _run(compute: Any) -> Any:
    """Return code of (y, to, x, at, ..., count): y[to : to + count] = compute(builder, y[...], x[...], ...).

    What lies behind them, up to a whole vector, is read, and written back to y as it is.
    """
    return partial(_run_code, compute)


def _run_code(compute: Any, context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
    *places, length = arguments
    bases = [
        builder.gep(data_of(context, builder, signature.args[k], places[k]), [places[k + 1]])
        for k in range(0, len(places), 2)
    ]
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
        first = builder.insert_element(ir.Constant(lanes, ir.Undefined), rest, lanes.element(0))
        ends = shuffle(builder, first, first, [0] * WIDTH)
        inside = builder.icmp_signed("<", ir.Constant(lanes, list(range(WIDTH))), ends)
        present, found = computed(place)
        store(builder, builder.select(inside, found, present), bases[0], place)
    return context.get_dummy_value()


def _on_run(compute: Any) -> Any:
    """Return a compiled function (y, to, x, at, count) of `_run`."""

    @intrinsic
    def apply(typing, y, to, x, at, count):  # type: ignore[no-untyped-def]
        return types.void(y, types.intp, x, types.intp, types.intp), _run(compute)

    return apply


def _copied(builder: Any, present: Any, other: Any) -> Any:
    return other


def _sum(builder: Any, present: Any, other: Any) -> Any:
    return builder.fadd(present, other)


def _rectified(builder: Any, present: Any, other: Any) -> Any:
    return rectify(builder, other)


copy_vector, copy = _on_vectors(_copied), _on_run(_copied)
add_vector, add = _on_vectors(_sum), _on_run(_sum)
rectify_vector, copy_rectified = _on_vectors(_rectified), _on_run(_rectified)
multiply_vector = _on_vectors(lambda builder, present, other: builder.fmul(present, other))
less = _with_factor(lambda builder, present, other, number: builder.fsub(other, number))
times = _with_factor(lambda builder, present, other, number: builder.fmul(other, number))
less_times = _with_factor(lambda builder, present, other, number: builder.fsub(present, builder.fmul(other, number)))


@njit(cache=True, error_model="numpy", nogil=True, _nrt=False, inline="always")
def fill(y, to, count, vector):  # type: ignore[no-untyped-def]
    """y[to : to + count] = a vector's 16 numbers, again and again, to the end of the last vector."""
    for k in range(0, count, WIDTH):
        copy_vector(y, to + k, vector, 0)


@intrinsic
def copy_where_positive(typing, y, to, x, at, z, from_, count):  # type: ignore[no-untyped-def]
    """y[to : to + count] = x[at : at + count] where z[from_ : from_ + count] is positive, else 0; as `copy`."""

    def compute(builder: Any, present: Any, other: Any, output: Any) -> Any:
        zero = ir.Constant(VECTOR, [0.0] * WIDTH)
        return builder.select(builder.fcmp_ordered(">", output, zero), other, zero)

    return types.void(y, types.intp, x, types.intp, z, types.intp, types.intp), _run(compute)


@intrinsic
def fetch(typing, x, row):  # type: ignore[no-untyped-def]
    """Have a row of a matrix fetched from memory to the second cache, without waiting for it."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        matrix = context.make_array(signature.args[0])(context, builder, arguments[0])
        i64, size = arguments[1].type, builder.extract_value(matrix.shape, 1)
        begin = builder.gep(matrix.data, [builder.mul(arguments[1], size)])
        kinds = [ir.IntType(8).as_pointer(), *[ir.IntType(32)] * 3]
        prefetch = builder.module.declare_intrinsic("llvm.prefetch", kinds[:1], ir.FunctionType(ir.VoidType(), kinds))
        reads, second, data = (ir.Constant(ir.IntType(32), number) for number in (0, 2, 1))
        with cgutils.for_range_slice(builder, i64(0), size, i64(LINE), inc=True) as (place, _):
            line = builder.bitcast(builder.gep(begin, [place]), kinds[0])
            builder.call(prefetch, [line, reads, second, data])
        return context.get_dummy_value()

    return types.void(x, types.intp), generate


@intrinsic
def add_rows(typing, y, to, x, at, distance, count):  # type: ignore[no-untyped-def]
    """y[to : to + 16] += x[at + r * distance : ... + 16], for r < count, one after the other."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        target, source = (data_of(context, builder, signature.args[k], arguments[k]) for k in (0, 2))
        _, to_, _, at_, distance_, count_ = arguments
        total = cgutils.alloca_once(builder, VECTOR)
        builder.store(load(builder, target, to_, VECTOR), total)
        with cgutils.for_range(builder, count_) as row:
            row_values = load(builder, source, builder.add(at_, builder.mul(row.index, distance_)), VECTOR)
            builder.store(builder.fadd(builder.load(total), row_values), total)
        store(builder, builder.load(total), target, to_)
        return context.get_dummy_value()

    return types.void(y, types.intp, x, types.intp, types.intp, types.intp), generate


@intrinsic
def sum_of_products(typing, x, at, other, count):  # type: ignore[no-untyped-def]
    """Return the sum of x[at + k] * x[other + k], or of x[at + k] where `other` is negative, for k < count.

    It is kept as eight partial sums, of every eighth term in order, which are added as (k, k + 4), (k, k + 2),
    (k, k + 1), like those of `evo.kernels.layer_norm`.
    """

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        source = data_of(context, builder, signature.args[0], arguments[0])
        _, at_, other_, count_ = arguments
        parts, i64 = ir.VectorType(ir.FloatType(), PARTS), at_.type
        alone = builder.icmp_signed("<", other_, i64(0))
        total = cgutils.alloca_once(builder, parts)
        builder.store(ir.Constant(parts, [0.0] * PARTS), total)

        def term(k: Any, kind: Any) -> Any:
            left = load(builder, source, builder.add(at_, k), kind)
            right = load(builder, source, builder.add(builder.select(alone, at_, other_), k), kind)
            return builder.select(alone, left, builder.fmul(left, right))

        with cgutils.for_range(builder, builder.udiv(count_, i64(PARTS))) as loop:
            k = builder.mul(loop.index, i64(PARTS))
            builder.store(builder.fadd(builder.load(total), term(k, parts)), total)
        one = ir.VectorType(ir.FloatType(), 1)
        sums = builder.bitcast(total, ir.FloatType().as_pointer())
        rest = builder.urem(count_, i64(PARTS))
        with cgutils.for_range(builder, rest) as loop:
            k = builder.add(builder.sub(count_, rest), loop.index)
            store(builder, builder.fadd(load(builder, sums, loop.index, one), term(k, one)), sums, loop.index)
        left = [builder.load(builder.gep(sums, [i64(k)])) for k in range(PARTS)]
        while len(left) > 1:
            half = len(left) // 2
            left = [builder.fadd(left[k], left[k + half]) for k in range(half)]
        return left[0]

    return types.float32(x, types.intp, types.intp, types.intp), generate
