"""Comparisons: the file, the runs that are trained, and what is said of them."""

from __future__ import annotations

import csv
import io
import json
import math
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import asdict, replace
from itertools import combinations
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import evo
from evo import numbers, statistics
from evo.cli.commands import compare
from evo.comparison import formats, methods, tables, training
from evo.comparison.file import MOST_GENERATIONS, ComparisonFile
from evo.comparison.methods import points_of, score_between
from evo.comparison.runs import ComparedRun, PlannedRun, runs_in
from evo.config.experiment import Experiment
from evo.errors import ConfigurationError, LockedError, OutOfMemoryError, PoisonError, ResourceError
from evo.files.durable import with_checksum
from evo.process import interpreter
from evo.records import Spent
from evo.report.comparison import comparison_page
from evo.report.verdict import verdict_of_several
from evo.store.champion import Score
from evo.store.metrics import MetricsFile
from evo.store.run import Run
from evo.store.run_directory import provenance
from evo.store.store import Store
from evo.training.accounting import COUNTED
from evo.workers.hardware import cores
from tests.helpers.calling import ROOT, SMALL, called, command, small_with

EXAMPLES = sorted((ROOT / "experiments" / "comparisons").glob("*.toml"))
COMPARISON = """
[comparison]
experiments = ["one.toml", "two.toml"]
seeds = [1, 2]
set = ["run.generations=2", "test.episodes=20"]
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "one.toml").write_text(SMALL)
    (tmp_path / "two.toml").write_text(SMALL + "sigma = 0.5\n")
    (tmp_path / "both.toml").write_text(COMPARISON)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def in_this_process(run: PlannedRun) -> str:
    list(evo.train(run.experiment, run.directory))
    return ""


def compared(planned: ComparisonFile) -> dict[str, Any]:
    """Train in this process; return the report without seconds, which no two trainings share."""
    return timeless(formats_of(training.train(planned.runs, progress=print, begin=in_this_process)))


def formats_of(found: Sequence[ComparedRun]) -> Any:
    return json.loads(json.dumps(asdict(report_of(found))))


def timeless(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: timeless(item) for key, item in value.items() if key not in ("seconds", "cpu_seconds")}
    return [timeless(item) for item in value] if isinstance(value, list) else value


def made(method: str, scores: Sequence[float], *sets: str, frames: int = 1000, **of_test: int) -> list[ComparedRun]:
    """Outcomes of runs that are not trained, for what is said of scores."""
    experiment = Experiment.load("one.toml", *sets)
    return [
        ComparedRun(
            method,
            replace(experiment, run=experiment.run.model_copy(update={"seed": seed})),
            Path(f"{method}-seed{seed}"),
            spent=Spent(frames, 2.0, 2 * frames, 50 * frames, 3.5),
            score=Score(**{"episodes": 50, "block": 0, **of_test}, mean=score, ci95=(score - 0.5, score + 0.5),
                        median=score, max=score, win_rate=None, win_ci95=None, mean_length=9.0),
        )
        for seed, score in enumerate(scores, 1)
    ]  # fmt: skip


def report_of(found: Sequence[ComparedRun]) -> tables.Comparison:
    """The report with one episode of every player that needs no learning."""
    return tables.comparison_of(found, seconds=0.0)


def mistakes(path: Path, text: str) -> list[str]:
    path.write_text(text)
    with pytest.raises(ConfigurationError) as caught:
        ComparisonFile.read(path)
    return str(caught.value).replace(f"{path}:", "").replace(f"{path.parent}/", "").splitlines()


@pytest.mark.parametrize("path", EXAMPLES, ids=[path.stem for path in EXAMPLES])
def test_a_published_comparison_loads_and_can_name_a_winner(path: Path) -> None:
    told = ComparisonFile.read(path).summary()
    assert "no winner" not in told
    assert "tables" not in told


def test_every_mistake_of_a_comparison_is_reported_at_once_with_its_line(tmp_path: Path) -> None:
    (tmp_path / "one.toml").write_text(SMALL)
    text = """seeds = [1]
[comparision]
x = 1
[comparison]
experiments = ["one.toml", "one.toml"]
algorithms = "ga"
seeds = [1, 2, 1]
frames = 10
seconds = 5.0
frame = 3
set = ["run.seed=4", "run.budget={frames = 1}"]
"""
    assert mistakes(tmp_path / "both.toml", text) == [
        "1: seeds: must be in the section [comparison]",
        "2: comparision: unknown section - did you mean `comparison`?",
        '5: comparison.experiments: "one.toml" is named twice',
        '6: comparison.algorithms: must be a list, as in ["ga"], not "ga"',
        "7: comparison.seeds: 1 is named twice",
        "9: comparison.seconds: cannot go with frames; give one of them",
        "10: comparison.frame: unknown key - did you mean `frames`?",
        "11: comparison.set: run.budget cannot go with frames, which is the budget",
        "11: comparison.set: run.seed is set by `seeds`",
    ]


def test_mistakes_of_what_a_comparison_names_have_the_line_that_names_it(tmp_path: Path) -> None:
    (tmp_path / "one.toml").write_text(SMALL + "sgma = 1\n")
    (tmp_path / "two.toml").write_text(SMALL)
    (tmp_path / "deeper").mkdir()
    (tmp_path / "deeper" / "two.toml").write_text(SMALL)
    text = """[comparison]
experiments = ["one.toml", "two.toml", "deeper/two.toml", "absent.toml"]
algorithms = ["ga", "ppoo"]

seeds = [1]
set = ["ga.sigmaa=1", "foo"]
"""
    found = mistakes(tmp_path / "both.toml", text)
    assert (
        found[0]
        == "2: comparison.experiments[2]: another experiment is named two too; rename the file, or a copy of it"
    )
    missing = "absent.toml: cannot be read: No such file or directory; `evo list` says where experiments are"
    assert found[1] == f"2: comparison.experiments[3]: {missing}"
    assert found[2].startswith('3: comparison.algorithms[1]: "ppoo" is not known - did you mean `ppo`?')
    assert found[3] == "6: comparison.set: foo: must be SECTION.KEY=VALUE, as in ga.population=256"
    assert found[4] == "6: comparison.set: ga.sigmaa: unknown key - did you mean `sigma`?"
    assert found[5:] == [f"one.toml:{SMALL.count(chr(10)) + 1}: ga.sgma: unknown key - did you mean `sigma`?"]


def test_an_experiment_may_have_algorithms_of_its_own(folder: Path) -> None:
    (folder / "both.toml").write_text(
        """[comparison]
