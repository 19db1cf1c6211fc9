"""Segments of a compiled game whose network is not the lanes kernel: all environments take their steps together."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numba import njit
from numpy.typing import NDArray

from evo.compiled import cache as kernel_cache
from evo.games.contract import CompiledGame, observe_many
from evo.records import GOES_ON, TRUNCATED, ActionRule, Result, Segment
from evo.rollouts.action_rules import RULES
from evo.rollouts.segments import SegmentBuffers, begin_next, save_following, step_env

kernel_cache.use(__name__)

Score = Callable[[NDArray[np.float32]], NDArray[np.float32]]  # [E, ...] -> [E, O]


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
        rows = _advance(
            written.state, game.rules, written.masked, t, scores, RULES[how.kind], how.epsilon, allowed, continuous,
            written.envs, written.steps, written.following, rows, written.ended,
        )  # fmt: skip
    following = score(game.observe(written.following.observations[:rows]))
    written.following.outputs[:rows] = following
    return written.result(rows, horizon * count + rows, bool(np.isfinite(following).all()))


@kernel_cache.with_game
@njit(cache=True, error_model="numpy", nogil=True, _nrt=False)
def _advance(state, rules, masked, t, scores, rule, epsilon, allowed, continuous, envs, steps, following, rows, ended):  # type: ignore[no-untyped-def]  # fmt: skip
    """Play step `t` of every environment by its `scores` [L, O]; return how many rows of `following` are written."""
    for b in range(scores.shape[0]):
        status = step_env(state, rules, masked, b, t, scores[b], 1, 0, rule, epsilon, allowed, continuous, envs, steps, ended)  # fmt: skip
        if steps.ends[b, t] >= TRUNCATED:  # or SEGMENT_END
            save_following(state, rules, masked, b, t, rows, steps.ends, following)
            rows += 1
        if status != GOES_ON:
            begin_next(state, rules, b, envs)
    return rows
