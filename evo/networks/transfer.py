"""Transfer weights between networks that differ only in their outputs, as from evolution to learning and back."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import prod
from typing import Any

import numpy as np
from numpy.typing import NDArray

from evo.errors import ConfigurationError
from evo.networks.network import Network

SHOWN = 4  # differing arrays that a message names, at most

Layers = Sequence[tuple[str, tuple[int, ...]]]
Arrays = Mapping[str, NDArray[Any]]


def fit(weights: NDArray[np.float32], source_layers: Layers, network: Network) -> NDArray[np.float32]:
    """Return weights [P] for `network`, taken from another network's flat vector and layers.

    Outputs that both have are kept, outputs of the source alone are dropped, and outputs of `network` alone are zero
    for every observation. Raises ConfigurationError, naming the arrays, where any other layer differs.
    """
    fitted = np.zeros(network.size, np.float32)
    target: Arrays = dict(zip(network.names(), network.split(fitted), strict=True))  # views
    source = _arrays(weights, source_layers)
    output = list(target)[-2:]
    differing = [
        f"{name} is {_shape(source, name)}, here {_shape(target, name)}"
        for name in dict.fromkeys([*target, *source])
        if _inputs(source, name, output) != _inputs(target, name, output)
    ]
    if differing:
        more = f"; and {len(differing) - SHOWN} more" if len(differing) > SHOWN else ""
        raise ConfigurationError(f"its layers are not those of this network: {'; '.join(differing[:SHOWN])}{more}")
    for name, array in target.items():
        kept = min(array.shape[-1], source[name].shape[-1])
        array[..., :kept] = source[name][..., :kept]
    return fitted


def _arrays(weights: NDArray[np.float32], layers: Layers) -> Arrays:
    arrays, at = {}, 0
    for name, shape in layers:
        arrays[name] = weights[at : at + prod(shape)].reshape(shape)
        at += prod(shape)
    return arrays


def _inputs(arrays: Arrays, name: str, output: Sequence[str]) -> tuple[int, ...] | None:
    """Return the dimensions that must agree: all, except the number of outputs of the output layer."""
    shape = arrays[name].shape if name in arrays else None
    return shape[:-1] if shape and name in output else shape


def _shape(arrays: Arrays, name: str) -> str:
    return "x".join(map(str, arrays[name].shape)) if name in arrays else "absent"
