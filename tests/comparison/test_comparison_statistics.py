"""The statistics of a comparison: against printed tables, by hand, by brute force, and by simulation."""

from __future__ import annotations

import math
from itertools import combinations, permutations

import numpy as np
import pytest

from evo import statistics
from evo.comparison.methods import first_reaching
from evo.statistics import permutation_p_value

# Two-sided 95 % points of Student's t, by degrees of freedom, as every printed table has them.
PRINTED = {1: 12.706, 2: 4.303, 3: 3.182, 4: 2.776, 5: 2.571, 9: 2.262, 10: 2.228, 29: 2.045, 120: 1.980}


@pytest.mark.parametrize(("freedom", "expected"), PRINTED.items())
def test_the_quantile_of_student_s_t_is_that_of_printed_tables(freedom: int, expected: float) -> None:
    assert statistics.t_quantile(0.95, freedom) == pytest.approx(expected, abs=0.0005)


def test_the_interval_between_seeds_is_that_of_a_hand_computation() -> None:
    mean, interval = statistics.t_interval([1.0, 2.0, 3.0, 4.0, 5.0])  # standard deviation sqrt(2.5)
    assert mean == 3.0
    assert interval == pytest.approx((3 - 2.776445 * np.sqrt(0.5), 3 + 2.776445 * np.sqrt(0.5)))
    assert statistics.t_interval([7.0]) == (7.0, None)
    assert statistics.t_interval([7.0, 7.0]) == (7.0, (7.0, 7.0))


@pytest.mark.parametrize("seeds", [2, 5])
def test_the_interval_between_seeds_covers_the_mean_in_95_of_100_simulations(seeds: int) -> None:
    random = np.random.Generator(np.random.Philox(key=seeds))
    intervals = [statistics.t_interval(random.normal(10, 3, seeds).tolist())[1] for _ in range(1500)]
    covered = np.mean([ends is not None and ends[0] <= 10 <= ends[1] for ends in intervals])
    assert covered == pytest.approx(0.95, abs=0.02)  # four standard errors


def test_an_interquartile_mean_leaves_out_a_quarter_at_each_end() -> None:
    assert statistics.interquartile_mean([100, 2, 3, 1]) == 2.5
    assert statistics.interquartile_mean([100, 2, 3, 4, 1]) == 3.0
    assert statistics.interquartile_mean([1, 2, 3, 4, 6, 60]) == 3.75
    assert statistics.interquartile_mean([1, 2, 3, 4, 5, 6, 7, 80]) == 4.5


def test_the_bootstrap_interval_is_close_to_that_of_all_draws() -> None:
    scores = [1.0, 2.0, 4.0, 8.0]
    every = [sorted(scores[i] for i in draw) for draw in np.ndindex(4, 4, 4, 4)]
    low, high = np.quantile([sum(draw[1:3]) / 2 for draw in every], (0.025, 0.975))
    assert statistics.interquartile_interval(scores) == (low, high)
    assert statistics.interquartile_interval(scores[::-1]) == (low, high)


@pytest.mark.parametrize(("seeds", "least"), [(5, 0.72), (20, 0.83)])
def test_the_bootstrap_interval_covers_less_than_it_says_where_seeds_are_few(seeds: int, least: float) -> None:
    random = np.random.Generator(np.random.Philox(key=seeds))
    intervals = [statistics.interquartile_interval(random.normal(10, 3, seeds).tolist()) for _ in range(30)]
    assert least <= np.mean([low <= 10 <= high for low, high in intervals])


def test_the_probability_of_improvement_counts_pairs_and_halves_of_equal_ones() -> None:
    assert statistics.probability_of_improvement([1, 2, 3], [2, 0]) == pytest.approx(4.5 / 6)
    assert statistics.probability_of_improvement([2, 0], [1, 2, 3]) == pytest.approx(1.5 / 6)
    assert statistics.improvement_interval([5, 6, 7], [1, 2]) == (1.0, 1.0)
    low, high = statistics.improvement_interval([1, 2, 3, 4], [1, 2, 3, 4])
    assert 0 < low < 0.5 < high < 1


