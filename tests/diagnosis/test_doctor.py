"""A diagnosis names what is wrong with a run, from the files of the run alone, and what to change can be typed."""

from __future__ import annotations

import json
import re
import shutil
from dataclasses import asdict
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium.wrappers import RescaleAction

from benchmarks.doctor import CASES, trained
from evo.config.experiment import Experiment
from evo.diagnosis.examination import diagnosis, still_rising
from evo.diagnosis.learning import takeover
from evo.diagnosis.signs import Finding, Signs
from evo.report.tables import times
from evo.report.verdict import trend
from evo.store.champion import Champion, Score
from evo.store.run import Run
from evo.store.run_directory import provenance
from evo.store.store import Store
from evo.training.testing import Baseline
from tests.helpers.calling import ROOT, SMALL, called
from tests.report.reports import Page

GENERATIONS = 12
TIMES = {"seconds": 1.0, "seconds_master": 0.1, "seconds_idle": 0.1, "seconds_committing": 0.01, "workers": 2.0}
SCORES = {"validation": 5.0, "test_return": 4.9, "best": 6.0, "mean": 4.0, "lane_utilisation": 0.9, **TIMES}
EVOLVING = {
    "signal_to_noise": 9.0, "improving": 0.08, "neutral": 0.0, "distinct": 1.0, "diversity": 0.3, "turnover": 0.3,
    "sigma": 0.08, "surviving_sigma": 0.05, "weight_rms": 0.4, "optimism": 0.2, **SCORES,
}  # fmt: skip
LEARNING = {
    "approx_kl": 0.01, "clip_fraction": 0.15, "gradient_norm": 0.6, "learning_rate": 0.002, "entropy": 0.6,
    "explained_variance": 0.5, "value_loss": 0.2, "updates": 32.0, **SCORES,
}  # fmt: skip
HEALTHY = {"ga": EVOLVING, "ppo": LEARNING}

ISLANDS = ("ga.population=230", "ga.islands=5", "ga.parents=5", "ga.elites=5")
# What is wrong: the algorithm, options, metrics, the finding, and words of its evidence.
WRONG: list[tuple[str, tuple[str, ...], dict[str, float], str, str]] = [
    ("ga", ("ga.episodes=2",), {"signal_to_noise": 1.5}, "noisy_selection", "1.5 times that of luck"),
    ("ga", ("ga.episodes=1",), {"signal_to_noise": np.nan}, "noisy_selection", "A candidate plays 1 episode"),
    ("ga", (), {"improving": 0.25, "sigma": 0.01}, "sigma_too_small", "25 % of the children beat their parent"),
    ("ga", (), {"improving": 0.005}, "sigma_too_large", "0.5 % of the children beat their parent"),
    ("ga", (), {"sigma": 2.0}, "sigma_too_large", "5 times the size of the weights"),
    ("ga", (), {"diversity": 0.001}, "collapsed_population", "differ by 0.1 % of their size"),
    ("ga", ("ga.parents=30", "ga.elites=30", "ga.population=32"), {"turnover": 0.02}, "stale_elites", "30 of 32"),
    ("ga", ISLANDS, {"diversity": 0.001, "sigma": 0.08}, "collapsed_population", "differ by 0.1 % of their size"),
    ("ga", (*ISLANDS, "ga.parents=200", "ga.elites=200"), {"turnover": 0.02}, "stale_elites", "200 of 230"),
    ("ga", (), {"optimism": 4.0}, "optimism_gap", "return 4 less in validation"),
    ("ga", (), {"test_return": 1.0}, "optimism_gap", "returns 4 less on test episodes"),
    ("ga", (), {"lane_utilisation": 0.3}, "idle_lanes", "30 % of the lane slots"),
    ("ga", (), {"seconds_idle": 0.6}, "idle_workers", "no task in 60 % of the time"),
    ("ga", (), {"seconds_master": 0.8}, "master_bound", "79 % of the time"),
    ("ppo", (), {"approx_kl": 0.08}, "learning_rate_too_large", "KL divergence of 0.08"),
    ("ppo", (), {"entropy": 0.001}, "entropy_collapse", "0.001 nats"),
    ("ppo", ("ppo.entropy_coefficient=0.0",), {"entropy": 0.5}, "no_entropy_bonus", "coefficient is 0"),
    ("ppo", (), {"explained_variance": -0.2}, "value_error", "explain -20 %"),
    ("ppo", ("ppo.envs=8",), {"lane_utilisation": 0.5}, "idle_lanes", "50 % of the lane slots"),
    ("ppo", (), {"validation": 8.0}, "optimism_gap", "returns 3.1 less on test episodes"),
]


