"""Arrays as a run keeps them: their digests, the chain of the state hash, and HDF5 files that nobody need trust.

The state hash is a SHA-256 chain over the identity of a run and the arrays of every generation. Names of arrays are
"state/NAME" or "record/NAME". The digest of an array is the SHA-256 of its little-endian C bytes, but of a matrix of
weights (NAME "weights", two dimensions, float32) that of the concatenated SHA-256 of its rows.

libhdf5 never writes to disk: a process killed inside it leaves a file that does not open, and on a full disk it can
crash. So files are built in memory, and `evo.files.durable` writes the bytes.
"""

from __future__ import annotations

import hashlib
import re
import struct
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import lru_cache
from itertools import count
from math import prod
from typing import Any, NamedTuple

import h5py
import numpy as np
from numpy.typing import NDArray

from evo.errors import DataError, first_line
from evo.files.durable import canonical_json
from evo.files.layout import FORKED_FROM

NUMBERS = count()  # of the files in memory that this process has made

Arrays = Mapping[str, NDArray[np.generic]]
Piece = bytes | memoryview

NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,63}")
MOST_ARRAYS = 1024
LARGE = 1 << 20  # bytes of arrays from which on they are written without copying them

_SMALL = 64  # smaller arrays are copied: empty and zero-dimensional ones have no usable memoryview
_WORTHWHILE = 1 << 16  # bytes of the smallest array that is kept


class ArrayDigest(NamedTuple):
    """Dtype, shape and digest of an array, as the chain hashes them."""

    dtype: str
    shape: tuple[int, ...]
    sha256: str


def plain(array: NDArray[np.generic]) -> NDArray[np.generic]:
    """Return the array in C order and little-endian. Raises TypeError unless it is boolean, integer or float."""
    if array.dtype.kind not in "biuf" or array.dtype.itemsize > 8:
        raise TypeError(f"only boolean, integer and float arrays can be stored, not {array.dtype}")
    little = array.dtype.newbyteorder("<")
    if array.dtype == little and array.flags.c_contiguous:
        return array  # the array itself, not a view
    return np.asarray(array, little, order="C")


def array_digest(name: str, array: NDArray[np.generic]) -> ArrayDigest:
    """Return dtype, shape and digest of the array of this name."""
    values = plain(array)
    if name.rpartition("/")[2] == "weights" and values.ndim == 2 and values.dtype == np.dtype("<f4"):
        rows = (hashlib.sha256(row.data if row.size else b"").digest() for row in values)
        digest = hashlib.sha256(b"".join(rows)).hexdigest()
    else:
        digest = hashlib.sha256(values.tobytes() if values.size < _SMALL else values.data).hexdigest()
    return ArrayDigest(values.dtype.str, values.shape, digest)


def frozen(array: NDArray[np.generic]) -> bool:
    """Return whether an array can no longer change: it is read-only, and owns its memory."""
    return not array.flags.writeable and array.base is None


class Digests:
    """Digests of arrays; the last `frozen` array of a name is kept with its own, and an equal one is not hashed."""

    def __init__(self) -> None:
        self._known: dict[str, tuple[NDArray[np.generic], ArrayDigest]] = {}

    def of(self, name: str, array: NDArray[np.generic]) -> ArrayDigest:
        """Return `array_digest(name, array)`."""
        values = plain(array)
        if values.nbytes < _WORTHWHILE:
            return array_digest(name, values)
        if name in self._known:
            before, digest = self._known[name]
            alike = values.dtype == before.dtype and values.shape == before.shape
            if before is values or (alike and np.array_equal(before.view(np.uint8), values.view(np.uint8))):
                return digest
        digest = array_digest(name, values)
        if frozen(values):
            self._known[name] = values, digest
        return digest


def first_hash(identity: Mapping[str, object]) -> str:
    """Return h[-1], the hash of the identity."""
    return hashlib.sha256(canonical_json(identity)).hexdigest()


def first_run(identity: Mapping[str, Any]) -> str:
    """Return h[-1] of the run that a run descends from: its own, but that of the first one where it is a fork."""
    origin = identity.get(FORKED_FROM)
    known = origin.get("run") if isinstance(origin, Mapping) else None
    return known if isinstance(known, str) else first_hash(identity)


