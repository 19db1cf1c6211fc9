"""The same network in Keras, for computing on GPUs, for learning and for export; imported only where it is needed."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Literal

import numpy as np
from numpy.typing import NDArray

from evo.networks.network import EPSILON, Network
from evo.networks.strided import quickest_layer

if TYPE_CHECKING:
    import keras


def build_keras(
    network: Network, dtype: Literal["float32", "bfloat16"] = "float32", *, learns: bool = True
) -> keras.Model:
    """Return a Keras model from observations [B, ...] to scores [B, A], with weights in the order of `network.split`.

    Convolutions and hidden dense layers are ReLU or what `policy.activation` says, normalised before it where
    `policy.norm` says so; the output is linear. Layers are named as in `network.names()`, and 0_norm is what normalises
    layer 0. Hidden layers may compute in bfloat16; the output layer and the weights of what `learns` are float32 all
    the same.
    """
    os.environ.setdefault("KERAS_BACKEND", "tensorflow")
    import keras

    low = "mixed_bfloat16" if learns else "bfloat16"  # mixed: the weights are rounded anew in every call
    inputs = keras.Input(network.shape, name="observation")
    x = inputs
    flat = False
    for i, layer in enumerate(network.layers):
        chosen, name = network.options.activation, f"{i}_{layer.kind}"
        activation = chosen if layer.relu and not layer.norm else None
        policy = low if dtype == "bfloat16" and layer.relu else "float32"
        if layer.kind == "conv":
            conv = quickest_layer() if policy == "mixed_bfloat16" and layer.stride > 1 else keras.layers.Conv2D
            x = conv(
                layer.filters, layer.kernel, layer.stride, network.options.padding, activation=activation, name=name,
                dtype=policy,
            )(x)  # fmt: skip
        else:
            if not flat:
                x, flat = keras.layers.Flatten(name="flatten", dtype=policy)(x), True
            x = keras.layers.Dense(layer.filters, activation=activation, name=name, dtype=policy)(x)
        if layer.norm:
            x = keras.layers.LayerNormalization(axis=-1, epsilon=EPSILON, name=f"{i}_norm", dtype=policy)(x)
            x = keras.layers.Activation(chosen, name=f"{i}_{chosen}", dtype=policy)(x)
    return keras.Model(inputs, x, name="network")


def set_weights(model: keras.Model, network: Network, weights: NDArray[np.float32]) -> None:
    """Give a model that `build_keras` made the flat vector `weights` [P]."""
    for variable, array in zip(model.weights, network.split(weights), strict=True):
        variable.assign(array)


def flat_weights(model: keras.Model) -> NDArray[np.float32]:
    """Return the weights of a model that `build_keras` made as one flat vector.  # [P]"""
    return np.concatenate([np.asarray(array, np.float32).ravel() for array in model.get_weights()])
