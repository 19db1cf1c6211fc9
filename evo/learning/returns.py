"""Returns, advantages, value targets and random minibatches of recorded transitions, compiled.

Transitions of one environment stand together in the order of time. One that is truncated, or the last of a segment, is
bootstrapped from the value of the observation after it; one that terminates is not. No estimate crosses either.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numba import njit
from numpy.typing import NDArray

from evo.compiled import cache as kernel_cache
from evo.randomness.philox_compiled import draw
from evo.randomness.streams import Purpose, stream
from evo.records import GOES_ON, SEGMENT_END, TERMINATED, TRUNCATED, Transitions

kernel_cache.use(__name__)

SHUFFLE = int(Purpose.SHUFFLE)
NOT_ALLOWED = np.float32(-3.4e38)  # below every score that is finite in practice, and finite itself


@njit(cache=True, error_model="numpy")
def _generalised(rewards, ends, values, next_values, gamma, gae_lambda, out):  # type: ignore[no-untyped-def]
    after = next_values.shape[0]
    advantage = 0.0
    for t in range(ends.shape[0] - 1, -1, -1):
        error = np.float64(rewards[t]) - np.float64(values[t])
        if ends[t] == GOES_ON:
            advantage = error + gamma * np.float64(values[t + 1]) + gamma * gae_lambda * advantage
        elif ends[t] == TERMINATED:
            advantage = error
        else:
            after -= 1
            advantage = error + gamma * np.float64(next_values[after])
        out[t] = advantage


def generalised_advantages(
    rewards: NDArray[np.float32],
    ends: NDArray[np.uint8],
    values: NDArray[np.float32],
    next_values: NDArray[np.float32],
    gamma: float,
    gae_lambda: float,
) -> NDArray[np.float32]:
    """Return generalised advantage estimates (Schulman et al., 2016, equation 16).  # [M]

    `values` [M] are of the observations, `next_values` [N] of `Transitions.next_observations`. With lambda 1,
    advantages plus values are Monte Carlo returns. Raises ValueError where transitions and values do not match.
    """
    _check(ends, next_values)
    out = np.empty(len(ends), np.float32)
    _generalised(rewards, ends, values, np.ascontiguousarray(next_values), gamma, gae_lambda, out)
    return out


@njit(cache=True, error_model="numpy")
def _leave_one_out(rewards, ends, gamma, returns, out):  # type: ignore[no-untyped-def]
    longest, length, episodes = 0, 0, 0
    for t in range(ends.shape[0]):
        length += 1
        if ends[t] != GOES_ON:
            longest, length, episodes = max(longest, length), 0, episodes + 1
    total = 0.0
    for t in range(ends.shape[0] - 1, -1, -1):
        total = np.float64(rewards[t]) + (gamma * total if ends[t] == GOES_ON else 0.0)
        returns[t] = total
    sums = np.zeros(longest)  # of the returns from step i on, over all episodes; 0 after an episode's end
    i = 0
    for t in range(ends.shape[0]):
        sums[i] += returns[t]
        i = i + 1 if ends[t] == GOES_ON else 0
    i = 0
    for t in range(ends.shape[0]):
        out[t] = returns[t] - (sums[i] - returns[t]) / (episodes - 1)
        i = i + 1 if ends[t] == GOES_ON else 0


def leave_one_out(rewards: NDArray[np.float32], ends: NDArray[np.uint8], gamma: float) -> NDArray[np.float32]:
    """Return each step's discounted return minus the other episodes' mean return from the same step on.  # [M]

    Of at least two whole episodes; truncated ones are not bootstrapped, for there is no value (REINFORCE with a
    leave-one-out baseline: Kool et al., 2019). Raises ValueError where there is one episode.
    """
    _check(ends)
    if np.count_nonzero(ends != GOES_ON) < 2:
        raise ValueError("leave-one-out compares at least two episodes")
    out = np.empty(len(ends), np.float32)
    _leave_one_out(rewards, ends, gamma, np.empty(len(ends)), out)
    return out


def standardised(advantages: NDArray[np.float32]) -> NDArray[np.float32]:
    """Return advantages of mean 0 and standard deviation 1.  # [M]"""
    mean, deviation = advantages.mean(dtype=np.float64), advantages.std(dtype=np.float64)
    return np.asarray((advantages - mean) / (deviation + 1e-8), np.float32)


def explained_variance(values: NDArray[np.float32], returns: NDArray[np.float32]) -> float:
    """Return 1 - var(returns - values) / var(returns); NaN where all returns are equal.  # both [M]"""
    spread = float(returns.var(dtype=np.float64))
    return 1.0 - float((returns - values).var(dtype=np.float64)) / spread if spread > 0 else float("nan")


class NStep(NamedTuple):
    """n-step targets of M transitions: rewards + discounts * (the best value of the observation n steps later)."""

    rewards: NDArray[np.float32]  # [M] discounted sums of up to n
    discounts: NDArray[np.float32]  # [M] of the value n steps later; 0 where the episode terminated
    next_rows: NDArray[np.int64]  # [M] of the observation n steps later; -1 - i: row i of `next_observations`


@njit(cache=True, error_model="numpy")
def _n_step(rewards, ends, n, gamma, sums, discounts, next_rows):  # type: ignore[no-untyped-def]
    count = ends.shape[0]
    after = np.empty(count, np.int64)  # rows of `Transitions.next_observations` before a step's own
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
        sums[t] = total
        discounts[t] = 0.0 if ends[last] == TERMINATED else discount
        if ends[last] == GOES_ON:
            next_rows[t] = last + 1
        elif ends[last] == TERMINATED:
            next_rows[t] = last  # its value has discount 0, but the row must exist
        else:
            next_rows[t] = -1 - after[last]


