"""Both forms of Philox4x32-10, held to the published vectors and to each other."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numba import njit

from evo.randomness import philox_compiled, streams
from evo.randomness.streams import Words, draw, philox

WORD = st.integers(0, 2**32 - 1)
ONES = 2**32 - 1

# The known answers of Random123 (kat_vectors, philox 4x32 10): counter, key (low word first), words.
VECTORS: list[tuple[Words, tuple[int, int], Words]] = [
    ((0, 0, 0, 0), (0, 0), (0x6627E8D5, 0xE169C58D, 0xBC57AC4C, 0x9B00DBD8)),
    ((ONES, ONES, ONES, ONES), (ONES, ONES), (0x408F276D, 0x41C83B0E, 0xA20BC7C6, 0x6D5451FD)),
    (
        (0x243F6A88, 0x85A308D3, 0x13198A2E, 0x03707344),
        (0xA4093822, 0x299F31D0),
        (0xD16CFE09, 0x94FDCCEB, 0x5001E420, 0x24126EA1),
    ),
]


@njit(cache=True, error_model="numpy")
def compiled_words(key, c0, c1, c2, c3):  # type: ignore[no-untyped-def]
    return philox_compiled.philox(key, c0, c1, c2, c3)


@pytest.mark.parametrize(("counter", "key", "words"), VECTORS)
def test_the_published_vectors_come_out_of_both_forms(counter: Words, key: tuple[int, int], words: Words) -> None:
    whole_key = key[0] | key[1] << 32
    assert philox(whole_key, counter) == words
    assert tuple(int(word) for word in compiled_words(np.uint64(whole_key), *counter)) == words


@settings(max_examples=200, deadline=None)
@given(key=st.integers(0, 2**64 - 1), counter=st.tuples(WORD, WORD, WORD, WORD))
def test_the_compiled_words_are_the_plain_ones(key: int, counter: Words) -> None:
    compiled = compiled_words(np.uint64(key), *counter)
    assert tuple(int(word) for word in compiled) == philox(key, counter)


# Close to 2^32, up to half of all words are rejected: more than the four of one counter.
@settings(max_examples=200, deadline=None)
@given(
    key=st.integers(0, 2**64 - 1),
    index=WORD,
    below=st.one_of(st.integers(1, 4096), st.integers(1, 2**32), st.integers(2**31 + 1, 2**31 + 9)),
    purpose=st.integers(0, 9),
)
def test_a_compiled_draw_is_the_plain_one(key: int, index: int, below: int, purpose: int) -> None:
    plain = draw(key, index, below, purpose)
    assert 0 <= plain < below
    assert int(philox_compiled.draw(np.uint64(key), index, below, purpose)) == plain


def test_a_rejected_counter_goes_on_to_the_next_one() -> None:
    below = 2**31 + 1  # nearly half of all words are rejected, so four in a row with one counter in seventeen
    limit = below
    keys = [key for key in range(400) if all(word >= limit for word in philox(key, (0, 5, 0, 0)))]
    assert keys
    for key in keys:
        words = [word for attempt in range(9) for word in philox(key, (attempt, 5, 0, 0))]
        first = next(word for word in words if word < limit)
        assert draw(key, 5, below) == first
        assert int(philox_compiled.draw(np.uint64(key), 5, below, 0)) == first


def test_keys_indices_and_purposes_name_different_draws() -> None:
    name = {"key": 1, "index": 2, "below": 2**32, "purpose": 3}
    first = draw(**name)
    assert draw(**name) == first
    for part in ("key", "index", "purpose"):
        assert draw(**{**name, part: name[part] + 1}) != first


def test_draws_are_uniform() -> None:
    counts = Counter(draw(7, index, 10) for index in range(20_000))
    statistic = sum((counts[face] - 2000) ** 2 / 2000 for face in range(10))
    assert statistic < 27.9  # chi-square with nine degrees of freedom: 99.9 %


@pytest.mark.parametrize(("counter", "key", "words"), VECTORS)
def test_the_published_vectors_come_out_of_arrays(counter: Words, key: tuple[int, int], words: Words) -> None:
    keys = np.array([0, key[0] | key[1] << 32], np.uint64)
    assert tuple(int(word[1]) for word in streams.philox_each(keys, *counter)) == words


@settings(max_examples=50)
@given(
    st.lists(st.integers(0, 2**64 - 1), min_size=1, max_size=9),
    WORD,
    st.sampled_from([1, 2, 64, 1000, 2**31 + 1, 2**32]),
)
def test_draws_of_arrays_are_the_plain_ones_also_where_some_are_rejected(
    keys: list[int], index: int, below: int
) -> None:
    drawn = streams.draws(np.array(keys, np.uint64), index, below)
    assert drawn.tolist() == [draw(key, index, below) for key in keys]
    limits = np.array([max(1, below - k) for k in range(len(keys))], np.int64)
    each = streams.draws(np.array(keys, np.uint64), index, limits)
    assert each.tolist() == [draw(key, index, limit) for key, limit in zip(keys, limits.tolist(), strict=True)]
