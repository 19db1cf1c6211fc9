"""How much better an action was than expected: estimates over steps that stand in the order of time, compiled.

A step that is truncated, or cut by the end of a segment, is bootstrapped from the value of what is seen after it;
one that terminated from nothing. No estimate looks beyond either.
"""

from __future__ import annotations

import numpy as np
from numba import njit
from numpy.typing import NDArray

from evo.compiled import cache as kernel_cache
from evo.records import GOES_ON, SEGMENT_END, TERMINATED, TRUNCATED

kernel_cache.use(__name__)


@njit(cache=True, error_model="numpy")
def _generalised(rewards, ends, values, after_values, gamma, mixed, out):  # type: ignore[no-untyped-def]
    after = after_values.shape[0]
    advantage = 0.0
    for t in range(ends.shape[0] - 1, -1, -1):
        error = np.float64(rewards[t]) - np.float64(values[t])
        if ends[t] == GOES_ON:
            advantage = error + gamma * np.float64(values[t + 1]) + gamma * mixed * advantage
        elif ends[t] == TERMINATED:
            advantage = error
        else:
            after -= 1
            advantage = error + gamma * np.float64(after_values[after])
        out[t] = advantage


def generalised_advantages(
    rewards: NDArray[np.float32],
    ends: NDArray[np.uint8],
    values: NDArray[np.float32],
    after_values: NDArray[np.float32],
    gamma: float,
    mixed: float,
) -> NDArray[np.float32]:
    """Return generalised advantage estimates (Schulman et al., 2016, equation 16); `mixed` is lambda.  # [M]

    `values` [M] are of what each step saw, `after_values` [N] of `next_observations`. With lambda 1 and the values
    added these are Monte Carlo returns. ValueError where the steps do not end, or `after_values` does not fit them.
    """
    _check(ends, after_values)
    out = np.empty(len(ends), np.float32)
    _generalised(rewards, ends, values, after_values, gamma, mixed, out)
    return out


@njit(cache=True, error_model="numpy")
def _against_others(rewards, ends, gamma, returns, out):  # type: ignore[no-untyped-def]
    longest, length, episodes = 0, 0, 0
    for t in range(ends.shape[0]):
        length += 1
        if ends[t] != GOES_ON:
            longest, length, episodes = max(longest, length), 0, episodes + 1
    total = 0.0
    for t in range(ends.shape[0] - 1, -1, -1):
        total = np.float64(rewards[t]) + (gamma * total if ends[t] == GOES_ON else 0.0)
        returns[t] = total
    sums = np.zeros(longest)  # of all episodes' returns from their step i on; one that is over has 0
    i = 0
    for t in range(ends.shape[0]):
        sums[i] += returns[t]
        i = i + 1 if ends[t] == GOES_ON else 0
    i = 0
    for t in range(ends.shape[0]):
        out[t] = returns[t] - (sums[i] - returns[t]) / (episodes - 1)
        i = i + 1 if ends[t] == GOES_ON else 0


def leave_one_out(rewards: NDArray[np.float32], ends: NDArray[np.uint8], gamma: float) -> NDArray[np.float32]:
    """Return each step's discounted return minus the other episodes' mean from the same step on.  # [M]

    Whole episodes, at least two; what is truncated counts as it is, for there is no value to bootstrap from
    (REINFORCE with a leave-one-out baseline: Kool et al., 2019).
    """
    _check(ends, None)
    if np.count_nonzero(ends != GOES_ON) < 2:
        raise ValueError("an episode alone has no others to be compared with")
    out = np.empty(len(ends), np.float32)
    _against_others(rewards, ends, gamma, np.empty(len(ends)), out)
    return out


def _check(ends: NDArray[np.uint8], after_values: NDArray[np.float32] | None) -> None:
    if len(ends) and ends[-1] == GOES_ON:
        raise ValueError("the last step goes on, but what follows is not there")
    if after_values is None:
        return
    followed = np.count_nonzero((ends == TRUNCATED) | (ends == SEGMENT_END))
    if followed != len(after_values):
        raise ValueError(f"{len(after_values)} values after steps, of which {followed} are truncated or cut")
