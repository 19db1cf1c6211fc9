"""A stream is a name: pinned, apart from every other, and the same however it is drawn."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from evo.randomness import philox_compiled
from evo.randomness.streams import (
    SEED_LIMIT,
    Purpose,
    candidate_keys,
    draw,
    episode_keys,
    philox,
    seeds_of_test_episodes,
    stream,
)
from evo.rollouts import action_rules

WORD = st.integers(0, 2**32 - 1)
SEED = st.integers(0, SEED_LIMIT - 1)


@pytest.mark.parametrize(
    ("key", "counter", "words"),
    [  # known answers of Random123, philox4x32-10
        (0, (0, 0, 0, 0), (0x6627E8D5, 0xE169C58D, 0xBC57AC4C, 0x9B00DBD8)),
        ((1 << 64) - 1, (0xFFFFFFFF,) * 4, (0x408F276D, 0x41C83B0E, 0xA20BC7C6, 0x6D5451FD)),
        (
            0x299F31D0A4093822,
            (0x243F6A88, 0x85A308D3, 0x13198A2E, 0x03707344),
            (0xD16CFE09, 0x94FDCCEB, 0x5001E420, 0x24126EA1),
        ),
    ],
)
def test_both_forms_of_philox_give_the_known_answers(key: int, counter: tuple[int, ...], words: tuple[int]) -> None:
    assert philox(key, counter) == words
    assert tuple(int(word) for word in compiled(key, counter)) == words


def compiled(key: int, counter: tuple[int, ...]) -> tuple[int, ...]:
    return philox_compiled.philox(np.uint64(key), *(np.uint64(word) for word in counter))


@settings(deadline=None)
@given(SEED, st.tuples(WORD, WORD, WORD, WORD))
def test_the_compiled_words_are_the_plain_ones(key: int, counter: tuple[int, int, int, int]) -> None:
    assert tuple(int(word) for word in compiled(key, counter)) == philox(key, counter)


@settings(deadline=None)  # the first call compiles
@given(SEED, WORD, st.integers(1, 2**32), st.integers(0, 3))
def test_the_compiled_draw_is_the_plain_one(key: int, index: int, below: int, purpose: int) -> None:
    found = philox_compiled.draw(np.uint64(key), np.uint64(index), below, np.uint64(purpose))
    assert found == draw(key, index, below, purpose) < below


def test_a_draw_above_the_limit_is_rejected_and_not_folded() -> None:
    below = (1 << 31) + 1  # nearly half of all words are refused
    words = [word for i in range(50) for word in philox(5, (0, i, 0, 0))[:1]]
    refused = [i for i, word in enumerate(words) if word >= below]
    assert refused
    for i in refused:
        assert draw(5, i, below) != words[i] % below


def test_the_numbers_of_the_purposes_are_part_of_the_file_formats() -> None:
    assert {purpose.name: int(purpose) for purpose in Purpose} == {
        "INITIAL": 1,
        "MUTATION": 2,
        "PARENT": 3,
        "SIGMA": 4,
        "TOURNAMENT": 5,
        "TRAINING": 6,
        "VALIDATION": 7,
        "TEST": 8,
        "ACTION": 9,
        "ENV": 11,
        "SHUFFLE": 12,
        "REPLAY": 13,
        "MIRROR": 14,
        "EXPLORE": 15,
        "GAME": 16,
        "NOISE": 17,
        "OPPONENT": 18,
        "START": 19,
    }
    assert action_rules.ACTION == 9


def test_streams_have_the_pinned_keys() -> None:
    assert stream(0, Purpose.INITIAL) == 0x5CB200DBF8E4CCA4
    assert stream(2**64 - 1, Purpose.TEST, 3, 4, 5) == 0x2915C12C69606C3F


def test_whole_numbers_of_numpy_name_the_same_streams() -> None:
    for kind in (np.int8, np.int32, np.uint32, np.int64, np.uint64):
        assert stream(kind(7), Purpose.TEST, kind(1), kind(2), kind(3)) == stream(7, Purpose.TEST, 1, 2, 3)
        assert seeds_of_test_episodes(2, kind(9)).tolist() == seeds_of_test_episodes(2, 9).tolist()


def test_every_part_of_a_name_makes_another_stream() -> None:
    names = itertools.product((0, 1, 2**63), (Purpose.TRAINING, Purpose.ACTION), (0, 1), (0, 1), (0, 1))
    keys = [stream(*name) for name in names]
    assert len(set(keys)) == len(keys) == 48


@given(SEED, st.integers(0, 1000), st.integers(0, 20), st.integers(0, 20))
def test_episodes_are_numbered_so_that_fewer_are_a_prefix(seed: int, generation: int, first: int, count: int) -> None:
    keys = episode_keys(seed, Purpose.TRAINING, generation, first + count)
    assert keys.dtype == np.uint64
    assert keys[:first].tolist() == episode_keys(seed, Purpose.TRAINING, generation, first).tolist()
    assert keys[first:].tolist() == episode_keys(seed, Purpose.TRAINING, generation, count, first).tolist()


def test_training_validation_and_test_episodes_never_meet() -> None:
    train = [episode_keys(0, Purpose.TRAINING, generation, 100) for generation in range(20)]
    every = np.concatenate([*train, episode_keys(0, Purpose.VALIDATION, 0, 1000), seeds_of_test_episodes(1000)])
    assert len(np.unique(every)) == len(every)


@given(SEED, WORD)
def test_streams_of_many_candidates_have_the_names_of_each(seed: int, generation: int) -> None:
    keys = candidate_keys(seed, Purpose.MUTATION, generation, 3, 9)
    assert keys.tolist() == [stream(seed, Purpose.MUTATION, generation, candidate) for candidate in range(3, 9)]
