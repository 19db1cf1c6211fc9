"""Snake behind Gymnasium's interfaces, held to Gymnasium's own checks and to the rules."""

from __future__ import annotations

import pickle
import subprocess
import sys
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium.utils.env_checker import check_env, data_equivalence
from gymnasium.vector import AutoresetMode, SyncVectorEnv
from hypothesis import given
from hypothesis import strategies as st

import snake
from evo.games.envs import GameEnv, GameVectorEnv
from evo.randomness.philox_compiled import episode_seed as compiled_episode_seed
from snake import SnakeEnv, SnakeVectorEnv
from snake.rules import OBSERVATIONS, Game, episode_seed
from tests.helpers.sampling import sampled


def make(**options: Any) -> GameEnv:
    env = gymnasium.make("evo/Snake-v0", **options).unwrapped
    assert isinstance(env, GameEnv)
    return env


def vector(mode: AutoresetMode, **options: Any) -> GameVectorEnv:
    envs = gymnasium.make_vec("evo/Snake-v0", num_envs=7, autoreset_mode=mode, **options)
    assert isinstance(envs, GameVectorEnv)
    return envs


@pytest.mark.parametrize("observation", OBSERVATIONS)
@pytest.mark.parametrize("mask", ["none", "fatal"])
def test_gymnasium_finds_nothing_to_complain_about(
    observation: str, mask: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("time.sleep", lambda seconds: None)
    check_env(make(size=6, observation=observation, mask=mask))
    assert "score 0" in capsys.readouterr().out  # it has drawn for a human as well


@pytest.mark.parametrize("actions", ["absolute", "relative"])
def test_a_seed_is_the_episode_of_that_seed(actions: str) -> None:
    env = make(size=5, observation="planes", actions=actions, starvation=15, tail="fatal", start_length=2)
    for seed in (0, 7, 2**63 + 1, 2**64 - 1):
        observation, info = env.reset(seed=seed)
        game = Game(size=5, actions=actions, starvation=15, tail="fatal", start_length=2, seed=seed)
        step = 0
        while True:
            assert env.shown()[:3] == (5, game.body, game.fruit)
            assert observation[(*game.body[0], 0)] == 1
            assert observation.sum(axis=(0, 1))[:2].tolist() == [1, len(game.body) - 1]
            assert info["score"] == game.score
            assert info["action_mask"].tolist() == [1] * int(env.action_space.n)  # type: ignore[attr-defined]
            if game.over:
                break
            action = game.mask("fatal").index(1) if step < 6 else 1
            observation, *outcome, info = env.step(np.int64(action))
            assert tuple(outcome) == game.step(action)
            step += 1
        with pytest.raises(RuntimeError, match="call reset"):
            env.step(np.int64(0))


def test_resets_without_a_seed_follow_from_the_last_seed() -> None:
    first, second = make(size=6), make(size=6)
    openings = []
    for number in range(4):
        first.reset(seed=11 if number == 0 else None)
        game = Game(size=6, seed=episode_seed(11, number))
        assert first.shown()[:3] == (6, game.body, game.fruit)
        openings.append((tuple(game.body), game.fruit))
    assert len(set(openings)) == 4
    second.reset(seed=11)
    second.step(np.int64(1))
    second.reset()
    assert (tuple(second.shown().body), second.shown().fruit) == openings[1]


@pytest.mark.long
def test_a_first_reset_without_a_seed_differs_from_run_to_run() -> None:
    openings = set()
    for _ in range(6):
        env = make(size=20)
        env.reset()
        openings.add((tuple(env.shown().body), env.shown().fruit))
    assert len(openings) > 1


@given(first=st.integers(0, 2**64 - 1), number=st.integers(0, 2**32 - 1))
def test_the_compiled_name_of_an_episode_is_the_plain_one(first: int, number: int) -> None:
    assert int(compiled_episode_seed(np.uint64(first), number)) == episode_seed(first, number)


def test_make_vec_takes_the_compiled_environment() -> None:
    envs = gymnasium.make_vec("evo/Snake-v0", num_envs=3, size=6, observation="planes")
    assert isinstance(envs, GameVectorEnv)
    assert envs.metadata["autoreset_mode"] is AutoresetMode.NEXT_STEP
    assert envs.observation_space.shape == (3, 6, 6, 5)
    again = gymnasium.make_vec(envs.spec)
    assert isinstance(again, GameVectorEnv)
    assert again.num_envs == 3


@pytest.mark.parametrize("mode", AutoresetMode)
@pytest.mark.parametrize("observation", OBSERVATIONS)
@pytest.mark.parametrize("mask", sampled(["none", "reverse", "fatal"], 2))
def test_the_compiled_vector_is_gymnasiums_own_over_single_environments(
    mode: AutoresetMode, observation: str, mask: str
) -> None:
    options = {"size": 5, "observation": observation, "mask": mask, "starvation": 8, "start_length": 2}
    ours = vector(mode, **options)
    theirs = SyncVectorEnv([lambda: SnakeEnv(**options)] * 7, autoreset_mode=mode)
    seeds = [3, 1, 4, 1, 5, 2**64 - 1, 9]
    assert data_equivalence(ours.reset(seed=seeds), theirs.reset(seed=seeds), exact=True)
    actions = np.random.default_rng(2).integers(0, 3, (60, 7))
    ends = 0
    for step in range(60):
        one, other = ours.step(actions[step]), theirs.step(actions[step])
        assert data_equivalence(one, other, exact=True), step
        over = one[2] | one[3]
        ends += int(over.sum())
        assert ("final_obs" in one[4]) == (mode is AutoresetMode.SAME_STEP and bool(over.any()))
        if mode is AutoresetMode.DISABLED and over.any():
            one, other = ours.reset(options={"reset_mask": over}), theirs.reset(options={"reset_mask": over.copy()})
            assert np.array_equal(one[0], other[0])
            for name in ("action_mask", "score"):
                assert np.array_equal(one[1][f"_{name}"], over)
                assert np.array_equal(one[1][name][over], other[1][name][over])
    assert ends > 20


def test_a_seed_seeds_every_environment_by_its_place() -> None:
    envs = vector(AutoresetMode.NEXT_STEP, size=6)
    envs.reset(seed=100)
    for b in range(7):
        game = Game(size=6, seed=100 + b)
        assert envs.shown()[b][:3] == (6, game.body, game.fruit)
    envs.reset(seed=[None, 5, None, None, None, None, None])
    for b in range(7):
        game = Game(size=6, seed=5 if b == 1 else episode_seed(100 + b, 1))
        assert envs.shown()[b][:3] == (6, game.body, game.fruit)


def test_what_was_handed_out_stays_unless_copies_are_declined() -> None:
    actions = np.ones(7, np.int64)
    envs = vector(AutoresetMode.SAME_STEP, size=6, observation="planes")
    first, info = envs.reset(seed=1)
    kept, scores = first.copy(), info["score"].copy()
    for _ in range(4):
        envs.step(actions)
    assert np.array_equal(first, kept)
    assert np.array_equal(info["score"], scores)
    shared = vector(AutoresetMode.SAME_STEP, size=6, observation="planes", copy=False)
    assert np.array_equal(shared.reset(seed=1)[0], kept)
    out = shared.step(actions)[0]
    assert shared.step(actions)[0] is out


def test_a_vector_refuses_what_is_not_an_action_or_comes_too_late() -> None:
    envs = vector(AutoresetMode.DISABLED, size=4, start_length=4)
    with pytest.raises(RuntimeError, match="has not begun"):
        envs.step(np.ones(7, np.int64))
    envs.reset(seed=0)
    for actions in (np.full(7, 3), np.full(7, -1), np.ones(6, np.int64), np.ones(7)):
        with pytest.raises(ValueError, match="action"):
            envs.step(actions)
    envs.step(np.ones(7, np.int64))  # straight into the wall
    with pytest.raises(RuntimeError, match="is over"):
        envs.step(np.ones(7, np.int64))
    for mask in (np.zeros(7, np.bool_), np.ones(6, np.bool_), [True] * 7):
        with pytest.raises(ValueError, match="reset_mask"):
            envs.reset(options={"reset_mask": mask})
    with pytest.raises(ValueError, match="2 seeds for 7 environments"):
        envs.reset(seed=[1, 2])


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"observation": "pixels"}, '"frame", "planes", "ego", "window"'),
        ({"observation": "ego", "actions": "absolute"}, 'so use "relative"'),
        ({"mask": "all"}, '"none", "reverse", "fatal"'),
        ({"size": 3}, "size: must be at least 4"),
        ({"window": 4}, "not an odd number"),
        ({"rewards": {"fruits": 1}}, "rewards.fruits: unknown key"),
        ({"render_mode": "svg"}, "rgb_array, ansi, human"),
    ],
)
def test_a_wrong_option_is_refused_by_name(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        SnakeEnv(**options)


def test_a_wrong_action_or_seed_is_refused() -> None:
    env = make(size=6)
    with pytest.raises(RuntimeError, match="call reset"):
        env.step(np.int64(0))
    with pytest.raises(ValueError, match="seed is -1"):
        env.reset(seed=-1)
    env.reset(seed=0)
    with pytest.raises(ValueError, match="an action is not between 0 and 2"):
        env.step(np.int64(3))


def test_pictures_come_in_the_mode_that_was_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    picture = make(size=6, render_mode="rgb_array")
    picture.reset(seed=0)
    frame = picture.render()
    assert (frame.dtype, frame.ndim, frame.shape[2]) == (np.uint8, 3, 3)
    words = make(size=6, render_mode="ansi")
    words.reset(seed=0)
    monkeypatch.setenv("NO_COLOR", "1")
    assert "\x1b" not in words.render()
    monkeypatch.delenv("NO_COLOR")
    assert "\x1b[48;2;" in words.render()
    many = vector(AutoresetMode.NEXT_STEP, size=6, render_mode="rgb_array")
    many.reset(seed=0)
    frames = many.render()
    assert frames is not None
    assert len(frames) == 7
    assert np.array_equal(frames[0], frame)


def test_importing_the_package_compiles_nothing() -> None:
    code = "import sys, snake; assert 'numba' not in sys.modules; print(snake.Game.__name__, 'numba' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["Game", "False"]


def test_what_the_package_offers_is_there() -> None:
    assert snake.Game is Game
    assert isinstance(snake.SnakeVectorEnv(2, size=5), GameVectorEnv)
    assert callable(SnakeVectorEnv)
    assert set(snake.PUBLIC) <= set(dir(snake))
    assert snake.play("greedy", 1, size=6) > 0
    with pytest.raises(AttributeError, match="no attribute 'Board'"):
        snake.Board  # noqa: B018


@pytest.mark.parametrize("kind", [gymnasium.make, gymnasium.make_vec])
def test_an_unknown_option_is_named_with_the_close_one(kind: Any) -> None:
    with pytest.raises(ValueError, match=r"sise: unknown key - did you mean `size`\?$"):
        kind("evo/Snake-v0", sise=6)
    with pytest.raises(ValueError, match=r"gravity: unknown key; known are id, .*size, observation, "):
        kind("evo/Snake-v0", gravity=9.8)


def test_numbers_of_numpy_are_options_and_mistakes_have_our_words() -> None:
    assert gymnasium.make("evo/Snake-v0", size=np.int64(6), starvation=np.int32(40)).observation_space.shape[0] == 11
    with pytest.raises(ValueError, match=r"rewards.fruit: fruit = 0\.0001 is not a multiple"):
        gymnasium.make("evo/Snake-v0", rewards={"fruit": 0.0001})


@pytest.mark.long
def test_a_copy_by_pickle_goes_on_as_the_environment_does_also_in_another_process(tmp_path: Path) -> None:
    env, envs = make(size=6), vector(AutoresetMode.SAME_STEP, size=6)
    env.reset(seed=np.int64(3))
    envs.reset(seed=np.int64(3))
    env.step(1)
    (tmp_path / "envs").write_bytes(pickle.dumps((env, envs)))
    played = [str((env.step(1), env.reset(), envs.step(np.ones(7, np.int64))[0].sum()))]
    code = (
        "import pickle, numpy as np; env, envs = pickle.load(open('envs', 'rb')); "
        "print((env.step(1), env.reset(), envs.step(np.ones(7, np.int64))[0].sum()))"
    )
    command = [sys.executable, "-c", code]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=True)
    assert done.stdout.splitlines() == played[0].splitlines()


def test_options_of_experiments_alone_are_refused_by_an_environment() -> None:
    assert SnakeEnv(id="snake", size=6).reset(seed=1)
    for name, value in (("training", {}), ("id", "catch"), ("training_generations", 3)):
        with pytest.raises(ValueError, match=f"game snake: {name}: of experiments alone"):
            SnakeEnv(**{name: value})


def test_what_a_single_environment_says_of_an_action_is_of_one_action() -> None:
    env = make(size=6)
    env.reset(seed=1)
    with pytest.raises(ValueError, match=r"^an action is a whole number, not int64 \(2,\)$"):
        env.step(np.zeros(2, np.int64))
