"""The losses of `evo.algorithms` with their derivatives, compiled, with the same bits everywhere.

Each loss is stated in its algorithm's file (as `PPOLoss`), for REINFORCE in that of A2C; a test
holds both equal. Here a loss is a function of an example's outputs that writes its derivative by every output, over the
number of examples of the batch, and the example's values [V, B]. Numbers are float64 in between, and float32 at both
ends.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np
from numba import njit, types
from numba.extending import overload
from numpy.typing import NDArray

from evo.compiled import cache as kernel_cache
from evo.compiled.functions import exp, log
from evo.learning.exact.squashed import BEGINNING, HALF_LOG_2_PI, SquashedBatch, squashed_policy
from evo.rollouts.action_rules import HIGHEST, LOWEST

kernel_cache.use(__name__)

POLICY_VALUES = ("loss", "policy_loss", "value_loss", "entropy", "approx_kl", "clip_fraction")
Q_VALUES = ("loss", "td_error", "q_value")
MASKS = {"action_masks", "next_action_masks"}
ALL_ALLOWED = np.zeros((0, 1), np.bool_)  # action masks where there are none


class PolicyBatch(NamedTuple):
    """Arrays of the examples of a batch of an actor-critic, [B, ...] each."""

    actions: NDArray[Any]  # int32 [B], or float32 [B, D] of continuous actions
    allowed: NDArray[np.bool_]  # [B, A], or [0, 1]: all actions are
    advantages: NDArray[np.float32]  # [B]
    returns: NDArray[np.float32]
    values: NDArray[np.float32]  # of the policy that acted
    log_probabilities: NDArray[np.float32]  # of the policy that acted


class PolicySettings(NamedTuple):
    """Coefficients of an actor-critic's loss."""

    entropy_coefficient: float
    value_coefficient: float
    clip_range: float
    value_clip_range: float
    clipped: bool  # PPO's surrogate, else log probability times advantage


class QBatch(NamedTuple):
    """Arrays of the examples of a batch of a Q-learner, [B] each."""

    actions: NDArray[np.int32]
    targets: NDArray[np.float32]
    importance: NDArray[np.float32]


class QSettings(NamedTuple):
    """Options of a Q-learner's loss."""

    actions: int
    dueling: bool
    huber_delta: float


def of_one_type(name: str, array: Any) -> NDArray[Any]:
    """Return a batch's array with the type for which losses are compiled: a new one would compile them again."""
    if name == "actions":
        return np.ascontiguousarray(array, np.float32 if array.dtype.kind == "f" else np.int32)
    return np.ascontiguousarray(array, np.bool_ if name in MASKS or name == "begins" else np.float32)


@njit(cache=True, error_model="numpy", nogil=True, inline="always")
def log_softmax(scores, at, allowed, chosen, actions):  # type: ignore[no-untyped-def]
    """Return the log softmax of `chosen` among scores[at : at + actions], and the log-sum-exp.

    `allowed` [A], or [0]: all actions are.
    """
    highest, total = -np.inf, 0.0
    for k in range(actions):
        if allowed.shape[0] == 0 or allowed[k]:
            highest = max(highest, np.float64(scores[at + k]))
    for k in range(actions):
        if allowed.shape[0] == 0 or allowed[k]:
            total += exp(np.float64(scores[at + k]) - highest)
    log_sum = highest + log(total)
    return np.float64(scores[at + chosen]) - log_sum, log_sum


@njit(cache=True, error_model="numpy", nogil=True, inline="always")
def normal_log_probability(outputs, at, action):  # type: ignore[no-untyped-def]
    """Return the log probability of a continuous action [D]; outputs[at:] are means, then log deviations."""
    total, dimensions = 0.0, action.shape[0]
    for k in range(dimensions):
        deviation = min(max(np.float64(outputs[at + dimensions + k]), LOWEST), HIGHEST)
        standard = (np.float64(action[k]) - np.float64(outputs[at + k])) * exp(-deviation)
        total += -0.5 * standard * standard - deviation - HALF_LOG_2_PI
    return total


@njit(cache=True, error_model="numpy", nogil=True, inline="always")
def _surrogate(log_probability, batch, row, settings):  # type: ignore[no-untyped-def]
    """Return PPO's surrogate or log probability * advantage, its derivative, the ratio, and the log ratio."""
    advantage = np.float64(batch.advantages[row])
    log_ratio = np.float64(np.float32(log_probability)) - np.float64(batch.log_probabilities[row])
    ratio, value, slope = exp(log_ratio), log_probability * advantage, advantage
    if settings.clipped:
        clipped = min(max(ratio, 1.0 - settings.clip_range), 1.0 + settings.clip_range)
        value, slope = ratio * advantage, ratio * advantage
        if clipped * advantage < value:
            value, slope = clipped * advantage, np.float64(0)
    return value, slope, ratio, log_ratio


