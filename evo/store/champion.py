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

from evo.errors import DataError
from evo.files.arrays import Layout, array_layout, decode, encode, entries
from evo.files.durable import read_file, replace_file, resources, sync_directory
from evo.store.manifest import seal, unseal, whole
from evo.store.paths import CHAMPION, LARGEST_CHAMPION

WEIGHTS, READABLE = CHAMPION, "champion.json"
ABOUT_LARGEST = 1 << 20
KERAS = {"layers", "model_weights", "optimizer_weights", "vars", "top_level_model_weights"}  # what its files hold

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
    """Return the champion of a run of ours; DataError where it does not hold. Others' are for `foreign`."""
    file = champion_file(path)
    sealed, weights = unpack(read_file(file, most=LARGEST_CHAMPION), str(file))
    return believed(sealed, weights, str(file))


def champion_file(path: Path) -> Path:
    """Return the file of a champion that is named by its run directory, or by itself."""
    return path / WEIGHTS if path.is_dir() else path


def unpack(data: bytes, source: str) -> tuple[bytes, NDArray[np.float32]]:
    """Return the sealed description and the flat weights [P] of a champion's file; DataError where it is none."""
    present = entries(data, source)
    if "about" not in present:
        kind = "; it seems to be a file of Keras" if present & KERAS else ""
        raise DataError(f"{source}: has no array 'about', so it is no champion of a run{kind}")
    about = array_layout(data, "about", source)
    if about.dtype != "|u1" or len(about.shape) != 1 or about.shape[0] > ABOUT_LARGEST:
        raise DataError(f"{source}: not a champion")
    sealed = decode(data, {"about": about}, source, others=True)["about"].tobytes()
    layers = _described(sealed, source)[0]
    arrays = decode(data, {"about": about, **{name: Layout("<f4", shape) for name, shape in layers}}, source)
    weights = np.concatenate([arrays[name].ravel() for name, _ in layers]).astype(np.float32, copy=False)
    return sealed, weights


def believed(sealed: bytes, weights: NDArray[np.float32], source: str) -> Champion:
    """Return the champion that a description and weights [P] make; DataError where they do not go together."""
    layers, digest, facts = _described(sealed, source)
    if sum(prod(shape) for _, shape in layers) != weights.size:
        raise DataError(f"{source}: its layers do not have the {weights.size} weights that it holds")
    if hashlib.sha256(weights.tobytes()).hexdigest() != digest:
        raise DataError(f"{source}: the weights do not have the SHA-256 that is written beside them")
    return Champion(weights, layers, facts)


def _described(sealed: bytes, source: str) -> tuple[tuple[tuple[str, tuple[int, ...]], ...], str, dict[str, Any]]:
    """Return the layers, the digest of the weights, and what the run knows of them."""
    try:
        described = unseal(sealed)
        layers = tuple((str(name), tuple(map(whole, shape))) for name, shape in described["layers"])
        if len({*(name for name, _ in layers), "about"}) != len(layers) + 1 or not layers:
            raise ValueError("its layers have not one name each")
        return layers, str(described["weights_sha256"]), dict(described["about"])
    except (KeyError, TypeError, ValueError) as error:
        raise DataError(f"{source}: its description does not hold ({error})") from error
