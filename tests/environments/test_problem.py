"""Any fitness function: by every evolutionary algorithm, on every backend, with the same bits, and its faults named."""

from __future__ import annotations

import copy
import functools
import importlib
import inspect
import itertools
import json
import math
import os
import pickle
import re
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext
from decimal import Decimal
from enum import Enum
from fractions import Fraction
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple, cast

import numba
import numpy as np
import pytest

import evo
from evo.config.experiment import Experiment
from evo.environments.problem import Problem
from evo.errors import ConfigurationError, MissingPluginError, ResourceError
from evo.plugins import code, registry
from tests.helpers.calling import called, summary_of
from tests.helpers.sampling import sampled
from tests.plugins import curves

PLUGIN = ("--plugin", "tests.plugins.curves")
SMALL = ("--generations", 6, "--set", "validation.episodes=2", "--set", "test.episodes=4")
STRATEGIES = ("sep_cma_es", "cma_es", "snes", "openai_es", "pgpe", "es")
MODULES = itertools.count()  # of one process, which imports a module once
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


def test_a_population_is_cut_into_tasks_enough_for_sixteen_workers(tmp_path: Path) -> None:
    file = experiment(tmp_path, "fitness")
    for population, each in ((17, 1), (64, 4), (1024, 16)):
        wanted = evo.Experiment.load(file, f"sep_cma_es.population={population}", plugins=["tests.plugins.curves"])
        assert wanted.candidates_per_task == each


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


def test_a_fitness_of_1e_12_is_not_2e_12_in_records_and_manifest_after_a_resume_and_of_the_champion(
    tmp_path: Path,
) -> None:
    def tiny(weights: np.ndarray) -> float:
        return 1e-12 * (1.0 + curves.sphere(weights))

    def search(generations: int, where: str) -> evo.Optimum:
        return evo.minimise(tiny, [1.0, 0.0], generations=generations, run_dir=tmp_path / where)

    whole, _, parts = search(6, "whole"), search(3, "parts"), search(6, "parts")
    assert parts.fitness == whole.fitness == tiny(parts.x)
    assert 1e-12 <= parts.fitness < 2e-12
    assert parts.run.store.state_hash == whole.run.store.state_hash
    assert parts.run.fitness == -parts.fitness
    record = parts.run.store.read_record(5)
    (returns,) = (array for name, array in record.items() if name.startswith("return"))
    assert returns.dtype == np.float64
    assert len(np.unique(returns)) == returns.size > 4
    assert -2e-12 < returns.max() <= -1e-12


def test_the_start_is_where_the_search_begins_and_bounds_hold(tmp_path: Path) -> None:
    narrow = {"sigma": 1e-6}
    best = evo.minimise(curves.sphere, [3.0, 4.0], generations=1, run_dir=tmp_path / "first", sep_cma_es=narrow)
    assert best.fitness == pytest.approx(25, abs=1e-3)
    bounded = evo.minimise(curves.bounded, generations=30, run_dir=tmp_path / "second")
    assert bounded.x.tolist() == [1.0, 1.0]
    assert bounded.fitness == 2.0


@pytest.mark.long
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


@pytest.mark.long
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
        ("reads_no_file", (), "tests.plugins.curves: reads_no_file raised FileNotFoundError: "),
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


@pytest.mark.long
def test_a_probe_ends_with_the_line_and_the_exit_code_of_the_run(tmp_path: Path) -> None:
    words = (experiment(tmp_path, "fails"), *PLUGIN, "--backend", "serial")
    told = called(tmp_path, "run", *words, program="evo", code=2)[1].splitlines()
    assert called(tmp_path, "plan", *words, program="evo", code=2)[1].splitlines() == told
    assert told[0].startswith("plug-in tests.plugins.curves: fails raised ZeroDivisionError: ")


def test_the_score_of_an_exact_function_has_no_interval_and_is_of_one_call(tmp_path: Path) -> None:
    told = "exact: the function takes no seed and was called once"
    for name, exact in (("sphere", True), ("fitness", False)):
        out, _ = called(tmp_path, experiment(tmp_path, name), *SMALL, *PLUGIN, "--backend", "serial", "--run-dir", name)
        again, _ = called(tmp_path, "evaluate", name, *PLUGIN, program="evo")
        page = re.sub(r"<(script|style).*?</\1>", "", (tmp_path / name / "report.html").read_text(), flags=re.DOTALL)
        assert [told in out, told in again, "was called once" in page] == 3 * [exact]
        assert ["interval" in out + again, "evo evaluate" in out, "interval says" in page] == 3 * [not exact]
        assert ["interval of the last one" in page, "Optimism gap" in page] == 2 * [not exact]


def test_an_exact_function_is_called_once_in_a_test(tmp_path: Path) -> None:
    calls = list[bytes]()

    def fitness(weights: np.ndarray) -> float:
        calls.append(weights.tobytes())
        return curves.sphere(weights)

    few: dict[str, Any] = {"generations": 1, "ga": GA, "algorithm": "ga"}
    counts = []
    for episodes in (1, 1000):
        calls.clear()
        evo.minimise(fitness, 3, run_dir=tmp_path / str(episodes), test={"episodes": episodes}, **few)
        counts.append(len(calls))
    assert counts[0] == counts[1]


def test_a_function_that_ignores_its_seed_is_reported(tmp_path: Path) -> None:
    out, err = called(tmp_path, experiment(tmp_path, "forgetful"), *SMALL, *PLUGIN, "--backend", "serial")
    assert "not deterministic under its seed" in out + err


def test_values_that_are_not_finite_rank_worst(tmp_path: Path) -> None:
    summary = summary_of(tmp_path, experiment(tmp_path, "half_defined"), *SMALL, *PLUGIN, "--backend", "serial")
    assert summary["champion"]["fitness"] > 0


