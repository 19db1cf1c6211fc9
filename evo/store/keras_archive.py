"""The weights of an untrusted .keras archive in the form of a champion, for a run to start from."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from evo.errors import ConfigurationError, DataError
from evo.files.arrays import Layout, decode
from evo.files.layout import LARGEST_CHAMPION
from evo.networks.keras_import import WEIGHTS, layers_in, member
from evo.store.champion import facts_of, network_layers

ZIP = b"PK\x03\x04"  # how such a file begins


def unpack_keras(data: bytes, source: str) -> tuple[bytes, NDArray[np.float32]]:
    """Return the facts, as text, and the flat weights [P]; DataError: a layer is not known, or the file is damaged."""
    try:
        found = layers_in(data)
        layers = network_layers(found.network())
        expected = {
            path: Layout("<f4", shape) for (path, _), (_, shape) in zip(found.arrays, layers, strict=True) if path
        }
        arrays = decode(member(data, WEIGHTS, LARGEST_CHAMPION), expected, source, others=True)
    except (ConfigurationError, ValueError) as error:
        raise DataError(f"{source}: {error}") from error
    parts = [
        arrays[path].ravel() if path else np.full(shape, fill, np.float32).ravel()
        for (path, fill), (_, shape) in zip(found.arrays, layers, strict=True)
    ]
    weights = np.concatenate(parts).astype("<f4", copy=False)
    return facts_of(weights, layers, {}), weights