def committed(directory: Path, algorithm: str, rows: list[dict[str, float]], *sets: str) -> Experiment:
    """Write a run whose generations have these metrics."""
    directory.with_suffix(".toml").write_text(SMALL)
    experiment = Experiment.load(directory.with_suffix(".toml"), f"run.algorithm={algorithm}", *sets)
    with Store.create(directory, experiment.to_toml(provenance()), experiment.identity()) as store:
        for generation, row in enumerate(rows):
            store.commit(generation, {"mean": np.zeros(1)}, {}, row, best=False)
    return experiment


def doctor(directory: Path) -> dict[str, Any]:
    out, _ = called(directory.parent, "doctor", directory.name, "--json", program="evo")
    found: dict[str, Any] = json.loads(out.splitlines()[-1])
    return found


@pytest.mark.parametrize(("algorithm", "sets", "metrics", "name", "evidence"), WRONG)
def test_what_is_wrong_is_named_with_numbers_and_options_that_can_be_typed(
    tmp_path: Path, algorithm: str, sets: tuple[str, ...], metrics: dict[str, float], name: str, evidence: str
) -> None:
    rows = [{**HEALTHY[algorithm], **metrics} for _ in range(GENERATIONS)]
    committed(tmp_path / "run", algorithm, rows, *sets)
    (found,) = doctor(tmp_path / "run")["findings"]
    assert found["name"] == name
    assert evidence in found["evidence"]
    for alternative in re.split(r" or (?=--)", found["change"]):
        changes = re.findall(r"--set (\S+=[^\s.]+(?:\.\d+)?)", alternative)
        assert changes or "--workers" in alternative
        Experiment.load(tmp_path / "run.toml", f"run.algorithm={algorithm}", *sets, *changes)


@pytest.mark.parametrize(("algorithm", "sets"), [("es", ()), ("ga", ("ga.crossover=mean",)), ("sep_cma_es", ())])
def test_luck_is_not_blamed_where_the_mean_of_many_candidates_goes_on(
    tmp_path: Path, algorithm: str, sets: tuple[str, ...]
) -> None:
    row = {**EVOLVING, "signal_to_noise": 0.1, "improving": float("nan"), "neutral": float("nan")}
    committed(tmp_path / "run", algorithm, [row] * GENERATIONS, *sets)
    assert "noisy_selection" not in {found["name"] for found in doctor(tmp_path / "run")["findings"]}


@pytest.mark.parametrize("algorithm", HEALTHY)
def test_of_a_healthy_run_one_line_says_what_was_looked_at(tmp_path: Path, algorithm: str) -> None:
    committed(tmp_path / "run", algorithm, [HEALTHY[algorithm]] * GENERATIONS)
    (line,) = called(tmp_path, "doctor", "run", program="evo")[0].splitlines()
    assert line.startswith("no problem found in 12 generations; looked at ")
    assert {"ga": "signal to noise 9", "ppo": "explained variance 0.5"}[algorithm] in line
    assert doctor(tmp_path / "run")["healthy"]


def test_two_findings_that_set_an_option_set_it_to_the_same_number(tmp_path: Path) -> None:
    sick = {**HEALTHY["ga"], "signal_to_noise": 0.5, "optimism": 4.0}
    committed(tmp_path / "run", "ga", [sick] * GENERATIONS)
    changes = {one["name"]: one["change"] for one in doctor(tmp_path / "run")["findings"]}
    values = {name: re.findall(r"ga\.episodes=(\d+)", change) for name, change in changes.items()}
    assert values["noisy_selection"] == values["optimism_gap"] != []


