"""Sweeps: the values, the race between trials, the retest of the winner, and what a kill leaves."""

from __future__ import annotations

import json
import math
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, cast

import pytest

import evo
from evo.comparison import training
from evo.comparison.runs import ComparedRun, PlannedRun, failed_run
from evo.comparison.training import train
from evo.errors import ConfigurationError, DataError, ResourceError
from evo.files.durable import with_checksum
from evo.files.layout import FORMAT
from evo.store.champion import Score
from evo.sweeps import race
from evo.sweeps.race import SHARES, Journal, Standing
from evo.sweeps.sweeping import Race, Study, winner
from evo.sweeps.trials import Axis, PlannedSweep, Values, axes_of, axis_of, different, grid, limited, name_of
from tests.helpers.calling import ROOT, SMALL, called

TINY = SMALL.replace("episodes = 20", "episodes = 4")


@pytest.fixture
def settings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> PlannedSweep:
    (tmp_path / "tiny.toml").write_text(TINY)
    monkeypatch.chdir(tmp_path)
    return PlannedSweep(Path("tiny.toml"), (), {}, (1, 2, 3), 2, Path("runs/sweep-tiny"))


def trial_of(settings: PlannedSweep, *texts: str) -> list[Any]:
    return [settings.trial(values) for values in grid(axes_of(texts))]


class Trainer:
    """Stands for training: a trial's score follows from its sigma, its seed and its share of the budget."""

    def __init__(self, scores: dict[str, float], noise: float = 0.0) -> None:
        self.scores, self.noise = scores, noise
        self.trained: list[tuple[str, int, int]] = []  # name, seed, generations

    def __call__(self, planned: Sequence[PlannedRun], *, describe: object = None) -> list[ComparedRun]:
        return [self._trained(run) for run in planned]

    def _trained(self, run: PlannedRun) -> ComparedRun:
        seed = run.experiment.run.seed
        self.trained.append((run.method, seed, run.experiment.generations))
        score = self.scores[run.method] + 10 * seed + self.noise * (-1) ** seed * len(run.method)
        test = Score(4, score, (score, score), score, score, None, None, 1.0)
        return ComparedRun(run.method, run.experiment, run.directory, score=test, validation=score)


@pytest.mark.parametrize(
    ("text", "values"),
    [
        ("ga.sigma=0.05, 0.1,0.2", ("0.05", "0.1", "0.2")),
        ("policy.conv=[[8, 3, 2]],[[4, 3, 1], [8, 3, 1]]", ("[[8, 3, 2]]", "[[4, 3, 1], [8, 3, 1]]")),
        ('environment.training={rewards = {fruit = 1, death = 0}},{}', ("{rewards = {fruit = 1, death = 0}}", "{}")),
        ('policy.inference="lanes","a,b"', ('"lanes"', '"a,b"')),
        ("environment.training.walls=true,1", ("true", "1")),  # the experiment says which of them it has
        ("ga.sigma=1,1" + "0" * 5000, ("1", "1" + "0" * 5000)),
    ],
)  # fmt: skip
def test_values_are_listed_with_commas_outside_of_brackets_and_quotes(text: str, values: tuple[str, ...]) -> None:
    assert axis_of(text).values == values


