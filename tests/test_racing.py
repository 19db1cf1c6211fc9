"""Racing: who plays on is who is nearly selected or nearly not; the cost is bounded; the selected are better for it."""

from __future__ import annotations

import numpy as np
import pytest
from pydantic import ValidationError
from test_ga import drive, make, result_of, scores

from evo.evolution.racing import after_racing, near_boundary
from evo.records import WORST, Request, Result
from evo.training.statistics import mean_interval

ALL = np.ones(6, np.bool_)


def test_those_nearest_to_the_boundary_race_in_the_order_of_their_numbers() -> None:
    played = np.array([[9, 9, 9], [5, 6, 7], [6, 5, 6], [5, 5, 4], [1, 0, 1], [0, 0, 0]])
    # Two are selected, 0 and 1; 2 is the first of the others. By |t| of differences: 2 and 1 (0.58), 3, 5 and 4, 0.
    assert near_boundary(played, ALL, 2, 2).tolist() == [1, 2]
    assert near_boundary(played, ALL, 2, 3).tolist() == [1, 2, 3]
    assert near_boundary(played, ALL, 2, 6).tolist() == [0, 1, 2, 3, 4, 5]


def test_nobody_races_whom_more_episodes_would_not_tell_apart() -> None:
    played = np.array([[9, 9], [5, 5], [5, 5], [4, 6], [0, 0], [0, 1]])
    assert near_boundary(played, ALL, 2, 6).tolist() == [0, 3, 4, 5]  # 1 and 2 play alike
    assert near_boundary(played, ALL, 6, 6).tolist() == []  # all are selected
    finite = np.array([True, True, True, False, True, True])
    assert near_boundary(played, finite, 2, 6).tolist() == [0, 4, 5]
    assert near_boundary(np.zeros((6, 2), np.int64), ALL, 3, 6).tolist() == []


def test_further_episodes_count_as_much_as_the_first_and_their_difficulty_does_not() -> None:
    first = np.array([40, 30, 20, 10])
    rows = np.array([1, 2])
    easy, hard = (after_racing(first, 2, rows, np.array([60, 70]) + shift, 4) for shift in (0, -60))
    assert easy.tolist() == hard.tolist() == [40, 25, 25, 10]  # 90 of both in six episodes: no difference
    # 1 leads by 10 in two episodes and by 50 in four others: by 60 in six, which is 20 in two, around their mean of 25.
    assert after_racing(first, 2, rows, np.array([70, 20]), 4).tolist() == [40, 35, 15, 10]


def test_sums_beyond_64_bits_are_exact() -> None:
    large = 1 << 60
    changed = after_racing(np.array([large, large - 2]), 1, np.array([0, 1]), np.array([0, 0]), 1)
    assert changed.tolist() == [large - 1, large - 2 + 0]


def test_a_generation_plays_two_rounds_and_never_more_than_its_budget() -> None:
    algorithm = make(population=8, parents=2, elites=1, episodes=3, racing=5)
    assert (algorithm.options.racers, algorithm.options.further) == (4, 10)
    asked: list[Request] = []
    values = {0: (8, 8, 8), 1: (5, 6, 5), 2: (4, 6, 5), 3: (1, 1, 2)}

    def answer(request: Request) -> list[Result]:
        asked.append(request)
        number, results = 0, []
        for task in request.tasks:
            rows = []
            for _ in range(len(task.weights)):
                episodes = len(task.play.seeds)
                rows.append(list(values.get(number, (0, 0, 1))) if len(asked) == 1 else [10 * number] * episodes)
                number += 1
            results.append(result_of(rows))
        return results

    metrics = drive(algorithm, 0, answer)
    first, second = asked
    assert second.weights is None
    seeds = {seed for request in asked for seed in request.tasks[0].play.seeds.tolist()}
    assert len(seeds) == 3 + 5 * 8 // 4  # further ones
    played = sum(len(task.weights) * len(task.play.seeds) for task in second.tasks)
    assert 0 < played <= 8 * 5
    assert metrics["frames"] == 8 * 3 + played  # a frame an episode
    assert metrics["raced"] == played / 10 > 0
    record = algorithm.record()
    raced = np.flatnonzero(record["raced_frames"])
    assert record["survivors"].tolist() == raced[:1:-1].tolist()  # the last that raced were best there
    assert metrics["swapped"] == 1.0
    assert len(raced) == metrics["raced"]
    assert record["return"].tolist() == [24, 16, 15, 4, 1, 1, 1, 1]  # of the episodes that all have played
    assert record["raced_return"][raced].tolist() == [100 * k for k in range(len(raced))]
    keys = np.concatenate([task.weights.keys for task in first.tasks])
    assert np.concatenate([task.weights.keys for task in second.tasks]).tolist() == keys[raced].tolist()


def test_a_candidate_whose_further_scores_are_not_finite_is_not_selected() -> None:
    algorithm = make(population=4, parents=1, elites=0, episodes=2, racing=1, tournament=2)
    rounds = algorithm.generation(0)
    next(rounds)
    request = rounds.send([result_of([[9, 9], [8, 9], [1, 0], [0, 0]])])
    number = sum(len(task.weights) for task in request.tasks)
    bad = [[WORST] * 2] + [[1] * 2] * (number - 1)
    with pytest.raises(StopIteration):
        rounds.send([result_of(bad)])
    assert algorithm.record()["survivors"].tolist() == [1]
    assert algorithm.record()["raced_return"][0] == WORST


def test_without_racing_nothing_is_played_or_recorded_for_it() -> None:
    algorithm = make()
    answer = scores(range(8))
    metrics = drive(algorithm, 0, answer)
    assert len(answer.asked) == 1
    assert not {"raced", "swapped"} & metrics.keys()
    assert not {"raced_return", "raced_frames"} & algorithm.record().keys()


def test_a_tournament_has_no_boundary() -> None:
    with pytest.raises(ValidationError, match="racing: needs a boundary"):
        make(racing=1, selection="tournament")


def test_the_selected_are_better_than_with_as_many_episodes_for_all() -> None:
    """128 candidates and 16 episodes each, or 8 each and as many again for those that race, in 200 generations."""
    dice = np.random.default_rng(0)
    candidates, selected, episodes, ratio = 128, 16, 16, 4
    gains = []
    for _ in range(200):
        true = dice.normal(size=candidates)

        def play(rows: np.ndarray, count: int, true: np.ndarray = true) -> np.ndarray:
            luck = 3 * dice.normal(size=count) + 3 * dice.normal(size=(len(rows), count))
            return np.rint(1000 * (true[rows, np.newaxis] + luck)).astype(np.int64)

        alike = play(np.arange(candidates), episodes)
        half, more = alike[:, : episodes // 2], episodes // 2 * ratio
        rows = near_boundary(half, np.ones(candidates, np.bool_), selected, candidates // ratio)
        raced = after_racing(half.sum(axis=1), episodes // 2, rows, play(rows, more).sum(axis=1), more)
        chosen = [true[np.argsort(-fitness)[:selected]].mean() for fitness in (raced, alike.sum(axis=1))]
        gains.append(chosen[0] - chosen[1])
    _, (low, _) = mean_interval(gains)
    assert low > 0.03