@pytest.mark.parametrize("algorithm", HEALTHY)
def test_equal_returns_are_the_finding_and_not_the_options_of_a_learner(tmp_path: Path, algorithm: str) -> None:
    flat = {**HEALTHY[algorithm], "improving": 0.0, "explained_variance": 0.0, "entropy": 1e-6, "signal_to_noise": 0.0}
    flat |= {"best": 0.0, "mean": 0.0, "validation": 0.0, "test_return": 0.0, "optimism": 0.0}
    committed(tmp_path / "run", algorithm, [flat] * GENERATIONS)
    (found,) = doctor(tmp_path / "run")["findings"]
    assert (found["name"], "were 0 in every generation" in found["evidence"]) == ("equal_returns", True)
    committed(tmp_path / "late", algorithm, [HEALTHY[algorithm], *[flat] * GENERATIONS])  # it had learned something
    assert "equal_returns" not in [one["name"] for one in doctor(tmp_path / "late")["findings"]]


def test_scores_that_are_not_finite_late_are_found(tmp_path: Path) -> None:
    rows = [{**HEALTHY["ga"], "nonfinite": 3.0 * (place > 5)} for place in range(GENERATIONS)]
    committed(tmp_path / "run", "ga", rows)
    (found,) = doctor(tmp_path / "run")["findings"]
    assert (found["name"], "3 candidates per generation" in found["evidence"]) == ("not_finite", True)
    committed(tmp_path / "early", "ga", rows[::-1])  # as before the first validation
    assert doctor(tmp_path / "early")["healthy"]


@pytest.mark.parametrize("high", [1000.0, 2.0])
def test_actions_far_from_outputs_are_the_finding_and_not_the_values(tmp_path: Path, high: float) -> None:
    def make() -> gymnasium.Env[Any, Any]:
        return RescaleAction(gymnasium.make("Pendulum-v1"), np.float32(0.0), np.float32(high))

    gymnasium.register(f"Far{high:.0f}-v0", make, max_episode_steps=200)
    sets = (f"environment.id=gymnasium:Far{high:.0f}-v0", "environment.normalise=0")
    experiment = Experiment.load(ROOT / "experiments" / "gymnasium" / "ppo_pendulum.toml", *sets)
    row = {**LEARNING, "explained_variance": 0.01}
    with Store.create(tmp_path / "run", experiment.to_toml(provenance()), experiment.identity()) as store:
        for generation in range(GENERATIONS):
            store.commit(generation, {"mean": np.zeros(1)}, {}, row, best=False)
    (found,) = diagnosis(Run(tmp_path / "run")).findings
    assert found.name == ("far_actions" if high > 20 else "value_error")
    assert high < 20 or "from 0 to 1000" in found.evidence


@pytest.mark.parametrize("slope", [0.0, -1.0, 1.0])
def test_a_run_whose_returns_still_rise_is_to_be_trained_longer(tmp_path: Path, slope: float) -> None:
    noise = [0.5 * (-1) ** generation for generation in range(16)]
    rows = [{**LEARNING, "mean": slope * generation + noise[generation]} for generation in range(16)]
    committed(tmp_path / "run", "ppo", rows)
    notes = [note for note in doctor(tmp_path / "run")["notes"] if "rising" in note]
    assert len(notes) == (slope > 0)
    assert not notes or notes[0].endswith("python -m evo resume run --generations 32")
    assert not notes or "(9.5 in the third quarter, 14 in the last)" in notes[0]


def test_a_run_that_has_not_ended_is_to_go_on_and_one_without_budget_to_get_more(tmp_path: Path) -> None:
    rows = [{**LEARNING, "mean": generation + 0.5 * (-1) ** generation, "frames": 1.0} for generation in range(16)]
    for change, words in (("run.generations=99", ""), ("run.budget={frames=9}", " --set 'run.budget={}'")):
        experiment = Experiment.load(ROOT / "experiments" / "ppo_snake.toml", "run.generations=99", change)
        name = f"run{len(words)}"
        with Store.create(tmp_path / name, experiment.to_toml(provenance()), experiment.identity()) as store:
            for generation, row in enumerate(rows):
                store.commit(generation, {"mean": np.zeros(1)}, {}, row, best=False)
        note = still_rising(Signs(Run(tmp_path / name)))
        assert note.endswith(f"resume {tmp_path / name}{words}"), note


@pytest.mark.parametrize("slope", [0.0, 1.0])
def test_a_report_says_where_training_still_rises_though_validation_does_not(tmp_path: Path, slope: float) -> None:
    noise = [0.5 * (-1) ** generation for generation in range(16)]
    rows = [
        {**LEARNING, "mean": slope * generation + noise[generation], "validation": min(generation, 5.0)}
        for generation in range(16)
    ]
    committed(tmp_path / "run", "ppo", rows)
    told = trend(Run(tmp_path / "run"))
    assert told.startswith("Its validation return had levelled off at the end")
    assert ("while returns in training were still rising" in told) == (slope > 0)


