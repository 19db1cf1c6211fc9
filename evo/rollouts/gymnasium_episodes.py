"""Whole episodes of any environment through Gymnasium's interface, recorded where transitions are asked for."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from functools import cache
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from evo.errors import ConfigurationError, notice
from evo.plugins import mistakes
from evo.plugins.mistakes import PASSED_ON
from evo.records import GOES_ON, LARGEST_RETURN, TERMINATED, TRUNCATED, ActionRule, Transitions
from evo.rollouts.action_rules import RULES, choose_action, draw_action

if TYPE_CHECKING:
    from evo.environment import Environment

PROBED, PROBED_STEPS = range(1, 9), 3  # seeds and steps that show whether an environment follows its seed
LONG = 100_000  # steps of an episode that may have no end
Scorer = Callable[[NDArray[np.float32]], NDArray[np.float32]]  # observations [E, ...] to outputs [E, O]


class Recorder:
    """Gathers the transitions of episodes that are played side by side."""

    def __init__(self, environment: Environment, episodes: int) -> None:
        self._shape, self._actions = environment.shape, environment.actions
        self._seen: list[list[Any]] = [[] for _ in range(episodes)]  # (observation, mask or None, outputs)
        self._done: list[list[Any]] = [[] for _ in range(episodes)]  # (action, reward, end)
        self._after: list[list[Any]] = [[] for _ in range(episodes)]  # (observation, mask or None)

    def before_step(self, e: int, observation: NDArray[np.float32], info: Any, outputs: NDArray[np.float32]) -> None:
        """Record what precedes a step of episode `e`."""
        self._seen[e].append((self._copy(observation), info.get("action_mask"), outputs.copy()))

    def after_step(self, e: int, action: Any, reward: float, terminated: bool, truncated: bool) -> None:
        """Record the step itself."""
        self._done[e].append((action, reward, TERMINATED if terminated else TRUNCATED if truncated else GOES_ON))

    def after_end(self, e: int, observation: NDArray[np.float32], info: Any) -> None:
        """Record what follows the last step of an episode that is truncated."""
        self._after[e].append((self._copy(observation), info.get("action_mask")))

    def transitions(self, score: Scorer) -> Transitions:
        """Return all transitions, those of an episode together in the order of time."""
        seen, done, after = (
            [step for episode in part for step in episode] for part in (self._seen, self._done, self._after)
        )
        followed = self._stacked([observation for observation, _ in after])
        actions = np.array([action for action, _, _ in done])
        masked = actions.ndim == 1 and any(mask is not None for _, mask, _ in seen)
        return Transitions(
            observations=self._stacked([observation for observation, _, _ in seen]),
            action_masks=self._masks([mask for _, mask, _ in seen]) if masked else None,
            actions=actions.astype(np.int8 if actions.ndim == 1 else np.float32),
            rewards=np.array([reward for _, reward, _ in done], np.float32),
            ends=np.array([end for _, _, end in done], np.uint8),
            outputs=np.array([outputs for _, _, outputs in seen], np.float32),
            next_observations=followed,
            next_action_masks=self._masks([mask for _, mask in after]) if masked else None,
            next_outputs=score(followed),
        )

    def _copy(self, observation: NDArray[np.float32]) -> NDArray[np.float32]:
        return np.array(observation, np.float32).reshape(self._shape)  # an environment may write into its own again

    def _stacked(self, observations: list[NDArray[np.float32]]) -> NDArray[np.float32]:
        return np.array(observations, np.float32).reshape(-1, *self._shape)

    def _masks(self, masks: list[Any]) -> NDArray[np.int8]:
        everything = np.ones(self._actions, np.int8)
        return np.array([everything if mask is None else mask for mask in masks], np.int8).reshape(-1, self._actions)


def play_gymnasium(
    score: Scorer,
    environment: Environment,
    seeds: NDArray[np.uint64],
    how: ActionRule,
    one: dict[str, NDArray[Any]],
    recorder: Recorder | None = None,
) -> tuple[int, int, bool, list[NDArray[np.generic]]]:
    """Play every episode through Gymnasium's interface, all of them side by side; fill the arrays of `one`.

    Returns (frames, slots, finite, actions of each episode). Rewards are added in float64 in the order of steps and
    rounded half to even once. A reward or return beyond LARGEST_RETURN counts as not finite.
    """
    with ExitStack() as opened:
        envs = [environment.env() for _ in seeds]
        for env in envs:
            opened.callback(env.close)
        return _play(score, environment, envs, seeds, how, one, recorder)


def _play(
    score: Scorer,
    environment: Environment,
    envs: list[Any],
    seeds: NDArray[np.uint64],
    how: ActionRule,
    one: dict[str, NDArray[Any]],
    recorder: Recorder | None,
) -> tuple[int, int, bool, list[NDArray[np.generic]]]:
    traces: list[list[Any]] = [[] for _ in seeds]
    act = _chooser(environment, how)
    totals = np.zeros(len(seeds))
    observations, infos = [], []
    for env, seed in zip(envs, seeds, strict=True):
        try:
            observation, info = env.reset(seed=int(seed))
            observations.append(_observed(observation, environment))
        except PASSED_ON:
            raise
        except (Exception, SystemExit) as error:
            raise mistakes.of_hook(_own(env), "reset", error) from error
        infos.append(info)
    live: Sequence[int] = range(len(seeds))
    frames = slots = 0
    while live:
        table = score(np.stack([observations[e] for e in live]))
        slots += len(live)
        left = []
        for scores, e in zip(table, live, strict=True):
            action = act(scores, infos[e], seeds[e], len(traces[e]))
            if action is None:
                if not np.isfinite(observations[e]).all():
                    _notice_once(f"{_named(envs[e])} {_unfit(observations[e])}; the network that played ranks worst")
                return frames, slots, False, []
            traces[e].append(action)
            if recorder:
                recorder.before_step(e, observations[e], infos[e], scores)
            taken = _playable(action, envs[e])
            try:
                observation, reward, terminated, truncated, infos[e] = envs[e].step(taken)
                observations[e] = _observed(observation, environment)
                totals[e] += float(reward)
            except PASSED_ON:
                raise
            except (Exception, SystemExit) as error:
                raise mistakes.of_hook(_own(envs[e]), "step", error) from error
            if not abs(float(reward)) <= LARGEST_RETURN / 1000:  # also where it is NaN
                _notice_once(
                    f"{_named(envs[e])}.step gave the reward {float(reward):g}; the network that played ranks worst"
                )
                return frames, slots, False, []
            frames += 1
            if recorder:
                recorder.after_step(e, action, float(reward), terminated, truncated)
            if not terminated and not truncated:
                left.append(e)
                if len(traces[e]) == LONG:
                    goes_on = f"an episode of {_named(envs[e])} has {LONG:,} steps and goes on"
                    _notice_once(f"{goes_on}; environment.max_steps = N ends it after N steps")
                continue
            try:
                one["episode_metrics"][e] = environment.metrics_of_episode(infos[e], truncated)
            except (LookupError, TypeError, ValueError) as error:
                raise mistakes.of_hook(environment, "metrics_of_episode", error) from error
            if recorder and not terminated:
                recorder.after_end(e, observations[e], infos[e])
        live = left
    if not (np.abs(totals) <= LARGEST_RETURN / 1000).all():
        return frames, slots, False, []
    one["returns"][:] = np.rint(totals * 1000).astype(np.int64)
    one["lengths"][:] = [len(trace) for trace in traces]
    kind: Any = np.float32 if environment.continuous else np.int8
    return frames, slots, True, [np.array(trace, kind) for trace in traces]


def _own(env: Any) -> Any:
    """Return an environment without Gymnasium's wrappers, if it has any."""
    return getattr(env, "unwrapped", env)


