"""Products, copies and sums of an update's buffers, beside loops of NumPy that do one operation after the other."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numba import njit
from numpy.typing import NDArray

from evo.learning.exact import runs
from evo.learning.exact.products import CHUNK, DENSE, PACKED, WIDTH, multiply, pack, pack_transposed, transpose_packed

FLOATS = np.float32


def product(a: NDArray[np.float32], b: NDArray[np.float32], start: NDArray[np.float32]) -> NDArray[np.float32]:
    """Return start + a @ b, term after term, without the terms whose factor in `a` is zero."""
    c = np.repeat(start[None], len(a), 0)
    for row, factors in zip(c, a, strict=True):
        for k in np.flatnonzero(factors != 0):
            row += b[k] * factors[k]
    return c


def computed(a: NDArray[np.float32], b: NDArray[np.float32], start: NDArray[np.float32]) -> NDArray[np.float32]:
    """Return what `multiply` writes for packed B; nothing but C is written."""
    (rows, terms), columns = a.shape, b.shape[1]
    wide = runs.rounded(columns)
    packed, c = np.zeros(terms * wide + WIDTH, FLOATS), np.full((rows + 1, wide), 7, FLOATS)
    pack(np.append(b, np.zeros(WIDTH, FLOATS)).astype(FLOATS), 0, terms, columns, columns, packed, 0)
    padded, begin = np.zeros(rows * terms + CHUNK, FLOATS), np.zeros(wide, FLOATS)
    padded[: rows * terms], begin[:columns] = a.ravel(), start
    words = np.zeros(rows * -(-terms // CHUNK), np.uint64)
    multiply(
        (c.ravel(), 0, wide), (begin, 0, 0), (padded, 0, terms), (packed, 0, PACKED), words, (rows, terms, columns)
    )
    assert (c[rows] == 7).all()
    return c[:rows, :columns]


@pytest.mark.parametrize("density", [0.0, 0.01, 0.2, 0.5, 1.0])
@pytest.mark.parametrize("columns", [1, 8, 9, 16, 17, 32, 33, 150])
@pytest.mark.parametrize(("rows", "terms"), [(1, 1), (7, 45), (37, 64), (50, 150)])
def test_a_product_is_the_sum_of_its_terms_in_their_order(rows: int, terms: int, columns: int, density: float) -> None:
    random = np.random.default_rng(rows * terms + columns)
    a, b = random.standard_normal((rows, terms), FLOATS), random.standard_normal((terms, columns), FLOATS)
    a[random.random(a.shape) >= density] = 0
    a[0, 0] = -0.0
    start = random.standard_normal(columns, FLOATS)
    start[0] = 0
    np.testing.assert_array_equal(computed(a, b, start).view(np.int32), product(a, b, start).view(np.int32))


@pytest.mark.parametrize("rows", [1, 30, 144, 300])
@pytest.mark.parametrize("columns", [1, 16, 45])
def test_a_transpose_is_packed_as_if_it_were_written_first(rows: int, columns: int) -> None:
    matrix, wide = np.random.default_rng(rows).standard_normal((rows, columns), FLOATS), runs.rounded(rows)
    lines = np.zeros((columns, wide), FLOATS)
    lines[:, :rows] = matrix.T
    expected = np.zeros(columns * wide, FLOATS)
    pack(lines.ravel(), 0, columns, rows, wide, expected, 0)
    found = np.full(runs.rounded(columns) * wide + WIDTH, 7, FLOATS)
    flat = np.append(matrix, np.zeros(WIDTH * (columns + WIDTH), FLOATS)).astype(FLOATS)
    pack_transposed(flat, 0, rows, columns, found, 0)
    np.testing.assert_array_equal(found[: columns * wide], expected)
    assert (found[-WIDTH:] == 7).all()


@pytest.mark.parametrize("packs", [False, True])
@pytest.mark.parametrize("columns", [1, 16, 30, 144, 300])
@pytest.mark.parametrize("rows", [3, 16, 32])
def test_sums_in_blocks_of_columns_are_the_same_sums(rows: int, columns: int, packs: bool) -> None:
    random, terms, wide = np.random.default_rng(columns), 70, runs.rounded(columns)
    a, b = random.standard_normal((rows, terms), FLOATS), np.zeros((terms, wide), FLOATS)
    b[:, :columns] = random.standard_normal((terms, columns))
    padded, words = np.append(a, np.zeros(CHUNK, FLOATS)).astype(FLOATS), np.zeros(rows * 2, np.uint64)
    sums, zeros = np.full((rows + 1) * wide, 7, FLOATS), np.zeros(wide, FLOATS)
    factors = b.ravel(), 0, wide
    if packs:
        factors = np.zeros(terms * wide + WIDTH, FLOATS), 0, int(PACKED)
        pack(np.append(b, np.zeros(WIDTH, FLOATS)).astype(FLOATS), 0, terms, columns, wide, factors[0], 0)
    for start in ((zeros, 0, 0), (sums, 0, PACKED)):
        multiply((sums, 0, PACKED), start, (padded, 0, terms), factors, words, (rows, terms, columns))
    assert (sums[rows * wide :] == 7).all()
    turned = np.zeros((wide + WIDTH) * rows, FLOATS)
    transpose_packed(sums, 0, rows, columns, turned, 0)
    once = product(a, b, zeros)
    twice = np.array([product(a[i : i + 1], b, once[i])[0] for i in range(rows)])
    np.testing.assert_array_equal(turned[: columns * rows].reshape(columns, rows), twice[:, :columns].T)


@pytest.mark.parametrize("columns", [8, 16, 32, 48])
@pytest.mark.parametrize("bad", [np.inf, -np.inf, np.nan])
def test_a_weight_that_is_not_finite_spoils_no_sum_in_which_its_factor_is_zero(bad: float, columns: int) -> None:
    random = np.random.default_rng(1)
    a, b = random.standard_normal((40, 20), FLOATS), random.standard_normal((20, columns), FLOATS)
    a[:39, 5], b[5, 3] = 0, bad
    assert np.count_nonzero(a) / a.size > max(DENSE)
    found = computed(a, b, np.zeros(columns, FLOATS))
    np.testing.assert_array_equal(found, product(a, b, np.zeros(columns, FLOATS)))
    assert np.isfinite(found[:39]).all()
    assert not np.isfinite(found[39, 3])


@njit
def _copied(y: Any, to: int, x: Any, at: int, count: int) -> None:
    runs.copy(y, to, x, at, count)


@njit
def _added(y: Any, to: int, x: Any, at: int, count: int) -> None:
    runs.add(y, to, x, at, count)


@njit
def _rectified(y: Any, to: int, x: Any, at: int, count: int) -> None:
    runs.copy_rectified(y, to, x, at, count)


@njit
def _where_positive(y: Any, to: int, x: Any, at: int, z: Any, count: int) -> None:
    runs.copy_where_positive(y, to, x, at, z, at, count)


@given(st.integers(0, 70), st.integers(0, 20), st.integers(0, 20))
def test_a_run_of_any_length_is_written_and_nothing_behind_it(count: int, to: int, at: int) -> None:
    random = np.random.default_rng(count)
    x, z, before = (random.standard_normal(120).astype(FLOATS) for _ in range(3))
    place, source = slice(to, to + count), slice(at, at + count)
    wanted = {
        _copied: x[source],
        _added: before[place] + x[source],
        _rectified: np.maximum(x[source], 0),
        _where_positive: np.where(z[source] > 0, x[source], FLOATS(0)),
    }
    for function, values in wanted.items():
        y, expected = before.copy(), before.copy()
        expected[place] = values
        others = (z,) if function is _where_positive else ()
        function(y, to, x, at, *others, count)
        np.testing.assert_array_equal(y, expected)


@njit
def _rows_added(y: Any, x: Any, distance: int, count: int) -> None:
    runs.add_rows(y, 2, x, 3, distance, count)


@given(st.integers(0, 40), st.integers(16, 40))
def test_rows_are_added_one_after_the_other(count: int, distance: int) -> None:
    random = np.random.default_rng(distance)
    x, y = random.standard_normal(3 + 41 * distance).astype(FLOATS), random.standard_normal(20).astype(FLOATS)
    expected = y.copy()
    for row in range(count):
        at = 3 + row * distance
        expected[2:18] += x[at : at + WIDTH]
    _rows_added(y, x, distance, count)
    np.testing.assert_array_equal(y, expected)
