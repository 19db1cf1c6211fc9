"""What is said of a path that is no run: which run may be meant, by every command that opens one."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.helpers.calling import called

COMMANDS = [
    ("evaluate",), ("replay",), ("report",), ("doctor",), ("verify",), ("watch",), ("resume",), ("compare",),
    ("export", "out.npz", "--to", "npz"), ("run", "--resume"),
]  # fmt: skip


@pytest.fixture
def runs(tmp_path: Path) -> Path:
    for name in ("first", "second"):
        (tmp_path / "runs" / name).mkdir(parents=True)
        (tmp_path / "runs" / name / "manifest.jsonl").touch()
    (tmp_path / "runs" / "frist-notes").mkdir()
    return tmp_path


@pytest.mark.parametrize("words", COMMANDS, ids=lambda words: words[0])
def test_a_misspelt_run_and_a_folder_of_runs_are_told_which_run_may_be_meant(
    words: tuple[str, ...], runs: Path
) -> None:
    name, *more = words
    for typed, told in (
        ("runs/frist", "runs/frist: no such file or directory - did you mean `runs/first`?\n"),
        ("runs", "runs: is a folder of runs; choose one, such as runs/first\n"),
    ):
        line = (name, *more, typed) if name == "run" else (name, typed, *more)
        assert called(runs, *line, program="evo", code=3)[1] == told


def test_what_is_near_no_run_is_said_by_the_command(runs: Path) -> None:
    for typed, told in (("runs/other", "no such file or directory"), ("runs/frist-notes", "not a run directory")):
        err = called(runs, "evaluate", typed, program="evo", code=3)[1]
        assert err.startswith(f"{typed}: {told}")
        assert "mean" not in err


def test_a_new_run_may_be_named_nearly_as_another(runs: Path) -> None:
    (runs / "small.toml").write_text("")
    called(runs, "run", "small.toml", "--run-dir", "runs/frist", "--dry-run", program="evo")
