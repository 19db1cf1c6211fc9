"""Any fitness function: by every evolutionary algorithm, on every backend, with the same bits, and its faults named."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

import evo
from evo.environments.problem import Problem
from evo.errors import ConfigurationError
from tests.helpers.calling import called, summary_of
from tests.plugins import curves

PLUGIN = ("--plugin", "tests.plugins.curves")
SMALL = ("--generations", 6, "--set", "validation.episodes=2", "--set", "test.episodes=4")
STRATEGIES = ("sep_cma_es", "cma_es", "snes", "openai_es", "pgpe", "es")
OTHERS = ("ga", "nsga2", "map_elites", "cma_me")
FEW = {
    "ga": {"population": 16, "parents": 4, "elites": 2},
    "nsga2": {"population": 16, "survivors": 8},
    "map_elites": {"population": 16, "reevaluated": 4},
    "cma_me": {"population": 32, "reevaluated": 4},
}


def experiment(where: Path, name: str, **sections: str) -> Path:
    """Write an experiment of a problem of `curves`."""
    lines = ['[run]\nalgorithm = "sep_cma_es"', f'[environment]\nid = "problem:curves:{name}"']
    size = {"fitness": "size = 4", "problem": "", "bounded": ""}.get(name, "size = 2")
    (where / "mine.toml").write_text("\n".join([*lines, size, "[sep_cma_es]\npopulation = 8\nepisodes = 2"]))
    return where / "mine.toml"


@pytest.mark.parametrize("algorithm", [*STRATEGIES, *OTHERS])
def test_a_search_goes_on_from_its_state_and_finds_better_vectors(algorithm: str) -> None:
    def search(generations: int, state: dict[str, np.ndarray] | None = None) -> evo.Search:
        found = evo.Search([2.0, -1.0, 1.5], algorithm, minimise=True, **FEW.get(algorithm, {}))
        if state is not None:
            found.restore(state)
        while found.generation < generations:
            weights = found.ask()
            assert weights.shape[1] == 3
            found.tell([curves.sphere(row) for row in weights])
        return found

    whole, half = search(8), search(4)
    again = search(8, half.state())
    assert whole.fitness == again.fitness <= curves.sphere(np.array([2.0, -1.0, 1.5]))
    assert algorithm in ("nsga2", "map_elites", "cma_me") or again.fitness < 7.25  # of the start
    np.testing.assert_array_equal(whole.best, again.best)
    np.testing.assert_array_equal(whole.ask(), again.ask())


def test_fitness_that_is_not_finite_ranks_worst_and_another_number_of_it_is_refused() -> None:
    search = evo.Search(3, "sep_cma_es", population=8)
    weights = search.ask()
    with pytest.raises(ConfigurationError, match=r"fitness: \(3,\), where 9 vectors were asked for"):
        search.tell([1.0, 2.0, 3.0])
    told = np.full(len(weights), np.nan)
    told[4] = 1e-9
    search.tell(told)
    assert search.fitness == 1e-9
    np.testing.assert_array_equal(search.best, weights[4])


def test_differences_far_below_a_thousandth_are_climbed(tmp_path: Path) -> None:
    problem = Problem(lambda weights: -1e-6 * curves.sphere(weights - 0.5), [2.0, -1.0])
    best = evo.maximise(problem, generations=60, run_dir=tmp_path / "run")
    assert -1e-12 < best.fitness <= 0
    np.testing.assert_allclose(best.x, 0.5, atol=1e-3)
    assert best.run.curves["best"][-1] > best.run.curves["best"][0]


def test_the_start_is_where_the_search_begins_and_bounds_hold(tmp_path: Path) -> None:
    narrow = {"sigma": 1e-6}
    best = evo.minimise(curves.sphere, [3.0, 4.0], generations=1, run_dir=tmp_path / "first", sep_cma_es=narrow)
    assert best.fitness == pytest.approx(25, abs=1e-3)
    bounded = evo.minimise(curves.bounded, generations=30, run_dir=tmp_path / "second")
    assert bounded.x.tolist() == [1.0, 1.0]
    assert bounded.fitness == 2.0


@pytest.mark.parametrize("name", ["fitness", "problem"])
def test_processes_kills_and_resumes_change_no_bit_and_everything_can_be_verified(tmp_path: Path, name: str) -> None:
    file = experiment(tmp_path, name)
    whole = summary_of(tmp_path, file, *SMALL, *PLUGIN, "--backend", "serial", "--run-dir", "whole")
    part = ("--generations", 3, *SMALL[2:])
    summary_of(tmp_path, file, *part, *PLUGIN, "--workers", 2, "--run-dir", "parts")
    out, _ = called(tmp_path, "resume", "parts", "--generations", 6, "--json", *PLUGIN, program="evo")
    assert json.loads(out.splitlines()[-1])["state_hash"] == whole["state_hash"]
    assert "agrees" in called(tmp_path, "verify", "parts", "--all", *PLUGIN, program="evo")[0]
    called(tmp_path, "report", "parts", *PLUGIN, program="evo")
    facts = json.loads(called(tmp_path, "evaluate", "whole", "--json", *PLUGIN, program="evo")[0].splitlines()[-1])
    assert facts["mean"] == whole["champion"]["test"]["mean"]


def test_a_candidate_that_ends_its_workers_is_named(tmp_path: Path) -> None:
    file = experiment(tmp_path, "deadly")
    worst = ("--set", "workers.on_poison=worst", "--workers", 2)
    out, err = called(tmp_path, file, *SMALL, *PLUGIN, *worst, "--run-dir", "run")
    assert "ended every worker" in out + err


@pytest.mark.parametrize(
    ("name", "more", "said"),
    [
        (
            "fails",
            (),
            "tests.plugins.curves: fails raised ZeroDivisionError: float division by zero (curves.py:",
        ),
        ("nothing", (), "environment.id: curves has no function nothing"),
        (
            "sphere",
            ("--set", "environment.size=0"),
            "environment.size: problem:curves:sphere is a function; say how many",
        ),
        ("problem", ("--set", "environment.size=4"), "environment.size: problem:curves:problem declares 3, not 4"),
        ("sphere", ("--algorithm", "ppo"), "a fitness function has no steps to learn from; evolve it"),
    ],
)
def test_a_mistake_is_a_line(tmp_path: Path, name: str, more: tuple[str, ...], said: str) -> None:
    file = experiment(tmp_path, name)
    err = called(tmp_path, file, *SMALL, *PLUGIN, "--backend", "serial", *more, code=2)[1]
    assert said in err
    assert "Traceback" not in err


def test_a_function_that_ignores_its_seed_is_reported(tmp_path: Path) -> None:
    out, err = called(tmp_path, experiment(tmp_path, "forgetful"), *SMALL, *PLUGIN, "--backend", "serial")
    assert "not deterministic under its seed" in out + err


def test_values_that_are_not_finite_rank_worst(tmp_path: Path) -> None:
    summary = summary_of(tmp_path, experiment(tmp_path, "half_defined"), *SMALL, *PLUGIN, "--backend", "serial")
    assert summary["champion"]["fitness"] > 0


def test_workers_need_a_function_that_they_can_import(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match=r"workers: other processes cannot import .*<lambda> of tests"):
        evo.maximise(lambda weights: 0.0, 2, workers=2, run_dir=tmp_path / "run")
    with pytest.raises(ConfigurationError, match="start: give the first vector"):
        evo.maximise(curves.sphere)
