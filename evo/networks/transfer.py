"""Handing weights over between networks that differ in their outputs alone: from evolution to learning, and back."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import prod
from typing import Any

import numpy as np
from numpy.typing import NDArray

from evo.errors import ConfigurationError
from evo.networks.network import Network

TOLD = 4  # layers that are named where more differ

Layers = Sequence[tuple[str, tuple[int, ...]]]
Arrays = Mapping[str, NDArray[Any]]


def fit(weights: NDArray[np.float32], source_layers: Layers, network: Network) -> NDArray[np.float32]:
    """Return the weights [P] of `network` that are those of another, whose flat vector and layers are given.

    The first outputs stay what they were. Outputs that only the source has are dropped, and those that only `network`
    has are zero, whatever is seen. ConfigurationError: another layer differs; it says which.
    """
    fitted = np.zeros(network.size, np.float32)
    ours: Arrays = dict(zip(network.names(), network.split(fitted), strict=True))  # views
    theirs = _arrays(weights, source_layers)
    output = list(ours)[-2:]
    differing = [
        f"{name} is {_shape(theirs, name)}, here {_shape(ours, name)}"
        for name in dict.fromkeys([*ours, *theirs])
        if _inputs(theirs, name, output) != _inputs(ours, name, output)
    ]
    if differing:
        more = f"; and {len(differing) - TOLD} more" if len(differing) > TOLD else ""
        raise ConfigurationError(f"its layers are not those of this network: {'; '.join(differing[:TOLD])}{more}")
    for name, array in ours.items():
        kept = min(array.shape[-1], theirs[name].shape[-1])
        array[..., :kept] = theirs[name][..., :kept]
    return fitted


def _arrays(weights: NDArray[np.float32], layers: Layers) -> Arrays:
    arrays, at = {}, 0
    for name, shape in layers:
        arrays[name] = weights[at : at + prod(shape)].reshape(shape)
        at += prod(shape)
    return arrays


def _inputs(arrays: Arrays, name: str, output: Sequence[str]) -> tuple[int, ...] | None:
    """Return what has to be equal: the shape, of the output layer's arrays but for the number of outputs."""
    shape = arrays[name].shape if name in arrays else None
    return shape[:-1] if shape and name in output else shape


def _shape(arrays: Arrays, name: str) -> str:
    return "x".join(map(str, arrays[name].shape)) if name in arrays else "not there"
