"""Play a task with one network kernel: a compiled game in compiled code, anything else through Gymnasium's interface.

Both ways give the same bits for the same game; the plain one is the reference.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

import numpy as np
from numba import njit
from numpy.typing import NDArray

from evo import clock
from evo.compiled import cache as kernel_cache
from evo.compiled.functions import check_arithmetic
from evo.compiled.views import aligned, shaped
from evo.environment import Environment
from evo.environments.instances import OPEN
from evo.games import contract
from evo.games.contract import CompiledGame
from evo.games.seats import ITSELF
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
    begin,
    play,
    record_following,
)
from evo.kernels import lanes, layout
from evo.kernels.lanes import forward, lanes_for, score_all
from evo.networks.candidates import Rebuilder
from evo.networks.network import Network
from evo.records import (
    GOES_ON,
    TRUNCATED,
    ActionRule,
    Episodes,
    Player,
    Result,
    Segment,
    Task,
    Transitions,
    WeightSource,
    empty_result,
)
from evo.rollouts.action_rules import RULES, choose, fits, write_action
from evo.rollouts.gymnasium_episodes import play_gymnasium
from evo.rollouts.gymnasium_segments import not_finite, play_gymnasium_segment
from evo.rollouts.matches import MatchPlayer
from evo.rollouts.segments import SegmentBuffers, play_envs, play_segment

kernel_cache.use(__name__)

Floats = NDArray[np.float32]
NOTHING = np.empty(0, np.int8)  # the actions of an episode that was not played to its end


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


def kernels_are_kept(network: Network, environment: Environment, transitions_from: str) -> bool:
    """Return whether Numba has compiled before what plays such a network in such an environment."""
    arguments, game = LanesKernel(network, None).arguments, environment.game
    if game is None:
        return kernel_cache.is_kept(score_all, *arguments)
    state = (game.make_state(16), game.rules)
    kernels = (play_episodes, play_envs) if transitions_from == "segments" else (play_episodes,)
    return all(kernel_cache.is_kept(one, *arguments, *state) for one in kernels)


class Kernel(Protocol):
    """Computes one network after the other, and plays compiled games with it."""

    fingerprint: str = ""  # of the arithmetic; empty: exact
    device: str = ""  # what it computes on, where it was pinned to something

    def take(self, weights: NDArray[np.float32]) -> None:
        """Compute a network with these weights from now on.  # [P], finite"""

    def take_opponents(self, weights: NDArray[np.float32], lineup: Sequence[int]) -> None:
        """Have a lineup play the other seats from now on, with these networks; empty: baselines.  # [N, P]"""
        return

    def score(self, observations: Floats, memory: Floats | None = None) -> Floats:
        """Return outputs, and overwrite the hidden states `memory` [E, S]; None: episodes begin.  # [E, ...], [E, O]"""

    def play_episodes(self, game: CompiledGame, task: Task, ended: Ended) -> PlayedEpisodes:
        """Play the episodes of a task; fill in `ended` [E]."""

    def play_segment(self, game: CompiledGame, segment: Segment, how: ActionRule) -> Result:
        """Play a segment."""


class LanesKernel(Kernel):
    """Computes on the CPU, 16 lanes at a time, with the same bits on every machine; buffers are kept."""

    def __init__(self, network: Network, game: CompiledGame | None) -> None:
        self._network, self.arguments = network, lanes.arguments_for(network)
        self._layers, self._packed = self.arguments[:2]
        if game is not None:
            self._state, self._progress = game.make_state(16), np.zeros(7, np.int64)
            self._envs = Envs.empty(16, network.memory)
            allowed = np.ones(game.actions, np.int8)
            self._buffers = np.zeros(16, np.int64), allowed, game.action_buffer(), self._progress
            self._matches = None if game.players == 1 else MatchPlayer(network, game, self.arguments, self.score)

    def take(self, weights: NDArray[np.float32]) -> None:
        """Pack the weights of a network.  # [P], finite"""
        layout.pack(self._layers, weights, self._packed)

    def take_opponents(self, weights: NDArray[np.float32], lineup: Sequence[int]) -> None:
        """Have a lineup play the other seats, as in `play_matches`.  # [N, P], finite or not"""
        assert self._matches is not None
        packed = np.zeros((len(weights), len(self._packed)), np.float32)
        for row, network in zip(packed, weights, strict=True):
            layout.pack(self._layers, network, row)
        self._matches.take_opponents(packed, lineup)

    def score(self, observations: Floats, memory: Floats | None = None) -> Floats:
        """Return the network's outputs; `memory` is overwritten by the states after the step.  # [E, ...] -> [E, O]"""
        return lanes.score_with(self.arguments, self._network, observations, memory)

    def play_episodes(self, game: CompiledGame, task: Task, ended: Ended) -> PlayedEpisodes:
        """Play the episodes of a task; fill in `ended` [E]."""
        if self._matches is not None:
            return self._matches.play_episodes(task, ended)
        assert isinstance(task.play, Episodes)
        recorder = Recorder.of_task(game, task, self._network.outputs, self._network.memory)
        progress, how = self._progress, task.action_rule
        masked = game.masked or None  # None by its type: what masks actions is not compiled where none is
        progress[:] = 0
        while True:
            failed = play_episodes(
                *self.arguments, self._state, game.rules, masked, game.shape, task.play.seeds, RULES[how.kind],
                how.epsilon, self._buffers, self._envs, ended, recorder.actions, recorder.episodes, recorder.record,
            )  # fmt: skip
            if failed >= 0:
                game.check_allowed(self._state, self._buffers[1], failed)
            if failed >= 0 or not progress[LIVE]:
                return recorder.played(failed < 0, progress, ended, self.score)
            recorder.grow()

    def play_segment(self, game: CompiledGame, segment: Segment, how: ActionRule) -> Result:
        """Play a segment."""
        if self._matches is not None:
            return self._matches.play_segment(segment, how)
        return play_segment(self.arguments, game, segment, self._network, how, self.score)


