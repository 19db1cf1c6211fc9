"""`evo new` writes files that pass their own tests and can be run."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from evo.testing import game_tests
from tests.helpers.calling import ROOT, called, summary_of

TAKEN = {"game": "catch", "environment": "snake", "algorithm": "ga"}


@pytest.mark.parametrize("kind", TAKEN)
def test_a_name_that_is_taken_or_none_is_refused_and_no_file_is_replaced(kind: str, tmp_path: Path) -> None:
    for name in ("My-Game", "class", "2048", TAKEN[kind]):
        assert len(called(tmp_path, "new", kind, name, program="evo", code=2)[1].splitlines()) == 1
    (tmp_path / "other.toml").write_text("mine")
    assert "other.toml: exists already" in called(tmp_path, "new", kind, "other", program="evo", code=2)[1]
    assert (tmp_path / "other.toml").read_text() == "mine"
    assert [path.name for path in tmp_path.iterdir()] == ["other.toml"]


@pytest.mark.parametrize(
    ("name", "told"),
    [
        ("2048", "a name begins with a letter, as my_2048 does"),
        ("_game", "a name begins with a letter, as my_game does"),
        ("_", "a name begins with a letter, and has small letters, digits and _, as my_game does"),
        ("My-Game", "a name begins with a letter, and has small letters, digits and _, as my_game does"),
        ("class", "is a word of Python; choose another name, as my_game"),
    ],
)
def test_a_name_that_is_none_is_told_what_is_wrong_with_it(name: str, told: str, tmp_path: Path) -> None:
    assert called(tmp_path, "new", "game", name, program="evo", code=2)[1] == f"{name}: {told}\n"


SHADOWS = "there is a module of this name, which the file would hide from Python; choose another name, as my_"


@pytest.mark.parametrize("name", ["numpy", "json", "types", "random", "evo", "sys", "pydantic", "mine"])
@pytest.mark.parametrize("kind", ["game", "algorithm"])
def test_a_name_that_would_hide_a_module_is_refused(kind: str, name: str, tmp_path: Path) -> None:
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "__init__.py").touch()
    (tmp_path / "folder").mkdir()  # a mere folder hides nothing
    assert called(tmp_path, "new", kind, name, program="evo", code=2)[1] == f"{name}: {SHADOWS}{name}\n"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["folder", "mine"]
    called(tmp_path, "new", kind, "folder", program="evo")
    assert "exists already" in called(tmp_path, "new", kind, "folder", program="evo", code=2)[1]


@pytest.mark.parametrize("name", ["run", "policy", "workers", "learner", "validation", "environment", "provenance"])
def test_an_algorithm_is_not_named_as_a_section(name: str, tmp_path: Path) -> None:
    told = called(tmp_path, "new", "algorithm", name, program="evo", code=2)[1]
    assert told == f"{name}: an experiment has a section [{name}] already; choose another name, as my_{name}\n"
    assert not list(tmp_path.iterdir())
    called(tmp_path, "new", "game", name, program="evo")


@pytest.mark.parametrize("players", [2, 3])
def test_a_game_of_several_players_keeps_the_contract(
    players: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    name = f"taking_{players}"
    called(tmp_path, "new", "game", name, "--players", players, program="evo")
    monkeypatch.chdir(tmp_path)
    environment = game_tests(name).environment
    environment.check()
    assert environment.definition.players == players
    assert [*environment.definition.baselines_of(None)] == ["fours"]  # no perfect play of more than two players
    told = called(tmp_path, "new", "algorithm", "other", "--players", 2, program="evo", code=2)[1]
    assert told == "--players: only a game has players\n"


@pytest.mark.long
@pytest.mark.parametrize("kind", TAKEN)
def test_what_is_written_passes_its_tests_and_runs(kind: str, tmp_path: Path) -> None:
    out, _ = called(tmp_path, "new", kind, "corridor", program="evo")
    assert out.splitlines()[1:] == [
        "python -m pytest test_corridor.py", "python -m evo.run corridor.toml --plugin corridor",
    ]  # fmt: skip
    words, found = [sys.executable, "-m", "pytest", "-q", "test_corridor.py"], {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run(words, cwd=tmp_path, capture_output=True, env=found)
    assert done.returncode == 0, done.stdout.decode()
    summary = summary_of(tmp_path, "corridor.toml", "--plugin", "corridor", "--generations", 2, apart=True)
    assert summary["status"] == "done"


@pytest.mark.long
def test_a_new_game_is_learned_by_ppo_and_by_the_genetic_algorithm(tmp_path: Path) -> None:
    called(tmp_path, "new", "game", "corridor", program="evo")
    for algorithm, words in (("ppo", ()), ("ga", ("--algorithm", "ga", "--generations", 30))):
        words = ("corridor.toml", "--plugin", "corridor", "--run-dir", algorithm, *words)
        summary = summary_of(tmp_path, *words, apart=True)
        assert summary["algorithm"] == algorithm
        assert summary["champion"]["test"]["mean"] > 0.9  # of 0.96; the random player has 0.2