def brute_force(first: list[float], second: list[float]) -> float:
    """The p value by its definition: over all orders of the scores."""
    scores, size = [*first, *second], len(first)
    seen = abs(np.mean(first) - np.mean(second))
    ways = [abs(np.mean(order[:size]) - np.mean(order[size:])) >= seen - 1e-9 for order in permutations(scores)]
    return float(np.mean(ways))


@pytest.mark.parametrize(
    ("first", "second"),
    [
        ([1.0, 2.0, 3.0, 4.0], [5.0, 6.0, 7.0]),
        ([0.1, 0.7, 0.2], [0.3, 0.9, 0.35]),
        ([5.0, 5.0, 5.0], [5.0, 5.0, 5.0]),
        ([1.0, 9.0], [2.0, 8.0, 8.0, 8.5]),
    ],
)
def test_the_p_value_is_that_of_all_orders_of_the_scores(first: list[float], second: list[float]) -> None:
    assert permutation_p_value(first, second) == pytest.approx(brute_force(first, second))
    assert permutation_p_value(second, first) == permutation_p_value(first, second)


def test_four_seeds_that_are_all_better_have_the_p_value_of_a_hand_computation() -> None:
    assert permutation_p_value([1, 2, 3, 4], [5, 6, 7, 8]) == pytest.approx(2 / 70)
    assert permutation_p_value([1, 2, 3], [5, 6, 7]) == pytest.approx(2 / 20)  # so 3 seeds never do


def test_ways_that_are_drawn_give_nearly_the_p_value_of_all_of_them(monkeypatch: pytest.MonkeyPatch) -> None:
    random = np.random.Generator(np.random.Philox(key=3))
    first, second = random.normal(0, 1, 6).tolist(), random.normal(1, 1, 6).tolist()
    exact = permutation_p_value(first, second)
    monkeypatch.setattr(statistics, "MOST_WAYS", 100)
    drawn = permutation_p_value(first, second)
    assert drawn != exact
    assert drawn == pytest.approx(exact, abs=0.01)
    assert permutation_p_value([0.0] * 6, [1.0] * 6) >= 1 / statistics.DRAWS


def test_holm_s_adjustment_is_that_of_a_hand_computation() -> None:
    assert statistics.holm([0.01, 0.04, 0.03]) == pytest.approx([0.03, 0.06, 0.06])
    assert statistics.holm([0.5, 0.9]) == [1.0, 1.0]
    assert statistics.holm([]) == []


@pytest.mark.parametrize(("first", "second"), [(4, 4), (3, 5)])
def test_the_least_p_value_is_that_of_scores_that_do_not_overlap(first: int, second: int) -> None:
    scores = [float(2**place) for place in range(first + second)]
    ways = combinations(range(first + second), first)
    splits = [([scores[i] for i in way], [s for j, s in enumerate(scores) if j not in way]) for way in ways]
    assert min(permutation_p_value(*split) for split in splits) == pytest.approx(
        statistics.least_p_value(first, second)
    )


def test_the_number_of_seeds_that_a_winner_needs_grows_with_the_pairs() -> None:
    assert [statistics.seeds_needed(pairs) for pairs in (1, 2, 6, 7, 28)] == [4, 5, 5, 6, 7]


@pytest.mark.parametrize("seeds", [4, 5])
@pytest.mark.parametrize("draw", ["normal", "lognormal", "coin"])
def test_equal_methods_have_a_winner_in_at_most_5_of_100_trials(seeds: int, draw: str) -> None:
    random = np.random.Generator(np.random.Philox(key=seeds))
    make = {
        "normal": lambda: random.normal(20, 4, seeds),
        "lognormal": lambda: random.lognormal(1, 2, seeds),
        "coin": lambda: random.integers(2, size=seeds).astype(float),  # a method that learns, or does not
    }[draw]
    trials = [permutation_p_value(make().tolist(), make().tolist()) <= statistics.LEVEL for _ in range(1000)]
    assert np.mean(trials) <= 0.05 + 2 * np.sqrt(0.05 * 0.95 / 1000)  # the share itself is a sample


