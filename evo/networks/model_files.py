"""Files of models that other programs wrote: their layers, and the arrays of files that have weights alone."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from evo.errors import ConfigurationError
from evo.networks import keras_import, onnx_import
from evo.networks.imported import Imported
from evo.networks.keras_models import numbered
from evo.networks.layer import GATES
from evo.networks.network import Network
from evo.networks.onnx_file import BEGINNING

HDF5 = b"\x89HDF"  # how its files begin
GRAPH = "saved_model.pb"
STEMS = {"conv": "conv2d"}  # of groups in files of Keras; others have the name of our layer


def layers_in(data: bytes) -> Imported:
    """Return the layers of a .keras archive or an ONNX file; ConfigurationError names what we do not compute."""
    if data.startswith(HDF5):
        raise ConfigurationError(
            "has weights without a description; describe its layers in [policy], and name it in run.init_from"
        )
    if data.startswith(BEGINNING):
        return onnx_import.layers_of_onnx(data)
    return keras_import.layers_in(data)


def refuse_graph(path: Path) -> None:
    """Raise a ConfigurationError where a directory is a SavedModel."""
    if (path / GRAPH).exists():
        raise ConfigurationError("is a SavedModel, a graph of functions, which is not read; save the model as .keras")


def arrays_of(network: Network, stored: Mapping[str, NDArray[np.float32]]) -> dict[str, NDArray[np.float32]]:
    """Return the arrays of a .weights.h5 file by the names of a network; biases that it lacks are 0.

    ConfigurationError: it has others.
    """
    left, counts, found = dict(stored), dict[str, int](), dict[str, NDArray[np.float32]]()
    for i, layer in enumerate(network.layers):
        names = list(layer.arrays)
        for stem, parts in (
            (STEMS.get(layer.kind, layer.kind), names[:-2] if layer.norm else names),
            ("layer_normalization", names[-2:] if layer.norm else []),
        ):
            cell = "cell/" if stem in GATES else ""
            place = f"layers/{numbered(stem, counts)}/{cell}vars" if parts else ""
            for number, part in enumerate(parts):
                array = left.pop(f"{place}/{number}", None)
                if array is None and part != "bias":
                    raise ConfigurationError(f"it has no {place}/{number}, the {part} of layer {i + 1} in [policy]")
                found[f"{i}_{layer.kind}_{part}"] = np.zeros(layer.arrays[part], np.float32) if array is None else array
    if left:
        raise ConfigurationError(f"its {min(left):.80} is of no layer in [policy]")
    return found
