"""A champion is tested in an environment with other options, where its network fits."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.helpers.calling import SMALL, called, summary_of


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("elsewhere")
    (place / "small.toml").write_text(SMALL)
    summary_of(place, "small.toml", "--run-dir", "run")
    return place


@pytest.mark.long
def test_a_champion_plays_on_another_board(place: Path) -> None:
    def tested(*sets: str, champion: str = "run") -> dict[str, object]:
        words = [word for one in sets for word in ("--set", one)]
        output, _ = called(place, "evaluate", champion, "--episodes", 40, *words, "--json", program="evo")
        return json.loads(output)  # type: ignore[no-any-return]

    here, same = tested(), tested("environment.starvation=30")
    assert same == {**here, "changed": ["environment.starvation=30"]}
    larger, sooner = tested("environment.size=9"), tested("environment.starvation=3", "environment.size=9")
    assert larger["mean_length"] != here["mean_length"]
    assert sooner["mean_length"] < larger["mean_length"]  # type: ignore[operator]
    assert tested("environment.size=9", champion="run/champion.h5") == larger
    words = ("evaluate", "run", "--episodes", 4, "--set", "environment.size=9", "--set")
    shown = called(place, *words, "environment.starvation=30", program="evo")[0].splitlines()
    assert "snake 9x9" in shown[0]
    assert shown[1] == "environment.size: 5 in the run, 9 now"
    assert "test episodes" in shown[2]
    shown = called(place, *words, "environment.size=5", program="evo")[0].splitlines()
    assert shown[1] == "no option differs from those of the run"


@pytest.mark.parametrize(
    ("assignment", "told"),
    [
        ("environment.window=7", "shows (5, 5, 5) with 3 actions; this one shows (7, 7, 5) with 3"),
        ("environment.sise=7", "did you mean `size`"),
        ("environment.size=many", "environment.size"),
        ("ga.sigma=1", "only options of the environment"),
        ("size", "must be SECTION.KEY=VALUE"),
    ],
)
def test_what_cannot_be_another_environment_is_one_line(place: Path, assignment: str, told: str) -> None:
    _, errors = called(place, "evaluate", "run", "--set", assignment, program="evo", code=2)
    assert told in errors
    assert "Traceback" not in errors


def test_a_block_that_is_looked_at_elsewhere_is_not_counted(place: Path) -> None:
    words = ("evaluate", "run", "--episodes", 4, "--block", 7)
    for _ in range(2):
        called(place, *words, "--set", "environment.size=9", program="evo")
    assert "before" not in called(place, *words, program="evo")[0]
    assert "1 time before" in called(place, *words, program="evo")[0]


def test_a_look_that_cannot_be_noted_is_said(place: Path) -> None:
    (place / "run" / "evaluations.jsonl").unlink(missing_ok=True)
    (place / "run" / "evaluations.jsonl").mkdir()
    _, err = called(place, "evaluate", "run", "--episodes", 4, "--block", 7, "--json", program="evo")
    (place / "run" / "evaluations.jsonl").rmdir()
    assert "evaluations.jsonl: cannot be written (Is a directory), so it does not say that block 7 was looked at" in err
