"""Losses of every example: of policy gradients, of DQN and of PQN."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

from evo.learning.learner import Loss
from evo.rollouts.action_rules import HIGHEST, LOWEST

NEVER = -1e9  # the score of an action that is not allowed: its probability is 0 exactly
NOT_ALLOWED = -1e30  # the value of an action that is not allowed
HALF_LOG_2_PI = 0.5 * math.log(2.0 * math.pi)


def discrete(outputs: Any, batch: Mapping[str, Any], actions: int) -> tuple[Any, Any, Any]:
    """Return the log probabilities of the actions taken, the entropies and the values, [B] each.

    Outputs are the scores of `actions` actions, then the value.
    """
    import tensorflow as tf

    scores = outputs[:, :actions]
    if "action_masks" in batch:
        scores = tf.where(batch["action_masks"], scores, NEVER)
    logs = tf.nn.log_softmax(scores)
    taken = tf.gather(logs, tf.cast(batch["actions"], tf.int32), batch_dims=1)
    return taken, -tf.reduce_sum(tf.exp(logs) * logs, 1), outputs[:, actions]


def gaussian(outputs: Any, batch: Mapping[str, Any], dimensions: int) -> tuple[Any, Any, Any]:
    """Return the same for continuous actions: outputs are means, log standard deviations and the value."""
    import tensorflow as tf

    means, deviations = outputs[:, :dimensions], outputs[:, dimensions : 2 * dimensions]
    deviations = tf.clip_by_value(deviations, LOWEST, HIGHEST)
    standard = (batch["actions"] - means) * tf.exp(-deviations)
    taken = tf.reduce_sum(-0.5 * tf.square(standard) - deviations - HALF_LOG_2_PI, 1)
    return taken, tf.reduce_sum(deviations + HALF_LOG_2_PI + 0.5, 1), outputs[:, 2 * dimensions]


@dataclass(frozen=True)
class PolicyLoss:
    """The loss of an actor-critic: the policy loss, plus the value loss, minus the entropy bonus.

    A batch has "actions" [B] or [B, D], "advantages", "returns", and of the policy that acted "values" and
    "log_probabilities" [B]; "action_masks" [B, A] bool where the environment has them. Settings:
    "entropy_coefficient", "value_coefficient", "clip_range" and "value_clip_range".
    """

    actions: int
    clipped: bool  # PPO's surrogate (Schulman et al., 2017, equation 7), else log probability times advantage
    is_gaussian: bool = False

    def __call__(self, outputs: Any, batch: Mapping[str, Any], settings: Mapping[str, Any]) -> dict[str, Any]:
        """Return "loss" and its parts, [B] each."""
        import tensorflow as tf

        heads = gaussian if self.is_gaussian else discrete
        taken, entropy, value = heads(outputs, batch, self.actions)
        change = taken - batch["log_probabilities"]
        ratio, advantage = tf.exp(change), batch["advantages"]
        if self.clipped:
            nearby = tf.clip_by_value(ratio, 1.0 - settings["clip_range"], 1.0 + settings["clip_range"])
            surrogate = tf.minimum(ratio * advantage, nearby * advantage)
        else:
            surrogate = taken * advantage
        error = self._value_error(value, batch, settings)
        return {
            "loss": settings["value_coefficient"] * error - surrogate - settings["entropy_coefficient"] * entropy,
            "policy_loss": -surrogate,
            "value_loss": error,
            "entropy": entropy,
            "approx_kl": ratio - 1.0 - change,  # http://joschu.net/blog/kl-approx.html
            "clip_fraction": tf.cast(tf.abs(ratio - 1.0) > settings["clip_range"], tf.float32),
        }

    def _value_error(self, value: Any, batch: Mapping[str, Any], settings: Mapping[str, Any]) -> Any:
        """Return half the squared error; with a value clip range, the greater of it and that of the clipped value."""
        import tensorflow as tf

        error = tf.square(value - batch["returns"])
        limit = settings["value_clip_range"]
        held = batch["values"] + tf.clip_by_value(value - batch["values"], -limit, limit)
        return 0.5 * tf.where(limit > 0.0, tf.maximum(error, tf.square(held - batch["returns"])), error)


def action_values(outputs: Any, actions: int, dueling: bool) -> Any:
    """Return Q = V + A - mean(A) of outputs [A..., V] (Wang et al., 2016), or the scores.  # [B, O] -> [B, A]"""
    import tensorflow as tf

    scores = outputs[:, :actions]
    if not dueling:
        return scores
    return outputs[:, actions : actions + 1] + scores - tf.reduce_mean(scores, axis=1, keepdims=True)


def huber_loss(error: Any, delta: float) -> Any:
    """Return half the squared error, linear beyond `delta` (Huber, 1964); squared everywhere with delta 0.  # [B]"""
    import tensorflow as tf

    if not delta:
        return 0.5 * tf.square(error)
    size = tf.abs(error)
    inside = tf.minimum(size, delta)
    return 0.5 * tf.square(inside) + delta * (size - inside)


def following_values(values: Any, choosing: Any, allowed: Any) -> Any:
    """Return the value of the allowed action that `choosing` ranks first.  # all [B, A] -> [B]"""
    import tensorflow as tf

    ranked = tf.where(allowed != 0, choosing, tf.fill(tf.shape(choosing), NOT_ALLOWED))
    return tf.gather(values, tf.argmax(ranked, axis=1), batch_dims=1)


@dataclass(frozen=True)
class QLoss:
    """The loss of DQN: the target is returns + discounts * Q_target(following, the best action there).

    With `double`, the learner's own network chooses the action (van Hasselt et al., 2016). A batch has "actions",
    "returns", "discounts" and "importance" [B], "following" [B, ...] and "action_masks" [B, A].
    """

    actions: int
    dueling: bool
    huber_delta: float
    double: bool

    def between(self, own: Any, target: Any) -> Loss:
        """Return the loss for these two Keras models, the learner's network and the target network."""
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
        targets = tf.stop_gradient(batch["returns"] + batch["discounts"] * best)
        chosen = tf.gather(action_values(outputs, self.actions, self.dueling), batch["actions"], batch_dims=1)
        error = targets - chosen
        loss = batch["importance"] * huber_loss(error, self.huber_delta)
        return {"loss": loss, "td_error": error, "q_value": chosen}


@dataclass(frozen=True)
class Regression:
    """The loss of PQN: a batch has "actions" and "targets" [B]."""

    actions: int
    dueling: bool
    huber_delta: float

    def __call__(self, outputs: Any, batch: Mapping[str, Any], settings: Mapping[str, Any]) -> Mapping[str, Any]:
        """Return "loss", "td_error" and "q_value", [B] each."""
        import tensorflow as tf

        chosen = tf.gather(action_values(outputs, self.actions, self.dueling), batch["actions"], batch_dims=1)
        error = batch["targets"] - chosen
        return {"loss": huber_loss(error, self.huber_delta), "td_error": error, "q_value": chosen}


AnyLoss = PolicyLoss | QLoss | Regression
