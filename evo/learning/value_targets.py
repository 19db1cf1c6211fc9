"""What action values are moved towards: n-step returns to bootstrap from (Sutton, 1988) and Q(lambda)."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numba import njit
from numpy.typing import NDArray

from evo.compiled import cache as kernel_cache
from evo.records import GOES_ON, SEGMENT_END, TERMINATED, TRUNCATED, Transitions

kernel_cache.use(__name__)

NOT_ALLOWED = np.float32(-3.4e38)  # below every score that is finite in practice, and finite itself


class NStep(NamedTuple):
    """What follows from M steps: target = returns + discounts * (the best value of what is seen then)."""

    returns: NDArray[np.float32]  # [M] rewards of up to n steps, discounted
    discounts: NDArray[np.float32]  # [M] of what is seen after them; 0 where the episode terminated
    following: NDArray[np.int64]  # [M] which step sees it; -1 - i: it is number i of `Transitions.next_observations`


@njit(cache=True, error_model="numpy")
def _n_step(rewards, ends, n, gamma, returns, discounts, following):  # type: ignore[no-untyped-def]
    count = ends.shape[0]
    after = np.empty(count, np.int64)  # how many of `Transitions.next_observations` stand before a step's own
    passed = 0
    for t in range(count):
        after[t] = passed
        passed += ends[t] == TRUNCATED or ends[t] == SEGMENT_END
    for t in range(count):
        total, discount, last = np.float64(rewards[t]), gamma, t
        while last - t + 1 < n and ends[last] == GOES_ON:
            last += 1
            total += discount * rewards[last]
            discount *= gamma
        returns[t] = total
        discounts[t] = 0.0 if ends[last] == TERMINATED else discount
        if ends[last] == GOES_ON:
            following[t] = last + 1
        elif ends[last] == TERMINATED:
            following[t] = last  # which is never looked at, but has to be seen without harm
        else:
            following[t] = -1 - after[last]


def n_step(rewards: NDArray[np.float32], ends: NDArray[np.uint8], n: int, gamma: float) -> NStep:
    """Return the returns of up to n steps; fewer where an episode ends, or a segment is cut, before.  # both [M]

    A step that is truncated or cut is bootstrapped from what is seen after it; one that terminated from nothing.
    """
    count = len(ends)
    if count and ends[-1] == GOES_ON:
        raise ValueError("the last step goes on, but what follows is not there")
    out = NStep(np.empty(count, np.float32), np.empty(count, np.float32), np.empty(count, np.int64))
    _n_step(rewards, ends, n, gamma, *out)
    return out


@njit(cache=True, error_model="numpy")
def _q_lambda(rewards, ends, best, best_after, gamma, mixed, out):  # type: ignore[no-untyped-def]
    after = best_after.shape[0]
    target = 0.0
    for t in range(ends.shape[0] - 1, -1, -1):
        end = ends[t]
        if end == TERMINATED:
            target = np.float64(rewards[t])
        elif end == GOES_ON:
            target = rewards[t] + gamma * (mixed * target + (1.0 - mixed) * best[t + 1])
        else:
            after -= 1
            target = rewards[t] + gamma * np.float64(best_after[after])
        out[t] = target


def q_lambda(
    rewards: NDArray[np.float32],
    ends: NDArray[np.uint8],
    best: NDArray[np.float32],
    best_after: NDArray[np.float32],
    gamma: float,
    mixed: float,
) -> NDArray[np.float32]:
    """Return Peng's Q(lambda) targets, backwards from each end (Gallici et al., 2024, equation 4).  # [M]

    G_t = r_t + gamma (lambda G_t+1 + (1 - lambda) max Q_t+1); `mixed` is lambda, `best` [M] the highest value of what
    each step saw, `best_after` [N] that of `Transitions.next_observations`.
    """
    if len(ends) and ends[-1] == GOES_ON:
        raise ValueError("the last step goes on, but what follows is not there")
    if np.count_nonzero((ends == TRUNCATED) | (ends == SEGMENT_END)) != len(best_after):
        raise ValueError(f"{len(best_after)} values where as many steps as that should be truncated or cut")
    out = np.empty(len(ends), np.float32)
    _q_lambda(rewards, ends, best, best_after, gamma, mixed, out)
    return out


def action_values(outputs: NDArray[np.float32], actions: int, dueling: bool) -> NDArray[np.float32]:
    """Return Q = V + A - mean(A) of outputs [A..., V] (Wang et al., 2016), or the scores.  # [M, O] -> [M, A]"""
    scores = outputs[:, :actions]
    if not dueling:
        return scores
    values: NDArray[np.float32] = outputs[:, actions : actions + 1] + scores - scores.mean(axis=1, keepdims=True)
    return values


def best_values(values: NDArray[np.float32], allowed: NDArray[np.int8] | None) -> NDArray[np.float32]:
    """Return the highest value among actions that are allowed.  # [M, A], [M, A] or None -> [M]"""
    best: NDArray[np.float32] = (values if allowed is None else np.where(allowed != 0, values, NOT_ALLOWED)).max(axis=1)
    return best


def following_rows(
    steps: Transitions, following: NDArray[np.int64]
) -> tuple[NDArray[np.generic], NDArray[np.int8] | None]:
    """Return what is seen where `NStep.following` says, and what is allowed there.  # [M, ...], [M, A] or None"""
    return (
        _picked(steps.observations, steps.next_observations, following),
        None if steps.action_masks is None else _picked(steps.action_masks, steps.next_action_masks, following),
    )


def _picked(own: Any, after: Any, following: NDArray[np.int64]) -> Any:
    rows = own[np.maximum(following, 0)]
    beyond = following < 0
    if beyond.any():
        rows[beyond] = after[-1 - following[beyond]]
    return rows
