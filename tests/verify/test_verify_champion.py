"""A champion's file by itself: its test score is repeated, or it is said why not."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from evo.store.champion import read_champion
from tests.helpers.calling import ROOT, SMALL, called, summary_of
from tests.helpers.sampling import sampled
from tests.verify.forging import forge_champion


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("made")
    (place / "small.toml").write_text(SMALL)
    summary_of(place, "small.toml", "--run-dir", "run", "--no-report")
    return place / "run"


@pytest.fixture
def run(made: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(made, tmp_path / "run"))


def verified(run: Path, code: int = 0, *words: str) -> str:
    return called(run.parent, "verify", run / "champion.h5", "--backend", "serial", *words, code=code, program="evo")[0]


def test_a_champion_proves_its_score_without_its_run(run: Path) -> None:
    about = read_champion(run).about
    shutil.move(run / "champion.h5", run.parent / "alone.h5")
    shutil.rmtree(run)
    out = called(run.parent, "verify", "alone.h5", program="evo")[0]
    assert f"agrees   champion: its test score on {about['test']['episodes']} episodes, measured again" in out
    assert f"configuration {about['provenance']['configuration'][:12]}" in out
    assert f"state hash {about['state_hash']}" in out


@pytest.mark.parametrize(
    ("facts", "said"),
    sampled(
        [
            ({"mean": 99.0}, "mean 99.0, replayed"),
            ({"win_rate": 1.0}, "win_rate 1.0, replayed"),
            ({"episodes": 69}, "the champion's test score differs"),
            ({"mean": "abc"}, "not in the form of one"),
            ({"mean": 10**400}, "the champion's test score differs"),
            ({"mean": None}, "not in the form of one"),
        ]
    ),
)
def test_a_score_that_it_does_not_reach_differs(run: Path, facts: dict[str, Any], said: str) -> None:
    forge_champion(run, {"test": {**read_champion(run).about["test"], **facts}})
    out = verified(run, 3)
    assert said in out
    assert "this champion is not what it says" in out


def test_what_is_left_out_pays_for_nothing_that_is_false(run: Path) -> None:
    test = read_champion(run).about["test"]
    for kept in (("episodes", "block"), [name for name in test if name not in ("win_rate", "win_ci95")]):
        forge_champion(
            run, {"test": {**{name: test[name] for name in kept}, **({"mean": 9.0} if "mean" in kept else {})}}
        )
        assert "not in the form of one" in verified(run, 3)


def test_a_file_prints_nothing_but_text(run: Path) -> None:
    forge_champion(run, {"state_hash": "\x1b[2J\nagrees   everything", "generations": True})
    out = verified(run)
    assert "\x1b" not in out
    assert out.splitlines()[-1].endswith("agrees: 0 generations, state hash None")


def test_a_run_is_held_to_the_options_that_its_champion_states(run: Path) -> None:
    made_by = read_champion(run).about["provenance"]
    for forged in ({**made_by, "configuration": "0" * 64}, {**made_by, "game": "another"}, None):
        forge_champion(run, {"provenance": forged})
        out = called(run.parent, "verify", run, code=3, program="evo")[0]
        assert "its hash of the options or of the game's sources is not that of the run" in out


@pytest.mark.long
def test_other_weights_have_another_score(run: Path) -> None:
    champion = read_champion(run)
    forge_champion(run, {}, np.random.default_rng(1).permutation(champion.weights))
    assert "the champion's test score differs" in verified(run, 3)


def test_what_cannot_be_known_is_said(run: Path) -> None:
    forge_champion(run, {"test": None, "provenance": {"game": "another", "version": 3}})
    out = verified(run)
    assert "unknown  the champion has no test score yet" in out
    assert "unknown  snake is another game now: its code has changed since" in out
    assert "snake-evo 3" in out


def test_a_file_has_no_candidates_and_another_file_is_no_champion(run: Path) -> None:
    for words in (("--all",), ("--sample", "3")):
        (line,) = called(run.parent, "verify", run / "champion.h5", *words, code=2, program="evo")[1].splitlines()
        assert "go with a run directory" in line
    (run / "champion.h5").write_bytes(b"nothing")
    (line,) = called(run.parent, "verify", run / "champion.h5", code=3, program="evo")[1].splitlines()
    assert "champion.h5" in line


@pytest.mark.long
@pytest.mark.parametrize("name", ["dqn_snake", "ppo_snake_full"])
def test_champions_that_ship_prove_their_scores(name: str) -> None:
    out = called(ROOT, "verify", f"champions/{name}.h5", program="evo")[0]
    assert "its test score on 5000 episodes, measured again" in out