def test_a_range_has_two_ends_and_is_whole_where_both_are() -> None:
    assert axis_of("ga.sigma=0.01..1:log") == Axis("ga.sigma", (), 0.01, 1.0, log=True)
    assert axis_of("ga.population=16..512") == Axis("ga.population", (), 16, 512, whole=True)
    assert not axis_of("ppo.learning_rate=1e-4..1e-2").whole
    assert axis_of("ga.population=1_000..2_000").high == 2000
    assert axis_of("ga.population=1000000..1000001").whole
    assert axis_of("ga.sigma=0.123456..0.123457").high == 0.123457
    assert axis_of("ga.population=1..1__0").values == ("1..1__0",)  # which the experiment refuses


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("ga.sigma", "must be an option and its values"),
        ("ga.sigma=", "must be an option and its values"),
        ("sigma=1,2", "must be an option and its values"),
        ("ga.sigma=1,1", "1 is named twice"),
        ("ga.sigma=0.2,0.1,0.10", "0.10 is named twice, first as 0.1$"),
        ("ga.sigma=1,1.0", "1.0 is named twice, first as 1$"),
        ("policy.kind=mlp,'mlp'", "'mlp' is named twice, first as mlp$"),
        ("policy.dense=[8, 4],[8,4]", r"\[8,4\] is named twice, first as \[8, 4\]$"),
        ("ga.sigma=1,,2", "a value is empty"),
        ("ga.sigma=,,1", "a value is empty"),
        ("ga.sigma=0.1234567..0.1234568", r"0.1234567..0.1234568 is one number, 0.123457, in the six digits"),
        ("ga.sigma=1000000.0..1000001:log", "is one number, 1e.06, in the six digits"),
        ("ga.sigma=1..0.5", "must go from the lower to the higher number"),
        ("ga.sigma=0..1:log", "begins above 0"),
        ("ga.sigma=0.1..1e400", "goes beyond 1e"),
        ("ga.sigma=-1.7e308..1:log", "goes beyond 1e"),
        ("ga.population=1..1" + "0" * 400, "goes beyond 1e"),
        ("run.seed=1,2", "give --seed and --seeds"),
        ("run.budget.frames=1,2", "same budget"),
        ("ga.generations=1,2", "same budget"),
        ("validation.episodes=1,2", "compared by their validation returns"),
        ("environment.size=6,8", "only environment.training can"),
        ("workers.count=1,2", "changes no result"),
    ],
)
def test_what_cannot_be_varied_is_refused_in_one_line(text: str, said: str) -> None:
    with pytest.raises(ConfigurationError, match="--over .*" + said) as caught:
        axis_of(text)
    assert len(str(caught.value).splitlines()) == 1


def test_a_trial_is_named_by_what_was_changed(settings: PlannedSweep) -> None:
    first, *_, last = trial_of(settings, "ga.sigma=0.1,0.2", "ga.parents=4,8")
    assert (first.name, last.name) == ("ga.sigma=0.1,ga.parents=4", "ga.sigma=0.2,ga.parents=8")
    assert settings.planned(first, 1.0)[2].directory == Path("runs/sweep-tiny/ga.sigma=0.1,ga.parents=4-seed3")
    assert len(name_of({"policy.conv": "[[8, 3, 2]], " * 40})) == 120
    assert name_of({"policy.conv": "[[8,3,1]]"}) != name_of({"policy.conv": "[8,3,1]"})
    with pytest.raises(ConfigurationError, match=r"needs --search optuna"):
        grid([axis_of("ga.sigma=0.1..1")])
    with pytest.raises(ConfigurationError, match=r"--over ga.sgma: .* did you mean `sigma`"):
        trial_of(settings, "ga.sgma=1,2")
    with pytest.raises(ConfigurationError, match=r"give the same run"):
        different(trial_of(settings, "ppo.clip_range=0.1,0.2"))


def test_a_share_of_the_budget_is_a_share_of_everything_that_ends_a_run(settings: PlannedSweep) -> None:
    (trial,) = trial_of(settings, "ga.sigma=0.1")
    experiment = limited(trial.experiment, 0.5)
    assert experiment.generations == 2
    budget = settings.__class__(settings.file, ("run.budget={frames = 1001, seconds = 3.0}",), {}, (1,), 1, Path("a"))
    assert limited(budget.trial({}).experiment, 0.25).run.budget.limits() == {"frames": 251, "seconds": 0.75}
    assert experiment.identity() == trial.experiment.identity()  # so the run goes on


def test_only_a_trial_that_the_seeds_show_to_lose_stops() -> None:
    best = [10.0, 20.0, 30.0]
    assert race.loses([9.0, 19.1, 28.9], best) == "1.00 below the leader (at 90 %, 0.83 to 1.17)"
    assert race.loses([9.0, 19.9, 25.0], best) == ""  # one seed may have been bad luck
    assert race.loses([11.0, 21.0, 31.0], best) == ""
    assert race.loses([1.0], [100.0]) == ""
    stopped = race.judged({"a": [9.0, 19.1, 28.9], "b": best, "c": best}, {"d": "why"}, last=False)
    assert [bool(one.stopped) for one in stopped] == [True, False, False, True]
    assert [bool(one.stopped) for one in race.judged({"a": [1, 2, 3], "b": best}, {}, last=True)] == [False, False]


def test_a_third_of_the_trials_goes_on_but_never_fewer_than_three() -> None:
    rivals = [[float(score)] for score in range(15)]
    assert race.falls_behind([10.0], rivals) == ""
    assert race.falls_behind([9.0], rivals) == "place 6 of 15, and 5 go on"
    assert [race.falls_behind([score], [[0.0], [1.0], [2.0]]) for score in (0.0, 1.0, 2.0)] == ["", "", ""]
    assert race.falls_behind([0.0], rivals[:4]) == "place 4 of 4, and 3 go on"
    assert race.falls_behind([0.0], [[0.0]] * 10) == ""  # where nothing has been learned, nobody is behind
    standings = race.judged({str(score): [score, 9.0 - 9.0 * score] for score in range(9)}, {}, last=False)
    assert [one.name for one in standings if one.stopped] == ["3", "4", "5", "6", "7", "8"]  # whose means are lower