def test_shares_of_time_leave_out_the_generation_that_compiles(tmp_path: Path) -> None:
    first = {**LEARNING, "seconds": 100.0, "seconds_idle": 99.0}
    later = {**LEARNING, "seconds": 1.0, "seconds_idle": 0.25}
    committed(tmp_path / "run", "ppo", [first, *[later] * 4])
    assert ">25 %<" in times([Run(tmp_path / "run")])
    committed(tmp_path / "one", "ppo", [first])
    assert ">99 %<" in times([Run(tmp_path / "one")])


def test_gradients_that_explode_are_those_that_grow(tmp_path: Path) -> None:
    rows = [{**LEARNING, "gradient_norm": 0.6 * 2.0**generation} for generation in range(GENERATIONS)]
    committed(tmp_path / "run", "ppo", rows)
    assert [one["name"] for one in doctor(tmp_path / "run")["findings"]] == ["exploding_gradient"]


def test_a_gradient_that_is_not_finite_explodes_and_one_before_the_first_update_does_not(tmp_path: Path) -> None:
    unknown = {**LEARNING, "gradient_norm": np.nan}
    committed(tmp_path / "filling", "ppo", [{**unknown, "updates": 0.0}] * 2 + [LEARNING] * GENERATIONS)
    assert doctor(tmp_path / "filling")["findings"] == []
    committed(tmp_path / "broken", "ppo", [*[LEARNING] * GENERATIONS, unknown])
    assert [one["name"] for one in doctor(tmp_path / "broken")["findings"]] == ["exploding_gradient"]


def test_a_network_that_one_update_has_made_blind_is_known_by_its_constant_values(tmp_path: Path) -> None:
    blind = {**LEARNING, "explained_variance": 1e-9, "approx_kl": 0.003, "gradient_norm": 0.03}
    committed(tmp_path / "run", "ppo", [LEARNING, *[blind] * GENERATIONS])
    (found,) = doctor(tmp_path / "run")["findings"]
    assert (found["name"], "norm, 0.6 at its highest, is 0.03" in found["evidence"]) == (
        "learning_rate_too_large",
        True,
    )


@pytest.mark.parametrize(("algorithm", "advice"), [("ga", "--algorithm ppo, or more"), ("ppo", "Try more generations")])
def test_a_champion_below_the_random_player_is_found_and_one_above_it_is_not(
    tmp_path: Path, algorithm: str, advice: str
) -> None:
    committed(tmp_path / "run", algorithm, [HEALTHY[algorithm]] * GENERATIONS)
    random = {"random": Baseline(100, 1.39, (1.2, 1.6))}

    def findings(mean: float, players: dict[str, Baseline] | None = random) -> list[Finding]:
        test = asdict(Score(1000, mean, (mean - 0.1, mean + 0.1), mean, mean, None, None, 9.0))
        champion = Champion(np.zeros(1, np.float32), (), {"test": test})
        run = Run(tmp_path / "run")
        run._champion = champion
        return diagnosis(run, players).findings

    (found,) = findings(0.78)
    assert found.name == "worse_than_random"
    assert found.evidence.startswith(
        "The champion scores 0.78, a random player 1.4. It always takes its highest output"
    )
    assert f"`python -m evo evaluate {tmp_path / 'run'} --mode sample` draws" in found.evidence
    assert advice in found.change
    assert findings(1.15) == findings(1.39) == findings(2.0) == findings(0.0, {}) == []
    assert [one.name for one in findings(-1.0, None)] == ["worse_than_random"]  # it plays where it did not before


def test_a_short_run_is_not_judged_and_a_run_without_metrics_neither(tmp_path: Path) -> None:
    committed(tmp_path / "short", "ga", [{**EVOLVING, "improving": 0.0}] * 3)
    found = doctor(tmp_path / "short")
    assert (found["findings"], found["notes"]) == ([], ["only 3 generations: learning is examined from 10 on"])
    committed(tmp_path / "bare", "ga", [{}] * GENERATIONS)
    assert doctor(tmp_path / "bare")["healthy"]
    (tmp_path / "none").mkdir()
    assert "not a run directory" in called(tmp_path, "doctor", "none", program="evo", code=3)[1]


