"""Segments of Snake played again from their actions alone: the same steps, without a network.

The game is exact, so a byte a step is enough to have everything back that was seen.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import njit
from numpy.typing import NDArray

from evo.compiled import cache as kernel_cache
from evo.records import SEGMENT_END, TRUNCATED, EnvStates, Transitions
from snake import observe
from snake.advance import episode_seed
from snake.batch import make_boards, reset_board, step_board
from snake.snapshots import restore, row_size, save, snapshots

kernel_cache.use(__name__)


@njit(cache=True, error_model="numpy", nogil=True)
def play_again(rules, masked, kept, boards, lanes, actions, steps, after):  # type: ignore[no-untyped-def]
    """Play actions [L, T] on every board, each lane from end to end; return how many steps stand in `after`.

    `lanes` is (first, episode, returns_so_far), each [L]; the rest is written, unless nothing is `kept`: `steps`
    (observed [L, T, S], allowed [L, T, A], rewards in thousandths, ends, both [L, T]) and `after` (observed, allowed).
    """
    first, episode, returns_so_far = lanes
    observed, allowed, rewards, ends = steps
    seen_after, allowed_after = after
    cuts = 0
    for b in range(actions.shape[0]):
        for t in range(actions.shape[1]):
            if kept:
                save(boards, b, observed[b, t])
                if masked is not None:
                    observe.mask(boards, rules, masked, b, allowed[b, t])
            reward, status = step_board(boards, rules, b, np.int64(actions[b, t]))
            returns_so_far[b] += reward
            cut = status == 0 and t == actions.shape[1] - 1
            if kept:
                rewards[b, t] = reward
                ends[b, t] = SEGMENT_END if cut else status
                if cut or status == TRUNCATED:
                    save(boards, b, seen_after[cuts])
                    if masked is not None:
                        observe.mask(boards, rules, masked, b, allowed_after[cuts])
                    cuts += 1
            if status:
                episode[b] += 1
                returns_so_far[b] = 0
                reset_board(boards, rules, b, episode_seed(first[b], episode[b]))
    return cuts


def play_segment_again(
    environment: Any, lanes: EnvStates, actions: NDArray[np.int8], keep: bool = True
) -> tuple[Transitions | None, EnvStates]:
    """Return the steps that these actions [L, T] were, if they are to be kept, and where the segment left off.

    What the network said is not among them: outputs have no columns.
    """
    rules, (_, masked) = environment.rules, environment.codes
    boards = make_boards(len(lanes), rules.size)
    restore(boards, range(len(lanes)), lanes.snapshots)
    first, episode, returns_so_far = lanes.first, lanes.episode.copy(), lanes.returns_so_far.copy()
    horizon, width = actions.shape[1], row_size(boards)
    limits = [limit for limit in (rules.starvation, rules.max_steps) if limit]
    most = len(lanes) * (2 + horizon // min(limits)) if limits else len(lanes)

    def two(*lead: int) -> tuple[NDArray[Any], NDArray[Any]]:
        allowed = np.empty((*lead, environment.actions) if masked and keep else (0,) * (len(lead) + 1), np.int8)
        return np.empty((*lead, width) if keep else (0,) * (len(lead) + 1), np.uint8), allowed

    shape = actions.shape if keep else (0, 0)
    observed, allowed = two(*actions.shape)
    rewards, ends, after = np.empty(shape, np.int32), np.empty(shape, np.uint8), two(most)
    cuts = play_again(
        rules,
        masked,
        keep,
        boards,
        (first, episode, returns_so_far),
        actions,
        (observed, allowed, rewards, ends),
        after,
    )
    left = EnvStates(snapshots(boards, range(len(lanes))), first, episode, returns_so_far)
    if not keep:
        return None, left
    steps = Transitions(
        observations=observed.reshape(-1, width),
        action_masks=allowed.reshape(-1, environment.actions) if masked else None,
        actions=actions.ravel(),
        rewards=(rewards.ravel() / 1000.0).astype(np.float32),
        ends=ends.ravel(),
        outputs=np.empty((actions.size, 0), np.float32),
        next_observations=after[0][:cuts],
        next_action_masks=after[1][:cuts] if masked else None,
        next_outputs=np.empty((cuts, 0), np.float32),
    )
    return steps, left
