"""Whole episodes of a compiled game, played up to sixteen at a time.

A lane whose episode ends takes the next one at once. When none is left, live lanes are gathered at the front and
computed in parts of 16, 8, 4 and 2 lanes; no lane's bits depend on that.
"""

from __future__ import annotations

from numba import njit

from evo.compiled import cache as kernel_cache
from evo.compiled.views import shaped
from evo.games import contract
from evo.games.step import BEGUN, FOLLOWED, FRAMES, LIVE, ROWS, SLOTS, begin, play, record_following
from evo.kernels.lanes import forward, lanes_for
from evo.records import GOES_ON, TRUNCATED
from evo.rollouts.action_rules import choose, write_action

kernel_cache.use(__name__)


@njit(inline="always")
def step_episode(  # type: ignore[no-untyped-def]
    state, rules, masked, b, seeds, scores, width, lane, rule, epsilon, buffers, envs, ended, actions, episodes, record
):  # fmt: skip
    """Choose, play and record a step of the episode that environment b plays; return whether there is an action.

    Where the episode ends, environment b takes the next of `seeds` [E] that none has begun, or else the episode -1.
    `scores` are flat [O, width]; the rest is as in `play_episodes`.
    """
    _, allowed, continuous, progress = buffers
    action, found = choose(
        state, rules, masked, b, envs.seeds[b], scores, width, lane, rule, epsilon, allowed, continuous
    )
    if not found:
        return False
    e, row = envs.episode[b], progress[ROWS]
    if actions.shape[0]:
        episodes[row] = e
        write_action(actions, row, action, continuous)
        progress[ROWS] += 1
    _, status = play(state, rules, b, action, row, scores, width, lane, allowed, record, envs, ended, e)
    progress[FRAMES] += 1
    if record is not None and status == TRUNCATED:
        record_following(state, rules, masked, b, row, progress[FOLLOWED], record)
        progress[FOLLOWED] += 1
    if status != GOES_ON:
        begin_one(state, rules, b, seeds, envs, progress)
    return True


@njit(inline="always")
def begin_one(state, rules, b, seeds, envs, progress):  # type: ignore[no-untyped-def]
    """Begin the first episode of `seeds` [E] that none has begun in environment b; -1 where there is none."""
    envs.episode[b] = -1
    if progress[BEGUN] < seeds.shape[0]:
        envs.episode[b] = progress[BEGUN]
        begin(state, rules, b, seeds[progress[BEGUN]], envs)
        progress[BEGUN] += 1


@kernel_cache.with_game
def play_episodes(  # type: ignore[no-untyped-def]
    layers, packed, large, nonzero, x, first, second, scores, state, rules, masked, shape, seeds, rule, epsilon,
    buffers, envs, ended, actions, episodes, record
):  # fmt: skip
    """Play one candidate on every episode, or on until there is no room for actions.

    Return the environment for which there is no action, since scores are not finite or nothing is allowed; else -1. The
    network's arrays come first, with the kernel's buffers for 16 lanes. `state` is of 16 environments, `seeds` [E];
    `buffers` are index [16], allowed actions, an action and progress, which goes on in the next call. Written are the
    rows of `ended` [E], and, where there is room, `actions` [M], their `episodes` and, unless it is None, `record`.
    """
    index, progress, room, size = buffers[0], buffers[3], actions.shape[0], x.shape[0] // 16
    if progress[BEGUN] == 0:
        progress[LIVE] = min(seeds.shape[0], 16)
        for b in range(progress[LIVE]):
            index[b] = b
            begin_one(state, rules, b, seeds, envs, progress)
    live = progress[LIVE]
    while live > 0 and (room == 0 or progress[ROWS] + live <= room):
        start, width = 0, 0
        for place in range(live):
            if place == start + width:  # the next lanes that are computed together
                start, width = place, lanes_for(live - place)
                for idle in range(live, start + width):  # computed, never played
                    index[idle] = index[start]
                seen = shaped(x[: size * width], (*shape, width))
                contract.observe_lanes(state, rules, index[start : start + width], seen)
                there = min(width, live - place)
                forward(
                    layers, packed, large, nonzero, x, first, second, scores, width, there, envs.memory, index[start:]
                )
                progress[SLOTS] += width
            if not step_episode(
                state, rules, masked, index[place], seeds, scores, width, place - start, rule, epsilon, buffers, envs,
                ended, actions, episodes, record,
            ):  # fmt: skip
                return index[place]
        kept = 0
        for place in range(live):
            if envs.episode[index[place]] >= 0:
                index[kept] = index[place]
                kept += 1
        live = kept
    progress[LIVE] = live
    return -1
