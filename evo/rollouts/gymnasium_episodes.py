"""Whole episodes of any environment through Gymnasium's interface, recorded where transitions are asked for."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from functools import cache
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from evo import clock
from evo.errors import ConfigurationError, notice
from evo.games.step import FOLLOWED, FRAMES, ROWS, SLOTS, Ended, PlayedEpisodes, Record, Recorder, Score, actions_for
from evo.plugins import mistakes
from evo.plugins.mistakes import PASSED_ON
from evo.records import GOES_ON, TERMINATED, TRUNCATED, ActionRule, Episodes, Task
from evo.rollouts.action_rules import RULES, choose_action, draw_action

if TYPE_CHECKING:
    from evo.environment import Environment

PROBED, PROBED_STEPS = range(1, 9), 3  # seeds and steps that show whether an environment follows its seed
LONG = 100_000  # steps of an episode that may have no end
FIRST = 1024  # recorded steps for which there is memory before it grows


def play_gymnasium(score: Score, environment: Environment, task: Task, ended: Ended) -> PlayedEpisodes:
    """Play every episode of a task with one candidate, all of them side by side; fill in `ended` [E].

    Rewards are added in float64 in the order of steps.
    """
    assert isinstance(task.play, Episodes)
    with ExitStack() as opened:
        envs = [environment.env() for _ in task.play.seeds]
        for env in envs:
            opened.callback(env.close)
        return _play(score, environment, envs, task.play.seeds, task, ended)


def _play(
    score: Score, environment: Environment, envs: list[Any], seeds: NDArray[np.uint64], task: Task, ended: Ended
) -> PlayedEpisodes:
    recorder, act = _Recorder(environment, len(seeds), task.record_transitions), _chooser(environment, task.action_rule)
    totals, lengths = [0.0] * len(seeds), [0] * len(seeds)
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
    while live:
        table = score(np.stack([observations[e] for e in live]))
        recorder.progress[SLOTS] += len(live)
        left = []
        for scores, e in zip(table, live, strict=True):
            clock.progress.made()
            action = act(scores, infos[e], seeds[e], lengths[e])
            if action is None:
                if not np.isfinite(observations[e]).all():
                    _notice_once(f"{_named(envs[e])} {_unfit(observations[e])}; the network that played ranks worst")
                return recorder.played(False, recorder.progress, ended, score)
            recorder.before_step(e, action, observations[e], infos[e], scores)
            taken = _playable(action, envs[e])
            try:
                observation, reward, terminated, truncated, infos[e] = envs[e].step(taken)
                observations[e] = _observed(observation, environment)
                totals[e] += float(reward)
            except PASSED_ON:
                raise
            except (Exception, SystemExit) as error:
                raise mistakes.of_hook(_own(envs[e]), "step", error) from error
            if not math.isfinite(reward):
                _notice_once(
                    f"{_named(envs[e])}.step gave the reward {float(reward):g}; the network that played ranks worst"
                )
                return recorder.played(False, recorder.progress, ended, score)
            lengths[e] += 1
            status = TERMINATED if terminated else TRUNCATED if truncated else GOES_ON
            recorder.after_step(float(reward), status, observations[e], infos[e])
            if status == GOES_ON:
                left.append(e)
                if lengths[e] == LONG:
                    goes_on = f"an episode of {_named(envs[e])} has {LONG:,} steps and goes on"
                    _notice_once(f"{goes_on}; environment.max_steps = N ends it after N steps")
                continue
            try:
                ended.episode_metrics[e] = environment.metrics_of_episode(infos[e], truncated)
            except (LookupError, TypeError, ValueError) as error:
                raise mistakes.of_hook(environment, "metrics_of_episode", error) from error
        live = left
    ended.returns[:], ended.lengths[:] = totals, lengths
    recorder.drop_masks()
    return recorder.played(True, recorder.progress, ended, score)


class _Recorder(Recorder):
    """Records steps behind Gymnasium's interface, a row each, in the order of play."""

    def __init__(self, environment: Environment, episodes: int, transitions: bool) -> None:
        self.progress = np.zeros(FOLLOWED + 1, np.int64)
        self._environment, self._new, self._masked = environment, episodes if transitions else None, False
        super().__init__(actions_for(environment, FIRST))

    def before_step(
        self, e: int, action: Any, observation: NDArray[np.float32], info: Any, outputs: NDArray[np.float32]
    ) -> None:
        """Record what precedes a step of episode `e`, and its action."""
        if self._new is not None:
            shape, masked = self._environment.shape, 0 if self._environment.continuous else self._environment.actions
            kinds = np.float32, np.float32
            self.record, self._new = Record.empty(FIRST, self._new, shape, kinds, masked, len(outputs)), None
        row = int(self.progress[ROWS])
        if row == len(self.actions):
            self.grow()
        self.episodes[row], self.actions[row] = e, action
        if self.record is not None:
            self._show(self.record.observations, self.record.action_masks, row, observation, info)
            self.record.outputs[row] = outputs
        self.progress[ROWS] += 1

    def after_step(self, reward: float, status: int, observation: NDArray[np.float32], info: Any) -> None:
        """Record the rest of the step that was recorded last, and what follows where it is truncated."""
        self.progress[FRAMES] += 1
        if self.record is None:
            return
        row, followed = int(self.progress[ROWS]) - 1, int(self.progress[FOLLOWED])
        self.record.rewards[row], self.record.ends[row] = reward, status
        if status == TRUNCATED:
            self.record.followed[followed] = row
            self._show(self.record.next_observations, self.record.next_action_masks, followed, observation, info)
            self.progress[FOLLOWED] += 1

    def drop_masks(self) -> None:
        """Record no masks where the environment has shown none."""
        if self.record is not None and not self._masked:
            none = np.empty((0, 0), np.int8)
            self.record = self.record._replace(action_masks=none, next_action_masks=none)

    def _show(self, observations: Any, masks: Any, row: int, observation: NDArray[np.float32], info: Any) -> None:
        observations[row] = observation.reshape(self._environment.shape)
        mask = info.get("action_mask")
        self._masked |= mask is not None
        if masks.shape[1]:
            masks[row] = 1 if mask is None else mask


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
    """Print a notice at once, and once per process."""
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
