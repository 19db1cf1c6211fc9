"""Matches: games of several players, whose seats are played by a candidate, other networks, and baselines.

Whole episodes and segments are those of the candidate's seat: a recorded step is a move of the candidate, and its
reward is what its seat gets until it moves again. Environments that wait for the same network are computed together.
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
from evo.games.faults import broken_match
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

    opponent: NDArray[np.int64]  # [B] n >= 1: network n; below 0: baseline -1 - n of the game, where -1 moves at random
    waits: NDArray[np.int64]  # [B] the network that moves next, 0 of the candidate; IDLE or BROKEN
    row: NDArray[np.int64]  # [B] of the candidate's last step, which goes on; -1: of none
    steps: NDArray[np.int64]  # [B] of the candidate in this segment
    luck: EpisodeClock  # of the draws of baselines
    lanes: NDArray[np.int64]  # [B + 16] environments that are computed together
    places: NDArray[np.int64]  # [B + 16] the rows of their players' hidden states

    @classmethod
    def of(cls, count: int) -> Matches:
        """Return matches that wait for nobody."""
        opponent, waits, row, steps = np.full((4, count), IDLE, np.int64)
        lanes, places = np.zeros((2, count + 16), np.int64)
        return cls(opponent, waits, row, steps, clock_of(count), lanes, places)


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
def _choose_opponent(b, opponents, networks, matches, envs):  # type: ignore[no-untyped-def]
    """Choose who plays the other seats of an episode: networks take turns, of baselines the seed draws one.

    Return the number of the match, by which networks take turns.
    """
    number = envs.episode[b] if matches.steps[b] < 0 else b + envs.episode[b]
    if networks > 1:
        matches.opponent[b] = 1 + number % (networks - 1)
    else:
        matches.opponent[b] = opponents[draw(envs.seeds[b], np.int64(0), np.int64(opponents.shape[0]), OPPONENT)]
    return number


@njit(inline="always")
def _seat(state, b, players, opponents, networks, matches, envs):  # type: ignore[no-untyped-def]
    """Choose who plays an episode that has begun; against networks, the candidate plays each seat equally often."""
    number = _choose_opponent(b, opponents, networks, matches, envs)
    if networks > 1:
        state.state.seats_mine[b] = number // (networks - 1) % players


@njit(inline="always")
def _begin_match(state, rules, b, players, opponents, networks, seeds, matches, envs, progress):  # type: ignore[no-untyped-def]
    """Begin the next episode of environment b: of `seeds` [E] the first that none has begun, or of its own sequence."""
    matches.row[b] = -1
    if matches.steps[b] >= 0:
        begin_next(state, rules, b, envs)
        _seat(state, b, players, opponents, networks, matches, envs)
        return
    envs.episode[b] = -1
    if progress[BEGUN] < seeds.shape[0]:
        envs.episode[b] = progress[BEGUN]
        begin(state, rules, b, seeds[progress[BEGUN]], envs)
        _seat(state, b, players, opponents, networks, matches, envs)
        progress[BEGUN] += 1


@njit(inline="always")
def _play_move(  # type: ignore[no-untyped-def]
    state, rules, masked, b, action, players, opponents, networks, seeds, matches, envs, ended, actions, episodes,
    record, progress
):  # fmt: skip
    """Play the move of whoever is on turn in environment b, and begin the next episode where this one ends."""
    row = matches.row[b]
    place = envs.episode[b]
    if matches.steps[b] >= 0:
        place = row if row >= 0 else ended.returns.shape[0] - 1  # the last one is for episodes of which nothing is seen
    if record is None and actions.shape[0]:
        actions[progress[ROWS]] = action
        episodes[progress[ROWS]] = envs.episode[b]
        progress[ROWS] += 1
    reward, status = move(state, rules, b, action, envs, ended, place)
    progress[FRAMES] += 1
    if record is not None and row >= 0:
        record.rewards[row] += reward
        if status != GOES_ON:
            record.ends[row] = status
            if status == TRUNCATED:
                state.state.seats_turn[b] = state.state.seats_mine[b]
                record_following(state, rules, masked, b, row, progress[FOLLOWED], record)
                progress[FOLLOWED] += 1
    if status != GOES_ON:
        _begin_match(state, rules, b, players, opponents, networks, seeds, matches, envs, progress)


@njit(inline="always")
def _settle(  # type: ignore[no-untyped-def]
    state, rules, masked, b, players, opponents, networks, horizon, seeds, allowed, matches, envs, ended, actions,
    episodes, record, progress
):  # fmt: skip
    """Have baselines move in environment b until a network is on turn, which it then waits for."""
    for _ in range(SETTLED):
        matches.waits[b] = IDLE
        if envs.episode[b] < 0 or matches.steps[b] > horizon:
            return
        if state.state.seats_turn[b] == NOBODY:
            matches.waits[b] = BROKEN
            return
        mine = state.state.seats_turn[b] == state.state.seats_mine[b]
        if matches.steps[b] == horizon and (mine or matches.row[b] < 0):  # the segment ends here
            if record is not None and matches.row[b] >= 0:
                record.ends[matches.row[b]] = SEGMENT_END
                record_following(state, rules, masked, b, matches.row[b], progress[FOLLOWED], record)
                progress[FOLLOWED] += 1
            matches.steps[b] = horizon + 1
            return
        if mine or matches.opponent[b] > 0:
            matches.waits[b] = 0 if mine else matches.opponent[b]
            return
        action = baseline_action(state, rules, masked, b, matches.opponent[b], envs.seeds[b], allowed, matches.luck)
        if action < 0:
            matches.waits[b] = BROKEN
            return
        _play_move(
            state, rules, masked, b, action, players, opponents, networks, seeds, matches, envs, ended, actions,
            episodes, record, progress,
        )  # fmt: skip


@kernel_cache.with_game
def play_matches(  # type: ignore[no-untyped-def]
    layers, packed, large, nonzero, x, first, second, scores, state, rules, masked, shape, players, opponents,
    horizon, seeds, rule, epsilon, their_rule, their_epsilon, allowed, memory, matches, envs, ended, actions, episodes,
    record, progress
):  # fmt: skip
    """Play on until everything is played or there is no room for actions; return the environment that fails, or IDLE.

    `packed` [N + 1, ...] are the networks, the candidate first; the other arrays of the network are as in
    `play_episodes`. `memory` [B players, S] are the hidden states of `envs`, by player. Without networks besides the
    candidate, `opponents` are the baselines of which each episode draws one. Episodes are those of `seeds` [E], or,
    where `matches.steps` are not negative, `horizon` steps of the candidate in every environment.
    """
    count, networks, size = envs.seeds.shape[0], packed.shape[0], x.shape[0] // 16
    index, places = matches.lanes, matches.places
    if progress[LIVE] == 0:
        progress[LIVE] = count
        for b in range(count):
            if seeds.shape[0]:
                _begin_match(state, rules, b, players, opponents, networks, seeds, matches, envs, progress)
            else:
                _choose_opponent(b, opponents, networks, matches, envs)
    while True:
        if seeds.shape[0] and 0 < actions.shape[0] < progress[ROWS] + (SETTLED + 1) * count:
            return GROW
        busy = False
        for b in range(count):
            _settle(
                state, rules, masked, b, players, opponents, networks, horizon, seeds, allowed, matches, envs, ended,
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
                for idle in range(there, start + width):  # computed, never played
                    index[idle] = index[start]
                seen = shaped(x[: size * width], (*shape, width))
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
                        if record is not None:
                            row = progress[ROWS] if matches.steps[b] < 0 else b * horizon + matches.steps[b]
                            for o in range(record.outputs.shape[1]):
                                if not np.isfinite(scores[o * width + lane]):
                                    return b
                            record_seen(state, rules, b, row, scores, width, lane, allowed, record)
                            remember(memory, places[start + lane], record.memories, row)
                            actions[row] = action
                            record.rewards[row], record.ends[row] = 0, GOES_ON
                            matches.row[b] = row
                            if matches.steps[b] < 0:
                                episodes[row] = envs.episode[b]
                                progress[ROWS] += 1
                            else:
                                matches.steps[b] += 1
                    else:
                        action = choose_action(scores, width, lane, allowed, their_rule, their_epsilon, seed, step)
                        if action < 0:  # who has no finite scores takes what is allowed
                            action = np.argmax(allowed)
                            if allowed[action] == 0:
                                return b
                    _play_move(
                        state, rules, masked, b, action, players, opponents, networks, seeds, matches, envs, ended,
                        actions, episodes, record, progress,
                    )  # fmt: skip
                start += live


class MatchPlayer:
    """Plays matches of candidates of one network against others; buffers are kept."""

    def __init__(self, network: Network, game: CompiledGame, kernel: tuple[Any, ...], score: Score) -> None:
        """`kernel` has what compiled functions take of the candidate, its packed weights second; `score` runs it."""
        self._network, self._game, self._kernel, self._score = network, game, kernel, score
        self._packed = kernel[1][np.newaxis]
        self._baselines = np.array(game.opponents, np.int64)
        self._allowed = np.ones(game.actions, np.int8)

    def take_opponents(self, packed: NDArray[np.float32]) -> None:
        """Have these networks play the other seats; none: baselines, or the candidate.  # [N, packed size]"""
        self._packed = np.concatenate([self._kernel[1][np.newaxis], packed])

    def _play(
        self, how: ActionRule, state: Any, matches: Matches, horizon: int, seeds: NDArray[np.uint64], written: Any
    ) -> int:
        """Play on; return the environment that fails, or IDLE or GROW."""
        game, kernel = self._game, self._kernel
        packed = self._packed
        packed[0] = kernel[1]
        if len(packed) == 1 and not game.opponents:  # no baseline may play, and the task names no network
            packed = np.concatenate([packed, packed])
        draws, memory = how.kind == "softmax", written[0].memory
        memory = None if memory is None else memory.reshape(len(memory) * game.players, self._network.memory)
        return play_matches(  # type: ignore[no-any-return]
            kernel[0], packed, *kernel[2:], state, game.rules, game.masked or None, game.shape, game.players,
            self._baselines, horizon, seeds, RULES[how.kind], how.epsilon, SOFTMAX if draws else EPSILON_GREEDY,
            0.0 if draws else game.epsilon, self._allowed, memory, matches, *written,
        )  # fmt: skip

    def _check(self, state: Any, matches: Matches, b: int) -> None:
        """Raise ConfigurationError where environment b, unless it is IDLE, failed because the game is broken."""
        self._game.check_allowed(state, self._allowed, b)
        if b >= 0 and matches.waits[b] == BROKEN:
            module, clock = type(state.state).__module__, state.clock
            baseline = None if state.state.seats_turn[b] == NOBODY else -1 - int(matches.opponent[b])
            raise broken_match(module, int(clock.seed[b]), int(clock.steps[b]), baseline, self._game.actions)

    def play_episodes(self, task: Task, ended: Ended) -> PlayedEpisodes:
        """Play the episodes of a task; fill in `ended` [E]."""
        assert isinstance(task.play, Episodes)
        game, memory, lanes = self._game, self._network.memory, min(LANES, len(task.play.seeds))
        recorder = Recorder.of_task(game, task, self._network.outputs, memory)
        state, matches, progress = game.make_state(lanes), Matches.of(lanes), np.zeros(6, np.int64)
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
        matches, progress = Matches.of(len(segment.envs)), np.zeros(6, np.int64)
        matches.steps[:] = 0
        none = np.empty(0, np.uint64)
        _, envs, actions, record, ended = buffers.written
        written = envs, ended, actions, none.view(np.int64), record, progress
        failed = self._play(how, buffers.state, matches, segment.horizon, none, written)
        self._check(buffers.state, matches, failed)
        return buffers.result(
            int(progress[FOLLOWED]), int(progress[SLOTS]), failed < 0, self._score, int(progress[FRAMES])
        )
