"""A report: one file from the files of a run alone, whatever has become of the run, and it shows what they say."""

from __future__ import annotations

import base64
import hashlib
import json
import math
import re
import shutil
import tempfile
from contextlib import chdir
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import evo
from evo.comparison.runs import runs_in
from evo.diagnosis.examination import diagnosis
from evo.errors import ConfigurationError, DataError, ResourceError
from evo.files.durable import checksummed, without_checksum
from evo.games.catalogue.snake.pictures import board
from evo.games.catalogue.snake.players import greedy_player
from evo.games.pictures import Picture
from evo.plugins import registry
from evo.report import meanings, replays, tables
from evo.report import page as report_page
from evo.report.charts import rising
from evo.report.html import write_page
from evo.report.records import ancestry_of
from evo.report.verdict import method_named, short_name, verdict_of_several
from evo.store.champion import read_champion
from evo.store.metrics import one_line
from evo.store.run import Run
from evo.store.store import Store
from snake.rules import Game
from tests.helpers.calling import ROOT, SMALL, called, nobody, small_with, summary_of
from tests.report.reports import Page, bodies, pictures

HOSTILE = "<script>alert(1)<!--"
MINUTES = SMALL.replace("generations = 4", "generations = 12").replace("every = 2", "every = 3")


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, Any]]:
    """A run that has ended, with the report that it wrote, and its summary."""
    place = tmp_path_factory.mktemp("made")
    (place / "small.toml").write_text(MINUTES)
    summary = summary_of(place, "small.toml", "--run-dir", "run")
    return place / "run", summary


@pytest.fixture
def run(made: tuple[Path, dict[str, Any]], tmp_path: Path) -> Path:
    return Path(shutil.copytree(made[0], tmp_path / "run"))


@pytest.fixture(scope="module")
def other(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, Any]]:
    """The same with another seed, in a directory of a hostile name."""
    place = tmp_path_factory.mktemp("other")
    (place / "small.toml").write_text(MINUTES)
    summary = summary_of(place, "small.toml", "--seed", "2", "--run-dir", HOSTILE)
    return place / HOSTILE, summary


def page_of(*runs: Path, output: Path | None = None) -> Page:
    """Write a report in this process alone, and read it."""
    made = report_page.Page([report_page.reported(Run(run, trusted=True), {}) for run in runs])
    return Page(write_page(made.html(), output or runs[0] / "report.html"))


def metrics_of(run: Path) -> list[dict[str, Any]]:
    return [without_checksum(line) for line in (run / "metrics.jsonl").read_bytes().splitlines()]


def rewrite(run: Path, lines: list[dict[str, Any]]) -> None:
    (run / "metrics.jsonl").write_bytes(b"".join(checksummed(one_line(line).encode()) + b"\n" for line in lines))


def test_a_run_ends_with_the_report_that_the_command_writes_and_equal_runs_have_equal_ones(
    made: tuple[Path, dict[str, Any]], run: Path, tmp_path: Path
) -> None:
    written = (run / "report.html").read_bytes()
    (run / "report.html").unlink()
    files = {path: path.read_bytes() for path in sorted(run.rglob("*")) if path.is_file()}
    out, err = called(run.parent, "report", "run", program="evo")
    assert (out, err) == ("report     run/report.html\n", "")
    assert (run / "report.html").read_bytes() == written
    assert {path: path.read_bytes() for path in files} == files
    assert {path for path in run.rglob("*") if path.is_file()} == {*files, run / "report.html"}
    elsewhere = shutil.copytree(made[0], tmp_path / "far" / "away" / "run")
    assert evo.write_report(elsewhere).read_bytes() == written
    assert str(tmp_path).encode() not in written


