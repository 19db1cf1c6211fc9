"""Targets equal hand-computed values and a slow reference; an end is bootstrapped only where it was no end."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from evo.learning.returns import action_values, best_values, n_step, q_lambda_targets, rows_after
from evo.records import GOES_ON, SEGMENT_END, TERMINATED, TRUNCATED, Transitions

ENDS = st.lists(st.sampled_from([GOES_ON, GOES_ON, GOES_ON, TERMINATED, TRUNCATED, SEGMENT_END]), max_size=40)


def arrays(ends: list[int], seed: int = 0) -> tuple[NDArray[np.float32], NDArray[np.uint8]]:
    made = np.array([*ends, SEGMENT_END], np.uint8)
    return np.random.default_rng(seed).normal(size=len(made)).astype(np.float32), made


def steps_of(rewards: NDArray[np.float32], ends: NDArray[np.uint8]) -> Transitions:
    """Return steps that see their own number, and after an end that is none a hundred more."""
    seen = np.arange(len(ends), dtype=np.float32)
    after = seen[(ends == TRUNCATED) | (ends == SEGMENT_END)] + 100
    nothing = np.empty((0, 0), np.float32)
    return Transitions(seen, None, np.zeros(len(ends), np.int8), rewards, ends, nothing, after, None, nothing)


def test_two_step_returns_are_those_of_a_hand() -> None:
    rewards = np.array([1, 2, 3, 4, 5], np.float32)
    ends = np.array([GOES_ON, GOES_ON, TERMINATED, GOES_ON, TRUNCATED], np.uint8)
    targets = n_step(rewards, ends, 2, 0.5)
    assert targets.rewards.tolist() == [2.0, 3.5, 3.0, 6.5, 5.0]
    assert targets.discounts.tolist() == [0.25, 0.0, 0.0, 0.25, 0.5]
    following, _ = rows_after(steps_of(rewards, ends), targets.next_rows)
    assert following[[0, 3, 4]].tolist() == [2, 104, 104]


@settings(deadline=None)  # the first call compiles
@given(ENDS, st.integers(1, 6))
def test_n_step_returns_equal_brute_force(ends: list[int], n: int) -> None:
    rewards, made = arrays(ends)
    gamma = 0.9
    targets = n_step(rewards, made, n, gamma)
    steps = steps_of(rewards, made)
    following, _ = rows_after(steps, targets.next_rows)
    for t in range(len(made)):
        taken = [t]
        while len(taken) < n and made[taken[-1]] == GOES_ON:
            taken.append(taken[-1] + 1)
        last = taken[-1]
        assert targets.rewards[t] == pytest.approx(sum(gamma**k * rewards[i] for k, i in enumerate(taken)), abs=1e-5)
        assert targets.discounts[t] == pytest.approx(0 if made[last] == TERMINATED else gamma ** len(taken), abs=1e-6)
        if made[last] != TERMINATED:
            assert following[t] == (last + 1 if made[last] == GOES_ON else last + 100)


def reference(rewards, ends, best, after, gamma, mixed):
    """Return sum (1 - lambda) lambda^(n-1) G_n over the rest of each episode, the last one with what is left."""
    out = np.empty(len(ends))
    numbers = np.cumsum((ends == TRUNCATED) | (ends == SEGMENT_END)) - 1
    for t in range(len(ends)):
        last = t
        while ends[last] == GOES_ON:
            last += 1
        total, returns = 0.0, 0.0
        for n, i in enumerate(range(t, last + 1), 1):
            total += gamma ** (n - 1) * rewards[i]
            if i < last:
                returns += (1 - mixed) * mixed ** (n - 1) * (total + gamma**n * best[i + 1])
            else:
                beyond = 0.0 if ends[i] == TERMINATED else after[numbers[i]]
                returns += mixed ** (n - 1) * (total + gamma**n * beyond)
        out[t] = returns
    return out


@settings(deadline=None)  # the first call compiles
@given(ENDS, st.sampled_from([0.0, 0.3, 0.65, 1.0]))
def test_q_lambda_equals_the_weighted_sum_of_all_n_step_returns(ends: list[int], mixed: float) -> None:
    rewards, made = arrays(ends)
    rng = np.random.default_rng(1)
    best = rng.normal(size=len(made)).astype(np.float32)
    after = rng.normal(size=np.count_nonzero((made == TRUNCATED) | (made == SEGMENT_END))).astype(np.float32)
    targets = q_lambda_targets(rewards, made, best, after, 0.9, mixed)
    np.testing.assert_allclose(targets, reference(rewards, made, best, after, 0.9, mixed), rtol=1e-4, atol=1e-4)


def test_q_lambda_bootstraps_what_was_truncated_and_not_what_terminated() -> None:
    rewards = np.array([1, 1, 1], np.float32)
    best = np.array([7, 8, 9], np.float32)
    ends = np.array([GOES_ON, TERMINATED, TRUNCATED], np.uint8)
    targets = q_lambda_targets(rewards, ends, best, np.array([4], np.float32), 0.5, 0.5)
    assert targets.tolist() == [1 + 0.5 * (0.5 * 1 + 0.5 * 8), 1, 1 + 0.5 * 4]


def test_steps_that_do_not_end_are_refused() -> None:
    one, goes_on = np.ones(1, np.float32), np.array([GOES_ON], np.uint8)
    with pytest.raises(ValueError, match="has no end"):
        n_step(one, goes_on, 1, 0.9)
    with pytest.raises(ValueError, match="has no end"):
        q_lambda_targets(one, goes_on, one, one[:0], 0.9, 0.5)
    with pytest.raises(ValueError, match="that are bootstrapped"):
        q_lambda_targets(one, np.array([SEGMENT_END], np.uint8), one, one[:0], 0.9, 0.5)


def test_dueling_values_are_value_and_advantage_less_their_mean() -> None:
    outputs = np.array([[1, 2, 6, 10]], np.float32)  # advantages, value
    assert action_values(outputs, 3, True).tolist() == [[8, 9, 13]]
    assert action_values(outputs, 3, False).tolist() == [[1, 2, 6]]


def test_the_best_value_is_of_an_action_that_is_allowed() -> None:
    values = np.array([[1, 5, 3], [-9, -8, -7]], np.float32)
    assert best_values(values, np.array([[1, 0, 1], [1, 0, 0]], np.int8)).tolist() == [3, -9]
    assert best_values(values, None).tolist() == [5, -7]
