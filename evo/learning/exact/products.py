"""Matrix products of a learner's update: every sum in the order of its terms, products with zeros left out.

A product adds A[i, k] * B[k, :] to C[i, :] for the k, rising, at which A[i, k] is not zero; multiplication and addition
are rounded apart. Forward passes, gradients of inputs and gradients of kernels all have this form: activations by
weights, gradients of outputs by transposed weights, transposed gradients of outputs by activations. Behind a ReLU most
values of A are zeros, which costs nothing here. Sums of a row stay in registers while up to CHUNK of its terms are
added, and the rows of B that they take stay in the nearest cache for all rows of A.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from llvmlite import ir
from numba import njit, types
from numba.core import cgutils
from numba.extending import intrinsic

from evo.compiled import cache as kernel_cache
from evo.kernels.vectors import broadcast, each_bit, interleave, load, rectify, shuffle, store

kernel_cache.use(__name__)

WIDTH = 16  # of a vector; rows of C and of packed weights are whole vectors
WIDE = "+avx512f" in kernel_cache.features().split(",")
MOST = 8 if WIDE else 5  # vectors of a row whose sums stay in registers
CHUNK = 64  # terms that a mask has, and that are added while they do; such a part of B takes up to 20 kB,
FEW = 5  # for so many vectors; of more, half of the terms are added
PARTS = 8  # partial sums over filters
VECTOR = ir.VectorType(ir.FloatType(), WIDTH)


def rounded(size: int) -> int:
    """Return a size as whole vectors."""
    return -(-size // WIDTH) * WIDTH


def spaced(size: int) -> int:
    """Return a distance of rows of `size`: whole vectors, and such that neighbours share no place in a cache."""
    distance = rounded(size)
    return distance + WIDTH if distance % 128 == 0 else distance


def _data(context: Any, builder: Any, kind: Any, array: Any) -> Any:
    return context.make_array(kind)(context, builder, array).data


@intrinsic(prefer_literal=True)
def _add_terms(typing, vectors, c, start, a, masks, b, rows):  # type: ignore[no-untyped-def]
    """Write `vectors` vectors of each row of C: those of `start`, and the terms of a chunk.

    c: (C, at, distance of rows), and so are start, a and b; masks: (words, at, distance, shift): bit k of row i's word,
    shifted to the right, says that A[i, k] is not zero. Of more than FEW vectors 32 terms are added.
    """
    if not isinstance(vectors, types.IntegerLiteral):
        return None
    count = vectors.literal_value

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        parts = [cgutils.unpack_tuple(builder, arguments[k]) for k in range(1, 6)]
        bases = [
            builder.gep(_data(context, builder, signature.args[k + 1][0], part[0]), [part[1]])
            for k, part in enumerate(parts)
        ]
        totals = [cgutils.alloca_once(builder, VECTOR) for _ in range(count)]
        with cgutils.for_range(builder, arguments[6]) as row:
            target, begin, terms, word = (
                builder.gep(base, [builder.mul(row.index, part[2])])
                for base, part in zip(bases[:4], parts[:4], strict=True)
            )
            place = [ir.Constant(row.index.type, v * WIDTH) for v in range(count)]
            for total, at in zip(totals, place, strict=True):
                builder.store(load(builder, begin, at, VECTOR), total)

            def add(k: Any, terms: Any = terms, place: Any = place) -> None:
                factor = broadcast(builder, terms, k, ir.FloatType(), WIDTH)
                line = builder.gep(bases[4], [builder.mul(k, parts[4][2])])
                for total, at in zip(totals, place, strict=True):
                    product = builder.fmul(load(builder, line, at, VECTOR), factor)
                    builder.store(builder.fadd(builder.load(total), product), total)

            bits = builder.load(word)
            if count > FEW:
                bits = builder.and_(builder.lshr(bits, parts[3][3]), bits.type((1 << CHUNK // 2) - 1))
            each_bit(builder, bits, add)
            for total, at in zip(totals, place, strict=True):
                store(builder, builder.load(total), target, at)
        return context.get_dummy_value()

    return types.void(vectors, c, start, a, masks, b, types.intp), generate


@intrinsic
def _nonzero(typing, x, at):  # type: ignore[no-untyped-def]
    """Return a word whose bit k says that x[at + k] is not zero, k < 64; a NaN is not zero."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        source, at_ = _data(context, builder, signature.args[0], arguments[0]), arguments[1]
        word, kind = ir.Constant(ir.IntType(64), 0), ir.IntType(64)
        for k in range(0, CHUNK, WIDTH):
            values = load(builder, source, builder.add(at_, at_.type(k)), VECTOR)
            bits = builder.fcmp_unordered("!=", values, ir.Constant(VECTOR, [0.0] * WIDTH))
            part = builder.zext(builder.bitcast(bits, ir.IntType(WIDTH)), kind)
            word = builder.or_(word, builder.shl(part, kind(k)))
        return word

    return types.uint64(x, types.intp), generate


