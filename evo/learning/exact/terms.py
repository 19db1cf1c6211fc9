"""Vectors of sums to which terms are added, in registers: what products are made of, as machine code.

These are compiled into `evo.learning.exact.products`, which says what they compute.
"""

from __future__ import annotations

from typing import Any

from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

from evo.kernels.vectors import broadcast, each_bit, load, store
from evo.learning.exact.runs import VECTOR, WIDTH, data_of

CHUNK = 64  # terms that a mask has, and that are added while their sums are in registers
TILE = 8, 6  # rows of one and of two vectors whose sums stay in registers together


@intrinsic(prefer_literal=True)
def add_terms(typing, vectors, c, start, a, masks, b, rows):  # type: ignore[no-untyped-def]
    """Write `vectors` vectors of each row of C: those of `start`, and the terms of a chunk.

    c: (C, at, distance of rows), and so are start, a and b; masks: (words, at, distance): bit k of row i's word says
    that A[i, k] is not zero.
    """
    if not isinstance(vectors, types.IntegerLiteral):
        return None
    count = vectors.literal_value

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        parts = [cgutils.unpack_tuple(builder, arguments[k]) for k in range(1, 6)]
        bases = [
            builder.gep(data_of(context, builder, signature.args[k + 1][0], part[0]), [part[1]])
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
                factor = broadcast(builder, terms, k, WIDTH)
                line = builder.gep(bases[4], [builder.mul(k, parts[4][2])])
                for total, at in zip(totals, place, strict=True):
                    product = builder.fmul(load(builder, line, at, VECTOR), factor)
                    builder.store(builder.fadd(builder.load(total), product), total)

            each_bit(builder, builder.load(word), add)
            for total, at in zip(totals, place, strict=True):
                store(builder, builder.load(total), target, at)
        return context.get_dummy_value()

    return types.void(vectors, c, start, a, masks, b, types.intp), generate


@intrinsic(prefer_literal=True)
def add_all(typing, vectors, c, start, a, b, terms, rows):  # type: ignore[no-untyped-def]
    """Write `vectors` vectors of each row of C: those of `start` and all terms, also those that are zero.

    c, start, a, b: as in `add_terms`. Several rows are computed together, so that none waits for its own sums.
    """
    if not isinstance(vectors, types.IntegerLiteral):
        return None
    count = vectors.literal_value

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        parts = [cgutils.unpack_tuple(builder, arguments[k]) for k in range(1, 5)]
        bases = [
            builder.gep(data_of(context, builder, signature.args[k + 1][0], part[0]), [part[1]])
            for k, part in enumerate(parts)
        ]
        i64 = arguments[6].type
        place = [i64(v * WIDTH) for v in range(count)]

        def compute(first: Any, size: int) -> None:
            rows = [builder.add(first, i64(r)) for r in range(size)]
            lines = [
                [builder.gep(base, [builder.mul(row, part[2])]) for row in rows]
                for base, part in zip(bases[:3], parts[:3], strict=True)
            ]
            totals = [[cgutils.alloca_once(builder, VECTOR) for _ in place] for _ in rows]
            for begin, sums in zip(lines[1], totals, strict=True):
                for total, at in zip(sums, place, strict=True):
                    builder.store(load(builder, begin, at, VECTOR), total)
            with cgutils.for_range(builder, arguments[5]) as k:
                line = builder.gep(bases[3], [builder.mul(k.index, parts[3][2])])
                weights = [load(builder, line, at, VECTOR) for at in place]
                for factors, sums in zip(lines[2], totals, strict=True):
                    factor = broadcast(builder, factors, k.index, WIDTH)
                    for total, weight in zip(sums, weights, strict=True):
                        builder.store(builder.fadd(builder.load(total), builder.fmul(weight, factor)), total)
            for target, sums in zip(lines[0], totals, strict=True):
                for total, at in zip(sums, place, strict=True):
                    store(builder, builder.load(total), target, at)

        tile = TILE[count - 1]
        tiles = builder.udiv(arguments[6], i64(tile))
        with cgutils.for_range(builder, tiles) as loop:
            compute(builder.mul(loop.index, i64(tile)), tile)
        with cgutils.for_range(builder, builder.urem(arguments[6], i64(tile))) as loop:
            compute(builder.add(builder.mul(tiles, i64(tile)), loop.index), 1)
        return context.get_dummy_value()

    return types.void(vectors, c, start, a, b, types.intp, types.intp), generate


@intrinsic
def finite(typing, x, at, count):  # type: ignore[no-untyped-def]
    """Return whether `count` vectors from x[at] are finite."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        source = data_of(context, builder, signature.args[0], arguments[0])
        zero = ir.Constant(VECTOR, [0.0] * WIDTH)
        total = cgutils.alloca_once(builder, VECTOR)
        builder.store(zero, total)
        with cgutils.for_range(builder, arguments[2]) as loop:
            place = builder.add(arguments[1], builder.mul(loop.index, loop.index.type(WIDTH)))
            nothing = builder.fmul(load(builder, source, place, VECTOR), zero)  # NaN of what is not finite
            builder.store(builder.fadd(builder.load(total), nothing), total)
        wrong = builder.fcmp_unordered("uno", builder.load(total), zero)
        return builder.icmp_unsigned("==", builder.bitcast(wrong, ir.IntType(WIDTH)), ir.IntType(WIDTH)(0))

    return types.boolean(x, types.intp, types.intp), generate


@intrinsic
def count_bits(typing, word):  # type: ignore[no-untyped-def]
    """Return how many bits of a word are set."""
    return types.uint64(types.uint64), lambda context, builder, signature, arguments: builder.ctpop(arguments[0])


@intrinsic
def nonzero(typing, x, at):  # type: ignore[no-untyped-def]
    """Return a word whose bit k says that x[at + k] is not zero, k < 64; a NaN is not zero."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        source, at_ = data_of(context, builder, signature.args[0], arguments[0]), arguments[1]
        word, kind = ir.Constant(ir.IntType(64), 0), ir.IntType(64)
        for k in range(0, CHUNK, WIDTH):
            values = load(builder, source, builder.add(at_, at_.type(k)), VECTOR)
            bits = builder.fcmp_unordered("!=", values, ir.Constant(VECTOR, [0.0] * WIDTH))
            part = builder.zext(builder.bitcast(bits, ir.IntType(WIDTH)), kind)
            word = builder.or_(word, builder.shl(part, kind(k)))
        return word

    return types.uint64(x, types.intp), generate
