"""Many networks with different weights in one TensorFlow call: convolutions as slices and batched matrix products.

On a GPU the launch of a small kernel costs more than its arithmetic. Here each operation is launched once for a group
of networks.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from evo.networks.layer import Layer
from evo.networks.network import EPSILON, Network


class BatchedNetworks:
    """Networks of one description, each with its own weights and observations, behind one `tf.function`.

    Shapes are fixed: `networks` networks with `envs` observations each; callers pad.
    """

    def __init__(self, network: Network, networks: int, envs: int) -> None:
        import tensorflow as tf

        self.network, self.networks, self.envs = network, networks, envs
        self._types = [tf.bfloat16 if network.options.dtype == "bfloat16" else tf.float32] * len(network.layers)
        self._types[-1] = tf.float32
        self._parts: list[list[Any]] = []  # per layer: kernel [N, fan_in, F], bias [N, 1, F], gamma, beta
        for layer, kind in zip(network.layers, self._types, strict=True):
            rows = [layer.fan_in if part == "kernel" else 1 for part in layer.parts]
            shapes = [(networks, count, layer.filters) for count in rows]
            self._parts.append([tf.Variable(tf.zeros(shape, kind), trainable=False) for shape in shapes])
        shape = (networks, envs, *network.shape)
        self._call = tf.function(self._forward, input_signature=[tf.TensorSpec(shape, tf.float32)], autograph=False)

    def set(self, weights: NDArray[np.float32]) -> None:
        """Set the weights of every network.  # [N, P]"""
        import tensorflow as tf

        for layer, parts in zip(self.network.layers, self._parts, strict=True):
            start = layer.offset
            for variable in parts:
                size = variable.shape[1] * variable.shape[2]
                part = np.ascontiguousarray(weights[:, start : start + size]).reshape(variable.shape)
                variable.assign(tf.cast(part, variable.dtype))
                start += size

    def __call__(self, observations: NDArray[np.float32]) -> NDArray[np.float32]:
        """Return the outputs of every network for its own observations.  # [N, B, ...] -> [N, B, O]"""
        scores: NDArray[np.float32] = self._call(observations).numpy()
        return scores

    def _forward(self, x: Any) -> Any:
        import tensorflow as tf

        for layer, parts, kind in zip(self.network.layers, self._parts, self._types, strict=True):
            images = tf.reshape(x, (-1, layer.height, layer.width, layer.channels))
            if layer.weighted:
                kernel, bias = parts[:2]
                rows = _patches(tf.cast(images, kind), layer)
                x = tf.matmul(tf.reshape(rows, (self.networks, -1, layer.fan_in)), kernel) + bias  # [N, B * pixels, F]
            else:
                x = tf.reshape(_without_weights(images, layer, kind), (self.networks, -1, layer.filters))
            if layer.norm:
                x = _normalised(x, *parts[-2:])
            if layer.activation:
                x = tf.nn.relu(x) if layer.activation == "relu" else tf.tanh(x)
        return tf.reshape(x, (self.networks, self.envs, self.network.outputs))


def _without_weights(x: Any, layer: Layer, kind: Any) -> Any:
    """Return the output of a layer without weights.  # [M, H, W, C] -> [M, out_H, out_W, F]"""
    import tensorflow as tf

    if layer.kind == "one_hot":
        codes, apart = np.arange(layer.filters // layer.channels, dtype=np.float32), x[..., None]
        return tf.cast(tf.where(tf.math.is_nan(apart), apart, tf.cast(tf.equal(apart, codes), tf.float32)), kind)
    x = tf.cast(x, kind)
    if layer.kind == "identity":
        return x
    pool = tf.nn.max_pool2d if layer.kind == "max_pool" else tf.nn.avg_pool2d
    return pool(x, layer.kernel, layer.stride, layer.padding.upper())


def _patches(x: Any, layer: Layer) -> Any:
    """Return the inputs of each output of a layer (im2col).  # [M, H, W, C] -> [M, out_H, out_W, fan_in]"""
    import tensorflow as tf

    if layer.kind == "dense":
        return x
    span = [layer.stride * (outputs - 1) + layer.kernel for outputs in (layer.out_height, layer.out_width)]
    after = [max(span[0] - layer.height - layer.pad, 0), max(span[1] - layer.width - layer.pad_left, 0)]
    x = tf.pad(x, [[0, 0], [layer.pad, after[0]], [layer.pad_left, after[1]], [0, 0]])
    down, across = (layer.stride * (outputs - 1) + 1 for outputs in (layer.out_height, layer.out_width))
    taps = [
        x[:, row : row + down : layer.stride, column : column + across : layer.stride]
        for row in range(layer.kernel)
        for column in range(layer.kernel)
    ]
    return tf.concat(taps, 3)


def _normalised(x: Any, gamma: Any, beta: Any) -> Any:
    """Return `x` [N, M, F] with layer normalisation over the last axis, in float32 as in Keras."""
    import tensorflow as tf

    mean, variance = tf.nn.moments(tf.cast(x, tf.float32), [2], keepdims=True)
    normal = (tf.cast(x, tf.float32) - mean) * tf.math.rsqrt(variance + EPSILON)
    return tf.cast(normal * tf.cast(gamma, tf.float32) + tf.cast(beta, tf.float32), x.dtype)
