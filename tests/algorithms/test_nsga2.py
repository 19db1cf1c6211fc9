"""NSGA-II keeps the front of its objectives, plays it again every generation, and follows DEAP's selection."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest
from deap import base, tools
from pydantic import ValidationError

from evo.algorithms import nsga2
from evo.errors import ConfigurationError
from evo.records import WORST, Metrics
from evo.setup import Setup
from evo.testing import algorithm_tests
from tests.algorithms import climbing
from tests.algorithms.climbing import network_of
from tests.helpers.generations import drive, results_of

NETWORK = network_of(4, 2)
TestNsga2 = algorithm_tests("evo.algorithms.nsga2", population=8, survivors=3, episodes=2)


def make(**options: object) -> nsga2.Nsga2:
    given = nsga2.Options(**{"population": 12, "survivors": 5, "episodes": 1, **options})
    return nsga2.make(given, Setup(1, NETWORK, SimpleNamespace(episode_metrics=("score", "won")), 4))


def play(
    algorithm: nsga2.Nsga2, number: int, returns: list[int], lengths: list[int], metrics: list[list[int]]
) -> Metrics:
    return drive(algorithm, number, lambda request: results_of(request, returns, lengths, metrics))


def test_the_front_survives_and_is_what_no_other_candidate_beats_in_all_objectives() -> None:
    algorithm = make(objectives=["score", "-length"])
    scores = [1, 5, 3, 3, 2, 9, 0, 1, 2, 5, 4, 0]
    lengths = [2, 50, 9, 8, 3, 90, 1, 9, 9, 60, 99, 4]
    metrics = play(algorithm, 0, [0] * 12, lengths, [[score, 0] for score in scores])
    front = {0, 1, 3, 4, 5, 6}  # of which the five least crowded stay
    survivors = algorithm.record()["survivors"].tolist()
    assert set(survivors) < front
    assert {5, 6} <= set(survivors)  # the ends of the front
    assert (metrics["front"], metrics["best_score"], metrics["best_length"]) == (5, 9, 1)
    assert algorithm.record()["objectives"].tolist() == [list(pair) for pair in zip(scores, lengths, strict=True)]


def test_survivors_are_whom_deaps_selection_names() -> None:
    algorithm, random = make(), np.random.default_rng(3)
    returns, lengths = random.integers(0, 9, 12).tolist(), random.integers(1, 9, 12).tolist()
    play(algorithm, 0, returns, lengths, [[0, 0]] * 12)
    kind = type("Fitness", (base.Fitness,), {"weights": (1, -1)})
    population = [SimpleNamespace(number=k, fitness=kind()) for k in range(12)]
    for one, *values in zip(population, returns, lengths, strict=True):
        one.fitness.values = values
    expected = [one.number for one in tools.selNSGA2(population, 5)]
    assert algorithm.record()["survivors"].tolist() == expected


def test_survivors_play_again_and_children_are_theirs() -> None:
    algorithm = make()
    play(algorithm, 0, list(range(12)), [1] * 12, [[0, 0]] * 12)
    survivors = algorithm.state()["weights"]
    request = next(algorithm.generation(1))
    found = climbing.candidates_of(request, NETWORK)
    assert found[:5].tobytes() == survivors.tobytes()
    rows = np.concatenate([task.weights.rows for task in request.tasks])
    assert set(rows[5:]) <= set(range(5))
    assert (found[5:] != survivors[rows[5:]]).any(axis=1).all()


def test_candidates_that_are_not_finite_are_beaten_by_all() -> None:
    algorithm = make()
    returns = [WORST if k < 7 else k for k in range(12)]
    play(algorithm, 0, returns, [0 if k < 7 else 100 for k in range(12)], [[0, 0]] * 12)
    assert sorted(algorithm.record()["survivors"].tolist()) == [7, 8, 9, 10, 11]


def test_finalists_are_the_survivors_of_the_highest_return() -> None:
    algorithm = make()
    play(algorithm, 0, [3, 1, 4, 1, 5, 9, 2, 6, 5, 3, 5, 8], list(range(1, 13)), [[0, 0]] * 12)
    weights, candidates, _ = vars(algorithm.finalists(1)).values()
    assert candidates == [5]
    assert weights.shape == (1, NETWORK.size)


def test_a_record_leads_to_the_same_survivors() -> None:
    algorithm, other = make(), make()
    for number in range(3):
        play(algorithm, number, [(7 * k + number) % 11 for k in range(12)], [k + 1 for k in range(12)], [[0, 0]] * 12)
        other.retrace(number, algorithm.record())
    assert other.state()["weights"].tobytes() == algorithm.state()["weights"].tobytes()


def test_objectives_that_are_unknown_or_named_twice_are_refused() -> None:
    with pytest.raises(ConfigurationError, match="fruit unknown here; there are return, length, score, won"):
        make(objectives=["fruit", "-length"])
    with pytest.raises(ValidationError, match="names one twice"):
        make(objectives=["score", "-score"])
    with pytest.raises(ValidationError, match="so none is new"):
        make(population=5)
