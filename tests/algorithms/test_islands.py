"""Islands select among themselves, DEAP's ring migration joins them, and a run with them is as exact as any other."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from deap import tools
from pydantic import ValidationError

import evo
from evo.algorithms import ga
from evo.config.experiment import Experiment
from evo.evolution.population import between_islands
from evo.evolution.toolbox import Individual, fitness_class, select_on_islands
from evo.planning.estimate import estimated
from evo.planning.probe import probe
from evo.randomness.streams import Purpose, draw, stream
from evo.records import Request, WeightSource
from evo.setup import Setup
from evo.store.store import Store
from evo.testing import algorithm_tests
from evo.verify.candidate import replay_candidate
from tests.algorithms.test_ga import NETWORK, drive, make, scores, tournament_winners
from tests.helpers.calling import called, small_with, summary_of

TestIslands = algorithm_tests(
    "evo.algorithms.ga", population=12, parents=6, elites=3, episodes=2, islands=3, migration_every=2
)
TestIslandsOfTournaments = algorithm_tests(
    "evo.algorithms.ga",
    population=12,
    parents=4,
    elites=2,
    episodes=2,
    islands=2,
    migration_every=1,
    migrants=2,
    selection="tournament",
    tournament=3,
    memory=3,
    sigma_spread=1.0,
    crossover="uniform",
)
VALUES = [5, 9, 7, 8, 1, 6, 3, 0]  # island 0 has 5, 7, 1, 3 and island 1 has 9, 8, 6, 0


def islands(**options: object) -> ga.GeneticAlgorithm:
    return make(**{"parents": 4, "elites": 2, "islands": 2, "migration_every": 0, "per_task": 8, **options})


def survivors(algorithm: ga.GeneticAlgorithm) -> list[int]:
    found: list[int] = algorithm.record()["survivors"].tolist()
    return found


def names(request: Request) -> WeightSource:
    (task,) = request.tasks
    return task.weights


def test_each_island_selects_its_own_best_and_the_best_of_each_come_first() -> None:
    algorithm = islands()
    drive(algorithm, 0, scores(VALUES))
    assert survivors(algorithm) == [2, 1, 0, 3]
    better = islands()
    drive(better, 0, scores([value + 100 * (k % 2) for k, value in enumerate(VALUES)]))
    assert survivors(better) == survivors(algorithm)  # however good another island is


def test_parents_and_mates_are_of_a_childs_own_island() -> None:
    algorithm = islands(population=60, parents=12, elites=3, islands=3, crossover="uniform", per_task=60)
    drive(algorithm, 0, scores(range(60)))
    source = names(next(algorithm.generation(1)))
    assert source.rows[:3].tolist() == [0, 1, 2]
    assert (source.rows % 3 == np.arange(60) % 3).all()
    crossed = source.mates >= 0
    assert 10 < crossed.sum() < 50
    assert (source.mates % 3 == np.arange(60) % 3)[crossed].all()
    assert {int(row) for row in source.rows} == set(range(12))
    name = stream(0, Purpose.PARENT, 1, 7)
    assert source.rows[7] == 1 + 3 * draw(name, 0, 4)


def test_the_best_of_an_island_replace_the_worst_of_the_next_and_stay_on_their_own() -> None:
    algorithm = islands(islands=4, population=8, parents=4, elites=0, migration_every=1)
    drive(algorithm, 0, scores([4, 1, 3, 9, 5, 2, 0, 8]))  # islands: 4 5, 1 2, 3 0, 9 8
    assert survivors(algorithm) == [3, 4, 2, 3]  # from 3 to 0, from 0 to 1, from 1 to 2 in vain, from 2 to 3 in vain


@pytest.mark.parametrize(("every", "due"), [(0, []), (1, [0, 1, 2, 3, 4, 5]), (3, [2, 5]), (7, [])])
def test_migrations_come_every_so_many_generations(every: int, due: list[int]) -> None:
    found = []
    for number in range(6):
        algorithm = islands(migration_every=every)
        drive(algorithm, number, scores(VALUES))
        assert survivors(algorithm) in ([2, 1, 0, 3], [1, 1, 2, 3])
        found += [number] if survivors(algorithm)[0] == 1 else []
    assert found == due


def test_migration_is_deaps_own() -> None:
    algorithm = islands(migration_every=1, migrants=2)
    migrate = algorithm.toolbox.migrate
    assert (migrate.func, migrate.keywords["selection"], migrate.keywords["k"]) == (tools.migRing, tools.selBest, 2)
    algorithm.toolbox.register("migrate", tools.migRing, k=1, selection=tools.selWorst)  # the worst change
    drive(algorithm, 0, scores([5, 9, 7, 8, 6, 6, 8, 10]))
    assert survivors(algorithm) == [6, 7, 2, 1]


def test_of_candidates_that_are_equal_the_best_ranked_is_not_replaced() -> None:
    algorithm = islands(migration_every=1)
    drive(algorithm, 0, scores([5] * 8))
    assert survivors(algorithm) == [0, 1, 2, 3]
    drive(algorithm, 1, scores([5, 5, 0, 0, 0, 0, 0, 0]))
    assert survivors(algorithm) == [0, 1, 1, 0]  # an immigrant, behind its equal


def test_an_immigrant_brings_its_sigma_its_age_and_its_mean() -> None:
    algorithm = islands(migration_every=2, memory=5, sigma_spread=1.0)
    drive(algorithm, 0, scores([50, 60, 7, 8, 1, 6, 3, 0]))
    drive(algorithm, 1, scores([40, 80, 7, 8, 1, 6, 3, 0]))
    assert survivors(algorithm) == [1, 1, 0, 0]
    state = algorithm.state()
    assert state["ages"].tolist() == [2] * 4
    assert state["means"].tolist() == [140, 140, 90, 90]  # of two episodes, over two generations
    assert state["weights"][0].tobytes() == state["weights"][1].tobytes()
    assert state["log_sigmas"][0] == state["log_sigmas"][1]


@pytest.mark.parametrize("generation", [1, 2])
def test_tournaments_of_an_island_are_among_its_candidates(generation: int) -> None:
    algorithm = islands(seed=3, selection="tournament", tournament=2, parents=6, elites=2)
    drive(algorithm, generation, scores(VALUES))
    expected, held = [], 0
    for island in range(2):
        values = VALUES[island::2]
        drawn = tournament_winners(3, generation, values, held + 2, 2, held)
        expected.append([2 * k + island for k in [int(np.argmax(values)), *drawn]])
        held += 2
    assert survivors(algorithm) == [number for pair in zip(*expected, strict=True) for number in pair]


def test_the_variance_between_islands_is_known_by_its_share() -> None:
    algorithm = islands(population=16, parents=8)
    found = drive(algorithm, 0, scores([*VALUES, *VALUES]))["between_islands"]
    weights = algorithm.state()["weights"].astype(np.float64)
    within = np.mean([weights[island::2].var(axis=0).sum() for island in range(2)])
    assert found == pytest.approx(1 - within / weights.var(axis=0).sum())
    assert 0 < found < 1
    assert "between_islands" not in drive(make(), 0, scores(VALUES))
    rows = np.array([[1, 2], [5, 6], [1, 2], [5, 6]], np.float32)
    assert between_islands(rows, 2) == 1
    assert between_islands(rows[[0, 1, 1, 0]], 2) == 0
    assert np.isnan(between_islands(rows[[0, 0, 0, 0]], 2))


def test_finalists_are_the_best_of_all_islands_and_none_is_the_copy_of_another() -> None:
    algorithm = islands()
    drive(algorithm, 0, scores([5, 19, 7, 18, 1, 6, 3, 0]))
    weights, candidates, returns = vars(algorithm.finalists(3)).values()
    assert candidates == [1, 3, 2]
    assert returns.tolist() == [0.019, 0.018, 0.007]
    assert weights.tobytes() == algorithm.state()["weights"][[1, 3, 0]].tobytes()
    migrating = islands(migration_every=1, migrants=2)
    drive(migrating, 0, scores([5, 19, 7, 18, 1, 6, 3, 0]))
    assert survivors(migrating) == [1, 1, 3, 3]
    assert migrating.finalists(3).candidates == [1, 3]


def test_all_islands_begin_with_the_network_that_a_run_starts_from() -> None:
    options = ga.Options(population=8, parents=4, elites=2, islands=2, episodes=2, crossover="none")
    start = np.arange(NETWORK.size, dtype=np.float32)
    algorithm = ga.make(options, Setup(0, NETWORK, None, 8, start=start))
    source = names(next(algorithm.generation(0)))
    assert source.rows.tolist() == [0] * 8
    assert (source.sigmas > 0).tolist() == [False, *[True] * 7]
    drive(algorithm, 0, scores(VALUES))
    assert survivors(algorithm) == [2, 1, 0, 3]


@pytest.mark.parametrize("count", [1, 3, 5, 9])
def test_parents_of_a_run_with_other_islands_are_spread_over_those_of_this_one(count: int) -> None:
    other = make(parents=count, elites=0, population=40, per_task=40)
    drive(other, 0, scores(range(40)))
    algorithm = islands(islands=4, population=40, parents=4, elites=4, per_task=40)
    algorithm.restore(other.state(), ())
    source, kept = names(next(algorithm.generation(1))), min(4, count)
    assert source.rows[:kept].tolist() == list(range(kept))
    assert set(source.rows[kept:].tolist()) == set(range(count))
    if count >= 4:
        assert (source.rows % 4 == np.arange(40) % 4).all()


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"islands": 3}, "population: 8 is not a multiple of 3 islands"),
        ({"islands": 4, "parents": 6}, "parents: 6 is not a multiple of 4 islands"),
        ({"islands": 4, "elites": 1}, "elites: 1 is not a multiple of 4 islands"),
        ({"migration_every": 5, "migrants": 3}, "migrants: 3 of 2 parents on an island"),
        ({"islands": 4, "elites": 0, "selection": "tournament"}, "tournament: 4 of 2 candidates on an island"),
        ({"islands": 0}, "islands"),
        ({"migrants": 0}, "migrants"),
        ({"migration_every": -1}, "migration_every"),
    ],
)
def test_islands_that_make_no_sense_are_refused(options: dict[str, object], said: str) -> None:
    with pytest.raises(ValidationError, match=said):
        islands(**options)


def test_options_at_their_defaults_are_no_part_of_a_runs_identity() -> None:
    def identity(**options: int) -> dict[str, object]:
        whole = Experiment.build(run={"algorithm": "ga"}, environment={"id": "catch"}, ga=options).identity()
        return dict(whole["ga"])

    plain, new = identity(), {"islands", "migration_every", "migrants"}
    assert not new & plain.keys()
    assert identity(islands=4, migration_every=0) == {**plain, "islands": 4, "migration_every": 0}
    assert identity(islands=4, migration_every=3, migrants=2).keys() - plain.keys() == new
    assert identity(islands=4) == {**plain, "islands": 4}  # all others are the usual ones


CATCH = small_with(environment='id = "catch"')
SET = ("--set", "ga.islands=2", "--set", "ga.migration_every=2")


def verified(where: Path, run: str) -> dict[str, object]:
    out, _ = called(where, "verify", run, "--all", "--json", program="evo")
    found: dict[str, object] = json.loads(out.splitlines()[-1])
    return found


@pytest.mark.long
def test_a_run_is_the_same_for_any_workers_and_is_verified_replayed_and_forked(tmp_path: Path) -> None:
    (tmp_path / "small.toml").write_text(CATCH)
    summary = summary_of(tmp_path, "small.toml", *SET, "--run-dir", "run")
    words = ("--backend", "processes", "--workers", 3)
    assert summary_of(tmp_path, "small.toml", *SET, *words, "--run-dir", "other")["state_hash"] == summary["state_hash"]
    assert verified(tmp_path, "run")["ok"]
    store = Store.read(tmp_path / "run")
    moved = store.read_record(1)["survivors"] % 2 != np.arange(4) % 2
    assert moved.any()  # so a run that migrates at another time is another one
    for generation, candidate in ((0, 3), (3, 7)):
        record = store.read_record(generation)
        said = replay_candidate(tmp_path / "run", generation, 0, candidate).outcome
        assert said.startswith(f"mean return {record['return'][candidate] / 4000:.3f} over 4 episodes")
    refused = summary_of(tmp_path, "--resume", "run", "--set", "ga.islands=1", code=2)["error"]
    assert "ga.islands: 2 in the run, nothing now" in refused
    for count in (1, 4):
        change = ("--set", f"ga.islands={count}", "--set", "ga.elites=4")
        forked = summary_of(tmp_path, "--resume", "run", *change, "--fork", f"of-{count}", "--generations", 6)
        assert (forked["status"], forked["generations"]) == ("done", 6)
        assert verified(tmp_path, f"runs/of-{count}")["ok"]


@pytest.mark.long
def test_the_time_of_a_run_with_islands_is_estimated() -> None:
    experiment = Experiment.build(
        run={"algorithm": "ga"}, environment={"id": "catch"}, ga={"islands": 4, "migration_every": 1}
    )
    found = estimated(experiment, probe(experiment, 1.0), 10**9, 10**9)
    assert found.seconds_per_generation > 0
    assert found.goals[0].seconds > 0


def test_an_island_takes_a_copy_of_a_network_only_where_nothing_else_is_left() -> None:
    toolbox, kind = make().toolbox, fitness_class(1)
    fitness = [9, 1, 9, 1, 5, 3, 2, 2]  # islands 0 and 1 in turns
    population = [Individual(k, 0, fitness=kind((value,))) for k, value in enumerate(fitness)]
    for networks, expected in (
        ([0, 1, 2, 3, 4, 5, 6, 7], [0, 5, 2, 7]),
        ([0, 1, 0, 1, 4, 5, 6, 7], [0, 5, 4, 7]),  # 2 is a copy of 0, 3 of 1
        ([0, 1, 0, 1, 0, 5, 0, 7], [0, 5, 2, 7]),  # nothing but copies on island 0
    ):
        assert [one.number for one in select_on_islands(toolbox, population, 4, 2, False, networks)] == expected


def test_migrants_do_not_fill_the_islands_with_copies(tmp_path: Path) -> None:
    options = {
        "population": 40,
        "parents": 16,
        "elites": 16,
        "islands": 4,
        "migration_every": 2,
        "episodes": 2,
        "crossover": "none",
    }
    experiment = Experiment.build(
        run={"algorithm": "ga", "generations": 24},
        environment={"id": "catch"},
        policy={"kind": "linear"},
        workers={"backend": "serial"},
        ga=options,
    )
    for _ in evo.train(experiment, tmp_path / "run"):
        pass
    parents = Store.read(tmp_path / "run").load()["weights"]
    for island in range(4):
        assert len(np.unique(parents[island::4], axis=0)) == 4
