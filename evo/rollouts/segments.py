"""Segments of a compiled game: every environment plays on for a fixed number of steps, and every step is recorded.

An environment whose episode ends begins its next one at once. What follows a truncated step, or the last step of a
segment, is recorded too, with the network's outputs for it.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numba import njit
from numpy.typing import NDArray

from evo.compiled import cache as kernel_cache
from evo.compiled.views import shaped
from evo.games import contract
from evo.games.contract import CompiledGame
from evo.kernels.lanes import forward
from evo.randomness.philox_compiled import episode_seed
from evo.records import GOES_ON, SEGMENT_END, TERMINATED, TRUNCATED, ActionRule, EnvStates, Result, Segment, Transitions
from evo.rollouts.action_rules import RULES, decide, write_action
from evo.rollouts.episodes import are_finite, buffers_for, lanes_for

kernel_cache.use(__name__)

ONE, TWO = np.int64(1), np.int64(2)  # lanes; typed, since literals would have the network's kernels compiled once more


class Envs(NamedTuple):
    """Which episode each of L environments plays."""

    first: NDArray[np.uint64]  # [L] seed of the first episode
    episode: NDArray[np.int64]  # [L]
    returns_so_far: NDArray[np.int64]  # [L]
    seeds: NDArray[np.uint64]  # [L] of the episode that is being played


class TransitionBuffers(NamedTuple):
    """Transitions of a segment of L environments and T steps; A is 0 where nothing is masked."""

    observations: NDArray[np.uint8]  # [L, T, S]
    action_masks: NDArray[np.int8]  # [L, T, A]
    actions: NDArray[Any]  # [L, T] int8, or [L, T, D] float32 where actions are continuous
    rewards: NDArray[np.int32]  # [L, T] thousandths
    ends: NDArray[np.uint8]  # [L, T]
    outputs: NDArray[np.float32]  # [L, T, O]


class Following(NamedTuple):
    """What follows the steps that are TRUNCATED or SEGMENT_END."""

    steps: NDArray[np.int64]  # [N] after which step, b T + t
    observations: NDArray[np.uint8]  # [N, S]
    action_masks: NDArray[np.int8]  # [N, A]
    outputs: NDArray[np.float32]  # [N, O]


class Ended(NamedTuple):
    """The episodes that ended, each where its last step stands."""

    returns: NDArray[np.int64]  # [L, T]
    lengths: NDArray[np.int32]  # [L, T]
    episode_metrics: NDArray[np.int32]  # [L, T, M]


@njit(cache=True, error_model="numpy")
def _name_episodes(envs):  # type: ignore[no-untyped-def]
    for b in range(envs.seeds.shape[0]):
        envs.seeds[b] = episode_seed(envs.first[b], envs.episode[b])


@njit(error_model="numpy", _nrt=False, inline="always")
def begin_next(state, rules, b, envs):  # type: ignore[no-untyped-def]
    """Begin the next episode of environment b."""
    envs.episode[b] += 1
    envs.returns_so_far[b] = 0
    envs.seeds[b] = episode_seed(envs.first[b], envs.episode[b])
    contract.begin(state, rules, b, envs.seeds[b])


@njit(error_model="numpy", _nrt=False)
def save_following(state, rules, masked, b, t, count, ends, following):  # type: ignore[no-untyped-def]
    """Record what follows step `t` of environment b as number `count`."""
    contract.save(state, rules, b, following.observations[count])
    if masked is not None:
        contract.mask(state, rules, b, following.action_masks[count])
    following.steps[count] = b * ends.shape[1] + t


@njit(error_model="numpy", _nrt=False, inline="always")
def step_env(state, rules, masked, b, t, scores, width, lane, rule, epsilon, allowed, continuous, envs, steps, ended):  # type: ignore[no-untyped-def]  # fmt: skip
    """Choose, play and record step `t` of environment b; return its status.

    `scores` flat [O, width] are finite; `allowed` [A] and `continuous` are buffers. The last step of a segment is SEGMENT_END where it
    ends nothing.
    """
    contract.save(state, rules, b, steps.observations[b, t])
    for o in range(steps.outputs.shape[2]):
        steps.outputs[b, t, o] = scores[o * width + lane]
    if masked is not None:
        contract.mask(state, rules, b, allowed)
        for action_of in range(allowed.shape[0]):
            steps.action_masks[b, t, action_of] = allowed[action_of]
    number = contract.steps(state, rules, b)
    action, _ = decide(scores, width, lane, allowed, rule, epsilon, envs.seeds[b], number, continuous)
    write_action(steps.actions[b], t, action, continuous)
    reward, status = contract.step(state, rules, b, action)
    steps.rewards[b, t] = reward
    envs.returns_so_far[b] += reward
    steps.ends[b, t] = status
    if status == GOES_ON:
        if t == steps.rewards.shape[1] - 1:
            steps.ends[b, t] = SEGMENT_END
        return status
    ended.returns[b, t] = envs.returns_so_far[b]
    ended.lengths[b, t] = contract.steps(state, rules, b)
    contract.metrics(state, rules, b, ended.episode_metrics[b, t])
    return status


@kernel_cache.with_game
@njit(cache=True, error_model="numpy", nogil=True, _nrt=False)
def play_envs(layers, packed, large, nonzero, x, first, second, scores, x_alone, scores_alone, state, rules, masked, shape, rule, epsilon, buffers, envs, steps, following, ended):  # type: ignore[no-untyped-def]  # fmt: skip
    """Play a segment in every environment; return (rows of `following`, lane slots, finite).

    The network's arrays come first, with the kernel's buffers for 16 lanes and, for one of two lanes, an observation
    and its scores. `buffers` is what `buffers_for` makes. `envs`, `steps`, `following` and `ended` are written.
    """
    count, horizon = steps.rewards.shape
    size, outputs = x.shape[0] // 16, steps.outputs.shape[2]
    index, twice, _, allowed, continuous, _ = buffers
    rows, slots, start = np.int64(0), 0, 0
    while start < count:
        width = lanes_for(count - start)
        live = min(width, count - start)
        for lane in range(width):  # idle ones are computed, never played
            index[lane] = start + (lane if lane < live else 0)
        seen = shaped(x[: size * width], (*shape, width))
        for t in range(horizon + 1):
            contract.observe_lanes(state, rules, index[:width], seen)
            forward(layers, packed, large, nonzero, x, first, second, scores, width, live)
            slots += width
            for lane in range(live):
                b = start + lane
                for o in range(outputs):
                    if not np.isfinite(scores[o * width + lane]):
                        return rows, slots, False
                if t == horizon:
                    if steps.ends[b, t - 1] == SEGMENT_END:
                        save_following(state, rules, masked, b, t - 1, rows, steps.ends, following)
                        for o in range(outputs):
                            following.outputs[rows, o] = scores[o * width + lane]
                        rows += 1
                    continue
                status = step_env(state, rules, masked, b, t, scores, width, lane, rule, epsilon, allowed, continuous, envs, steps, ended)  # fmt: skip
                if status == GOES_ON:
                    continue
                if status == TRUNCATED:
                    twice[:2] = b  # two lanes are the fewest
                    contract.observe_lanes(state, rules, twice[:2], shaped(x_alone, (*shape, 2)))
                    forward(layers, packed, large, nonzero, x_alone, first, second, scores_alone, TWO, ONE)
                    slots += 2
                    for o in range(outputs):
                        if not np.isfinite(scores_alone[2 * o]):
                            return rows, slots, False
                        following.outputs[rows, o] = scores_alone[2 * o]
                    save_following(state, rules, masked, b, t, rows, steps.ends, following)
                    rows += 1
                begin_next(state, rules, b, envs)
        start += live
    return rows, slots, True


class SegmentBuffers:
    """What a segment writes, and the result that it makes."""

    def __init__(self, game: CompiledGame, segment: Segment, outputs: int) -> None:
        """Raise ValueError where the segment's snapshots are of another game."""
        count, horizon = len(segment.envs), segment.horizon
        size, actions = game.row_size, game.actions if game.masked else 0
        before = segment.envs
        self.game, self.state = game, game.restored(before.snapshots)
        self.masked = game.masked or None  # None by its type: what masks actions is not compiled where none is
        self.envs = Envs(before.first, before.episode.copy(), before.returns_so_far.copy(), np.empty(count, np.uint64))
        _name_episodes(self.envs)
        self.steps = TransitionBuffers(
            observations=np.empty((count, horizon, size), np.uint8),
            action_masks=np.empty((count, horizon, actions), np.int8),
            actions=game.recorded_actions(count, horizon),
            rewards=np.empty((count, horizon), np.int32),
            ends=np.zeros((count, horizon), np.uint8),
            outputs=np.empty((count, horizon, outputs), np.float32),
        )
        most = count * horizon  # memory that is not written costs nothing
        self.following = Following(
            steps=np.empty(most, np.int64),
            observations=np.empty((most, size), np.uint8),
            action_masks=np.empty((most, actions), np.int8),
            outputs=np.empty((most, outputs), np.float32),
        )
        metrics = np.zeros((count, horizon, len(game.episode_metrics)), np.int32)
        self.ended = Ended(np.zeros((count, horizon), np.int64), np.zeros((count, horizon), np.int32), metrics)

    def result(self, rows: int, slots: int, finite: bool) -> Result:
        """Return the segment as a result of one candidate, with the episodes that ended in the order of their steps.

        Where an output was not finite it has neither transitions nor environments.
        """
        steps, following, ended = self.steps, self.following, self.ended
        ends = steps.ends.ravel()
        over = (steps.ends == TERMINATED) | (steps.ends == TRUNCATED)
        finite = finite and are_finite(ended.returns[over])
        order = np.argsort(following.steps[:rows])
        masked = self.masked
        transitions = Transitions(
            observations=steps.observations.reshape(len(ends), steps.observations.shape[2]),
            action_masks=steps.action_masks.reshape(len(ends), steps.action_masks.shape[2]) if masked else None,
            actions=steps.actions.reshape(len(ends), *steps.actions.shape[2:]),
            rewards=(steps.rewards.ravel() / 1000.0).astype(np.float32),
            ends=ends,
            outputs=steps.outputs.reshape(len(ends), steps.outputs.shape[2]),
            next_observations=following.observations[order],
            next_action_masks=following.action_masks[order] if masked else None,
            next_outputs=following.outputs[order],
        )
        envs = EnvStates(self.game.snapshots(self.state), *self.envs[:3])
        return Result(
            returns=ended.returns[over][None],
            lengths=ended.lengths[over][None],
            episode_metrics=ended.episode_metrics[over][None],
            finite=np.array([finite]),
            frames=len(transitions),
            lane_slots=slots,
            transitions=transitions if finite else None,
            envs=envs if finite else None,
        )


def play_segment(
    kernel: tuple[Any, ...], game: CompiledGame, segment: Segment, outputs: int, how: ActionRule
) -> Result:
    """Play one network in every environment; `kernel` is what `Rollout` keeps of it."""
    written = SegmentBuffers(game, segment, outputs)
    alone = np.empty(2 * int(np.prod(game.shape)), np.float32), np.empty(2 * outputs, np.float32)
    ending = play_envs(
        *kernel, *alone, written.state, game.rules, written.masked, game.shape, RULES[how.kind], how.epsilon,
        buffers_for(game), written.envs, written.steps, written.following, written.ended,
    )  # fmt: skip
    return written.result(*ending)
