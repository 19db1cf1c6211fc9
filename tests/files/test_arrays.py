from __future__ import annotations

import io
import random
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import h5py
import numpy as np
import pytest

from evo.errors import DataError
from evo.files import arrays as files
from evo.files.arrays import LARGE, Arrays, Layout, array_layout, decode, encode, layouts, pieces

ARRAYS = {"weights": np.arange(600, dtype=np.float32).reshape(6, 100), "flags": np.array([True, False])}
EXPECTED = {"weights": Layout("<f4", (6, 100))}


def test_equal_arrays_are_equal_bytes_and_come_back_equal() -> None:
    data = encode(ARRAYS)
    assert data == encode({name: array.copy() for name, array in reversed(ARRAYS.items())})
    loaded = decode(data, layouts(ARRAYS), "file")
    assert loaded.keys() == ARRAYS.keys()
    assert all(np.array_equal(loaded[name], array) for name, array in ARRAYS.items())


def by_hdf5(arrays: Arrays) -> bytes:
    """Return the file that libhdf5 writes with the values of the arrays."""
    return files._image(dict(sorted(files.checked(arrays).items())))[0]


def test_arrays_stand_in_a_file_as_hdf5_puts_them_and_large_ones_are_not_copied() -> None:
    weights = np.random.default_rng(1).random((3, LARGE // 4 + 7), np.float32)
    large = {"weights": weights, "champion": weights[:0], "none": np.int64(3), "steps": np.arange(5), "z": weights[1]}
    own = [piece for piece in pieces(large) if np.shares_memory(np.frombuffer(piece, np.uint8), weights)]
    assert [len(piece) for piece in own] == [weights.nbytes, weights[1].nbytes]
    again, data = encode({name: array + 1 for name, array in large.items()}), encode(large)
    assert np.array_equal(decode(data, layouts(large), "file")["weights"], weights)
    assert data == by_hdf5(large)
    assert again == by_hdf5({name: array + 1 for name, array in large.items()})
    small = {name: array[:7] if array.ndim else array for name, array in large.items() if name != "weights"}
    assert encode(small) == by_hdf5(small)
    assert encode(ARRAYS) == by_hdf5(ARRAYS)


def test_threads_write_side_by_side() -> None:
    with ThreadPoolExecutor(4) as threads:
        assert len(set(threads.map(encode, [ARRAYS] * 200))) == 1


def test_h5py_reads_what_is_written_with_every_large_array_aligned_to_64_bytes() -> None:
    with h5py.File(io.BytesIO(encode(ARRAYS)), "r") as file:
        assert np.array_equal(file["weights"], ARRAYS["weights"])
        assert file["weights"].id.get_offset() % 64 == 0


@pytest.mark.parametrize("name", ["", "a/b", "..", "a b", "é", "x" * 65])
def test_a_name_that_could_mean_something_else_is_refused(name: str) -> None:
    with pytest.raises(ValueError, match="cannot name an array"):
        encode({name: np.zeros(1)})


def foreign(build: Callable[[h5py.File], object]) -> bytes:
    buffer = io.BytesIO()
    with h5py.File(buffer, "w") as file:
        build(file)
    return buffer.getvalue()


def soft_link(file: h5py.File) -> None:
    file["weights"] = h5py.SoftLink("/weights")


def virtual(file: h5py.File) -> None:
    layout = h5py.VirtualLayout((6, 100), "<f4")
    layout[:] = h5py.VirtualSource("/etc/hostname", "weights", (6, 100))
    file.create_virtual_dataset("weights", layout)


def shape_bomb(file: h5py.File) -> None:
    file.create_dataset("weights", (1 << 25, 1 << 25), "<f4")


def never_written(file: h5py.File) -> None:
    file.create_dataset("weights", (6, 100), "<f4")


def reference(file: h5py.File) -> None:
    file.create_dataset("weights", (6, 100), h5py.ref_dtype)


def gzip(file: h5py.File) -> None:
    file.create_dataset("weights", data=ARRAYS["weights"], compression="gzip")


HOSTILE: dict[str, tuple[Callable[[h5py.File], object], str]] = {
    "a soft link": (soft_link, "link"),
    "an external link": (
        lambda file: file.__setitem__("weights", h5py.ExternalLink("/etc/hostname", "/weights")),
        "link",
    ),
    "external data": (
        lambda file: file.create_dataset("weights", (6, 100), "<f4", external=[("/etc/hostname", 0, 2400)]),
        "another file",
    ),
    "a virtual dataset": (virtual, "one piece"),
    "chunks": (lambda file: file.create_dataset("weights", (6, 100), "<f4", chunks=(2, 10)), "one piece"),
    "a filter": (gzip, "one piece"),
    "a shape bomb": (shape_bomb, "expected <f4"),
    "a claim without bytes": (never_written, "does not hold"),
    "references": (reference, "not an array of numbers"),
    "text": (lambda file: file.create_dataset("weights", data="text"), "not an array of numbers"),
    "a group": (lambda file: file.create_group("weights"), "not an array"),
    "another shape": (lambda file: file.create_dataset("weights", (100, 6), "<f4"), "expected <f4"),
    "another type": (lambda file: file.create_dataset("weights", (6, 100), "<f8"), "expected <f4"),
    "another byte order": (lambda file: file.create_dataset("weights", (6, 100), ">f4"), "expected <f4"),
    "no such array": (lambda file: file.create_dataset("other", (6, 100), "<f4"), "has no array"),
    "something more": (
        lambda file: (file.create_dataset("weights", data=ARRAYS["weights"]), file.create_group("more")),
        "unexpected entry 'more'",
    ),
    "two thousand entries": (lambda file: [file.create_group(str(number)) for number in range(2000)], "more than"),
}


@pytest.mark.parametrize("what", HOSTILE)
def test_anything_but_the_expected_arrays_in_one_piece_is_refused(what: str) -> None:
    build, message = HOSTILE[what]
    with pytest.raises(DataError, match=f"^file: .*{message}"):
        decode(foreign(build), EXPECTED, "file")


@pytest.mark.parametrize("data", [b"", b"\x80\x04K\x01.", b"PK\x03\x04", b"\x89HDF\r\n\x1a\n", b"\0" * 5000])
def test_what_is_not_hdf5_is_refused(data: bytes) -> None:
    with pytest.raises(DataError, match=r"^file: not a readable HDF5 file"):
        decode(data, EXPECTED, "file")


def test_a_layout_is_told_without_reading() -> None:
    assert array_layout(encode(ARRAYS), "weights", "file") == EXPECTED["weights"]
    assert array_layout(foreign(shape_bomb), "weights", "file").shape == (1 << 25, 1 << 25)
    with pytest.raises(DataError, match="has no array"):
        array_layout(encode(ARRAYS), "other", "file")


def survives(mutants: int) -> int:
    """Decode mutants of a file: they may give other numbers (a hash comes first elsewhere), never another error."""
    dice = random.Random(mutants)
    whole = encode(ARRAYS)
    refused = 0
    for _ in range(mutants):
        data = bytearray(whole)
        place = dice.randrange(len(data))
        if dice.random() < 0.5:
            data[place] ^= 1 << dice.randrange(8)
        else:
            data[place : place + 64] = dice.randbytes(64)
        try:
            assert decode(bytes(data), EXPECTED | layouts(ARRAYS), "file")["weights"].shape == (6, 100)
        except DataError:
            refused += 1
    return refused


def test_300_mutants_of_a_file_are_read_or_refused_but_never_crash() -> None:
    assert 0 < survives(300) < 300


@pytest.mark.long
def test_20000_mutants_of_a_file_are_read_or_refused_but_never_crash() -> None:
    survives(20_000)