class Listed:
    """Stands for Optuna: values of an option in order."""

    def __init__(self, key: str, values: Sequence[str]) -> None:
        self.left, self.told = iter([{key: one} for one in values]), list[Sequence[Standing]]()

    def next(self) -> Values | None:
        return next(self.left, None)

    def tell(self, stages: Sequence[Standing]) -> None:
        self.told.append(stages)


def test_values_that_the_experiment_refuses_are_a_failed_trial_of_a_search(settings: PlannedSweep) -> None:
    trainer = Trainer({"ga.parents=8": 1.0, "ga.parents=9": 2.0})
    search, said = Listed("ga.parents", ["21", "8", "0", "9", "30"]), list[object]()
    journal = Journal(settings.directory, {})
    runs = Race(settings, journal, trainer, said.append).searched(cast("Study", search))
    assert [run.finished for run in runs] == [False, True, False, True, False]
    assert search.told == [run.stages for run in runs]
    why = "failed: --over ga.parents: 21 of a population of 20"
    assert runs[0].stages == (Standing("ga.parents=21", (), why),)
    assert said[0] == f"ga.parents=21 stops: {why}"
    assert [str(line).partition(" ")[0] for line in said] == ["ga.parents=21", "ga.parents=0", "ga.parents=30"]
    again = Journal(settings.directory, {})
    assert [again.stage(f"{run.trial.name} 0.2", [run.trial.name], 3) for run in runs] == [
        [run.stages[0]] for run in runs
    ]


def test_a_search_of_which_the_experiment_refuses_all_leaves_its_directory_to_another(settings: PlannedSweep) -> None:
    for key, values, wrong in (
        ("ga.sgma", ["1", "2"], "for 2 trials; the last: --over ga.sgma: unknown key - did you mean `sigma`?"),
        ("ga.sigma", [f"-{1 + one}" for one in range(400)], "for 100 trials; the last: --over ga.sigma: must be more"),
    ):
        race, said = Race(settings, Journal(settings.directory, {}), Trainer({})), list[object]()
        with pytest.raises(ConfigurationError, match=wrong.replace("?", r"\?")):
            race.searched(cast("Study", Listed(key, values)))
        assert said == []
    assert not settings.directory.exists()


def test_a_search_stops_a_trial_that_is_behind_those_before_it(settings: PlannedSweep) -> None:
    values = ["0.1", "0.2", "0.3", "0.4", "0.5", "0.6"]
    scores = dict(zip(values, [6.0, 5.0, 4.0, 3.0, 7.0, 4.5], strict=True))
    trainer = Trainer({f"ga.sigma={one}": score for one, score in scores.items()})
    settings, search = replace(settings, seeds=(1,)), Listed("ga.sigma", values)
    runs = Race(settings, Journal(settings.directory, {}), trainer).searched(cast("Study", search))
    assert [len(run.stages) for run in runs] == [3, 3, 3, 1, 3, 1]
    assert runs[3].stages[-1].stopped == "place 4 of 4, and 3 go on"
    assert runs[5].stages[-1].stopped == "place 4 of 6, and 3 go on"
    best = winner(runs)
    assert best is not None
    assert best.trial.name == "ga.sigma=0.5"


def test_a_race_stops_the_losers_and_the_winner_is_retested_on_seeds_that_no_trial_had(
    settings: PlannedSweep,
) -> None:
    trials = trial_of(settings, "ga.sigma=0.1,0.2,0.5")
    scores = {"ga.sigma=0.1": 5.0, "ga.sigma=0.2": 7.0, "ga.sigma=0.5": 1.0}
    trainer = Trainer(scores)
    runs = Race(settings, Journal(settings.directory, {}), trainer).side_by_side(trials)
    assert [len(run.stages) for run in runs] == [1, 3, 1]
    best = winner(runs)
    assert best is not None
    assert best.trial.name == "ga.sigma=0.2"
    assert [(seed, done) for _, seed, done in trainer.trained[9:]] == [
        (1, 2), (2, 2), (3, 2), (1, 4), (2, 4), (3, 4)
    ]  # fmt: skip
    trainer.trained.clear()
    found = Race(settings, Journal(settings.directory, {}), trainer).retested(runs)
    assert trainer.trained == [("ga.sigma=0.2", 4, 4), ("ga.sigma=0.2", 5, 4)]
    assert (found.winner, found.retest.mean, found.validation) == (best, 7.0 + 45.0, (47.0, 57.0))
    assert found.retest.runs[0].run_dir == "runs/sweep-tiny/retest/ga.sigma=0.2-seed4"


