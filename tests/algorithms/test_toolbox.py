"""Operators of a plug-in drive the genetic algorithm; the same bits for any workers, resumed and verified."""

from __future__ import annotations

import copy
import json
import random
import shutil
from pathlib import Path

import numpy as np
import pytest
from deap import base, tools

from evo.algorithms import ga
from evo.errors import ConfigurationError, MissingPluginError
from evo.evolution.toolbox import Individual, cross, drawing_from, fitness_class, fitness_of, operator
from evo.plugins import registry
from evo.store.run import Run
from tests.algorithms.test_ga import drive, make, scores
from tests.helpers.calling import called, summary_of

ROOT = Path(__file__).parents[2]
EXAMPLE = ROOT / "docs" / "examples" / "algorithms" / "operators.py"
OWN = ("--plugin", "operators", "--set", "ga.select=operators:select", "--set", "ga.mutate=operators:mutate")
BOTH = (*OWN, "--set", "ga.mate=operators:mate", "--set", "ga.crossover=uniform", "--set", "ga.sigma_spread=1")
WRONG = """
import copy
import numpy as np

plugs_into = "operators"

def too_few(individuals, k): return individuals[: k - 1]
def strangers(individuals, k): return [copy.copy(one) for one in individuals[:k]]
def broken(individuals, k): return [individuals[0].weights] * k
def nothing(child): child.log_sigma += 1
def far(child): child.log_sigma = 97.0; return (child,)
def unknown(child): child.log_sigma = float("nan"); return (child,)
def stranger(child, other): child.mate = 999; return child, other
def named_anew(child): child.key = -5; return (child,)
def valued(child): child.fitness.values = (9e9,); return (child,)
def less(child): del child.log_sigma; return (child,)
def without(individuals, k): del individuals[0].fitness.values; return individuals[:k]
def endless(individuals, k): individuals[0].log_sigma = float("nan"); return individuals[:k]
def stops(individuals, k): raise StopIteration
def ordered(individuals, k): individuals.sort(key=lambda one: one.number); del individuals[k:]; return [*individuals]
def both(child, other):
    child.mate = other.row
    other.log_sigma = child.log_sigma = -1.0
    other.row = 0
    return child, other
def chance(child): child.log_sigma = -np.random.rand(); return (child,)
"""


@pytest.fixture
def experiment(small: Path) -> Path:
    shutil.copy(EXAMPLE, small / "operators.py")
    (small / "wrong.py").write_text(WRONG)
    return small


@pytest.mark.long
@pytest.mark.long
def test_a_run_with_own_operators_is_the_same_for_any_workers_resumed_verified_and_replayed(experiment: Path) -> None:
    usual = summary_of(experiment, "small.toml", "--run-dir", "usual")
    own = summary_of(experiment, "small.toml", *BOTH, "--run-dir", "own")
    words = ("--backend", "processes", "--workers", 3)
    assert summary_of(experiment, "small.toml", *BOTH, *words, "--run-dir", "other")["state_hash"] == own["state_hash"]
    assert usual["state_hash"] != own["state_hash"]
    summary_of(experiment, "small.toml", *BOTH, "--run-dir", "parts", "--generations", 2)
    resumed = summary_of(experiment, "--resume", "parts", "--plugin", "operators", "--generations", 4)
    assert resumed["state_hash"] == own["state_hash"]
    out, _ = called(experiment, "verify", "own", "--all", "--json", "--plugin", "operators", program="evo")
    verified = json.loads(out.splitlines()[-1])
    assert verified["ok"]
    assert verified["replayed"] > 0
    assert verified["not_replayable"] == 0


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (
            ("--set", "ga.select=wrong:too_few"),
            "ga.select: wrong:too_few must return a list of k = 4 of the individuals",
        ),
        (("--set", "ga.select=wrong:strangers"), "wrong:strangers must return a list of k = 4 of the individuals"),
        (("--set", "ga.select=wrong:broken"), "wrong: broken raised AttributeError"),
        (("--set", "ga.select=wrong:stops"), "wrong: stops raised StopIteration (wrong.py:"),
        (("--set", "ga.mutate=wrong:nothing"), "ga.mutate: wrong:nothing must change its first argument in place"),
        (("--set", "ga.mutate=wrong:far"), "wrong:far set log_sigma to 97.0; it must be a float from -30.0 to 15.0"),
        (("--set", "ga.mutate=wrong:unknown"), "wrong:unknown set log_sigma to nan"),
        (("--set", "ga.mate=wrong:stranger", "--set", "ga.crossover=uniform"), "wrong:stranger set mate to 999"),
        (("--set", "ga.mate=wrong:stranger"), "mate: no child has two parents; set crossover = uniform or layers"),
        (("--set", "ga.select=wrong:toofew"), "ga.select: wrong has no function toofew - did you mean `too_few`?"),
        (("--set", "ga.select=wrong.too_few"), 'ga.select: must be "plug-in:function"'),
        (("--set", "ga.select=missing:one"), "add --plugin missing"),
        (
            ("--set", "ga.mutate=wrong:named_anew"),
            "wrong:named_anew must leave number, key, age and fitness as",
        ),
        (("--set", "ga.mutate=wrong:valued"), "wrong:valued must leave number, key, age and fitness as they are"),
        (("--set", "ga.mutate=wrong:less"), "wrong:less set log_sigma to None"),
        (("--set", "ga.select=wrong:without"), "wrong:without must leave number, key, age, log_sigma, row, mate and"),
        (("--set", "ga.select=wrong:endless"), "wrong:endless must leave number, key, age, log_sigma, row, mate and"),
    ],
)
def test_a_wrong_operator_ends_the_run_in_one_line(experiment: Path, words: tuple[str, ...], said: str) -> None:
    error = summary_of(experiment, "small.toml", "--plugin", "wrong", *words, "--run-dir", "run", code=2)["error"]
    assert said in error


