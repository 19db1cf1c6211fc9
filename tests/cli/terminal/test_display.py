"""A run shows itself as suits who looks: a table to a person, lines to a pipe."""

from __future__ import annotations

import io
import math
import os
import pty
import re
import select
import subprocess
import sys
import time
from pathlib import Path

import pytest

from evo.cli.terminal.display import Display, Lines, Pace, headline
from evo.cli.terminal.screen import Screen
from evo.cli.training import display_for, ending
from evo.config.experiment import Experiment
from evo.numbers import amount, duration
from evo.run import Row
from evo.store.champion import ChampionScore, Score
from evo.store.metrics import Summary
from evo.training.testing import Baseline
from tests.helpers.calling import small_with

ROOT = Path(__file__).parents[3]
METRICS = {"best": 3.214, "mean": 1.0, "validation": 2.5, "frames": 6e5, "lane_utilisation": 0.75, "seconds": 2.0}
IDLE = {"seconds_acting": 1.8, "seconds_idle": 0.075, "seconds_moving": 0.0, "seconds_learning": 0.0,
        "seconds_master": 0.125, "seconds_straggling": 0.25, "seconds_committing": 0.02,
        "bytes_published": 1e6, "bytes_sent": 0, "bytes_received": 0}  # fmt: skip
TINY = small_with(run="generations = 3", workers="count = 1", test="episodes = 10")


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.mark.parametrize(
    ("terminal", "environment", "kind"),
    [
        (True, {}, Screen),
        (False, {}, Lines),
        (True, {"CI": "true"}, Lines),
        (True, {"TERM": "dumb"}, Lines),
        (True, {"NO_COLOR": "1"}, Screen),
    ],
)
def test_only_a_person_at_a_terminal_gets_a_table(
    terminal: bool, environment: dict[str, str], kind: type, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in {"CI": "", "NO_COLOR": "", "TERM": "xterm", **environment}.items():
        monkeypatch.setenv(name, value)
    output = Terminal() if terminal else io.StringIO()
    assert type(display_for(False, output=output)) is kind
    assert type(display_for(True, output=output)) is Display


def test_a_plain_line_says_what_the_table_says(capsys: pytest.CaptureFixture[str]) -> None:
    with Lines(verbose=True) as lines:
        lines.generation(Row(9, METRICS | IDLE | {"test": 2.25}, None, False, Path()), 12)
        lines.generation(Row(10, METRICS, None, False, Path()), 12)
    first, second = capsys.readouterr().out.splitlines()
    assert first == (
        "generation 10/12  best 3.21  mean 1.00  validation 2.50  test score 2.25  300 k frames/s  "
        "lane utilisation 75 %  acting 90 %  time left -"
    )
    assert "test score 2.25" in second  # of the champion that was tested last
    with Lines() as lines:
        lines.generation(Row(9, METRICS | IDLE, None, False, Path()), 12)
    assert capsys.readouterr().out.endswith("test score -  300 k frames/s  time left -\n")


def test_no_score_is_a_negative_zero_and_nothing_is_counted_in_a_wrong_plural(
    capsys: pytest.CaptureFixture[str],
) -> None:
    with Lines() as lines:
        lines.generation(Row(0, METRICS | {"best": -0.001, "mean": -0.0}, None, False, Path()), 1)
    score = Score(1, -0.0, (-0.0001, 0.0), -0.0, -0.0, None, None, 1.0)
    read = Experiment.load(ROOT / "experiments/ga_snake_6x6.toml")
    ending(read, Summary(run_dir="runs/one", generations=1, champion=ChampionScore(-0.001, score)), Display(), None)
    shown = capsys.readouterr().out
    assert "best 0.00  mean 0.00" in shown
    assert "validation return 0.00" in shown
    assert "0.00 on 1 test episode\n" in shown
    assert "median 0, best 0\n" in shown


def test_what_an_algorithm_does_not_report_is_a_dash(capsys: pytest.CaptureFixture[str]) -> None:
    with Lines(verbose=True) as lines:
        lines.generation(Row(0, {"best": math.nan, "seconds": 1.0}, None, False, Path()), 1)
    out = capsys.readouterr().out
    assert "best -  mean -  validation -  test score -  - frames/s  lane utilisation -  acting -" in out


def test_the_time_left_forgets_the_first_generation_which_has_started_the_workers() -> None:
    pace = Pace()
    for generation, seconds in enumerate((60.0, 2.0, 4.0)):
        row = Row(generation, {"seconds": seconds}, None, False, Path())
        pace.add(row)
        assert math.isnan(pace.left(row, 10)) == (generation == 0)
    assert pace.left(row, 10) == 7 * 3.0


@pytest.mark.parametrize(
    ("seconds", "said"), [(0, "0 s"), (59, "59 s"), (61, "1:01 min"), (3599.5, "1:00 h"), (7260, "2:01 h")]
)
def test_durations_are_said_as_people_say_them(seconds: float, said: str) -> None:
    assert duration(seconds) == said


@pytest.mark.parametrize(("value", "said"), [(7.0, "7"), (1500, "1.5 k"), (1_140_000, "1.14 M"), (math.nan, "-")])
def test_large_numbers_have_three_figures(value: float, said: str) -> None:
    assert amount(value) == said


def on_a_terminal(where: Path, *words: str, env: dict[str, str] | None = None) -> tuple[str, int]:
    """Run the command on a pseudo-terminal; return everything that it wrote, and its exit code."""
    ours, theirs = pty.openpty()
    clean = {name: value for name, value in os.environ.items() if name not in ("CI", "NO_COLOR")}
    environment = {**clean, "PYTHONPATH": str(ROOT), "TERM": "xterm-256color", "COLUMNS": "100", **(env or {})}
    process = subprocess.Popen(
        [sys.executable, "-m", *words], cwd=where, stdin=theirs, stdout=theirs, stderr=theirs, env=environment
    )
    os.close(theirs)
    text, began = b"", time.monotonic()
    while time.monotonic() - began < 120:
        if select.select([ours], [], [], 0.1)[0]:
            try:
                part = os.read(ours, 65536)
            except OSError:
                break
            if not part:
                break
            text += part
            if b"any key skips" in text:
                os.write(ours, b" ")
        elif process.poll() is not None:
            break
    os.close(ours)
    return text.decode(), process.wait(timeout=30)


def test_a_table_on_eighty_columns_keeps_every_digit(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    long = METRICS | IDLE | {"best": 1234.56, "mean": -1000.25, "validation": 1111.11, "test": 1000.5, "seconds": 59.0}
    with Screen(verbose=True) as table:
        table.generation(Row(998, long, None, True, Path()), 9999)
    shown = capsys.readouterr().out
    for said in (
        "generation",
        "validation",
        "test",
        "time left",
        "999/9999",
        "1234.56",
        "-1000.25",
        "1111.11",
        "1000.50",
    ):
        assert said in shown, said
    assert "…" not in shown


@pytest.mark.parametrize(
    "experiment",
    [
        pytest.param(path, id=path.stem, marks=() if path.stem == "ga_snake" else pytest.mark.long)
        for path in sorted((ROOT / "experiments").glob("*.toml"))
    ],
)
def test_what_begins_and_ends_a_published_experiment_fits_into_eighty_columns(
    experiment: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    read = Experiment.load(experiment)
    score = Score(1000, 97.456, (97.123, 98.123), 99.0, 99.0, 0.925, (0.91, 0.94), 1888.8)
    directory = f"runs/{experiment.stem}-{read.algorithm}-seed1-001"
    summary = Summary(run_dir=directory, generations=read.generations, champion=ChampionScore(97.456, score))
    display = Display()
    display.say(headline(read))
    ending(read, summary, display, None)
    shown = capsys.readouterr().out
    assert "weights; seed" in shown
    assert "won 92.5 %" in shown
    assert max(map(len, shown.splitlines())) <= 80, shown


@pytest.mark.parametrize(("low", "hinted"), [(0.4, True), (0.6, False)])
def test_a_champion_that_may_be_no_better_than_chance_is_said_to_be_and_the_doctor_named(
    capsys: pytest.CaptureFixture[str], low: float, hinted: bool
) -> None:
    read = Experiment.load(ROOT / "experiments/ga_snake_6x6.toml")
    score = Score(1000, 0.7, (low, 0.9), 1.0, 2.0, None, None, 20.0)
    players = {"random": Baseline(1000, 0.5, (0.4, 0.6)), "greedy": Baseline(1000, 9.0, (8.0, 10.0))}
    summary = Summary(run_dir="runs/one", generations=2, champion=ChampionScore(0.7, score))
    ending(read, summary, Display(), None, baselines=players)
    shown = capsys.readouterr().out
    assert (
        ("evo doctor runs/one" in shown) == ("do not show that it is better than the random player" in shown) == hinted
    )
    assert max(map(len, shown.splitlines())) <= 80


@pytest.mark.parametrize("sick", [False, True])
def test_the_doctor_is_named_where_the_diagnosis_has_a_finding(capsys: pytest.CaptureFixture[str], sick: bool) -> None:
    read = Experiment.load(ROOT / "experiments/ga_snake_6x6.toml")
    score = Score(1000, 0.7, (0.6, 0.9), 1.0, 2.0, None, None, 20.0)
    summary = Summary(run_dir="runs/one", generations=2, champion=ChampionScore(0.7, score))
    ending(read, summary, Display(), None, sick=sick)
    shown = capsys.readouterr().out
    assert shown.endswith("python -m evo doctor runs/one\n") == ("doctor" in shown) == sick


def test_a_narrow_table_leaves_columns_out_and_cuts_none(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for width in (44, 60, 92):
        monkeypatch.setenv("COLUMNS", str(width))
        with Screen(verbose=True) as table:
            table.generation(
                Row(998, METRICS | IDLE | {"validation": 1111.11, "test": 1000.5}, None, True, Path()), 9999
            )
        shown = capsys.readouterr().out
        assert "1111.11" in shown
        assert "…" not in shown
        assert ("mean" in shown, "lane utilisation" in shown) == (width >= 60, width >= 92)


def test_a_fork_that_has_no_champion_yet_is_not_said_to_have_scores_that_are_not_finite(
    capsys: pytest.CaptureFixture[str],
) -> None:
    read = Experiment.load(ROOT / "experiments/ga_snake_6x6.toml")
    ending(read, Summary(run_dir="runs/fork", generations=2), Display(), None)
    shown = capsys.readouterr().out
    assert "nothing is validated yet, or" in shown
    assert "replay" not in shown


@pytest.mark.long
@pytest.mark.parametrize("plain", [False, pytest.param(True, marks=pytest.mark.long)])
def test_a_terminal_shows_a_table_then_a_game_then_what_to_type(tmp_path: Path, plain: bool) -> None:
    (tmp_path / "tiny.toml").write_text(TINY)
    text, code = on_a_terminal(tmp_path, "evo.run", "tiny.toml", "--verbose", env={"NO_COLOR": "1"} if plain else {})
    assert code == 0, text
    bare = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", text)
    for said in (
        "validation",
        "lane utilisation",
        "time left",
        "acting ",
        "idle ",
        "bytes ",
        "3/3",
        "95 % interval",
        "any key skips",
        "evo replay runs/tiny",
    ):
        assert said in bare, said
    assert "\x1b[?25h" in text.rpartition("\x1b[?25l")[2]  # the cursor is back
    assert bool(re.search(r"\x1b\[[0-9;]*[34]8;[25];", text)) is not plain
