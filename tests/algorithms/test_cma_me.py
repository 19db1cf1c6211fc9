"""Emitters move to what changes the archive, begin again at an elite where nothing does, and fill a grid."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from pydantic import ValidationError

from evo.algorithms import cma_me, map_elites
from evo.algorithms.map_elites import NOWHERE, Children, MapElites
from evo.evolution.population import FITNESS_WORST
from evo.records import Request, Result
from evo.setup import Setup
from evo.testing import algorithm_tests
from tests.algorithms.climbing import candidates_of, network_of
from tests.algorithms.test_map_elites import archive, play
from tests.helpers.generations import drive, results_of

NETWORK = network_of(4, 2)
TestCmaMe = algorithm_tests("evo.algorithms.cma_me", population=11, reevaluated=3, emitters=2, episodes=2, bins=[5])
GRID = {"low": [0.0], "high": [10.0], "bins": [10], "episodes": 1, "check_every": 0}


def make(**options: object) -> MapElites:
    given = cma_me.Options(**{**GRID, "population": 12, "reevaluated": 4, "emitters": 2, **options})
    return cma_me.make(given, Setup(1, NETWORK, SimpleNamespace(episode_metrics=("score", "won")), 4))


def test_empty_cells_rank_before_improvements_and_these_before_all_others() -> None:
    children = Children(
        cells=np.array([3, 4, 5, 5, NOWHERE, 6, 7]),
        fitness=np.array([50, 7, 20, 70, -9, -5, 70]),
        gains=np.array([40, -3, 10, 60, -9, -5, 70]),
        empty=np.array([False, False, False, False, False, True, True]),
    )
    ranks = cma_me.ranked(children)
    assert np.argsort(-ranks).tolist() == [6, 5, 3, 0, 2, 1, 4]
    assert ranks[4] == FITNESS_WORST
    same = Children(np.array([1, 1]), np.array([2, 2]), np.array([2, 2]), np.array([False, False]))
    assert len(set(cma_me.ranked(same).tolist())) == 1


def test_each_emitter_moves_by_its_own_candidates() -> None:
    algorithm = make()
    before = algorithm.state()["emitter_mean"]
    request = next(algorithm.generation(0))
    played = candidates_of(request, NETWORK)
    assert [len(task.weights) for task in request.tasks] == [4, 4]
    assert len({int(key) for task in request.tasks for key in task.weights.keys}) == 8
    for k in range(2):
        assert (played[4 * k : 4 * k + 4] != before[k].astype(np.float32)).any(axis=1).all()
    play(algorithm, 0, [9, 0, 0, 0, 0, 0, 7, 0], [1, 1, 1, 1, 2, 2, 2, 2])
    moved = algorithm.state()["emitter_mean"] - before
    for k, best in enumerate((0, 6)):
        towards = played[best] - before[k]
        assert moved[k] @ towards > 0.9 * np.linalg.norm(moved[k]) * np.linalg.norm(towards) > 0


def test_an_emitter_that_would_change_nothing_begins_again_at_an_elite() -> None:
    algorithm = make()
    play(algorithm, 0, [9, 8, 7, 6, 5, 4, 3, 2], [1, 2, 3, 4, 5, 6, 7, 8])
    metrics = play(algorithm, 1, [9, 8, 7, 6, 9, 9, 9, 9, 0, 0, 0, 0], [1, 2, 3, 4, 9, 9, 9, 9, 4, 4, 4, 4])
    assert metrics["restarts"] == 1
    state = algorithm.state()
    assert any(np.array_equal(state["emitter_mean"][1].astype(np.float32), elite) for elite in state["weights"])
    assert not any(np.array_equal(state["emitter_mean"][0].astype(np.float32), elite) for elite in state["weights"])
    np.testing.assert_array_equal(state["emitter_sigma"][1], [0.1, 1.0])


def test_a_record_leads_to_the_same_archive_and_emitters() -> None:
    algorithm, other = make(), make()
    for number in range(4):
        again = len(algorithm.state()["reevaluated"])
        count = again + 8
        play(
            algorithm, number, [(7 * k + number) % 11 for k in range(count)], [(k + number) % 10 for k in range(count)]
        )
        other.retrace(number, algorithm.record())
    for name, array in algorithm.state().items():
        assert other.state()[name].tobytes() == array.tobytes(), name


def test_a_fork_with_another_number_of_emitters_has_the_archive_and_begins_at_elites() -> None:
    algorithm, other, empty = make(), make(emitters=1), make(emitters=1)
    empty.restore(make().state(), ())
    assert empty.state()["emitter_mean"].shape == (1, NETWORK.size)
    for number in range(2):
        count = len(algorithm.state()["reevaluated"]) + 8
        play(algorithm, number, list(range(count)), [k % 10 for k in range(count)])
    other.restore(algorithm.state(), ())
    assert archive(other) == archive(algorithm)
    np.testing.assert_array_equal(other.state()["emitter_mean"], algorithm.state()["weights"][:1])
    grid = make(emitters=1, bins=[3])
    grid.restore(algorithm.state(), ())
    np.testing.assert_array_equal(grid.state()["emitter_mean"], grid.state()["reevaluated"][:1])


def test_emitters_need_candidates() -> None:
    with pytest.raises(ValidationError, match="emitters: 2 share 7 new candidates; each needs 4"):
        make(population=11)


def test_it_fills_more_of_a_grid_than_mutation_alone() -> None:
    assert filled(cma_me, emitters=3) > 1.1 * filled(map_elites) > 300


def filled(module: Any, **options: object) -> int:
    """Return how many cells are taken after 30 generations, of three seeds together; a cell is a sum of weights."""
    grid = {**GRID, "high": [200.0], "bins": [200], "population": 60, "reevaluated": 24, **options}
    cells = 0
    for seed in (1, 2, 3):
        algorithm = module.make(module.Options(**grid), Setup(seed, NETWORK, SimpleNamespace(episode_metrics=()), 8))
        for number in range(30):
            step(algorithm, number)
        cells += len(algorithm.state()["cells"])
    return cells


def step(algorithm: MapElites, number: int) -> None:
    def answer(request: Request) -> list[Result]:
        weights = candidates_of(request, NETWORK).astype(np.float64)
        lengths = np.clip(np.rint(100 + 10 * weights.sum(axis=1)), 0, 200)
        return results_of(request, np.rint(-1000 * (weights * weights).sum(axis=1)), lengths)

    drive(algorithm, number, answer)