def next_hash(previous: str, generation: int, arrays: Mapping[str, ArrayDigest]) -> str:
    """Return h[g] from h[g-1] and the digests of the arrays of generation g, by "state/" or "record/" name."""
    chain = hashlib.sha256(bytes.fromhex(previous) + struct.pack("<Q", generation))
    for name in sorted(arrays, key=str.encode):
        dtype, shape, digest = arrays[name]
        for text in (name.encode(), dtype.encode("ascii")):
            chain.update(struct.pack("<I", len(text)) + text)
        chain.update(struct.pack(f"<I{len(shape)}Q", len(shape), *shape) + bytes.fromhex(digest))
    return chain.hexdigest()


class Layout(NamedTuple):
    """The dtype, in NumPy's notation, and the shape of an array."""

    dtype: str
    shape: tuple[int, ...]


def checked(arrays: Arrays) -> dict[str, NDArray[np.generic]]:
    """Return the arrays in C order and little-endian. Raises ValueError for a bad name."""
    for name in arrays:
        if not NAME.fullmatch(name):
            raise ValueError(f"{name!r} cannot name an array: letters, digits, '_', '.', '-', at most 64 of them")
    return {name: plain(np.asarray(array)) for name, array in arrays.items()}


def encode(arrays: Arrays) -> bytes:
    """Return an HDF5 file with one contiguous dataset per array, in the root; equal arrays give equal bytes."""
    return b"".join(pieces(arrays))


def pieces(arrays: Arrays) -> list[Piece]:
    """Return the bytes of `encode` in pieces; a large array is a piece of its own and is not copied."""
    stored = dict(sorted(checked(arrays).items()))
    between, end = _frame(tuple(layouts(stored).items()))
    found: list[Piece] = []
    for gap, name in between:
        found += [gap, stored[name].reshape(-1).view(np.uint8).data]
    whole = [*found, end]
    return whole if sum(array.nbytes for array in stored.values()) >= LARGE else [b"".join(whole)]


@lru_cache(maxsize=32)  # libhdf5 takes many times as long as a copy does
def _frame(expected: tuple[tuple[str, Layout], ...]) -> tuple[list[tuple[bytes, str]], bytes]:
    """Return the bytes before each array of such a file, in file order, and those after the last one."""
    image, offsets = _image({name: np.zeros(layout.shape, layout.dtype) for name, layout in expected})
    sizes = {name: prod(layout.shape) * np.dtype(layout.dtype).itemsize for name, layout in expected}
    between, at = [], 0
    for name in sorted(offsets, key=offsets.__getitem__):
        between.append((image[at : offsets[name]], name))
        at = offsets[name] + sizes[name]
    return between, image[at:]


def _image(stored: Arrays) -> tuple[bytes, dict[str, int]]:
    """Return the bytes of a file, and the offset of the values of each array that is not empty."""
    size = sum(array.nbytes for array in stored.values()) + (1 << 16)
    # No file of this name is created, but no name may be used while a file of it is open, as one that a signal
    # interrupted stays. With a Python file object instead, an interrupt inside its callbacks would be lost in libhdf5.
    with h5py.File(
        f"memory {next(NUMBERS)}",
        "w",
        driver="core",
        backing_store=False,
        block_size=size,
        alignment_threshold=1024,
        alignment_interval=64,
    ) as file:
        for name, array in stored.items():
            file.create_dataset(name, data=array)
        file.flush()
        offsets = {name: file[name].id.get_offset() for name, array in stored.items() if array.size}
        return bytes(file.id.get_file_image()), offsets


def decode(
    data: bytes, expected: Mapping[str, Layout], source: str, *, others: bool = False
) -> dict[str, NDArray[np.generic]]:
    """Return the expected arrays. Raises DataError, naming `source`, where one is missing or the file is unsafe.

    Reads only hard links to contiguous datasets of exactly the expected dtype and shape whose bytes the file really
    holds, in the root or, as GROUP/NAME, in groups. Other links, external or virtual data, filters and references are
    refused. Unexpected entries are refused too, unless `others`.
    """
    with _opened(data, source) as file:
        _check_entries(file, expected, source, others)
        return {name: _read(file, name, layout, len(data), source) for name, layout in expected.items()}


def entries(data: bytes, source: str) -> set[str]:
    """Return the names of all entries in the root. Raises DataError where there are more than MOST_ARRAYS."""
    with _opened(data, source) as file:
        return _entries(file, source)