@intrinsic
def _turn(typing, x, at, distance, y, to, step):  # type: ignore[no-untyped-def]
    """y[to + i * step + j] = x[at + j * distance + i] for i, j < 16."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        _, at_, distance_, _, to_, step_ = arguments
        source, target = (_data(context, builder, signature.args[k], arguments[k]) for k in (0, 3))

        def place(at: Any, step: Any, times: int) -> Any:
            return builder.add(at, builder.mul(step, step.type(times)))

        rows = [load(builder, source, place(at_, distance_, j), VECTOR) for j in range(WIDTH)]
        for i, column in enumerate(interleave(builder, rows)):
            store(builder, column, target, place(to_, step_, i))
        return context.get_dummy_value()

    return types.void(x, types.intp, types.intp, y, types.intp, types.intp), generate


def _on_vectors(compute: Any) -> Any:
    """Return a compiled function (y, to, x, at): y[to : to + 16] = compute(builder, y[...], x[at : at + 16])."""

    @intrinsic
    def apply(typing, y, to, x, at):  # type: ignore[no-untyped-def]
        def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
            target, source = (_data(context, builder, signature.args[k], arguments[k]) for k in (0, 2))
            present, given = load(builder, target, arguments[1], VECTOR), load(builder, source, arguments[3], VECTOR)
            store(builder, compute(builder, present, given), target, arguments[1])
            return context.get_dummy_value()

        return types.void(y, types.intp, x, types.intp), generate

    return apply


def _on_run(compute: Any) -> Any:
    """Return a compiled function (y, to, x, at, count): y[to : to + count] = compute(builder, y[...], x[...]).

    What lies behind them, up to a whole vector, is read, and written back to y as it is.
    """

    @intrinsic
    def apply(typing, y, to, x, at, count):  # type: ignore[no-untyped-def]
        def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
            bases = [
                builder.gep(_data(context, builder, signature.args[k], arguments[k]), [arguments[k + 1]]) for k in (0, 2)
            ]
            length = arguments[4]
            lanes, i64 = ir.VectorType(ir.IntType(32), WIDTH), length.type

            def computed(place: Any) -> tuple[Any, Any]:
                present, given = (load(builder, base, place, VECTOR) for base in bases)
                return present, compute(builder, present, given)

            whole = builder.udiv(length, i64(WIDTH))
            with cgutils.for_range(builder, whole) as loop:
                place = builder.mul(loop.index, i64(WIDTH))
                store(builder, computed(place)[1], bases[0], place)
            rest = builder.trunc(builder.urem(length, i64(WIDTH)), lanes.element)
            with builder.if_then(builder.icmp_signed("!=", rest, lanes.element(0))):
                place = builder.mul(whole, i64(WIDTH))
                first = builder.insert_element(ir.Constant(lanes, ir.Undefined), rest, lanes.element(0))
                inside = builder.icmp_signed(
                    "<", ir.Constant(lanes, list(range(WIDTH))), shuffle(builder, first, first, [0] * WIDTH)
                )
                present, found = computed(place)
                store(builder, builder.select(inside, found, present), bases[0], place)
            return context.get_dummy_value()

        return types.void(y, types.intp, x, types.intp, types.intp), generate

    return apply


def _kept(builder: Any, present: Any, given: Any) -> Any:
    zero = ir.Constant(VECTOR, [0.0] * WIDTH)
    return builder.select(builder.fcmp_ordered(">", given, zero), present, zero)


def _given(builder: Any, present: Any, given: Any) -> Any:
    return given


def _sum(builder: Any, present: Any, given: Any) -> Any:
    return builder.fadd(present, given)


copy_vector, copy = _on_vectors(_given), _on_run(_given)
add_vector, add = _on_vectors(_sum), _on_run(_sum)
multiply_vector = _on_vectors(lambda builder, present, given: builder.fmul(present, given))
rectify_vector = _on_vectors(lambda builder, present, given: rectify(builder, given))
keep_positive = _on_vectors(_kept)  # where the given is positive, else 0


def _with_factor(compute: Any) -> Any:
    """Return (y, to, x, at, number): y[to : to + 16] = compute(builder, y[...], x[...], a vector of the number)."""

    @intrinsic
    def apply(typing, y, to, x, at, number):  # type: ignore[no-untyped-def]
        def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
            target, source = (_data(context, builder, signature.args[k], arguments[k]) for k in (0, 2))
            present, given = load(builder, target, arguments[1], VECTOR), load(builder, source, arguments[3], VECTOR)
            place = ir.Constant(ir.IntType(32), 0)
            one = builder.insert_element(ir.Constant(VECTOR, ir.Undefined), arguments[4], place)
            alike = shuffle(builder, one, one, [0] * WIDTH)
            store(builder, compute(builder, present, given, alike), target, arguments[1])
            return context.get_dummy_value()

        return types.void(y, types.intp, x, types.intp, types.float32), generate

    return apply


less = _with_factor(lambda builder, present, given, number: builder.fsub(given, number))
times = _with_factor(lambda builder, present, given, number: builder.fmul(given, number))
less_times = _with_factor(lambda builder, present, given, number: builder.fsub(present, builder.fmul(given, number)))


@intrinsic
def add_product(typing, y, to, x, at, z, from_):  # type: ignore[no-untyped-def]
    """y[to : to + 16] += x[at : at + 16] * z[from_ : from_ + 16]."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        places = [(_data(context, builder, signature.args[k], arguments[k]), arguments[k + 1]) for k in (0, 2, 4)]
        total, left, right = (load(builder, array, at_, VECTOR) for array, at_ in places)
        store(builder, builder.fadd(total, builder.fmul(left, right)), *places[0])
        return context.get_dummy_value()

    return types.void(y, types.intp, x, types.intp, z, types.intp), generate