def test_a_report_needs_nothing_else_and_shows_the_scores_of_the_run(
    made: tuple[Path, dict[str, Any]], run: Path
) -> None:
    page, test = Page(run / "report.html"), made[1]["champion"]["test"]
    watch, _, script = (base64.b64encode(hashlib.sha256(one.encode()).digest()).decode() for one in page.scripts)
    allowed = f"script-src 'sha256-{watch}' 'sha256-{script}'"
    assert page.policy == f"default-src 'none'; style-src 'unsafe-inline'; img-src data: blob:; {allowed}"
    assert page.sentence.startswith("A genetic algorithm trained a multilayer perceptron of ")
    rows = {line["generation"]: line for line in metrics_of(run)}.values()
    frames, validating = (sum(row[name] for row in rows) for name in ("frames", "frames_validating"))
    assert f"{frames:,.0f} frames and {validating:,.0f} of validation, " in page.sentence
    assert f"Its champion scores {test['mean']:.2f} fruits on 20 test episodes" in page.text
    assert f"(95 % interval {test['ci95'][0]:.2f} to {test['ci95'][1]:.2f})" in page.text
    for said in (
        "a random player 0.",
        "a greedy player ",
        "One seed proves little",
        made[1]["state_hash"],
        "run.generations",
    ):
        assert said in page.text
    charts = {chart["title"]: chart for chart in page.data["charts"]}
    drawn = [value for value in charts["Test score of the champion"]["series"][0]["values"] if value is not None]
    assert drawn == pytest.approx([line["test"] for line in metrics_of(run) if "test" in line], rel=1e-5)
    assert charts["Test score of the champion"]["spans"][0]["low"] == pytest.approx(test["ci95"][0], rel=1e-5)
    assert [level["label"] for level in charts["Test score of the champion"]["levels"]] == [
        "random", "greedy", "shortest", "hamiltonian",
    ]  # fmt: skip
    assert page.data["runs"][0]["frames"][-1] == frames
    assert {"Return", "Where the time went", "Returns of all candidates", "sigma"} <= charts.keys()
    assert sum(map(sum, charts["Returns of all candidates"]["counts"])) == 12 * 20


def test_names_and_intervals_are_explained_where_they_stand(run: Path) -> None:
    page = Page(run / "report.html")
    assert f"lane_utilisation, {meanings.METRICS['lane_utilisation']}" in page.text
    assert f"workers 1 ({meanings.METRICS['workers']})" in page.text
    assert meanings.TIMES in page.text
    assert "of a hundred such intervals, about 95 or more hold that mean" in page.text
    assert "The other players need no learning." in page.text
    assert "their return is what to expect" in page.text
    source = Run(run)
    looked_at = ", ".join(diagnosis(source).looked_at).split(", ")
    assert [sign for sign, _ in meanings.of_signs(looked_at)] == looked_at != []
    for sign, means in meanings.of_signs(looked_at):
        assert f"{sign}: {means}" in page.text


def test_every_metric_is_shown_somewhere(run: Path) -> None:
    lines = [{**line, "loss": 1 / (1 + i), "q.b": i} for i, line in enumerate(metrics_of(run))]
    rewrite(run, lines)
    page = page_of(run)
    shown = {series["label"] for chart in page.data["charts"] for series in chart.get("series", [])}
    names = {name for line in lines for name in line if line[name] is not None} - {"generation"}
    assert "loss" in shown
    for name in names:
        assert name in shown or name.removeprefix("seconds_") in shown or f"{name} " in page.text, name


