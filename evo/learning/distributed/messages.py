"""Requests to a learner in another process, as bytes: a method, arrays, numbers. Nothing in them is executed."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

WORD = 4  # bytes; TensorFlow broadcasts whole numbers of this size
KINDS = ("bool", "int8", "uint8", "int32", "int64", "float32", "float64")


@dataclass(frozen=True)
class Message:
    """A method's name and its arguments."""

    method: str
    arrays: Mapping[str, NDArray[Any]] = field(default_factory=dict)
    numbers: Mapping[str, float] = field(default_factory=dict)
    text: str = ""


def encode(message: Message) -> NDArray[np.int32]:
    """Return a message as words: the header's length in bytes, the header (JSON), and every array."""
    arrays = {name: np.asarray(array, order="C") for name, array in message.arrays.items()}
    for name, array in arrays.items():
        if array.dtype.name not in KINDS:
            raise ValueError(f"{name}: arrays of {array.dtype.name} are not sent")
    shapes = [[name, array.dtype.name, list(array.shape)] for name, array in arrays.items()]
    header = json.dumps([message.method, shapes, dict(message.numbers), message.text]).encode()
    parts = [np.array([len(header)], "<i4").tobytes(), header, *(array.tobytes() for array in arrays.values())]
    return np.frombuffer(b"".join(part + bytes(-len(part) % WORD) for part in parts), "<i4")


def decode(words: NDArray[np.int32]) -> Message:
    """Return the message of these words."""
    data = words.astype("<i4", copy=False).tobytes()
    size = int(words[0])
    method, shapes, numbers, text = json.loads(data[WORD : WORD + size])
    start, arrays = WORD + size + -size % WORD, {}
    for name, kind, shape in shapes:
        if kind not in KINDS:
            raise ValueError(f"{name}: no array is of {kind}")
        dtype = np.dtype(kind)
        end = start + dtype.itemsize * int(np.prod(shape, dtype=np.int64))
        arrays[name] = np.frombuffer(data[start:end], dtype).reshape(shape)
        start = end + -(end - start) % WORD
    return Message(method, arrays, numbers, text)
