"""Segments of a compiled game: every environment plays on for a fixed number of steps, and every step is recorded.

An environment whose episode ends begins its next one at once. What follows a truncated step, or the last step of a
segment, is recorded too. A game is exact, so a replay of the actions alone gives the same transitions.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numba import njit
from numpy.typing import NDArray

from evo.compiled import cache as kernel_cache
from evo.compiled.views import shaped
from evo.games.contract import CompiledGame, mask, observe_lanes
from evo.games.step import Ended, Recorder, Score, actions_for, are_finite, envs_of, go_on, play
from evo.kernels.lanes import forward, lanes_for
from evo.networks.network import Network
from evo.randomness.philox_compiled import episode_seed
from evo.records import ActionRule, EnvStates, Result, Segment, Transitions, joined
from evo.rollouts.action_rules import RULES, choose, read_action, write_action

kernel_cache.use(__name__)


@njit(inline="always")
def step_env(  # type: ignore[no-untyped-def]
    state, rules, masked, b, t, scores, width, lane, rule, epsilon, buffers, envs, actions, record, ended, followed
):  # fmt: skip
    """Choose, play and record step `t` of environment b; return how many following observations are recorded.

    -1 where nothing is allowed. `scores` flat [O, width] are finite; `buffers` are allowed actions [A] and an action.
    """
    allowed, continuous = buffers
    horizon = record.rewards.shape[0] // envs.seeds.shape[0]
    row = b * horizon + t
    action, found = choose(
        state, rules, masked, b, envs.seeds[b], scores, width, lane, rule, epsilon, allowed, continuous
    )
    if not found:
        return np.int64(-1)
    write_action(actions, row, action, continuous)
    _, status = play(state, rules, b, action, row, scores, width, lane, allowed, record, envs, ended, row)
    return go_on(state, rules, masked, b, row, status, t == horizon - 1, followed, record, envs)


@kernel_cache.with_game
def play_envs(  # type: ignore[no-untyped-def]
    layers, packed, large, nonzero, x, first, second, scores, state, rules, masked, shape, rule, epsilon, index,
    buffers, envs, actions, record, ended
):  # fmt: skip
    """Play a segment in every environment; return (following observations, lane slots, failed).

    The network's arrays come first, with the kernel's buffers for 16 lanes, of which `index` [16] is one. `failed` is
    the environment for which there is no action, since outputs are not finite or nothing is allowed; else -1.
    """
    count, outputs = envs.seeds.shape[0], record.outputs.shape[1]
    horizon, size = record.rewards.shape[0] // count, x.shape[0] // 16
    followed, slots, start = np.int64(0), 0, 0
    while start < count:
        width = lanes_for(count - start)
        live = min(width, count - start)
        for lane in range(width):  # idle ones are computed, never played
            index[lane] = start + (lane if lane < live else 0)
        seen = shaped(x[: size * width], (*shape, width))
        for t in range(horizon):
            observe_lanes(state, rules, index[:width], seen)
            forward(layers, packed, large, nonzero, x, first, second, scores, width, live, envs.memory, index)
            slots += width
            for lane in range(live):
                for o in range(outputs):
                    if not np.isfinite(scores[o * width + lane]):
                        return followed, slots, start + lane
                followed = step_env(
                    state, rules, masked, start + lane, t, scores, width, lane, rule, epsilon, buffers, envs,
                    actions, record, ended, followed,
                )  # fmt: skip
                if followed < 0:
                    return followed, slots, start + lane
        start += live
    return followed, slots, -1


@kernel_cache.with_game
def _replay(state, rules, masked, buffers, envs, actions, record, ended):  # type: ignore[no-untyped-def]
    """Play recorded actions, one environment after the other; return how many following observations there are."""
    count = envs.seeds.shape[0]
    horizon, followed = record.rewards.shape[0] // count, np.int64(0)
    allowed, continuous = buffers
    for row in range(record.rewards.shape[0]):
        b, t = row // horizon, row % horizon
        if masked is not None:
            mask(state, rules, b, allowed)
        action = read_action(actions, row, continuous)
        _, status = play(state, rules, b, action, row, None, 1, 0, allowed, record, envs, ended, row)
        followed = go_on(state, rules, masked, b, row, status, t == horizon - 1, followed, record, envs)
    return followed


class SegmentBuffers:
    """What a segment reads and writes, and the result that it makes."""

    def __init__(
        self, game: CompiledGame, segment: Segment, outputs: int, actions: NDArray[Any] | None = None, memory: int = 0
    ) -> None:
        """`actions` are those to be replayed, `memory` is S of the network.

        ValueError where the segment's snapshots are of another game, or its hidden states of another network.
        """
        rows, metrics = len(segment.envs) * segment.horizon, len(game.episode_metrics)
        self.game, self.state = game, game.restored(segment.envs.snapshots)
        self.masked = game.masked or None  # None by its type: what masks actions is not compiled where none is
        self.buffers = np.ones(game.actions, np.int8), game.action_buffer()
        self.envs = envs_of(segment.envs, memory * game.players)  # each player has a hidden state
        self._first, self._begins, self._mine = segment.envs.episode, None, np.zeros(len(segment.envs), np.int64)
        if game.players > 1:
            self._mine += self.state.state.seats_mine
        if self.envs.memory is not None:
            self._begins = self.envs.memory.reshape(-1, memory).copy()  # by environment, then by player
        actions = actions_for(game, rows) if actions is None else actions.reshape(rows, *actions.shape[2:])
        self.recorder = Recorder.of_game(game, actions, rows, outputs, memory)  # what is not written costs nothing
        self.ended = Ended.empty(rows + (game.players > 1), metrics)  # and one of which nothing is seen

    @property
    def written(self) -> tuple[Any, ...]:
        """Return the last arguments of compiled loops: buffers, environments, actions, record and ended episodes."""
        return self.buffers, self.envs, self.recorder.actions, self.recorder.record, self.ended

    def result(
        self, followed: int, slots: int, finite: bool, score: Score, played: Sequence[int] = (), by_seat: bool = False
    ) -> Result:
        """Return the segment as a result of one candidate, with the episodes that ended in the order of their steps.

        Where an output was not finite it has neither transitions nor environments. `score` returns the outputs of the
        observations that follow. `played` are the steps that were played, and those of them by baselines; without it,
        as many as are recorded. `by_seat`: the steps of each seat of an environment are put together.
        """
        assert self.recorder.record is not None
        ends, transitions = self.recorder.record.ends, None
        ended = Ended._make(rows[: len(ends)] for rows in self.ended)
        if finite:
            order, begins = self._sequences(len(ends), by_seat)
            transitions = self.recorder.transitions(len(ends), followed, score, order, begins)
            finite = bool(np.isfinite(transitions.next_outputs).all())
        over = ended.lengths > 0
        if not are_finite(ended.returns[over]):
            self.game.check_returns(self._seeds(over), ended.returns[over], ended.lengths[over])
            finite = False
        frames, unasked = (played or (len(ends), 0)) if finite else (0, 0)
        first, episode, _, returns_so_far, memory = self.envs
        envs = EnvStates(self.game.snapshots(self.state), first, episode, returns_so_far, memory)
        return Result(
            returns=ended.returns[over][None],
            lengths=ended.lengths[over][None],
            episode_metrics=ended.episode_metrics[over][None],
            finite=np.array([finite]),
            frames=frames,
            lane_slots=slots,
            transitions=transitions if finite else None,
            envs=envs if finite else None,
            unasked=unasked,
        )

    def _seeds(self, over: NDArray[np.bool_]) -> NDArray[np.uint64]:
        """Return the seeds of episodes, which end in the rows that are `over`.  # [M] -> [R]"""
        ends = over.reshape(len(self._first), -1)
        env, episode = np.nonzero(ends)[0], (self._first[:, None] + ends.cumsum(axis=1) - ends)[ends]
        if self.game.players > 1:
            episode = self.recorder.episodes[over] // self.game.players
        return np.array([episode_seed(self.envs.first[b], e) for b, e in zip(env, episode, strict=True)], np.uint64)

    def _sequences(self, rows: int, by_seat: bool) -> tuple[NDArray[np.int64] | None, Any]:
        """Return the order that puts the steps of each seat together, if asked for, and what `before` takes."""
        if not by_seat and self._begins is None:
            return None, None
        episodes, players = self.recorder.episodes, self.game.players
        env = np.arange(rows) // (rows // len(self._first))
        sequence = env * players + (episodes % players if by_seat else self._mine[env])
        order = np.argsort(sequence, kind="stable")
        if self._begins is None:
            return order, None
        places = np.flatnonzero(np.diff(sequence[order], prepend=-1))
        first = order[places]
        states = self._begins[sequence[first]]
        if by_seat:  # a seat's first step may be of an episode that began since then
            states[episodes[first] // players > self._first[env[first]]] = 0
        return order, (places, states)


def play_segment(
    kernel: tuple[Any, ...], game: CompiledGame, segment: Segment, network: Network, how: ActionRule, score: Score
) -> Result:
    """Play one network in every environment; `kernel` is what `Rollout` keeps of it, `score` runs it."""
    written = SegmentBuffers(game, segment, network.outputs, memory=network.memory)
    index = np.zeros(16, np.int64)
    followed, slots, failed = play_envs(
        *kernel, written.state, game.rules, written.masked, game.shape, RULES[how.kind], how.epsilon, index,
        *written.written,
    )  # fmt: skip
    game.check_allowed(written.state, written.buffers[0], failed)
    return written.result(followed, slots + -(-followed // 16) * 16, failed < 0, score)


def replay_segment(game: CompiledGame, envs: EnvStates, actions: NDArray[Any]) -> tuple[Transitions, EnvStates]:
    """Return the transitions of these actions, without the network's outputs, and where the segment ends.

    `actions` are int8 [L, T] or float32 [L, T, D].
    """
    written = SegmentBuffers(game, Segment(envs, actions.shape[1]), 0, actions)
    followed = _replay(written.state, game.rules, written.masked, *written.written)
    result = written.result(followed, 0, True, lambda seen, _: np.empty((len(seen), 0), np.float32))
    assert result.transitions is not None
    assert result.envs is not None
    return result.transitions, result.envs


def replay_episodes(game: CompiledGame, seeds: NDArray[np.uint64], actions: Sequence[NDArray[Any]]) -> Transitions:
    """Return the transitions of whole episodes, of at least one, from the actions of each.

    `seeds` are [E]; `actions` are E arrays, int8 [T] or float32 [T, D]. The network's outputs have no columns.
    """
    return joined(
        [replay_segment(game, game.begin(seeds[k : k + 1]), played[np.newaxis])[0] for k, played in enumerate(actions)]
    )
