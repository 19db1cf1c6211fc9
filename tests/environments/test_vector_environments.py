"""Snake's vectors and those of every other game behave alike: seeds, actions, pictures and the three resets."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium.utils.env_checker import data_equivalence
from gymnasium.vector import AutoresetMode, SyncVectorEnv

import evo.games
import snake

assert evo.games
assert snake
COUNT = 5
NAMES: dict[str, dict[str, Any]] = {
    "evo/Snake-v0": {"size": 5, "starvation": 8},
    "evo/catch-v0": {"rows": 5},
    "evo/game_2048-v0": {"max_steps": 12},  # masked, and with metrics
    "evo/pendulum-v0": {"max_steps": 9},  # continuous
}
LONG = ("evo/game_2048-v0", "evo/pendulum-v0")  # each is compiled for some seconds
every = pytest.mark.parametrize(
    "name", [pytest.param(name, marks=[pytest.mark.long] if name in LONG else []) for name in NAMES]
)
choosing = pytest.mark.parametrize("name", ["evo/Snake-v0", "evo/catch-v0"])


def single(name: str, **more: Any) -> gymnasium.Env[Any, Any]:
    return gymnasium.make(name, **NAMES[name], **more).unwrapped


def vector(name: str, **more: Any) -> Any:
    return gymnasium.make_vec(name, COUNT, **NAMES[name], **more)


@every
@pytest.mark.parametrize("mode", AutoresetMode)
def test_a_vector_is_gymnasiums_own_over_single_environments(name: str, mode: AutoresetMode) -> None:
    ours = vector(name, autoreset_mode=mode)
    theirs = SyncVectorEnv([lambda: single(name)] * COUNT, autoreset_mode=mode)
    seeds = [3, 1, 2**64 - 1, 1, 5]
    assert data_equivalence(ours.reset(seed=seeds), theirs.reset(seed=seeds), exact=True)
    ours.action_space.seed(7)
    ends = 0
    for step in range(40):
        actions = ours.action_space.sample()
        one, other = ours.step(actions), theirs.step(actions)
        assert data_equivalence(one, other, exact=True), step
        over = one[2] | one[3]
        ends += int(over.sum())
        assert ("final_obs" in one[4]) == (mode is AutoresetMode.SAME_STEP and bool(over.any()))
        if mode is AutoresetMode.DISABLED and over.any():
            one, other = ours.reset(options={"reset_mask": over}), theirs.reset(options={"reset_mask": over.copy()})
            assert np.array_equal(one[0], other[0])
    assert ends > COUNT


@every
def test_make_vec_passes_the_mode_of_pictures_on(name: str) -> None:
    if name in LONG and not single(name).metadata["render_modes"]:
        pytest.skip("it draws no pictures")
    envs, env = vector(name, render_mode="rgb_array"), single(name, render_mode="rgb_array")
    envs.reset(seed=4)
    env.reset(seed=6)
    pictures = envs.render()
    assert len(pictures) == COUNT
    np.testing.assert_array_equal(pictures[2], env.render())
    assert "rgb_array" in envs.metadata["render_modes"]
    assert vector(name).render() is None
    with pytest.raises(ValueError, match="svg"):
        vector(name, render_mode="svg")


@every
@pytest.mark.parametrize("seed", [-1, 2**64, 1.5])
def test_a_seed_that_names_no_episode_is_refused(name: str, seed: Any) -> None:
    message = "seed is a whole number, not 1.5" if seed == 1.5 else f"seed is {seed}, not between 0 and {2**64 - 1}"
    with pytest.raises(ValueError, match=message):
        single(name).reset(seed=seed)
    with pytest.raises(ValueError, match=message):
        vector(name).reset(seed=[seed, None, None, None, None])
    if seed == 1.5:
        message = "seed is a whole number, a list of them or None, not 1.5"
        with pytest.raises(ValueError, match=message):
            vector(name).reset(seed=seed)
    else:
        with pytest.raises(ValueError, match=r"seed is -?\d+, not between"):
            vector(name).reset(seed=seed)


@every
@pytest.mark.parametrize("count", [0, -1, 1.5])
def test_a_vector_has_an_environment_at_least(name: str, count: Any) -> None:
    with pytest.raises(ValueError, match="num_envs is "):
        gymnasium.make_vec(name, count, **NAMES[name])


@choosing
def test_actions_that_are_no_whole_numbers_are_refused(name: str) -> None:
    envs, env = vector(name), single(name)
    envs.reset(seed=1)
    env.reset(seed=1)
    for actions in (np.ones(COUNT), np.ones(COUNT, np.float32), np.ones(COUNT, np.bool_), np.ones(COUNT - 1, np.int64)):
        with pytest.raises(ValueError, match=r"actions are .* not "):
            envs.step(actions)
    with pytest.raises(ValueError, match="whole number"):
        env.step(np.float64(1.5))
    for kind in (np.int8, np.uint8, np.int64, np.uint64):
        envs.step(np.ones(COUNT, kind))
        env.reset(seed=1)
        env.step(kind(1))


@every
def test_a_mask_of_resets_has_a_truth_for_each(name: str) -> None:
    envs = vector(name)
    envs.reset(seed=1)
    for mask in (np.zeros(COUNT, np.bool_), np.ones(COUNT - 1, np.bool_), np.ones(COUNT), [True] * COUNT):
        with pytest.raises(ValueError, match="reset_mask"):
            envs.reset(options={"reset_mask": mask})


def refusal(call: Callable[..., object], *given: Any, **named: Any) -> str:
    with pytest.raises((ValueError, RuntimeError)) as raised:
        call(*given, **named)
    return f"{type(raised.value).__name__}: {raised.value}"


def kinds(value: Any) -> Any:
    """Return the types and the shapes of what is handed out, without what games name themselves."""
    if isinstance(value, dict):
        own = ("action_mask", "score", "won", "starved")
        return {name: kinds(part) for name, part in value.items() if name.removeprefix("_") not in own}
    return value.dtype.str, value.shape[:1]


def behaviour(name: str, mode: AutoresetMode) -> list[Any]:
    """Return what a vector refuses and hands out: before its first reset, at it, at an end, and at a reset after it."""
    envs, straight = vector(name, autoreset_mode=mode), np.ones(COUNT, np.int64)
    told: list[Any] = [refusal(envs.step, actions) for actions in (straight, straight - 2)]
    told += [refusal(envs.reset, seed=seeds) for seeds in ([1], -1, [1.5] * COUNT)]
    told += [refusal(envs.reset, options={"reset_mask": mask}) for mask in (np.zeros(COUNT, np.bool_), [True] * COUNT)]
    told += map(kinds, envs.reset(seed=3))
    over = np.zeros(COUNT, np.bool_)
    while not over.any():
        last = envs.step(straight)
        over = last[2] | last[3]
    told += map(kinds, last)
    if mode is AutoresetMode.DISABLED:
        told.append(refusal(envs.step, straight))
    return [*told, *map(kinds, envs.reset(options={"reset_mask": over}))]


@pytest.mark.parametrize("mode", AutoresetMode)
def test_snakes_vector_is_the_one_of_every_game(mode: AutoresetMode) -> None:
    assert behaviour("evo/Snake-v0", mode) == behaviour("evo/catch-v0", mode)
    assert type(vector("evo/Snake-v0")) is type(vector("evo/catch-v0"))
