"""Matrix products of a learner's update: every sum in the order of its terms, products with zeros left out.

A product adds A[i, k] * B[k, :] to C[i, :] for the k, rising, at which A[i, k] is not zero; multiplication and addition
are rounded apart. Forward passes, gradients of inputs and gradients of kernels all have this form: activations by
weights, gradients of outputs by transposed weights, transposed gradients of outputs by activations. Behind a ReLU most
values of A are zeros, which costs nothing here. Sums of a row stay in registers while up to CHUNK of its terms are
added, and the rows of B that they take stay in the nearest cache for all rows of A.

All products of one or two registers of columns, as output layers and convolutions with few filters have, are computed
where enough factors are not zero, several rows at a time. That is faster, and changes no bit: see `_is_dense`.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from llvmlite import ir
from numba import njit, types
from numba.core import cgutils

from evo.compiled import cache as kernel_cache
from evo.kernels.vectors import broadcast, each_bit, each_case, emitted, load, store
from evo.learning.exact.runs import VECTOR, WIDTH, copy_vector, transpose

kernel_cache.use(__name__)

WIDE = "+avx512f" in kernel_cache.features().split(",")
# Vectors of a row whose sums stay in registers; 3 x 3 x 16 terms are 9. CHUNK rows of B take up to 36 kB then.
MOST = 9 if WIDE else 6
REGISTER = WIDTH if WIDE else WIDTH // 2  # floats of the processor's registers
# Share of nonzero factors from which on all products of one and of two registers are computed, and the rows whose sums
# stay in registers together then.
DENSE, TILE = ((0.08, 0.3), (8, 6)) if WIDE else ((0.15, 0.35), (8, 4))
SAMPLED = 16  # of this many rows, one is counted to estimate that share
CHUNK = 64  # terms that a mask has, and that are added while their sums are in registers
PACKED = np.int64(-1)  # in place of the distance of rows: of a matrix in blocks of columns


@njit(cache=True, error_model="numpy", nogil=True, _nrt=False)
def multiply(c, start, a, b, words, shape):  # type: ignore[no-untyped-def]
    """Write the sum of `start` and the product of A [rows, terms] and B [terms, columns] to C [rows, columns].

    c, start, a, b: (array, at, distance of rows); `start` may be C itself, or one row at distance 0. B or C may be
    PACKED: in blocks of columns, as `pack` writes them. `words` [rows * chunks] is overwritten. shape: (rows, terms,
    columns). Columns are computed in whole vectors; 64 floats behind a row of A may be read, and are ignored.
    """
    rows, terms, columns = shape
    if rows == 0:
        return
    vectors, registers = -(-columns // WIDTH), -(-columns // REGISTER)
    row = vectors * WIDTH  # of a packed matrix that is one block of columns
    if registers <= len(TILE) and (b[2] == PACKED or b[2] == row) and _is_dense(a, b, shape):
        _add_all(registers, _spread(c, row), _spread(start, row), a, _spread(b, row), terms, rows)
        return
    chunks = _masks_of(a[0], a[1], a[2], rows, terms, words)
    done = 0
    while done < vectors:
        count = _share(vectors - done)
        line, distance = _columns(b[1], b[2], terms, done, count)
        to, step = _columns(c[1], c[2], rows, done, count)
        target = c[0], to, step
        to, step = _columns(start[1], start[2], rows, done, count)
        begin = start[0], to, step
        for k in range(0, terms, CHUNK):
            masks, factors = (words, k // CHUNK, chunks), (b[0], line + k * distance, distance)
            _add_terms(count, target, begin, (a[0], a[1] + k, a[2]), masks, factors, rows)
            begin = target
        done += count


@njit(cache=True, error_model="numpy", nogil=True, _nrt=False, inline="always")
def _spread(matrix, row):  # type: ignore[no-untyped-def]
    """Return a matrix with the distance of its rows, which is `row` where it is packed."""
    return matrix[0], matrix[1], row if matrix[2] == PACKED else matrix[2]


@njit(cache=True, error_model="numpy", nogil=True, _nrt=False, inline="always")
def _columns(at, distance, rows, done, count):  # type: ignore[no-untyped-def]
    """Return where `count` vectors of columns begin, after the first `done` of `rows` rows, and their distance."""
    if distance == PACKED:
        return at + done * WIDTH * rows, count * WIDTH
    return at + done * WIDTH, distance


@njit(cache=True, error_model="numpy", nogil=True, _nrt=False, inline="always")
def _masks_of(a, at, distance, rows, terms, words):  # type: ignore[no-untyped-def]
    """Write a word for every row of A and every chunk of its terms."""
    chunks = -(-terms // CHUNK)
    last = np.uint64(0xFFFFFFFFFFFFFFFF) >> np.uint64(chunks * CHUNK - terms)
    for i in range(rows):
        for q in range(chunks):
            words[i * chunks + q] = nonzero(a, at + i * distance + q * CHUNK)
        words[i * chunks + chunks - 1] &= last
    return chunks


@njit(cache=True, error_model="numpy", nogil=True, _nrt=False)
def _is_dense(a, b, shape):  # type: ignore[no-untyped-def]
    """Return whether to compute all products of B, whose rows lie side by side, or only those without zeros.

    A sample of A says so.

    With few columns, a mispredicted branch at the end of a mask costs more than some products. A product with zero
    changes no sum where B is finite and no sum begins with -0.
    """
    rows, terms, columns = shape
    vectors, registers, chunks = -(-columns // WIDTH), -(-columns // REGISTER), -(-terms // CHUNK)
    last = np.uint64(0xFFFFFFFFFFFFFFFF) >> np.uint64(chunks * CHUNK - terms)
    found, looked = np.int64(0), np.int64(0)
    for i in range(0, rows, SAMPLED):
        for q in range(chunks):
            word = nonzero(a[0], a[1] + i * a[2] + q * CHUNK)
            found += count_bits(word & last if q == chunks - 1 else word)
        looked += terms
    return found > DENSE[registers - 1] * looked and finite(b[0], b[1], terms * vectors)


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


@njit(cache=True, error_model="numpy", nogil=True, _nrt=False)
def pack_transposed(x, at, rows, columns, y, to):  # type: ignore[no-untyped-def]
    """Write the transpose of a matrix [rows, columns] as `pack` writes it, and up to 15 more rows of a block."""
    done, vectors = 0, -(-rows // WIDTH)
    while done < vectors:
        width = _share(vectors - done) * WIDTH
        begin = done * WIDTH * columns
        transpose(x, at + begin, width, columns, columns, y, to + begin, width)
        done += width // WIDTH


@njit(cache=True, error_model="numpy", nogil=True, _nrt=False)
def transpose_packed(x, at, rows, columns, y, to):  # type: ignore[no-untyped-def]
    """y[to + j * rows + i] = element i, j of a packed matrix from x[at:] on; up to 15 more columns are written."""
    done, vectors = 0, -(-columns // WIDTH)
    while done < vectors:
        count = _share(vectors - done)
        place, width = at + done * WIDTH * rows, count * WIDTH
        if rows % WIDTH == 0:
            transpose(x, place, rows, width, width, y, to + done * WIDTH * rows, rows)
        else:
            for j in range(min(width, columns - done * WIDTH)):
                for i in range(rows):
                    y[to + (done * WIDTH + j) * rows + i] = x[place + i * width + j]
        done += count


def _begins(builder: Any, *matrices: Any) -> tuple[list[Any], list[Any]]:
    """Return where matrices (array, at, distance) begin, and their distances."""
    return [builder.gep(array, [at]) for array, at, _ in matrices], [distance for _, _, distance in matrices]


@emitted()
def _terms_code(builder, vectors, c, start, a, masks, b, rows):  # type: ignore[no-untyped-def]
    """Write `vectors` <= MOST vectors of each row of C: those of `start`, and the terms of a chunk.

    c: (C, at, distance of rows), and so are start, a and b; masks: (words, at, distance): bit k of row i's word says
    that A[i, k] is not zero. The code of every number of vectors is its own, so that sums are in registers.
    """
    bases, distances = _begins(builder, c, start, a, masks, b)

    def compute(count: int) -> None:
        totals = [cgutils.alloca_once(builder, VECTOR) for _ in range(count)]
        with cgutils.for_range(builder, rows) as row:
            target, begin, terms, word = (
                builder.gep(base, [builder.mul(row.index, distance)])
                for base, distance in zip(bases[:4], distances[:4], strict=True)
            )
            place = [ir.Constant(row.index.type, v * WIDTH) for v in range(count)]
            for total, at in zip(totals, place, strict=True):
                builder.store(load(builder, begin, at, VECTOR), total)

            def add(k: Any) -> None:
                factor = broadcast(builder, terms, k, WIDTH)
                line = builder.gep(bases[4], [builder.mul(k, distances[4])])
                for total, at in zip(totals, place, strict=True):
                    product = builder.fmul(load(builder, line, at, VECTOR), factor)
                    builder.store(builder.fadd(builder.load(total), product), total)

            each_bit(builder, builder.load(word), add)
            for total, at in zip(totals, place, strict=True):
                store(builder, builder.load(total), target, at)

    each_case(builder, vectors, range(1, MOST + 1), compute)


@njit(cache=True, error_model="numpy", nogil=True, _nrt=False)
def _add_terms(vectors, c, start, a, masks, b, rows):  # type: ignore[no-untyped-def]
    _terms_code(vectors, c, start, a, masks, b, rows)


@emitted()
def _add_all(builder, registers, c, start, a, b, terms, rows):  # type: ignore[no-untyped-def]
    """Write one or two `registers` of each row of C: those of `start` and all terms, also those that are zero.

    c, start, a, b: (array, at, distance of rows). Several rows are computed together, so that none waits for its own
    sums.
    """
    bases, distances = _begins(builder, c, start, a, b)
    i64, kind = rows.type, ir.VectorType(ir.FloatType(), REGISTER)

    def compute(count: int, first: Any, size: int) -> None:
        place = [i64(v * REGISTER) for v in range(count)]
        numbers = [builder.add(first, i64(r)) for r in range(size)]
        lines = [
            [builder.gep(base, [builder.mul(row, distance)]) for row in numbers]
            for base, distance in zip(bases[:3], distances[:3], strict=True)
        ]
        totals = [[cgutils.alloca_once(builder, kind) for _ in place] for _ in numbers]
        for begin, sums in zip(lines[1], totals, strict=True):
            for total, at in zip(sums, place, strict=True):
                builder.store(load(builder, begin, at, kind), total)
        with cgutils.for_range(builder, terms) as k:
            line = builder.gep(bases[3], [builder.mul(k.index, distances[3])])
            weights = [load(builder, line, at, kind) for at in place]
            for factors, sums in zip(lines[2], totals, strict=True):
                factor = broadcast(builder, factors, k.index, REGISTER)
                for total, weight in zip(sums, weights, strict=True):
                    builder.store(builder.fadd(builder.load(total), builder.fmul(weight, factor)), total)
        for target, sums in zip(lines[0], totals, strict=True):
            for total, at in zip(sums, place, strict=True):
                store(builder, builder.load(total), target, at)

    def tiled(count: int) -> None:
        tile = TILE[count - 1]
        tiles = builder.udiv(rows, i64(tile))
        with cgutils.for_range(builder, tiles) as loop:
            compute(count, builder.mul(loop.index, i64(tile)), tile)
        with cgutils.for_range(builder, builder.urem(rows, i64(tile))) as loop:
            compute(count, builder.add(builder.mul(tiles, i64(tile)), loop.index), 1)

    each_case(builder, registers, range(1, len(TILE) + 1), tiled)


@emitted(types.boolean)
def finite(builder, x, at, count):  # type: ignore[no-untyped-def]
    """Return whether `count` vectors from x[at] are finite."""
    zero = ir.Constant(VECTOR, [0.0] * WIDTH)
    total = cgutils.alloca_once(builder, VECTOR)
    builder.store(zero, total)
    with cgutils.for_range(builder, count) as loop:
        place = builder.add(at, builder.mul(loop.index, loop.index.type(WIDTH)))
        nothing = builder.fmul(load(builder, x, place, VECTOR), zero)  # NaN of what is not finite
        builder.store(builder.fadd(builder.load(total), nothing), total)
    wrong = builder.fcmp_unordered("uno", builder.load(total), zero)
    return builder.icmp_unsigned("==", builder.bitcast(wrong, ir.IntType(WIDTH)), ir.IntType(WIDTH)(0))


@emitted(types.int64)
def count_bits(builder, word):  # type: ignore[no-untyped-def]
    """Return how many bits of a word are set."""
    return builder.ctpop(word)


@emitted(types.uint64)
def nonzero(builder, x, at):  # type: ignore[no-untyped-def]
    """Return a word whose bit k says that x[at + k] is not zero, k < 64; a NaN is not zero."""
    word, kind = ir.Constant(ir.IntType(64), 0), ir.IntType(64)
    for k in range(0, CHUNK, WIDTH):
        values = load(builder, x, builder.add(at, at.type(k)), VECTOR)
        bits = builder.fcmp_unordered("!=", values, ir.Constant(VECTOR, [0.0] * WIDTH))
        part = builder.zext(builder.bitcast(bits, ir.IntType(WIDTH)), kind)
        word = builder.or_(word, builder.shl(part, kind(k)))
    return word
