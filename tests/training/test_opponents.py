"""Opponents of a generation are named by the seed, and a run against them is resumed and verified as every run is."""

from __future__ import annotations

import html
import json
import math
import re
import shutil
from contextlib import nullcontext
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from evo.comparison import training
from evo.comparison.runs import PlannedRun, place_of, runs_in
from evo.config.environments import curriculum_of, environment_of
from evo.config.experiment import Experiment
from evo.config.identity import CONTENT, contents_in, difference
from evo.config.sections import ValidationOptions
from evo.environment import Curriculum
from evo.errors import ConfigurationError
from evo.files.arrays import first_hash
from evo.files.durable import with_checksum
from evo.games.catalogue import tictactoe
from evo.games.declaration import Opponents
from evo.games.seats import ITSELF
from evo.records import (
    Algorithm,
    EnvStates,
    Episodes,
    Finalists,
    Generation,
    Request,
    Result,
    Segment,
    Task,
    WeightSource,
)
from evo.report.page import write_report
from evo.run import train
from evo.store.run import Run
from evo.store.store import Store
from evo.sweeps.sweeping import Race
from evo.sweeps.trials import PlannedSweep
from evo.training.beginning import keep, opponents_in_files
from evo.training.opponents import HALL, LOST, SINCE, NetworkOpponents, without_effect
from evo.training.validation import Validated
from tests.helpers.calling import called, summary_of
from tests.helpers.sampling import sampled

HALL_OF_FILE = {"players": ["hall", "random"], "files": ["none.h5"]}
FILES = "environment.training.opponents.files"
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
    found = named(one.matched(request_of(50, 4), 3, 3))
    assert len(found) == 6
    assert {row for row, _ in found} == {0}
    assert found == named(opponents_of(["population"]).matched(request_of(50, 4), 3, 3))
    assert found != named(one.matched(request_of(50, 4), 4, 4))
    assert found != named(other.matched(request_of(50, 4), 3, 3))


def test_former_champions_are_published_behind_the_parents() -> None:
    opponents = opponents_of(["hall", "population"])
    before = opponents.matched(request_of(10, 4), 0, 0)
    assert before.weights is not None
    assert len(before.weights) == 4  # nobody is in the hall of fame yet
    for value in (7, 8):
        opponents.admit(np.full(3, value, np.float32), value)
    after = opponents.matched(request_of(10, 4), 1, 1)
    assert after.weights is not None
    assert after.weights[4:].tolist() == [[7.0] * 3, [8.0] * 3]
    rows = [row for row, _ in named(after)]
    assert all(row in (4, 5) for row in rows[::2])
    assert all(row == 0 for row in rows[1::2])
    again = opponents_of(["hall", "population"])
    again.restore(opponents.state())
    assert named(again.matched(request_of(10, 4), 1, 1)) == named(after)
    assert opponents.state()[HALL].shape == (2, 3)
    assert opponents.state()[SINCE].tolist() == [7, 8]
    assert opponents_of(["population"]).state() == {}


def test_finalists_meet_champions_from_the_first_one_to_the_newest() -> None:
    chosen = tictactoe.Options(id="tictactoe", opponents=Opponents(players=["random", "hall"], count=3))
    opponents = NetworkOpponents(1, curriculum(chosen))
    assert len(opponents.of_validation()) == 0
    for value in range(8):
        opponents.admit(np.full(3, value, np.float32), value)
        ours = opponents.of_validation()[:, 0].tolist()
        assert ours[0] == value
        assert len({*ours}) == len(ours) == min(3, value + 1)
        assert 0 in ours
    request = request_of(10, 4)
    assert opponents.matched(request, 1, 1) is request  # training is against baselines
    assert len(opponents_of(["hall"]).of_validation()) == 0


