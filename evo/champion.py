"""A champion on disk: champion.h5 is complete in itself, champion.json is its readable copy.

champion.h5 holds one float32 array a layer and "about", the bytes of a sealed JSON object: the layers with their
shapes in the order of the flat vector, the SHA-256 of that vector, and what the run knows of the champion. Two
files cannot be renamed at once, so nothing that is needed stands only in champion.json.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from math import prod
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from evo.arrays import Layout, array_layout, decode, encode
from evo.durable import read_file, replace_file, resources, sync_directory
from evo.errors import DataError
from evo.manifest import seal, unseal

WEIGHTS, READABLE = "champion.h5", "champion.json"
LARGEST = 1 << 31
ABOUT_LARGEST = 1 << 20

Layers = Sequence[tuple[str, tuple[int, ...]]]


class Champion(NamedTuple):
    """The weights that a run is proud of."""

    weights: NDArray[np.float32]  # [P]
    layers: tuple[tuple[str, tuple[int, ...]], ...]
    about: Mapping[str, Any]


def encode_champion(weights: NDArray[np.float32], layers: Layers, about: Mapping[str, object]) -> tuple[bytes, bytes]:
    """Return the bytes of champion.h5 and of champion.json; layers that do not fill the vector are a ValueError."""
    flat = np.ascontiguousarray(weights, "<f4")
    names = [name for name, _ in layers]
    if flat.ndim != 1 or sum(prod(shape) for _, shape in layers) != flat.size:
        raise ValueError(f"the layers do not have the {flat.shape} weights of the champion")
    if len(set(names)) != len(names) or "about" in names:
        raise ValueError("the names of the layers are not distinct, or one is 'about'")
    described = {
        "about": dict(about),
        "layers": [[name, list(shape)] for name, shape in layers],
        "weights_sha256": hashlib.sha256(flat.tobytes()).hexdigest(),
    }
    arrays: dict[str, NDArray[np.generic]] = {"about": np.frombuffer(seal(described), np.uint8)}
    first = 0
    for name, shape in layers:
        arrays[name] = flat[first : first + prod(shape)].reshape(shape)
        first += prod(shape)
    data = encode(arrays)
    readable = {**described, "file": WEIGHTS, "file_sha256": hashlib.sha256(data).hexdigest()}
    return data, json.dumps(readable, indent=2, sort_keys=True, allow_nan=False).encode() + b"\n"


def write_champion(directory: Path, data: bytes, readable: bytes) -> None:
    """Put both files of `encode_champion` into the directory, each whole or not at all, and make them durable."""
    with resources("write", directory / WEIGHTS):
        replace_file(directory / WEIGHTS, data)
        replace_file(directory / READABLE, readable)
        sync_directory(directory)


def read_champion(path: Path) -> Champion:
    """Return the champion of a run directory, or of a champion.h5 by itself; DataError where it does not hold."""
    file = path / WEIGHTS if path.is_dir() else path
    data = read_file(file, most=LARGEST)
    about = array_layout(data, "about", str(file))
    if about.dtype != "|u1" or len(about.shape) != 1 or about.shape[0] > ABOUT_LARGEST:
        raise DataError(f"{file}: not a champion")
    sealed = decode(data, {"about": about}, str(file), others=True)["about"].tobytes()
    try:
        described = unseal(sealed)
        layers = tuple((str(name), tuple(int(side) for side in shape)) for name, shape in described["layers"])
        digest, facts = described["weights_sha256"], dict(described["about"])
        if not layers:
            raise ValueError("it names no layers")
    except (KeyError, TypeError, ValueError) as error:
        raise DataError(f"{file}: its description does not hold ({error})") from error
    expected = {"about": about, **{name: Layout("<f4", shape) for name, shape in layers}}
    arrays = decode(data, expected, str(file))
    weights = np.concatenate([arrays[name].ravel() for name, _ in layers]).astype(np.float32, copy=False)
    if hashlib.sha256(weights.tobytes()).hexdigest() != digest:
        raise DataError(f"{file}: the weights do not have the SHA-256 that is written beside them")
    return Champion(weights, layers, facts)
