"""Every command says in a line which plug-in a run or a champion needs, and ends with the code of a wrong command."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from evo.plugins import registry
from tests.helpers.calling import SMALL, called

EXPORT = ("export", "out.npz", "--to", "npz")
COMMANDS = [
    ("verify",),
    ("evaluate",),
    ("report",),
    ("doctor",),
    ("compare",),
    ("watch",),
    EXPORT,
    ("replay",),
    ("resume",),
]
OF_FILES = [("verify",), ("evaluate",), EXPORT, ("replay",)]
NEEDS = "needs climber, which is not one of the algorithms here; add the plug-in that has it: --plugin climber"


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    before, where = dict(registry._loaded), tmp_path_factory.mktemp("climbing")
    (where / "small.toml").write_text(SMALL)
    called(where, "small.toml", "--plugin", "tests.plugins.climber", "--algorithm", "climber", "--run-dir", "run")
    yield where
    registry._loaded.clear()
    registry._loaded.update(before)


@pytest.mark.parametrize("words", COMMANDS, ids=lambda words: words[0])
def test_a_run_without_its_plug_in(run: Path, words: tuple[str, ...], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(registry, "_loaded", {})
    err = called(run, words[0], "run", *words[1:], program="evo", code=2)[1]
    assert err == f"run: this run {NEEDS}, or package.climber\n"


@pytest.mark.parametrize(("flag", "value"), [("--algorithm", "climbr"), ("--set", "run.algorithm=climbr")])
def test_a_name_that_was_mistyped_is_not_taken_for_a_plug_in_of_the_run(run: Path, flag: str, value: str) -> None:
    words = ("resume", "run", "--plugin", "tests.plugins.climber", flag, value)
    err = called(run, *words, program="evo", code=2)[1]
    assert '"climbr" is not known - did you mean `climber`?' in err


@pytest.mark.parametrize("words", OF_FILES, ids=lambda words: words[0])
def test_a_champion_without_its_plug_in(
    run: Path, words: tuple[str, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(registry, "_loaded", {})
    shutil.copy(run / "run" / "champion.h5", tmp_path / "alone.h5")
    err = called(tmp_path, words[0], "alone.h5", *words[1:], program="evo", code=2)[1]
    assert err == f"alone.h5: this champion {NEEDS}, or package.climber\n"
    (tmp_path / "climber.py").touch()
    err = called(tmp_path, words[0], "alone.h5", *words[1:], program="evo", code=2)[1]
    assert err.endswith('climber.py is here: add --plugin climber (in Python plugins=["climber"])\n')


def test_a_plug_in_whose_name_is_nearly_that_of_a_module_here(tmp_path: Path) -> None:
    for name in ("collect.py", "test_colect.py", "small.toml"):
        (tmp_path / name).write_text("import nothing_such\n")
    told = called(tmp_path, "small.toml", "--plugin", "colect", code=2)[1]
    assert told == "--plugin colect: No module named 'colect' - did you mean `collect`?\n"
    (tmp_path / "package").mkdir()
    (tmp_path / "package" / "climber.py").touch()
    told = called(tmp_path, "small.toml", "--plugin", "package.clibmer", code=2)[1]
    assert told.endswith("No module named 'package.clibmer' - did you mean `package.climber`?\n")
    told = called(tmp_path, "small.toml", "--plugin", "collect", code=2)[1]  # it is here, and imports what is not
    assert told == "--plugin collect: collect.py:1: No module named 'nothing_such'\n"


def test_a_plug_in_that_lies_in_a_folder_is_told_with_its_module(tmp_path: Path) -> None:
    for folder in ("one", "two/three", "not-a-name"):
        (tmp_path / folder).mkdir(parents=True)
        (tmp_path / folder / "deep.toml").write_text(SMALL)
    absent = "--plugin lost_one: No module named 'lost_one'"
    (tmp_path / "two" / "three" / "lost_one.py").touch()
    told = called(tmp_path, "two/three/deep.toml", "--plugin", "lost_one", code=2)[1]
    assert told == f"{absent} - did you mean --plugin two.three.lost_one?\n"
    assert called(tmp_path, "one/deep.toml", "--plugin", "lost_one", code=2)[1] == f"{absent}\n"
    (tmp_path / "not-a-name" / "lost_one.py").touch()
    told = called(tmp_path, "one/deep.toml", "--plugin", "lost_one", code=2)[1]
    assert told == f"{absent}; not-a-name/lost_one.py cannot be named from here: type the command in not-a-name\n"
    (tmp_path / "not-a-name" / "lost_one.py").unlink()
    (tmp_path / "one" / "lost_one.py").touch()
    told = called(tmp_path, "two/three/deep.toml", "--plugin", "lost_one", code=2)[1]
    assert told == f"{absent} - did you mean --plugin one.lost_one?\n"


def test_the_list_says_that_a_plug_in_is_here(tmp_path: Path) -> None:
    (tmp_path / "coins.py").touch()
    told = called(tmp_path, "list", "coins", program="evo", code=2)[1]
    assert (
        told
        == 'coins: there is nothing of this name; coins.py is here: add --plugin coins (in Python plugins=["coins"])\n'
    )