def test_the_replays_are_the_episode_as_it_was_played(run: Path) -> None:
    page = Page(run / "report.html")
    labels = [replay["label"] for replay in page.data["replays"]]
    assert labels[0] == "Champion"
    assert labels[-1] == "A parent of the last generation"
    replay = page.data["replays"][0]
    out, _ = called(run.parent, "replay", run, "--episode", replay["episode"], "--json", program="evo")
    played = json.loads(out.splitlines()[-1])
    typical, _ = called(run.parent, "replay", run, "--json", program="evo")
    assert json.loads(typical.splitlines()[-1]) == played
    assert (played["score"], played["steps"]) == (replay["score"], replay["steps"])
    game, shown = Game(size=5, starvation=30, actions="relative", seed=played["seed"]), bodies(replay)
    for (body, fruit), action in zip(shown[:-1], played["actions"], strict=True):
        assert body == [row * 5 + column for row, column in game.body]
        assert game.fruit is not None
        assert fruit == game.fruit[0] * 5 + game.fruit[1]
        game.step(action)
    assert shown[-1][0] == [row * 5 + column for row, column in game.body]
    assert game.over


def test_a_board_is_packed_without_loss(run: Path) -> None:
    game = Game(size=6, seed=3, starvation=100, start_length=3)
    boards = [board(game)]
    while not game.over:
        game.step(greedy_player(game))
        boards.append(board(game))
    found = bodies(replays.packed(boards))
    assert [body for body, _ in found] == [[6 * r + c for r, c in one.body] for one in boards]
    assert [fruit for _, fruit in found] == [
        -1 if one.fruit is None else 6 * one.fruit[0] + one.fruit[1] for one in boards
    ]


@pytest.mark.parametrize("colours", [3, 5000])
def test_pictures_are_packed_without_loss_where_they_have_few_colours(colours: int) -> None:
    random = np.random.default_rng(1)
    palette = random.integers(0, 256, (colours, 3), dtype=np.uint8)
    drawn = [palette[random.integers(0, colours, (9, 7))] for _ in range(90)]
    found = pictures(replays.packed([Picture(one, f"return {i}") for i, one in enumerate(drawn)]))
    assert found.shape == (90, 9, 7, 3)
    furthest = np.abs(found.astype(int) - np.stack(drawn)).max()
    assert furthest == 0 if colours == 3 else 0 < furthest < 128


def test_of_very_many_pixels_every_so_many_frames_are_kept_and_the_last_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(replays, "MOST_PIXELS", 100)
    drawn = [np.full((4, 5, 3), i, np.uint8) for i in range(18)]
    found = replays.packed([Picture(one) for one in drawn])
    assert found["every"] == 4
    assert pictures(found)[:, 0, 0, 0].tolist() == [1, 5, 9, 13, 17]


def test_the_lineage_is_that_of_the_champion_back_to_its_first_ancestor(run: Path) -> None:
    source = Run(run)
    found, about = ancestry_of(source), read_champion(run).about
    first, records = found.lineage[0], Store.read(run).records()
    assert (first.generation, first.candidate) == (about["generation"], about["candidate"])
    assert first.sigma == about["lineage"]["sigma"]
    assert found.founded
    for child, parent in zip(found.lineage, found.lineage[1:], strict=False):
        assert parent.generation == child.generation - 1
        row = int(records[child.generation]["parent"][child.candidate])
        assert int(records[parent.generation]["survivors"][row]) == parent.candidate
        assert child.kept == (child.sigma == 0)
    last = found.lineage[-1]
    assert records[last.generation]["parent"][last.candidate] == -1
    assert first.mean_return == records[first.generation]["return"][first.candidate] / 4000
    text = Page(run / "report.html").text
    assert f"{found.lineage[0].mean_return:.2f}" in text
    assert "on the first 32 test episodes" not in text  # the test return is the recorded one


def test_the_lines_that_repeat_a_run_end_with_its_state_hash(made: tuple[Path, dict[str, Any]], tmp_path: Path) -> None:
    lines = Page(made[0] / "report.html").again.splitlines()
    end = lines.index(tables.END)
    assert lines[0] == f"cat > again.toml <<'{tables.END}'"
    assert lines[end + 1] == "python -m evo.run again.toml --run-dir again"
    (tmp_path / "again.toml").write_text("\n".join(lines[1:end]))
    words = lines[end + 1].split()[3:]
    assert summary_of(tmp_path, *words, "--no-report")["state_hash"] == made[1]["state_hash"]
    assert not (tmp_path / "again" / "report.html").exists()