@njit(cache=True, error_model="numpy", nogil=True, inline="always")
def _value_error(value, target, before, limit):  # type: ignore[no-untyped-def]
    """Return half the squared error and its derivative; with a limit, the greater one of it and the clipped value's."""
    error = value - target
    square, slope = error * error, error
    if limit > 0.0:
        clipped = before + min(max(value - before, -limit), limit)
        if (clipped - target) * (clipped - target) > square:
            square, slope = (clipped - target) * (clipped - target), 0.0
            if abs(value - before) <= limit:
                slope = clipped - target
    return 0.5 * square, slope


@njit(cache=True, error_model="numpy", nogil=True, inline="always")
def _finish(x, at, to, batch, settings, row, values, policy):  # type: ignore[no-untyped-def]
    """Write the derivative by the value x[at] to x[to], and the example's POLICY_VALUES.

    policy: surrogate, ratio and log ratio of the policy, and its entropy.
    """
    surrogate, ratio, log_ratio, entropy = policy
    target, before = np.float64(batch.returns[row]), np.float64(batch.values[row])
    error, slope = _value_error(np.float64(x[at]), target, before, settings.value_clip_range)
    x[to] = settings.value_coefficient * slope / values.shape[1]
    values[0, row] = settings.value_coefficient * error - surrogate - settings.entropy_coefficient * entropy
    values[1, row] = -surrogate
    values[2, row] = error
    values[3, row] = entropy
    values[4, row] = ratio - 1.0 - log_ratio  # http://joschu.net/blog/kl-approx.html
    values[5, row] = 1.0 if abs(ratio - 1.0) > settings.clip_range else 0.0


@njit(cache=True, error_model="numpy", nogil=True, inline="always")
def softmax_policy(outputs, x, at, to, batch, settings, row, values):  # type: ignore[no-untyped-def]
    """Write the derivatives of a policy of discrete actions, and of its value, for one example.

    x[at : at + outputs] are the scores of the actions, then the value; their derivatives go to x[to:].
    """
    actions, total = outputs - 1, values.shape[1]
    chosen = batch.actions[row]
    allowed = batch.allowed[row] if batch.allowed.shape[0] else batch.allowed[0:0, 0]
    log_probability, log_sum = log_softmax(x, at, allowed, chosen, actions)
    entropy = 0.0
    for k in range(actions):
        if allowed.shape[0] == 0 or allowed[k]:
            log_of_k = np.float64(x[at + k]) - log_sum
            entropy -= exp(log_of_k) * log_of_k
    surrogate, slope, ratio, log_ratio = _surrogate(log_probability, batch, row, settings)
    for k in range(actions):
        if allowed.shape[0] == 0 or allowed[k]:
            log_of_k = np.float64(x[at + k]) - log_sum
            probability = exp(log_of_k)
            by_entropy = settings.entropy_coefficient * probability * (log_of_k + entropy)
            x[to + k] = ((probability - (1.0 if k == chosen else 0.0)) * slope + by_entropy) / total
        else:
            x[to + k] = 0.0
    policy = surrogate, ratio, log_ratio, entropy
    _finish(x, at + actions, to + actions, batch, settings, row, values, policy)


@njit(cache=True, error_model="numpy", nogil=True, inline="always")
def normal_policy(outputs, x, at, to, batch, settings, row, values):  # type: ignore[no-untyped-def]
    """Write the same for continuous actions: outputs are means, log standard deviations and the value."""
    dimensions, total = outputs // 2, values.shape[1]
    action = batch.actions[row]
    log_probability = normal_log_probability(x, at, action)
    surrogate, slope, ratio, log_ratio = _surrogate(log_probability, batch, row, settings)
    entropy = 0.0
    for k in range(dimensions):
        output = np.float64(x[at + dimensions + k])
        deviation = min(max(output, LOWEST), HIGHEST)
        entropy += deviation + HALF_LOG_2_PI + 0.5
        inverse = exp(-deviation)
        standard = (np.float64(action[k]) - np.float64(x[at + k])) * inverse
        x[to + k] = -standard * inverse * slope / total
        by_deviation = (1.0 - standard * standard) * slope - settings.entropy_coefficient
        x[to + dimensions + k] = by_deviation / total if output == deviation else 0.0
    policy = surrogate, ratio, log_ratio, entropy
    _finish(x, at + 2 * dimensions, to + 2 * dimensions, batch, settings, row, values, policy)