def test_operators_may_draw_from_numpy_order_a_selection_s_list_and_change_both_mates(experiment: Path) -> None:
    words = ("--set", "ga.crossover=uniform", "--set", "ga.mate=wrong:both", "--set", "ga.mutate=wrong:chance")
    words = ("--plugin", "wrong", *words, "--set", "ga.select=wrong:ordered", "--generations", 3)
    hashes = set()
    for name in ("one", "two"):
        np.random.seed()  # as in another process  # noqa: NPY002
        hashes.add(summary_of(experiment, "small.toml", *words, "--run-dir", name)["state_hash"])
    assert len(hashes) == 1
    run = Run(experiment / "one")
    means = [np.mean(run.store.read_record(number)["return"]) / 4000 for number in range(3)]  # thousandths, 4 episodes
    np.testing.assert_allclose(run.column("mean"), means)
    child, other = Individual(0, 0), Individual(1, 3)
    operator("ga.mate", "wrong:both")(child, other)
    assert (child.mate, child.log_sigma) == (3, -1.0)
    assert (other.row, other.log_sigma) == (3, 0.0)  # it is a parent of later children


def test_a_run_with_own_operators_says_which_plug_in_it_lacks(
    experiment: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    summary_of(experiment, "small.toml", *OWN, "--run-dir", "run", "--generations", 1)
    monkeypatch.setattr(registry, "_loaded", {})
    error = summary_of(experiment, "--resume", "run", "--generations", 3, code=2)["error"]
    assert "operators:select needs a plug-in" in error
    assert "add --plugin operators" in error


def test_the_page_shows_the_plug_in_that_is_tested() -> None:
    assert f"```python\n{EXAMPLE.read_text()}```" in (ROOT / "docs" / "evolution.md").read_text()


def test_operators_of_the_toolbox_itself_are_no_part_of_an_identity() -> None:
    assert not {"select", "mate", "mutate"} & ga.Options().model_dump().keys()


def test_the_generation_calls_the_registered_operators_in_the_order_of_deaps_loop() -> None:
    algorithm, tape = (
        make(crossover="uniform", crossover_rate=1.0, islands=2, parents=4, elites=2, migration_every=1),
        [],
    )
    drive(algorithm, 0, scores(range(8)))
    assert isinstance(algorithm.toolbox, base.Toolbox)

    def recorded(name: str):  # type: ignore[no-untyped-def]
        def decorator(called):  # type: ignore[no-untyped-def]
            return lambda *given, **options: (tape.append(name), called(*given, **options))[1]

        return decorator

    for name in ("clone", "mate", "mutate", "evaluate", "migrate", "select"):
        algorithm.toolbox.decorate(name, recorded(name))
    drive(algorithm, 1, scores(range(8)))
    varied = ["clone", "mate", "mutate"] * 6
    assert tape == ["clone", "clone", *varied, "evaluate", "migrate", "select", "select"]


def test_deaps_own_selections_take_the_individuals() -> None:
    kind = fitness_class(1)
    individuals = [Individual(k, k, fitness=kind((value,))) for k, value in enumerate((3, 9, 4, 8))]
    assert [one.number for one in tools.selBest(individuals, 2)] == [1, 3]
    assert fitness_of(tools.selWorst(individuals, 1)).tolist() == [3]
    with drawing_from(7):
        first = [one.number for one in tools.selRoulette(individuals, 9)]
    with drawing_from(7):
        assert [one.number for one in tools.selRoulette(individuals, 9)] == first
    assert set(first) <= {0, 1, 2, 3}


def test_drawing_from_a_stream_leaves_the_global_generator_as_it_was() -> None:
    random.seed(3)
    expected = random.random()
    random.seed(3)
    with drawing_from(1):
        random.random()
    assert random.random() == expected


def test_a_clone_is_changed_alone() -> None:
    parent = Individual(0, 3, log_sigma=2.0, age=2, fitness=fitness_class(1)((5,)))
    child = copy.copy(parent)
    cross(child, Individual(1, 4))
    assert (child.row, child.mate, child.log_sigma, child.fitness.values) == (3, 4, 1.0, (5,))
    assert (parent.mate, parent.log_sigma) == (-1, 2.0)
    assert not hasattr(parent, "__dict__")  # a million of them fit into memory


def test_an_operator_that_is_not_loaded_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(registry, "_loaded", {})
    with pytest.raises(MissingPluginError, match="add --plugin nowhere"):
        operator("ga.select", "nowhere:one")


def test_candidates_of_own_mates_have_these_in_their_names() -> None:
    algorithm = make(crossover="uniform", crossover_rate=1.0, sigma_spread=0.0, per_task=8)
    drive(algorithm, 0, scores(range(8)))

    def mate(child: Individual, other: Individual) -> tuple[Individual, Individual]:
        child.mate, child.log_sigma = other.row, (child.log_sigma + other.log_sigma) / 2 + float(np.log(2))
        return child, other

    algorithm.toolbox.register("mate", mate)
    source = next(algorithm.generation(1)).tasks[0].weights
    assert (source.mates[1:] >= 0).all()
    assert np.allclose(source.sigmas[1:], 0.2)


def test_an_operator_must_be_of_a_plug_in(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(EXAMPLE.parent)
    registry.load(["operators"])
    assert operator("ga.select", "operators:select").__name__ == "select"
    with pytest.raises(ConfigurationError, match=r"ga\.mutate: operators:mate set log_sigma to 25"):
        operator("ga.mutate", "operators:mate")(Individual(0, 0), Individual(1, 1, log_sigma=50.0))
