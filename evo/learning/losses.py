"""Losses of policy gradients, of every example: PPO (Schulman et al., 2017), A2C and REINFORCE.

The batch has "actions" [B] or [B, D], "advantages", "targets", "values" (when acting), "log_probabilities" (when
acting) [B], and "action_masks" [B, A] bool where the environment has masks. The settings are "entropy",
"value", "clip" and "value_clip".
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from evo.rollouts.gaussian import HIGHEST, LOWEST

NEVER = -1e9  # the score of an action that is not allowed: its probability is 0 exactly
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
    """Return the same where actions are `dimensions` numbers: outputs are means, log deviations and the value."""
    import tensorflow as tf

    means, deviations = outputs[:, :dimensions], outputs[:, dimensions : 2 * dimensions]
    deviations = tf.clip_by_value(deviations, LOWEST, HIGHEST)
    standard = (batch["actions"] - means) * tf.exp(-deviations)
    taken = tf.reduce_sum(-0.5 * tf.square(standard) - deviations - HALF_LOG_2_PI, 1)
    return taken, tf.reduce_sum(deviations + HALF_LOG_2_PI + 0.5, 1), outputs[:, 2 * dimensions]


@dataclass(frozen=True)
class PolicyLoss:
    """A loss of a policy and a value head: the surrogate, the value's squared error, and less of the entropy."""

    actions: int
    clipped: bool  # PPO's surrogate (equation 7); otherwise it is the log probability times the advantage
    is_gaussian: bool = False

    def __call__(self, outputs: Any, batch: Mapping[str, Any], settings: Mapping[str, Any]) -> dict[str, Any]:
        """Return "loss" and its parts, [B] each."""
        import tensorflow as tf

        heads = gaussian if self.is_gaussian else discrete
        taken, entropy, value = heads(outputs, batch, self.actions)
        change = taken - batch["log_probabilities"]
        ratio, advantage = tf.exp(change), batch["advantages"]
        if self.clipped:
            nearby = tf.clip_by_value(ratio, 1.0 - settings["clip"], 1.0 + settings["clip"])
            surrogate = tf.minimum(ratio * advantage, nearby * advantage)
        else:
            surrogate = taken * advantage
        error = self._value_error(value, batch, settings)
        return {
            "loss": settings["value"] * error - surrogate - settings["entropy"] * entropy,
            "policy_loss": -surrogate,
            "value_loss": error,
            "entropy": entropy,
            "kl": ratio - 1.0 - change,  # http://joschu.net/blog/kl-approx.html
            "clipped": tf.cast(tf.abs(ratio - 1.0) > settings["clip"], tf.float32),
        }

    def _value_error(self, value: Any, batch: Mapping[str, Any], settings: Mapping[str, Any]) -> Any:
        """Return half the squared error, or the greater one of two: with the value held near to the acting one."""
        import tensorflow as tf

        error = tf.square(value - batch["targets"])
        limit = settings["value_clip"]
        held = batch["values"] + tf.clip_by_value(value - batch["values"], -limit, limit)
        return 0.5 * tf.where(limit > 0.0, tf.maximum(error, tf.square(held - batch["targets"])), error)


def log_probabilities(
    outputs: NDArray[np.float32],
    actions: NDArray[np.generic],
    action_masks: NDArray[np.int8] | None,
    count: int,
    is_gaussian: bool = False,
) -> NDArray[np.float32]:
    """Return those of actions that were taken, from what the network said then.  # outputs [M, O] -> [M]

    `count` is the number of actions, or of their dimensions.
    """
    if is_gaussian:
        means, deviations = (outputs[:, i * count : (i + 1) * count].astype(np.float64) for i in (0, 1))
        deviations = np.clip(deviations, LOWEST, HIGHEST)
        standard = (np.asarray(actions, np.float64) - means) * np.exp(-deviations)
        taken = (-0.5 * standard**2 - deviations - HALF_LOG_2_PI).sum(axis=1)
        return np.asarray(taken, np.float32)
    scores = outputs[:, :count].astype(np.float64)
    if action_masks is not None:
        scores = np.where(action_masks != 0, scores, NEVER)
    scores -= scores.max(axis=1, keepdims=True)
    chosen = scores[np.arange(len(scores)), np.asarray(actions, np.int64)]
    return np.asarray(chosen - np.log(np.exp(scores).sum(axis=1)), np.float32)
