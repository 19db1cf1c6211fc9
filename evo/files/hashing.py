"""The state hash: a SHA-256 chain over the identity of a run and the arrays of every generation.

Names of arrays are "state/NAME" or "record/NAME". The digest of an array is the SHA-256 of its little-endian C bytes,
but of a weight matrix (NAME "weights", two dimensions, float32) that of the concatenated SHA-256 of its rows.
"""

from __future__ import annotations

import hashlib
import struct
from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from evo.files.durable import canonical_json


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
    return _digest(name, plain(array), [])


def frozen(array: NDArray[np.generic]) -> bool:
    """Return whether an array can no longer change: it is read-only, and owns its memory."""
    return not array.flags.writeable and array.base is None


class Digests:
    """Digests of arrays, cached: of weights, only rows that the last `frozen` array of the name lacks are hashed."""

    def __init__(self) -> None:
        self._known: dict[str, _Known] = {}

    def of(self, name: str, array: NDArray[np.generic]) -> ArrayDigest:
        """Return `array_digest(name, array)`."""
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
    """A cached array, with the digests of its rows if it is a weight matrix."""

    values: NDArray[np.generic]
    digest: ArrayDigest
    rows: list[bytes]

    def rows_of(self, values: NDArray[np.generic]) -> list[bytes]:
        """Return the cached digests of rows, b"" for a row that is not cached."""
        if not self.rows:
            return []
        cached, wanted = self.values.view(np.uint8), values.view(np.uint8)
        indices = {row[:_HEAD].tobytes(): i for i, row in enumerate(cached)}  # of equal heads the last
        found = []
        for row in wanted:
            i = indices.get(row[:_HEAD].tobytes())
            found.append(self.rows[i] if i is not None and np.array_equal(cached[i], row) else b"")
        return found


def _digest(name: str, values: NDArray[np.generic], rows: list[bytes]) -> ArrayDigest:
    """Return the digest of a plain array. `rows` are the digests of its rows; unknown ones, b"", are filled in."""
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
    """Return h[-1], the hash of the identity."""
    return hashlib.sha256(canonical_json(identity)).hexdigest()


def next_hash(previous: str, generation: int, arrays: Mapping[str, ArrayDigest]) -> str:
    """Return h[g] from h[g-1] and the digests of the arrays of generation g, by "state/" or "record/" name."""
    chain = hashlib.sha256(bytes.fromhex(previous) + struct.pack("<Q", generation))
    for name in sorted(arrays, key=str.encode):
        dtype, shape, digest = arrays[name]
        for text in (name.encode(), dtype.encode("ascii")):
            chain.update(struct.pack("<I", len(text)) + text)
        chain.update(struct.pack(f"<I{len(shape)}Q", len(shape), *shape) + bytes.fromhex(digest))
    return chain.hexdigest()


_EMPTY = hashlib.sha256(b"").digest()
_SMALL = 64  # smaller arrays are copied: empty and zero-dimensional ones have no usable memoryview
_WORTHWHILE = 1 << 16  # bytes of the smallest array that is cached
_HEAD = 64  # first bytes of a row, by which it is looked up
