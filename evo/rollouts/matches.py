"""Matches: games of several players, whose seats are played by a candidate, other networks, and baselines.

Whole episodes and segments are those of the candidate's seat, or of all seats where it meets itself: a recorded step
is a move of the candidate, and its reward is what its seat gets until it moves again. Environments that wait for the
same network are computed together.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from numba import njit
from numpy.typing import NDArray

from evo.compiled import cache as kernel_cache
from evo.compiled.views import shaped
from evo.games import contract
from evo.games.contract import CompiledGame
from evo.games.hidden_states import remember
from evo.games.primitives import EpisodeClock, clock_of
from evo.games.seats import NOBODY
from evo.games.step import (
    BEGUN,
    FOLLOWED,
    FRAMES,
    LIVE,
    ROWS,
    SLOTS,
    UNASKED,
    Ended,
    Envs,
    PlayedEpisodes,
    Recorder,
    Score,
    begin,
    begin_next,
    move,
    record_following,
    record_seen,
)  # fmt: skip
from evo.kernels.lanes import forward, lanes_for
from evo.networks.network import Network
from evo.randomness.philox_compiled import draw
from evo.randomness.streams import Purpose
from evo.records import GOES_ON, SEGMENT_END, TRUNCATED, ActionRule, Episodes, Result, Segment, Task
from evo.rollouts.action_rules import EPSILON_GREEDY, RULES, SOFTMAX, baseline_action, choose_action
from evo.rollouts.segments import SegmentBuffers

kernel_cache.use(__name__)

LANES = 64  # matches that are played side by side, so that 16 of them wait for each of four networks
IDLE, GROW, BROKEN = -1, -2, -3  # nobody is waited for; there is no room for actions; the game broke its contract
SETTLED = 8  # moves of baselines that follow each other in one environment, at most, before networks move
OPPONENT = np.int64(Purpose.OPPONENT)


class Matches(NamedTuple):
    """Who plays the other seats of B environments, and what is waited for."""

    opponent: NDArray[np.int64]  # [B] as in a lineup
    waits: NDArray[np.int64]  # [B] the network that moves next, 0 of the candidate; IDLE or BROKEN
    rows: NDArray[np.int64]  # [B, players] of the candidate's last step in a seat, which goes on; -1: of none
    steps: NDArray[np.int64]  # [B] of the candidate in this segment; -1: whole episodes
    luck: EpisodeClock  # of the draws of baselines
    lanes: NDArray[np.int64]  # [B + 16] environments that are computed together
    places: NDArray[np.int64]  # [B + 16] the rows of their players' hidden states

    @classmethod
    def of(cls, count: int, players: int) -> Matches:
        """Return matches that wait for nobody."""
        opponent, waits, steps, *rows = np.full((3 + players, count), IDLE, np.int64)
        lanes, places = np.zeros((2, count + 16), np.int64)
        return cls(opponent, waits, np.stack(rows, axis=1), steps, clock_of(count), lanes, places)


@njit(inline="always")
def _waiting(state, players, network, matches):  # type: ignore[no-untyped-def]
    """Write which environments wait for a network, and return how many."""
    there = 0
    for b in range(matches.waits.shape[0]):
        if matches.waits[b] == network:
            matches.lanes[there] = b
            matches.places[there] = b * players + state.state.seats_turn[b]
            there += 1
    return there


@njit(inline="always")
def _choose_opponent(b, lineup, in_turn, matches, envs):  # type: ignore[no-untyped-def]
    """Choose who of the lineup plays an episode, each in turn or as its seed draws; return the number of the match."""
    number = envs.episode[b] if matches.steps[b] < 0 else b + envs.episode[b]
    drawn = np.int64(draw(envs.seeds[b], np.int64(0), np.int64(lineup.shape[0]), OPPONENT))
    matches.opponent[b] = lineup[number % lineup.shape[0] if in_turn else drawn]
    return number


@njit(**contract.LEAN)
def _begin_match(state, rules, b, players, lineup, in_turn, seeds, matches, envs, progress):  # type: ignore[no-untyped-def]
    """Begin the next episode of environment b: of `seeds` [E] the first that none has begun, or of its own sequence.

    Where opponents take turns, the candidate has each seat equally often.
    """
    if matches.steps[b] >= 0:
        begin_next(state, rules, b, envs)
    elif progress[BEGUN] < seeds.shape[0]:
        envs.episode[b] = progress[BEGUN]
        begin(state, rules, b, seeds[progress[BEGUN]], envs)
        progress[BEGUN] += 1
    else:
        envs.episode[b] = -1
        return
    number = _choose_opponent(b, lineup, in_turn, matches, envs)
    if in_turn:
        state.state.seats_mine[b] = number // lineup.shape[0] % players


@njit(inline="always")
def _latest_row(b, matches):  # type: ignore[no-untyped-def]
    """Return the last row of environment b, of any seat, that goes on; -1 where none does."""
    row = -1
    for seat in range(matches.rows.shape[1]):
        row = max(row, matches.rows[b, seat])
    return row


@njit(inline="always")
def _end_row(state, rules, masked, b, seat, status, matches, record, progress):  # type: ignore[no-untyped-def]
    """End the last step of a seat, if one goes on: its reward is what the seat got since then."""
    row = matches.rows[b, seat]
    matches.rows[b, seat] = -1
    if record is None or row < 0:
        return
    record.rewards[row] += np.int64(np.rint(1000.0 * state.state.seats_returns[b, seat]))
    record.ends[row] = status
    if status >= TRUNCATED:  # or SEGMENT_END
        state.state.seats_turn[b] = seat
        record_following(state, rules, masked, b, row, progress[FOLLOWED], record)
        progress[FOLLOWED] += 1


@njit(**contract.LEAN)
def _play_move(  # type: ignore[no-untyped-def]
    state, rules, masked, b, action, players, lineup, in_turn, seeds, matches, envs, ended, actions, episodes, record,
    progress
):  # fmt: skip
    """Play the move of whoever is on turn in environment b, and begin the next episode where this one ends."""
    place = envs.episode[b] if matches.steps[b] < 0 else _latest_row(b, matches)  # -1: the last one, which is not read
    if record is None and actions.shape[0]:
        actions[progress[ROWS]] = action
        episodes[progress[ROWS]] = envs.episode[b]
        progress[ROWS] += 1
    _, status = move(state, rules, b, action, envs, ended, place)
    progress[FRAMES] += 1
    if status != GOES_ON:
        for seat in range(players):
            _end_row(state, rules, masked, b, seat, status, matches, record, progress)
        _begin_match(state, rules, b, players, lineup, in_turn, seeds, matches, envs, progress)


@njit(inline="always")
def _settle(  # type: ignore[no-untyped-def]
    state, rules, masked, b, players, lineup, in_turn, horizon, seeds, allowed, matches, envs, ended, actions, episodes,
    record, progress
):  # fmt: skip
    """Have baselines move in environment b until a network is on turn, which it then waits for."""
    for _ in range(SETTLED):
        matches.waits[b] = IDLE
        if envs.episode[b] < 0 or matches.steps[b] > horizon:
            return
        turn, opponent = state.state.seats_turn[b], matches.opponent[b]
        if turn == NOBODY:
            matches.waits[b] = BROKEN
            return
        if matches.steps[b] == horizon:  # the segment ends where every seat that is recorded has its next turn
            _end_row(state, rules, masked, b, turn, SEGMENT_END, matches, record, progress)
            if _latest_row(b, matches) < 0:
                matches.steps[b] = horizon + 1
                return
        if turn == state.state.seats_mine[b] or opponent >= 0:
            matches.waits[b] = 0 if turn == state.state.seats_mine[b] else opponent
            return
        action = baseline_action(state, rules, masked, b, opponent, envs.seeds[b], allowed, matches.luck)
        if action < 0:
            matches.waits[b] = BROKEN
            return
        progress[UNASKED] += 1
        _play_move(
            state, rules, masked, b, action, players, lineup, in_turn, seeds, matches, envs, ended, actions, episodes,
            record, progress,
        )  # fmt: skip


@kernel_cache.with_game
def play_matches(  # type: ignore[no-untyped-def]
    layers, packed, large, nonzero, x, first, second, scores, state, rules, masked, shape, players, lineup, in_turn,
    horizon, seeds, rule, epsilon, their_rule, their_epsilon, allowed, memory, matches, envs, ended, actions, episodes,
    record, progress
):  # fmt: skip
    """Play on until everything is played or there is no room for actions; return the environment that fails, or IDLE.

    `packed` [N + 1, ...] are the networks, the candidate first; the other arrays of the network are as in
    `play_episodes`. `memory` [B players, S] are the hidden states of `envs`, by player. The `lineup` [K] has opponents:
    n >= 1 is network n, 0 the candidate, whose steps in every seat are recorded, and -1 - n baseline n of the game,
    where -1 moves at random. They play `in_turn`, or the seed of an episode draws one. Episodes are those of `seeds`
    [E], or, where `matches.steps` are not negative, `horizon` steps of the candidate in every environment.
    """
    count, networks, index, places = envs.seeds.shape[0], packed.shape[0], matches.lanes, matches.places
    if progress[LIVE] == 0:
        progress[LIVE] = count
        for b in range(count):
            if seeds.shape[0]:
                _begin_match(state, rules, b, players, lineup, in_turn, seeds, matches, envs, progress)
            else:
                _choose_opponent(b, lineup, in_turn, matches, envs)
    while True:
        if seeds.shape[0] and 0 < actions.shape[0] < progress[ROWS] + (SETTLED + 1) * count:
            return GROW
        busy = False
        for b in range(count):
            _settle(
                state, rules, masked, b, players, lineup, in_turn, horizon, seeds, allowed, matches, envs, ended,
                actions, episodes, record, progress,
            )  # fmt: skip
            if matches.waits[b] == BROKEN:
                return b
            busy = busy or (envs.episode[b] >= 0 and matches.steps[b] <= horizon)
        if not busy:
            return IDLE
        most = 0
        for network in range(networks):
            most = max(most, _waiting(state, players, network, matches))
        for network in range(networks):
            there = _waiting(state, players, network, matches)
            if there < min(most, 16):  # until more environments wait for it, which then are computed together
                continue
            start = 0
            while start < there:
                width = lanes_for(there - start)
                live = min(width, there - start)
                index[there : start + width] = index[start]  # computed, never played
                seen = shaped(x[: x.shape[0] // 16 * width], (*shape, width))
                contract.observe_lanes(state, rules, index[start : start + width], seen)
                forward(
                    layers, packed[network], large, nonzero, x, first, second, scores, width, live, memory,
                    places[start:],
                )  # fmt: skip
                progress[SLOTS] += width
                for lane in range(live):
                    b = index[start + lane]
                    if masked is not None:
                        contract.mask(state, rules, b, allowed)
                    seed, step = envs.seeds[b], state.clock.steps[b]
                    if network == 0:
                        action = choose_action(scores, width, lane, allowed, rule, epsilon, seed, step)
                        if action < 0:
                            return b
                        seat, here = state.state.seats_turn[b], matches.steps[b]
                        learned = 0 <= here < horizon or (here < 0 and seat == state.state.seats_mine[b])
                        if record is not None and learned:
                            _end_row(state, rules, masked, b, seat, GOES_ON, matches, record, progress)
                            row = progress[ROWS] if here < 0 else b * horizon + here
                            for o in range(record.outputs.shape[1]):
                                if not np.isfinite(scores[o * width + lane]):
                                    return b
                            record_seen(state, rules, b, row, scores, width, lane, allowed, record)
                            remember(memory, places[start + lane], record.memories, row)
                            actions[row] = action
                            record.rewards[row] = -np.int64(np.rint(1000.0 * state.state.seats_returns[b, seat]))
                            matches.rows[b, seat] = row
                            episodes[row] = envs.episode[b] if here < 0 else envs.episode[b] * players + seat
                            progress[ROWS] += here < 0
                            matches.steps[b] += here >= 0
                    else:
                        action = choose_action(scores, width, lane, allowed, their_rule, their_epsilon, seed, step)
                        if action < 0:  # who has no finite scores takes what is allowed
                            action = np.argmax(allowed)
                            if allowed[action] == 0:
                                return b
                    _play_move(
                        state, rules, masked, b, action, players, lineup, in_turn, seeds, matches, envs, ended,
                        actions, episodes, record, progress,
                    )  # fmt: skip
                start += live


class MatchPlayer:
    """Plays matches of candidates of one network against others; buffers are kept."""

    def __init__(self, network: Network, game: CompiledGame, kernel: tuple[Any, ...], score: Score) -> None:
        """`kernel` has what compiled functions take of the candidate, its packed weights second; `score` runs it."""
        self._network, self._game, self._kernel, self._score = network, game, kernel, score
        self._allowed = np.ones(game.actions, np.int8)
        self.take_opponents(np.empty((0, len(kernel[1])), np.float32), [])

    def take_opponents(self, packed: NDArray[np.float32], lineup: Sequence[int]) -> None:
        """Have a lineup play in turn; an empty one: the game's own opponents, or the candidate.  # [N, packed size]"""
        drawn = () if lineup else self._game.opponents
        self._in_turn, self._lineup = not drawn, np.array(lineup or drawn or [0], np.int64)
        self._packed = np.concatenate([self._kernel[1][np.newaxis], packed])

    def _play(
        self, how: ActionRule, state: Any, matches: Matches, horizon: int, seeds: NDArray[np.uint64], written: Any
    ) -> int:
        """Play on; return the environment that fails, or IDLE or GROW."""
        game, kernel, packed = self._game, self._kernel, self._packed
        packed[0] = kernel[1]
        draws, memory = how.kind == "softmax", written[0].memory
        memory = None if memory is None else memory.reshape(len(memory) * game.players, self._network.memory)
        return play_matches(  # type: ignore[no-any-return]
            kernel[0], packed, *kernel[2:], state, game.rules, game.masked or None, game.shape, game.players,
            self._lineup, self._in_turn, horizon, seeds, RULES[how.kind], how.epsilon,
            SOFTMAX if draws else EPSILON_GREEDY, 0.0 if draws else game.epsilon, self._allowed, memory, matches,
            *written,
        )  # fmt: skip

    def _check(self, state: Any, matches: Matches, b: int) -> None:
        """Raise ConfigurationError where environment b, unless it is IDLE, failed because the game is broken."""
        self._game.check_allowed(state, self._allowed, b)
        if b >= 0 and matches.waits[b] == BROKEN:
            baseline = None if state.state.seats_turn[b] == NOBODY else -1 - int(matches.opponent[b])
            raise self._game.broken_match(state, b, baseline)

    def play_episodes(self, task: Task, ended: Ended) -> PlayedEpisodes:
        """Play the episodes of a task; fill in `ended` [E]."""
        assert isinstance(task.play, Episodes)
        game, memory, lanes = self._game, self._network.memory, min(LANES, len(task.play.seeds))
        recorder = Recorder.of_task(game, task, self._network.outputs, memory)
        state, matches, progress = game.make_state(lanes), Matches.of(lanes, game.players), np.zeros(7, np.int64)
        envs = Envs.empty(lanes, memory * game.players)
        while True:
            written = envs, ended, recorder.actions, recorder.episodes, recorder.record, progress
            failed = self._play(task.action_rule, state, matches, 0, task.play.seeds, written)
            if failed != GROW:
                self._check(state, matches, failed)
                return recorder.played(failed < 0, progress, ended, self._score)
            recorder.grow()

    def play_segment(self, segment: Segment, how: ActionRule) -> Result:
        """Play a segment of the candidate's steps in every environment."""
        buffers = SegmentBuffers(self._game, segment, self._network.outputs, memory=self._network.memory)
        matches, progress = Matches.of(len(segment.envs), self._game.players), np.zeros(7, np.int64)
        matches.steps[:] = 0
        _, envs, actions, record, ended = buffers.written
        written = envs, ended, actions, buffers.recorder.episodes, record, progress
        failed = self._play(how, buffers.state, matches, segment.horizon, np.empty(0, np.uint64), written)
        self._check(buffers.state, matches, failed)
        followed, slots, *played = progress[[FOLLOWED, SLOTS, FRAMES, UNASKED]].tolist()
        return buffers.result(followed, slots, failed < 0, self._score, played, by_seat=0 in self._lineup)
