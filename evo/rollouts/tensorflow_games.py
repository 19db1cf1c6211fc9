"""Episodes and segments of a compiled game whose network is not the lanes kernel: all environments step together."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise
from typing import Any

import numpy as np
from numba import njit
from numpy.typing import NDArray

from evo.compiled import cache as kernel_cache
from evo.games import contract
from evo.games.contract import CompiledGame, observe_many
from evo.records import GOES_ON, LARGEST_RETURN, TRUNCATED, ActionRule, Result, Segment
from evo.rollouts.action_rules import RULES, decide, write_action
from evo.rollouts.segments import SegmentBuffers, begin_next, save_following, step_env

kernel_cache.use(__name__)

Score = Callable[[NDArray[np.float32]], NDArray[np.float32]]  # [E, ...] -> [E, O]


def play_episodes(
    score: Score,
    game: CompiledGame,
    seeds: NDArray[np.uint64],
    how: ActionRule,
    arrays: dict[str, NDArray[Any]],
    batch: int,
    trace: bool = False,
) -> tuple[int, int, bool, list[NDArray[np.generic]]]:
    """Play every episode with one network, in `batch` environments that take the episodes in order.

    Writes "returns", "lengths" [E] and "episode_metrics" [E, M] of `arrays`. Returns (frames, slots, whether every
    score and return was finite, the actions of each episode if `trace`).
    """
    state, masked = game.make_state(batch), game.masked or None
    seen, allowed = np.empty((batch, *game.shape), np.float32), np.ones(game.actions, np.int8)
    episode = np.full(batch, -1)  # that each environment plays, -1: none
    actions, continuous = game.recorded_actions(batch), game.action_buffer()
    steps: list[tuple[NDArray[np.int64], NDArray[Any]]] = []
    arrays["returns"][:] = 0
    begun = _begin(state, game.rules, seeds, episode, 0)
    frames = slots = 0
    while (episode >= 0).any():
        observe_many(state, game.rules, seen)
        seen[episode < 0] = 0
        before = episode.copy()
        played = _step_all(
            state, game.rules, masked, score(seen), RULES[how.kind], how.epsilon, seeds, episode,
            (arrays["returns"], arrays["lengths"], arrays["episode_metrics"]), actions, allowed, continuous,
        )  # fmt: skip
        slots += batch
        if played < 0:
            return frames, slots, False, []
        frames += played
        if trace:
            steps.append((before, actions.copy()))
        begun = _begin(state, game.rules, seeds, episode, begun)
    finite = bool((np.abs(arrays["returns"]) <= LARGEST_RETURN).all())
    return frames, slots, finite, _traces(steps, len(seeds)) if trace else []


def _traces(steps: list[tuple[NDArray[np.int64], NDArray[Any]]], episodes: int) -> list[NDArray[np.generic]]:
    """Return the actions of each episode in order, from which environment played which one."""
    if not steps:
        return [np.empty(0, np.int8)] * episodes
    playing = np.stack([playing for playing, _ in steps], 1).ravel()  # [B, T]
    chosen = np.stack([chosen for _, chosen in steps], 1)  # [B, T] or [B, T, D]
    chosen = chosen.reshape(-1, *chosen.shape[2:])
    order = np.argsort(playing, kind="stable")  # one environment plays an episode, so its steps stand in their order
    bounds = np.searchsorted(playing[order], np.arange(episodes + 1))
    return [chosen[order[a:b]] for a, b in pairwise(bounds)]


@kernel_cache.with_game
@njit(cache=True, error_model="numpy")
def _begin(state, rules, seeds, episode, begun):  # type: ignore[no-untyped-def]
    """Begin the next episodes in free environments, the lowest first; return how many have begun."""
    for b in range(episode.shape[0]):
        if episode[b] < 0 and begun < seeds.shape[0]:
            contract.begin(state, rules, b, seeds[begun])
            episode[b] = begun
            begun += 1
    return begun


@kernel_cache.with_game
@njit(cache=True, error_model="numpy")
def _step_all(state, rules, masked, scores, rule, epsilon, seeds, episode, results, actions, allowed, continuous):  # type: ignore[no-untyped-def]  # fmt: skip
    """Choose and play one action in every environment that has an episode; return how many, -1: a score is not finite.

    An environment whose episode ends becomes free, and its row of `lengths` and `episode_metrics` is written.
    `episode` is [B], `results` is (returns, lengths [E], episode_metrics [E, M]); `allowed` [A] and `continuous` are
    buffers.
    """
    returns, lengths, episode_metrics = results
    frames = 0
    for b in range(episode.shape[0]):
        e = episode[b]
        if e < 0:
            continue
        if masked is not None:
            contract.mask(state, rules, b, allowed)
        step = contract.steps(state, rules, b)
        action, known = decide(scores[b], 1, 0, allowed, rule, epsilon, seeds[e], step, continuous)
        if not known:
            return -1
        write_action(actions, b, action, continuous)
        reward, status = contract.step(state, rules, b, action)
        frames += 1
        returns[e] += reward
        if status != GOES_ON:
            lengths[e] = contract.steps(state, rules, b)
            contract.metrics(state, rules, b, episode_metrics[e])
            episode[b] = -1
    return frames


def play_segment(score: Score, game: CompiledGame, segment: Segment, outputs: int, how: ActionRule) -> Result:
    """Play one network in every environment, as `segments` does; `score` is asked for all of them at once."""
    written, count, horizon = SegmentBuffers(game, segment, outputs), len(segment.envs), segment.horizon
    seen, allowed, rows = np.empty((count, *game.shape), np.float32), np.ones(game.actions, np.int8), 0
    continuous = game.action_buffer()
    for t in range(horizon):
        observe_many(written.state, game.rules, seen)
        scores = np.ascontiguousarray(score(seen), np.float32)
        if not np.isfinite(scores).all():
            return written.result(rows, (t + 1) * count, False)
        rows = _step_segment(
            written.state, game.rules, written.masked, t, scores, RULES[how.kind], how.epsilon, allowed, continuous,
            written.envs, written.steps, written.following, rows, written.ended,
        )  # fmt: skip
    following = score(game.observe(written.following.observations[:rows]))
    written.following.outputs[:rows] = following
    return written.result(rows, horizon * count + rows, bool(np.isfinite(following).all()))


@kernel_cache.with_game
@njit(cache=True, error_model="numpy", nogil=True, _nrt=False)
def _step_segment(  # type: ignore[no-untyped-def]
    state, rules, masked, t, scores, rule, epsilon, allowed, continuous, envs, steps, following, rows, ended
):  # fmt: skip
    """Play step `t` of every environment by its `scores` [L, O]; return how many rows of `following` are written."""
    for b in range(scores.shape[0]):
        status = step_env(
            state, rules, masked, b, t, scores[b], 1, 0, rule, epsilon, allowed, continuous, envs, steps, ended
        )  # fmt: skip
        if steps.ends[b, t] >= TRUNCATED:  # or SEGMENT_END
            save_following(state, rules, masked, b, t, rows, steps.ends, following)
            rows += 1
        if status != GOES_ON:
            begin_next(state, rules, b, envs)
    return rows
