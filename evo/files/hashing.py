"""The state hash: a chain of SHA-256 over everything that a run has computed, and over nothing else.

The bytes that are hashed, exactly (all integers little-endian):

    h[-1] = SHA-256(canonical JSON of the identity: sorted keys, no spaces, UTF-8)
    h[g]  = SHA-256(h[g-1], 32 bytes; g, 8 bytes; then for every array in the order of its name's UTF-8 bytes:
                    length of the name, 4 bytes; the name in UTF-8;
                    length of the dtype, 4 bytes; the dtype in ASCII, as NumPy writes it ("<f4", "|u1");
                    number of dimensions, 4 bytes; every dimension, 8 bytes;
                    the digest of the array, 32 bytes)

Names are "state/NAME" or "record/NAME", so that a state and a record never collide. The digest of an array is the
SHA-256 of its little-endian C bytes; that of a matrix of weights (NAME is "weights", two dimensions, float32) is the
SHA-256 of the SHA-256 of its rows, one after the other.
"""

from __future__ import annotations

import hashlib
import json
import struct
from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray


class ArrayDigest(NamedTuple):
    """What the chain needs to know of one array."""

    dtype: str
    shape: tuple[int, ...]
    sha256: str


def canonical_json(value: object) -> bytes:
    """Return the one spelling of a JSON value; NaN and infinities are a ValueError."""
    return json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False).encode()


def plain(array: NDArray[np.generic]) -> NDArray[np.generic]:
    """Return the array in C order and little-endian; anything but booleans and numbers is a TypeError."""
    if array.dtype.kind not in "biuf" or array.dtype.itemsize > 8:
        raise TypeError(f"only arrays of booleans, integers and floats are kept, not {array.dtype}")
    little = array.dtype.newbyteorder("<")
    if array.dtype == little and array.flags.c_contiguous:
        return array  # itself, and no view of it
    return np.asarray(array, little, order="C")


def array_digest(name: str, array: NDArray[np.generic]) -> ArrayDigest:
    """Return dtype, shape and digest of the array that the chain knows by this name."""
    return _digest(name, plain(array), [])


def frozen(array: NDArray[np.generic]) -> bool:
    """Return whether nobody writes into this array any more: it is marked so, and its memory is its own."""
    return not array.flags.writeable and array.base is None


class Digests:
    """Digests of arrays, where only what is new of them is hashed.

    An array that is `frozen` is remembered under its name, and of one with that name which comes later, rows of
    weights that were in it before, wherever, are not hashed again. Bytes are compared, so no digest is ever another.
    """

    def __init__(self) -> None:
        """Nothing is remembered yet."""
        self._known: dict[str, _Known] = {}

    def of(self, name: str, array: NDArray[np.generic]) -> ArrayDigest:
        """Return what `array_digest` returns."""
        values = plain(array)
        if values.nbytes < _WORTHWHILE:
            return array_digest(name, values)
        before = self._known.get(name)
        if before is not None and before.values is values:
            return before.digest
        rows: list[bytes] = []
        if before is not None and values.dtype == before.values.dtype and values.shape[1:] == before.values.shape[1:]:
            rows = before.rows_of(values)
        digest = _digest(name, values, rows)
        if frozen(values):
            self._known[name] = _Known(values, digest, rows)
        return digest


@dataclass(frozen=True)
class _Known:
    """A matrix of weights with the digests of its rows, or any other array, with none."""

    values: NDArray[np.generic]
    digest: ArrayDigest
    rows: list[bytes]

    def rows_of(self, values: NDArray[np.generic]) -> list[bytes]:
        """Return the digests of rows, and nothing for a row that is not among ours."""
        if not self.rows:
            return []
        ours, theirs = self.values.view(np.uint8), values.view(np.uint8)
        places = {row[:_HEAD].tobytes(): i for i, row in enumerate(ours)}  # of equal heads the last
        found = []
        for row in theirs:
            i = places.get(row[:_HEAD].tobytes())
            found.append(self.rows[i] if i is not None and np.array_equal(ours[i], row) else b"")
        return found


def _digest(name: str, values: NDArray[np.generic], rows: list[bytes]) -> ArrayDigest:
    """Return the digest of a plain array; `rows` are the digests of its rows, b"" where unknown, and are filled in."""
    if name.rpartition("/")[2] == "weights" and values.ndim == 2 and values.dtype == np.dtype("<f4"):
        known = rows or [b""] * len(values)
        rows[:] = [
            of or (hashlib.sha256(row.data).digest() if row.size else _EMPTY)
            for of, row in zip(known, values, strict=True)
        ]
        digest = hashlib.sha256(b"".join(rows)).hexdigest()
    else:
        digest = hashlib.sha256(values.tobytes() if values.size < _SMALL else values.data).hexdigest()
    return ArrayDigest(values.dtype.str, values.shape, digest)


def first_hash(identity: Mapping[str, object]) -> str:
    """Return h[-1], the hash of what a run is before it has done anything."""
    return hashlib.sha256(canonical_json(identity)).hexdigest()


def next_hash(previous: str, generation: int, arrays: Mapping[str, ArrayDigest]) -> str:
    """Return h[g] from h[g-1] and the digests of everything that generation g left, by "state/" or "record/" name."""
    chain = hashlib.sha256(bytes.fromhex(previous) + struct.pack("<Q", generation))
    for name in sorted(arrays, key=str.encode):
        dtype, shape, digest = arrays[name]
        for text in (name.encode(), dtype.encode("ascii")):
            chain.update(struct.pack("<I", len(text)) + text)
        chain.update(struct.pack(f"<I{len(shape)}Q", len(shape), *shape) + bytes.fromhex(digest))
    return chain.hexdigest()


_EMPTY = hashlib.sha256(b"").digest()
_SMALL = 64  # below this a copy is as good, and memoryviews of empty and zero-dimensional arrays need no thought
_WORTHWHILE = 1 << 16  # bytes from which on an array is worth remembering
_HEAD = 64  # bytes by which rows are looked up
