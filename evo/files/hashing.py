"""The state hash: a SHA-256 chain over the identity of a run and the arrays of every generation.

Names of arrays are "state/NAME" or "record/NAME". The digest of an array is the SHA-256 of its little-endian C bytes,
but of a weight matrix (NAME "weights", two dimensions, float32) that of the concatenated SHA-256 of its rows.
"""

from __future__ import annotations

import hashlib
import struct
from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from evo.files.durable import canonical_json

FORKED_FROM = "forked_from"  # of a fork's identity: h[-1] of the first "run", and the hash of the "state" that it has


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


_SMALL = 64  # smaller arrays are copied: empty and zero-dimensional ones have no usable memoryview
_WORTHWHILE = 1 << 16  # bytes of the smallest array that is kept
