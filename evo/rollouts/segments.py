"""Segments of Snake in compiled code: every lane plays on for a fixed number of steps, and every step is brought back.

A lane whose episode ends begins its next one at once, so no lane is ever idle; what is seen after a step that was
truncated, or after a lane's last step, is brought back too, with the network's outputs for it.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import njit
from numpy.typing import NDArray

from evo.compiled import cache as kernel_cache
from evo.kernels.lanes import forward
from evo.records import SEGMENT_END, TERMINATED, TRUNCATED, EnvStates, Result, Transitions
from evo.rollouts.episodes import choose_action, room_for, together
from snake import observe
from snake.advance import episode_seed
from snake.batch import Rules, make_boards, reset_board, step_board
from snake.snapshots import restore, row_size, save, snapshots

kernel_cache.use(__name__)


@njit(cache=True, error_model="numpy", nogil=True, _nrt=False)
def step_lane(boards, rules, masked, b, t, scores, width, lane, rule, epsilon, choices, returns_so_far, steps, episodes):  # type: ignore[no-untyped-def]  # fmt: skip
    """Choose and play step `t` on board `b`, and write it; return how it ended, 0 where the episode goes on.

    `scores` [O, width] flat are finite; `choices` [A] is room for what is allowed; `returns_so_far` [L], `steps` and `episodes`
    are those of `play_lanes`. The last step of a segment is SEGMENT_END where it ends nothing.
    """
    observed, allowed, actions, rewards, ends, outputs = steps
    returns, lengths, episode_metrics = episodes
    save(boards, b, observed[b, t])
    for o in range(outputs.shape[2]):
        outputs[b, t, o] = scores[o * width + lane]
    if masked is not None:
        observe.mask(boards, rules, masked, b, choices)
        for action_of in range(choices.shape[0]):
            allowed[b, t, action_of] = choices[action_of]
    action = choose_action(scores, width, lane, choices, rule, epsilon, boards.state[b].seed, boards.state[b].steps)
    reward, status = step_board(boards, rules, b, action)
    actions[b, t] = action
    rewards[b, t] = reward
    returns_so_far[b] += reward
    ends[b, t] = status
    if status == 0:
        if t == actions.shape[1] - 1:
            ends[b, t] = SEGMENT_END
        return status
    length = np.int64(boards.state[b].length)
    returns[b, t] = returns_so_far[b]
    lengths[b, t] = boards.state[b].steps
    episode_metrics[b, t, 0] = length - rules.start_length
    episode_metrics[b, t, 1] = 1 if length == rules.size * rules.size else 0
    episode_metrics[b, t, 2] = 1 if status == TRUNCATED else 0
    return status


@njit(cache=True, error_model="numpy", nogil=True, _nrt=False)
def play_lanes(layers, packed, norms, large, rules, observation, masked, shape, boards, lanes, rule, epsilon, room, buffers, steps, after_at, after, episodes):  # type: ignore[no-untyped-def]  # fmt: skip
    """Play a segment on every board; return (steps in `after`, lane slots, finite).

    `lanes` is (first, episode, returns_so_far), each [L]; `room` what `room_for` makes, `buffers` the kernel's for 16 lanes and,
    at the end, an observation and the scores of two; the rest is written: `steps`
    (observed [L, T, S], allowed [L, T, A] or [0, 0, 0], actions, rewards in thousandths, ends, each [L, T], outputs
    [L, T, O]), the same of what follows in `after` (observed, allowed, outputs), each at number `after_at` of the
    steps, and of the episodes that end (returns, lengths [L, T], episode_metrics [L, T, 3]).
    """
    first, episode, returns_so_far = lanes
    marks, x, one, two, scores, x_alone, scores_alone = buffers
    _, _, actions, _, ends, outputs = steps
    seen_after, allowed_after, outputs_after = after
    count, horizon = actions.shape
    size, width_of_outputs = shape[0] * shape[1] * shape[2], outputs.shape[2]
    index, twice, _, choices = room
    cuts, slots, start = 0, 0, 0
    while start < count:
        width = together(count - start)
        live = min(width, count - start)
        for lane in range(width):  # idle ones are computed, never played
            index[lane] = start + (lane if lane < live else 0)
        image = x[: size * width]
        for t in range(horizon + 1):
            observe.write(boards, rules, observation, shape[0], index[:width], image)
            forward(layers, packed, norms, large, marks, x, one, two, scores, width, live)
            slots += width
            for lane in range(live):
                b = start + lane
                for o in range(width_of_outputs):
                    if not np.isfinite(scores[o * width + lane]):
                        return cuts, slots, False
                if t == horizon:
                    if ends[b, t - 1] == SEGMENT_END:
                        save(boards, b, seen_after[cuts])
                        for o in range(width_of_outputs):
                            outputs_after[cuts, o] = scores[o * width + lane]
                        if masked is not None:
                            observe.mask(boards, rules, masked, b, allowed_after[cuts])
                        after_at[cuts] = b * horizon + t - 1
                        cuts += 1
                    continue
                status = step_lane(boards, rules, masked, b, t, scores, width, lane, rule, epsilon, choices, returns_so_far, steps, episodes)  # fmt: skip
                if status == 0:
                    continue
                if status == TRUNCATED:
                    twice[:2] = b  # two lanes are the fewest
                    observe.write(boards, rules, observation, shape[0], twice[:2], x_alone)
                    forward(layers, packed, norms, large, marks, x_alone, one, two, scores_alone, 2, 1)
                    slots += 2
                    for o in range(width_of_outputs):
                        if not np.isfinite(scores_alone[2 * o]):
                            return cuts, slots, False
                        outputs_after[cuts, o] = scores_alone[2 * o]
                    save(boards, b, seen_after[cuts])
                    if masked is not None:
                        observe.mask(boards, rules, masked, b, allowed_after[cuts])
                    after_at[cuts] = b * horizon + t
                    cuts += 1
                episode[b] += 1
                returns_so_far[b] = 0
                reset_board(boards, rules, b, episode_seed(first[b], episode[b]))
        start += live
    return cuts, slots, True


def begin(rules: Rules, first: NDArray[np.uint64]) -> EnvStates:
    """Return lanes at the beginning of their first episodes.  # first [L]"""
    boards = make_boards(len(first), rules.size)
    for b, seed in enumerate(first):
        reset_board(boards, rules, b, seed)
    zeros = np.zeros(len(first), np.int64)
    return EnvStates(snapshots(boards, range(len(first))), np.asarray(first, np.uint64), zeros, zeros.copy())


