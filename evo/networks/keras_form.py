"""The Keras model of a network, for gradients, GPUs and export. Keras is imported on first use."""

from __future__ import annotations

import os
from math import prod
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from evo.environment import Normalisation
from evo.lazy import keras
from evo.networks.layer import GATES, Layer
from evo.networks.network import EPSILON, Network


def build_keras(
    network: Network, dtype: Literal["float32", "bfloat16"] = "float32", *, normalisation: Normalisation | None = None
) -> keras.Model:
    """Return a Keras model from observations [B, ...] to outputs [B, O], with weights in the order of `network.split`.

    Layers have the activations and normalisations of the network's options. Layers are
    named as in `network.names()`; `0_norm` normalises layer 0. A network with memory is a model from observations and
    hidden states [B, S] to outputs and the next states. With `dtype` bfloat16 hidden layers compute in bfloat16;
    the output layer and all weights stay float32. With `normalisation` the model takes observations as they are before
    it.
    """
    os.environ.setdefault("KERAS_BACKEND", "tensorflow")
    inputs = keras.Input(network.shape, name="observation")
    seen = x = inputs if normalisation is None else _normalised(inputs, normalisation)
    state: Any = keras.Input((network.memory,), name="state") if network.memory else None
    states: list[Any] = []  # next ones
    flat, shape, joined = False, network.shape, list[Any]()
    begins, last = {part.first: part for part in network.parts}, {part.end for part in network.parts}
    for i, layer in enumerate(network.layers):
        hidden, name = layer is not network.layers[-1], f"{i}_{layer.kind}"
        policy = "mixed_bfloat16" if dtype == "bfloat16" and hidden else "float32"  # weights stay float32
        if i in last:
            joined.append(keras.layers.Flatten(name=f"{i - 1}_flatten", dtype=policy)(x))
        if i in begins:
            part, flat = begins[i], False
            shape, x = part.shape, seen[:, part.begin : part.begin + prod(part.shape)]
            x = keras.layers.Reshape(shape, name=f"{i}_entry", dtype=policy)(x)
        elif joined and i == network.joins:
            x, flat = keras.layers.Concatenate(name="entries", dtype=policy)(joined) if joined[1:] else joined[0], True
        if not flat and (layer.kind in ("dense", *GATES) or len(shape) != 3):
            x, flat = keras.layers.Flatten(name=f"{i}_flat" if network.parts else "flatten", dtype=policy)(x), True
        activation = layer.activation or None
        fused = activation if layer.weighted and not layer.norm else None
        if layer.kind == "conv":
            x = keras.layers.Conv2D(
                layer.filters, layer.kernel, layer.stride, layer.padding, activation=fused, name=name,
                dtype=policy,
            )(x)  # fmt: skip
        elif layer.kind == "dense":
            x = keras.layers.Dense(layer.filters, activation=fused, name=name, dtype=policy)(x)
        elif layer.gates:
            cell = (keras.layers.GRUCell if layer.kind == "gru" else keras.layers.LSTMCell)(
                layer.filters, name=name, dtype=policy
            )
            first = sum(one.shape[-1] for one in states)
            ends = range(first, first + layer.memory, layer.filters)
            x, after = cell(x, [state[:, at : at + layer.filters] for at in ends])
            states += after
        elif layer.kind == "one_hot":
            x = _one_hot(x, layer)
        elif layer.kind != "identity":
            pool = keras.layers.MaxPooling2D if layer.kind == "max_pool" else keras.layers.AveragePooling2D
            x = pool(layer.kernel, layer.stride, layer.padding, name=name, dtype=policy)(x)
        if layer.norm:
            x = keras.layers.LayerNormalization(axis=-1, epsilon=EPSILON, name=f"{i}_norm", dtype=policy)(x)
        if activation and not fused:
            x = keras.layers.Activation(activation, name=f"{i}_{activation}", dtype=policy)(x)
    if state is None:
        return keras.Model(inputs, x, name="network")
    after = states[0] if len(states) == 1 else keras.layers.Concatenate(name="next_state")(states)
    return keras.Model([inputs, state], [x, after], name="network")


def _normalised(x: Any, by: Normalisation) -> Any:
    """Return normalised observations, computed in float64 as by the environment.  # [B, ...] -> [B, ...]

    Keras's own operations, so that a saved model loads without this file.
    """
    apart = (keras.ops.cast(x, "float64") - by.mean) / by.deviation
    return keras.ops.cast(keras.ops.clip(apart, -by.limit, by.limit), "float32")


def _one_hot(x: Any, layer: Layer) -> Any:
    """Return planes of 1 where a plane has a code, else 0; a NaN stays one.  # [B, ..., C] -> [B, ..., C K]

    Keras's own operations, so that a saved model loads without this file.
    """
    codes, apart = np.arange(layer.filters // layer.channels, dtype=np.float32), keras.ops.expand_dims(x, -1)
    planes = keras.ops.where(keras.ops.isnan(apart), apart, keras.ops.cast(keras.ops.equal(apart, codes), "float32"))
    return keras.ops.reshape(planes, (-1, *x.shape[1:-1], layer.filters))


def set_weights(model: keras.Model, network: Network, weights: NDArray[np.float32]) -> None:
    """Set the weights of a model from `build_keras` to the flat vector `weights` [P]."""
    for variable, array in zip(_variables(model), network.split(weights), strict=True):
        variable.assign(array)


def flat_weights(model: keras.Model) -> NDArray[np.float32]:
    """Return the weights of a model from `build_keras` as one flat vector.  # [P]"""
    return np.concatenate([np.asarray(array, np.float32).ravel() for array in _variables(model)])


def _variables(model: keras.Model) -> list[Any]:
    """Return the weights by the numbers of their layers; Keras lists those of several inputs by their depth."""
    layers = sorted((layer for layer in model.layers if layer.weights), key=lambda layer: int(layer.name.split("_")[0]))
    return [variable for layer in layers for variable in layer.weights]
