"""The kernels: a block of threads plays episodes of one candidate, or a segment in up to 32 environments.

A block has 32 lanes, one environment each. Its warps share the outputs of a layer. When no episode is left to begin,
live lanes are gathered at the front and computed with 16, 8 or 4 lanes, and more threads share the outputs of each.

This is plain Python whose functions `Retargeter` replaces by device functions, so the same source is compiled for GPUs
and runs in Numba's CUDA simulator. The step of a game, the action rules and the segments are those of the CPU.
"""

from __future__ import annotations

from typing import Any

from numba import cuda, types

from evo.cuda.layers import forward
from evo.cuda.plain import add_at, barrier, is_finite, load4, shaped, share, store4
from evo.cuda.table import LANES, TOGETHER
from evo.cuda.weights import rebuild
from evo.games.step import begin, play, record_following
from evo.records import GOES_ON, TRUNCATED
from evo.rollouts.action_rules import choose, write_action
from evo.rollouts.segments import step_env

WORK, LIVE, BEGUN, FINITE, ENDED, SLOTS, WORDS = range(7)  # of a block's control words
# Constants of a kernel: the shape of an observation, whether actions are masked (True or None), and the action rule.
SHAPE: Any = None
MASKED: Any = None
RULE: Any = None


def cell(state, rules, b, lane, out):
    """Write what every cell of environment b shows before `draw`, to the first cell of a lane.  # out [*shape, L]"""
    raise NotImplementedError


def draw(state, rules, b, lane, out):
    """Write what the cells of environment b do not all show, to a lane.  # out [*shape, L]"""
    raise NotImplementedError