def test_a_file_of_differences_loads_as_the_same_experiment() -> None:
    sections = {
        "run": {"seed": 3, "generations": 7},
        "environment": {"size": 6, "rewards": {"death": -0.5}},
        "ga": {"sigma": 0.3},
    }
    experiment = evo.Experiment.build(**sections)
    found = {name: (value, default) for name, value, default in tables.differences(experiment)}
    assert found["ga.sigma"] == ("0.3", "0.1")
    assert found["run.seed"] == ("3", "1")
    assert "death = -0.5" in found["environment.rewards"][0]
    assert "ga.population" not in found
    assert tables.experiment_text(experiment).count("\n") < 20


def test_a_report_of_a_killed_run_says_what_there_is(run: Path) -> None:
    for name in ("champion.h5", "champion.json", "report.html"):
        (run / name).unlink()
    with (run / "metrics.jsonl").open("a") as file:
        file.write('{"generation": 12, "mea')
    manifest = (run / "manifest.jsonl").read_bytes()
    (run / "manifest.jsonl").write_bytes(manifest[: manifest.rindex(b"\n", 0, -1) - 40])
    page = page_of(run)
    assert "no champion yet" in page.text
    assert "12 generations were asked for" in page.text
    assert page.data["replays"] == []
    assert any(chart["title"] == "Return" for chart in page.data["charts"])


def test_a_report_of_a_run_without_a_generation_has_no_charts(run: Path) -> None:
    manifest = (run / "manifest.jsonl").read_bytes()
    (run / "manifest.jsonl").write_bytes(manifest[: manifest.index(b"\n") + 1])
    for name in ("champion.h5", "champion.json", "metrics.jsonl"):
        (run / name).unlink()
    page = page_of(run)
    assert "no generation is committed yet" in page.text
    assert page.data["charts"] == []


def test_a_report_of_one_generation_says_that_it_is_little(tmp_path: Path) -> None:
    (tmp_path / "one.toml").write_text(SMALL)
    called(tmp_path, "one.toml", "--generations", "1", "--run-dir", "run")
    page = Page(tmp_path / "run" / "report.html")
    assert "(1 generation, " in page.sentence
    assert "too few validations" in page.text


def test_several_runs_are_overlaid_whatever_their_names_are(
    made: tuple[Path, dict[str, Any]], other: tuple[Path, dict[str, Any]], run: Path, tmp_path: Path
) -> None:
    alone = Page(other[0] / "report.html")
    assert alone.elements.count("script") == 3
    assert HOSTILE in alone.text
    page = page_of(run, other[0], output=tmp_path / "both.html")
    assert page.elements.count("script") == 3
    assert [one["name"] for one in page.data["runs"]] == ["run", HOSTILE]
    charts = {chart["title"]: chart for chart in page.data["charts"]}
    test = charts["Test score of the champion"]
    assert [series["label"] for series in test["series"]] == ["run", HOSTILE]
    assert len({series["colour"] for series in test["series"]}) == len(test["spans"]) == 2
    assert [replay["label"] for replay in page.data["replays"]] == ["run", HOSTILE]
    means = [summary["champion"]["test"]["mean"] for summary in (made[1], other[1])]
    assert f"They differ in their seed alone: the mean of their scores is {sum(means) / 2:.2f}, " in page.text


