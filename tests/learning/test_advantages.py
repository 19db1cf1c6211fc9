"""Advantages, the order of minibatches and schedules, against sums that are written out."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest
from numpy.typing import NDArray

from evo.learning.hyperparameters import annealed
from evo.learning.returns import generalised_advantages, leave_one_out, minibatches
from evo.records import GOES_ON, SEGMENT_END, TERMINATED, TRUNCATED

ENDINGS = (TERMINATED, TRUNCATED, SEGMENT_END)


def steps(seed: int, count: int = 200) -> tuple[NDArray[np.float32], ...]:
    """Return rewards, ends, values [M] and the values of what follows, for episodes of random lengths."""
    draw = np.random.default_rng(seed)
    ends = np.where(draw.random(count) < 0.2, draw.choice(ENDINGS, count), GOES_ON).astype(np.uint8)
    ends[-1] = draw.choice(ENDINGS)
    followed = int(np.isin(ends, (TRUNCATED, SEGMENT_END)).sum())
    rewards, values, after = (draw.normal(size=n).astype(np.float32) for n in (count, count, followed))
    return rewards, ends, values, after


def written_out(rewards, ends, values, after, gamma, mixed):  # type: ignore[no-untyped-def]
    """Return the sum of (gamma lambda)^l delta_(t+l) from every step to the end of its episode."""
    following, k = [], 0
    for t, end in enumerate(ends):
        if end == GOES_ON:
            following.append(values[t + 1])
        elif end == TERMINATED:
            following.append(0.0)
        else:
            following.append(after[k])
            k += 1
    out = []
    for t in range(len(ends)):
        total, i = 0.0, t
        while True:
            total += (gamma * mixed) ** (i - t) * (rewards[i] + gamma * following[i] - values[i])
            if ends[i] != GOES_ON:
                break
            i += 1
        out.append(total)
    return out


@pytest.mark.parametrize("mixed", [0.0, 0.6, 1.0])
def test_generalised_advantages_are_the_sums_of_their_definition(mixed: float) -> None:
    for seed in range(3):
        episodes = steps(seed)
        found = generalised_advantages(*episodes, 0.9, mixed)
        np.testing.assert_allclose(found, written_out(*episodes, 0.9, mixed), rtol=1e-5, atol=1e-6)


def test_with_lambda_one_and_the_values_added_they_are_monte_carlo_returns() -> None:
    rewards, ends, values, after = steps(5)
    found = generalised_advantages(rewards, ends, values, after, 0.9, 1.0) + values
    expected, total, k = [], 0.0, len(after)
    for t in range(len(ends) - 1, -1, -1):
        if ends[t] == TERMINATED:
            total = 0.0
        elif ends[t] != GOES_ON:
            k -= 1
            total = after[k]
        total = rewards[t] + 0.9 * total
        expected.insert(0, total)
    np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-5)


def test_what_is_truncated_is_worth_what_would_have_followed_and_what_terminated_nothing() -> None:
    rewards, values, nothing = np.ones(2, np.float32), np.zeros(2, np.float32), np.empty(0, np.float32)
    after = np.array([10.0], np.float32)
    died = generalised_advantages(rewards, np.array([GOES_ON, TERMINATED], np.uint8), values, nothing, 0.5, 1.0)
    for end in (TRUNCATED, SEGMENT_END):
        stopped = generalised_advantages(rewards, np.array([GOES_ON, end], np.uint8), values, after, 0.5, 1.0)
        assert died.tolist() == [1.5, 1.0]
        assert stopped.tolist() == [1.5 + 0.25 * 10, 1.0 + 0.5 * 10]


def test_no_advantage_looks_into_the_next_episode() -> None:
    rewards, ends, values, after = steps(7)
    last = int(np.flatnonzero(ends != GOES_ON)[3])
    before = generalised_advantages(rewards, ends, values, after, 0.9, 0.95)
    rewards[last + 1 :] += 100
    values[last + 1 :] -= 100
    changed = generalised_advantages(rewards, ends, values, after, 0.9, 0.95)
    np.testing.assert_array_equal(changed[: last + 1], before[: last + 1])
    assert (changed[last + 1 :] != before[last + 1 :]).all()


def test_leave_one_out_compares_every_step_with_the_same_step_of_the_others() -> None:
    rewards = np.array([1, 2, 3, 10, 20, 5], np.float32)
    ends = np.array([GOES_ON, GOES_ON, TERMINATED, GOES_ON, TRUNCATED, TERMINATED], np.uint8)
    returns = [[1 + 0.5 * (2 + 0.5 * 3), 2 + 0.5 * 3, 3], [10 + 0.5 * 20, 20], [5]]
    expected = []
    for episode, own in enumerate(returns):
        for t, value in enumerate(own):
            others = [other[t] if t < len(other) else 0.0 for e, other in enumerate(returns) if e != episode]
            expected.append(value - sum(others) / 2)
    np.testing.assert_allclose(leave_one_out(rewards, ends, 0.5), expected, rtol=1e-6)


def test_steps_without_an_end_and_values_that_do_not_fit_are_refused() -> None:
    rewards, ends, values, after = steps(1)
    with pytest.raises(ValueError, match="that are bootstrapped"):
        generalised_advantages(rewards, ends, values, after[1:], 0.9, 0.9)
    ends[-1] = GOES_ON
    with pytest.raises(ValueError, match="has no end"):
        leave_one_out(rewards, ends, 0.9)
    with pytest.raises(ValueError, match="at least two"):
        leave_one_out(rewards[:2], np.array([GOES_ON, TERMINATED], np.uint8), 0.9)


def test_minibatches_are_a_partition_that_only_their_names_decide() -> None:
    parts = minibatches(3, 1, 0, 103, 4)
    assert [len(part) for part in parts] == [26, 26, 26, 25]
    assert sorted(np.concatenate(parts).tolist()) == list(range(103))
    same = minibatches(3, 1, 0, 103, 4)
    assert all((one == other).all() for one, other in zip(parts, same, strict=True))
    for name in ((4, 1, 0), (3, 2, 0), (3, 1, 1)):
        assert (np.concatenate(minibatches(*name, 103, 4)) != np.concatenate(parts)).any()


def test_minibatches_of_pieces_keep_consecutive_steps_together_and_say_which_are_missing() -> None:
    parts = minibatches(3, 1, 0, 103, 4, 8)
    assert [len(part) for part in parts] == [32, 24, 24, 24]
    pieces = np.concatenate(parts).reshape(-1, 8)
    assert sorted(pieces[:, 0].tolist()) == list(range(0, 103, 8))
    assert sorted(pieces.ravel().tolist()) == [-1, *range(103)]
    assert all(((piece == piece[0] + np.arange(8)) | (piece == -1)).all() for piece in pieces)
    assert len(minibatches(3, 1, 0, 9, 4, 8)) == 2


def test_every_order_is_as_likely() -> None:
    orders = Counter(tuple(minibatches(1, 0, epoch, 4, 1)[0].tolist()) for epoch in range(2400))
    assert len(orders) == 24
    assert all(abs(count - 100) < 50 for count in orders.values())  # five standard deviations


def test_a_schedule_is_a_straight_line_in_absolute_frames() -> None:
    assert [annealed(1.0, 0.0, 100, frames) for frames in (0, 25, 100, 1000)] == [1.0, 0.75, 0.0, 0.0]
    assert annealed(1.0, 0.5, 0, 10**9) == 1.0
