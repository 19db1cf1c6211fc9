"""The replay buffer keeps the last transitions, samples by priority, and is restored from state and records."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from evo.games.catalogue import snake
from evo.learning.replay_buffer import ReplayBuffer, below, draw_slots, set_priorities
from evo.records import SEGMENT_END, TERMINATED, Transitions
from evo.rollouts.segments import replay_segment


def transitions_of(first: int, count: int, masked: bool = False) -> Transitions:
    """Return transitions whose observations are their own numbers."""
    seen = np.arange(first, first + count, dtype=np.float32)[:, None]
    ends = np.zeros(count, np.uint8)
    ends[-1] = SEGMENT_END
    allowed = np.ones((count, 3), np.int8) if masked else None
    nothing = np.empty((0, 0), np.float32)
    after = seen[-1:] + 1
    return Transitions(
        seen, allowed, (seen[:, 0] % 3).astype(np.int8), seen[:, 0], ends, nothing, after,
        None if allowed is None else allowed[:1], nothing,
    )  # fmt: skip


def filled(capacity: int = 100, alpha: float = 1.0, count: int = 100) -> ReplayBuffer:
    buffer = ReplayBuffer(capacity, 1, 0.9, alpha)
    buffer.add(transitions_of(0, count))
    return buffer


def chi_square(counts: np.ndarray, shares: np.ndarray) -> float:
    expected = counts.sum() * shares
    return float(((counts - expected) ** 2 / expected).sum())


@pytest.mark.parametrize("alpha", [0.0, 0.7])
def test_transitions_are_drawn_in_proportion_to_their_priorities(alpha: float) -> None:
    buffer = filled(alpha=alpha, count=40)
    errors = np.linspace(0.1, 5, 40).astype(np.float32)
    buffer.update_priorities(np.arange(40), errors)
    shares = (errors.astype(np.float64) + 1e-3) ** alpha
    shares /= shares.sum()
    counts = np.zeros(40)
    for key in range(400):
        sample = buffer.sample(key, 50)
        np.add.at(counts, sample.slots, 1)
        np.testing.assert_allclose(sample.probabilities, shares[sample.slots], rtol=1e-3)
    # 39 degrees of freedom: 0.1 % are above 73. One draw from each of equal parts spreads less than free draws.
    assert chi_square(counts, shares) < 73
    assert (counts > 0).all()


def test_every_unit_of_priority_belongs_to_exactly_one_slot() -> None:
    tree, slots = np.zeros(16, np.int64), np.empty(9, np.int64)
    set_priorities(tree, np.arange(5), np.array([1, 0, 3, 4, 1]))
    draw_slots(tree, np.uint64(1), slots)
    assert slots.tolist() == [0, 2, 2, 2, 3, 3, 3, 3, 4]


def test_uniform_draws_ignore_priorities() -> None:
    buffer = filled(alpha=0.0, count=40)
    buffer.update_priorities(np.array([3]), np.array([1e6], np.float32))
    counts = np.bincount(np.concatenate([buffer.sample(key, 50).slots for key in range(100)]), minlength=40)
    assert 20 < chi_square(counts, np.full(40, 1 / 40)) < 73


def test_draws_below_a_large_limit_are_even() -> None:
    limit = 3 << 60
    draws = np.array([below(np.uint64(9), k, limit) for k in range(3000)])
    counts, _ = np.histogram(draws.astype(np.float64), 10, (0, float(limit)))
    assert draws.min() >= 0
    assert draws.max() < limit
    assert chi_square(counts, np.full(10, 0.1)) < 28


def test_the_same_state_gives_the_same_sample_and_another_key_another() -> None:
    one, other = filled(), filled()
    one.update_priorities(np.arange(50), np.full(50, 9, np.float32))
    one.update_priorities(np.arange(50), np.full(50, 2, np.float32))
    other.update_priorities(np.arange(50), np.full(50, 2, np.float32))
    assert one.sample(5, 32).slots.tolist() == other.sample(5, 32).slots.tolist()
    assert one.sample(5, 32).slots.tolist() != one.sample(6, 32).slots.tolist()


def test_new_transitions_overwrite_the_oldest_and_have_the_highest_priority() -> None:
    buffer = filled(capacity=50, count=30)
    buffer.update_priorities(np.array([0, 1]), np.array([7, 0.1], np.float32))
    buffer.add(transitions_of(1000, 30))
    sample = buffer.sample(1, 4000)
    assert set(sample.observations[:, 0].tolist()) == {*range(10, 30), *range(1000, 1030)}
    assert len(buffer) == 50
    new = sample.probabilities[sample.observations[:, 0] >= 1000]
    old = sample.probabilities[sample.observations[:, 0] < 1000]
    np.testing.assert_allclose(new / old.max(), 7.001, rtol=1e-3)


def test_of_more_transitions_than_fit_the_last_are_kept() -> None:
    buffer = filled(capacity=16, count=40)
    sample = buffer.sample(1, 300)
    assert set(sample.observations[:, 0].tolist()) == {*range(24, 40)}
    assert (sample.slots == sample.observations[:, 0] % 16).all()
    assert (sample.next_observations[:, 0] == sample.observations[:, 0] + 1).all()


def test_of_a_transition_drawn_twice_the_last_error_counts() -> None:
    buffer = filled(count=2)
    buffer.update_priorities(np.array([0, 1, 0]), np.array([50, 1, 3], np.float32))
    assert buffer.state()["priorities"].tolist() == [round(3.001 * 65536), round(1.001 * 65536)]


def test_importance_weights_are_inverse_to_probabilities() -> None:
    buffer = filled(count=4)
    buffer.update_priorities(np.arange(4), np.array([1, 1, 1, 5], np.float32) - np.float32(1e-3))
    weights = buffer.importance_weights(np.array([1 / 8, 5 / 8]), 1.0)
    assert weights.tolist() == [1.0, np.float32(0.2)]
    assert buffer.importance_weights(np.array([1 / 8, 5 / 8]), 0.0).tolist() == [1.0, 1.0]


@pytest.mark.parametrize("masked", [False, True])
def test_a_buffer_restored_from_its_state_and_records_gives_the_same_samples(masked: bool) -> None:
    pieces = [transitions_of(first, 30, masked) for first in (0, 100, 200)]
    buffer, again = ReplayBuffer(50, 2, 0.9, 0.6), ReplayBuffer(50, 2, 0.9, 0.6)
    records = []
    for piece in pieces:
        records.append(buffer.add(piece))
        buffer.update_priorities(buffer.sample(1, 8).slots, np.arange(8, dtype=np.float32))
    again.restore({name: array.copy() for name, array in buffer.state().items()}, lambda number: None, records)
    assert again.written == buffer.written
    for one, other in zip(buffer.sample(3, 64), again.sample(3, 64), strict=True):
        np.testing.assert_array_equal(one, other)
    again.add(transitions_of(300, 5, masked))
    buffer.add(transitions_of(300, 5, masked))
    for name, array in buffer.state().items():
        np.testing.assert_array_equal(array, again.state()[name])


@pytest.mark.parametrize("parts", [([1, 0, 1], None, None), (None, [1, 0, 1], None)])
def test_masks_that_are_missing_are_masks_of_ones(parts: tuple[list[int] | None, ...]) -> None:
    buffer, told = ReplayBuffer(50, 2, 0.9, 0.6), ReplayBuffer(50, 2, 0.9, 0.6)
    for number, allowed in enumerate(parts):
        steps, masks = transitions_of(100 * number, 30), np.full((30, 3), allowed or [1, 1, 1], np.int8)
        shown = replace(steps, action_masks=masks, next_action_masks=masks[:1])
        buffer.add(steps if allowed is None else shown)
        told.add(shown)
    for one, other in zip(buffer.sample(3, 64), told.sample(3, 64), strict=True):
        np.testing.assert_array_equal(one, other)


@pytest.mark.long
def test_a_million_transitions_of_a_10_x_10_board_take_a_quarter_of_a_gigabyte() -> None:
    environment = snake.make(snake.Options(size=10, observation="window", starvation=200))
    begun = environment.game.begin(np.arange(4, dtype=np.uint64))
    steps, _ = replay_segment(environment.game, begun, np.ones((4, 25), np.int8))
    buffer = ReplayBuffer(1000, 3, 0.99, 0.6)
    buffer.add(steps)
    kept = sum(rows.nbytes for rows in buffer._rows.values())
    assert buffer.sample(1, 8).observations.dtype == np.uint8
    assert kept / 1000 < 256
    assert environment.game.observe(steps.observations[:1]).nbytes > 20 * kept / 1000  # the network's input


def test_an_episode_that_terminated_is_worth_its_rewards_alone() -> None:
    steps = transitions_of(5, 1)
    steps.ends[0] = TERMINATED
    buffer = ReplayBuffer(4, 3, 0.9, 0.0)
    buffer.add(steps)
    sample = buffer.sample(0, 1)
    assert sample.n_step_rewards.tolist() == [5.0]
    assert sample.discounts.tolist() == [0.0]
