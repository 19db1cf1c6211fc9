"""The Keras model of a network, for gradients, GPUs and export. Keras is imported on first use."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Literal

import numpy as np
from numpy.typing import NDArray

from evo.networks.network import EPSILON, Network
from evo.networks.strided import conv_layer

if TYPE_CHECKING:
    import keras


def build_keras(
    network: Network, dtype: Literal["float32", "bfloat16"] = "float32", *, learns: bool = True
) -> keras.Model:
    """Return a Keras model from observations [B, ...] to scores [B, A], with weights in the order of `network.split`.

    Hidden layers have the activation and normalisation of the network's options; the output is linear. Layers are named
    as in `network.names()`; `0_norm` normalises layer 0. With `dtype` bfloat16 hidden layers compute in bfloat16; the
    output layer stays float32, and so do all weights of a model that `learns`.
    """
    os.environ.setdefault("KERAS_BACKEND", "tensorflow")
    import keras

    low = "mixed_bfloat16" if learns else "bfloat16"  # mixed: float32 weights, rounded in every call
    inputs = keras.Input(network.shape, name="observation")
    x = inputs
    flat = False
    for i, layer in enumerate(network.layers):
        chosen, name = network.options.activation, f"{i}_{layer.kind}"
        activation = chosen if layer.relu and not layer.norm else None
        policy = low if dtype == "bfloat16" and layer.relu else "float32"
        if layer.kind == "conv":
            conv = conv_layer() if policy == "mixed_bfloat16" and layer.stride > 1 else keras.layers.Conv2D
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
    """Set the weights of a model from `build_keras` to the flat vector `weights` [P]."""
    for variable, array in zip(model.weights, network.split(weights), strict=True):
        variable.assign(array)


def flat_weights(model: keras.Model) -> NDArray[np.float32]:
    """Return the weights of a model from `build_keras` as one flat vector.  # [P]"""
    return np.concatenate([np.asarray(array, np.float32).ravel() for array in model.get_weights()])
