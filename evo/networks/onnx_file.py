"""ONNX files, in protobuf's encoding: its messages as dictionaries, of the few fields that networks need."""

from __future__ import annotations

import struct
from collections.abc import Mapping
from math import prod
from typing import Any

import numpy as np
from numpy.typing import NDArray

# The name and the type of each field by its number (onnx.proto); a type with a star is a list, and one with a capital
# letter another message. Other fields are passed over.
FIELDS: dict[str, dict[int, tuple[str, str]]] = {
    "Model": {1: ("ir_version", "int"), 2: ("producer_name", "text"), 7: ("graph", "Graph"),
              8: ("opset_import", "Opset*"), 14: ("metadata_props", "Property*")},
    "Opset": {1: ("domain", "text"), 2: ("version", "int")},
    "Property": {1: ("key", "text"), 2: ("value", "text")},
    "Graph": {1: ("node", "Node*"), 2: ("name", "text"), 5: ("initializer", "Tensor*"), 11: ("input", "Value*"),
              12: ("output", "Value*")},
    "Node": {1: ("input", "text*"), 2: ("output", "text*"), 3: ("name", "text"), 4: ("op_type", "text"),
             5: ("attribute", "Attribute*"), 7: ("domain", "text")},
    "Attribute": {1: ("name", "text"), 2: ("f", "float"), 3: ("i", "int"), 4: ("s", "bytes"), 5: ("t", "Tensor"),
                  8: ("ints", "int*"), 9: ("strings", "bytes*"), 20: ("type", "int")},
    "Tensor": {1: ("dims", "int*"), 2: ("data_type", "int"), 4: ("float_data", "bytes*"), 7: ("int64_data", "int*"),
               8: ("name", "text"), 9: ("raw_data", "bytes"), 14: ("data_location", "int")},
    "Value": {1: ("name", "text"), 2: ("type", "Type")},
    "Type": {1: ("tensor_type", "Dense")},
    "Dense": {1: ("elem_type", "int"), 2: ("shape", "Shape")},
    "Shape": {1: ("dim", "Dimension*")},
    "Dimension": {1: ("dim_value", "int"), 2: ("dim_param", "text")},
}  # fmt: skip
EMPTY: dict[str, Any] = {"int": 0, "float": 0.0, "text": "", "bytes": b""}
FLOAT, INT64, DOUBLE = 1, 7, 11
TYPES = {FLOAT: "<f4", INT64: "<i8", DOUBLE: "<f8"}  # of arrays, by their number
ATTRIBUTES = {1: "f", 2: "i", 3: "s", 4: "t", 7: "ints", 8: "strings"}  # fields of attributes, by their type
BEGINNING = b"\x08"  # of a file: the number of its first field, the version
VARINT, EIGHT_BYTES, BYTES, FOUR_BYTES = 0, 1, 2, 5
SIZES = {EIGHT_BYTES: 8, BYTES: 0, FOUR_BYTES: 4}  # 0: it is stated
WIRES = {"int": (VARINT,), "float": (FOUR_BYTES,), "bytes": (BYTES, FOUR_BYTES)}
MOST_FIELDS = 1 << 17  # of a file


def decode(data: bytes | memoryview, kind: str = "Model", left: list[int] | None = None) -> dict[str, Any]:
    """Return a message; missing fields are empty, missing messages None. ValueError: it is none, or too large.

    Bytes of arrays are not copied. `left` is how many fields there may be.
    """
    data, at, left = memoryview(data), 0, left or [MOST_FIELDS]
    message: dict[str, Any] = {name: [] if form[-1] == "*" else EMPTY.get(form) for name, form in FIELDS[kind].values()}
    while at < len(data):
        tag, at = _number(data, at)
        name, form = FIELDS[kind].get(tag >> 3, ("", ""))
        wire = tag & 7
        value: Any = None
        if wire == VARINT:
            value, at = _number(data, at)
        elif wire in SIZES:
            size, at = (SIZES[wire], at) if SIZES[wire] else _number(data, at)
            value, at = data[at : at + size], at + size
        if value is None or at > len(data):
            raise ValueError("it is damaged, or cut short")
        left[0] -= 1
        if left[0] < 0:
            raise ValueError(f"it has more than {MOST_FIELDS:,} fields")
        if not name:
            continue
        if form == "int*" and wire == BYTES:  # packed
            end = 0
            while end < len(value):
                number, end = _number(value, end)
                message[name].append(number)
                left[0] -= 1
                if left[0] < 0:
                    raise ValueError(f"it has more than {MOST_FIELDS:,} fields")
            continue
        if wire not in WIRES.get(form.rstrip("*"), (BYTES,)):
            raise ValueError(f"its field {name} is of another type")
        made = _made(value, form.rstrip("*"), left)
        if form[-1] == "*":
            message[name].append(made)
        else:
            message[name] = made
    return message