@pytest.mark.parametrize(
    ("validation", "training", "told"),
    [
        (["population"], None, "the population plays in training alone"),
        (["hall"], None, "name baselines too, which play in validation and test"),
        (["perfekt"], None, "unknown opponent perfekt - did you mean `perfect`?"),
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
players = ["population", "hall", "perfect"]
count = 3
epsilon = 0.1
learn_from = "all"
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
[a2c]
envs = 16
horizon = 8
[dqn]
envs = 16
horizon = 8
learning_starts = 150
frames_per_update = 16
batch_size = 16
[erl]
population = 8
parents = 4
elites = 2
shared = 4
learning_starts = 30
frames_per_update = 16
batch_size = 16
"""


@pytest.mark.long
@pytest.mark.parametrize(
    ("algorithm", "seats"),
    [
        ("ga", "all"),
        ("sep_cma_es", "all"),
        ("ppo", "one"),
        ("ppo", "all"),
        ("a2c", "all"),
        ("dqn", "one"),
        ("erl", "one"),
    ],
)
def test_a_run_against_networks_is_resumed_and_verified(algorithm: str, seats: str, tmp_path: Path) -> None:
    (tmp_path / "run.toml").write_text(RUN.replace('learn_from = "all"', f'learn_from = "{seats}"'))
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
    views = [replayed("--episode", 3, "--step", step)[0] for step in range(len(facts["actions"]))]
    game.begin(0, facts["seed"])
    for view, action in zip(views, facts["actions"], strict=True):
        own = game.state.seats_turn[0] == game.state.seats_mine[0]
        title = tictactoe.make.action_names[action]
        assert re.search(rf"^ {title} .* played" if own else f"another player plays {title}$", view, re.MULTILINE)
        assert ("what the outputs depend on" in view) == own
        game.step(0, action)
    candidate = ("--generation", 0, "--candidate", 1)
    assert "the process that played it did not crash" in replayed(*candidate)[0]
    assert "plays against networks, and such a game is not shown\n" in replayed(*candidate, "--json", code=2)[1]
    assert "not kept" in replayed("--generation", 5, "--candidate", 1, code=3)[1]
    assert replayed("--generation", 5, "--candidate", 1, code=3)[1].count("\n") == 1


def prioritised(seed: int = 1) -> NetworkOpponents:
    of_training = {"opponents": {"players": ["hall"], "count": 200, "draw": "prioritised"}}
    own = Opponents(players=["random", "hall"], count=3)
    return NetworkOpponents(seed, curriculum(tictactoe.Options(id="tictactoe", opponents=own, training=of_training)))


def test_prioritised_opponents_are_those_that_finalists_lose_to() -> None:
    opponents = prioritised()
    for value in range(3):
        opponents.admit(np.full(3, value, np.float32), value)
    assert opponents.of_validation()[:, 0].tolist() == [2, 1, 0]
    # Of each part, episodes 0, 3, ... are against the newest champion, 1, 4, ... against the second, and so on.
    lost = np.array([[-1, 0, 1, -1, 0, 1], [1, 0, -1, -1, 1, 1]])
    opponents.note([lost, lost[:, :3]])
    assert opponents.state()[LOST].tolist() == [333, 0, 666]
    rows = [row for row, _ in named(opponents.matched(request_of(10, 4), 5, 5))]
    counts = [rows.count(4 + k) for k in range(3)]
    assert counts[1] == 0  # one of a million
    assert 20 < counts[0] < 60  # a fifth of 200
    again = prioritised()
    again.restore(opponents.state())
    assert named(again.matched(request_of(10, 4), 5, 5)) == named(opponents.matched(request_of(10, 4), 5, 5))


def test_recent_opponents_are_the_newest_champions() -> None:
    of_training = {"opponents": {"players": ["hall"], "count": 3, "draw": "recent"}}
    opponents = NetworkOpponents(1, curriculum(tictactoe.Options(id="tictactoe", training=of_training)))
    found = set()
    for number in range(40):
        opponents.admit(np.full(3, number, np.float32), number)
        rows = [row - 4 for row, _ in named(opponents.matched(request_of(10, 4), number, number))]
        assert all(max(0, number - 2) <= row <= number for row in rows)
        found |= {number - row for row in rows}
    assert found == {0, 1, 2}


def test_baselines_play_in_turn_with_networks_and_all_seats_are_named_where_segments_are_played() -> None:
    table = {"players": ["population", "perfect", "hall", "random"], "count": 6, "learn_from": "all"}
    opponents = NetworkOpponents(1, curriculum(tictactoe.Options(id="tictactoe", training={"opponents": table})))
    rows = [row for row, _ in named(opponents.matched(request_of(10, 4), 0, 0))]
    assert rows == [0, ITSELF - 2, 0, ITSELF - 1, 0, ITSELF - 2]  # nobody is in the hall of fame yet
    states = EnvStates(np.zeros((8, 4), np.uint8), SEEDS, *np.zeros((2, 8), np.int64))
    segment = Request(np.zeros((1, 3), np.float32), [Task(WeightSource.of_row(), Segment(states, 4))])
    opponents.admit(np.zeros(3, np.float32), 0)
    rows = [row for row, _ in named(opponents.matched(segment, 1, 1))]
    assert rows == [ITSELF, ITSELF - 2, 1, ITSELF - 1, ITSELF, ITSELF - 2]


def test_networks_of_files_stay_in_the_hall_of_fame() -> None:
    opponents = opponents_of(["hall"])
    opponents.begin(np.full((2, 3), -1, np.float32))
    for value in range(100):
        opponents.admit(np.full(3, value, np.float32), value)
    hall, since = opponents.state()[HALL], opponents.state()[SINCE]
    assert hall.shape == (64, 3)
    assert hall[:, 0].tolist() == since.tolist() == [-1, -1, *range(38, 100)]
    assert len(opponents.state()[LOST]) == 64


@pytest.mark.parametrize(
    ("table", "told"),
    [
        ({"players": ["population"], "files": ["a.h5"]}, "files: is about the hall, which is not among the players"),
        ({"players": ["random"], "draw": "prioritised"}, "draw: is about the hall, which is not among the players"),
        ({"players": ["hall"], "learn_from": "all"}, "learn_from: is about the population, which is not among"),
    ],
)
def test_options_of_the_hall_need_it(table: dict[str, Any], told: str) -> None:
    with pytest.raises(ValueError, match=told):
        Opponents(**table)


def test_who_cannot_learn_from_all_seats_says_so(tmp_path: Path) -> None:
    for number, words in enumerate((("dqn",), ("ppo", "--set", "ppo.whole_episodes=true"))):
        (tmp_path / "run.toml").write_text(RUN)
        told = called(tmp_path, "run.toml", "--algorithm", *words, "--dry-run", code=2)[1]
        assert "learn_from: all seats are for ppo, a2c and pqn" in told, number


def test_evolution_says_that_it_learns_from_no_seats(tmp_path: Path) -> None:
    (tmp_path / "run.toml").write_text(RUN)
    words = ("run.toml", "--backend", "serial", "--generations", 1, "--no-report", "--run-dir")
    told = "note: environment.training.opponents.learn_from has no effect: the algorithm is ga, which does not learn"
    assert told in called(tmp_path, *words, "all")[1]
    assert without_effect(Experiment.load(tmp_path / "run.toml", algorithm="ppo")) == []
    (tmp_path / "run.toml").write_text(RUN.replace('learn_from = "all"', ""))
    assert without_effect(Experiment.load(tmp_path / "run.toml")) == []


def test_prioritised_opponents_need_the_hall_in_validation() -> None:
    of_training = {"opponents": {"players": ["hall"], "draw": "prioritised"}}
    with pytest.raises(ConfigurationError, match=r"needs hall among the players of \[environment.opponents\]"):
        curriculum(tictactoe.Options(id="tictactoe", training=of_training))


@pytest.mark.parametrize(
    ("environment", "option"),
    [
        ({"training": {"opponents": HALL_OF_FILE}}, "environment.training.opponents.files"),
        ({"training": [{}, {"opponents": HALL_OF_FILE}]}, "environment.training[1].opponents.files"),
        (
            {"opponents": {**HALL_OF_FILE, "players": ["hall", "random"]}, "training": [{}]},
            "environment.opponents.files",
        ),
    ],
)
def test_a_file_of_an_opponent_that_is_missing_is_said_with_the_option_that_names_it(
    environment: dict[str, Any], option: str
) -> None:
    experiment = Experiment.build(run={"algorithm": "ga"}, environment={"id": "tictactoe", **environment})
    with pytest.raises(ConfigurationError, match=rf"^{re.escape(option)}: none\.h5: no such file or directory"):
        opponents_in_files(experiment)


@pytest.mark.long
def test_a_run_trains_against_the_champion_of_a_file(tmp_path: Path) -> None:
    (tmp_path / "run.toml").write_text(RUN)
    summary_of(tmp_path, "run.toml", "--algorithm", "ga", "--generations", 1, "--run-dir", "first", "--no-report")
    against = RUN.replace("players = [", 'files = ["first"]\nplayers = [')
    (tmp_path / "against.toml").write_text(against)
    words = ("against.toml", "--algorithm", "ga", "--no-report")
    straight = summary_of(tmp_path, *words, "--generations", 4, "--run-dir", "straight")
    hall = Run(tmp_path / "straight").store.load()[HALL]
    assert np.array_equal(hall[0], Run(tmp_path / "first").champion.weights)
    summary_of(tmp_path, *words, "--generations", 2, "--run-dir", "halves")
    (tmp_path / "first").rename(tmp_path / "gone")
    resumed = summary_of(tmp_path, "--resume", "halves", "--generations", 4)
    assert resumed["state_hash"] == straight["state_hash"]
    report = json.loads(called(tmp_path, "verify", "straight", "--all", "--json", program="evo")[0].splitlines()[-1])
    assert report["ok"]  # from the copy of the champion
    fork = ("--fork", "other", "--set", 'environment.training.opponents.files=["halves"]', "--generations", 1)
    called(tmp_path, "--resume", "straight", *fork)
    forked = Run(tmp_path / "runs" / "other").store.load()[HALL]
    assert np.array_equal(forked[0], Run(tmp_path / "halves").champion.weights)  # not the copy of another file
    assert not np.array_equal(forked[0], hall[0])
    assert "gone" not in called(tmp_path, *words, "--run-dir", "third", code=2)[1]
    other = ("--set", "policy.dense=[4]", "--run-dir", "third")
    (tmp_path / "gone").rename(tmp_path / "first")
    assert (
        "environment.training.opponents.files: first: its layers are not" in called(tmp_path, *words, *other, code=2)[1]
    )


@pytest.fixture
def against(tmp_path: Path) -> Path:
    """Two champions, and an experiment that trains against a copy of the first one, which is where it is named."""
    (tmp_path / "run.toml").write_text(RUN.replace("population = 128", "population = 16"))
    for seed in (1, 2):
        words = ("--algorithm", "ga", "--backend", "serial", "--generations", 1, "--seed", seed, "--no-report")
        summary_of(tmp_path, "run.toml", *words, "--run-dir", f"run-{seed}")
        (tmp_path / f"run-{seed}" / "champion.h5").rename(tmp_path / f"{seed}.h5")
    shutil.copy(tmp_path / "1.h5", tmp_path / "named.h5")
    text = (tmp_path / "run.toml").read_text().replace("players = [", 'files = ["named.h5"]\nplayers = [')
    text = text.replace("seed = 3", 'algorithm = "ga"\ngenerations = 1')
    (tmp_path / "against.toml").write_text(f'{text}[workers]\nbackend = "serial"\n')
    return tmp_path


def test_an_opponent_whose_network_computes_otherwise_is_refused_by_the_option(against: Path) -> None:
    words = ("against.toml", "--set", "policy.activation=tanh")
    told = f'{FILES}: named.h5: its network has policy.activation = "relu", and here it is "tanh"; set that\n'
    assert called(against, *words, "--run-dir", "run", code=2)[1] == told
    assert not (against / "run").exists()


@pytest.mark.parametrize(
    ("copy", "named", "now"), sampled([("", "2", r"\w{64}"), ("", "", "missing"), ("2", "1", r"\w{64}")])
)
def test_a_run_goes_on_against_no_other_opponents_and_is_not_accused_of_them(
    against: Path, copy: str, named: str, now: str
) -> None:
    summary_of(against, "against.toml", "--run-dir", "run", "--no-report")
    for place, what in (("run/opponent-0.h5", copy), ("named.h5", named)):
        (against / place).unlink()
        if what:
            shutil.copy(against / f"{what}.h5", against / place)
    told = rf'content of named\.h5: "\w{{64}}" in the run, "{now}" now'
    assert re.search(told, called(against, "--resume", "run", "--generations", 2, code=2)[1])
    words, told = ("verify", "run", "--all"), told if copy else 'content of named.* "missing" now'
    found = called(against, *words, program="evo", code=3)[0]
    assert re.search(f"DIFFERS  run: its copy of an opponent's file: {told}\nnothing can be replayed here", found)
    shutil.copy(against / "1.h5", against / "named.h5")
    (against / "run" / "opponent-0.h5").unlink(missing_ok=True)
    summary_of(against, "--resume", "run", "--generations", 2, "--no-report")
    assert "DIFFERS" not in called(against, *words, program="evo")[0]
    shutil.copy(against / "2.h5", against / "named.h5")  # the run has its copy
    summary_of(against, "--resume", "run", "--generations", 3, "--no-report")


@pytest.mark.long
def test_a_comparison_takes_no_run_against_other_opponents(against: Path) -> None:
    for seeds, file, code in (([1], 1, 0), ([1, 2], 2, 2)):
        shutil.copy(against / f"{file}.h5", against / "named.h5")
        (against / "cmp.toml").write_text(f'[comparison]\nexperiments = ["against.toml"]\nseeds = {seeds}\n')
        errors = called(against, "compare", "cmp.toml", program="evo", code=code)[1]
    assert errors.startswith("choose another comparison.directory, or move these away:\n")
    assert ': a run with other options: content of named.h5: "' in errors


@pytest.mark.parametrize("option", ["opponents", "init_from"])
@pytest.mark.long
def test_a_comparison_goes_on_with_the_copies_of_its_runs_where_a_file_is_gone(against: Path, option: str) -> None:
    if option == "init_from":
        text = (against / "run.toml").read_text().replace("seed = 3", 'init_from = "named.h5"\nalgorithm = "ga"')
        (against / "against.toml").write_text(f'{text}[workers]\nbackend = "serial"\n')
    for generations, seeds in ((1, [1]), (2, [1]), (2, [1]), (2, [1, 2])):  # begun, longer, only shown, one more
        (against / "cmp.toml").write_text(
            f'[comparison]\nexperiments = ["against.toml"]\nseeds = {seeds}\nset = ["run.generations={generations}"]\n'
        )
        shown = called(against, "compare", "cmp.toml", program="evo")[0]
        newest = seeds[-1]
        assert f"{newest}/{newest}  against-ga  seed {newest}" in shown
        place = f"runs/cmp/against-ga-seed{newest}"
        assert f"{generations} generation" in called(against, "verify", place, program="evo")[0]
        (against / "named.h5").unlink(missing_ok=True)
    shutil.copy(against / "2.h5", against / "named.h5")
    assert "another comparison.directory" in called(against, "compare", "cmp.toml", program="evo", code=2)[1]


@pytest.mark.long
@pytest.mark.parametrize(
    ("begins", "over"),
    [
        ("", "ga.sigma=0.1,0.2"),
        ('init_from = "named.h5"\n', "ga.sigma=0.1,0.2"),
        ("", 'run.init_from="2.h5","named.h5"'),
        ("", f'{FILES}=["2.h5"],["named.h5"]'),
    ],
)
def test_a_sweep_goes_on_with_the_copies_of_its_runs_where_a_file_is_gone(
    against: Path, begins: str, over: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(against)
    varied = "sigma" not in over
    base = Path("run.toml" if begins or varied else "against.toml").read_text().partition("[workers]")[0]
    base = base.replace("seed = 3", 'algorithm = "ga"').replace("generations = 1\n", "")
    base = base.replace("[run]\n", f"[run]\n{begins}generations = 3\n", 1)
    Path("base.toml").write_text(f'{base}[workers]\nbackend = "serial"\n')

    def swept(directory: str, most: float = math.inf) -> object:
        """Return what the sweep has decided; it is stopped after `most` runs."""
        begun = list[PlannedRun]()

        def trained(run: PlannedRun) -> str:
            begun.append(run)
            if len(begun) > most:
                raise KeyboardInterrupt
            list(train(run.experiment, run.directory))
            return ""

        planned = PlannedSweep.of("base.toml", [over], seeds=1, retest=1, directory=directory)
        race = Race(planned, planned.journal(), partial(training.train, begin=trained))
        race.retested(race.side_by_side(planned.grid))
        return json.loads(Path(directory, "sweep.json").read_text())["stages"]

    straight = swept("straight")
    with pytest.raises(KeyboardInterrupt):
        swept("halves", 1 + varied)  # where they start from the same, the second trial has no copy of its own yet
    Path("named.h5").unlink()
    assert swept("halves") == swept("halves") == straight
    shutil.copy("2.h5", "named.h5")
    with pytest.raises(ConfigurationError, match=r"is a sweep with|give the same run"):
        swept("halves")


def test_a_run_of_an_earlier_version_does_not_know_what_its_opponents_were(against: Path) -> None:
    experiment = Experiment.load(against / "against.toml", f'{FILES}=["{against / "named.h5"}"]')
    before = earlier(experiment)
    assert before.keys() < experiment.identity().keys()
    assert difference(before, experiment.identity()) == []
    for name, known in (("run", {}), ("other", {f"content of {against / 'named.h5'}": "another"})):
        with Store.create(against / name, experiment.to_toml(), before | known) as store:
            with pytest.raises(ConfigurationError, match="has changed") if known else nullcontext():
                keep(experiment, store)
            assert (store.directory / "opponent-0.h5").exists() == (not known)


def earlier(experiment: Experiment, **contents: str) -> dict[str, Any]:
    """Return the identity that an earlier version gave: with names as they are typed, and digests by them, if any."""
    kept = {key: value for key, value in experiment.identity().items() if not key.startswith(CONTENT)}
    known = {CONTENT + name: digest for name, digest in contents.items()}
    return kept | {"environment": experiment.environment.model_dump()} | known


def test_an_identity_has_what_files_of_opponents_hold_and_not_what_they_are_called(
    against: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(against)
    shutil.copy("1.h5", "run-1/champion.h5")
    hall = '{players=["hall","random"],files=["%s"]}'
    spelled = ("named.h5", "./named.h5", str(against / "named.h5"), "run-1", "1.h5")
    for file, change in (
        ("against", f'{FILES}=["%s"]'),
        ("against", f'{FILES}=["%s","2.h5"]'),
        ("run", f"environment.opponents={hall}"),
        ("run", f"environment.training=[{{opponents={hall % '2.h5'}}},{{opponents={hall}}}]"),
    ):
        loaded = [Experiment.load(f"{file}.toml", change % name, algorithm="ga") for name in spelled]
        first, *others = [one.identity() for one in loaded]
        assert all(other == first for other in others)
        digests = contents_in(first, loaded[0].environment)
        for before in (earlier(loaded[0]), earlier(loaded[0], **digests)):
            assert not [line for other in loaded for line in difference(before, other.identity())]
        shutil.copy("2.h5", "other.h5")
        another = Experiment.load(f"{file}.toml", change % "other.h5", algorithm="ga")
        (line,) = difference(earlier(loaded[0], **digests), another.identity(), another.environment)
        assert line.startswith(f'{CONTENT}other.h5: "{digests["named.h5"]}" in the run, "')
        assert difference(first, another.identity(), another.environment) == [line]
        assert len({place_of(one) for one in (*loaded, another)}) == 1
    one, two = (
        Experiment.load("against.toml", f"{FILES}={names}").identity() for names in ('["1.h5"]', '["1.h5","2.h5"]')
    )
    assert any("files" in line for line in difference(one, two))


@pytest.mark.long
def test_runs_against_one_champion_are_one_however_it_is_spelled(
    against: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(against)
    Path("cmp.toml").write_text('[comparison]\nexperiments = ["against.toml"]\nseeds = [3]\n')
    called(against, "compare", "cmp.toml", program="evo")
    words = ("against.toml", "--no-report")
    one = summary_of(against, *words, "--run-dir", "run")
    Path("old").mkdir()
    shutil.move("named.h5", "old/champion.h5")
    text = Path("against.toml").read_text().replace('files = ["named.h5"]', 'files = ["./old"]')
    Path("against.toml").write_text(text)
    called(against, "compare", "cmp.toml", program="evo")
    Path("against.toml").write_text(text.replace("./old", "none.h5"))  # for which no run has a copy
    told = called(against, "compare", "cmp.toml", program="evo", code=2)[1]
    assert 'content of none.h5: "' in told
    assert told.endswith('" in the run, "missing" now\n')
    Path("against.toml").write_text(text)
    two = summary_of(against, *words, "--run-dir", "two")
    assert two["state_hash"] == one["state_hash"]
    assert Path("run/champion.h5").read_bytes() == Path("two/champion.h5").read_bytes()
    summary_of(against, *words, "--run-dir", "four", "--seed", 4)
    assert len({run.method for run in runs_in([Path("run"), Path("four")])}) == 1
    longer = Experiment.load("against.toml", generations=2)
    assert [row.generation for row in train(longer, "run")] == [1]
    assert not Run(Path("run")).mistakes
    summary_of(against, "--resume", "run", "--generations", 3, "--no-report")
    assert "DIFFERS" not in called(against, "verify", "run", "--all", program="evo")[0]
    shutil.copy("2.h5", "old/champion.h5")  # it trained on
    with pytest.raises(ConfigurationError, match=r"content of \./old: "):
        list(train(longer, "two"))
    set_other = ("--set", f'{FILES}=["2.h5"]', "--generations", 3)
    assert "content of 2.h5: " in called(against, "--resume", "two", *set_other, code=2)[1]
    page = html.unescape(write_report(Path("two")).read_text())
    lines = page.partition("END_OF_EXPERIMENT'\n")[2].partition("END_OF_EXPERIMENT")[0]
    assert 'files = ["opponent-0.h5"]' in lines
    Path("two", "again.toml").write_text(f"{lines}\n")
    again = summary_of(against / "two", "again.toml", "--run-dir", "again", "--no-report")
    assert again["state_hash"] == two["state_hash"]


def test_a_sweep_is_of_one_content_of_the_files_of_opponents(against: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(against)
    for file, over in (("against", "ga.sigma=0.1,0.2"), ("run", f'{FILES}=["named.h5"],["2.h5"]')):
        shutil.copy("1.h5", "named.h5")
        planned = PlannedSweep.of(f"{file}.toml", [over], flags={"algorithm": "ga"}, directory=file)
        planned.journal().write()
        planned.journal()
        shutil.copy("2.h5", "named.h5")
        with pytest.raises(
            ConfigurationError, match=r"is a sweep with another content of named\.h5; choose another --"
        ):
            planned.journal()
        if file == "against":
            shutil.copy("1.h5", "moved.h5")
            text = Path("against.toml").read_text().replace('"named.h5"', '"./moved.h5"')
            Path("respelled.toml").write_text(text)
            PlannedSweep.of("respelled.toml", [over], directory=file).journal()
        journal = json.loads(Path(file, "sweep.json").read_text())
        journal["settings"] = {key: value for key, value in journal["settings"].items() if CONTENT not in key}
        before = earlier(Experiment.load(f"{file}.toml", algorithm="ga"))
        journal["settings"]["experiment"] = first_hash(before | {"seed": 0})
        Path(file, "sweep.json").write_bytes(with_checksum({k: v for k, v in journal.items() if k != "crc"}))
        planned.journal()  # an earlier version began it


IN_VALIDATION = RUN.replace(
    "[environment.training",
    """opponents = { players = ["random", "hall"], count = 3 }
[environment.training""",
)


@pytest.mark.long
@pytest.mark.parametrize("algorithm", ["ga", "ppo"])
def test_the_champion_is_the_best_against_the_champions_so_far_and_the_baselines(
    algorithm: str, tmp_path: Path
) -> None:
    (tmp_path / "run.toml").write_text(IN_VALIDATION)
    words = ("run.toml", "--algorithm", algorithm, "--set", "validation.every=2", "--no-report")
    straight = summary_of(tmp_path, *words, "--generations", 9, "--run-dir", "straight")
    summary_of(tmp_path, *words, "--generations", 3, "--run-dir", "halves", "--backend", "serial")
    assert summary_of(tmp_path, "--resume", "halves", "--generations", 9)["state_hash"] == straight["state_hash"]
    report = json.loads(called(tmp_path, "verify", "straight", "--all", "--json", program="evo")[0].splitlines()[-1])
    assert report["ok"]
    for row in Run(tmp_path / "straight").metrics:
        assert 0 < row["frames_of_baselines"] < row["frames"]
        assert row["lane_utilisation"] == (row["frames"] - row["frames_of_baselines"]) / row["slots"] <= 1
    state = Run(tmp_path / "straight").store.load()
    hall, since = state[HALL], state[SINCE]
    assert len(hall) == len(since) > 1
    assert np.array_equal(hall[-1], state["champion"][0])
    assert state["champion_origin"][1] == since[-1]
    assert (np.diff(since) > 0).all()
    page = write_report(tmp_path / "straight").read_text()
    data = json.loads(re.search(r'id="data">(.*?)</script>', page)[1])  # type: ignore[index]
    (chart,) = [one for one in data["charts"] if one["title"] == "Rating over time"]
    (series,) = chart["series"]
    assert (series["x"][0], series["x"][-1]) == (since[0] + 1, since[-1] + 1)
    ends = zip(series["low"], series["values"], series["high"], strict=True)
    assert all(low < value < high for low, value, high in ends)
    assert [one["label"] for one in chart["levels"]] == ["random"]


def test_who_wins_against_the_champions_becomes_champion_though_baselines_rank_another_one_first() -> None:
    """Returns are made by hand: against the baselines, then against the only champion so far."""
    chosen = tictactoe.Options(id="tictactoe", opponents=Opponents(players=["random", "hall"]))
    validated = Validated(Offering(), ValidationOptions(every=1, episodes=2, finalists=2), 1, None, curriculum(chosen))
    metrics, _ = played(validated, 0, [[100, 200], [300, 400]])
    assert metrics["validation"] == pytest.approx(0.35)
    # Finalist 0 has 500 against the baselines and -900 against the champion, finalist 1 has 400
    # and 500, and the champion 700 and 99.
    metrics, request = played(validated, 1, [[200, 300], [200, 200], [-400, -500], [200, 300], [50, 49]])
    assert [len(task.opponents or ()) for task in request.tasks] == [0, 0, 1, 1, 1]
    assert metrics["validation"] == pytest.approx(0.2)
    assert validated.origin()["generation"] == 1
    # Now the champion has 400 + 300, and a finalist that equals it does not replace it.
    played(validated, 2, [[400, 300], [0, 0], [0, 0], [0, 0], [100, 200]])
    assert validated.origin()["generation"] == 1


def test_finalists_meet_networks_of_files_before_there_is_a_champion() -> None:
    chosen = tictactoe.Options(id="tictactoe", opponents=Opponents(players=["random", "hall"]))
    options = ValidationOptions(every=1, episodes=2, finalists=2)
    of_file = np.full((1, 2), 7, np.float32)
    validated = Validated(Offering(), options, 1, None, curriculum(chosen), of_files=lambda: of_file)
    metrics, request = played(validated, 0, [[100, 200], [300, 400], [0, 0], [-500, -400]])
    assert [len(task.opponents or ()) for task in request.tasks] == [0, 0, 1, 1]
    assert request.weights is not None
    assert request.weights.tolist() == [[1, 1], [1, 2], [7, 7]]
    assert metrics["validation"] == pytest.approx(0.15)


def test_moves_of_baselines_are_counted_apart() -> None:
    validated = Validated(Playing(), ValidationOptions(every=2), 1, None, curriculum(options(["random"])))
    rounds, nothing = validated.generation(2), np.zeros((1, 1), np.int32)
    next(rounds)
    result = Result(nothing, nothing, nothing[..., None], np.ones(1, np.bool_), frames=5, lane_slots=3, unasked=2)
    with pytest.raises(StopIteration) as end:
        rounds.send([result, result])
    assert end.value.value["frames_of_baselines"] == 4.0
    assert result.forward_passes == 3


def test_moves_of_baselines_take_no_lanes_where_no_network_is_an_opponent(tmp_path: Path) -> None:
    experiment = Experiment.build(
        run={"generations": 2},
        environment={"id": "tictactoe"},
        policy={"kind": "linear"},
        workers={"backend": "serial"},
        validation={"episodes": 4},
        test={"episodes": 4},
        ga={"population": 8, "parents": 2, "episodes": 4},
    )
    for row in train(experiment, tmp_path / "run"):
        assert 0 < row.metrics["frames_of_baselines"] < row.metrics["frames"]
        assert 0 < row.metrics["lane_utilisation"] <= 1


class Offering(Algorithm):
    """Plays nothing, and offers two networks of its generation."""

    def generation(self, number: int) -> Generation:
        self.number = number
        return {}
        yield Request(None, [])

    def finalists(self, count: int) -> Finalists:
        return Finalists(np.array([[self.number, 0], [self.number, 1]], np.float32) + np.float32(self.number == 0))


class Playing(Offering):
    """Asks once for nothing."""

    def generation(self, number: int) -> Generation:
        yield Request(None, [])
        return {}


def played(validated: Validated, number: int, returns: list[list[int]]) -> tuple[dict[str, float], Request]:
    """Play a generation whose validation tasks have these returns; return its metrics and the request."""
    rounds = validated.generation(number)
    request = next(rounds)
    nothing = np.zeros((1, 2), np.int32)
    results = [
        Result(np.array([one], np.int64), nothing, np.zeros((1, 2, 3), np.int32), np.ones(1, np.bool_), 2, 2)
        for one in returns
    ]
    with pytest.raises(StopIteration) as end:
        rounds.send(results)
    return end.value.value, request
