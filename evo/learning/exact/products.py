"""Matrix products of a learner's update: every sum in the order of its terms, products with zeros left out.

A product adds A[i, k] * B[k, :] to C[i, :] for the k, rising, at which A[i, k] is not zero; multiplication and addition
are rounded apart. Forward passes, gradients of inputs and gradients of kernels all have this form: activations by
weights, gradients of outputs by transposed weights, transposed gradients of outputs by activations. Behind a ReLU most
values of A are zeros, which costs nothing here. Sums of a row stay in registers while up to CHUNK of its terms are
added, and the rows of B that they take stay in the nearest cache for all rows of A.

With AVX-512, all products of one or two vectors of columns, as convolutions with few filters have, are computed where
enough factors are not zero, several rows at a time. That is faster, and changes no bit: see `_is_dense`.
"""

from __future__ import annotations

import numpy as np
from numba import njit

from evo.compiled import cache as kernel_cache
from evo.learning.exact.runs import WIDTH, copy_vector, transpose
from evo.learning.exact.terms import CHUNK, add_all, add_terms, count_bits, finite, nonzero

kernel_cache.use(__name__)

WIDE = "+avx512f" in kernel_cache.features().split(",")
# Vectors of a row whose sums stay in registers; 3 x 3 x 16 terms are 9. CHUNK rows of B take up to 36 kB then.
MOST = 9 if WIDE else 5
DENSE = 0.08, 0.3  # share of nonzero factors from which on all products of one and of two vectors are computed
SAMPLED = 16  # every so many rows are looked at for that
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
    if WIDE and b[2] == PACKED and c[2] != PACKED and columns <= 2 * WIDTH and _is_dense(a, b, shape):
        if columns <= WIDTH:
            add_all(1, c, start, a, (b[0], b[1], WIDTH), terms, rows)
        else:
            add_all(2, c, start, a, (b[0], b[1], 2 * WIDTH), terms, rows)
        return
    chunks = _masks_of(a[0], a[1], a[2], rows, terms, words)
    done, vectors = 0, -(-columns // WIDTH)
    while done < vectors:
        count = _share(vectors - done)
        line, distance = _columns(b[1], b[2], terms, done, count)
        to, step = _columns(c[1], c[2], rows, done, count)
        target = c[0], to, step
        to, step = _columns(start[1], start[2], rows, done, count)
        begin = start[0], to, step
        for k in range(0, terms, CHUNK):
            masks, factors = (words, k // CHUNK, chunks), (b[0], line + k * distance, distance)
            _add_any(count, target, begin, (a[0], a[1] + k, a[2]), masks, factors, rows)
            begin = target
        done += count


@njit(cache=True, error_model="numpy", nogil=True, _nrt=False, inline="always")
def _columns(at, distance, rows, done, count):  # type: ignore[no-untyped-def]
    """Return where `count` vectors of columns of a matrix of so many rows begin, behind `done`, and their distance."""
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
    """Return whether to compute all products of packed B, and not only those without zeros; a sample of A decides.

    With few columns the end of a mask, which a processor predicts wrongly, costs more than some products. A product
    with zero changes no sum where B is finite and no sum begins with -0.
    """
    rows, terms, columns = shape
    vectors, chunks = -(-columns // WIDTH), -(-terms // CHUNK)
    last = np.uint64(0xFFFFFFFFFFFFFFFF) >> np.uint64(chunks * CHUNK - terms)
    found, looked = np.int64(0), np.int64(0)
    for i in range(0, rows, SAMPLED):
        for q in range(chunks):
            word = nonzero(a[0], a[1] + i * a[2] + q * CHUNK)
            found += np.int64(count_bits(word & last if q == chunks - 1 else word))
        looked += terms
    return found > DENSE[vectors - 1] * looked and finite(b[0], b[1], terms * vectors)


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


if WIDE:

    @njit(cache=True, error_model="numpy", nogil=True, _nrt=False)
    def _add_any(count, c, start, a, masks, b, rows):  # type: ignore[no-untyped-def]
        if count <= 5:
            _add_few(count, c, start, a, masks, b, rows)
        elif count == 6:
            add_terms(6, c, start, a, masks, b, rows)
        elif count == 7:
            add_terms(7, c, start, a, masks, b, rows)
        elif count == 8:
            add_terms(8, c, start, a, masks, b, rows)
        else:
            add_terms(9, c, start, a, masks, b, rows)

else:

    @njit(cache=True, error_model="numpy", nogil=True, _nrt=False)
    def _add_any(count, c, start, a, masks, b, rows):  # type: ignore[no-untyped-def]
        _add_few(count, c, start, a, masks, b, rows)


@njit(cache=True, error_model="numpy", nogil=True, _nrt=False)
def _add_few(count, c, start, a, masks, b, rows):  # type: ignore[no-untyped-def]
    if count == 1:
        add_terms(1, c, start, a, masks, b, rows)
    elif count == 2:
        add_terms(2, c, start, a, masks, b, rows)
    elif count == 3:
        add_terms(3, c, start, a, masks, b, rows)
    elif count == 4:
        add_terms(4, c, start, a, masks, b, rows)
    else:
        add_terms(5, c, start, a, masks, b, rows)
