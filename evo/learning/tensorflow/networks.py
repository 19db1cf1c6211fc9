"""Networks in TensorFlow: a learner's own, and the target network that follows it."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from evo.learning.tensorflow.setup import start_tensorflow
from evo.networks.keras_form import build_keras, set_weights
from evo.networks.network import Network
from evo.setup import LearnerOptions as Options

CHUNK = 1024  # observations that `Forward` computes at once


class Forward:
    """A network's outputs for many observations at once: the learner's own, or a target network with other weights."""

    def __init__(self, network: Network, options: Options) -> None:
        tf = start_tensorflow(options)
        self.network = network
        self.model = build_keras(network, options.dtype)
        self._compiled = tf.function(self.model, input_signature=[tf.TensorSpec((CHUNK, *network.shape), tf.float32)])

    def set(self, weights: NDArray[np.float32]) -> None:
        """Set the weights.  # [P]"""
        set_weights(self.model, self.network, weights)

    def __call__(self, observations: NDArray[np.float32]) -> NDArray[np.float32]:
        """Return the outputs, computed in parts of one fixed size, so that they do not depend on M.

        observations [M, ...] -> [M, O] float32.
        """
        import tensorflow as tf

        out = np.empty((len(observations), self.network.outputs), np.float32)
        for start in range(0, len(observations), CHUNK):
            part = observations[start : start + CHUNK]
            if len(part) < CHUNK:
                part = np.concatenate([part, np.zeros((CHUNK - len(part), *part.shape[1:]), np.float32)])
            out[start : start + CHUNK] = self._compiled(tf.constant(part)).numpy()[: len(out) - start]
        return out


def components(variable: Any) -> list[Any]:
    """Return a variable's copies on the devices of this process, or itself where TensorFlow keeps one."""
    return list(getattr(variable, "values", [variable]))