@pytest.mark.parametrize(("first", "second"), [(4, 4), (5, 5), (4, 6)])
@pytest.mark.parametrize("ties", [False, True])
def test_at_most_5_of_100_ways_to_deal_any_scores_have_a_winner(first: int, second: int, ties: bool) -> None:
    random = np.random.Generator(np.random.Philox(key=first))
    scores = random.lognormal(1, 1, first + second)
    dealt = np.round(scores).tolist() if ties else scores.tolist()
    ways = list(combinations(range(first + second), first))
    p_values = [
        permutation_p_value([dealt[i] for i in way], [score for i, score in enumerate(dealt) if i not in way])
        for way in ways
    ]
    assert np.mean([p_value <= statistics.LEVEL for p_value in p_values]) <= 0.05


def test_three_equal_methods_have_any_winner_in_at_most_5_of_100_trials() -> None:
    random = np.random.Generator(np.random.Philox(key=1))
    found = 0
    for _ in range(200):
        scores = random.normal(20, 4, (3, 6)).tolist()
        p_values = [permutation_p_value(*two) for two in combinations(scores, 2)]
        found += min(statistics.holm(p_values)) <= statistics.LEVEL
    assert found / 200 <= 0.05


def test_a_difference_of_three_standard_deviations_is_found_with_five_seeds() -> None:
    random = np.random.Generator(np.random.Philox(key=1))
    found = [
        permutation_p_value(random.normal(0, 1, 5).tolist(), random.normal(3, 1, 5).tolist()) <= statistics.LEVEL
        for _ in range(100)
    ]
    assert np.mean(found) > 0.9


@pytest.mark.parametrize(("ends", "expected"), [
    ([(3, True), (1, True), (2, True)], 2),
    ([(1, True), (2, True)], 1),  # half of the runs are there
    ([(5, True), (9, False), (9, False)], None),  # one of three
    ([(5, True), (6, True), (9, False)], 6),
    # Of four, one ends early without the score: of the three that are under way at 4, one reaches it, then one of two:
    # 1 - 1/3 = 0.67, and 0.67 * (1 - 1/2) = 0.33.
    ([(2, False), (4, True), (6, True), (9, False)], 6),
    ([(2, True), (2, True), (9, False)], 2),
    ([(2, False), (3, False)], None),
    ([(2, False), (3, False), (4, True)], None),  # the only one under way at 4, and one of three
])  # fmt: skip
def test_the_median_time_to_a_score_is_that_of_a_hand_computation(
    ends: list[tuple[float, bool]], expected: float | None
) -> None:
    assert statistics.kaplan_meier_median(ends) == expected


def test_the_median_time_does_not_flatter_methods_whose_runs_end_early() -> None:
    """Exponential times of which a third are cut off: the median is close to the true one, that of the rest is not."""
    rng = np.random.default_rng(1)
    times, cut = rng.exponential(1.0, 1000), rng.exponential(2.0, 1000)
    ends = [(min(time, end), time <= end) for time, end in zip(times, cut, strict=True)]
    found = statistics.kaplan_meier_median(ends)
    assert found is not None
    assert abs(found - math.log(2)) < 0.05
    assert np.median([time for time, there in ends if there]) < 0.55


def test_a_run_reaches_a_score_at_its_first_test_that_has_it() -> None:
    spent, scores = np.array([1.0, 2.0, 3.0]), np.array([5.0, 7.0, 6.0])
    assert first_reaching(spent, scores, 6.0) == (2.0, True)
    assert first_reaching(spent, scores, 7.0) == (2.0, True)
    assert first_reaching(spent, scores, 7.1) == (3.0, False)
