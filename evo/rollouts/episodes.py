"""Whole episodes of Snake in compiled code: board, observation, network and choice, up to sixteen episodes at a time.

A lane whose episode ends takes the next one at once. When none is left, live lanes are gathered at the front and
computed in parts of 16, 8, 4 and 2 lanes; no lane's bits depend on that.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from numba import njit
from numpy.typing import NDArray

from evo.compiled import cache as kernel_cache
from evo.kernels.lanes import forward
from evo.randomness.philox_compiled import draw, philox
from evo.randomness.streams import Purpose
from evo.records import TERMINATED, TRUNCATED, Episodes, Task, Transitions
from snake import observe
from snake.batch import Boards, reset_board, step_board
from snake.snapshots import row_size, save

kernel_cache.use(__name__)

SOFTMAX, EPSILON_GREEDY = 1, 2
RULES = {"greedy": None, "softmax": SOFTMAX, "epsilon_greedy": EPSILON_GREEDY}  # None: compiled without any draw
ACTION, EXPLORE = int(Purpose.ACTION), np.int64(Purpose.EXPLORE)
SQUARINGS = 10


class Trace(NamedTuple):
    """Which actions were played in E episodes of M steps; no step is written where there is no room for one."""

    starts: NDArray[np.int64]  # [E] number of each episode's first step
    actions: NDArray[np.int8]  # [M]


class Record(NamedTuple):
    """What else is written of these episodes to learn from; A is 0 where nothing is masked."""

    observations: NDArray[np.uint8]  # [M, S] snapshots
    action_masks: NDArray[np.int8]  # [M, A]
    rewards: NDArray[np.int32]  # [M] thousandths
    outputs: NDArray[np.float32]  # [M, O]
    next_observations: NDArray[np.uint8]  # [E, S] what follows the last step
    next_action_masks: NDArray[np.int8]  # [E, A]


@njit(cache=True, error_model="numpy", nogil=True)
def exponential(x):  # type: ignore[no-untyped-def]
    """Return exp(x) for x <= 2 by additions and multiplications only, so with the same bits everywhere.

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
def choose_action(scores, width, lane, allowed, rule, epsilon, seed, step):  # type: ignore[no-untyped-def]
    """Return the action of a lane, the lowest of equals, or -1 where a score is not finite.

    `scores` [A or more, width] flat float32; `allowed` [A] int8; `rule` is one of RULES; a draw is number `step` of the
    episode's streams.
    """
    best = -1
    for action in range(allowed.shape[0]):
        score = scores[action * width + lane]
        if not np.isfinite(score):
            return -1
        if allowed[action] and (best < 0 or score > scores[best * width + lane]):
            best = action
    if rule is None:
        return best
    word, coin, _, _ = philox(seed, np.uint64(step), np.uint64(0), np.uint64(ACTION), np.uint64(0))
    if rule == EPSILON_GREEDY:
        if np.float64(coin) * (1.0 / 4294967296.0) >= epsilon:
            return best
        left = np.int64(0)
        for action in range(allowed.shape[0]):
            left += allowed[action]
        left = draw(seed, np.int64(step), left, EXPLORE)
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

    Counts are sums of widths, 10 = 8 + 2, with an idle lane where they are odd. Where such a sum costs more than one
    with wider parts (8 for 7, 8 + 4 for 11, 16 for 13 to 15), lanes are left idle instead.
    """
    if live >= 13:
        return 16
    if live >= 7:
        return 8
    return 4 if live >= 3 else 2


@njit(cache=True, error_model="numpy", nogil=True, _nrt=False)
def play_episodes(layers, packed, norms, large, rules, observation, masked, shape, boards, seeds, rule, epsilon, room, marks, x, first, second, scores, returns, lengths, episode_metrics, trace, record):  # type: ignore[no-untyped-def]  # fmt: skip
    """Play one candidate on every episode; return (frames, lane slots, finite).

    `boards` are 16, `seeds` [E]; `room` is what `room_for` makes; `marks`, `x`, `first`, `second`, `scores` are the kernel's
    buffers for 16 lanes; `returns`, `lengths` [E] and `episode_metrics` [E, 3] are written, the actions that `trace`, a Trace,
    has room for, and `record`, a Record beside such a trace, or None. `masked`, `norms` and `large` may be None too.
    """
    count = seeds.shape[0]
    index, episode, returns_so_far, allowed = room
    height, columns, planes = shape
    live = min(count, 16)
    begun = live
    for board in range(live):
        index[board] = episode[board] = board
        returns_so_far[board] = 0
        reset_board(boards, rules, board, seeds[board])
    frames, slots = 0, 0
    while live > 0:
        start, width, ended = 0, 0, 0
        for place in range(live):
            if place == start + width:  # the next lanes that are computed together
                start, width = place, together(live - place)
                for idle in range(live, start + width):  # computed, never played
                    index[idle] = index[start]
                image = x[: height * columns * planes * width]
                observe.write(boards, rules, observation, height, index[start : start + width], image)
                forward(layers, packed, norms, large, marks, x, first, second, scores, width, min(width, live - place))
                slots += width
            board = index[place]
            e = episode[board]
            if masked is not None:
                observe.mask(boards, rules, masked, board, allowed)
            step = boards.state[board].steps
            action = choose_action(scores, width, place - start, allowed, rule, epsilon, seeds[e], step)
            if action < 0:
                return frames, slots, False
            at = -1
            if trace.actions.shape[0]:
                at = trace.starts[e] + step
                trace.actions[at] = action
            if record is not None:
                save(boards, board, record.observations[at])
                for action_of in range(record.action_masks.shape[1]):
                    record.action_masks[at, action_of] = allowed[action_of]
                for o in range(record.outputs.shape[1]):
                    record.outputs[at, o] = scores[o * width + place - start]
            reward, status = step_board(boards, rules, board, action)
            if record is not None:
                record.rewards[at] = reward
            frames += 1
            returns_so_far[board] += reward
            if status == 0:
                continue
            score = np.int64(boards.state[board].length) - rules.start_length
            won = np.int64(boards.state[board].length) == rules.size * rules.size
            returns[e] = returns_so_far[board]
            lengths[e] = boards.state[board].steps
            episode_metrics[e, 0] = score
            episode_metrics[e, 1] = 1 if won else 0
            episode_metrics[e, 2] = 1 if status == 2 else 0
            returns_so_far[board] = 0
            if record is not None:
                save(boards, board, record.next_observations[e])
                if masked is not None:
                    observe.mask(boards, rules, masked, board, record.next_action_masks[e])
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


def room_for(environment: Any) -> tuple[NDArray[Any], ...]:
    """Return what a kernel of 16 lanes notes on the way: index, episode, returns_so_far [16], and what is allowed [A].

    A kernel that took memory itself would be compiled with all of NumPy's error messages, and count references.
    """
    index, episode, returns_so_far = np.zeros((3, 16), np.int64)
    return index, episode, returns_so_far, np.ones(environment.actions, np.int8)


NO_TRACE = Trace(np.zeros(0, np.int64), np.zeros(0, np.int8))


def play_snake(
    kernel: tuple[Any, ...],
    environment: Any,
    boards: Boards,
    task: Task,
    one: dict[str, NDArray[Any]],
    score: Callable[[NDArray[np.float32]], NDArray[np.float32]],
) -> tuple[int, int, bool, list[NDArray[np.generic]], Transitions | None]:
    """Play whole episodes with one candidate; return (frames, lane slots, finite, traces, steps), both if asked for.

    `kernel` is what `Rollout` keeps of its network; `score` asks the same one. What an episode came to is written into
    the arrays of `one`, each [E, ...].
    """
    assert isinstance(task.play, Episodes)
    layers, packed, norms, large, *buffers = kernel
    seeds, how = task.play.seeds, task.action_rule
    observation, masked = environment.codes
    room = room_for(environment)

    def episodes(trace: Trace, record: Record | None) -> tuple[int, int, bool]:
        return play_episodes(  # type: ignore[no-any-return]
            layers, packed, norms, large, environment.rules, observation, masked, environment.shape, boards, seeds,
            RULES[how.kind], how.epsilon, room, *buffers, one["returns"], one["lengths"], one["episode_metrics"], trace, record,
        )  # fmt: skip

    frames, slots, finite = episodes(NO_TRACE, None)
    if not finite or not (task.record_actions or task.record_transitions):
        return frames, slots, finite, [NO_TRACE.actions] * len(seeds), None
    # Lengths are known only now; the same arithmetic plays the same episodes again.
    last = np.cumsum(one["lengths"], dtype=np.int64)
    trace = Trace(last - one["lengths"], np.empty(frames, np.int8))
    record = None
    if task.record_transitions:
        size, actions, outputs = row_size(boards), environment.actions if masked else 0, len(buffers[-1]) // 16
        record = Record(
            observations=np.empty((frames, size), np.uint8),
            action_masks=np.empty((frames, actions), np.int8),
            rewards=np.empty(frames, np.int32),
            outputs=np.empty((frames, outputs), np.float32),
            next_observations=np.empty((len(seeds), size), np.uint8),
            next_action_masks=np.empty((len(seeds), actions), np.int8),
        )
    episodes(trace, record)
    steps = None
    if record is not None:
        steps = _steps(trace, record, last - 1, one["episode_metrics"][:, 2] == 1, environment, score)
    return frames, slots, True, list(np.split(trace.actions, last[:-1])), steps


def _steps(
    trace: Trace, record: Record, last: NDArray[np.int64], truncated: NDArray[np.bool_], environment: Any, score: Any
) -> Transitions:
    ends = np.zeros(len(trace.actions), np.uint8)
    ends[last] = np.where(truncated, TRUNCATED, TERMINATED)
    after, masked = record.next_observations[truncated], record.action_masks.shape[1] > 0
    return Transitions(
        observations=record.observations,
        action_masks=record.action_masks if masked else None,
        actions=trace.actions,
        rewards=(record.rewards / 1000.0).astype(np.float32),
        ends=ends,
        outputs=record.outputs,
        next_observations=after,
        next_action_masks=record.next_action_masks[truncated] if masked else None,
        next_outputs=score(environment.observe(after)),
    )