experiments = [{ file = "one.toml", algorithms = ["ga", "snes"] }, "two.toml", { file = "three.toml" }]
algorithms = ["ppo"]
seeds = [1]
set = ["policy.layers=[]"]
"""
    )
    (folder / "three.toml").write_text(SMALL)
    members = ComparisonFile.read(Path("both.toml")).runs
    assert [run.method for run in members] == ["one-ga", "one-snes", "two-ppo", "three-ppo"]


def test_mistakes_in_the_table_of_an_experiment_are_named(tmp_path: Path) -> None:
    (tmp_path / "one.toml").write_text(SMALL)
    text = """[comparison]
experiments = [
  { file = "one.toml", algorithms = ["ga", "gaa"] },
]
seeds = [1]
"""
    (found,) = mistakes(tmp_path / "both.toml", text)
    assert found.startswith('2: comparison.experiments[0].algorithms[1]: "gaa" is not known - did you mean')
    twice = text.replace("gaa", "ga")
    assert mistakes(tmp_path / "both.toml", twice) == ['2: comparison.experiments[0].algorithms: "ga" is named twice']
    wrong = text.replace('"one.toml"', "3").replace('"ga", "gaa"', '"ga"')
    assert mistakes(tmp_path / "both.toml", wrong) == [
        "2: comparison.experiments[0].file: must be text in quotes, not 3"
    ]
    unknown = text.replace('algorithms = ["ga", "gaa"]', 'algorithm = "ga"')
    (found,) = mistakes(tmp_path / "both.toml", unknown)
    assert found.endswith("[0].algorithm: unknown key - did you mean `algorithms`?")
    unused = text.replace(', "gaa"', "") + 'algorithms = ["nsga3"]\n'
    assert mistakes(tmp_path / "both.toml", unused) == [
        "6: comparison.algorithms: every experiment has algorithms of its own; leave it out"
    ]
    number = "[comparison]\nexperiments = [3]\nseeds = [1]\n"
    assert mistakes(tmp_path / "both.toml", number)[0].startswith("2: comparison.experiments[0]: must be a table")


def test_a_list_of_another_length_is_said_with_its_length(tmp_path: Path) -> None:
    text = "[comparison]\nexperiments = []\nseeds = []\n"
    assert mistakes(tmp_path / "both.toml", text) == [
        "2: comparison.experiments: is empty; give at least 1",
        "3: comparison.seeds: is empty; give at least 1",
    ]
    (tmp_path / "one.toml").write_text(SMALL)
    many = f'[comparison]\nexperiments = ["one.toml"]\nseeds = {list(range(101))}\n'
    assert mistakes(tmp_path / "both.toml", many) == ["3: comparison.seeds: has 101 items; at most 100 are allowed"]


@pytest.mark.parametrize(("text", "said"), [("", "comparison.experiments: is missing"), ("x", "1: ")])
def test_a_file_without_a_comparison_says_what_is_missing(tmp_path: Path, text: str, said: str) -> None:
    assert any(said in line for line in mistakes(tmp_path / "both.toml", text))


def test_a_plan_names_every_run_and_says_where_no_winner_is_possible(folder: Path) -> None:
    out, _ = called(folder, "compare", "both.toml", "--dry-run", "--json", program="evo")
    assert "no winner can be named: a verdict needs at least 4 seeds each" in out
    last = json.loads(out.splitlines()[-1])
    assert [run["run_dir"] for run in last["runs"]] == [
        f"runs/both/{name}-ga-seed{seed}" for name in ("one", "two") for seed in (1, 2)
    ]
    assert not (folder / "runs").exists()
    (folder / "both.toml").write_text(COMPARISON.replace("[1, 2]", "[1, 2, 3, 4]").replace('"]', '", "three.toml"]', 1))
    (folder / "three.toml").write_text(SMALL)
    out, _ = called(folder, "compare", "both.toml", "--dry-run", program="evo")
    assert "no winner can be named for 3 pairs with so few seeds, whatever the scores: it takes at least 5 seeds" in out


def test_a_budget_ends_every_run_and_its_own_limits_do_not(folder: Path) -> None:
    (folder / "both.toml").write_text(COMPARISON.replace('set = ["run.generations=2", ', "frames = 9_000\nset = ["))
    experiment = ComparisonFile.read(folder / "both.toml").runs[0].experiment
    assert (experiment.run.budget.frames, experiment.generations) == (9_000, MOST_GENERATIONS)
    for name, amount in (("forward_passes", 9_000), ("multiply_adds", 9_000), ("cpu_seconds", 9.5), ("seconds", 9.5)):
        text = COMPARISON.replace('set = ["run.generations=2", ', f"{name} = {amount}\nset = [")
        (folder / "both.toml").write_text(text)
        assert ComparisonFile.read(folder / "both.toml").runs[0].experiment.run.budget.limits() == {name: amount}


def test_a_comparison_that_was_stopped_goes_on_and_ends_with_the_same_report(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    straight = compared(replace_directory(ComparisonFile.read(folder / "both.toml"), folder / "straight"))
    planned = replace_directory(ComparisonFile.read(folder / "both.toml"), folder / "halves")

    def stopped(run: PlannedRun) -> str:
        if run.directory.name == "one-ga-seed2":
            next(iter(evo.train(run.experiment, run.directory)))
            raise KeyboardInterrupt
        return in_this_process(run)

    with pytest.raises(KeyboardInterrupt):
        training.train(planned.runs, begin=stopped)
    began = (folder / "halves" / "one-ga-seed2" / "manifest.jsonl").read_text().splitlines()
    assert len(began) == 2
    resumed = compared(planned)
    assert (folder / "halves" / "one-ga-seed2" / "manifest.jsonl").read_text().splitlines()[:2] == began
    assert json.loads(json.dumps(resumed).replace("halves", "straight")) == straight
    assert compared_without_training(planned) == resumed
    assert "4/4  two-ga  seed 2  " in capsys.readouterr().out
    by_runs = formats_of(runs_in([run.directory for run in planned.runs]))
    assert timeless(by_runs) == resumed
    with pytest.raises(ConfigurationError, match=r"halves/one-ga-seed1 and .* have equal options and an equal seed"):
        runs_in([planned.runs[0].directory] * 2)
    changed = replace_directory(ComparisonFile.read(folder / "both.toml"), folder / "halves")
    (folder / "two.toml").write_text(SMALL + "sigma = 0.25\n")
    changed = replace_directory(ComparisonFile.read(folder / "both.toml"), folder / "halves")
    with pytest.raises(ConfigurationError) as caught:
        training.train(changed.runs, begin=must_not_train)
    lines = str(caught.value).splitlines()
    assert "choose another comparison.directory" in lines[0]
    assert len(lines) == 3
    assert "two-ga-seed1: a run with other options: ga.sigma: 0.5 in the run, 0.25 now" in lines[1]


def replace_directory(planned: ComparisonFile, directory: Path) -> ComparisonFile:
    members = [replace(run, directory=directory / run.directory.name) for run in planned.runs]
    return replace(planned, runs=tuple(members))


def must_not_train(run: PlannedRun) -> str:
    raise AssertionError(f"{run.directory} is trained again")


def compared_without_training(planned: ComparisonFile) -> dict[str, Any]:
    return timeless(formats_of(training.train(planned.runs, begin=must_not_train)))


@pytest.mark.long
def test_runs_that_descend_from_one_run_are_no_two_seeds(folder: Path) -> None:
    def forked(source: str, name: str, *words: object) -> Path:
        called(folder, "--resume", source, "--fork", name, "--no-report", *words)
        return folder / "runs" / name

    for seed in (1, 2):
        called(folder, "one.toml", "--generations", 2, "--seed", seed, "--run-dir", f"s-seed{seed}", "--no-report")
    first, second = folder / "s-seed1", folder / "s-seed2"
    third = forked("s-seed1", "f-seed3", "--seed", 3)
    kin = [first, third, forked("s-seed1", "f-seed4", "--seed", 4), forked("runs/f-seed3", "f-seed5", "--seed", 5)]
    for one, other in combinations(kin, 2):
        refused = f"{other} and {one} have the same first generations (--fork), so they do not count as two seeds; "
        with pytest.raises(ConfigurationError, match=re.escape(refused)):
            runs_in([one, second, other])
        found = verdict_of_several([Run(one), Run(other)])
        assert found[-1] == "Some have the same first generations, so they are not independent seeds."
    apart = [third, forked("s-seed2", "f-seed6", "--seed", 6)]
    assert [run.method for run in runs_in(apart)] == ["f", "f"]
    assert verdict_of_several([Run(one) for one in apart])[-1].startswith("They differ in their seed alone: ")
    fork = "a fork: what was spent before it is not counted"
    changed = forked("s-seed1", "changed", "--set", "ga.parents=3")
    (_, remark) = [run.remark for run in runs_in([first, changed])]
    assert remark == f"{fork}; has the first generations of {first}"  # another method may go on from the same runs
    notes = report_of(runs_in([first, changed])).tables[0].notes
    assert f"changed seed 1: {remark}" in notes
    planned = replace(PlannedRun.of_seed("one-ga", Run(third).config, 3, folder), directory=third)
    with pytest.raises(ConfigurationError, match="f-seed3: a fork of another run"):
        training.train([planned], begin=must_not_train)


def test_a_fork_that_does_not_say_of_which_run_is_named(folder: Path) -> None:
    source = Experiment.load("one.toml", "run.generations=2")
    list(evo.train(source, folder / "source"))
    experiment = replace(source, run=source.run.model_copy(update={"seed": 2}))
    with Store.create(folder / "fork", experiment.to_toml(provenance()), experiment.identity()) as store:
        store.commit(0, Store.read(folder / "source").load(), {}, {})  # as earlier versions did
    list(evo.train(experiment, folder / "fork"))
    *_, said = runs_in([folder / "source", folder / "fork"])[1].remark.split("; ")
    assert said == "it does not say of which run, perhaps of another one here"


def test_a_run_that_fails_is_said_in_words_and_is_in_no_mean(folder: Path) -> None:
    planned = ComparisonFile.read(folder / "both.toml")

    def trainer(run: PlannedRun) -> str:
        return "a loss is NaN" if run.directory.name == "two-ga-seed2" else in_this_process(run)

    damaged = planned.runs[1].directory
    damaged.mkdir(parents=True)
    (damaged / "manifest.jsonl").write_text("nonsense\n")
    found = training.train(planned.runs, begin=trainer)
    (table,) = report_of(found).tables
    assert [(method.name, len(method.scores)) for method in table.methods].count(("two-ga", 1)) == 1
    by_name = {method.name: method for method in table.methods}
    assert found[0].score is not None
    assert by_name["one-ga"].mean == found[0].score.mean
    assert any("one-ga seed 2 is missing, and in no mean: " in note and "manifest" in note for note in table.notes)
    assert "two-ga seed 2 is missing, and in no mean: a loss is NaN" in table.notes
    assert "one-ga: one seed: no interval, proves little" in table.notes


def test_a_comparison_that_another_process_trains_stops(folder: Path) -> None:
    planned = ComparisonFile.read(folder / "both.toml")

    def locked(run: PlannedRun) -> str:
        raise LockedError("locked")

    with pytest.raises(LockedError):
        training.train(planned.runs, begin=locked)


def test_as_many_runs_train_at_a_time_as_there_are_cores_for(folder: Path) -> None:
    def at_once(*sets: str) -> int:
        text = COMPARISON.replace("set = [", f"set = [{''.join(f'{json.dumps(one)}, ' for one in sets)}")
        (folder / "both.toml").write_text(text)
        return training.at_once(ComparisonFile.read(folder / "both.toml").runs)

    assert at_once() == cores()  # the serial backend takes one
    assert at_once('workers.backend="processes"') == 1
    assert at_once('workers.backend="processes"', f"workers.count={cores()}") == 1
    assert at_once('workers.backend="processes"', "workers.count=1") == cores()
    assert at_once('workers.backend="processes"', "workers.count=1000") == 1
    assert at_once("learner.threads=1000") == cores()  # nothing learns


@pytest.mark.long
def test_the_library_trains_a_comparison_and_refuses_what_is_none(folder: Path) -> None:
    lines = list[str]()
    (folder / "both.toml").write_text(COMPARISON.replace("seeds = [1, 2]", "seeds = [1]"))
    comparison = evo.compare("both.toml", workers=1, progress=lines.append)
    assert comparison.scored
    assert sorted(method.name for method in comparison.tables[0].methods) == ["one-ga", "two-ga"]
    assert [line.split("  ")[0] for line in lines] == ["1/2", "2/2"]
    again = evo.compare("runs/both/one-ga-seed1", "runs/both/two-ga-seed1")
    assert [method.scores for method in again.tables[0].methods] == [
        method.scores for method in comparison.tables[0].methods
    ]
    with pytest.raises(evo.EvoError, match="name a comparison file, or the directories of runs"):
        evo.compare()
    (folder / "a.h5").touch()
    with pytest.raises(evo.EvoError, match="is a champion"):
        evo.compare("a.h5")


@pytest.mark.long
def test_scores_of_one_test_episode_have_no_interval_and_are_compared_all_the_same(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (folder / "both.toml").write_text(COMPARISON.replace("episodes=20", "episodes=1"))
    method = compared(ComparisonFile.read(Path("both.toml")))["tables"][0]["methods"][0]
    assert len(method["scores"]) == 2
    assert method["within"] is None
    assert np.isnan(method["runs"][0]["ci95"]).all()
    assert all(re.search(r"frames  score \S+  \d+ s$", line) for line in capsys.readouterr().out.splitlines())
    run = "runs/both/one-ga-seed1"
    assert "one-ga" in called(folder, "compare", run, "runs/both/one-ga-seed2", program="evo")[0]
    assert "nothing to do" in called(folder, "resume", run, program="evo")[0]
    assert "measured again" in called(folder, "verify", run, program="evo")[0]


@pytest.mark.long
@pytest.mark.skipif(cores() < 2, reason="one core")
def test_runs_side_by_side_overlap_and_are_reported_in_order(folder: Path) -> None:
    (folder / "both.toml").write_text(COMPARISON.replace("generations=2", "generations=20"))
    members = ComparisonFile.read(folder / "both.toml").runs[:2]
    found = training.train(members)
    assert [run.directory for run in found] == [run.directory for run in members]
    ends = [(run.directory / "champion.h5").stat().st_mtime for run in members]
    begins = [(run.directory / "config.resolved.toml").stat().st_mtime for run in members]
    assert begins[1] < ends[0]


@pytest.mark.parametrize(
    ("code", "out", "said", "outside"),
    [
        (5, '{"error": "every candidate ends its workers\\nadvice"}', "every candidate ends its workers", True),
        (64, '{"error": "out of memory"}', "out of memory", False),
        (-9, "", "its process was ended by SIGKILL", True),
        (-6, "", "its process was ended by SIGABRT", False),
        (137, "", "its process was ended by SIGKILL", True),
        (143, '{"error": null}', "its process was ended by SIGTERM", True),
        (3, "no JSON", "its process ended with exit code 3", False),
        (2, '{"error": "a mistake"}', "a mistake", False),
    ],
)
def test_why_a_run_ended_is_said_in_words(code: int, out: str, said: str, outside: bool) -> None:
    failure = training._failure(code, out, "")
    of_itself = isinstance(failure, PoisonError) or not isinstance(failure, ResourceError)
    assert (str(failure), of_itself) == (said, not outside)


@pytest.mark.parametrize("kind", [PoisonError, OutOfMemoryError, ResourceError])
def test_the_process_of_a_run_tells_poison_apart_in_whatever_words(folder: Path, kind: type[ResourceError]) -> None:
    (folder / "fails.py").write_text(f"from evo.errors import {kind.__name__}\nraise {kind.__name__}('in words')\n")
    process = interpreter(training.PROGRAM, ["one.toml", "--plugin", "fails", "--json"])
    out, err = process.communicate()
    failure = training._failure(process.returncode, out, err)
    assert (type(failure), str(failure)) == (kind, "in words")
    assert json.loads(out)["error"] == "in words"


@pytest.mark.parametrize(("error", "outside"), [(ResourceError("no room"), True), (PoisonError("it ends"), False)])
def test_a_run_whose_candidates_end_their_workers_fails_by_itself(
    folder: Path, error: ResourceError, outside: bool
) -> None:
    def begin(run: PlannedRun) -> str:
        raise error

    run = replace_directory(ComparisonFile.read(folder / "both.toml"), folder / "none").runs[0]
    found = training._begin(run, begin)
    assert isinstance(found, ComparedRun)
    assert (found.failure, found.outside) == (str(error), outside)


def test_a_large_difference_has_a_winner_and_a_small_one_has_none(folder: Path) -> None:
    random = np.random.Generator(np.random.Philox(key=1))
    strong, weak = random.normal(30, 2, 5).tolist(), random.normal(10, 2, 5).tolist()
    (table,) = report_of(made("weak", weak) + made("strong", strong)).tables
    (pair,) = table.pairs
    assert (pair.first, pair.winner, pair.verdict) == ("strong", "strong", "strong wins")
    assert (pair.probability, pair.probability_ci95, pair.p_value) == (1.0, (1.0, 1.0), 2 / 252)
    assert [method.name for method in table.methods] == ["strong", "weak"]
    assert table.methods[0].within == pytest.approx(0.5)
    (table,) = report_of(made("a", [10, 11, 12, 13, 14]) + made("b", [10.5, 11.5, 12.5, 13.5, 14.5])).tables
    assert [(pair.winner, pair.verdict) for pair in table.pairs] == [(None, "not distinguishable with these seeds")]


@pytest.mark.parametrize("seeds", [2, 3])
def test_so_few_seeds_that_nobody_can_win_have_no_interval_that_looks_like_a_proof(folder: Path, seeds: int) -> None:
    (table,) = report_of(made("weak", [1.0, 2.0, 3.0][:seeds]) + made("strong", [7.0, 8.0, 9.0][:seeds])).tables
    (pair,) = table.pairs
    assert (pair.probability, pair.probability_ci95, pair.p_value, pair.winner) == (1.0, None, None, None)


def test_many_pairs_need_more_than_a_p_value_below_one_in_twenty(folder: Path) -> None:
    four = [made(name, [start, start + 1, start + 2, start + 3]) for name, start in (("a", 0), ("b", 10), ("c", 20))]
    report = report_of([run for runs in four for run in runs])
    assert {pair.p_value for pair in report.tables[0].pairs} == {2 / 70}
    assert {pair.winner for pair in report.tables[0].pairs} == {None}
    assert {pair.verdict for pair in report.tables[0].pairs} == {"too few seeds: 3 pairs need 5 of each"}
    assert "it takes at least 5 seeds" in report.notes[0]


def test_fewer_than_four_seeds_have_no_verdict_and_one_has_no_interval(folder: Path) -> None:
    (table,) = report_of(made("a", [1, 2, 3]) + made("b", [11.0])).tables
    (pair,) = table.pairs
    assert (pair.p_value, pair.winner) == (None, None)
    assert pair.verdict == "a verdict needs at least 4 seeds each; there are 1 and 3"
    assert table.methods[0].ci95 is None
    assert "b: one seed: no interval, proves little" in table.notes
    assert "| b | 1 | 11.00 | one seed | - |" in formats.markdown(report_of(made("b", [11.0])))
    assert r"| \<img src=x>\|\</b> | 1 | 11.00 |" in formats.markdown(report_of(made("<img src=x>|</b>", [11.0])))


@pytest.mark.long
def test_methods_that_score_no_more_than_the_random_player_are_named(folder: Path) -> None:
    found = tables.comparison_of(
        made("a", [-2, -3]) + made("b", [9, 8]) + made("c", [-4, -5]) + made("d", [-6, -7])
    ).tables[0]
    chance = found.baselines["random"].mean
    above = f"not score above the random player ({chance:.2f}): nothing shows that"
    assert found.notes == (f"a, c and d do {above} they have learned the game",)
    alone = tables.comparison_of(made("a", [chance, chance]) + made("b", [9, 8])).tables[0].notes
    assert alone == (f"a does {above} it has learned the game",)
    assert tables.comparison_of(made("a", [chance, chance + 1])).tables[0].notes == ()
    assert tables.no_better_than_random(found.methods, {"greedy": 99.0}) == []


def test_unequal_budgets_and_test_episodes_are_said(folder: Path) -> None:
    several = made("a", [1, 2]) + made("b", [1, 2], frames=1101) + made("c", [1, 2], frames=1000, block=3)
    notes = report_of(several).tables[0].notes
    assert notes[0].startswith("unequal budgets: more than 10 % apart in frames of a run: ")
    assert "b 1,101" in notes[0]
    assert notes[1:] == (
        "not all champions are tested on the same episodes: 50 episodes of block 0, 50 episodes of block 3",
    )
    assert report_of(made("a", [1, 2]) + made("b", [1, 2], frames=1099)).tables[0].notes == ()
    uneven = made("a", [1], frames=1000) + made("a", [1, 2], frames=2000)[1:]
    assert any("unequal numbers of frames, 1,000 to 2,000" in n for n in report_of(uneven).tables[0].notes)
    budget = "run.budget={forward_passes = 9}"  # this is what is to be equal then: twice the frames
    uneven = made("a", [1, 2], budget, frames=1000) + made("b", [1, 2], budget, frames=2000)
    assert "in forward passes of a run: a 2,000, b 4,000" in report_of(uneven).tables[0].notes[0]


@pytest.mark.parametrize(
    ("option", "tables_of"),
    [
        ('environment.observation="ego"', 2),
        ("environment.window=3", 2),
        ('environment.mask="fatal"', 2),
        ("environment.size=6", 2),
        ("environment.starvation=31", 2),
        ("environment.rewards={death = -0.5}", 1),  # the score is the number of fruits
        ("ga.sigma=0.5", 1),
    ],
)
def test_what_players_see_and_play_is_compared_with_its_like_only(folder: Path, option: str, tables_of: int) -> None:
    report = report_of(made("a", [1, 2, 3, 4]) + made("b", [11, 12, 13, 14], option))
    assert len(report.tables) == tables_of
    assert sum(len(table.pairs) for table in report.tables) == 2 - tables_of
    assert any("not compared with each other" in note for note in report.notes) == (tables_of == 2)


def test_cells_of_a_csv_file_that_a_spreadsheet_would_compute_are_text(folder: Path) -> None:
    names = ["=HYPERLINK(1)", "@SUM(1)", "+a", "-b", "c\x1b[2J\u202e"]
    text = formats.comma_separated(report_of([run for name in names for run in made(name, [-1, -2])]))
    rows = list(csv.DictReader(io.StringIO(text.split("\n\n")[0])))
    assert {row["method"] for row in rows} == {*(f"'{name}" for name in names[:4]), "c\\x1b[2J\\u202e"}
    assert {float(row["mean"]) for row in rows} == {-1.5}
    assert text.replace("\n", "").isprintable()


def test_every_format_has_every_method_every_verdict_and_every_note(folder: Path) -> None:
    report = report_of(made("a_1", [1, 2, 3, 4]) + made("b", [11, 12, 13, 14], frames=5))
    blocks = [list(csv.DictReader(io.StringIO(text))) for text in formats.comma_separated(report).split("\n\n")]
    assert [(row["method"], float(row["mean"]), row["weights"]) for row in blocks[0]] == [
        ("b", 12.5, blocks[0][1]["weights"]),
        ("a_1", 2.5, blocks[0][1]["weights"]),
    ]
    assert [row["winner"] for row in blocks[1]] == ["b"]
    assert any("unequal budgets" in row["note"] for row in blocks[2])
    assert set(formats.FORMATS) == set(compare.FORMATS)
    tex = formats.latex(report)
    assert tex.count(r"\begin{tabular}") == tex.count(r"\end{tabular}") == 2
    assert r"a\_1" in tex
    assert "b wins" in tex
    assert r"10 \% apart" in tex
    rows = [line for line in tex.splitlines() if line.endswith(r"\\")]
    assert {line.count(" & ") for line in rows} == {len(formats.METHODS) - 1, len(formats.PAIRS) - 1}
    text = formats.markdown(report)
    assert {line.count("|") for line in text.splitlines() if line.startswith("|")} == {
        len(formats.METHODS) + 1, len(formats.PAIRS) + 1
    }  # fmt: skip
    assert "b wins" in text
    assert "- unequal budgets" in text
    assert "| 5 | 10 | 250 | 4 s | 2 s |" in text
    row = next(row for row in blocks[0] if row["method"] == "b")
    assert [row[name] for name in ("frames", "forward_passes", "multiply_adds", "cpu_seconds", "seconds")] == [
        "5.0", "10.0", "250.0", "3.5", "2.0"
    ]  # fmt: skip


def test_the_time_to_a_score_is_that_of_the_first_test_that_has_it(folder: Path) -> None:
    sets = 'set = ["run.generations=3", "test.episodes=20", "test.every=1"]'
    (folder / "both.toml").write_text(COMPARISON.replace(COMPARISON.splitlines()[-1], sets) + "reach = 1000.0\n")
    planned = ComparisonFile.read(folder / "both.toml")
    assert planned.section.reach == 1000
    found = training.train(planned.runs, begin=in_this_process)
    never, at_once = (tables.comparison_of(found, reach, 0.0) for reach in (1000.0, -100.0))
    (table,) = at_once.tables
    assert table.reaching is not None
    for reached, method in zip(table.reaching.methods, table.methods, strict=True):
        metrics = [MetricsFile(Path(run.run_dir)).read() for run in method.runs]
        firsts, last = [lines[0]["frames_so_far"] for lines in metrics], max(run.frames for run in method.runs)
        assert (reached.method, reached.runs, reached.reached) == (method.name, 2, 2)
        assert reached.medians["frames"] == min(firsts)  # of two, the first one is half
        line = f"| {method.name} | 2 of 2 | {min(firsts):,.0f} |"
        assert line in formats.markdown(at_once)
        assert f"| {method.name} | 0 of 2 | > {last:,.0f} |" in formats.markdown(never)
        assert f"{method.name},2,2,0,-100.0,{min(firsts):.1f}," in formats.comma_separated(at_once)
        assert f"{method.name},2,0,0,1000.0,,,," in formats.comma_separated(never)
    assert "had -100.00 in a test of the run" in formats.latex(at_once)
    failed = [replace(found[0], score=None, failure="lost"), *found[1:]]
    (table,) = tables.comparison_of(failed, 1000.0, 0.0).tables
    assert table.reaching is not None
    assert [reached.runs for reached in table.reaching.methods] == [2, 2]  # a run that failed has not reached it
    gone = replace(found[0], directory=folder / "nowhere", score=None, failure="lost", spent=Spent(5, 1.0, 5, 5, 1.0))
    (table,) = tables.comparison_of([gone, *found[1:]], -100.0, 0.0).tables
    assert table.reaching is not None
    assert sorted((one.runs, one.reached) for one in table.reaching.methods) == [(2, 1), (2, 2)]
    assert b"Time to -100.00" in comparison_page(at_once)
    (found[0].directory / "metrics.jsonl").unlink()
    lost = tables.comparison_of(found, -100.0, 0.0)
    assert lost.tables[0].reaching is not None
    assert sorted((one.reached, one.runs, one.unknown) for one in lost.tables[0].reaching.methods) == [
        (1, 1, 1), (2, 2, 0)
    ]  # fmt: skip
    assert "| 1 of 1 (1 not known: no test in metrics.jsonl) |" in formats.markdown(lost)


def test_the_tests_of_a_run_are_read_once_until_its_metrics_change(folder: Path) -> None:
    path = folder / "metrics.jsonl"
    spent = {f"{amount}_so_far": 5 for amount in COUNTED}
    path.write_bytes(with_checksum({"generation": 0, "test": 1.0, **spent}) + b"\n")
    before = points_of(folder)
    assert {amount: scores.tolist() for amount, (_, scores) in before.items()} == {key: [1.0] for key in COUNTED}
    assert points_of(folder) is before
    path.write_bytes(path.read_bytes() + with_checksum({"generation": 1, "test": 2.0, **spent}) + b"\n")
    assert points_of(folder)["frames"][1].tolist() == [1.0, 2.0]
    for odd in ({"test": None, **spent}, {"test": 3.0, **spent, "frames_so_far": None}, {"test": 4.0}):
        path.write_bytes(path.read_bytes() + with_checksum({"generation": 2, **odd}) + b"\n")
        assert {amount: scores.tolist() for amount, (_, scores) in points_of(folder).items()} == {
            amount: [1.0, 2.0] for amount in COUNTED
        }


def test_the_spread_within_champions_is_of_those_whose_score_has_an_interval(folder: Path) -> None:
    runs = made("a", [1.0, 2.0, 3.0])
    assert runs[0].score is not None
    runs[0] = replace(runs[0], score=replace(runs[0].score, episodes=1, ci95=(math.nan, math.nan)))
    every = tables.comparison_of(made("a", [1.0, 2.0, 3.0]), seconds=0.0).tables[0].methods[0].within
    comparison = tables.comparison_of(runs, seconds=0.0)
    assert comparison.tables[0].methods[0].within == every
    alone = tables.comparison_of(runs[:1], seconds=0.0)
    assert alone.tables[0].methods[0].within is None
    assert not any("nan" in form(one) for form in formats.FORMATS.values() for one in (comparison, alone))


def test_a_number_of_a_hundred_digits_is_shown_with_three() -> None:
    assert [numbers.number(one) for one in (1e15, -1e140, 9e14)] == ["1e+15", "-1e+140", "900,000,000,000,000"]


def test_the_score_to_reach_lies_between_the_weakest_player_and_the_best_method(folder: Path) -> None:
    methods = tables.comparison_of(made("a", [1, 2, 3]) + made("b", [10.0, 20.0]), seconds=0.0).tables[0].methods
    assert score_between(methods, {"random": 5.0, "greedy": 90.0}) == 12.5
    assert score_between(methods, {"random": 15.0}) is None
    close = tables.comparison_of(made("a", [499.9, 499.9]), seconds=0.0).tables[0].methods
    assert score_between(close, {"random": 499.0}) == 499.675
    assert score_between(methods, {}) is None


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        (["both.toml", "one.toml"], 2, "both.toml: give one comparison file, or directories of runs only"),
        (["none.toml"], 2, "none.toml: cannot be read: No such file"),
        (["nothing"], 3, "nothing: no such file or directory"),
        (["run/champion.h5"], 2, "run/champion.h5: is a file of a run; give its directory, run"),
        (["one.toml", "run/champion.h5"], 2, "run/champion.h5: is a file of a run; give its directory, run"),
        (["alone.h5"], 2, "alone.h5: is a champion; give the directory of its run"),
        ([".", "--dry-run"], 2, "--dry-run goes with a comparison file"),
        (["."], 3, ".: is a folder of runs; choose one, such as run"),
        (["run", "rum"], 3, "rum: no such file or directory - did you mean `run`?"),
    ],
)
def test_what_cannot_be_compared_is_said_in_one_line(folder: Path, words: list[str], code: int, said: str) -> None:
    (folder / "run").mkdir()
    for name in ("run/champion.h5", "run/manifest.jsonl", "alone.h5"):
        (folder / name).write_bytes(b"\x89HDF\r\n")
    _, err = called(folder, "compare", *words, program="evo", code=code)
    assert err.startswith(said)
    assert len(err.splitlines()) == 1


def test_runs_whose_directories_have_one_name_are_told_apart_by_the_shortest_path(folder: Path) -> None:
    places = ["here/a/s", "here/b/s", "here/b/t-seed1", "here/b/t-seed2", "u"]
    for number, place in enumerate(places):
        sets = ["run.generations=1", "test.episodes=2", f"ga.sigma=0.{number + 1}"]
        list(evo.train(Experiment.load("one.toml", *sets), place))
    found = runs_in([Path(place) for place in places])
    assert [run.method for run in found] == ["a/s", "b/s", "t-seed1", "t-seed2", "u"]
    several = runs_in([folder / "here" / "b" / "t-seed1", folder / "u"])
    assert [run.method for run in several] == ["t", "u"]


@pytest.mark.parametrize("dry", [[], ["--dry-run"]])
@pytest.mark.parametrize(
    ("flag", "name", "code", "said"),
    [
        ("--output", "one.toml", 2, "--output one.toml: the file name must end with .md"),
        ("--output", "run/metrics.jsonl", 2, "--output run/metrics.jsonl: the file name must end with .md"),
        ("--output", "table.csv", 2, "--output table.csv: the file name must end with .md"),
        ("--output", "", 2, "--output '': the file name must end with .md"),
        ("--output", ".", 2, "--output .: the file name must end with .md"),
        ("--output", "/", 2, "--output /: the file name must end with .md"),
        ("--output", "both.md", 2, "--output both.md: is the comparison file; name another"),
        ("--output", "nowhere/table.md", 2, "--output nowhere/table.md: no file can be written there"),
        ("--output", "/proc/table.md", 5, "cannot write /proc/table.md: "),
        ("--page", "/proc/page.html", 5, "cannot write /proc/page.html: "),
    ],
)
def test_a_file_that_cannot_take_the_tables_is_refused_before_anything_is_trained(
    folder: Path, flag: str, name: str, code: int, said: str, dry: list[str]
) -> None:
    (folder / "both.toml").rename("both.md")
    (folder / "run").mkdir()
    (folder / "run" / "metrics.jsonl").write_text("{}")
    before = {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}
    _, err = called(folder, "compare", "both.md", flag, name, *dry, program="evo", code=code)
    assert err.startswith(said)
    assert len(err.splitlines()) == 1
    assert {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()} == before


@pytest.mark.parametrize("form", compare.FORMATS)
def test_tables_go_to_a_file_with_the_ending_of_their_format(folder: Path, form: str) -> None:
    words = ("compare", "both.toml", "--dry-run", "--format", form, "--output")
    (ending, *_), others = compare.ENDINGS[form], {"markdown": ".tex", "csv": ".md", "latex": ".csv"}
    called(folder, *words, f"table{ending}", program="evo")
    assert not (folder / f"table{ending}").exists()
    _, err = called(folder, *words, f"table{others[form]}", program="evo", code=2)
    assert f"must end with {ending}" in err


def typed(*words: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-m", "evo", "compare", *words], text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        start_new_session=True,
    )  # fmt: skip


@pytest.mark.long
def test_with_fewer_generations_a_run_that_has_more_is_only_tested_as_is_asked_for(folder: Path) -> None:
    (folder / "both.toml").write_text(
        COMPARISON.replace("generations=2", "generations=5").replace("episodes=20", "episodes=30")
    )
    (run,) = training.train(ComparisonFile.read(folder / "both.toml").runs[:1], begin=in_this_process)
    assert run.generations == 5
    (folder / "both.toml").write_text(COMPARISON)
    (run,) = training.train(ComparisonFile.read(folder / "both.toml").runs[:1])
    assert run.score is not None, run.failure
    assert (run.generations, run.score.episodes) == (5, 20)
    assert MetricsFile(run.directory).read()[-1]["test"] == run.score.mean
    kept = Experiment.load(run.directory / "config.resolved.toml", resolved=True)
    assert (kept.run.generations, kept.test.episodes) == (5, 20)


@pytest.mark.long
def test_a_comparison_that_is_started_twice_is_in_use(folder: Path) -> None:
    in_use = r"runs/both is in use by process \d+; wait for it to end, or stop it\n"
    with typed("both.toml") as first:
        while not (folder / "runs" / "both" / "one-ga-seed1").exists():
            time.sleep(0.01)
        _, err = called(folder, "compare", "both.toml", program="evo", code=LockedError.exit_code)
        first.terminate()
    assert re.fullmatch(in_use, err)


@pytest.mark.parametrize("directory", ["one.toml", "one.toml/runs"])
def test_a_file_in_the_place_of_the_runs_is_named_with_its_line(folder: Path, directory: str) -> None:
    (folder / "both.toml").write_text(f'{COMPARISON}directory = "{directory}"\n')
    _, err = called(folder, "compare", "both.toml", "--dry-run", program="evo", code=2)
    assert err == "both.toml:6: comparison.directory: one.toml is a file; choose another folder\n"


@pytest.mark.parametrize(
    "name",
    ["/tmp/mine", "../mine", "runs/../../mine", "runs/..", ".", "./", "~/mine", "a\\u0000b", "a\\nb", "out/mine"],
)
def test_a_comparison_file_chooses_no_folder_outside_of_the_current_one(
    folder: Path, tmp_path_factory: pytest.TempPathFactory, name: str
) -> None:
    (folder / "out").symlink_to(tmp_path_factory.mktemp("elsewhere"))
    before = sorted(folder.rglob("*"))
    (folder / "both.toml").write_text(f'{COMPARISON}directory = "{name}"\n')
    for dry in ((), ("--dry-run",)):
        _, err = called(folder, "compare", "both.toml", *dry, program="evo", code=2)
        assert err.startswith("both.toml:6: comparison.directory: ")
        assert len(err.splitlines()) == 1
    assert sorted(folder.rglob("*")) == before
    assert not any((folder / "out").iterdir())


@pytest.mark.parametrize("name", ["both", "both/one-ga-seed1"])
def test_a_link_in_the_place_of_runs_is_not_followed(folder: Path, tmp_path: Path, name: str) -> None:
    (folder / "work" / "runs" / name).parent.mkdir(parents=True)
    (folder / "work" / "runs" / name).symlink_to(folder / "elsewhere")
    for file in ("one.toml", "two.toml", "both.toml"):
        (folder / file).rename(folder / "work" / file)
    _, err = called(folder / "work", "compare", "both.toml", program="evo", code=2)
    if name == "both":
        wrong = '"runs/both" leads out of the current folder by a link; choose another folder'
        assert err == f"both.toml:2: comparison.directory: {wrong}\n"
    else:
        moved = "choose another comparison.directory, or move these away:"
        assert err == f"{moved}\nruns/{name}: a link, which is not followed\n"
    assert not (folder / "elsewhere").exists()


def test_spaces_hide_no_key_that_the_comparison_sets_itself(folder: Path) -> None:
    text = COMPARISON.replace('"run.generations=2"', '"run . seed = 5", " run .budget. frames=9"') + "frames = 10\n"
    (folder / "both.toml").write_text(text)
    _, err = called(folder, "compare", "both.toml", "--dry-run", program="evo", code=2)
    assert err.splitlines() == [
        "both.toml:5: comparison.set: run.budget.frames cannot go with frames, which is the budget",
        "both.toml:5: comparison.set: run.seed is set by `seeds`",
    ]


def test_runs_may_be_on_another_disk_that_the_folder_of_runs_leads_to(
    folder: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    (folder / "runs").symlink_to(tmp_path_factory.mktemp("disk"))
    (folder / "both.toml").write_text(f'{COMPARISON}directory = "runs/mine"\n')
    called(folder, "compare", "both.toml", "--dry-run", program="evo")


@pytest.mark.long
def test_the_page_of_a_comparison_replaces_pages_of_this_program_only(folder: Path) -> None:
    (folder / "both.toml").write_text(
        COMPARISON.replace(', "two.toml"', "").replace("[1, 2]", "[1]") + 'directory = "docs/index"\n'
    )
    (folder / "docs").mkdir()
    page = folder / "docs" / "index.html"
    page.write_text("<h1>mine</h1>")
    _, err = called(folder, "compare", "both.toml", program="evo")
    assert "note: no page was written: docs/index.html is there, and is no page of this program" in err
    assert page.read_text() == "<h1>mine</h1>"
    (folder / "linked.html").write_text("<h1>mine</h1>")
    page.unlink()
    page.symlink_to("../linked.html")
    assert "no page was written" in called(folder, "compare", "both.toml", program="evo")[1]
    page.unlink()
    for _ in range(2):
        _, err = called(folder, "compare", "both.toml", program="evo")
        assert "note: page: docs/index.html" in err
    called(folder, "compare", "both.toml", "--page", "linked.html", program="evo")
    assert page.read_bytes() == (folder / "linked.html").read_bytes()


@pytest.mark.long
def test_a_comparison_that_is_killed_and_started_again_ends_with_the_same_table(folder: Path) -> None:
    (folder / "same.toml").write_text(COMPARISON)
    with typed("same.toml", "--json") as process:
        straight = process.communicate(timeout=600)[0]
    assert process.returncode == 0
    for lines in (1, 3):
        with typed("both.toml", "--json") as process:
            assert process.stdout is not None
            ended = 0
            while ended < lines:
                ended += process.stdout.readline().startswith(f"{ended + 1}/4  ")
            os.kill(process.pid, signal.SIGKILL)  # this process alone: its run must end too
    with typed("both.toml", "--json", "--output", "table.md") as process:
        out, err = process.communicate(timeout=600)
    assert (process.returncode, err) == (0, "note: page: runs/both.html\n")
    ours, theirs = (json.loads(text.splitlines()[-1]) for text in (out, straight))
    for table in (*ours["tables"], *theirs["tables"]):
        assert set(table.pop("baselines")) == {
            "random",
            "greedy",
            "shortest",
            "hamiltonian",
        }  # as many as a second allows
    assert timeless(ours) == json.loads(json.dumps(timeless(theirs)).replace("runs/same", "runs/both"))
    assert (folder / "table.md").read_text() in out


@pytest.mark.long
def test_a_run_whose_candidates_end_their_workers_fails_and_the_others_go_on(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    walk = small_with(environment='id = "treacherous"', workers='backend = "processes"')
    (folder / "two.toml").write_text(walk)
    (folder / "both.toml").write_text(COMPARISON.replace("[1, 2]", "[1]"))
    monkeypatch.setenv("DEADLY", "all")
    with typed("both.toml", "--plugin", "tests.workers.treacherous") as process:
        out, err = process.communicate(timeout=600)
    assert process.returncode == 0, err
    assert "2/2  two-ga  seed 1  failed: " in out
    assert "- two-ga seed 1 is missing, and in no mean: " in out
    assert "SIGSEGV" in out
    assert "| one-ga | 1 |" in out


@pytest.mark.long
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
def test_a_comparison_takes_the_run_that_trains_with_it_and_the_same_command_goes_on(
    folder: Path, number: signal.Signals
) -> None:
    (folder / "both.toml").write_text(COMPARISON.replace("generations=2", "generations=100000"))
    with typed("both.toml", "--json") as process:
        manifest = folder / "runs" / "both" / "one-ga-seed1" / "manifest.jsonl"
        while not manifest.exists() or manifest.read_text().count("\n") < 3:
            assert process.poll() is None
        process.send_signal(number)
        out, err = process.communicate(timeout=60)
    if number == signal.SIGTERM:
        assert process.returncode == 143
        assert "the same command goes on with the rest" in err
        assert json.loads(out.splitlines()[-1])["status"] == "interrupted"
    (folder / "both.toml").write_text(COMPARISON)
    with typed("both.toml") as process:  # its lock is free again
        out, err = process.communicate(timeout=600)
    assert process.returncode == 0, err


def test_a_curve_of_several_seeds_has_all_of_them_at_every_point() -> None:
    one = np.array([10.0, 20.0, 40.0]), np.array([1.0, 2.0, 3.0])
    other = np.array([20.0, 30.0]), np.array([4.0, 8.0])
    grid, (mean, low, high) = methods.mean_over_seeds([one, other])
    assert (grid[0], grid[-1]) == (20.0, 40.0)
    assert (mean[0], mean[-2], mean[-1]) == ((2 + 4) / 2, (2 + 8) / 2, (3 + 8) / 2)
    assert (low < mean).all()
    assert (mean < high).all()
    assert np.isnan(methods.mean_over_seeds([one])[1][1:]).all()


def test_a_profile_is_the_share_of_runs_above_a_score() -> None:
    share, low, high = statistics.performance_profile([1.0, 2.0, 2.0, 3.0], np.array([0.0, 1.0, 2.5, 3.0]))
    assert share.tolist() == [1.0, 0.75, 0.25, 0.0]
    assert (low <= share).all()
    assert (share <= high).all()
    assert (low[0], high[-1]) == (1.0, 0.0)


def test_figures_without_matplotlib_say_what_to_install_and_nothing_is_trained(folder: Path) -> None:
    try:
        import matplotlib  # noqa: F401
    except ImportError:
        _, err = called(folder, "compare", "both.toml", "--figures", "here", code=2, program="evo")
        assert err.startswith("--figures needs matplotlib")
        assert len(err.splitlines()) == 1
        assert not (folder / "runs").exists()


@pytest.mark.long
def test_runs_that_ended_before_their_second_test_are_drawn_as_a_point() -> None:
    pytest.importorskip("matplotlib")
    ended, going = (np.array([10.0]), np.array([3.0])), (np.array([5.0, 20.0]), np.array([1.0, 2.0]))
    means = [methods.mean_over_seeds([one, one]) for one in (ended, going)]
    curves = [methods.Curve("ppo", 2, x, *mean) for x, mean in means]
    plot = methods.Plot("score", "Score", "frames", "score", "mean", curves)
    figure = formats._drawn(formats.library(), plot, "snake")
    assert [line.get_marker() for line in figure.axes[0].lines] == ["o", "None"]


def test_figures_of_trained_runs_are_drawn_and_are_the_same_again(folder: Path) -> None:
    pytest.importorskip("matplotlib")
    report = report_of(training.train(ComparisonFile.read(folder / "both.toml").runs, in_this_process))
    written = formats.write_figures(report, folder / "figures")
    amounts = ("frames", "forward_passes", "multiply_adds", "cpu_seconds")
    names = [*(f"score-{name}" for name in amounts), "profiles"]
    assert [path.name for path in written] == [f"{name}.{kind}" for name in names for kind in ("png", "svg")]
    before = [path.read_bytes() for path in written]
    assert [path.read_bytes() for path in formats.write_figures(report, folder / "figures")] == before
    assert b"one-ga (2)" in before[1] or b"<svg" in before[1]
    hostile = report_of(made("$\\frac{1 _\x1b[2J", [1.0, 2.0]))  # no formula, and no text without a picture
    assert len(formats.write_figures(hostile, folder / "figures")) == 2


@pytest.mark.long
def test_runs_of_other_code_are_no_seeds_of_one_method_and_say_so(tmp_path: Path) -> None:
    words = ("--plugin", "measured", "--generations", 2, "--backend", "serial", "--no-report", "--quiet")
    (tmp_path / "own.toml").write_text(
        '[run]\nalgorithm = "sep_cma_es"\n[environment]\nid = "problem:measured"\nsize = 3\n'
    )
    for seed, factor in ((1, 1), (2, 5)):
        (tmp_path / "measured.py").write_text(f"def fitness(x):\n    return -{factor} * (x**2).sum()\n")
        with command(tmp_path, "own.toml", *words, "--seed", seed, "--run-dir", f"run{seed}") as process:
            assert process.wait(120) == 0, process.stderr.read()
    with command(tmp_path, "compare", "run1", "run2", "--plugin", "measured", program=("-m", "evo")) as process:
        out, err = process.communicate(timeout=120)
    assert process.returncode == 0, err
    assert "the code of plug-in measured differs from that of the run" in out
    assert "run1" in out
    assert "run2" in out
