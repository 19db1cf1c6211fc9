"""The way that neuroevolution is mostly written, as the baseline: one frame, one call of a TensorFlow graph.

A worker holds a Keras model, plays one episode after the other, and asks the model once a frame with a batch of one.
The game is our compiled one, so the baseline loses nothing to a slower game.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from evo.games.batch import Batch
from evo.games.catalogue.snake.rules import EPISODE_METRICS
from evo.games.game import GameEnvironment
from evo.networks.keras_form import build_keras, set_weights
from evo.networks.network import Network
from evo.records import GOES_ON
from evo.workers.devices import import_tensorflow

SCORE = EPISODE_METRICS.index("score")


class SeedWay:
    """Plays one candidate at a time, one frame at a time, on one thread."""

    def __init__(self, network: Network, environment: GameEnvironment) -> None:
        import_tensorflow(on_gpu=False)
        import tensorflow as tf

        if tf.config.threading.get_intra_op_parallelism_threads() != 1:
            tf.config.threading.set_intra_op_parallelism_threads(1)
            tf.config.threading.set_inter_op_parallelism_threads(1)
        self.network, self.environment = network, environment
        self.model: Any = build_keras(network)
        self._observation = np.zeros((1, *network.shape), np.float32)
        self._boards = Batch(environment.game, 1)

        @tf.function(input_signature=[tf.TensorSpec((1, *network.shape), tf.float32)])  # type: ignore[untyped-decorator]
        def scores(observation: Any) -> Any:
            return self.model(observation, training=False)

        self._scores = scores
        self._to_tensor = tf.constant

    def set_weights(self, weights: NDArray[np.float32]) -> None:
        """Make `weights` [P] those of the model."""
        set_weights(self.model, self.network, weights)

    def play(self, seeds: NDArray[np.uint64], frames: int) -> tuple[list[int], int]:
        """Play episodes until at least `frames` frames are played; return their scores, and the frames."""
        boards, random = self._boards, np.random.Generator(np.random.Philox(key=0))
        fruits, played = [], 0
        for seed in seeds:
            boards.begin(np.ones(1, np.bool_), [int(seed)], random)
            while boards.status[0] == GOES_ON:
                scores = self._scores(self._to_tensor(boards.out)).numpy()
                boards.step(np.argmax(scores, axis=1))
                played += 1
            fruits.append(int(boards.ended.episode_metrics[0, SCORE]))
            if played >= frames:
                break
        return fruits, played

    def predict(self, frames: int) -> None:
        """Ask Keras's `predict` for so many frames, one at a time."""
        for _ in range(frames):
            self.model.predict(self._observation, verbose=0)
