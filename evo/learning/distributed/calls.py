"""Calls of methods of a learner in another process, as bytes: JSON and arrays. Nothing in them is executed."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from io import BytesIO
from typing import Any

import numpy as np
from numpy.typing import NDArray

HEADER, ARRAY = "header", "array %d"


def encode(value: Any) -> bytes:
    """Return numbers, texts and arrays, in lists and dictionaries, as the bytes of an .npz file."""
    arrays: dict[str, NDArray[Any]] = {}

    def plain(part: Any) -> Any:
        if isinstance(part, np.ndarray):
            arrays[name := ARRAY % len(arrays)] = part
            return [name]
        if isinstance(part, Mapping):
            return {name: plain(one) for name, one in part.items()}
        if isinstance(part, Sequence) and not isinstance(part, str):
            return ["", *map(plain, part)]
        return part

    header = np.frombuffer(json.dumps(plain(value)).encode(), np.uint8)
    file = BytesIO()
    np.savez(file, allow_pickle=False, **{HEADER: header}, **arrays)
    return file.getvalue()


def decode(data: bytes) -> Any:
    """Return what `encode` was given, with tuples as lists."""
    with np.load(BytesIO(data), allow_pickle=False) as arrays:

        def whole(part: Any) -> Any:
            if isinstance(part, dict):
                return {name: whole(one) for name, one in part.items()}
            if isinstance(part, list):
                return arrays[part[0]] if part[0] else list(map(whole, part[1:]))
            return part

        return whole(json.loads(arrays[HEADER].tobytes()))
