"""Whole episodes of Snake for several candidates side by side, scored by something else than the lanes kernel.

Every candidate has the same number of lanes, which take its episodes in order; those of a candidate that is done stay
idle. So what a candidate does depends on its own lanes alone.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise
from typing import Any

import numpy as np
from numba import njit
from numpy.typing import NDArray

from evo.compiled import cache as kernel_cache
from evo.records import ActionRule
from evo.rollouts.episodes import RULES, choose_action
from snake import observe
from snake.batch import make_boards, reset_board, step_board

kernel_cache.use(__name__)

Score = Callable[[NDArray[np.float32]], NDArray[np.float32]]  # [N, B, ...] -> [N, B, A or more]


def play_snake(
    score: Score,
    environment: Any,
    seeds: NDArray[np.uint64],
    how: ActionRule,
    finite: NDArray[np.bool_],
    arrays: dict[str, NDArray[Any]],
    lanes: tuple[int, int],
    trace: bool = False,
) -> tuple[int, int, list[NDArray[np.int8]]]:
    """Play every episode with each of K candidates; `score` is asked for a full batch of `lanes`, [N >= K, B].

    Writes "returns", "lengths" [K, E] and "episode_metrics" [K, E, M] of `arrays`. `finite` [K]: who plays at all;
    becomes false where a score is not finite. Returns (frames, slots, the actions of each episode if `trace`).
    """
    observation, masked = environment.codes
    candidates, episodes = len(finite), len(seeds)
    boards = make_boards(lanes[0] * lanes[1], environment.options.size)
    batch = np.empty((lanes[0] * lanes[1], *environment.shape), np.float32)
    episode = np.full(lanes, -1)  # that each lane plays, -1: none
    begun = np.where(finite, 0, episodes)
    actions = np.zeros(lanes, np.int8)
    steps: list[tuple[NDArray[np.int64], NDArray[np.int8]]] = []
    arrays["returns"][finite] = 0
    _begin(boards, environment.rules, seeds, episode, begun)
    frames = slots = 0
    while (episode >= 0).any():
        observe.observe_many(boards, environment.rules, observation, batch)
        batch[episode.ravel() < 0] = 0
        before = episode.copy()
        frames += _advance(
            boards, environment.rules, masked, score(batch.reshape(*lanes, *environment.shape)), RULES[how.kind],
            how.epsilon, seeds, (episode, begun, finite),
            (arrays["returns"], arrays["lengths"], arrays["episode_metrics"]), actions,
        )  # fmt: skip
        slots += batch.shape[0]
        if trace:
            steps.append((before, actions.copy()))
        _begin(boards, environment.rules, seeds, episode, begun)
    return frames, slots, _traces(steps, candidates, episodes) if trace else []


def _traces(
    steps: list[tuple[NDArray[np.int64], NDArray[np.int8]]], candidates: int, episodes: int
) -> list[NDArray[np.int8]]:
    """Return the actions of each episode of each candidate in order, from which lane played which one, step by step."""
    if not steps:
        return [np.empty(0, np.int8)] * (candidates * episodes)
    playing = np.stack([playing for playing, _ in steps], 2)[:candidates]  # [K, B, T]
    chosen = np.stack([chosen for _, chosen in steps], 2)[:candidates]
    number = np.where(playing >= 0, playing + episodes * np.arange(candidates)[:, None, None], -1).ravel()
    order = np.argsort(number, kind="stable")  # an episode is played by one lane, whose steps stand in their order
    bounds = np.searchsorted(number[order], np.arange(candidates * episodes + 1))
    return [chosen.ravel()[order[a:b]] for a, b in pairwise(bounds)]


@njit(cache=True, error_model="numpy")
def _begin(boards, rules, seeds, episode, begun):  # type: ignore[no-untyped-def]
    """Start the next episodes of every candidate on its free lanes, the lowest lane first."""
    lanes = episode.shape[1]
    for candidate in range(begun.shape[0]):
        for lane in range(lanes):
            if episode[candidate, lane] < 0 and begun[candidate] < seeds.shape[0]:
                reset_board(boards, rules, candidate * lanes + lane, seeds[begun[candidate]])
                episode[candidate, lane] = begun[candidate]
                begun[candidate] += 1


@njit(cache=True, error_model="numpy")
def _advance(boards, rules, masked, scores, rule, epsilon, seeds, playing, results, actions):  # type: ignore[no-untyped-def]  # fmt: skip
    """Choose and play one action on every lane that has an episode; return how many.

    A lane whose episode ends becomes free, and its row of `lengths` and `episode_metrics` is written. A candidate with
    a score that is not finite ends. `playing` is (episode [N, B], begun [K], finite [K]), `results` is (returns,
    lengths [K, E], episode_metrics [K, E, M]).
    """
    episode, begun, finite = playing
    returns, lengths, episode_metrics = results
    allowed = np.ones(3 if rules.relative else 4, np.int8)
    lanes = episode.shape[1]
    frames = 0
    for candidate in range(finite.shape[0]):
        played = 0
        for lane in range(lanes):
            e, board = episode[candidate, lane], candidate * lanes + lane
            if e < 0:
                continue
            if masked is not None:
                observe.mask(boards, rules, masked, board, allowed)
            action = choose_action(
                scores[candidate, lane], 1, 0, allowed, rule, epsilon, seeds[e], boards.state[board].steps
            )
            if action < 0:
                finite[candidate] = False
                break
            actions[candidate, lane] = action
            reward, status = step_board(boards, rules, board, action)
            played += 1
            returns[candidate, e] += reward
            if status != 0:
                lengths[candidate, e] = boards.state[board].steps
                length = np.int64(boards.state[board].length)
                episode_metrics[candidate, e, 0] = length - rules.start_length
                episode_metrics[candidate, e, 1] = 1 if length == rules.size * rules.size else 0
                episode_metrics[candidate, e, 2] = 1 if status == 2 else 0
                episode[candidate, lane] = -1
        if finite[candidate]:
            frames += played
        elif begun[candidate] < seeds.shape[0] or (episode[candidate] >= 0).any():
            episode[candidate, :] = -1
            begun[candidate] = seeds.shape[0]
    return frames
