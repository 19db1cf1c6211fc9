"""NSGA-II keeps the front of its objectives, plays it again every generation, and follows DEAP's selection."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest
from deap import base, tools
from pydantic import ValidationError

from evo.algorithms import nsga2
from evo.errors import ConfigurationError
from evo.records import WORST, Result
from evo.setup import Setup
from evo.testing import algorithm_tests
from tests.algorithms import climbing
from tests.algorithms.climbing import network_of

NETWORK = network_of(4, 2)
TestNsga2 = algorithm_tests("evo.algorithms.nsga2", population=8, survivors=3, episodes=2)


def make(**options: object) -> nsga2.Nsga2:
    given = nsga2.Options(**{"population": 12, "survivors": 5, "episodes": 1, **options})
    return nsga2.make(given, Setup(1, NETWORK, SimpleNamespace(episode_metrics=("score", "won")), 4))


def play(algorithm: nsga2.Nsga2, number: int, returns: list[int], lengths: list[int], metrics: list[list[int]]) -> dict:
    rounds = algorithm.generation(number)
    request = next(rounds)
    results, first = [], 0
    for task in request.tasks:
        part = slice(first, first + len(task.weights))
        columns = [np.array(values)[part, np.newaxis] for values in (returns, lengths)]
        finite = columns[0][:, 0] != WORST
        measured = np.array(metrics, np.int32)[part, np.newaxis]
        results.append(Result(columns[0].astype(np.int64), columns[1].astype(np.int32), measured, finite, 1, 1))
        first = part.stop
    with pytest.raises(StopIteration) as end:
        rounds.send(results)
    return end.value.value


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


TestNoveltySearch = algorithm_tests(
    "evo.algorithms.nsga2",
    population=8,
    survivors=3,
    episodes=2,
    objectives=["novelty"],
    novelty_of=["length", "return"],
)


def test_novelty_search_keeps_those_that_are_far_from_all_others() -> None:
    algorithm = make(objectives=["novelty"], novelty_of=["length"], neighbours=2, survivors=2)
    lengths = [50, 51, 52, 53, 54, 55, 1, 56, 57, 99, 58, 59]
    metrics = play(algorithm, 0, [0] * 12, lengths, [[0, 0]] * 12)
    assert set(algorithm.record()["survivors"].tolist()) == {6, 9}
    assert metrics["best_novelty"] == pytest.approx((49 + 50) / 2 / 98, abs=1e-6)


def test_behaviour_is_what_novelty_of_names() -> None:
    algorithm = make(objectives=["novelty"], novelty_of=["won", "return"], neighbours=1, survivors=2)
    metrics = [[0, 0]] * 11 + [[0, 3]]
    play(algorithm, 0, [9000, *range(11)], [25, 0, 5, 10, 15, 20, 30, 35, 40, 45, 99, 50], metrics)
    assert set(algorithm.record()["survivors"].tolist()) == {0, 11}


def test_who_is_not_finite_is_nobodys_neighbour() -> None:
    algorithm = make(objectives=["novelty", "return"], neighbours=1, survivors=3)
    returns = [0, 0, 0, WORST, *[0] * 8]
    play(algorithm, 0, returns, [10, 20, 30, 31, 40, 50, 60, 70, 80, 90, 95, 100], [[0, 0]] * 12)
    values = algorithm.record()["objectives"][:, 0]
    assert values[2] == values[4] == round(1e6 * 10 / 90)
    assert 3 not in algorithm.record()["survivors"]


def test_novelty_is_of_known_measures_and_of_populations_that_can_be_compared() -> None:
    with pytest.raises(ConfigurationError, match=r"nsga2\.novelty_of: fruit unknown here"):
        make(objectives=["novelty"], novelty_of=["fruit"])
    with pytest.raises(ValidationError, match="10000 candidates are too many for novelty, at most 8192"):
        make(objectives=["novelty"], population=10_000)
    assert "neighbours" not in nsga2.Options().model_dump()
    assert nsga2.Options(objectives=["-novelty"]).model_dump()["novelty_of"] == ["length"]


def test_novelty_is_as_computed_by_hand() -> None:
    behaviour = np.array([[0, 100], [4, 100], [10, 100], [10, 300]])
    # In their ranges: (0, 0), (0.4, 0), (1, 0), (1, 1).
    assert nsga2.novelty(behaviour, 1).tolist() == [400_000, 400_000, 600_000, 1_000_000]
    assert nsga2.novelty(behaviour, 2).tolist() == [700_000, 500_000, 800_000, 1_300_000]
    assert nsga2.novelty(behaviour, 9).tolist() == [
        round(nsga2.UNIT * mean)
        for mean in ((0.4 + 1 + 2) / 3, (0.4 + 0.6 + 1.6) / 3, (1 + 0.6 + 1) / 3, (2 + 1.6 + 1) / 3)
    ]


def test_who_is_alone_or_like_all_others_is_not_novel() -> None:
    assert nsga2.novelty(np.empty((0, 2), np.int64), 3).tolist() == []
    assert nsga2.novelty(np.array([[5, 7]]), 3).tolist() == [0]
    assert nsga2.novelty(np.full((6, 2), 8), 3).tolist() == [0] * 6


def test_many_candidates_are_compared_in_parts_with_the_same_result() -> None:
    behaviour = np.random.default_rng(1).integers(0, 1000, (700, 2))
    found = nsga2.novelty(behaviour, 4)
    places = (behaviour - behaviour.min(0)) / np.ptp(behaviour, axis=0)
    for k in (0, 255, 256, 699):
        nearest = np.sort(np.abs(places - places[k]).sum(axis=1))[1:5]
        assert abs(found[k] - nsga2.UNIT * nearest.mean()) < 1