def n_step(rewards: NDArray[np.float32], ends: NDArray[np.uint8], n: int, gamma: float) -> NStep:
    """Return n-step returns (Sutton, 1988); of fewer steps before an end.  # rewards, ends [M]

    Raises ValueError where the last transition has no end.
    """
    _check(ends)
    count = len(ends)
    out = NStep(np.empty(count, np.float32), np.empty(count, np.float32), np.empty(count, np.int64))
    _n_step(rewards, ends, n, gamma, *out)
    return out


@njit(cache=True, error_model="numpy")
def _q_lambda(rewards, ends, best, next_best, gamma, q_lambda, out):  # type: ignore[no-untyped-def]
    after = next_best.shape[0]
    target = 0.0
    for t in range(ends.shape[0] - 1, -1, -1):
        end = ends[t]
        if end == TERMINATED:
            target = np.float64(rewards[t])
        elif end == GOES_ON:
            target = rewards[t] + gamma * (q_lambda * target + (1.0 - q_lambda) * best[t + 1])
        else:
            after -= 1
            target = rewards[t] + gamma * np.float64(next_best[after])
        out[t] = target


def q_lambda_targets(
    rewards: NDArray[np.float32],
    ends: NDArray[np.uint8],
    best: NDArray[np.float32],
    next_best: NDArray[np.float32],
    gamma: float,
    q_lambda: float,
) -> NDArray[np.float32]:
    """Return Peng's Q(lambda) targets, backwards from each end (Gallici et al., 2024, equation 4).  # [M]

    G_t = r_t + gamma (lambda G_t+1 + (1 - lambda) max Q_t+1). `best` [M] is max Q of the observations, `next_best` [N]
    that of `Transitions.next_observations`. Raises ValueError where transitions and values do not match.
    """
    _check(ends, next_best)
    out = np.empty(len(ends), np.float32)
    _q_lambda(rewards, ends, best, next_best, gamma, q_lambda, out)
    return out


def action_values(outputs: NDArray[np.float32], actions: int, dueling: bool) -> NDArray[np.float32]:
    """Return Q = V + A - mean(A) of outputs [A..., V] (Wang et al., 2016), or the scores.  # [M, O] -> [M, A]"""
    scores = outputs[:, :actions]
    if not dueling:
        return scores
    values: NDArray[np.float32] = outputs[:, actions : actions + 1] + scores - scores.mean(axis=1, keepdims=True)
    return values


def best_values(values: NDArray[np.float32], allowed: NDArray[np.int8] | None) -> NDArray[np.float32]:
    """Return the highest value of an allowed action.  # [M, A], [M, A] or None -> [M]"""
    best: NDArray[np.float32] = (values if allowed is None else np.where(allowed != 0, values, NOT_ALLOWED)).max(axis=1)
    return best


def rows_after(
    transitions: Transitions, next_rows: NDArray[np.int64]
) -> tuple[NDArray[np.generic], NDArray[np.int8] | None]:
    """Return observations and action masks of `NStep.next_rows`.  # [M, ...], [M, A] or None"""
    beyond = next_rows < 0

    def picked(own: Any, after: Any) -> Any:
        rows = own[np.maximum(next_rows, 0)]
        if beyond.any():
            rows[beyond] = after[-1 - next_rows[beyond]]
        return rows

    masks = transitions.action_masks
    return (
        picked(transitions.observations, transitions.next_observations),
        None if masks is None else picked(masks, transitions.next_action_masks),
    )


@njit(cache=True, error_model="numpy")
def _shuffle(key, purpose, out):  # type: ignore[no-untyped-def]
    """Shuffle `out` [M], each order equally likely (Fisher and Yates; Durstenfeld, 1964)."""
    for i in range(out.shape[0] - 1, 0, -1):
        j = draw(key, i, i + 1, purpose)
        out[i], out[j] = out[j], out[i]


def minibatches(
    seed: int, generation: int, epoch: int, examples: int, count: int, steps: int = 1
) -> list[NDArray[np.int32]]:
    """Split the numbers below `examples` at random into disjoint parts, whose sizes differ by one at most.

    There are `count` parts, or as many as examples: whole episodes may have fewer transitions than minibatches. Pieces
    of `steps` consecutive numbers stay together, as `in_pieces` returns them, and are counted in place of examples.
    """
    order = np.arange(-(-examples // steps), dtype=np.int32)
    _shuffle(np.uint64(stream(seed, Purpose.SHUFFLE, generation, epoch)), SHUFFLE, order)
    return [in_pieces(part, examples, steps) for part in np.array_split(order, min(count, len(order)))]


def in_pieces(order: NDArray[np.int32], examples: int, steps: int) -> NDArray[np.int32]:
    """Return the numbers of pieces of `steps`, -1 from `examples` on.  # [N] -> [N steps]"""
    if steps == 1:
        return order
    rows = (order[:, None] * steps + np.arange(steps)).ravel()
    return np.where(rows < examples, rows, -1).astype(np.int32)


def _check(ends: NDArray[np.uint8], next_values: NDArray[np.float32] | None = None) -> None:
    if len(ends) and ends[-1] == GOES_ON:
        raise ValueError("the last transition has no end, and the one after it is missing")
    if next_values is None:
        return
    bootstrapped = np.count_nonzero((ends == TRUNCATED) | (ends == SEGMENT_END))
    if bootstrapped != len(next_values):
        raise ValueError(f"{len(next_values)} next values for {bootstrapped} transitions that are bootstrapped")
