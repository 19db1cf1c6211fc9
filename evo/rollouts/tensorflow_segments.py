"""Segments of Snake scored by something else than the lanes kernel: all lanes take their steps together."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numba import njit
from numpy.typing import NDArray

from evo.compiled import cache as kernel_cache
from evo.records import SEGMENT_END, TRUNCATED, EnvStates, Result
from evo.rollouts.segments import Sheet, step_lane
from snake import observe
from snake.advance import episode_seed
from snake.batch import reset_board
from snake.snapshots import save

kernel_cache.use(__name__)

Score = Callable[[NDArray[np.float32]], NDArray[np.float32]]  # [E, ...] -> [E, O]


def play_segment(
    score: Score, environment: Any, lanes: EnvStates, horizon: int, outputs: int, rule: int | None, epsilon: float
) -> Result:
    """Play one network on every lane, as `segments` does; `score` is asked for all lanes at once."""
    sheet, (observation, masked) = Sheet(environment, lanes, horizon, outputs), environment.codes
    seen = np.empty((len(lanes), *environment.shape), np.float32)
    cuts, choices = 0, np.ones(environment.actions, np.int8)
    for t in range(horizon):
        observe.observe_many(sheet.boards, environment.rules, observation, seen)
        scores = np.ascontiguousarray(score(seen), np.float32)
        if not np.isfinite(scores).all():
            return sheet.result(cuts, (t + 1) * len(lanes), False)
        cuts = _advance(
            sheet.boards, environment.rules, masked, t, scores, rule, epsilon, choices, sheet.lanes, sheet.steps,
            sheet.after_at, sheet.after, cuts, sheet.episodes,
        )  # fmt: skip
    following = score(environment.observe(sheet.after[0][:cuts]))
    sheet.after[2][:cuts] = following
    return sheet.result(cuts, horizon * len(lanes) + cuts, bool(np.isfinite(following).all()))


@njit(cache=True, error_model="numpy", nogil=True, _nrt=False)
def _advance(boards, rules, masked, t, scores, rule, epsilon, choices, lanes, steps, after_at, after, cuts, episodes):  # type: ignore[no-untyped-def]  # fmt: skip
    """Play step `t` on every board by its `scores` [L, O]; return how many of `after` are written by then."""
    first, episode, returns_so_far = lanes
    seen_after, allowed_after, _ = after
    ends = steps[4]
    for b in range(scores.shape[0]):
        status = step_lane(boards, rules, masked, b, t, scores[b], 1, 0, rule, epsilon, choices, returns_so_far, steps, episodes)  # fmt: skip
        if ends[b, t] == TRUNCATED or ends[b, t] == SEGMENT_END:
            save(boards, b, seen_after[cuts])
            if masked is not None:
                observe.mask(boards, rules, masked, b, allowed_after[cuts])
            after_at[cuts] = b * ends.shape[1] + t
            cuts += 1
        if status != 0:
            episode[b] += 1
            returns_so_far[b] = 0
            reset_board(boards, rules, b, episode_seed(first[b], episode[b]))
    return cuts