def test_calls_that_are_not_finite_in_validation_and_test_end_no_search(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def rarely(weights: np.ndarray, seed: int) -> float:
        return math.nan if seed % 20 == 3 else float(np.sum((weights - 1) ** 2)) + seed % 2

    found = evo.minimise(rarely, 2, generations=2, run_dir=tmp_path / "run")
    assert 0 < found.fitness < 4
    assert re.search(r"\d+ of 100 test episodes gave no finite number", capsys.readouterr().err)
    assert evo.minimise(rarely, 2, generations=3, run_dir=tmp_path / "run").fitness > 0
    with pytest.raises(ConfigurationError, match="has given no finite number"):
        evo.minimise(lambda weights, seed: math.nan, 2, generations=1, run_dir=tmp_path / "none")


def test_a_whole_number_beyond_float64_is_not_finite() -> None:
    problem = evo.Problem(lambda _: 10**400, 2)
    assert np.isnan(problem.values(problem.first, 0))


@pytest.mark.parametrize("algorithm", sampled(["sep_cma_es", "ga", "map_elites"]))
def test_fitness_near_the_largest_that_counts_is_computed_with_without_a_warning(
    tmp_path: Path, algorithm: str
) -> None:
    def far(weights: np.ndarray, seed: int) -> float:
        return (2e150 if weights[0] < -0.2 else 1e150) * math.tanh(float(weights[0]) + seed % 7)

    sections = {algorithm: {"episodes": 4, **FEW.get(algorithm, {})}}
    found = evo.maximise(far, 2, algorithm=algorithm, generations=4, run_dir=tmp_path / "run", **sections)
    assert 0 < found.fitness < 1e150
    for command in ("doctor", "compare"):
        called(tmp_path, command, "run", program="evo")
    search = evo.Search(2, algorithm, **FEW.get(algorithm, {}))
    asked = len(search.ask())
    search.tell([3e150, *([1e149] * (asked - 1))])
    assert search.fitness == 1e149


def test_workers_need_a_function_that_they_can_import(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match=r"workers: other .*<lambda> of tests.*named `fitness`"):
        evo.maximise(lambda weights: 0.0, 2, workers=2, run_dir=tmp_path / "run")
    with pytest.raises(ConfigurationError, match="start: give the first vector"):
        evo.maximise(curves.sphere)
    with pytest.raises(ConfigurationError, match="workers: there must be at least 1, not 0"):
        evo.maximise(lambda weights: 0.0, 2, workers=0, run_dir=tmp_path / "run")


GRID = {"descriptors": ["first"], "low": [-2.0], "high": [2.0], "bins": [50]}
GA = {"population": 12, "parents": 4, "sigma": 1.0}


@pytest.mark.parametrize(
    ("algorithm", "options"),
    sampled(
        [
            ("ga", GA),
            ("ga", {**GA, "crossover": "none", "selection": "tournament", "tournament": 2}),
            (
                "map_elites",
                {**GRID, **FEW["map_elites"], "reevaluated": 1},
            ),  # which bounds nothing of an exact function
            ("cma_me", {**GRID, **FEW["cma_me"]}),
        ],
        *range(2),
    ),
)
def test_no_search_returns_a_vector_that_is_worse_than_one_that_was_called(
    tmp_path: Path, algorithm: str, options: dict[str, object]
) -> None:
    values, measures = list[float](), ["first"] if "bins" in options else None

    def counted(weights: np.ndarray) -> float | tuple[float, float]:
        values.append(curves.sphere(weights - 1))
        return (values[-1], float(weights[0])) if measures else values[-1]

    how: Any = {algorithm: options} if measures is None else {algorithm: options, "measures": measures}
    search = functools.partial(evo.minimise, counted, 3, algorithm=algorithm, **how)
    whole = search(generations=7, run_dir=tmp_path / "whole")
    assert whole.fitness == min(values)
    search(generations=3, run_dir=tmp_path / "parts")
    parts = search(generations=7, run_dir=tmp_path / "parts")
    assert parts.run.store.lines[-1].state_hash == whole.run.store.lines[-1].state_hash
    assert "agrees" in called(tmp_path, "verify", "whole", "--all", program="evo")[0]


def picky(weights: np.ndarray) -> float:
    """Return a fitness that zeros do not have."""
    return 1 / float(weights[0])


def scaled(weights: np.ndarray, scale: float = 2.0) -> float:
    """Return a fitness with an option that is no seed."""
    return scale * curves.sphere(weights)


@pytest.mark.parametrize(
    ("start", "bounds", "message"),
    [
        (np.ones((2, 3)), {}, r"start: an array of shape \(2, 3\) is not a vector"),
        ("abc", {}, "start: 'abc' is neither a number nor a vector"),
        (3.0, {}, r"start: an array of shape \(\) is not a vector"),
        ([], {}, r"start: an array of shape \(0,\) is not a vector"),
        (0, {}, "start: a vector has 1 to 134,217,728 numbers, not 0"),
        (-1, {}, "start: a vector has 1 to 134,217,728 numbers, not -1"),
        ([1e300, 1.0], {}, "start: its numbers are not all finite in float32"),
        ([1.0, np.nan], {}, "start: its numbers are not all finite in float32"),
        (2, {"lower": 1.0, "upper": -1.0}, "lower, upper: no number is from 1.0 to -1.0"),
        (2, {"lower": np.nan}, "lower, upper: no number is from nan to inf"),
        (2, {"upper": "a"}, "upper: 'a' is neither a number nor a vector"),
        (2, {"lower": np.zeros(3)}, "lower, upper: each is a number, or 2 of them"),
        (2, {"measures": None}, "measures: None is no list of names"),
        (2, {"workers": {"counts": 2}}, "workers.counts: unknown key"),
        (2, {"population": 8}, r"population: no option of a search; others are in sections"),
        (2, {"algorithm": "eaSimple"}, r"^algorithm: 'eaSimple' is not known; there are a2c, "),
        (2, {"algorithm": np.array(["ga", "es"])}, "^algorithm: array"),
        (2, {"workers": np.ones(2)}, "workers.count: must be a whole number or"),
        (2, {"workers": {"backend": np.ones(2)}}, "workers.backend: "),
    ],
)
def test_what_cannot_be_searched_is_named(start: object, bounds: dict[str, object], message: str) -> None:
    with pytest.raises(ConfigurationError, match=message):
        evo.minimise(curves.sphere, start, **bounds)  # type: ignore[arg-type]


class Silent(Exception):
    """An exception that cannot say what is wrong."""

    def __str__(self) -> str:
        raise RuntimeError


def test_a_complex_fitness_and_an_exception_without_a_text_are_named(tmp_path: Path) -> None:
    def fails(weights: np.ndarray) -> float:
        raise Silent

    few = {"generations": 1, "run_dir": tmp_path / "run"}
    with pytest.raises(ConfigurationError, match=r"builtins: float.__abs__ raised TypeError: descriptor"):
        evo.minimise(float.__abs__, 2, **few)  # which has no __module__
    for number in (np.complex128(1 + 2j), np.ma.masked):
        with pytest.raises(ConfigurationError, match=r"must return a number, not (np\.complex128|masked)"):
            evo.minimise(lambda x, number=(number,): number[0], 2, **few)
    with pytest.raises(ConfigurationError, match=r"must return a number, not 'x' \(test_problem.py:\d+\)"):
        evo.minimise(lambda _: "x", 2, **few)

    async def waits(weights: np.ndarray) -> float:
        return 0.0

    with pytest.raises(ConfigurationError, match="must return a number, not <coroutine"):
        evo.minimise(waits, 2, **few)
    with pytest.raises(ConfigurationError, match="fails raised Silent"):
        evo.minimise(fails, 2, **few)


@pytest.mark.parametrize(("ending", "status"), sampled([("sys.exit(3)", 3), ("return 9.0", 1), ("raise KeyError", 1)]))
def test_a_process_that_the_function_forks_does_not_search_on(tmp_path: Path, ending: str, status: int) -> None:
    names: dict[str, Any] = {"__name__": "forking", "os": os, "sys": sys}
    body = f"if os.fork() == 0: {ending}\n return float(os.waitstatus_to_exitcode(os.wait()[1]))"
    exec(f"def forks(x):\n {body}", names)
    found = evo.minimise(names["forks"], 2, generations=1, run_dir=tmp_path / "run")
    assert (found.fitness, found.run.store.next_generation) == (status, 1)


def test_a_class_of_ours_as_a_function_is_no_plug_in_from_then_on(tmp_path: Path) -> None:
    loaded = registry.loaded()
    with pytest.raises(ConfigurationError, match="is not a function"):
        evo.minimise(Problem, 2, generations=1, run_dir=tmp_path / "run")
    assert registry.loaded() == loaded


def test_arguments_of_a_problem_are_not_passed_over(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match="a Problem has its own start and bounds"):
        evo.maximise(Problem(curves.sphere, 2), lower=1.0)
    with pytest.raises(ConfigurationError, match="fitness: 5 is not a function"):
        evo.maximise(5, 2)  # type: ignore[arg-type]
    mine = experiment(tmp_path, "problem")
    _, error = called(tmp_path, mine, *PLUGIN, "--dry-run", "--set", "environment.lower=0", code=2)
    assert "is a Problem, which says that itself" in error


def test_a_function_is_called_only_where_the_search_is_and_without_its_other_options(tmp_path: Path) -> None:
    few = {"generations": 2, "sep_cma_es": {"population": 4}}
    low = [0.5, 0.5]
    assert evo.maximise(picky, [1.0, 2.0], run_dir=tmp_path / "picky", **few).fitness > 1
    bounded = evo.maximise(Problem(lambda x: picky(x), [1.0, 2.0], lower=low), run_dir=tmp_path / "bounds", **few)
    assert (bounded.x >= 0.5).all()
    for name, function in (("option", scaled), ("partial", functools.partial(scaled)), ("norm", np.linalg.norm)):
        best = evo.minimise(function, [1.0, 2.0], run_dir=tmp_path / name, **few)
        assert best.fitness == function(best.x)
        assert best.calls == 15
    assert evo.minimise(max, np.int64(2), run_dir=tmp_path / "max", **few).fitness <= 0


def test_a_search_that_has_ended_is_returned_again_and_one_that_found_nothing_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    few = {"generations": 2, "sep_cma_es": {"population": 4}}
    one = evo.minimise(curves.sphere, [1.0, 2.0], run_dir=tmp_path / "run", **few)
    (tmp_path / "run" / "metrics.jsonl").write_bytes(b"")  # as a lost disk block leaves it: the manifest has the sums
    other = evo.minimise(curves.sphere, [1.0, 2.0], run_dir=tmp_path / "run", **few)
    assert (one.fitness, one.calls) == (other.fitness, other.calls)
    np.testing.assert_array_equal(one.x, other.x)
    with pytest.raises(ConfigurationError, match="has given no finite number, of at most 1e150, for any"):
        evo.minimise(lambda _: np.nan, 2, run_dir=tmp_path / "none", **few)
    with pytest.raises(
        ConfigurationError, match="no vector finite numbers, of at most 1e150, for all of fitness, cost, risk"
    ):
        evo.minimise(lambda _: (1.0, np.nan, 1.0), 2, measures=["cost", "risk"], run_dir=tmp_path / "other", **few)
    monkeypatch.setattr(registry, "_loaded", {})  # as in another process
    with pytest.raises(MissingPluginError, match="was of a script"):
        registry.problem(registry.HERE)


@pytest.mark.long
def test_workers_may_have_options_and_a_champion_of_a_script_is_shown_without_a_complaint(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    few = {"generations": 2, "sep_cma_es": {"population": 4}}
    workers = {"count": 2, "on_poison": "worst"}
    several = evo.minimise(curves.sphere, [1.0, 2.0], workers=workers, run_dir=tmp_path / "two", **few)
    alone = evo.minimise(lambda x: curves.sphere(x), [1.0, 2.0], run_dir=tmp_path / "one", **few)
    np.testing.assert_array_equal(several.x, alone.x)
    np.testing.assert_array_equal(alone.run.champion.weights, alone.x)
    assert several.run.config.workers.on_poison == "worst"
    assert "differs" not in capsys.readouterr().err
    evo.write_report(tmp_path / "one")
    page = (tmp_path / "one" / "report.html").read_text()
    assert "The script or notebook that began this run trains the same again" in page
    assert "These lines train" not in page


@pytest.mark.long
@pytest.mark.parametrize("algorithm", sampled(["map_elites", "nsga2"]))
def test_measures_are_objectives_and_descriptors_in_full_precision(tmp_path: Path, algorithm: str) -> None:
    options = {
        "nsga2": {"objectives": ["return", "-cost"], "population": 16, "survivors": 8},
        "map_elites": {"descriptors": ["cost"], "low": [0.0], "high": [1e-3], "bins": [10], "population": 16,
                       "reevaluated": 4},
    }[algorithm]  # fmt: skip
    few: dict[str, Any] = {"algorithm": algorithm, "generations": 3, "measures": ["cost"], algorithm: options}
    one = evo.minimise(curves.priced, [1.0, 2.0], run_dir=tmp_path / "one", **few)
    two = evo.minimise(curves.priced, [1.0, 2.0], workers=2, run_dir=tmp_path / "two", **few)
    hashes = [run.store.lines[-1].state_hash for run in (one.run, two.run)]
    assert hashes[0] == hashes[1]
    if algorithm == "nsga2":
        assert 0 < one.run.metrics[-1]["best_cost"] < 1e-3
    else:
        assert one.run.metrics[-1]["elites"] > 1
    with pytest.raises(ConfigurationError, match=r"not \(1.0, 2.0\); name further numbers by `measures`"):
        evo.minimise(lambda x: (1.0, 2.0), 2, run_dir=tmp_path / "no measures")
    with pytest.raises(ConfigurationError, match="it must return the fitness and 1 measures, not"):
        evo.minimise(curves.sphere, 2, measures=["cost"], run_dir=tmp_path / "none")
    with pytest.raises(ConfigurationError, match=r"measures: .*return"):
        evo.minimise(curves.sphere, 2, measures=["return"])
    few["run_dir"] = tmp_path / "array"
    assert evo.minimise(lambda x: np.array(curves.priced(x)), [1.0, 2.0], **few).fitness == one.fitness


@pytest.mark.parametrize("algorithm", ["map_elites", "cma_me"])
def test_an_archive_of_an_exact_function_has_the_best_vector_of_every_cell(tmp_path: Path, algorithm: str) -> None:
    called, best = list[bytes](), dict[tuple[int, ...], float]()

    def fitness(weights: np.ndarray) -> tuple[float, float, float]:
        where, value = np.tanh(weights[:2]).tolist(), -float(np.sum((weights - 0.5) ** 2))
        cell = tuple(min(7, int((one + 1) * 4)) for one in where)
        best[cell] = max(value, best.get(cell, -math.inf))
        called.append(weights.tobytes())
        return value, *where

    grid = {"descriptors": ["a", "b"], "low": [-1, -1], "high": [1, 1], "bins": [8, 8], "episodes": 1}
    small = {**grid, "population": 64, "reevaluated": 8}
    for generations in (1, 5):  # the second time, a resume
        found = evo.maximise(
            fitness, 3, measures=["a", "b"], algorithm=algorithm, generations=generations, run_dir=tmp_path / "run",
            **{algorithm: small},
        )  # fmt: skip
        assert {elite.cell: elite.fitness for elite in found.run.elites} == best
    straight = evo.maximise(
        fitness, 3, measures=["a", "b"], algorithm=algorithm, generations=5, run_dir=tmp_path / "straight",
        **{algorithm: small},
    )  # fmt: skip
    assert straight.run.store.state_hash == found.run.store.state_hash
    assert found.fitness == max(best.values())


@pytest.mark.parametrize("algorithm", ["map_elites", "cma_me"])
def test_an_archive_of_a_small_population_needs_no_other_option(tmp_path: Path, algorithm: str) -> None:
    options = {algorithm: {**GRID, "population": 64}}
    found = evo.minimise(
        lambda x: (curves.sphere(x), float(x[0])), 3, measures=["first"], algorithm=algorithm, generations=2,
        run_dir=tmp_path / "run", **options,
    )  # fmt: skip
    assert found.run.config.options.model_dump()["reevaluated"] == 16
    Experiment.load(tmp_path / "run" / "config.resolved.toml", resolved=True)


def test_both_directions_have_the_options_of_one_signature() -> None:
    options = [*inspect.signature(evo.minimise).parameters]
    assert options == [*inspect.signature(evo.maximise).parameters]
    assert {"fitness", "start", "lower", "upper", "workers", "progress"} <= {*options}


def test_what_is_masked_is_no_number_and_what_cannot_be_called_hears_of_no_progress(tmp_path: Path) -> None:
    hidden = np.ma.masked_array([1.0, 2.0], mask=[0, 1])
    for words in ({"start": hidden}, {"start": 2, "lower": hidden}, {"start": 2, "progress": True}):
        with pytest.raises(ConfigurationError, match=r"is neither a number nor a vector|progress: True is not a func"):
            evo.minimise(lambda x: 0.0, generations=1, run_dir=tmp_path / "run", **words)  # type: ignore[arg-type]
    assert not (tmp_path / "run").exists()


@pytest.mark.long
def test_a_function_whose_first_call_ends_the_worker_is_named(tmp_path: Path) -> None:
    ended = r"the last one exited with status 3; it was calling tests\.plugins\.curves:exits$"
    with pytest.raises(ResourceError, match=ended):
        evo.maximise(curves.exits, 2, workers=2, run_dir=tmp_path / "run")


@pytest.mark.parametrize("copied", [pickle.dumps, copy.copy, copy.deepcopy])
def test_a_search_is_not_copied_and_says_what_to_keep(copied: Callable[[object], object]) -> None:
    search = evo.Search(2)
    search.ask()
    with pytest.raises(TypeError, match=r"^a Search is neither pickled nor copied: .*state\(\).*restore\(\)"):
        copied(search)


def test_what_a_search_has_found_is_pickled_and_its_run_opened_where_it_was(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    rows: list[evo.Row] = []
    found = evo.minimise(lambda x: float(np.sum((x - 1) ** 2)), 2, generations=2, run_dir="run", progress=rows.append)
    opened = evo.Run("run", flags={"backend": "serial"}, name="mine")
    held = pickle.dumps((found, opened, rows))
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    again, opened, rows_again = pickle.loads(held)
    assert (again.x == found.x).all()
    assert (again.fitness, again.calls) == (found.fitness, found.calls)
    assert again.run.metrics == opened.metrics == found.run.metrics
    assert (again.run.champion.weights == found.run.champion.weights).all()
    assert (opened.name, opened.config.workers.backend) == ("mine", "serial")
    assert [*map(repr, rows_again)] == [*map(repr, rows)]
    with pytest.raises(ConfigurationError, match=r"row\.policy"):
        assert rows_again[-1].policy


def test_mistakes_in_telling_are_named() -> None:
    with pytest.raises(ConfigurationError, match="episodes: tell the mean"):
        evo.Search(2, episodes=4)
    search = evo.Search(2)
    with pytest.raises(ConfigurationError, match="ask comes first"):
        search.tell([])
    weights = search.ask()
    with pytest.raises(ConfigurationError, match="numbers"):
        search.tell(["a"] * len(weights))  # type: ignore[list-item]
    first = weights.copy()
    weights[:] = 7
    search.tell(np.arange(len(weights)))
    np.testing.assert_array_equal(search.best, first[-1])
    for texts_or_dates in (
        ["1"],
        [None],
        np.array([1j]),
        np.array(["2020-01-01"], "datetime64[s]"),
        np.zeros(1, [("a", float)]),
        np.ma.masked_array([1.0, -9.0], mask=[0, 1]),
    ):
        with pytest.raises(ConfigurationError, match="numbers"):
            search.tell(np.repeat(texts_or_dates, len(search.ask())))
    for other in (
        evo.Search(3),
        evo.Search(2, "ga"),
        evo.Search(2, seed=2),
        evo.Search(2, minimise=True),
        evo.Search([0, 1]),
        evo.Search(2, sigma=0.5),
    ):
        with pytest.raises(ConfigurationError, match="same arguments"):
            other.restore(search.state())
    for none in (None, 3, [], {3: 4}, {**search.state(), "best": [[1], 2]}):
        with pytest.raises(ConfigurationError, match="same arguments"):
            search.restore(none)  # type: ignore[arg-type]
    for name, array in search.state().items():
        for spoilt in (np.array([1, 2]), np.full_like(array, 77), np.array("x")):
            with pytest.raises(ConfigurationError, match="same arguments"):
                search.restore({**search.state(), name: spoilt})
    for unknown in ("nope", None, 3, ["ga"]):
        with pytest.raises(ConfigurationError, match=re.escape(f"algorithm: {unknown!r} is not known")):
            evo.Search(2, unknown)  # type: ignore[arg-type]


@pytest.mark.parametrize("algorithm", ["sep_cma_es", "ga"])
def test_a_state_is_restored_whatever_was_asked_and_told_since(algorithm: str) -> None:
    search = evo.Search([2.0, -1.0], algorithm, minimise=True, **FEW.get(algorithm, {}))
    asked, states = [], []
    for _ in range(3):
        states.append(search.state())
        asked.append(search.ask())
        search.tell(np.sum(asked[-1] ** 2, axis=1))
        with pytest.raises(ConfigurationError, match="ask comes first"):
            search.tell(np.zeros(len(asked[-1])))
    with pytest.raises(ConfigurationError, match="is not"):
        search.tell([10**400] * len(search.ask()))
    for generation in (2, 1, 0):
        search.ask()
        search.restore(states[generation])
        with pytest.raises(ConfigurationError, match="ask comes first"):
            search.tell(np.zeros(len(asked[0])))
        np.testing.assert_array_equal(search.ask(), asked[generation])


def test_a_seed_of_numpy_is_the_same_seed() -> None:
    one, other = evo.Search(3, "ga", seed=3), evo.Search(3, "ga", seed=np.int64(3))  # type: ignore[arg-type]
    for _ in range(2):
        np.testing.assert_array_equal(weights := one.ask(), other.ask())
        for search in (one, other):
            search.tell(weights.sum(axis=1))


def test_a_generation_that_was_interrupted_is_refused_until_a_state_is_restored(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    search = evo.Search(2, "cma_es", population=4)
    state, asked = search.state(), search.ask()
    with monkeypatch.context() as patched:
        patched.setattr("evo.algorithms.cma_es.Full.update", interrupted)
        with pytest.raises(KeyboardInterrupt):
            search.tell(np.arange(len(asked)))
    for _ in range(2):
        with pytest.raises(ConfigurationError, match="generation 0 was ended half-way, by an interrupt or an error"):
            search.ask()
    search.restore(state)
    np.testing.assert_array_equal(search.ask(), asked)
    search.tell(np.arange(len(asked)))
    assert search.generation == 1


def interrupted(*_: object, **__: object) -> None:
    raise KeyboardInterrupt


def shifted(weights: np.ndarray, shift: float = 0.0) -> float:
    return float(np.sum((weights - shift) ** 2))


def passed_on(function: Callable[..., float]) -> Callable[..., float]:
    def passing(*args: Any, **named: Any) -> float:
        return function(*args, **named)

    return passing


def test_a_wrapped_function_takes_a_seed_where_the_one_in_it_does(tmp_path: Path) -> None:
    def exact(weights: np.ndarray) -> float:
        return shifted(weights)

    def noisy(weights: np.ndarray, seed: int) -> float:
        return shifted(weights, seed % 2)

    for function, shapes in ((exact, "(n)->()"), (noisy, "(n),()->()")):
        is_noisy = function is noisy
        whole = np.vectorize(function, signature=shapes)
        for one in (function, functools.partial(function), functools.wraps(function)(passed_on(function)), whole):
            assert Problem(one, 2).seeded == is_noisy
        for unknown in (passed_on(function), functools.partial(whole), lambda weights, *others: 0.0):
            with pytest.raises(
                ConfigurationError, match=r"^fitness: \S+ takes \*\w+, which may hold a seed or not; write its"
            ):
                evo.minimise(unknown, 2, generations=1, run_dir=tmp_path / "refused")
        found = evo.minimise(whole, 2, generations=2, run_dir=tmp_path / function.__name__)
        assert found.run.config.validation.episodes == (100 if is_noisy else 1)
    compiled = numba.guvectorize(["void(float32[:], float32[:])"], "(n)->()")(lambda weights, out: None)
    assert not Problem(compiled, 2).seeded
    assert not (tmp_path / "refused").exists()
    (tmp_path / "passes_on.py").write_text("def fitness(*args):\n    return 0.0\n")
    text = '[run]\nalgorithm = "snes"\n[environment]\nid = "problem:passes_on"\nsize = 2\n'
    (tmp_path / "mine.toml").write_text(text)
    err = called(tmp_path, "mine.toml", "--plugin", "passes_on", "--run-dir", "refused", code=2)[1]
    assert err.startswith("fitness: fitness takes *args, which may hold a seed or not; write its arguments, (x) or")
    assert len(err.splitlines()) == 1
    assert not (tmp_path / "refused").exists()


class Shifted:
    def __init__(self, shift: float) -> None:
        self.shift, self.calls = shift, 0

    def __call__(self, weights: np.ndarray) -> float:
        self.calls += 1
        return shifted(weights, self.shift)


def around(shift: object) -> Callable[[np.ndarray], float]:
    calls, told = 0, list[float]()

    def fitness(weights: np.ndarray) -> float:
        nonlocal calls
        calls += 1
        told.append(shifted(weights, np.asarray(shift)))  # type: ignore[arg-type]
        return told[-1]

    return fitness


def by_a_global(shift: float) -> Callable[[np.ndarray], float]:
    found: dict[str, Any] = {"FAR": shift}
    exec("def helper(x): return (x - FAR) ** 2\ndef fitness(x): return float(helper(x).sum())", found)
    return cast("Callable[[np.ndarray], float]", found["fitness"])


def by_inner_functions(shift: float) -> Callable[[np.ndarray], float]:
    found: dict[str, Any] = {"FAR": shift}
    exec("def fitness(x): return float(sum((lambda one: (one - FAR) ** 2)(one) for one in x))", found)
    return cast("Callable[[np.ndarray], float]", found["fitness"])


class Apart:
    __slots__ = ("far",)

    def __init__(self, far: float) -> None:
        self.far = far

    def squares(self, weights: np.ndarray) -> float:
        far = self.far  # a local variable of the name of the attribute
        return shifted(weights, far)

    def fitness(self, weights: np.ndarray) -> float:
        return self.squares(weights)


class Kept(Shifted):
    @functools.cached_property
    def kept(self) -> float:
        return self.shift

    def __call__(self, weights: np.ndarray) -> float:
        self.calls += 1
        return shifted(weights, self.kept)


def by_its_class(shift: float) -> Callable[[np.ndarray], float]:
    class Near(Apart):
        __slots__ = ()
        place = shift

        @classmethod
        def fitness(cls, weights: np.ndarray) -> float:  # type: ignore[override]
            return shifted(weights, cls.place)

    return Near.fitness


def by_a_method(shift: float) -> Callable[[np.ndarray], float]:
    class Other(Apart):
        __slots__ = ()

        def squares(self, weights: np.ndarray) -> float:
            return -shifted(weights)

    return (Apart if shift == 1.0 else Other)(0.0).fitness


def by_a_module(shift: float) -> Callable[[np.ndarray], float]:
    numbers = ModuleType("numbers_of_a_script")
    vars(numbers)["far"] = shift
    return lambda weights: shifted(weights, numbers.far)


def by_a_compiled_function(shift: float) -> Callable[[np.ndarray], float]:
    function = np.square if shift == 1.0 else np.abs
    return lambda weights: float(function(weights).sum())


class Above:
    far = 0.0

    @property
    def place(self) -> float:
        return self.far

    def __call__(self, weights: np.ndarray) -> float:
        return shifted(weights, self.place)


def by_a_class_above(shift: float) -> Callable[[np.ndarray], float]:
    class Between(Above):
        far = shift

    class Below(Between):
        def __call__(self, weights: np.ndarray) -> float:
            return 2 * super().__call__(weights)

    return Below()


def by_a_method_above(shift: float) -> Callable[[np.ndarray], float]:
    class Other(Above):
        def __call__(self, weights: np.ndarray) -> float:
            return -shifted(weights)

    class Below(Above if shift == 1.0 else Other):  # type: ignore[misc]
        def __call__(self, weights: np.ndarray) -> float:
            return 2 * float(super().__call__(weights))

    return Below()


def by_a_class_above_that_is_named(shift: float) -> Callable[[np.ndarray], float]:
    class Below(Above):
        far = shift

        def __call__(self, weights: np.ndarray) -> float:
            return 2 * Above.__call__(self, weights)

    return Below()


def by_a_class_above_of_a_module(shift: float) -> Callable[[np.ndarray], float]:
    module = ModuleType("classes_of_a_script")
    vars(module)["Above"] = Above

    class Below(Above):
        far = shift

        def __call__(self, weights: np.ndarray) -> float:
            return 2 * float(module.Above.__call__(self, weights))

    return Below()


class Named(NamedTuple):
    far: float

    def __call__(self, weights: np.ndarray) -> float:
        return shifted(weights, self.far)


class Place(Enum):
    NEAR = 1.0
    FAR = -1.0


def by_another_number(kind: Callable[[float], Any]) -> Callable[[float], Callable[[np.ndarray], float]]:
    def made(shift: float) -> Callable[[np.ndarray], float]:
        far = kind(shift)
        return lambda weights: shifted(weights, float(getattr(far, "value", far)))

    return made


def by_a_set_in_its_code(shift: float) -> Callable[[np.ndarray], float]:
    found: dict[str, Any] = {}
    exec(f"def fitness(x): return float((x ** 2).sum()) + (len(x) in {{3, {shift}}})", found)
    return cast("Callable[[np.ndarray], float]", found["fitness"])


def by_every_number(wrapped: Callable[..., Any]) -> Callable[[float], Callable[[np.ndarray], float]]:
    def made(shift: float) -> Callable[[np.ndarray], float]:
        squares = wrapped(lambda one: (one - shift) ** 2)
        return lambda weights: float(squares(weights).sum())

    return made


def by_a_helper(shift: float) -> Callable[..., Any]:
    found: dict[str, Any] = {"FAR": shift, "__name__": __name__}
    exec("def helper(x): return float(x[0] - FAR) ** 2\ndef fitness(x): return helper(x)", found)
    return cast("Callable[..., Any]", found["fitness"])


@pytest.mark.parametrize(
    "made",
    sampled(
        [
            by_inner_functions,
            by_a_class_above,
            by_a_method_above,
            by_a_class_above_that_is_named,
            by_a_class_above_of_a_module,
            Named,
            by_another_number(Fraction),
            by_another_number(Decimal),
            by_another_number(Place),
            by_a_set_in_its_code,
            by_every_number(np.vectorize),
            by_every_number(lambda function: np.frompyfunc(function, 1, 1)),
            lambda shift: functools.partial(by_a_helper(shift)),
            lambda shift: Apart(shift).fitness,
            Kept,
            by_its_class,
            by_a_method,
            by_a_module,
            by_a_compiled_function,
            around,
            lambda shift: around(np.array([shift, 1.0])),
            by_a_global,
            Shifted,
            lambda shift: Shifted(shift).__call__,
            lambda shift: functools.partial(shifted, shift=shift),
            lambda shift: lambda weights, by=shift: shifted(weights, by),
        ],
        *range(8),
    ),
)
def test_a_function_that_reads_another_number_is_another_one(
    tmp_path: Path, made: Callable[[float], Callable[[np.ndarray], float]]
) -> None:
    function = made(1.0)
    evo.minimise(function, 2, generations=2, run_dir=tmp_path / "run")
    again = evo.minimise(function, 2, generations=3, run_dir=tmp_path / "run")  # whatever it has counted since
    assert evo.minimise(made(1.0), 2, generations=4, run_dir=tmp_path / "run").fitness <= again.fitness
    said = "the code of the game or the function differs from that of the run, or a number that the function reads"
    with pytest.raises(ConfigurationError, match=said):
        evo.minimise(made(-1.0), 2, generations=5, run_dir=tmp_path / "run")


OF_MODULE = """
import numpy as np

import evo
import {name}_data as data

TARGET, DATA = 1.0, np.ones(2)
POINTS, CALLS = [1, 2], 0


def helper(x):
    return x - TARGET


def fitness(x):
    global CALLS
    CALLS += 1
    return float(((helper(x) - DATA - data.FAR - data.ROW) ** 2).sum())


def build(start):
    return evo.Problem(fitness, start=start, minimise=True)


problem = build([1.0, 2.0])
"""


@pytest.fixture
def of_module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """Return a new module with a fitness function, and with others of the same names in a second one."""
    name = f"reading{next(MODULES)}"
    (tmp_path / f"{name}.py").write_text(OF_MODULE.format(name=name))
    (tmp_path / f"{name}_data.py").write_text("import numpy as np\nFAR, ROW = 1.0, np.zeros(2)\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    return importlib.import_module(name)


@pytest.mark.parametrize(
    ("holder", "name", "value"),
    [
        ("", "TARGET", -7.0),
        ("", "DATA", np.full(2, -5.0)),
        ("", "helper", lambda x: -x),
        ("data", "FAR", 3.0),
        ("data", "ROW", np.ones(2)),
        ("", "POINTS", [3]),  # which it does not read
    ],
)
def test_a_function_of_a_module_that_reads_something_else_is_another_one(
    tmp_path: Path, of_module: Any, holder: str, name: str, value: object
) -> None:
    for generations in (1, 2):  # whatever it has counted since
        evo.minimise(of_module.fitness, 2, generations=generations, run_dir=tmp_path / "run")
    setattr(of_module.data if holder else of_module, name, value)
    said = f"problem:{of_module.__name__}:fitness, or a number, an array or another function that it reads, differs"
    with nullcontext() if name == "POINTS" else pytest.raises(ConfigurationError, match=said):
        evo.minimise(of_module.fitness, 2, generations=3, run_dir=tmp_path / "run")


def test_the_start_of_a_problem_in_a_module_is_known_and_a_run_without_a_note_of_it_goes_on(of_module: Any) -> None:
    def known() -> dict[str, Any]:
        environment = {"id": f"problem:{of_module.__name__}"}
        return Experiment.build(plugins=[of_module], environment=environment, run={"algorithm": "cma_es"}).code()

    before, of_file = known(), code.of_plugin(of_module.__name__)
    assert code.changes(before, known()) == []
    of_module.problem = of_module.build([1.0, 3.0])
    assert "array" in code.changes(before, known())[0]
    assert code.changes({code.PLUGINS: {of_module.__name__: of_file}}, known()) == []  # of an earlier version


def test_a_function_of_a_script_goes_on_as_long_as_it_is_the_same(tmp_path: Path) -> None:
    def searched(function: evo.environments.problem.Fitness, generations: int) -> evo.Optimum:
        return evo.minimise(function, [1.0, 2.0], generations=generations, run_dir=tmp_path / "run")

    def quadratic(weights: np.ndarray) -> float:
        return float(np.sum(weights**2))

    assert searched(quadratic, 3).run.store.next_generation == 3
    assert searched(quadratic, 5).run.store.next_generation == 5
    with pytest.raises(ConfigurationError, match=r"function differs[^$]*another run: choose another run_dir"):
        searched(lambda weights: float(np.sum(weights**4)), 7)


@pytest.mark.parametrize(("first", "second"), [([1.0, 2.0], [1.0, 3.0]), (2, [1.0, 3.0]), ([1.0, 2.0], 2)])
def test_another_start_alone_is_named_as_that(tmp_path: Path, first: Any, second: Any) -> None:
    def fitness(weights: np.ndarray) -> float:
        return float(np.sum(weights**2))

    evo.minimise(fitness, first, generations=2, run_dir=tmp_path / "run")
    with pytest.raises(ConfigurationError) as refused:
        evo.minimise(fitness, second, generations=3, run_dir=tmp_path / "run")
    assert str(refused.value).splitlines()[1:] == [
        "start: its numbers differ from those that the run began with",
        "start from those, or go on in another run: choose another run_dir",
    ]
    with pytest.raises(ConfigurationError, match="the code of the game or the function differs"):
        evo.minimise(shifted, second, generations=3, run_dir=tmp_path / "run")


def test_a_search_whose_working_directory_changes_goes_on_without_a_word(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "below").mkdir()
    monkeypatch.chdir(tmp_path)
    found = evo.minimise(
        curves.sphere, [1.0, 2.0], generations=3, run_dir="run", progress=lambda _: os.chdir(tmp_path / "below")
    )
    assert found.run.store.next_generation == 3
    assert Path(found.run.directory) == tmp_path / "run"
    assert os.listdir(tmp_path / "below") == []
    assert capsys.readouterr().err == ""


def test_what_a_search_does_not_use_is_refused(tmp_path: Path) -> None:
    with pytest.raises(
        ConfigurationError, match='cma_es: is not the algorithm, which is sep_cma_es; add algorithm="cma_es"'
    ):
        evo.minimise(curves.sphere, 3, cma_es={"population": 10}, run_dir=tmp_path / "run")
    with pytest.raises(ConfigurationError, match=r"this one is for evo\.minimise"):
        evo.maximise(curves.problem)


@pytest.mark.long
def test_searches_in_two_threads_each_have_their_own_function(tmp_path: Path) -> None:
    def found(place: float) -> evo.Optimum:
        few = {"generations": 4, "sep_cma_es": {"population": 6}}
        return evo.minimise(lambda x: curves.sphere(x - place), [1.0, 2.0], run_dir=tmp_path / f"{place}", **few)

    with ThreadPoolExecutor(2) as pool:
        for place, best in zip((0.0, 50.0), pool.map(found, (0.0, 50.0)), strict=True):
            assert best.fitness == curves.sphere(best.x - np.float32(place))
            assert best.run.champion.weights.shape == (2,)


@pytest.mark.long
def test_the_run_of_a_search_has_its_own_function_after_another_search(tmp_path: Path) -> None:
    few = {"generations": 1, "sep_cma_es": {"population": 6}}
    one = evo.minimise(lambda x: curves.sphere(x), [1.0, 2.0], run_dir=tmp_path / "one", **few)
    alike = evo.minimise(lambda x: curves.sphere(x - 1), [1.0, 2.0], run_dir=tmp_path / "alike", **few)
    other = evo.minimise(lambda x: curves.sphere(x), [1.0, 2.0, 3.0], run_dir=tmp_path / "other", **few)
    for found in (one, alike, other):
        assert found.run.notes == []
        assert found.run.latest.weights.shape == found.x.shape
        assert pickle.loads(pickle.dumps(found.run.config)) == found.run.config
    with pytest.raises(evo.EvoError, match="the fitness function of this run was of a script; run that again"):
        _ = evo.Run(tmp_path / "one").config


def test_a_search_is_not_accused_of_the_function_of_another_thread(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def found(place: float, **more: Any) -> evo.Optimum:
        few = {"generations": 1, "sep_cma_es": {"population": 6}, "run_dir": tmp_path / f"{place}", **more}
        return evo.minimise(lambda x: curves.sphere(x - place), [1.0, 2.0], **few)

    with ThreadPoolExecutor(1) as pool:
        found(0.0, progress=lambda row: pool.submit(found, 50.0).result())
    assert "differs" not in "".join(capsys.readouterr())


@pytest.mark.long
def test_a_call_of_an_exact_function_is_replayed_as_facts(tmp_path: Path) -> None:
    mine = experiment(tmp_path, "problem")
    called(tmp_path, mine, *PLUGIN, *SMALL, "--run-dir", "run", "--backend", "serial", "--no-report")
    of_candidate = ("--generation", 2, "--candidate", 1)
    for words in ((), of_candidate):
        out, _ = called(tmp_path, "replay", "run", *PLUGIN, *words, "--json", program="evo")
        assert json.loads(out.splitlines()[-1]).keys() == {"episode", "seed", "score"}
    out, _ = called(tmp_path, "replay", "run", *PLUGIN, *of_candidate, program="evo")
    assert " over 1 call; " in out


def test_a_run_is_not_accused_where_the_module_of_its_problem_is_not_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    called(tmp_path, experiment(tmp_path, "problem"), *PLUGIN, *SMALL, "--run-dir", "run", "--backend", "serial")
    monkeypatch.setattr(registry, "_loaded", {})  # as in another process
    out, error = called(tmp_path, "verify", "run", code=2, program="evo")
    assert "DIFFERS" not in out
    assert "add --plugin curves" in error


@pytest.mark.parametrize("algorithm", ["ppo", "dqn", "erl"])
def test_what_learns_from_steps_is_refused_alike(algorithm: str) -> None:
    with pytest.raises(ConfigurationError, match="a fitness function has no steps to learn from"):
        evo.minimise(curves.sphere, 2, algorithm=algorithm)


def test_a_search_that_is_refused_or_alone_changes_nothing_that_follows(tmp_path: Path) -> None:
    loaded = registry.loaded()
    with pytest.raises(ConfigurationError, match="a fitness function has no steps to learn from"):
        evo.Search(3, "ppo")
    for other in (evo.Search(4), evo.Search(3, minimise=True)):
        other.tell(np.sum(other.ask() ** 2, axis=1))
    assert evo.maximise(lambda x: -curves.sphere(x), 5, generations=1, run_dir=tmp_path / "run").x.shape == (5,)
    assert registry.loaded() == loaded  # other processes, as those of a comparison, could not load more


def test_an_array_where_one_value_belongs_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match="a Problem has its own start and bounds"):
        evo.minimise(curves.problem, lower=np.zeros(2))
    for wrong in (np.ones(2), "no"):
        with pytest.raises(ConfigurationError, match=r"^minimise: .* is neither True nor False"):
            evo.Problem(curves.sphere, 2, minimise=wrong)  # type: ignore[arg-type]
    with pytest.raises(ConfigurationError, match=r"^episodes: tell the mean"):
        evo.Search(2, episodes=np.ones(2))
    with pytest.raises(ConfigurationError, match=r"^algorithm: array"):
        evo.Search(2, np.array(["ga", "es"]))  # type: ignore[arg-type]


def test_a_bound_may_be_a_fraction_and_a_told_number_beyond_float64_warns_of_nothing(tmp_path: Path) -> None:
    third = Fraction(1, 3)
    best = evo.minimise(lambda x: float(sum(x)), 2, lower=third, generations=1, run_dir=tmp_path / "run")  # type: ignore[arg-type]
    assert best.x.tolist() == [np.float32(1 / 3)] * 2
    search = evo.Search(2)
    search.tell(np.full(len(search.ask()), np.longdouble("1e400")))
    assert search.fitness == -math.inf


def test_a_name_of_too_many_parts_is_refused(tmp_path: Path) -> None:
    _, error = called(tmp_path, experiment(tmp_path, "problem:other"), *PLUGIN, "--dry-run", code=2)
    assert 'is not "problem:" and the name of a plug-in' in error


def test_a_search_is_another_one_where_one_of_many_bounds_is(tmp_path: Path) -> None:
    low = np.zeros(3000)
    few = {"generations": 1, "sep_cma_es": {"population": 4}}
    evo.maximise(Problem(np.sum, 3000, lower=low), run_dir=tmp_path / "run", **few)
    low[1500] = -1
    with pytest.raises(ConfigurationError):
        evo.maximise(Problem(np.sum, 3000, lower=low), run_dir=tmp_path / "run", **few)