def _number(data: memoryview, at: int) -> tuple[int, int]:
    """Return the signed whole number there, and where the next field begins."""
    value = 0
    for shift in range(0, 70, 7):
        if at >= len(data):
            break
        byte, at = data[at], at + 1
        value |= (byte & 127) << shift
        if byte < 128:
            value &= (1 << 64) - 1
            return value - (value >> 63 << 64), at
    raise ValueError("it is damaged, or cut short")


def _made(value: Any, form: str, left: list[int]) -> Any:
    if form == "text":
        return str(value, "utf-8")
    if form == "float":
        return struct.unpack("<f", value)[0]
    return decode(value, form, left) if form in FIELDS else value


def encode(message: Mapping[str, Any], kind: str = "Model") -> bytes:
    """Return the bytes of a message; fields that it lacks are left out."""
    parts = []
    for number, (name, form) in FIELDS[kind].items():
        if message.get(name) is not None:
            form = form.rstrip("*")
            for value in message[name] if isinstance(message[name], list) else [message[name]]:
                if form == "int":
                    parts.append(_varint(number << 3 | VARINT) + _varint(value & (1 << 64) - 1))
                elif form == "float":
                    parts.append(_varint(number << 3 | FOUR_BYTES) + struct.pack("<f", value))
                else:
                    data = value.encode() if form == "text" else value if form == "bytes" else encode(value, form)
                    parts.append(_varint(number << 3 | BYTES) + _varint(len(data)) + data)
    return b"".join(parts)


def _varint(value: int) -> bytes:
    parts = bytearray()
    while value > 127:
        parts.append(value & 127 | 128)
        value >>= 7
    return bytes([*parts, value])


def attribute(name: str, value: Any) -> dict[str, Any]:
    """Return an attribute of a node: a whole number, or a list of them, or a number."""
    kind = 7 if isinstance(value, list) else 1 if isinstance(value, float) else 2
    return {"name": name, ATTRIBUTES[kind]: value, "type": kind}


def attributes(node: Mapping[str, Any]) -> dict[str, Any]:
    """Return the values of a node's attributes by name; of other types than numbers, text and arrays, None."""
    values = {one["name"]: one.get(ATTRIBUTES.get(one["type"], "")) for one in node["attribute"]}
    return {name: bytes(value).decode() if isinstance(value, memoryview) else value for name, value in values.items()}


def tensor(name: str, array: NDArray[Any]) -> dict[str, Any]:
    """Return an array of float32, float64 or int64 as a constant."""
    values = np.ascontiguousarray(array)
    code = next(code for code, kind in TYPES.items() if kind == values.dtype.newbyteorder("<").str)
    return {
        "dims": list(array.shape),
        "data_type": code,
        "name": name,
        "raw_data": values.astype(TYPES[code]).tobytes(),
    }


def array_of(constant: Mapping[str, Any]) -> NDArray[Any]:
    """Return the array of a constant; ValueError: it is in another file, of another type, or not as large as stated."""
    if constant["data_location"]:
        raise ValueError("is in another file; write all weights into this one")
    if constant["data_type"] not in TYPES:
        raise ValueError(f"is of the type {constant['data_type']}; known are float32, float64 and int64")
    kind, shape = np.dtype(TYPES[constant["data_type"]]), tuple(constant["dims"])
    if any(side < 0 for side in shape):
        raise ValueError(f"has the shape {shape!s:.60}")
    if constant["data_type"] == FLOAT and constant["float_data"]:
        data = b"".join(constant["float_data"])
    elif constant["data_type"] == INT64 and constant["int64_data"]:
        data = np.array(constant["int64_data"], "<i8").tobytes()
    else:
        data = constant["raw_data"]
    if len(data) != prod(shape) * kind.itemsize:
        raise ValueError(f"states {prod(shape) * kind.itemsize} bytes, and has {len(data)}")
    return np.frombuffer(data, kind).reshape(shape)
