"""Any compiled game is played by the same rollouts: one that they do not know equals its twin behind Gymnasium."""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pytest

from evo.environment import Environment
from evo.games.game import GameEnvironment
from evo.games.step import Ended
from evo.kernels import lanes as kernel
from evo.networks.candidates import Rebuilder
from evo.networks.network import Network
from evo.networks.network import Options as Policy
from evo.options import EnvironmentOptions
from evo.plugins import registry
from evo.records import (
    SEGMENT_END,
    TERMINATED,
    TRUNCATED,
    ActionRule,
    Episodes,
    Segment,
    Task,
    WeightSource,
)
from evo.rollouts import tensorflow_kernel
from evo.rollouts.rollout import Rollout
from evo.rollouts.segments import replay_segment
from tests.compiled.falling import Options, PlainCatch, make
from tests.helpers.calling import ROOT, summary_of
from tests.rollouts.readable_segment import ReadableLane

NAMES = ("observations", "action_masks", "actions", "rewards", "ends", "outputs", "next_observations", "next_outputs")
EMPTY = np.empty((0, 0), np.float32)
SOFTMAX = ActionRule("softmax")
SEEDS = np.arange(40, dtype=np.uint64)


@dataclass(frozen=True)
class Plain(Environment):
    """Catch, of which nothing is compiled."""

    options: Options
    shape = (3,)
    actions = 3
    episode_metrics = ("score",)

    def env(self) -> Any:
        return PlainCatch(self.options)

    def metrics_of_episode(self, info: Any, truncated: bool) -> tuple[int, ...]:
        return (info["score"],)


def made(masked: bool) -> tuple[GameEnvironment, Network]:
    environment = make(Options(masked=masked))
    return environment, Network.build(Policy(kind="mlp", dense=[6]), (3,), 3, 1)


def fresh() -> WeightSource:
    return WeightSource(*(np.full(1, value, kind) for value, kind in ((-1, "i4"), (-1, "i4"), (5, "u8"), (0, "f4"))))


def weights_of(rollout: Rollout) -> np.ndarray:
    weights = np.empty(rollout.network.size, np.float32)
    Rebuilder(rollout.network).rebuild(EMPTY, fresh(), 0, weights)
    return weights


def same(one: Any, other: Any, observe: Any = None) -> None:
    for name in NAMES:
        mine, theirs = getattr(one, name), getattr(other, name)
        if observe is not None and "observations" in name:
            mine = observe(mine)
        if mine is None:  # where nothing is masked
            assert theirs is None or theirs.all()
        else:
            assert mine.tobytes() == theirs.tobytes(), name


@pytest.mark.long
@pytest.mark.parametrize("masked", [False, True])
def test_episodes_equal_those_of_the_plain_twin(masked: bool) -> None:
    environment, network = made(masked)
    task = Task(fresh(), Episodes(SEEDS), SOFTMAX, record_actions=True, record_transitions=True)
    compiled = Rollout(network, environment).play(task, EMPTY)
    plain = Rollout(network, Plain(environment.options)).play(task, EMPTY)
    assert compiled.returns.tolist() == np.rint(1000 * plain.returns).tolist()
    for name in ("lengths", "episode_metrics"):
        assert getattr(compiled, name).tolist() == getattr(plain, name).tolist()
    same(compiled.transitions, plain.transitions, environment.game.observe)
    assert [a.tolist() for a in compiled.actions or ()] == [a.tolist() for a in plain.actions or ()]
    assert {TERMINATED, TRUNCATED} <= {*compiled.transitions.ends.tolist()}
    unrecorded = Rollout(network, environment).play(Task(fresh(), Episodes(SEEDS), SOFTMAX), EMPTY)
    assert unrecorded.returns.tolist() == compiled.returns.tolist()


@pytest.mark.long
@pytest.mark.parametrize("masked", [False, True])
def test_segments_equal_those_of_the_plain_twin_and_their_replay(masked: bool) -> None:
    environment, network = made(masked)
    rollout, game, horizon = Rollout(network, environment), environment.game, 30
    weights, envs = weights_of(rollout), game.begin(SEEDS)
    readable = [ReadableLane(environment, int(first)) for first in envs.first]
    for _ in range(2):  # the second goes on from snapshots
        result = rollout.play(Task(fresh(), Segment(envs, horizon), SOFTMAX), EMPTY)
        played = [lane.play(network, weights, horizon, SOFTMAX) for lane in readable]
        steps = result.transitions
        for name, array in (
            ("seen", game.observe(steps.observations)),
            ("after", game.observe(steps.next_observations)),
            *((name, getattr(steps, name)) for name in ("actions", "rewards", "ends", "outputs", "next_outputs")),
        ):
            np.testing.assert_array_equal(array, np.array([value for lane in played for value in lane[name]]), name)
        ended = [one for lane in played for one in lane["ended"]]
        found = result.returns[0], result.lengths[0], result.episode_metrics[0, :, 0]
        assert ended == list(zip(*(array.tolist() for array in found), strict=True))
        assert {TERMINATED, TRUNCATED, SEGMENT_END} <= {*steps.ends.tolist()}
        again, left = replay_segment(game, envs, steps.actions.reshape(len(envs), horizon))
        for name in ("observations", "action_masks", "rewards", "ends", "next_observations", "next_action_masks"):
            np.testing.assert_array_equal(getattr(again, name), getattr(steps, name), name)
        other = tensorflow_kernel.play_segment(
            lambda seen, _: kernel.scores(network, weights, seen),
            game,
            Segment(envs, horizon),
            network.outputs,
            SOFTMAX,
        )
        same(other.transitions, steps)
        envs = result.envs
        for name, array in vars(envs).items():
            np.testing.assert_array_equal(getattr(left, name), array)


