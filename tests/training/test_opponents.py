"""Opponents of a generation are named by the seed, and a run against them is resumed and verified as every run is."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from evo.config.environments import curriculum_of, environment_of
from evo.environment import Curriculum
from evo.errors import ConfigurationError
from evo.games.catalogue import tictactoe
from evo.games.declaration import Opponents
from evo.records import Episodes, Request, Task, WeightSource
from evo.training.opponents import HALL, NetworkOpponents
from tests.helpers.calling import called, summary_of

SEEDS = np.arange(8, dtype=np.uint64)


def options(validation: list[str], training: list[str] | None = None) -> tictactoe.Options:
    changes = {} if training is None else {"opponents": {"players": training, "count": 6}}
    return tictactoe.Options(id="tictactoe", opponents=Opponents(players=validation), training=changes)


def curriculum(chosen: tictactoe.Options) -> Curriculum:
    return curriculum_of(chosen, environment_of(chosen))


def opponents_of(training: list[str], seed: int = 1) -> NetworkOpponents:
    return NetworkOpponents(seed, curriculum(options([], training)))


def request_of(candidates: int, weights: int) -> Request:
    """Return a request of children, two a task."""
    keys = np.arange(candidates, dtype=np.uint64)
    zeros = np.zeros(candidates, np.int32)
    source = WeightSource(zeros, zeros - 1, keys, np.full(candidates, 0.5, np.float32))
    tasks = [Task(source.some(slice(k, k + 2)), Episodes(SEEDS)) for k in range(0, candidates, 2)]
    return Request(np.zeros((weights, 3), np.float32), tasks)


def named(request: Request) -> list[tuple[int, int]]:
    (first, *others) = [task.opponents for task in request.tasks]
    assert first is not None
    assert all(other is not None and other.keys.tolist() == first.keys.tolist() for other in others)
    return list(zip(first.rows.tolist(), first.keys.tolist(), strict=True))


def test_the_population_names_its_own_opponents_by_seed_and_generation() -> None:
    one, other = opponents_of(["population"]), opponents_of(["population"], seed=2)
    found = named(one.matched(request_of(50, 4), 3))
    assert len(found) == 6
    assert {row for row, _ in found} == {0}
    assert found == named(opponents_of(["population"]).matched(request_of(50, 4), 3))
    assert found != named(one.matched(request_of(50, 4), 4))
    assert found != named(other.matched(request_of(50, 4), 3))


def test_former_champions_are_published_behind_the_parents() -> None:
    opponents = opponents_of(["hall", "population"])
    before = opponents.matched(request_of(10, 4), 0)
    assert before.weights is not None
    assert len(before.weights) == 4  # nobody is in the hall of fame yet
    for value in (7, 8):
        opponents.admit(np.full(3, value, np.float32))
    after = opponents.matched(request_of(10, 4), 1)
    assert after.weights is not None
    assert after.weights[4:].tolist() == [[7.0] * 3, [8.0] * 3]
    rows = [row for row, _ in named(after)]
    assert all(row in (4, 5) for row in rows[::2])
    assert all(row == 0 for row in rows[1::2])
    again = opponents_of(["hall", "population"])
    again.restore(opponents.state())
    assert named(again.matched(request_of(10, 4), 1)) == named(after)
    assert opponents.state()[HALL].shape == (2, 3)
    assert opponents_of(["population"]).state() == {}


@pytest.mark.parametrize(
    ("validation", "training", "told"),
    [
        (["population"], None, "networks are opponents in training alone"),
        (["perfekt"], None, "unknown opponent perfekt - did you mean `perfect`?"),
        (["random"], ["hall", "random"], "either networks or baselines"),
    ],
)
def test_wrong_opponents_are_named(validation: list[str], training: list[str] | None, told: str) -> None:
    with pytest.raises(ConfigurationError, match=told):
        curriculum(options(validation, training))


RUN = """
[run]
seed = 3
[environment]
id = "tictactoe"
[environment.training.opponents]
players = ["population", "hall"]
count = 2
epsilon = 0.1
[policy]
kind = "mlp"
dense = [8]
[validation]
every = 1
episodes = 32
[test]
episodes = 100
[ga]
population = 128
episodes = 8
[ppo]
envs = 16
horizon = 8
"""


@pytest.mark.long
@pytest.mark.parametrize("algorithm", ["ga", "sep_cma_es", "ppo"])
def test_a_run_against_networks_is_resumed_and_verified(algorithm: str, tmp_path: Path) -> None:
    (tmp_path / "run.toml").write_text(RUN)
    words = ("run.toml", "--algorithm", algorithm, "--backend", "serial")
    straight = summary_of(tmp_path, *words, "--generations", 4, "--run-dir", "straight")
    summary_of(tmp_path, *words, "--generations", 2, "--run-dir", "halves")
    resumed = summary_of(tmp_path, "--resume", "halves", "--generations", 4, "--backend", "processes", "--workers", 2)
    assert resumed["state_hash"] == straight["state_hash"]
    assert resumed["champion"] == straight["champion"]
    report = json.loads(called(tmp_path, "verify", "halves", "--all", "--json", program="evo")[0].splitlines()[-1])
    assert report["ok"]
    assert report["replayed"] > 0


@pytest.mark.long
def test_a_match_is_replayed_whole_or_refused_in_one_line(tmp_path: Path) -> None:
    (tmp_path / "run.toml").write_text(RUN)
    summary_of(tmp_path, "run.toml", "--algorithm", "ga", "--generations", 14, "--run-dir", "run", "--no-report")

    def replayed(*words: object, code: int = 0) -> tuple[str, str]:
        return called(tmp_path, "replay", "run", *words, program="evo", code=code)

    for episode in range(4):
        facts = json.loads(replayed("--episode", episode, "--json")[0].splitlines()[-1])
        game = environment_of(tictactoe.Options(id="tictactoe")).plain()
        game.begin(0, facts["seed"])
        rewards, over = zip(*(game.step(0, action) for action in facts["actions"]), strict=True)
        assert [bool(end) for end in over] == [False] * (facts["steps"] - 1) + [True]
        assert sum(rewards) == facts["score"]
        assert "outputs_sha256" not in facts
    out, _ = replayed("--episode", 3, "--film", "match.gif")
    assert f"after {facts['steps']} steps, saved to match.gif" in out
    one_line = "--step: tictactoe has several players; without it, the moves of all are shown\n"
    assert replayed("--step", code=2)[1] == one_line
    candidate = ("--generation", 0, "--candidate", 1)
    assert "the process that played it did not crash" in replayed(*candidate)[0]
    assert "plays against networks, and such a game is not shown\n" in replayed(*candidate, "--json", code=2)[1]
    assert "not kept" in replayed("--generation", 5, "--candidate", 1, code=3)[1]
    assert replayed("--generation", 5, "--candidate", 1, code=3)[1].count("\n") == 1
