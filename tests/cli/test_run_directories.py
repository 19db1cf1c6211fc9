"""What is said of a path that is no run: which run may be meant, by every command that opens one."""

from __future__ import annotations

import os
import re
import tempfile
from pathlib import Path

import pytest

from evo.errors import DataError
from evo.files.layout import near
from evo.store.run import Run
from tests.helpers.calling import called, nobody

COMMANDS = [
    ("evaluate",), ("replay",), ("report",), ("doctor",), ("verify",), ("watch",), ("resume",), ("compare",),
    ("export", "out.npz", "--to", "npz"), ("run", "--resume"), ("play",), ("league",),
]  # fmt: skip


@pytest.fixture
def runs(tmp_path: Path) -> Path:
    for name in ("first", "second"):
        (tmp_path / "runs" / name).mkdir(parents=True)
        (tmp_path / "runs" / name / "manifest.jsonl").touch()
    (tmp_path / "runs" / "frist-notes").mkdir()
    (tmp_path / "champions").mkdir()
    for file in ("ppo_full.h5", "ga.h5", "ppo_ful.md", "duel.h5"):
        (tmp_path / "champions" / file).touch()
    return tmp_path


@pytest.mark.parametrize("words", COMMANDS, ids=lambda words: words[0])
def test_a_misspelt_run_or_champion_and_a_folder_of_runs_are_told_which_run_may_be_meant(
    words: tuple[str, ...], runs: Path
) -> None:
    name, *more = words
    for typed, told in (
        ("runs/frist", "runs/frist: no such file or directory - did you mean `runs/first`?\n"),
        ("runs", "runs: is a folder of runs; choose one, such as runs/first\n"),
        (
            "champions/ppo_ful.h5",
            "champions/ppo_ful.h5: no such file or directory - did you mean `champions/ppo_full.h5`?\n",
        ),
        ("champions/gaa", "champions/gaa: no such file or directory - did you mean `champions/ga.h5`?\n"),
    ):
        line = (name, *more, typed) if name == "run" else (name, typed, *more)
        assert called(runs, *line, program="evo", code=3)[1] == told


@pytest.mark.parametrize(
    "words", [words for words in COMMANDS if words[0] not in ("run", "play")], ids=lambda words: words[0]
)
def test_a_name_that_begins_with_a_dash_may_stand_behind_two_dashes(words: tuple[str, ...], runs: Path) -> None:
    name, *more = words
    _, err = called(runs, name, *more[1:], "--", "-dash", *more[:1], program="evo", code=3)
    assert re.match("-dash( is not a run)?: (there is )?no such (file or )?directory", err)


def test_what_is_near_no_run_is_said_by_the_command(runs: Path) -> None:
    for typed, told in (("runs/other", "no such file or directory"), ("runs/frist-notes", "not a run directory")):
        err = called(runs, "evaluate", typed, program="evo", code=3)[1]
        assert err.startswith(f"{typed}: {told}")
        assert "mean" not in err


def test_a_run_in_python_and_files_of_options_are_told_what_may_be_meant(
    runs: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (runs / "champions" / "net.onnx").touch()
    monkeypatch.chdir(runs)
    with pytest.raises(DataError, match=r"^runs/frist: no such file or directory - did you mean `runs/first`\?$"):
        Run("runs/frist").config  # noqa: B018
    init, policy = "[run]\ninit_from = '{}'", "policy = '{}'"
    hall = "[environment]\nid = 'duel'\nopponents = {{players = ['random', 'hall'], files = ['{}']}}"
    for text, named, meant, told in (
        (init, "nett.onnx", "net.onnx", r"run\.init_from: .* cannot be read: .*: missing"),
        (policy, "nett.onnx", "net.onnx", r"small\.toml: policy: .*: missing"),
        (hall, "duell.h5", "duel.h5", r"environment\.opponents\.files: champions/duell\.h5: no such file or directory"),
    ):
        (runs / "small.toml").write_text(text.format(f"champions/{named}"))
        err = called(runs, "run", "small.toml", "--run-dir", "new", program="evo", code=2)[1].splitlines()[-1]
        assert re.fullmatch(rf"{told} - did you mean `champions/{meant}`\?", err), err
        assert not Path("new").exists()


def test_a_new_run_may_be_named_nearly_as_another(runs: Path) -> None:
    (runs / "small.toml").write_text("")
    called(runs, "run", "small.toml", "--run-dir", "runs/frist", "--dry-run", program="evo")


def test_nothing_is_meant_in_a_folder_that_may_be_listed_but_not_searched() -> None:
    with tempfile.TemporaryDirectory(dir="/tmp") as folder:  # where another user may look, too
        champion = Path(folder) / "champion.h5"
        champion.touch()
        assert near(Path(folder) / "champoin.h5") == f" - did you mean `{champion}`?"
        Path(folder).chmod(0o744 if os.geteuid() == 0 else 0o644)
        with nobody():
            assert near(Path(folder) / "champoin.h5") == ""
        Path(folder).chmod(0o755)
