"""Step, reset and observe many boards in one compiled pass, each board while it is in the processor's cache."""

from __future__ import annotations

import numpy as np
from numba import njit

from evo.compiled import cache as kernel_cache
from evo.compiled.game import GOES_ON
from evo.randomness.philox_compiled import episode_seed
from snake.batch import LEAN, reset_board, step_board
from snake.observe import mask, observe_board, observe_many

kernel_cache.use(__name__)

NEXT_STEP, SAME_STEP, DISABLED = range(3)  # what happens to a board that is over


@njit(**LEAN)
def describe_board(boards, rules, code, mask_code, b, out, masks, scores):  # type: ignore[no-untyped-def]
    """Write observation, action mask and score of board b.  # out [B, H, W, C], masks [B, A], scores [B]"""
    observe_board(boards, rules, code, b, out[b])
    mask(boards, rules, mask_code, b, masks[b])
    scores[b] = np.int64(boards.state[b].length) - rules.start_length


@njit(**LEAN)
def describe(boards, rules, code, mask_code, out, masks, scores):  # type: ignore[no-untyped-def]
    """Write observation, action mask and score of every board.  # out [B, H, W, C], masks [B, A], scores [B]"""
    observe_many(boards, rules, code, out)
    for b in range(out.shape[0]):
        if mask_code == 0:
            masks[b, :] = 1
        else:
            mask(boards, rules, mask_code, b, masks[b])
        scores[b] = np.int64(boards.state[b].length) - rules.start_length


@njit(**LEAN)
def begin_next(boards, rules, b, first, episode):  # type: ignore[no-untyped-def]
    """Begin the next episode of board b."""
    episode[b] += 1
    reset_board(boards, rules, b, episode_seed(first[b], episode[b]))


@njit(**LEAN)
def advance(  # type: ignore[no-untyped-def]
    boards, rules, code, mask_code, mode, actions, first, episode, out, masks, scores, rewards, status, finals
):
    """Play actions[b] on every board b, and write rewards, status and observations.

    first uint64 [B] and episode int64 [B] name the episodes; out float32 [B, H, W, C]; masks int8 [B, A];
    scores int64 [B]; rewards float64 [B]; status int64 [B]; finals: the same as (out, masks, scores), written with
    SAME_STEP only, where an episode ends. A board that is over begins its next episode in this step (SAME_STEP), or
    in the next one, whose action is not played (NEXT_STEP), or never (DISABLED).
    """
    for b in range(out.shape[0]):
        if mode == NEXT_STEP and boards.state[b].over != GOES_ON:
            begin_next(boards, rules, b, first, episode)
            rewards[b] = 0.0
            status[b] = GOES_ON
            continue
        thousandths, status[b] = step_board(boards, rules, b, np.int64(actions[b]))
        rewards[b] = thousandths / 1000.0
        if mode == SAME_STEP and status[b] != GOES_ON:
            describe_board(boards, rules, code, mask_code, b, finals[0], finals[1], finals[2])
            begin_next(boards, rules, b, first, episode)
    describe(boards, rules, code, mask_code, out, masks, scores)