def compute(table, w, state, rules, memory, base, index, live, width, x, first, second, t, threads):
    """Compute the network for environments base + index[lane], as `forward` does; all threads call it together."""
    out = shaped(x, SHAPE + (LANES,))
    if t < live:
        cell(state.state, rules, base + index[t], t, out)
    barrier()
    lane, place, step = share(t, threads, width // TOGETHER)
    lane, channels, sets = lane * TOGETHER, SHAPE[-1], max(1, step // SHAPE[-1])  # of threads, with cells of their own
    own, channel = place // channels, place % channels
    while own < sets and channel < channels:
        a, b, c, d = load4(x, channel * LANES + lane)
        at = ((own + 1) * channels + channel) * LANES + lane
        while at < x.shape[0]:
            store4(x, at, a, b, c, d)
            at += sets * channels * LANES
        channel += step
    barrier()
    if t < live:
        draw(state.state, rules, base + index[t], t, out)
    barrier()
    forward(table, w, x, first, second, width, t, threads, memory, base, index, live)


def width_for(live: int) -> int:
    """Return how many lanes are computed for these."""
    return 32 if live > 16 else (16 if live > 8 else (8 if live > 4 else 4))


def play_episodes(
    table, parts, scale, parents, rows, mates, keys, sigmas, scale_row, crossover, seeds, items, epsilon, weights, x,
    first, second, state, rules, envs, allowed, actions, ended, finite, slots, chosen, episodes, record, queue
):  # fmt: skip
    """Play all items of work; write `ended` [R], and `finite` and lane `slots` [I] of items.

    Unless they are None, actions `chosen` [M], their `episodes` [M], which are rows of `ended`, and a `record` are
    written, those of an episode in its order; the last row has what there is no room for. What follows a truncated
    step is recorded as number `episodes`.

    The network's tables and the published weights come first, then the candidates, as in a `WeightSource`. An item
    [I, 4] is a candidate, the place of its first of `seeds`, how many there are, and the row of `ended` of the first.
    A block g has weights[g], x[g] and so on, and 32 environments; `queue` [2] counts the items that blocks have begun,
    and recorded steps.
    """
    t, threads, g = cuda.threadIdx.x, cuda.blockDim.x, cuda.blockIdx.x
    index = cuda.shared.array(LANES, types.int32)  # one a line: the simulator tells them apart by their lines
    control = cuda.shared.array(WORDS, types.int32)
    base, w = g * LANES, weights[g]
    scores = first[g] if table.shape[0] % 2 == 1 else second[g]
    while True:
        if t == 0:
            control[WORK] = add_at(queue, 0, 1)
            control[BEGUN] = LANES
            control[FINITE], control[ENDED], control[SLOTS] = 1, 0, 0
        barrier()
        item = control[WORK]
        if item >= items.shape[0]:
            break
        k, seed, count, place = items[item, 0], items[item, 1], items[item, 2], items[item, 3]
        live = min(count, LANES)
        if not rebuild(
            parts, scale, parents, rows[k], mates[k], keys[k], sigmas[k], scale_row, crossover, w, t, threads
        ):
            control[FINITE] = 0
        if t == 0:
            control[LIVE] = live
        if t < live:
            index[t] = t
            envs.episode[base + t] = t
            begin(state, rules, base + t, seeds[seed + t], envs)
        barrier()
        while live > 0 and control[FINITE] != 0:
            width = width_for(live)
            compute(
                table, w, state, rules, envs.memory, base, index, live, width, x[g], first[g], second[g], t, threads
            )
            if t < live:
                b = base + index[t]
                e = envs.episode[b]
                action, found = choose(
                    state, rules, MASKED, b, envs.seeds[b], scores, LANES, t, RULE, epsilon, allowed[b], actions[b]
                )
                if not found:
                    control[FINITE] = 0
                else:
                    row = 0
                    if chosen is not None:  # None by its type, as `record` is: not compiled
                        row = min(add_at(queue, 1, 1), episodes.shape[0] - 1)
                        episodes[row] = place + e
                        write_action(chosen, row, action, actions[b])
                    _, status = play(
                        state, rules, b, action, row, scores, LANES, t, allowed[b], record, envs, ended, place + e
                    )
                    if record is not None and status == TRUNCATED:
                        record_following(state, rules, MASKED, b, row, place + e, record)
                    if status != GOES_ON:
                        new = add_at(control, BEGUN, 1)  # any lane may play any episode
                        if new < count:
                            envs.episode[b] = new
                            begin(state, rules, b, seeds[seed + new], envs)
                        else:
                            index[t] = -1
                            control[ENDED] = 1
            barrier()
            if t == 0:
                control[SLOTS] += width
                if control[ENDED] != 0:
                    control[ENDED] = 0
                    kept = 0
                    for lane in range(live):
                        if index[lane] >= 0:
                            index[kept] = index[lane]
                            kept += 1
                    control[LIVE] = kept
            barrier()
            live = control[LIVE]
        if t == 0:
            finite[item], slots[item] = control[FINITE], control[SLOTS]
        barrier()


def play_segment(
    table, parts, scale, parents, rows, mates, keys, sigmas, scale_row, crossover, horizon, epsilon, weights, x, first,
    second, state, rules, envs, allowed, actions, chosen, record, ended, finite, queue
):  # fmt: skip
    """Play `horizon` steps of one candidate in every environment; write what `evo.rollouts.segments` does.

    What follows a row is recorded in the same row. `finite` [groups of 32 environments] is 0 where an environment of
    it has no action, since outputs are not finite or nothing is allowed. The rest is as in `play_episodes`.
    """
    t, threads, g = cuda.threadIdx.x, cuda.blockDim.x, cuda.blockIdx.x
    index = cuda.shared.array(LANES, types.int32)
    control = cuda.shared.array(WORDS, types.int32)
    w, scores = weights[g], first[g] if table.shape[0] % 2 == 1 else second[g]
    while True:
        if t == 0:
            control[WORK] = add_at(queue, 0, 1)
            control[FINITE] = 1
        if t < LANES:
            index[t] = t
        barrier()
        group = control[WORK]
        base = group * LANES
        if base >= envs.seeds.shape[0]:
            break
        if not rebuild(
            parts, scale, parents, rows[0], mates[0], keys[0], sigmas[0], scale_row, crossover, w, t, threads
        ):
            control[FINITE] = 0
        barrier()
        live = min(envs.seeds.shape[0] - base, LANES)
        width, step = width_for(live), 0
        while step < horizon and control[FINITE] != 0:
            compute(
                table, w, state, rules, envs.memory, base, index, live, width, x[g], first[g], second[g], t, threads
            )
            if t < live:
                found = True
                for o in range(record.outputs.shape[1]):
                    found = found and is_finite(scores[o * LANES + t])
                b = base + t
                row = b * horizon + step
                if found:
                    found = step_env(
                        state, rules, MASKED, b, step, scores, LANES, t, RULE, epsilon, (allowed[b], actions[b]), envs,
                        chosen, record, ended, row,
                    ) > -1  # fmt: skip
                if not found:
                    control[FINITE] = 0
            step += 1
            barrier()
        if t == 0:
            finite[group] = control[FINITE]
        barrier()