@intrinsic
def add_rows(typing, y, to, x, at, distance, count):  # type: ignore[no-untyped-def]
    """y[to : to + 16] += x[at + r * distance : ... + 16], for r < count, one after the other."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        target, source = (_data(context, builder, signature.args[k], arguments[k]) for k in (0, 2))
        _, to_, _, at_, distance_, count_ = arguments
        total = cgutils.alloca_once(builder, VECTOR)
        builder.store(load(builder, target, to_, VECTOR), total)
        with cgutils.for_range(builder, count_) as row:
            given = load(builder, source, builder.add(at_, builder.mul(row.index, distance_)), VECTOR)
            builder.store(builder.fadd(builder.load(total), given), total)
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
        source = _data(context, builder, signature.args[0], arguments[0])
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


@njit(cache=True, error_model="numpy", nogil=True, _nrt=False)
def transpose(x, at, rows, columns, distance, y, to, step):  # type: ignore[no-untyped-def]
    """y[to + j * step + i] = x[at + i * distance + j]; both are read and written as squares of 16 x 16."""
    for i in range(0, rows, WIDTH):
        for j in range(0, columns, WIDTH):
            _turn(x, at + i * distance + j, distance, y, to + j * step + i, step)


@njit(cache=True, error_model="numpy", nogil=True, _nrt=False, inline="always")
def _masks_of(a, at, distance, rows, terms, words):  # type: ignore[no-untyped-def]
    """Write a word for every row of A and every chunk of its terms."""
    chunks = -(-terms // CHUNK)
    last = np.uint64(0xFFFFFFFFFFFFFFFF) >> np.uint64(chunks * CHUNK - terms)
    for i in range(rows):
        for q in range(chunks):
            words[i * chunks + q] = _nonzero(a, at + i * distance + q * CHUNK)
        words[i * chunks + chunks - 1] &= last
    return chunks


@njit(cache=True, error_model="numpy", nogil=True, _nrt=False)
def multiply(c, start, a, b, words, shape):  # type: ignore[no-untyped-def]
    """Write the sum of `start` and the product of A [rows, terms] and B [terms, columns] to C [rows, columns].

    c, start, a, b: (array, at, distance of rows); `start` may be C itself, or one row at distance 0. B at distance 0 is
    in blocks of columns, as `pack` writes them. `words` [rows * chunks] is overwritten. shape: (rows, terms, columns).
    Columns are computed in whole vectors; 64 floats behind a row of A may be read, and are ignored.
    """
    rows, terms, columns = shape
    if rows == 0:
        return
    chunks = _masks_of(a[0], a[1], a[2], rows, terms, words)
    done, vectors = 0, -(-columns // WIDTH)
    while done < vectors:
        count = _share(vectors - done)
        line, distance = b[1] + done * WIDTH, b[2]
        if distance == 0:
            line, distance = b[1] + done * WIDTH * terms, count * WIDTH
        target, begin = (c[0], c[1] + done * WIDTH, c[2]), (start[0], start[1] + done * WIDTH, start[2])
        part = CHUNK if count <= FEW else CHUNK // 2
        for k in range(0, terms, part):
            masks, factors = (words, k // CHUNK, chunks, k % CHUNK), (b[0], line + k * distance, distance)
            _add_any(count, target, begin, (a[0], a[1] + k, a[2]), masks, factors, rows)
            begin = target
        done += count


@njit(cache=True, error_model="numpy", nogil=True, _nrt=False, inline="always")
def _share(vectors):  # type: ignore[no-untyped-def]
    """Return how many of these vectors the next block of columns has, so that blocks are about equal."""
    blocks = -(-vectors // MOST)
    return -(-vectors // blocks)


@njit(cache=True, error_model="numpy", nogil=True, _nrt=False)
def pack(x, at, rows, columns, distance, y, to):  # type: ignore[no-untyped-def]
    """Write a matrix as blocks of columns, each row after row; columns are filled with what lies behind them.

    x[at + i * distance + j], i < rows, in blocks from y[to:] on, as `multiply` reads them.
    """
    done, vectors = 0, -(-columns // WIDTH)
    while done < vectors:
        count = _share(vectors - done)
        for i in range(rows):
            for v in range(count):
                copy_vector(y, to + (done * rows + i * count + v) * WIDTH, x, at + i * distance + (done + v) * WIDTH)
        done += count


if WIDE:

    @njit(cache=True, error_model="numpy", nogil=True, _nrt=False)
    def _add_any(count, c, start, a, masks, b, rows):  # type: ignore[no-untyped-def]
        if count <= 5:
            _add_few(count, c, start, a, masks, b, rows)
        elif count == 6:
            _add_terms(6, c, start, a, masks, b, rows)
        elif count == 7:
            _add_terms(7, c, start, a, masks, b, rows)
        else:
            _add_terms(8, c, start, a, masks, b, rows)

else:

    @njit(cache=True, error_model="numpy", nogil=True, _nrt=False)
    def _add_any(count, c, start, a, masks, b, rows):  # type: ignore[no-untyped-def]
        _add_few(count, c, start, a, masks, b, rows)


@njit(cache=True, error_model="numpy", nogil=True, _nrt=False)
def _add_few(count, c, start, a, masks, b, rows):  # type: ignore[no-untyped-def]
    if count == 1:
        _add_terms(1, c, start, a, masks, b, rows)
    elif count == 2:
        _add_terms(2, c, start, a, masks, b, rows)
    elif count == 3:
        _add_terms(3, c, start, a, masks, b, rows)
    elif count == 4:
        _add_terms(4, c, start, a, masks, b, rows)
    else:
        _add_terms(5, c, start, a, masks, b, rows)
