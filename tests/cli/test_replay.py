"""Which episode `evo replay` shows, and what it says of it."""

from __future__ import annotations

import json
import os
import re
import shutil
from pathlib import Path

import pytest

import evo
from evo.cli.commands.replay import _ranked
from evo.config.environments import environment_of
from evo.randomness.streams import seeds_of_test_episodes
from tests.helpers.calling import SMALL, called
from tests.store.test_store import small_disk


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory) -> Path:
    where = tmp_path_factory.mktemp("small")
    (where / "small.toml").write_text(SMALL)
    called(
        where,
        "small.toml",
        "--run-dir",
        "run",
        "--no-report",
        "--generations",
        40,
        "--set",
        "ga.population=64",
        "--seed",
        3,
    )
    return where


def score_of(run: evo.Run, seed: int) -> float:
    """Return what the champion scores in one episode, played step by step in Gymnasium's interface."""
    policy, env = run.champion, environment_of(run.config.environment).env()
    observation, info = env.reset(seed=seed)
    over = False
    while not over:
        observation, _, terminated, truncated, info = env.step(policy(observation, info.get("action_mask")))
        over = terminated or truncated
    return float(info["score"])


@pytest.mark.long
def test_without_a_number_it_is_a_test_episode_of_median_score(small: Path) -> None:
    run = evo.Run(small / "run")
    scores = [score_of(run, int(seed)) for seed in seeds_of_test_episodes(32)]
    assert len(set(scores)) > 2
    assert scores[0] != sorted(scores)[15]  # so that the first episode would be another one
    out, _ = called(small, "replay", "run", "--json", program="evo")
    *_, ranked, another, last, line = out.splitlines()
    facts = json.loads(line)
    episode, low, high = facts["episode"], min(scores), max(scores)
    assert facts["score"] == scores[episode] == sorted(scores)[15]
    assert ranked == (
        f"the first 32 test episodes score {low:g} (episode {scores.index(low)}) to {high:g} (episode "
        f"{scores.index(high)}); episode {episode} is their median"
    )
    assert another == "to see another one: --episode I"
    assert last.startswith(f"test episode {episode}: score {facts['score']:g} after ")


@pytest.mark.long
def test_an_episode_that_is_asked_for_is_shown_without_its_rank(small: Path) -> None:
    for episode in (0, 5):
        out, _ = called(small, "replay", "run", "--episode", episode, "--json", program="evo")
        assert json.loads(out.splitlines()[-1])["episode"] == episode
        assert "their median" not in out
        assert "--episode I" not in out


@pytest.mark.long
def test_a_film_and_a_step_are_of_the_typical_episode_too(small: Path) -> None:
    played = called(small, "replay", "run", program="evo")[0].splitlines()[-1]
    filmed = called(small, "replay", "run", "--film", "film.gif", program="evo")[0]
    assert filmed.splitlines()[-1] == f"{played}, saved to film.gif"
    stepped = called(small, "replay", "run", "--step", "1", program="evo")[0]
    assert stepped.splitlines()[-1] == played
    assert re.search(r"^ step 1 of ", stepped, re.M)


@pytest.mark.skipif(shutil.which("mount") is None or os.getuid() != 0, reason="mounting needs root")
def test_a_disk_that_is_full_leaves_the_film_that_is_there(small: Path, tmp_path: Path) -> None:
    with small_disk(tmp_path / "disk", "4k"):
        film = tmp_path / "disk" / "film.gif"
        film.write_bytes(b"earlier")
        err = called(small, "replay", "run", "--film", film, program="evo", code=5)[1]
        assert err == f"cannot write {film}: No space left on device\n"
        assert film.read_bytes() == b"earlier"
        assert os.listdir(film.parent) == ["film.gif"]


def test_equal_scores_and_a_single_episode_are_said_as_they_are() -> None:
    assert _ranked([7.0, 7.0], 0).startswith("each of the first 2 test episodes scores 7; this is number 0\n")
    assert _ranked([7.0], 0).startswith("the experiment tests one episode, number 0\n")


@pytest.mark.long
def test_a_generation_that_the_run_does_not_have_is_refused(tmp_path: Path) -> None:
    (tmp_path / "small.toml").write_text(SMALL)
    called(tmp_path, "small.toml", "--run-dir", "run", "--no-report", "--generations", 3)
    for generation, told in (
        (3, "this run has generations 0 to 2; the report's generation 3 is 2 here"),
        (9, "this run has generations 0 to 2"),
    ):
        words = ("replay", "run", "--generation", generation, "--candidate", 1)
        out, err = called(tmp_path, *words, program="evo", code=2)
        assert (out, err) == ("", f"--generation {generation}: {told}\n")
    config = tmp_path / "run" / "config.resolved.toml"
    config.write_text(config.read_text().replace("generations = 3 ", "generations = 5 "))  # as if it was killed
    words = ("replay", "run", "--generation", 3, "--candidate", 1)
    out, err = called(tmp_path, *words, program="evo")
    assert "candidate 1 of generation 3 (not committed: the run stopped in this generation, or goes on with it)" in out
    assert out.endswith("the process that played it did not crash\n")
    assert err == ""


def test_what_ended_by_its_budget_has_no_generation_after_the_last(tmp_path: Path) -> None:
    (tmp_path / "small.toml").write_text(SMALL)
    called(tmp_path, "small.toml", "--run-dir", "run", "--no-report", "--set", "run.budget={frames=1}")
    err = called(tmp_path, "replay", "run", "--generation", 1, "--candidate", 1, program="evo", code=2)[1]
    assert err == "--generation 1: this run has only generation 0; the report's generation 1 is 0 here\n"
