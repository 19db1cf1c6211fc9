from __future__ import annotations

import hashlib
import struct
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from evo.files.arrays import ArrayDigest, Digests, array_digest, first_hash, next_hash
from evo.files.durable import canonical_json


def test_the_first_hash_is_the_sha256_of_the_identity_with_sorted_keys_and_no_spaces() -> None:
    assert first_hash({"seed": 1, "ga": {"b": 0.5, "a": [1, "é"]}}) == (
        hashlib.sha256('{"ga":{"a":[1,"é"],"b":0.5},"seed":1}'.encode()).hexdigest()
    )


def test_not_a_number_has_no_canonical_json() -> None:
    with pytest.raises(ValueError, match="JSON"):
        canonical_json({"sigma": float("nan")})


def test_the_chain_hashes_exactly_the_bytes_that_the_documentation_names() -> None:
    previous = first_hash({"seed": 1})
    keys = np.array([[1, 2], [3, 4]], np.uint64)
    weights = np.array([[1.0, 2.0], [3.0, -0.0]], np.float32)
    rows = hashlib.sha256(weights[0].tobytes()).digest() + hashlib.sha256(weights[1].tobytes()).digest()
    expected = bytes.fromhex(previous) + (7).to_bytes(8, "little")
    expected += b"\x0b\0\0\0record/keys\x03\0\0\0<u8" + struct.pack("<IQQ", 2, 2, 2)
    expected += hashlib.sha256(keys.tobytes()).digest()
    expected += b"\x0d\0\0\0state/weights\x03\0\0\0<f4" + struct.pack("<IQQ", 2, 2, 2) + hashlib.sha256(rows).digest()
    arrays = {"state/weights": array_digest("weights", weights), "record/keys": array_digest("keys", keys)}
    assert next_hash(previous, 7, arrays) == hashlib.sha256(expected).hexdigest()


def test_a_digest_does_not_depend_on_memory_order_or_byte_order() -> None:
    array = np.arange(12, dtype=np.int32).reshape(3, 4)
    for same in (np.asfortranarray(array), array.astype(">i4"), np.repeat(array, 2, axis=1)[:, ::2]):
        assert array_digest("x", same) == array_digest("x", array)


@pytest.mark.parametrize(
    ("name", "other"),
    [
        ("dtype", np.arange(4, dtype=np.uint32)),
        ("shape", np.arange(4, dtype=np.int32).reshape(2, 2)),
        ("value", np.array([0, 1, 2, 4], np.int32)),
    ],
)
def test_another_dtype_shape_or_value_is_another_hash(name: str, other: np.ndarray) -> None:
    first = first_hash({})
    array = array_digest("x", np.arange(4, dtype=np.int32))
    assert next_hash(first, 0, {"state/x": array}) != next_hash(first, 0, {"state/x": array_digest("x", other)})


def test_name_generation_and_the_hash_before_are_in_the_hash() -> None:
    first = first_hash({})
    array = array_digest("x", np.arange(4))
    hashes = {
        next_hash(first, 0, {"state/x": array}),
        next_hash(first, 0, {"record/x": array}),
        next_hash(first, 1, {"state/x": array}),
        next_hash(first_hash({"seed": 2}), 0, {"state/x": array}),
        next_hash(first, 0, {}),
    }
    assert len(hashes) == 5


def test_one_changed_bit_of_any_weight_changes_the_digest_of_a_matrix() -> None:
    weights = np.zeros((3, 5), np.float32)
    seen = {array_digest("weights", weights).sha256}
    for index in np.ndindex(3, 5):
        changed = weights.copy()
        changed[index] = -0.0
        seen.add(array_digest("weights", changed).sha256)
    assert len(seen) == 16


@pytest.mark.parametrize("array", [np.zeros(()), np.zeros((0, 3), np.float32), np.zeros((2, 0), np.float32)])
def test_empty_and_scalar_arrays_have_a_digest(array: np.ndarray) -> None:
    for name in ("x", "weights"):
        assert array_digest(name, array).shape == array.shape


@pytest.mark.parametrize("array", [np.array(["a"]), np.array([None]), np.zeros(1, complex), np.zeros(1, "M8[s]")])
def test_only_numbers_have_a_digest(array: np.ndarray) -> None:
    with pytest.raises(TypeError, match="only boolean"):
        array_digest("x", array)


def test_a_chain_of_three_generations_is_pinned() -> None:
    state_hash = first_hash({"seed": 1})
    for generation in range(3):
        number = array_digest("n", np.array([generation], np.int64))
        arrays = {"state/n": number, "record/flag": ArrayDigest("|b1", (), "0" * 64)}
        state_hash = next_hash(state_hash, generation, arrays)
    assert state_hash == "87363320c90bbbceb5e18a421d840455c06a90ac614f5010bb4da65050445c40"


def counted(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Return the sizes of everything that is hashed from here on."""
    sizes: list[int] = []

    def sha256(data: bytes = b"") -> Any:
        sizes.append(memoryview(data).nbytes)
        return hashlib.sha256(data)

    monkeypatch.setattr("evo.files.arrays.hashlib", SimpleNamespace(sha256=sha256))
    return sizes


def matrix(rows: int, columns: int = 20_000) -> np.ndarray:
    return np.random.default_rng(rows).normal(size=(rows, columns)).astype(np.float32)


def kept(array: np.ndarray) -> np.ndarray:
    array.setflags(write=False)
    return array


def test_an_array_that_was_there_before_is_not_hashed_again(monkeypatch: pytest.MonkeyPatch) -> None:
    digests, first = Digests(), kept(matrix(5))
    expected = array_digest("weights", first)
    assert digests.of("weights", first) == expected
    sizes = counted(monkeypatch)
    assert digests.of("weights", first) == digests.of("weights", first.copy()) == expected
    assert sizes == []
    assert digests.of("weights", first[:4].copy()) != expected
    assert sizes.count(80_000) == 4


def test_arrays_that_are_equal_as_numbers_but_not_as_bytes_are_told_apart() -> None:
    digests, zeros = Digests(), kept(np.zeros((2, 20_000), np.float32))
    digests.of("weights", zeros)
    other = np.zeros((2, 20_000), np.float32)
    other[1, 9_000] = -0.0
    other[0, 9_000] = np.nan
    assert digests.of("weights", other) == array_digest("weights", other) != array_digest("weights", zeros)


def test_an_array_that_may_be_written_into_is_hashed_every_time() -> None:
    digests, mine = Digests(), matrix(4)
    view = mine[:]
    view.setflags(write=False)  # which says nothing of the memory behind it
    for seen in (mine, view):
        before = digests.of("weights", seen)
        mine[2, 7] += 1
        assert digests.of("weights", seen) == array_digest("weights", mine) != before


@given(st.lists(st.lists(st.integers(0, 3), min_size=1, max_size=6), min_size=1, max_size=6), st.booleans())
def test_any_sequence_of_matrices_has_the_digests_that_it_has_without_memory(
    picks: list[list[int]], keep: bool
) -> None:
    digests, pool = Digests(), matrix(4)
    for pick in picks:
        array = pool[pick]
        array.setflags(write=not keep)
        assert digests.of("weights", array) == array_digest("weights", array)
        assert digests.of("other", array) == array_digest("other", array)
