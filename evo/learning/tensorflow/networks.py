"""Networks in TensorFlow: a learner's own, and the target network that follows it."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from evo.learning.learner import Learner
from evo.learning.tensorflow.setup import start_tensorflow
from evo.networks.keras_form import build_keras, flat_weights, set_weights
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


class Target:
    """A target network in TensorFlow: it follows the learner's by a share of the difference, or by copies."""

    def __init__(self, forward: Forward, own: Forward, learner: Learner) -> None:
        """Follow the weights of `own`, the network of a learner, which counts the updates."""
        self.forward, self._own, self._learner = forward, own, learner
        self._move: Any = None

    def weights(self) -> NDArray[np.float32]:
        """Return the weights.  # [P]"""
        return flat_weights(self.forward.model)

    def set(self, weights: NDArray[np.float32]) -> None:
        """Set the weights.  # [P]"""
        self.forward.set(weights)

    def follow(self, tau: float, every: int) -> None:
        """Move by the share `tau` towards the learner's weights; where `every` is set, copy them at its multiples."""
        import tensorflow as tf

        if every and self._learner.updates % every:
            return
        if self._move is None:
            models = (self.forward.model, self._own.model)
            own, ahead = ([c for v in model.weights for c in components(v.value)] for model in models)

            def move(share: Any) -> None:
                for mine, other in zip(own, ahead, strict=True):
                    mine.assign(mine + share * (other - mine))

            self._move = tf.function(move, input_signature=[tf.TensorSpec((), tf.float32)])
        self._move(tf.constant(1.0 if every else tau, tf.float32))


def components(variable: Any) -> list[Any]:
    """Return a variable's copies on the devices of this process, or itself where TensorFlow keeps one."""
    return list(getattr(variable, "values", [variable]))