@pytest.mark.long
def test_episodes_of_networks_in_tensorflow_equal_those_of_the_lanes_kernel() -> None:
    environment, network = made(True)
    rollout, seeds = Rollout(network, environment), SEEDS  # more than a batch
    weights, ended = weights_of(rollout), Ended.empty(len(seeds), 1)
    task = Task(fresh(), Episodes(seeds), SOFTMAX, record_actions=True, record_transitions=True)
    played = tensorflow_kernel.play_episodes(
        lambda seen, _: kernel.scores(network, weights, seen), environment.game, task, ended, network.outputs
    )
    expected = rollout.play(task, EMPTY)
    for name, array in ended._asdict().items():
        assert array.tolist() == getattr(expected, name)[0].tolist()
    for mine, theirs in zip(played.actions, expected.actions or (), strict=True):
        assert mine.tolist() == theirs.tolist()
    same(played.transitions, expected.transitions)


def test_snapshots_are_the_bytes_of_the_arrays_and_of_no_other_size() -> None:
    game = made(False)[0].game
    envs = game.begin(SEEDS[:3])
    assert envs.snapshots.shape == (3, 2 * 2 + 1 + 4 + 3 * 8)  # the last are of the clock
    state = game.restored(envs.snapshots)
    expected = [b"".join(array[b].tobytes() for array in (*state.state, *state.clock)) for b in range(3)]
    assert [row.tobytes() for row in envs.snapshots] == expected
    with pytest.raises(ValueError, match="not 33 bytes each"):
        game.restored(envs.snapshots[:, :-1])


def test_a_plug_in_may_declare_its_own_id() -> None:
    registry.load(["tests.compiled.falling"])
    assert "tests.compiled.falling" in registry.loaded()


def test_a_plug_ins_id_is_a_text() -> None:
    class Numbered(EnvironmentOptions):
        id: Literal[3] = 3  # type: ignore[assignment]

    assert registry._taken(Numbered, EnvironmentOptions) == "id"


@pytest.mark.long
@pytest.mark.parametrize("algorithm", ["ga", "ppo"])
def test_a_run_of_a_plug_in_game_plays_it_by_compiled_rollouts(algorithm: str, tmp_path: Path) -> None:
    (tmp_path / "falling.toml").write_text(
        '[run]\ngenerations = 2\n[environment]\nid = "falling"\n[policy]\nkind = "mlp"\ndense = [4]\n'
        "[workers]\ncount = 1\n[validation]\nepisodes = 8\n[test]\nepisodes = 8\n"
        "[ga]\npopulation = 16\nparents = 4\nelites = 1\nepisodes = 8\n"
    )
    words = ["falling.toml", "--plugin", "tests.compiled.falling", "--run-dir", "run", "--algorithm", algorithm]
    summary = summary_of(tmp_path, *words, apart=True)
    assert summary["status"] == "done"
    assert summary["champion"]["test"]["mean"] >= 0


TWINS = """
import json, sys
import numpy as np
import evo
from evo.config.environments import environment_of

for name in sys.argv[1:]:
    experiment = evo.Experiment.build(
        plugins=[name], environment={"id": name}, run={"algorithm": "ga", "generations": 1}, policy={"kind": "linear"}
    )
    game = environment_of(experiment.environment).game
    from evo.rollouts.segments import replay_segment

    segment = replay_segment(game, game.begin(np.arange(4, dtype=np.uint64)), np.ones((4, 6), np.int8))[0]
    print(name, sorted(set(np.round(segment.rewards, 3).tolist())))
"""


@pytest.mark.long
def test_two_games_with_equal_names_and_fields_of_states_are_not_taken_for_one_another(tmp_path: Path) -> None:
    """As of two files of `evo new game`: both states are called State."""
    source = (ROOT / "evo" / "cli" / "skeletons" / "game.py").read_text()
    (tmp_path / "alpha.py").write_text(source)
    (tmp_path / "beta.py").write_text(source.replace("return -0.01,", "return -0.5,"))
    (tmp_path / "twins.py").write_text(TWINS)

    def played(*names: str) -> dict[str, str]:
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(tmp_path), str(ROOT)])}
        command = [sys.executable, "twins.py", *names]
        done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
        return dict(line.split(" ", 1) for line in done.stdout.splitlines())

    alone = {**played("alpha"), **played("beta")}
    assert alone["alpha"] != alone["beta"]
    assert played("alpha", "beta") == alone
    assert played("beta", "alpha") == alone