def arrays_below(data: bytes, group: str, source: str) -> dict[str, Layout]:
    """Return the layouts of all arrays in a group and its groups, by their paths, but those of random generators.

    Raises DataError where something else is there, or more than MOST_ARRAYS.
    """
    found, left = dict[str, Layout](), [group]
    with _opened(data, source) as file:
        while left:
            name = left.pop()
            if type(file.get(name, getlink=True)) is not h5py.HardLink:
                raise DataError(f"{source}: {name!r} is a link")
            if file.get(name, getclass=True) is h5py.Group:
                left += [f"{name}/{one}" for one in sorted(_entries(file[name], source)) if one != "seed_generator"]
            else:
                dataset = _dataset(file, name, f"{source}: {name!r}")
                found[name] = Layout(dataset.dtype.str, dataset.shape)
            if len(left) + len(found) > MOST_ARRAYS:
                raise DataError(f"{source}: has more than {MOST_ARRAYS} arrays")
    return found


def array_layout(data: bytes, name: str, source: str) -> Layout:
    """Return the dtype and shape that the file states for one array. Raises DataError where it is missing."""
    with _opened(data, source) as file:
        _check_entries(file, {name: Layout("", ())}, source, True)
        dataset = _dataset(file, name, f"{source}: {name!r}")
        return Layout(dataset.dtype.str, dataset.shape)


def layouts(arrays: Arrays) -> dict[str, Layout]:
    """Return the dtypes and shapes by which `decode` reads these arrays back."""
    return {name: Layout(array.dtype.str, array.shape) for name, array in checked(arrays).items()}


@contextmanager
def _opened(data: bytes, source: str) -> Iterator[h5py.File]:
    try:
        with h5py.File(h5py.h5f.open_file_image(data), "r") as file:
            yield file
    except DataError:
        raise
    except (OSError, RuntimeError, KeyError, ValueError, TypeError, MemoryError, OverflowError) as error:
        raise DataError(f"{source}: not a readable HDF5 file of arrays ({first_line(error)})") from error


def _check_entries(file: h5py.File, expected: Mapping[str, Layout], source: str, others: bool) -> None:
    found = _entries(file, source)
    if missing := sorted(name for name in expected if name not in (found if "/" not in name else file)):
        raise DataError(f"{source}: has no array {missing[0]!r}")
    if not others and (unexpected := sorted(found - set(expected))):
        raise DataError(f"{source}: has an unexpected entry {unexpected[0]!r}")


def _entries(file: h5py.File, source: str) -> set[str]:
    if len(file) > MOST_ARRAYS:
        raise DataError(f"{source}: {len(file)} entries, more than {MOST_ARRAYS}")
    return set(file)


def _read(file: h5py.File, name: str, layout: Layout, available: int, source: str) -> NDArray[np.generic]:
    where = f"{source}: {name!r}"
    dataset = _dataset(file, name, where)
    needed = prod(layout.shape) * np.dtype(layout.dtype).itemsize
    if Layout(dataset.dtype.str, dataset.shape) != layout:
        raise DataError(f"{where} is {dataset.dtype.str} {dataset.shape}, expected {layout.dtype} {layout.shape}")
    if needed > available or dataset.id.get_storage_size() != needed:
        raise DataError(f"{where} states {needed} bytes that the file does not hold")
    values: NDArray[np.generic] = np.empty(layout.shape, np.dtype(layout.dtype))
    if values.size:
        dataset.read_direct(values)
    return values


def _dataset(file: h5py.File, name: str, where: str) -> h5py.Dataset:
    parts = name.split("/")
    for depth in range(1, len(parts) + 1):
        if type(file.get("/".join(parts[:depth]), getlink=True)) is not h5py.HardLink:
            raise DataError(f"{where} is a link")
    if file.get(name, getclass=True) is not h5py.Dataset:
        raise DataError(f"{where} is not an array")
    dataset = file[name]
    creation = dataset.id.get_create_plist()
    if dataset.is_virtual or creation.get_layout() not in (h5py.h5d.CONTIGUOUS, h5py.h5d.COMPACT):
        raise DataError(f"{where} is not stored in one piece")
    if creation.get_nfilters() or creation.get_external_count():
        raise DataError(f"{where} is filtered or kept in another file")
    if dataset.dtype.kind not in "biuf" or dataset.shape is None:
        raise DataError(f"{where} is not an array of numbers")
    return dataset