class Rollout:
    """Plays tasks with one network in one environment; buffers are kept, results are not."""

    def __init__(self, network: Network, environment: Environment, kernel: Kernel | None = None) -> None:
        self.network, self.environment, self._game = network, environment, environment.game
        self.size, self._metrics = network.size, len(environment.episode_metrics)
        self._returns_type = environment.returns_type
        self._rules = {kind for kind in RULES if fits(kind, environment, network)}
        self.kernel = kernel or LanesKernel(network, self._game)
        self._rebuilder, self._weights = Rebuilder(network), aligned(self.size)
        self.seeds = ""  # what `seed_check` has found of an environment that is no compiled game

    def play(self, task: Task, parents: NDArray[np.float32]) -> Result:
        """Return the results of the candidates of `task`; `parents` is the published matrix [S, P].

        ValueError where transitions or a segment of more than one candidate are asked for, or the action rule does not
        fit.
        """
        check_arithmetic()
        if not self.takes(task.action_rule):
            if (kind := task.action_rule.kind) in ("gaussian", "squashed"):
                raise ValueError(f"{kind} actions are continuous, with a mean and a log standard deviation each")
            raise ValueError(f"{kind} is no rule for these actions")
        if len(task.weights) != 1 and (task.record_transitions or isinstance(task.play, Segment)):
            raise ValueError("transitions are recorded of one candidate")
        if self._game is not None and self._game.players > 1:
            self._take_lineup(task, parents)
        if isinstance(task.play, Segment):
            finite = self.take(task, 0, parents)
            if self._game is None:
                if not finite:
                    return not_finite(self.environment, 0)
                memory = self.network.memory
                return play_gymnasium_segment(self.kernel.score, self.environment, task, self.seeds, memory)
            if finite:
                return self.kernel.play_segment(self._game, task.play, task.action_rule)
            return SegmentBuffers(self._game, task.play, self.network.outputs).result(0, 0, False, self.kernel.score)
        episodes = len(task.play.seeds)
        arrays = empty_result(len(task.weights), episodes, self._metrics, self._returns_type)
        frames = slots = unasked = 0
        traces: list[NDArray[np.generic]] = []
        transitions: Transitions | None = None
        for k in range(len(task.weights)):
            clock.progress.made()
            played = PlayedEpisodes(0, 0, False)
            if self.take(task, k, parents):
                ended = Ended(*(arrays[name][k] for name in Ended._fields))
                if self._game is not None:
                    played = self.kernel.play_episodes(self._game, task, ended)
                    if not played.finite:
                        self._game.check_returns(task.play.seeds, ended.returns, ended.lengths)
                else:
                    renewed, memory = self.seeds == "renewed", self.network.memory
                    played = play_gymnasium(self.kernel.score, self.environment, task, ended, renewed, memory)
            frames, slots, transitions = frames + played.frames, slots + played.slots, played.transitions
            unasked += played.unasked
            traces += played.actions if played.finite else [NOTHING] * episodes
            arrays["finite"][k] = played.finite
            if not played.finite:
                for name, values in empty_result(1, episodes, self._metrics, self.environment.returns_type).items():
                    arrays[name][k] = values[0]
        actions = tuple(traces) if task.record_actions else None
        recorded: dict[str, Any] = {"actions": actions, "transitions": transitions, "unasked": unasked}
        return Result(**arrays, frames=frames, lane_slots=slots, **recorded)

    def _take_lineup(self, task: Task, parents: NDArray[np.float32]) -> None:
        source = task.opponents or WeightSource.of_rows(0)
        networks = np.flatnonzero(source.rows > ITSELF)
        weights = np.empty((len(networks), self.size), np.float32)
        for place, n in enumerate(networks.tolist()):
            self._rebuilder.rebuild(parents, source, n, weights[place])
        lineup = source.rows - ITSELF
        lineup[networks] = np.arange(len(networks)) + 1
        self.kernel.take_opponents(weights, lineup.tolist())

    def takes(self, how: ActionRule) -> bool:
        """Return whether actions can follow from the network's outputs by this rule."""
        return how.kind in self._rules

    def take(self, task: Task, k: int, parents: NDArray[np.float32]) -> bool:
        """Have candidate `k` computed from now on; return whether its weights are finite."""
        self._rebuilder.rebuild(parents, task.weights, k, self._weights)
        if finite := bool(np.isfinite(self._weights).all()):
            self.kernel.take(self._weights)
        return finite


class RolloutPlayer(Player):
    """Plays tasks whose weights are published as files, in the environments of training or in that of evaluation."""

    def __init__(self, rollouts: Sequence[Any], files: Any) -> None:
        """`rollouts` are one for each environment of training, and last that of evaluation."""
        self._rollouts, self._files, self.one_by_one = rollouts, files, False  # as an attribute of `Instances`
        self.fingerprint, self.device = rollouts[-1].kernel.fingerprint, rollouts[-1].kernel.device

    def play(self, task: Task) -> Result:
        """Play the task in its environment with each of its candidates."""
        rollout, parents = self._of(task)
        with OPEN.here.used(self.one_by_one):
            result: Result = rollout.play(task, parents)
        return result

    def _of(self, task: Task) -> tuple[Any, NDArray[np.float32]]:
        """Return the rollout of a task's environment, and the published matrix."""
        rollout = self._rollouts[-1 if task.evaluation else task.training]
        return rollout, self._files.matrix(task.weights.published, rollout.size)