def test_a_champion_of_another_run_and_a_damaged_one_are_the_first_finding(small: Path) -> None:
    for name, seed in (("run", 1), ("other", 2)):
        called(small, "small.toml", "--run-dir", name, "--no-report", "--seed", seed)
    assert [one["name"] for one in doctor(small / "run")["findings"] if "file" in one["wrong"]] == []
    shutil.copy(small / "other" / "champion.h5", small / "run" / "champion.h5")
    first, why, change, *_ = called(small, "doctor", "run", program="evo")[0].splitlines()
    assert first.startswith("1. The champion's file is damaged or not of this run")
    assert why.startswith("   champion.h5: is not of this run: its seed is not the run's")
    assert "`python -m evo resume run`" in change
    (small / "run" / "champion.h5").write_bytes(b"nothing")
    found = doctor(small / "run")
    assert (found["findings"][0]["name"], found["healthy"]) == ("foreign_champion", False)
    called(small, "resume", "run", "--no-report", program="evo")
    assert "foreign_champion" not in [one["name"] for one in doctor(small / "run")["findings"]]


def test_a_configuration_that_is_not_that_of_the_run_is_found(small: Path) -> None:
    called(small, "small.toml", "--run-dir", "run", "--no-report")
    file = small / "run" / "config.resolved.toml"
    file.write_text(file.read_text().replace("population = 20", "population = 21"))
    assert doctor(small / "run")["findings"][0]["evidence"] == (
        "config.resolved.toml is not what the run was begun with: ga.population: 20 in the run, 21 now."
    )
    file.write_text(file.read_text().replace("size = 5", "size = 6"))
    assert [one["name"] for one in doctor(small / "run")["findings"]][:1] == ["damaged_files"]  # not of the champion


def test_the_takeover_of_a_population_is_that_of_its_ancestors(small: Path) -> None:
    called(small, "small.toml", "--run-dir", "run", "--no-report", "--generations", 12)
    run = Run(small / "run", trusted=True)
    records = list(run.store.records())
    ages = []
    for one in range(len(records[-1]["survivors"])):  # every line of descent by itself
        path, row = [], one
        for record in records[::-1]:
            if row < 0:
                break
            candidate = int(record["survivors"][row])
            path.append(candidate)
            row = int(record["parent"][candidate])
        ages.append(path)
    common = next((age for age, names in enumerate(zip(*ages, strict=False)) if len(set(names)) == 1), None)
    assert common is not None
    assert takeover(run) == common


def test_every_finding_is_on_the_page() -> None:
    page = (ROOT / "docs" / "doctor.md").read_text()
    known = {name for _, _, _, name, _ in WRONG} | {
        "exploding_gradient", "worse_than_random", "equal_returns", "far_actions", "not_finite", "unused_memory",
        "vanishing_gradient", "saturated_memory", "foreign_champion", "damaged_files",
    }  # fmt: skip
    assert {case.expected for case in CASES.values() if case.expected} <= known
    source = "".join(path.read_text() for path in (ROOT / "evo" / "diagnosis").glob("*.py"))
    assert set(re.findall(r'(?:^ +|label, )"([a-z]+(?:_[a-z]+)+)",', source, re.M)) == known
    assert [name for name in known if f"| `{name}` |" not in page] == []


def test_the_report_has_the_diagnosis(tmp_path: Path) -> None:
    committed(tmp_path / "run", "ga", [{**EVOLVING, "diversity": 0.001}] * GENERATIONS)
    found = diagnosis(Run(tmp_path / "run", trusted=True))
    called(tmp_path, "report", "run", program="evo")
    text = Page(tmp_path / "run" / "report.html").text
    assert all(
        words in text for words in (found.findings[0].wrong, found.findings[0].evidence, found.findings[0].change)
    )


@pytest.mark.long
@pytest.mark.parametrize("name", ["ga", "ga_small", "ga_copies", "ppo_fast"])
def test_runs_that_fail_on_purpose_are_found_out(tmp_path: Path, name: str) -> None:
    expected = CASES[name].expected
    found = trained(tmp_path, name, 1, keep=False)["findings"]
    assert (expected in found) if expected else not found
