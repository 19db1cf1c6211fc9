"""What a generation's returns say: fitness, and how much of the differences between candidates is luck."""

from __future__ import annotations

import math

import numpy as np
import pytest

from evo.evolution.population import FITNESS_WORST, Evaluated, PopulationOptions, normals, sigma_table, tasks_of
from evo.records import WORST, Result, WeightSource


def outcome(returns: np.ndarray, lengths: np.ndarray | None = None) -> Evaluated:
    lengths = np.ones(returns.shape, np.int32) if lengths is None else lengths
    finite = (returns != WORST).all(axis=1)
    halves = np.array_split(np.arange(len(returns)), 2)
    metrics = np.zeros((*returns.shape, 0), np.int32)
    return Evaluated([Result(returns[h], lengths[h], metrics[h], finite[h], 1, 2) for h in halves])


def test_fitness_is_the_sum_of_returns_and_of_a_bonus_for_the_first_steps() -> None:
    options = PopulationOptions(alive_bonus=0.002, alive_steps=10)
    lengths = np.array([[4, 30], [1, 1], [1, 1]], np.int32)
    found = outcome(np.array([[1000, 0], [500, 500], [WORST, 3]]), lengths).fitness(options)
    assert found.tolist() == [1000 + 2 * 14, 1000 + 2 * 2, FITNESS_WORST]


def test_a_record_has_sums_and_worst_where_scores_are_not_finite() -> None:
    record = outcome(np.array([[1, 2], [WORST, 5]]), np.array([[3, 4], [1, 1]], np.int32)).record()
    assert record["return"].tolist() == [3, WORST]
    assert record["frames"].tolist() == [7, 2]


def test_tasks_hold_so_many_candidates_in_order() -> None:
    rows = np.arange(10, dtype=np.int32)
    source = WeightSource(rows, rows - 1, rows.astype(np.uint64), rows.astype(np.float32), scale=3)
    tasks = tasks_of(source, np.zeros(2, np.uint64), 4)
    assert [task.weights.rows.tolist() for task in tasks] == [[0, 1, 2, 3], [4, 5, 6, 7], [8, 9]]
    assert {task.weights.scale for task in tasks} == {3}


def test_the_signal_to_noise_ratio_is_that_of_simulated_candidates() -> None:
    random = np.random.default_rng(1)
    true, hard, luck = random.normal(0, 3, (4000, 1)), random.normal(0, 50, (1, 16)), random.normal(0, 8, (4000, 16))
    found = outcome(np.rint(1000 * (true + hard + luck)).astype(np.int64)).signal_to_noise()
    assert found == pytest.approx(9 / (64 / 16), rel=0.1)
    assert outcome(np.rint(1000 * (hard + luck)).astype(np.int64)).signal_to_noise() < 0.1


def test_one_episode_or_equal_returns_say_nothing_of_luck() -> None:
    assert math.isnan(outcome(np.array([[1], [2]])).signal_to_noise())
    assert math.isnan(outcome(np.array([[1, 2], [1, 2]])).signal_to_noise())


def test_the_sigma_table_holds_eighths_of_octaves() -> None:
    table = sigma_table(0.1)
    assert table.dtype == np.float32
    assert table == pytest.approx([0.1 * 2 ** (k / 8) for k in range(-96, 97)], rel=1e-6)
    assert [table[96 + k] for k in (-8, 0, 8)] == [np.float32(0.1) / 2, np.float32(0.1), np.float32(0.1) * 2]
    assert (np.diff(table) > 0).all()


def test_normal_numbers_of_streams_have_mean_0_and_variance_1() -> None:
    found = normals(np.arange(100_000, dtype=np.uint64))
    assert abs(found.mean()) < 0.02
    assert abs(found.var() - 1) < 0.02
