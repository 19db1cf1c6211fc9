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
    return np.asarray(array, little, order="C")


def array_digest(name: str, array: NDArray[np.generic]) -> ArrayDigest:
    """Return dtype, shape and digest of the array that the chain knows by this name."""
    values = plain(array)
    if name.rpartition("/")[2] == "weights" and values.ndim == 2 and values.dtype == np.dtype("<f4"):
        rows = b"".join(hashlib.sha256(row.data).digest() if row.size else _EMPTY for row in values)
        digest = hashlib.sha256(rows).hexdigest()
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