class Sheet:
    """Room for what a segment of lanes writes, and what it comes to."""

    def __init__(self, environment: Any, lanes: EnvStates, horizon: int, outputs: int) -> None:
        rules, (_, self.masked) = environment.rules, environment.codes
        self.environment, self.boards = environment, make_boards(len(lanes), rules.size)
        restore(self.boards, range(len(lanes)), lanes.snapshots)
        self.lanes = lanes.first, lanes.episode.copy(), lanes.returns_so_far.copy()
        limits = [limit for limit in (rules.starvation, rules.max_steps) if limit]
        most = len(lanes) * (2 + horizon // min(limits)) if limits else len(lanes)
        shape = len(lanes), horizon
        observed, allowed, scores = self._three(outputs, *shape)
        actions, rewards, ends = np.empty(shape, np.int8), np.empty(shape, np.int32), np.zeros(shape, np.uint8)
        self.steps = observed, allowed, actions, rewards, ends, scores
        self.after_at, self.after = np.empty(most, np.int64), self._three(outputs, most)
        episode_metrics = np.zeros((*shape, 3), np.int32)
        self.episodes = np.zeros(shape, np.int64), np.zeros(shape, np.int32), episode_metrics

    def _three(self, outputs: int, *lead: int) -> tuple[NDArray[Any], NDArray[Any], NDArray[Any]]:
        width, actions = row_size(self.boards), self.environment.actions
        allowed = np.empty((*lead, actions) if self.masked else (0,) * (len(lead) + 1), np.int8)
        return np.empty((*lead, width), np.uint8), allowed, np.empty((*lead, outputs), np.float32)

    def result(self, cuts: int, slots: int, finite: bool) -> Result:
        """Return the segment as a result of one candidate, with the episodes that ended in the order of their steps."""
        observed, allowed, actions, rewards, ends, scores = self.steps
        ended = (ends == TERMINATED) | (ends == TRUNCATED)
        order = np.argsort(self.after_at[:cuts])
        steps = Transitions(
            observations=observed.reshape(-1, observed.shape[-1]),
            action_masks=allowed.reshape(-1, self.environment.actions) if self.masked else None,
            actions=actions.ravel(),
            rewards=(rewards.ravel() / 1000.0).astype(np.float32),
            ends=ends.ravel(),
            outputs=scores.reshape(-1, scores.shape[-1]),
            next_observations=self.after[0][order],
            next_action_masks=self.after[1][order] if self.masked else None,
            next_outputs=self.after[2][order],
        )
        returns, lengths, episode_metrics = self.episodes
        return Result(
            returns=returns[ended][None],
            lengths=lengths[ended][None],
            episode_metrics=episode_metrics[ended][None],
            finite=np.array([finite]),
            frames=len(steps),
            lane_slots=slots,
            transitions=steps if finite else None,
            envs=EnvStates(snapshots(self.boards, range(len(actions))), *self.lanes) if finite else None,
        )


def play_segment(
    kernel: tuple[Any, ...],
    environment: Any,
    lanes: EnvStates,
    horizon: int,
    outputs: int,
    rule: int | None,
    epsilon: float,
) -> Result:
    """Play one network on every lane; `kernel` is what `Rollout` keeps of it.

    The result has one candidate, the episodes that ended in the order of their last steps, and every step; where an
    output was not finite it has neither.
    """
    layers, packed, norms, large, *buffers = kernel
    sheet, (observation, masked) = Sheet(environment, lanes, horizon, outputs), environment.codes
    alone = np.empty(2 * int(np.prod(environment.shape)), np.float32), np.empty(2 * outputs, np.float32)
    ending = play_lanes(
        layers, packed, norms, large, environment.rules, observation, masked, environment.shape, sheet.boards, sheet.lanes, rule,
        epsilon, room_for(environment), (*buffers, *alone), sheet.steps, sheet.after_at, sheet.after, sheet.episodes,
    )  # fmt: skip
    return sheet.result(*ending)