def test_a_run_that_was_resumed_by_itself_decides_nothing(settings: PlannedSweep) -> None:
    class Longer(Trainer):
        """Finds that a run has trained for longer than it was to."""

        def _trained(self, run: PlannedRun) -> ComparedRun:
            return replace(super()._trained(run), generations=run.experiment.generations + 3 * (run.method == longer))

    trials, scores = trial_of(settings, "ga.sigma=0.1,0.2"), {"ga.sigma=0.1": 5.0, "ga.sigma=0.2": 7.0}
    longer = ""
    runs = Race(settings, Journal(settings.directory, {}), Longer(scores)).side_by_side(trials)
    longer = "ga.sigma=0.2"
    said = r"runs/sweep-tiny/retest/ga\.sigma=0\.2-seed4: has 7 generations, and the other runs have 4 here"
    with pytest.raises(ConfigurationError, match=said):
        Race(settings, Journal(settings.directory, {}), Longer(scores)).retested(runs)
    with pytest.raises(ConfigurationError, match="seed1: has 4 generations, and the other runs have 1 here"):
        Race(settings, Journal(Path("other"), {}), Longer(scores)).side_by_side(trials)


def test_a_run_that_was_resumed_by_itself_after_its_trial_was_decided_is_named(settings: PlannedSweep) -> None:
    scores = {"ga.sigma=0.1": 5.0, "ga.sigma=0.2": 7.0}
    race = Race(settings, Journal(settings.directory, {}), Trainer(scores))
    runs = race.side_by_side(trial_of(settings, "ga.sigma=0.1,0.2"))
    (loser,) = [run for run in runs if run.trial.name == "ga.sigma=0.1"]
    assert len(loser.stages) == 1
    planned = settings.planned(loser.trial, SHARES[0])[0]
    list(evo.train(planned.experiment, planned.directory))
    race.retested(runs)
    longer = planned.experiment.run.model_copy(update={"generations": 6})
    list(evo.train(replace(planned.experiment, run=longer), planned.directory))
    said = r"ga\.sigma=0\.1-seed1: has 6 generations, and the other runs have 1 here, .* after its trial was decided"
    with pytest.raises(ConfigurationError, match=said):
        race.retested(runs)


def test_what_was_decided_is_not_decided_again(settings: PlannedSweep) -> None:
    trials = trial_of(settings, "ga.sigma=0.1,0.2")
    trainer = Trainer({"ga.sigma=0.1": 5.0, "ga.sigma=0.2": 7.0})
    first = Race(settings, Journal(settings.directory, {"seeds": [1, 2, 3]}), trainer).side_by_side(trials)
    changed = Trainer({"ga.sigma=0.1": 500.0, "ga.sigma=0.2": 7.0})
    again = Race(settings, Journal(settings.directory, {"seeds": [1, 2, 3]}), changed).side_by_side(trials)
    assert (again, changed.trained) == (first, [])
    with pytest.raises(ConfigurationError, match="is a sweep with --seed 1 --seeds 3; choose another --directory"):
        Journal(settings.directory, {"seeds": [1]})
    (settings.directory / "sweep.json").write_text('{"settings": {"seeds": []}, "stages": {}}')
    with pytest.raises(DataError, match=r"sweep\.json: is damaged"):
        Journal(settings.directory, {"seeds": [1, 2, 3]})
    (settings.directory / "sweep.json").write_text("{")
    with pytest.raises(DataError, match=r"sweep\.json: is damaged"):
        Journal(settings.directory, {"seeds": [1, 2, 3]})


CHANGES: list[tuple[str, Any]] = [
    ("scores", ["7", "7", "7"]), ("scores", [1e308] * 3), ("scores", []),
    ("scores", [1.0]), ("scores", {"a": 1}), ("name", "nobody"), ("name", "\x1b[2J"), ("stopped", 5),
    ("stopped", "\x1b]0;owned\x07"), ("stopped", "in the way\n| ga.sigma=0.1 wins"),
]  # fmt: skip