def is_deterministic(environment: Environment) -> bool:
    """Return whether two fresh environments do the same in a few steps after a reset with the same seed.

    ConfigurationError: an observation or a reward is not finite.
    """
    one, other = environment.env(), environment.env()
    try:
        return all(_first_steps(one, environment, seed) == _first_steps(other, environment, seed) for seed in PROBED)
    finally:
        one.close()
        other.close()


def _first_steps(env: Any, environment: Environment, seed: int) -> list[tuple[object, ...]]:
    """Return what an environment shows in its first steps; an end, or a mistake of its code, ends them early."""
    try:
        observation, info = env.reset(seed=seed)
        shown: list[tuple[object, ...]] = [(_finite(observation, env),)]
        for step in range(PROBED_STEPS):
            action: Any = np.full(environment.actions, 0.5, np.float32)
            if not environment.continuous:
                allowed = np.flatnonzero(info.get("action_mask", np.ones(environment.actions)))
                action = int(allowed[(seed + step) % len(allowed)])
            observation, reward, terminated, truncated, info = env.step(_playable(action, env))
            if not math.isfinite(reward):
                raise ConfigurationError(f"environment.id: {_named(env)}.step gave the reward {float(reward):g}")
            shown.append((_finite(observation, env), float(reward), bool(terminated or truncated)))
            if terminated or truncated:
                break
    except PASSED_ON:
        raise
    except (Exception, SystemExit):  # named where it is played
        return []
    return shown


def _finite(observation: Any, env: Any) -> bytes:
    """Return the bytes of an observation; ConfigurationError where it has a NaN or an infinity."""
    array = np.asarray(observation, np.float32)
    if not np.isfinite(array).all():
        raise ConfigurationError(f"environment.id: {_named(env)} {_unfit(array)}")
    return array.tobytes()


def _unfit(observation: NDArray[np.float32]) -> str:
    """Return what is wrong with an observation that is not finite."""
    place = tuple(np.argwhere(~np.isfinite(observation))[0].tolist())
    return f"gave an observation with {observation[place]:g} at {list(place)}"


def _named(env: Any) -> str:
    return type(_own(env)).__qualname__


@cache
def _notice_once(text: str) -> None:
    """Show a user a line at once, since what it is about may never end; every process once."""
    notice(text)


def _observed(observation: Any, environment: Environment) -> NDArray[np.float32]:
    """Return an observation as an array; ValueError where it is of another size than the environment's."""
    array = np.asarray(observation, np.float32)
    if array.size != math.prod(environment.shape):
        raise ValueError(f"an observation of shape {array.shape}, not {environment.shape}")
    return array


def _chooser(environment: Environment, how: ActionRule) -> Callable[..., Any]:
    """Return a function of (outputs, info, seed, step) that chooses an action; None where outputs are not finite."""
    if environment.continuous:

        def draw(outputs: NDArray[np.float32], info: Any, seed: np.uint64, step: int) -> Any:
            action = np.empty(environment.actions, np.float32)
            return action if draw_action(outputs, 1, 0, RULES[how.kind], seed, step, action) else None

        return draw
    everything, rule = np.ones(environment.actions, np.int8), RULES[how.kind]

    def pick(outputs: NDArray[np.float32], info: Any, seed: np.uint64, step: int) -> Any:
        action = choose_action(outputs, 1, 0, info.get("action_mask", everything), rule, how.epsilon, seed, step)
        return None if action < 0 else action

    return pick


def _playable(action: Any, env: Any) -> Any:
    """Return an action as the environment takes it: continuous ones within its bounds."""
    if not isinstance(action, np.ndarray):
        return action
    space = env.action_space
    return np.clip(action, space.low, space.high).astype(space.dtype)
