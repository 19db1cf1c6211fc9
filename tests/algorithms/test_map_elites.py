"""MAP-Elites keeps the best network of every cell, and lets none in by a score that was looked at to choose it."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from pydantic import ValidationError

from evo.algorithms import cma_me, map_elites
from evo.errors import ConfigurationError
from evo.records import WORST, Metrics, Request, Result
from evo.setup import Setup
from evo.testing import algorithm_tests
from tests.algorithms import climbing
from tests.algorithms.climbing import network_of
from tests.helpers.generations import drive, results_of

NETWORK = network_of(4, 2)
POPULATION = 10
TestMapElites = algorithm_tests("evo.algorithms.map_elites", population=8, reevaluated=3, episodes=2, bins=[5])


def make(**options: object) -> map_elites.MapElites:
    given: dict[str, Any] = {"population": POPULATION, "reevaluated": 4, "episodes": 1, "check_every": 0, **options}
    grid = {"low": [0.0], "high": [10.0], "bins": [10]}
    algorithm = map_elites.Options(**{**grid, **given})
    return map_elites.make(algorithm, Setup(1, NETWORK, SimpleNamespace(episode_metrics=("score", "won")), 4))


def results(request: Request, returns: list[int], lengths: list[int]) -> list[Result]:
    return results_of(request, returns, lengths, np.zeros((len(returns), 2)))


def play(algorithm: map_elites.MapElites, number: int, returns: list[int], lengths: list[int]) -> Metrics:
    return drive(algorithm, number, lambda request: results(request, returns, lengths))


def archive(algorithm: map_elites.MapElites) -> dict[int, int]:
    state = algorithm.state()
    return dict(zip(state["cells"].tolist(), state["fitness"].tolist(), strict=True))


def test_children_play_again_before_they_enter_and_enter_by_what_they_do_then() -> None:
    algorithm = make()
    play(algorithm, 0, [5, 9, 2, 2, 1, 0, 0, 0, 0, 0], [1, 1, 2, 3, 4, 4, 4, 4, 4, 4])
    assert archive(algorithm) == {}
    assert algorithm.record()["reevaluated"].tolist() == [1, 2, 3, 4]  # the best child of each cell
    # The first has now 3, the second behaves as a third cell, the last is not finite.
    metrics = play(algorithm, 1, [3, 7, 2, WORST, 0, 0, 0, 0, 0, 0], [1, 3, 3, 4, 1, 1, 1, 1, 1, 1])
    assert archive(algorithm) == {1: 3, 3: 7}
    assert (metrics["elites"], metrics["coverage"], metrics["qd_score"]) == (2, 0.2, 0.01)


def test_an_elite_is_replaced_by_a_better_one_of_its_cell_only() -> None:
    algorithm = make(reevaluated=2)
    play(algorithm, 0, [5, 4] + [0] * 8, [1, 2] + [1] * 8)
    play(algorithm, 1, [5, 4, 6, 3] + [0] * 6, [1, 2, 1, 2] + [1] * 6)
    assert archive(algorithm) == {1: 5, 2: 4}
    elites = algorithm.state()["weights"]
    assert algorithm.record()["reevaluated"].tolist() == [2]  # 3 is no better than the second elite
    play(algorithm, 2, [6] + [0] * 9, [1] * 10)
    assert archive(algorithm) == {1: 6, 2: 4}
    assert (algorithm.state()["weights"][0] != elites[0]).any()
    assert algorithm.state()["weights"][1].tobytes() == elites[1].tobytes()


def test_children_of_empty_cells_play_again_before_others() -> None:
    algorithm = make(reevaluated=3)
    play(algorithm, 0, [5] + [0] * 9, [1] * 10)
    play(algorithm, 1, [5, 9, 1, 8] + [0] * 6, [1, 1, 7, 6] + [1] * 6)
    assert algorithm.record()["reevaluated"].tolist() == [3, 2, 1]


def test_the_archive_is_the_best_of_each_cell_as_a_plain_loop_finds_it() -> None:
    algorithm, random, found = make(), np.random.default_rng(5), {}
    for number in range(6):
        again = len(algorithm.state()["reevaluated"])
        returns, lengths = random.integers(0, 50, POPULATION).tolist(), random.integers(0, 13, POPULATION).tolist()
        play(algorithm, number, returns, lengths)
        for value, length in zip(returns[:again], lengths[:again], strict=True):
            cell = min(length, 9)
            found[cell] = max(value, found.get(cell, value))
    assert archive(algorithm) == dict(sorted(found.items()))


def test_what_is_evaluated_again_plays_unchanged_and_children_are_of_all_that_is_published() -> None:
    algorithm = make()
    for number in range(2):
        play(algorithm, number, list(range(10)), [number + k % 4 for k in range(10)])
    state = algorithm.state()
    known = np.concatenate([state["weights"], state["reevaluated"]])
    assert len(state["weights"])
    assert len(state["reevaluated"])
    request = next(algorithm.generation(2))
    played, again = climbing.candidates_of(request, NETWORK), len(state["reevaluated"])
    assert played[:again].tobytes() == state["reevaluated"].tobytes()
    rows = np.concatenate([task.weights.rows for task in request.tasks])
    assert set(rows[again:]) <= set(range(len(known)))
    assert (played[again:] != known[rows[again:]]).any(axis=1).all()


def test_a_check_plays_every_elite_on_other_episodes_and_changes_nothing() -> None:
    algorithm = make(check_every=2, check_episodes=6)
    play(algorithm, 0, [8, 6] + [0] * 8, [1, 2] + [1] * 8)
    rounds = algorithm.generation(1)
    first = next(rounds)
    second = rounds.send(results(first, [8, 6] + [0] * 8, [1, 2] + [1] * 8))
    before = {name: array.tobytes() for name, array in algorithm.state().items()}
    assert len(second.tasks) == 2
    seeds = {int(seed) for task in second.tasks for seed in task.play.seeds}
    assert len(seeds) == 6
    assert not seeds & {int(seed) for task in first.tasks for seed in task.play.seeds}
    with pytest.raises(StopIteration) as end:
        rounds.send(results(second, [5, 3], [1, 2]))
    assert end.value.value["qd_score"] == pytest.approx(0.014)
    assert end.value.value["qd_score_checked"] == pytest.approx(0.008)
    assert end.value.value["frames"] == 11 + 18  # of the generation, and of six episodes of one and two steps
    assert {name: array.tobytes() for name, array in algorithm.state().items()} == before


def test_finalists_are_the_elites_of_the_highest_fitness() -> None:
    algorithm = make()
    play(algorithm, 0, [3, 9, 4] + [0] * 7, [1, 2, 3] + [1] * 7)
    assert algorithm.finalists(2).weights.shape == (2, NETWORK.size)  # nothing has entered yet
    reevaluated = algorithm.state()["reevaluated"]
    play(algorithm, 1, [9, 4, 3] + [0] * 7, [2, 3, 1] + [1] * 7)
    assert algorithm.finalists(1).weights[0].tobytes() == reevaluated[0].tobytes()


def test_where_no_score_is_finite_fresh_networks_are_drawn_again() -> None:
    algorithm = make()
    play(algorithm, 0, [WORST] * 10, [1] * 10)
    assert algorithm.finalists(1).weights.shape == (1, NETWORK.size)
    request = next(algorithm.generation(1))
    assert {int(row) for task in request.tasks for row in task.weights.rows} == {-1}


def test_a_finalists_return_has_no_bonus() -> None:
    algorithm = make(alive_bonus=1.0)
    for number in range(2):
        play(algorithm, number, [5000] + [0] * 9, [9] + [1] * 9)
    returns = algorithm.finalists(1).returns
    assert returns is not None
    assert returns.tolist() == [5.0]
    assert archive(algorithm)[9] == 14000


def test_elites_of_another_grid_are_evaluated_again_and_those_of_the_same_stay() -> None:
    algorithm, same, other = make(), make(), make(bins=[3])
    for number in range(3):
        play(algorithm, number, list(range(10)), list(range(10)))
    state = algorithm.state()
    same.restore(state, ())
    other.restore(state, ())
    assert {name: array.tobytes() for name, array in same.state().items()} == {
        name: array.tobytes() for name, array in state.items()
    }
    assert archive(other) == {}
    best = state["weights"][int(np.argmax(state["fitness"]))]
    assert other.state()["reevaluated"][0].tobytes() == best.tobytes()
    assert len(other.state()["reevaluated"]) == 4
    fewer = make(reevaluated=2, population=5)
    fewer.restore(state, ())
    assert fewer.state()["reevaluated"].tobytes() == state["reevaluated"][:2].tobytes()
    assert sum(len(task.weights) for task in next(fewer.generation(3)).tasks) == 5


def test_the_memory_that_an_archive_will_need_is_known() -> None:
    algorithm = make()
    empty = algorithm.growth()
    for number in range(2):
        play(algorithm, number, list(range(10)), [3] * 10)
    assert empty - algorithm.growth() == 2 * algorithm.state()["weights"].nbytes > 0


def test_a_record_leads_to_the_same_archive() -> None:
    algorithm, other = make(), make()
    for number in range(4):
        play(algorithm, number, [(7 * k + number) % 11 for k in range(10)], [(k + number) % 10 for k in range(10)])
        other.retrace(number, algorithm.record())
    for name, array in algorithm.state().items():
        assert other.state()[name].tobytes() == array.tobytes(), name
    for one in (algorithm, other):
        play(one, 4, [3 * k % 7 for k in range(10)], [k % 5 for k in range(10)])
    assert archive(other) == archive(algorithm)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"reevaluated": 10}, "so none is new"),
        ({"bins": [4, 4]}, "bins: 2 numbers for 1 descriptors"),
        ({"low": [10.0]}, "must be less than high"),
        ({"bins": [0]}, "are not from 1 to"),
        ({"descriptors": ["score", "score"], "low": [0.0, 0.0], "high": [1.0, 1.0], "bins": [2, 2]}, "one twice"),
    ],
)
def test_grids_that_mean_nothing_are_refused(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ValidationError, match=message):
        make(**options)


@pytest.mark.parametrize(
    ("module", "options", "reevaluated"),
    [
        (map_elites, {}, 128),
        (map_elites, {"population": 129}, 128),
        (map_elites, {"population": 128}, 32),
        (map_elites, {"population": 2}, 1),
        (cma_me, {"population": 148}, 128),
        (cma_me, {"population": 147}, 36),
        (cma_me, {"population": 132, "emitters": 1}, 128),
    ],
)
def test_the_default_of_those_evaluated_again_leaves_room(
    module: Any, options: dict[str, int], reevaluated: int
) -> None:
    made = module.Options(**options)
    assert made.reevaluated == made.model_dump()["reevaluated"] == reevaluated


def test_an_unknown_descriptor_is_refused_with_those_there_are() -> None:
    with pytest.raises(ConfigurationError, match="fruit unknown here; there are length, return, score, won"):
        make(descriptors=["fruit"])


def test_a_candidate_that_is_only_as_good_changes_nothing() -> None:
    algorithm = make(reevaluated=1)
    play(algorithm, 0, [5] + [0] * 9, [1] * 10)
    play(algorithm, 1, [5, 9] + [0] * 8, [1] * 10)
    before = algorithm.state()["weights"].tobytes()
    play(algorithm, 2, [5] + [0] * 9, [1] * 10)
    assert algorithm.state()["weights"].tobytes() == before


def test_of_children_in_a_cell_the_best_is_promising_where_their_gains_are_too_large_to_tell() -> None:
    fitness = np.array([1.0, np.nextafter(1.0, 2.0)])
    children = map_elites.Children(np.zeros(2, np.int64), fitness, fitness - -1e10, np.zeros(2, np.bool_))
    assert children.gains[0] == children.gains[1]
    assert children.promising.tolist() == [1]