def test_each_of_several_runs_is_announced_and_equal_tests_have_baselines_that_play_once(
    run: Path, other: tuple[Path, dict[str, Any]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lines, played = list[str](), list[int]()
    play = report_page.baselines
    monkeypatch.setattr(report_page, "baselines", lambda *words: played.append(1) or play(*words))
    evo.write_report(run, other[0], output=tmp_path / "both.html", progress=lines.append)
    assert lines == ["reading run 1 of 2: run", f"reading run 2 of 2: {HOSTILE}"]
    assert len(played) == 1
    assert "a greedy player" not in Page(tmp_path / "both.html").text
    evo.write_report(run, progress=lines.append)
    assert len(lines) == 2


def test_runs_of_one_name_are_told_apart_by_the_shortest_path(
    run: Path, other: tuple[Path, dict[str, Any]], tmp_path: Path
) -> None:
    shutil.copytree(run, tmp_path / "here" / "a" / "s")
    shutil.copytree(other[0], tmp_path / "here" / "b" / "s")
    called(tmp_path, "report", "here/a/s", "here/b/s", "--output", "both.html", program="evo")
    page = Page(tmp_path / "both.html")
    assert [one["name"] for one in page.data["runs"]] == ["a/s", "b/s"]
    assert "<title>Report of a/s, b/s</title>" in (tmp_path / "both.html").read_text()
    twice = called(tmp_path, "report", "here/a/s", "here/a/s", "--output", "both.html", program="evo", code=2)[1]
    assert twice == "here/a/s: is named twice; leave one out\n"


def test_a_method_is_named_as_its_own_file_names_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(registry, "_loaded", {})
    registry.load(["tests.plugins.climber"])
    said = {name: method_named(name) for name in registry.names("algorithms")}
    assert said["ga"] == "A genetic algorithm"
    assert said["es"] == "A plain evolution strategy"
    assert said["dqn"] == "Deep Q-learning"
    assert said["climber"] == "A plug-in algorithm"
    for name, text in said.items():
        assert re.fullmatch(r"[A-Z][\w -]{2,40}", text), (name, text)


def test_an_algorithm_whose_file_begins_with_no_short_name_is_called_by_its_own() -> None:
    assert short_name("Nelder-Mead (1965). It needs no gradients.") == "Nelder-Mead"
    assert short_name("") == ""
    assert short_name("An algorithm that takes weights and gives back others which may be better.") == ""


def test_scores_of_different_boards_are_not_ranked(
    run: Path, other: tuple[Path, dict[str, Any]], tmp_path: Path
) -> None:
    (tmp_path / "larger.toml").write_text(SMALL.replace("size = 5", "size = 6"))
    called(tmp_path, "larger.toml", "--run-dir", "larger", "--generations", "1", "--no-report")
    snake, larger, again = (Run(directory, trusted=True) for directory in (run, tmp_path / "larger", other[0]))
    sentences = verdict_of_several([snake, larger])
    assert sentences == [
        "2 runs, of which 2 have a test score.",
        "They see or play different things, so their scores are not compared.",
    ]
    of_one_game = verdict_of_several([snake, again])[1:]
    assert "scores highest" in of_one_game[0]
    assert "They differ in their seed alone" in of_one_game[1]
    again.store.identity = {**again.store.identity, "game": {"sources": "0123456789abcdef"}}  # of another code
    assert verdict_of_several([snake, again]) == sentences


def test_equal_scores_are_not_ranked_and_one_score_is_not_the_lowest(run: Path, tmp_path: Path) -> None:
    again, bare = (Path(shutil.copytree(run, tmp_path / name)) for name in ("again", "bare"))
    (bare / "champion.h5").unlink()
    one, same, untested = (Run(place, trusted=True) for place in (run, again, bare))
    assert one.score is not None
    score = f"{one.score.mean:.2f}"
    assert verdict_of_several([one, same])[1] == f"They all score {score}."
    assert verdict_of_several([one, untested]) == [
        "2 runs, of which 1 has a test score.",
        f"run scores {score}.",
        "Some have the same first generations, so they are not independent seeds.",
    ]


def test_what_no_run_has_taken_is_no_share_of_its_time(run: Path) -> None:
    lines = metrics_of(run)
    for line in lines:
        line |= {"seconds": 1e-320, "seconds_acting": 1e149, "seconds_moving": -1.0, "seconds_learning": 0.0}
    rewrite(run, lines)
    (times,) = tables.times([Run(run)]).split("<tr>")[2:]
    assert [cell.partition("<")[0] for cell in times.split('">')[5:]] == ["-", "-", "-", "0 %", "-"]


def test_a_report_of_a_fork_says_so_first_and_does_not_say_that_lines_train_the_same_again(run: Path) -> None:
    with chdir(run.parent):
        called(run.parent, "--resume", "run", "--fork", "other", "--no-report", "--generations", 2)
        page = page_of(Path("runs", "other"))
        both = page_of(run, Path("runs", "other"), output=Path("both.html"))
    said = "began with the state of another run, and what that had spent is not counted."
    assert f"). It is a fork: it {said} Its champion scores" in page.sentence
    assert f"As a fork, other {said}" in both.text
    assert "train the same again" not in page.text
    assert "is a fork" not in page_of(run).text


def test_a_run_that_ends_without_a_champion_will_have_none(tmp_path: Path) -> None:
    (tmp_path / "never_finite.py").write_text("def fitness(x):\n    return float('nan')\n")
    (tmp_path / "never.toml").write_text(small_with(environment='id = "problem:never_finite"\nsize = 3', policy=""))
    called(tmp_path, "never.toml", "--plugin", "never_finite", "--run-dir", "run", "--generations", 1)
    page = page_of(tmp_path / "run")
    assert "It has no champion: nothing was validated, or no finalist had finite scores." in page.text
    (found,) = runs_in([tmp_path / "run"])
    assert found.failure == "it has no champion: nothing was validated, or no finalist had finite scores"


def test_metrics_that_nobody_would_write_are_left_out(run: Path) -> None:
    lines = metrics_of(run)
    for i, line in enumerate(lines):
        line |= {"mean": None, "best": float("nan") if i % 2 else float("inf"), "</script><!--": i, "x" * 100: i}
        line |= {"test": "<b>", "seconds": -(10**400), "sigma": [1], "validation": True}
    rewrite(run, [*lines, {"generation": "<b>"}, {"generation": 10**30}, {"generation": -1}])
    page = page_of(run)
    assert page.elements.count("script") == 3
    assert not {"Return", "sigma", "x" * 100, "</script><!--"} & {chart["title"] for chart in page.data["charts"]}


def test_a_champion_of_another_run_and_a_damaged_one_are_left_out_and_named(
    run: Path, other: tuple[Path, dict[str, Any]]
) -> None:
    shutil.copy(other[0] / "champion.h5", run / "champion.h5")
    assert "champion.h5: is not of this run: its seed is not the run's" in page_of(run).text
    (run / "champion.h5").write_bytes(b"nothing")
    evo.write_report(run)
    assert "not a readable HDF5 file" in Page(run / "report.html").text


@pytest.mark.long
def test_an_episode_of_another_game_is_drawn_from_its_pictures(tmp_path: Path) -> None:
    (tmp_path / "catch.toml").write_text(small_with(environment='id = "catch"'))
    called(tmp_path, "catch.toml", "--run-dir", "run", "--generations", "2")
    page = Page(tmp_path / "run" / "report.html")
    replay = page.data["replays"][0]
    assert replay["kind"] == "picture"
    assert len(pictures(replay)) == replay["frames"] == replay["steps"] + 1
    assert "a random player" in page.text
    assert "Optimism gap" in page.text


@pytest.mark.long
def test_a_decision_tree_is_shown_as_python(tmp_path: Path) -> None:
    few = ("--set", "gp.population=12", "--set", "gp.elites=2", "--set", "test.episodes=8", "--generations", 2)
    catch = ("--set", "environment.id=catch")  # which other tests compile
    called(tmp_path, ROOT / "experiments" / "games" / "gp_cartpole.toml", "--run-dir", "run", *few, *catch)
    shown = called(tmp_path, "export", "run", "--to", "python", program="evo")[0]
    page = Page(tmp_path / "run" / "report.html")
    assert shown[shown.index("def act") :].strip() in page.text
    assert "Genetic programming trained a decision tree of" in page.text
    assert "Returns of all candidates" in page.text


@pytest.mark.parametrize(
    ("output", "said"),
    [("report.txt", "must end with .html"), ("nowhere/report.html", "no file can be written there")],
)
def test_a_place_where_no_report_can_be_written_is_refused(run: Path, output: str, said: str) -> None:
    with pytest.raises(ConfigurationError, match=said):
        evo.write_report(run, output=run / output)


def test_a_run_that_may_not_be_written_is_named_before_it_is_read(run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(report_page, "reported", None)
    with tempfile.TemporaryDirectory(dir="/tmp") as folder:  # where another user may look, too
        Path(folder).chmod(0o755)
        shutil.copytree(run, Path(folder) / "run")
        with nobody(), pytest.raises(ResourceError, match=r"cannot write .*report\.html: Permission denied"):
            evo.write_report(Path(folder) / "run")


def test_several_runs_need_a_name_and_something_else_is_no_run(run: Path) -> None:
    err = called(run.parent, "report", "run", "another", program="evo", code=2)[1]
    assert err.startswith("--output: name the file")
    assert "no such file" in called(run.parent, "report", "nowhere", program="evo", code=3)[1]
    with pytest.raises(DataError, match="not a run directory"):
        evo.write_report(run / "champion.h5")


def test_a_file_that_is_no_report_is_not_replaced_unless_it_is_named(small: Path) -> None:
    called(small, "small.toml", "--generations", "1", "--run-dir", "run", "--no-report")
    mine, said = small / "run" / "report.html", "run/report.html is there, and is no page of this program; move it"
    mine.write_text("<h1>mine</h1>")
    out, err = called(small, "--resume", "run", "--generations", "2")
    assert f"note: no report was written ({said}" in err
    assert "report  " not in out
    assert called(small, "report", "run", program="evo", code=2)[1].startswith(said)
    assert mine.read_text() == "<h1>mine</h1>"
    called(small, "report", "run", "--output", "run/report.html", program="evo")
    called(small, "report", "run", program="evo")  # a page is replaced


def test_a_report_that_cannot_be_written_does_not_fail_the_run(small: Path) -> None:
    called(small, "small.toml", "--generations", "1", "--run-dir", "run", "--no-report")
    (small / "run" / "report.html").mkdir()
    out, err = called(small, "--resume", "run", "--generations", "2")
    assert err.count("note: no report was written") == 1
    assert "report  " not in out
    assert (small / "run" / "report.html").is_dir()


@pytest.mark.parametrize(
    ("validation", "expected"),
    [
        ([1, 2, 3], None),
        ([5, 5, 5, 5], False),
        ([0, 1, 2, 3, 4, 5, 6, 7], True),
        ([0, 9, 9.5, 9.7, 9.8, 9.9, 9.9, 10], False),
        ([0, math.nan, 4, math.nan, 8, 12], True),
    ],
)
def test_a_curve_rises_where_its_last_quarter_still_brings_much(validation: list[float], expected: bool | None) -> None:
    run = Run("run")
    run.metrics = [{"validation": value} for value in validation]
    assert rising(run) is expected


@pytest.mark.parametrize(("algorithm", "expected"), [("es", [3, 1]), ("ga", [3, 2, 1, 0])])
def test_only_a_run_with_a_lineage_has_all_of_its_records_read(
    algorithm: str, expected: list[int], small: Path
) -> None:
    options = ["--set", "es.population=20", "--set", "es.parents=4", "--set", "es.episodes=4"]
    called(small, "small.toml", "--run-dir", "run", "--algorithm", algorithm, "--no-report", *options)
    assert [generation for generation, _ in Run(small / "run").newest_records([], 2)] == expected