@pytest.mark.parametrize(
    ("key", "value", "checksummed"),
    [
        *((*change, True) for change in CHANGES),
        ("scores", [14.0, 16.0, 18.0], False),
        ("scores", [math.nan] * 3, False),
    ],
)
def test_a_journal_that_was_changed_is_refused_and_decides_nothing(
    settings: PlannedSweep, key: str, value: object, checksummed: bool
) -> None:
    trials = trial_of(settings, "ga.sigma=0.1,0.2")
    trainer, chosen = Trainer({"ga.sigma=0.1": 5.0, "ga.sigma=0.2": 7.0}), {"seeds": [1, 2, 3]}
    Race(settings, Journal(settings.directory, chosen), trainer).side_by_side(trials)
    file = settings.directory / "sweep.json"
    found = json.loads(file.read_bytes())
    found["stages"]["0.2"]["ga.sigma=0.1"][key] = value
    checksum = found.pop("crc")
    if checksummed:  # as a stranger would, who knows the checksum
        file.write_bytes(with_checksum(found))
    else:
        file.write_text(json.dumps({**found, "crc": checksum}, sort_keys=True, separators=(",", ":")))
    with pytest.raises(DataError, match=r"^runs/sweep-tiny/sweep\.json: is damaged; move its folder away"):
        Race(settings, Journal(settings.directory, chosen), trainer).side_by_side(trials)


def test_why_a_trial_failed_is_kept_as_text_that_can_be_shown() -> None:
    (one,) = race.judged({}, {"a": "\x1b[2J\nall good"}, last=False)
    assert one.stopped == r"failed: \x1b[2J\nall good"


def test_a_trial_that_fails_by_itself_is_out_and_is_named(settings: PlannedSweep) -> None:
    trials = trial_of(settings, "ga.sigma=0.1,0.2")
    good = Trainer({"ga.sigma=0.1": 5.0, "ga.sigma=0.2": 7.0})

    def train(planned: Sequence[PlannedRun], *, describe: object = None) -> list[ComparedRun]:
        failed = {"ga.sigma=0.2": "a loss is NaN"}
        return [
            replace(run, validation=None, failure=failed[run.method], outside=outside) if run.method in failed else run
            for run in good(planned)
        ]

    outside = True
    with pytest.raises(ResourceError, match=r"^ga\.sigma=0\.2: seed 1: a loss is NaN; this decides nothing about the"):
        Race(settings, Journal(settings.directory, {}), train).side_by_side(trials)
    assert not (settings.directory / race.FILE).exists()
    outside = False
    runs = Race(settings, Journal(settings.directory, {}), train).side_by_side(trials)
    assert runs[1].stages == (Standing("ga.sigma=0.2", (), "failed: seed 1: a loss is NaN"),)
    best = winner(runs)
    assert best is not None
    assert best.trial.name == "ga.sigma=0.1"


def test_a_trial_that_lacks_memory_in_two_tries_has_failed(settings: PlannedSweep) -> None:
    trials = trial_of(settings, "ga.sigma=0.1,0.2")

    def train(planned: Sequence[PlannedRun], *, describe: object = None) -> list[ComparedRun]:
        killed = training._failure(-signal.SIGKILL, "", "")
        assert killed is not None
        good = Trainer({"ga.sigma=0.1": 5.0})
        return [good([run])[0] if "0.1" in run.method else failed_run(run, killed) for run in planned]

    why = "seed 1: its process was ended by SIGKILL"
    with pytest.raises(ResourceError, match=rf"^ga\.sigma=0\.2: {why}; this decides nothing about the"):
        Race(settings, Journal(settings.directory, {}), train).side_by_side(trials)
    runs = Race(settings, Journal(settings.directory, {}), train).side_by_side(trials)
    assert runs[1].stages == (Standing("ga.sigma=0.2", (), f"failed: {why}"),)


def test_a_search_without_optuna_says_what_to_install(tmp_path: Path) -> None:
    (tmp_path / "tiny.toml").write_text(TINY)
    over = ("sweep", "tiny.toml", "--over", "ga.sigma=0.1..1:log")
    _, err = called(tmp_path, *over, "--search", "optuna", code=2, program="evo")
    assert err == "--search optuna and --trials N go together\n"
    try:
        import optuna  # noqa: F401
    except ImportError:
        _, err = called(tmp_path, *over, "--search", "optuna", "--trials", 3, code=2, program="evo")
        assert err.startswith("--search needs optuna")
        assert len(err.splitlines()) == 1
    assert not (tmp_path / "runs").exists()


OVER = ("ga.sigma=0.01..1:log", "ga.parents=2..6", "ga.elites=1,2")


