"""What makes a network of action values better: squared or Huber errors, and the network that gives the targets."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from evo.policies.keras_network import flat_weights

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


def q_loss(
    actions: int, dueling: bool, huber: float, double: bool, target: Target, learner: Callable[[], Learner]
) -> Loss:
    """Return the loss of DQN: the target is returns + discounts * Q_target(following, the best action there).

    With `double` the learner's own network says which one is best (van Hasselt et al., 2016). A batch has "actions",
    "returns", "discounts" and "importance" [B], "following" [B, ...] and "allowed" [B, A].
    """

    def loss(outputs: Any, batch: Mapping[str, Any], settings: Mapping[str, Any]) -> Mapping[str, Any]:
        import tensorflow as tf

        values = action_values(target.forward.model(batch["following"], training=False), actions, dueling)
        choosing = values
        if double:
            own = learner().forward.model(batch["following"], training=False)
            choosing = action_values(own, actions, dueling)
        best = following_values(values, choosing, batch["allowed"])
        wanted = tf.stop_gradient(batch["returns"] + batch["discounts"] * best)
        chosen = tf.gather(action_values(outputs, actions, dueling), batch["actions"], batch_dims=1)
        error = wanted - chosen
        return {"loss": batch["importance"] * penalty(error, huber), "error": error, "value": chosen}

    return loss


def regression(actions: int, dueling: bool, huber: float) -> Loss:
    """Return the loss of PQN: a batch has "actions" and "targets" [B]."""

    def loss(outputs: Any, batch: Mapping[str, Any], settings: Mapping[str, Any]) -> Mapping[str, Any]:
        import tensorflow as tf

        chosen = tf.gather(action_values(outputs, actions, dueling), batch["actions"], batch_dims=1)
        error = batch["targets"] - chosen
        return {"loss": penalty(error, huber), "error": error, "value": chosen}

    return loss


class Target:
    """The target network, which follows the learner's: a little at every update, or all the way at some."""

    def __init__(self, forward: Forward) -> None:
        self.forward = forward
        self._move: Any = None

    def weights(self) -> NDArray[np.float32]:
        """Return the present weights.  # [P]"""
        return flat_weights(self.forward.model)

    def follow(self, learner: Learner, tau: float, every: int) -> None:
        """Move towards the learner's weights by the share `tau`; or (`every`) copy them at each so many updates."""
        import tensorflow as tf

        if every and learner.updates % every:
            return
        if self._move is None:
            own, ahead = self.forward.model.weights, learner.forward.model.weights
            pairs = list(zip(own, ahead, strict=True))

            def move(share: Any) -> None:
                for mine, other in pairs:
                    mine.assign(mine + share * (other - mine))

            self._move = tf.function(move, input_signature=[tf.TensorSpec((), tf.float32)])
        self._move(tf.constant(1.0 if every else tau, tf.float32))
