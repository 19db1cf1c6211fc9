"""Whole episodes of Snake in compiled code: board, observation, network and choice, up to sixteen episodes at a time.

A lane whose episode ends takes the next one at once. When none is left, live lanes are gathered at the front and
computed in parts of 16, 8, 4, 2 and 1 lanes; no lane's bits depend on that.
"""

from __future__ import annotations

import numpy as np
from numba import njit

from evo.policies.lanes import forward
from evo.streams import Purpose
from snake import kernel_cache, observe
from snake.batch import reset_board, step_board
from snake.philox_compiled import draw, philox

kernel_cache.use(__name__)

GREEDY, SOFTMAX, EPSILON_GREEDY = 0, 1, 2
ACTION, EXPLORE = int(Purpose.ACTION), int(Purpose.EXPLORE)
SQUARINGS = 10


@njit(cache=True, error_model="numpy", nogil=True)
def exponential(x):  # type: ignore[no-untyped-def]
    """Return exp(x) for x <= 0 by additions and multiplications only, so with the same bits everywhere.

    (1 + y + y^2/2 + y^3/6 + y^4/24)^1024 with y = x / 1024, in float64; 0 below -600.
    """
    if x < -600.0:
        return 0.0
    y = x * (1.0 / 1024.0)
    power = 1.0 + y * (1.0 + y * (0.5 + y * (1.0 / 6.0 + y * (1.0 / 24.0))))
    for _ in range(SQUARINGS):
        power = power * power
    return power


@njit(cache=True, error_model="numpy", nogil=True, _nrt=False)
def choose(scores, width, lane, allowed, rule, epsilon, seed, step):  # type: ignore[no-untyped-def]
    """Return the action of a lane, the lowest of equals, or -1 where a score is not finite.

    `scores` [A or more, width] flat float32; `allowed` [A] int8; a draw is number `step` of the episode's streams.
    """
    best = -1
    for action in range(allowed.shape[0]):
        score = scores[action * width + lane]
        if not np.isfinite(score):
            return -1
        if allowed[action] and (best < 0 or score > scores[best * width + lane]):
            best = action
    if rule == GREEDY:
        return best
    word, coin, _, _ = philox(seed, np.uint64(step), np.uint64(0), np.uint64(ACTION), np.uint64(0))
    if rule == EPSILON_GREEDY:
        if np.float64(coin) * (1.0 / 4294967296.0) >= epsilon:
            return best
        left = 0
        for action in range(allowed.shape[0]):
            left += allowed[action]
        left = draw(seed, step, left, EXPLORE)
        for action in range(allowed.shape[0]):
            if allowed[action]:
                if left == 0:
                    return action
                left -= 1
    top = np.float64(scores[best * width + lane])
    total = 0.0
    for action in range(allowed.shape[0]):
        if allowed[action]:
            total += exponential(np.float64(scores[action * width + lane]) - top)
    threshold = np.float64(word) * (1.0 / 4294967296.0) * total
    for action in range(allowed.shape[0]):
        if allowed[action]:
            threshold -= exponential(np.float64(scores[action * width + lane]) - top)
            if threshold < 0.0:
                return action
    return best


@njit(cache=True, error_model="numpy", nogil=True)
def together(live):  # type: ignore[no-untyped-def]
    """Return how many lanes to compute at once where `live` are left: a fixed rule, so that slots can be counted on.

    Most counts are a sum of widths without an idle lane, 11 = 8 + 2 + 1. Where the sum costs more than the next width
    (7, and 13 to 15), lanes are left idle instead.
    """
    if live >= 13:
        return 16
    if live >= 7:
        return 8
    return 4 if live >= 4 else (2 if live >= 2 else 1)


@njit(cache=True, error_model="numpy", nogil=True)
def play_episodes(layers, packed, rules, observation, masked, shape, boards, seeds, rule, epsilon, x, first, second, scores, returns, lengths, measures, trace):  # type: ignore[no-untyped-def]  # fmt: skip
    """Play one candidate on every episode; return (frames, lane slots, finite).

    `boards` are 16, `seeds` [E]; `x`, `first`, `second`, `scores` are the kernel's buffers for 16 lanes; `returns`,
    `lengths` [E] and `measures` [E, 3] are written. `trace` [E, T] takes the actions, or is [0, 0].
    """
    count = seeds.shape[0]
    index, episode, earned = np.arange(16), np.zeros(16, np.int64), np.zeros(16, np.int64)
    allowed = np.ones(3 if rules.relative else 4, np.int8)
    height, columns, planes = shape
    live = min(count, 16)
    begun = live
    for board in range(live):
        episode[board] = board
        reset_board(boards, rules, board, seeds[board])
    frames, slots = 0, 0
    while live > 0:
        start, width, ended = 0, 0, 0
        for place in range(live):
            if place == start + width:  # the next lanes that are computed together
                start, width = place, together(live - place)
                for idle in range(live, start + width):  # computed, never played
                    index[idle] = index[start]
                image = x[: height * columns * planes * width].reshape((height, columns, planes, width))
                observe.write(boards, rules, observation, index[start : start + width], image)
                forward(layers, packed, x, first, second, scores, width)
                slots += width
            board = index[place]
            e = episode[board]
            if masked:
                observe.mask(boards, rules, masked, board, allowed)
            step = boards.steps[board]
            action = choose(scores, width, place - start, allowed, rule, epsilon, seeds[e], step)
            if action < 0:
                return frames, slots, False
            if trace.shape[0]:
                trace[e, step] = action
            reward, status = step_board(boards, rules, board, action)
            frames += 1
            earned[board] += reward
            if status == 0:
                continue
            score = np.int64(boards.length[board]) - rules.start_length
            won = np.int64(boards.length[board]) == rules.size * rules.size
            returns[e] = earned[board]
            lengths[e] = boards.steps[board]
            measures[e, 0] = score
            measures[e, 1] = 1 if won else 0
            measures[e, 2] = 1 if status == 2 else 0
            earned[board] = 0
            if begun < count:
                episode[board] = begun
                reset_board(boards, rules, board, seeds[begun])
                begun += 1
            else:
                index[place] = -1
                ended += 1
        if ended:
            kept = 0
            for place in range(live):
                if index[place] >= 0:
                    index[kept] = index[place]
                    kept += 1
            live = kept
    return frames, slots, True