@pytest.mark.parametrize(
    "values",
    [
        {}, {"ga.sigma": 0.1}, {"ga.sigma": 7.0, "ga.parents": 2, "ga.elites": "1"}, [],
        {"ga.sigma": "0.1", "ga.parents": 2, "ga.elites": "1"}, {"ga.sigma": 0.1, "ga.parents": 2.5, "ga.elites": "1"},
        {"ga.sigma": 0.1, "ga.parents": 2, "ga.elites": "3"},
    ],
)  # fmt: skip
def test_a_journal_with_values_that_no_search_can_have_chosen_is_refused(tmp_path: Path, values: object) -> None:
    found = {"format": FORMAT, "settings": {}, "stages": {}, "chosen": [values]}
    (tmp_path / "sweep.json").write_bytes(with_checksum(found))
    with pytest.raises(DataError, match=r"sweep\.json: is damaged"):
        Study(axes_of(OVER), 1, 4, Journal(tmp_path, {}))


def test_a_search_that_was_stopped_goes_on_with_the_values_that_its_journal_has(settings: PlannedSweep) -> None:
    pytest.importorskip("optuna")

    class Killed(Trainer):
        """Ends after some stages, or never; a trial's score follows from the length of its name."""

        def __init__(self, left: int) -> None:
            super().__init__({})
            self.left = left

        def __call__(self, planned: Sequence[PlannedRun], *, describe: object = None) -> list[ComparedRun]:
            self.left -= 1
            if not self.left:
                raise KeyboardInterrupt
            self.scores = {run.method: float(len(run.method)) for run in planned}
            return super().__call__(planned)

    def searched(directory: str, left: int = -1) -> tuple[list[str], int]:
        journal, trainer = Journal(Path(directory), {}), Killed(left)
        found = Race(settings, journal, trainer).searched(Study(axes_of(OVER), 1, 6, journal))
        return [f"{one.trial.name} {one.stages}" for one in found], len(trainer.trained)

    whole, trained = searched("whole")
    for left in (2, 2, 3, 1):
        with pytest.raises(KeyboardInterrupt):
            searched("pieces", left)
    pieces, rest = searched("pieces")
    assert (pieces, rest) == (whole, trained - 4 * len(settings.seeds))
    file = Path("pieces/sweep.json")
    assert file.read_bytes() == Path("whole/sweep.json").read_bytes()
    other = {"ga.sigma": 0.5, "ga.parents": 3, "ga.elites": "2"}  # what another version of Optuna had chosen
    found = {**json.loads(file.read_bytes()), "chosen": [other]}
    del found["crc"]
    file.write_bytes(with_checksum(found))
    assert searched("pieces")[0][0].startswith("ga.sigma=0.5,ga.parents=3,ga.elites=2 ")


def trained(run: PlannedRun) -> str:
    list(evo.train(run.experiment, run.directory))
    return ""


in_this_process = partial(train, begin=trained)


@pytest.mark.long
def test_a_race_of_real_runs_goes_on_from_one_stage_to_the_next(settings: PlannedSweep) -> None:
    trials = trial_of(settings, "ga.sigma=0.1,0.5")
    runs = Race(settings, Journal(settings.directory, {}), in_this_process).side_by_side(trials)
    best = winner(runs)
    assert best is not None
    straight = [run.experiment for run in settings.planned(best.trial, 1.0)]
    for experiment, score in zip(straight, best.stages[-1].scores, strict=True):
        *_, row = evo.train(experiment, f"straight-{experiment.run.seed}")
        assert row.champion is not None
        assert row.champion.fitness == score  # although the run was taken up at every stage


@pytest.mark.long
def test_a_race_that_is_killed_at_any_moment_is_decided_as_one_that_is_not(settings: PlannedSweep) -> None:
    trials = trial_of(settings, "ga.sigma=0.1,0.5")
    whole = Race(settings, Journal(Path("whole"), {}), in_this_process).side_by_side(trials)
    for run in (run for trial in trials for run in settings.planned(trial, 1.0)):
        shutil.rmtree(run.directory)
    kills, done = 0, False
    while not done:
        child = os.fork()
        if not child:
            Race(settings, Journal(settings.directory, {}), in_this_process).side_by_side(trials)
            os._exit(0)
        time.sleep(0.3 + 0.1 * kills)
        os.kill(child, signal.SIGKILL)
        done = not os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        kills += not done
    assert kills > 2
    assert Race(settings, Journal(settings.directory, {}), in_this_process).side_by_side(trials) == whole