@njit(cache=True, error_model="numpy", nogil=True, inline="always")
def action_value(x, at, action, actions, dueling):  # type: ignore[no-untyped-def]
    """Return Q of an action: its score, or V + A - mean(A) of outputs [A..., V]."""
    if not dueling:
        return np.float64(x[at + action])
    mean = 0.0
    for k in range(actions):
        mean += np.float64(x[at + k])
    return np.float64(x[at + actions]) + np.float64(x[at + action]) - mean / actions


@njit(cache=True, error_model="numpy", nogil=True, inline="always")
def huber(outputs, x, at, to, batch, settings, row, values):  # type: ignore[no-untyped-def]
    """Write the derivatives of the Huber loss (Huber, 1964) of the chosen action's value, weighted by importance."""
    actions, delta, total = settings.actions, settings.huber_delta, values.shape[1]
    chosen = batch.actions[row]
    value = action_value(x, at, chosen, actions, settings.dueling)
    error = np.float64(batch.targets[row]) - value
    size, importance = abs(error), np.float64(batch.importance[row])
    inside = min(size, delta) if delta > 0.0 else size
    slope = -importance * (error if inside == size else math.copysign(delta, error)) / total
    for k in range(actions):
        own = 1.0 if k == chosen else 0.0
        x[to + k] = (own - 1.0 / actions) * slope if settings.dueling else own * slope
    if settings.dueling:
        x[to + actions] = slope
    values[0, row] = importance * (0.5 * inside * inside + delta * (size - inside))
    values[1, row] = error
    values[2, row] = value


def loss_of(batch: Any, continuous: bool) -> Any:
    """Return the compiled loss of an example (outputs, x, at, to, batch, settings, row, values), by a batch's class."""
    if batch is SquashedBatch:
        return squashed_policy
    if batch is PolicyBatch:
        return normal_policy if continuous else softmax_policy
    return huber


def derive(layer, x, batch, settings, first, count, values):  # type: ignore[no-untyped-def]
    """Compute the loss of `count` examples of a batch, from the last layer's outputs in x; only in compiled code."""
    raise NotImplementedError


@overload(derive)
def _derive(layer, x, batch, settings, first, count, values):  # type: ignore[no-untyped-def]
    of_example = loss_of(batch.instance_class, isinstance(batch[0].dtype, types.Float))

    def each(layer, x, batch, settings, first, count, values):  # type: ignore[no-untyped-def]
        for e in range(count):
            at, to = layer.output + e * layer.row, layer.d_output + e * layer.row
            of_example(layer.filters, x, at, to, batch, settings, first + e, values)

    return each


@njit(cache=True, error_model="numpy", nogil=True)
def next_values(online, target, allowed, actions, dueling, double, out):  # type: ignore[no-untyped-def]
    """Write the target network's value of the allowed action that is ranked first, DQN's bootstrap.

    online, target [M, O]: outputs of the learner's network and of the target network for the next observations;
    allowed [M, A]; out [M]. With `double` the online network ranks (van Hasselt et al., 2016), else the target. Of
    equal values the first is taken; NaN where there is one.
    """
    for row in range(out.shape[0]):
        best, highest = -1, -np.inf
        ranks = online[row] if double else target[row]
        for k in range(actions):
            if allowed[row, k]:
                value = action_value(ranks, 0, k, actions, dueling)
                if best < 0 or value > highest or value != value:
                    best, highest = k, value
        out[row] = action_value(target[row], 0, max(best, 0), actions, dueling)


@njit(cache=True, error_model="numpy", nogil=True)
def _softmax_log_probabilities(outputs, actions, allowed, count, out):  # type: ignore[no-untyped-def]
    for row in range(out.shape[0]):
        known = allowed[row] if allowed.shape[0] else allowed[0:0, 0]
        out[row] = log_softmax(outputs[row], BEGINNING, known, actions[row], count)[0]


@njit(cache=True, error_model="numpy", nogil=True)
def _normal_log_probabilities(outputs, actions, out):  # type: ignore[no-untyped-def]
    for row in range(out.shape[0]):
        out[row] = normal_log_probability(outputs[row], BEGINNING, actions[row])


def log_probabilities(
    outputs: NDArray[np.float32],
    actions: NDArray[np.generic],
    action_masks: NDArray[np.int8] | None,
    count: int,
    is_gaussian: bool = False,
) -> NDArray[np.float32]:
    """Return the log probabilities of actions under the outputs they were drawn from.  # outputs [M, O] -> [M]

    `count` is the number of actions, or of their dimensions.
    """
    out, outputs = np.empty(len(outputs), np.float32), np.ascontiguousarray(outputs)
    if is_gaussian:
        _normal_log_probabilities(outputs, np.asarray(actions, np.float32), out)
    else:
        allowed = ALL_ALLOWED if action_masks is None else action_masks != 0
        _softmax_log_probabilities(outputs, np.asarray(actions, np.int32), allowed, count, out)
    return out
