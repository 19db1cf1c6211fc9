"""Whole episodes of a compiled game for several candidates side by side, whose networks are not the lanes kernel.

Every candidate has the same number of environments, which take its episodes in order; those of a candidate that is
done stay idle. So what a candidate does depends on its own environments alone.
"""

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
from evo.records import GOES_ON, LARGEST_RETURN, ActionRule
from evo.rollouts.action_rules import RULES, decide, write_action

kernel_cache.use(__name__)

Score = Callable[[NDArray[np.float32]], NDArray[np.float32]]  # [N, B, ...] -> [N, B, A or more]


def play_episodes(
    score: Score,
    game: CompiledGame,
    seeds: NDArray[np.uint64],
    how: ActionRule,
    finite: NDArray[np.bool_],
    arrays: dict[str, NDArray[Any]],
    batch: tuple[int, int],
    trace: bool = False,
) -> tuple[int, int, list[NDArray[np.generic]]]:
    """Play every episode with each of K candidates; `score` is asked for a full `batch`, [N >= K, B] environments.

    Writes "returns", "lengths" [K, E] and "episode_metrics" [K, E, M] of `arrays`. `finite` [K]: who plays at all;
    becomes false where a score is not finite. Returns (frames, slots, the actions of each episode if `trace`).
    """
    candidates, episodes = len(finite), len(seeds)
    state, masked = game.make_state(batch[0] * batch[1]), game.masked or None
    seen, allowed = np.empty((batch[0] * batch[1], *game.shape), np.float32), np.ones(game.actions, np.int8)
    episode = np.full(batch, -1)  # that each environment plays, -1: none
    begun = np.where(finite, 0, episodes)
    actions, continuous = game.recorded_actions(*batch), game.action_buffer()
    steps: list[tuple[NDArray[np.int64], NDArray[Any]]] = []
    arrays["returns"][finite] = 0
    _begin(state, game.rules, seeds, episode, begun)
    frames = slots = 0
    while (episode >= 0).any():
        observe_many(state, game.rules, seen)
        seen[episode.ravel() < 0] = 0
        before = episode.copy()
        frames += _advance(
            state, game.rules, masked, score(seen.reshape(*batch, *game.shape)), RULES[how.kind], how.epsilon, seeds,
            (episode, begun, finite), (arrays["returns"], arrays["lengths"], arrays["episode_metrics"]), actions,
            allowed, continuous,
        )  # fmt: skip
        slots += len(seen)
        if trace:
            steps.append((before, actions.copy()))
        _begin(state, game.rules, seeds, episode, begun)
    finite &= (np.abs(arrays["returns"]) <= LARGEST_RETURN).all(axis=1)
    return frames, slots, _traces(steps, candidates, episodes) if trace else []


def _traces(
    steps: list[tuple[NDArray[np.int64], NDArray[Any]]], candidates: int, episodes: int
) -> list[NDArray[np.generic]]:
    """Return the actions of each episode of each candidate in order, from which environment played which one."""
    if not steps:
        return [np.empty(0, np.int8)] * (candidates * episodes)
    playing = np.stack([playing for playing, _ in steps], 2)[:candidates]  # [K, B, T]
    chosen = np.stack([chosen for _, chosen in steps], 2)[:candidates]  # [K, B, T] or [K, B, T, D]
    chosen = chosen.reshape(-1, *chosen.shape[3:])
    number = np.where(playing >= 0, playing + episodes * np.arange(candidates)[:, None, None], -1).ravel()
    order = np.argsort(number, kind="stable")  # one environment plays an episode, so its steps stand in their order
    bounds = np.searchsorted(number[order], np.arange(candidates * episodes + 1))
    return [chosen[order[a:b]] for a, b in pairwise(bounds)]


@kernel_cache.with_game
@njit(cache=True, error_model="numpy")
def _begin(state, rules, seeds, episode, begun):  # type: ignore[no-untyped-def]
    """Begin the next episodes of every candidate in its free environments, the lowest first."""
    width = episode.shape[1]
    for candidate in range(begun.shape[0]):
        for place in range(width):
            if episode[candidate, place] < 0 and begun[candidate] < seeds.shape[0]:
                contract.begin(state, rules, candidate * width + place, seeds[begun[candidate]])
                episode[candidate, place] = begun[candidate]
                begun[candidate] += 1


@kernel_cache.with_game
@njit(cache=True, error_model="numpy")
def _advance(state, rules, masked, scores, rule, epsilon, seeds, playing, results, actions, allowed, continuous):  # type: ignore[no-untyped-def]  # fmt: skip
    """Choose and play one action in every environment that has an episode; return how many.

    An environment whose episode ends becomes free, and its row of `lengths` and `episode_metrics` is written. A
    candidate with a score that is not finite ends. `playing` is (episode [N, B], begun [K], finite [K]), `results` is
    (returns, lengths [K, E], episode_metrics [K, E, M]), `allowed` [A] and `continuous` are buffers.
    """
    episode, begun, finite = playing
    returns, lengths, episode_metrics = results
    width = episode.shape[1]
    frames = 0
    for candidate in range(finite.shape[0]):
        played = 0
        for place in range(width):
            e, b = episode[candidate, place], candidate * width + place
            if e < 0:
                continue
            if masked is not None:
                contract.mask(state, rules, b, allowed)
            step = contract.steps(state, rules, b)
            action, known = decide(scores[candidate, place], 1, 0, allowed, rule, epsilon, seeds[e], step, continuous)
            if not known:
                finite[candidate] = False
                break
            write_action(actions[candidate], place, action, continuous)
            reward, status = contract.step(state, rules, b, action)
            played += 1
            returns[candidate, e] += reward
            if status != GOES_ON:
                lengths[candidate, e] = contract.steps(state, rules, b)
                contract.metrics(state, rules, b, episode_metrics[candidate, e])
                episode[candidate, place] = -1
        if finite[candidate]:
            frames += played
        elif begun[candidate] < seeds.shape[0] or (episode[candidate] >= 0).any():
            episode[candidate, :] = -1
            begun[candidate] = seeds.shape[0]
    return frames