@pytest.mark.long
def test_a_sweep_ends_with_its_winner_on_fresh_seeds_and_starts_no_run_twice(tmp_path: Path) -> None:
    (tmp_path / "tiny.toml").write_text(TINY)
    words = [
        "sweep",
        "tiny.toml",
        "--over",
        "ga.sigma=0.1,0.5",
        "--seeds",
        "1",
        "--retest",
        "2",
        "--directory",
        "trials",
    ]
    dry, _ = called(tmp_path, *words, "--dry-run", program="evo")
    assert "ga.sigma=0.5" in dry
    planned = json.loads(called(tmp_path, *words, "--dry-run", "--json", program="evo")[0].splitlines()[-1])
    assert [one["values"] for one in planned["trials"]] == [{"ga.sigma": "0.1"}, {"ga.sigma": "0.5"}]
    assert not (tmp_path / "trials").exists()
    out, _ = called(tmp_path, *words, program="evo")
    assert "retested on 2 fresh seeds" in out
    assert "report the last" in out
    runs = {path: path.stat().st_mtime_ns for path in tmp_path.rglob("manifest.jsonl")}
    assert len(runs) == 2 * 1 + 2
    again = json.loads(called(tmp_path, *words, "--json", program="evo")[0].splitlines()[-1])
    assert f"{again['winner']['name']} wins" in out
    assert {path: path.stat().st_mtime_ns for path in tmp_path.rglob("manifest.jsonl")} == runs


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        (["--over", "ga.sigma=0.2,0.3"], "--over ga.sigma=0.1,0.5"),
        (["--over", "ga.sigma=0.1,0.5", "--seeds", "1"], "--seed 1 --seeds 2"),
        (["--over", "ga.sigma=0.1,0.5", "--generations", "3"], "a budget of 4 generations"),
        (
            ["--over", "ga.sigma=0.1,0.5", "--set", "ga.episodes=2"],
            "other options of the experiment, or other code of its game or plug-ins",
        ),
        (["--over", "ga.sigma=0.2,0.3", "--seed", "7"], "--seed 1 --seeds 2 and --over ga.sigma=0.1,0.5"),
    ],
)
def test_what_another_sweep_of_the_directory_has_is_said(tmp_path: Path, changed: list[str], said: str) -> None:
    (tmp_path / "tiny.toml").write_text(TINY)
    words = ("sweep", "tiny.toml", "--seeds", "2", "--directory", "trials")
    planned = PlannedSweep.of(tmp_path / "tiny.toml", ["ga.sigma=0.1,0.5"], seeds=2, directory=tmp_path / "trials")
    planned.journal().write()
    _, err = called(tmp_path, *words, *changed, program="evo", code=2)
    assert err == f"trials: is a sweep with {said}; choose another --directory\n"


def test_a_trial_that_contradicts_the_file_is_named(tmp_path: Path) -> None:
    (tmp_path / "tiny.toml").write_text(TINY)
    words = ("sweep", "tiny.toml", "--dry-run", "--over", "ga.sigma=0.1", "--over", "ga.parents=8,1")
    _, err = called(tmp_path, *words, program="evo", code=2)
    line = TINY.splitlines().index("elites = 2") + 1
    assert err == f"--over ga.sigma=0.1 --over ga.parents=1: ga.elites: 2 of 1 parents (tiny.toml:{line})\n"
    _, err = called(tmp_path, *words, "--set", "ga.elites=3", program="evo", code=2)
    assert err == "--over ga.sigma=0.1 --over ga.parents=1: --set ga.elites: 3 of 1 parents\n"
    start = ("--set", f"run.init_from={ROOT / 'champions' / 'dqn_snake.h5'}", "--over", "ga.parents=2,4")
    _, err = called(tmp_path, *words[:3], *start, program="evo", code=2)
    assert err.startswith("--over ga.parents=2: run.init_from: ")


def test_what_the_library_cannot_sweep_is_refused(settings: PlannedSweep) -> None:
    for over, options, said in (
        ((), {}, "name an option with its values"),
        (("ga.sigma=0.1",), {"seeds": 0}, "--seeds: must be a whole number from 1 to 100, not 0"),
        (("ga.sigma=0.1..1",), {}, "needs --search optuna"),
        (("ga.sgma=0.1",), {}, "did you mean `sigma`"),
    ):
        with pytest.raises(evo.EvoError, match=said):
            evo.sweep("tiny.toml", *over, **options)  # type: ignore[arg-type]
    assert not Path("runs").exists()


