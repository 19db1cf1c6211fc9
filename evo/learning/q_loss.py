"""What makes a network of action values better: squared or Huber errors, and the network that gives the targets."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from evo.networks.keras_form import flat_weights

if TYPE_CHECKING:
    from evo.learning.learner import Forward, Learner, Loss

NOT_ALLOWED = -1e30  # added to the value of an action that the mask rules out


def action_values(outputs: Any, actions: int, dueling: bool) -> Any:
    """Return Q = V + A - mean(A) of outputs [A..., V] (Wang et al., 2016), or the scores.  # [B, O] -> [B, A]"""
    import tensorflow as tf

    scores = outputs[:, :actions]
    if not dueling:
        return scores
    return outputs[:, actions : actions + 1] + scores - tf.reduce_mean(scores, axis=1, keepdims=True)


def penalty(error: Any, huber: float) -> Any:
    """Return half the square of the error, and beyond `huber` the straight line that goes on from there.  # [B]"""
    import tensorflow as tf

    if not huber:
        return 0.5 * tf.square(error)
    size = tf.abs(error)
    inside = tf.minimum(size, huber)
    return 0.5 * tf.square(inside) + huber * (size - inside)


def following_values(values: Any, choosing: Any, allowed: Any) -> Any:
    """Return the value of the action that `choosing` ranks first among those allowed.  # all [B, A] -> [B]"""
    import tensorflow as tf

    ranked = tf.where(allowed != 0, choosing, tf.fill(tf.shape(choosing), NOT_ALLOWED))
    return tf.gather(values, tf.argmax(ranked, axis=1), batch_dims=1)


@dataclass(frozen=True)
class QLoss:
    """The loss of DQN: the target is returns + discounts * Q_target(following, the best action there).

    With `double` the learner's own network says which one is best (van Hasselt et al., 2016). A batch has "actions",
    "returns", "discounts" and "importance" [B], "following" [B, ...] and "action_masks" [B, A].
    """

    actions: int
    dueling: bool
    huber: float
    double: bool

    def between(self, own: Any, target: Any) -> Loss:
        """Return the loss where these two Keras models are the learner's network and the target."""
        return partial(self._loss, own, target)

    def _loss(
        self, own: Any, target: Any, outputs: Any, batch: Mapping[str, Any], settings: Mapping[str, Any]
    ) -> Mapping[str, Any]:
        import tensorflow as tf

        values = action_values(target(batch["following"], training=False), self.actions, self.dueling)
        choosing = values
        if self.double:
            choosing = action_values(own(batch["following"], training=False), self.actions, self.dueling)
        best = following_values(values, choosing, batch["action_masks"])
        wanted = tf.stop_gradient(batch["returns"] + batch["discounts"] * best)
        chosen = tf.gather(action_values(outputs, self.actions, self.dueling), batch["actions"], batch_dims=1)
        error = wanted - chosen
        return {"loss": batch["importance"] * penalty(error, self.huber), "error": error, "value": chosen}


@dataclass(frozen=True)
class Regression:
    """The loss of PQN: a batch has "actions" and "targets" [B]."""

    actions: int
    dueling: bool
    huber: float

    def __call__(self, outputs: Any, batch: Mapping[str, Any], settings: Mapping[str, Any]) -> Mapping[str, Any]:
        """Return "loss", "error" and "value", [B] each."""
        import tensorflow as tf

        chosen = tf.gather(action_values(outputs, self.actions, self.dueling), batch["actions"], batch_dims=1)
        error = batch["targets"] - chosen
        return {"loss": penalty(error, self.huber), "error": error, "value": chosen}


class Target:
    """The target network, which follows the learner's: a little at every update, or all the way at some."""

    def __init__(self, forward: Forward, learner: Learner) -> None:
        self.forward, self._learner = forward, learner
        self._move: Any = None

    def weights(self) -> NDArray[np.float32]:
        """Return the present weights.  # [P]"""
        return flat_weights(self.forward.model)

    def set(self, weights: NDArray[np.float32]) -> None:
        """Take these weights.  # [P]"""
        self.forward.set(weights)

    def follow(self, tau: float, every: int) -> None:
        """Move towards the learner's weights by the share `tau`; or (`every`) copy them at each so many updates."""
        import tensorflow as tf

        if every and self._learner.updates % every:
            return
        if self._move is None:
            models = (self.forward.model, self._learner.forward.model)
            own, ahead = ([c for v in model.weights for c in components(v.value)] for model in models)

            def move(share: Any) -> None:
                for mine, other in zip(own, ahead, strict=True):
                    mine.assign(mine + share * (other - mine))

            self._move = tf.function(move, input_signature=[tf.TensorSpec((), tf.float32)])
        self._move(tf.constant(1.0 if every else tau, tf.float32))


def components(variable: Any) -> list[Any]:
    """Return a variable's copies on the devices of this process, or itself where it has none."""
    return list(getattr(variable, "values", [variable]))
