"""A champion with memory acts as it was tested: step by step, in batches, and in every view of its run."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import evo
from evo.games.catalogue import tmaze
from evo.plugins import registry
from evo.training.testing import playing, record
from tests.helpers.calling import called, small_with, summary_of

MAZE = small_with(
    run="generations = 2",
    environment='id = "tmaze"\nlength = 3\nmax_steps = 30',
    policy='kind = "mlp"\ndense = [4]\nmemory = "lstm:3"',
)

REFUSING = ("dqn", "erl", "reinforce", "sac", "td3")


@pytest.mark.long
def test_a_champion_with_memory_goes_on_from_its_state_until_it_is_reset(tmp_path: Path) -> None:
    (tmp_path / "maze.toml").write_text(MAZE)
    summary = summary_of(tmp_path, "maze.toml", "--run-dir", "run", "--no-report")
    run = evo.Run(tmp_path / "run")
    policy, size = run.champion, run.champion.network.memory
    assert size == 6
    with playing(run.config) as (evaluator, published):
        name = published.publish(policy.weights[None])
        recorded = [record(name, evaluator, episode, (), steps=True) for episode in range(5)]
    env, state = run.environment.env(), np.zeros(size, np.float32)
    for recording in recorded:
        observation, _ = env.reset(seed=recording.seed)
        policy.reset()
        state[:] = 0
        for action, outputs, before in zip(
            recording.actions, recording.steps.outputs, recording.steps.memories, strict=True
        ):
            assert before.tolist() == state.tolist()
            found, state = policy.step(observation, state)
            assert found.tolist() == outputs.tolist()
            assert policy(observation) == action
            observation, *_ = env.step(int(action))
    assert summary["champion"]["test"]["episodes"] == 20
    out, _ = called(tmp_path, "verify", "run", program="evo")
    assert "its test score on 20 episodes, measured again" in out
    called(tmp_path, "replay", "run", "--step", program="evo")
    called(tmp_path, "report", "run", program="evo")
    assert "with memory of" in (tmp_path / "run" / "report.html").read_text()


@pytest.mark.long
def test_a_batch_has_a_state_for_each_and_some_are_reset(tmp_path: Path) -> None:
    (tmp_path / "maze.toml").write_text(MAZE)
    experiment = evo.Experiment.load(tmp_path / "maze.toml")
    network = experiment.network()
    weights = np.random.default_rng(1).normal(size=network.size).astype(np.float32)
    policy = evo.Policy(network, weights, experiment)
    seen = np.random.default_rng(2).normal(size=(3, 5, *network.shape)).astype(np.float32)
    first, state = policy.step(seen[0])
    second, _ = policy.step(seen[1], state)
    assert policy.scores(seen[0]).tolist() == first.tolist()
    assert policy.scores(seen[1]).tolist() == second.tolist() != policy.step(seen[1])[0].tolist()
    policy.reset(np.array([True, False, False, True, False]))
    third, fresh = policy.scores(seen[2]), policy.step(seen[2])[0]
    assert (third == fresh).all(axis=1).tolist() == [True, False, False, True, False]
    with pytest.raises(ValueError, match=r"hidden state of shape \(5, 6\), where \(6,\) fits; call reset"):
        policy(seen[0, 0])
    with pytest.raises(ValueError, match=r"`ended` of shape \(1,\), where \(5,\) fits"):
        policy.reset(np.array([True]))
    policy.reset()
    assert policy.scores(seen[0, 0]).tolist() == first[0].tolist()


def test_what_evolves_takes_memory_and_what_learns_without_it_refuses_it_in_a_line(tmp_path: Path) -> None:
    pole = MAZE.replace('"tmaze"\nlength = 3', '"gymnasium:Pendulum-v1"\nrescale_actions = true')
    (tmp_path / "maze.toml").write_text(MAZE)
    (tmp_path / "pole.toml").write_text(pole)
    for algorithm in registry.names("algorithms"):
        if algorithm == "gp":
            continue  # it evolves trees
        refused, continuous = algorithm in REFUSING, algorithm in ("sac", "td3")
        file = "pole.toml" if continuous else "maze.toml"
        _, err = called(tmp_path, file, "--algorithm", algorithm, "--dry-run", code=2 if refused else 0)
        assert ("policy.memory: this algorithm does not learn networks with memory" in err) == refused, algorithm


def test_the_maze_shows_its_cue_once() -> None:
    game = tmaze.make(tmaze.Options(id="tmaze", length=2, step_cost=0.01)).plain()
    ways = set()
    for seed in range(8):
        game.begin(0, seed)
        cue = game.observe(0).tolist()
        ways.add(tuple(cue))
        assert cue[2] == 0
        assert game.step(0, 0) == (-0.01, 0)  # a wall
        assert game.observe(0).tolist() == [0, 0, 0]
        game.step(0, 1)
        game.step(0, 1)
        assert game.observe(0).tolist() == [0, 0, 1]
        assert game.step(0, 1) == (-0.01, 0)
        assert game.step(0, 0 if seed % 2 else 2)[0] == cue[0 if seed % 2 else 1]
    assert ways == {(1, 0, 0), (0, 1, 0)}