@pytest.mark.parametrize(
    ("directory", "what"), [("tiny.toml", "file"), ("tiny.toml/runs", "file"), ("run", "run"), ("run/x/y", "run")]
)
def test_a_file_or_a_run_in_the_place_of_the_runs_is_named(tmp_path: Path, directory: str, what: str) -> None:
    (tmp_path / "tiny.toml").write_text(TINY)
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "manifest.jsonl").touch()
    words = ("sweep", "tiny.toml", "--over", "ga.sigma=0.1,0.5", "--directory", directory, "--dry-run")
    _, err = called(tmp_path, *words, program="evo", code=2)
    assert err == f"--directory: {directory.partition('/')[0]} is a {what}; choose another folder\n"


def test_what_is_no_run_of_the_sweep_is_named_with_the_option_of_its_place(tmp_path: Path) -> None:
    (tmp_path / "tiny.toml").write_text(TINY)
    words = ("tiny.toml", "--set", "ga.sigma=0.1", "--seed", "1", "--generations", "1", "--no-report")
    called(tmp_path, *words, "--run-dir", "there/ga.sigma=0.5-seed1")
    sweep = ("sweep", "tiny.toml", "--over", "ga.sigma=0.1,0.5", "--seeds", "1", "--directory", "there")
    _, err = called(tmp_path, *sweep, program="evo", code=2)
    refused, other = err.splitlines()
    assert refused == "choose another --directory, or move these away:"
    assert other == "there/ga.sigma=0.5-seed1: a run with other options: ga.sigma: 0.1 in the run, 0.5 now"


@pytest.mark.parametrize("name", ["retest", "retest/ga.sigma=0.5-seed2", "ga.sigma=0.1-seed1"])
def test_a_link_in_the_place_of_runs_is_named(tmp_path: Path, name: str) -> None:
    (tmp_path / "tiny.toml").write_text(TINY)
    link = tmp_path / "sweep" / name
    link.parent.mkdir(parents=True)
    link.symlink_to(tmp_path)
    words = ("sweep", "tiny.toml", "--over", "ga.sigma=0.1,0.5", "--directory", "sweep", "--dry-run")
    _, err = called(tmp_path, *words, program="evo", code=2)
    assert err == f"--directory: sweep/{name} is a link, which no sweep follows; move it away\n"


@pytest.mark.long
@pytest.mark.parametrize("search", ["grid", "optuna"])
def test_a_sweep_that_is_killed_again_and_again_ends_as_one_that_is_not(tmp_path: Path, search: str) -> None:
    words = ["--over", "ga.sigma=0.1,0.5", "--seeds", "2", "--retest", "2", "--json"]
    if search == "optuna":
        pytest.importorskip("optuna")
        words = ["--over", "ga.sigma=0.01..1:log", "--search", "optuna", "--trials", "3", *words[2:]]
    (tmp_path / "tiny.toml").write_text(TINY)
    line = [sys.executable, "-m", "evo", "sweep", "tiny.toml", *words]
    path = os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")])
    environment = {**os.environ, "PYTHONPATH": path}

    def a_run(sweep: int) -> int | None:
        """Return a process that trains a run of a trial."""
        for child in Path(f"/proc/{sweep}/task/{sweep}/children").read_text().split():
            words = Path(f"/proc/{child}/cmdline").read_bytes()
            if b"--resume" in words and b"/retest/" not in words:
                return int(child)
        return None

    def sweep(directory: str, seconds: float | None) -> str:
        process = subprocess.Popen(
            [*line, "--directory", directory], cwd=tmp_path, env=environment, stdout=subprocess.PIPE, text=True
        )
        with process:
            try:
                out = process.communicate(timeout=seconds)[0]
            except subprocess.TimeoutExpired:
                if kills % 2 and (run := a_run(process.pid)):
                    os.kill(run, signal.SIGTERM)
                    process.communicate()
                    assert process.returncode == 5
                else:
                    process.kill()
                    process.communicate()
                return ""
        assert process.returncode == 0
        return out

    began = time.monotonic()
    whole = sweep("whole", None)
    took, kills, pieces = time.monotonic() - began, 0, ""
    while not pieces:
        pieces = sweep("pieces", None if kills > 6 else took / 4 * (1 + kills / 4))
        kills += not pieces
    assert kills
    ours, theirs = (json.loads(out.splitlines()[-1]) for out in (whole, pieces))
    assert ours["trials"] == theirs["trials"]
    for name in ("name", "won_with", "validation", "test"):
        assert ours["winner"][name] == theirs["winner"][name]
