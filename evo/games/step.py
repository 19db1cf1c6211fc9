"""One step of a compiled game: play an action, record what was seen and done, end the episode, begin the next one.

Whole episodes, segments, replays and vector environments share these functions; they differ in who chooses the action,
which row a step is recorded in, and which episode comes next.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from numba import njit
from numpy.typing import NDArray

from evo.compiled import cache as kernel_cache
from evo.games import contract
from evo.games.contract import CompiledGame
from evo.games.hidden_states import before, forget, hidden_states, remember
from evo.randomness.philox_compiled import episode_seed
from evo.records import (
    GOES_ON,
    LARGEST_FLOAT,
    LARGEST_RETURN,
    SEGMENT_END,
    TRUNCATED,
    EnvStates,
    Episodes,
    Task,
    Transitions,
)

kernel_cache.use(__name__)

FRAMES, SLOTS, ROWS, FOLLOWED, LIVE, BEGUN, UNASKED = range(7)  # of the progress of whole episodes, int64 [7]
CHUNK = 4096  # recorded steps for which there is memory before it grows
# Observations [E, ...] to outputs [E, O]; the hidden states [E, S], or None, are overwritten by those after the step.
Score = Callable[[NDArray[np.float32], NDArray[np.float32] | None], NDArray[np.float32]]
Observe = Callable[[NDArray[Any]], NDArray[np.float32]]  # recorded observations [E, ...] to what was shown


class Envs(NamedTuple):
    """Which episode each of B environments plays."""

    first: NDArray[np.uint64]  # [B] seed of the first episode, from which those of the others follow
    episode: NDArray[np.int64]  # [B] number of the episode
    seeds: NDArray[np.uint64]  # [B] of the episode
    returns_so_far: NDArray[np.int64]  # [B] thousandths
    memory: NDArray[np.float32] | None  # [B, S] hidden state of the network; None, also by its type: it has none

    @classmethod
    def empty(cls, count: int, memory: int = 0) -> Envs:
        """Return environments of the seed 0, to be begun; `memory` is S."""
        seeds, numbers = np.zeros((2, count), np.uint64), np.zeros((2, count), np.int64)
        return cls(seeds[0], numbers[0], seeds[1], numbers[1], hidden_states(count, memory))


class Ended(NamedTuple):
    """Results of episodes, a row each."""

    returns: NDArray[Any]  # [R] int64 thousandths; behind Gymnasium's interface float64
    lengths: NDArray[np.int32]  # [R] steps
    episode_metrics: NDArray[np.int64]  # [R, K]

    @classmethod
    def empty(cls, rows: int, metrics: int) -> Ended:
        """Return zeros."""
        return cls(np.zeros(rows, np.int64), np.zeros(rows, np.int32), np.zeros((rows, metrics), np.int64))


class Record(NamedTuple):
    """At most M steps, and the observations that follow at most N of them; A is 0 where nothing is masked.

    What follows a step is recorded where the next row is of another episode and the step did not terminate.
    """

    observations: NDArray[Any]  # [M, S] uint8 snapshots of a compiled game, else [M, *shape] float32
    action_masks: NDArray[np.int8]  # [M, A]
    outputs: NDArray[np.float32]  # [M, O] of the network
    rewards: NDArray[Any]  # [M] int32 thousandths of a compiled game, int64 of several players; else float32
    ends: NDArray[np.uint8]  # [M] GOES_ON, TERMINATED, TRUNCATED or SEGMENT_END
    memories: NDArray[np.float32] | None  # [M, S] hidden states after the steps
    followed: NDArray[np.int64]  # [N] the row that each of the next fields follows
    next_observations: NDArray[Any]  # [N, ...]
    next_action_masks: NDArray[np.int8]  # [N, A]

    @classmethod
    def empty(
        cls, rows: int, followed: int, shape: tuple[int, ...], kinds: tuple[Any, Any], masked: int, outputs: int,
        memory: int,
    ) -> Record:  # fmt: skip
        """Return a record to be filled; `kinds` are the types of observations and rewards, `masked` A, `memory` S."""
        return cls(
            observations=np.empty((rows, *shape), kinds[0]),
            action_masks=np.empty((rows, masked), np.int8),
            outputs=np.empty((rows, outputs), np.float32),
            rewards=np.empty(rows, kinds[1]),
            ends=np.empty(rows, np.uint8),
            memories=np.empty((rows, memory), np.float32) if memory else None,
            followed=np.empty(followed, np.int64),
            next_observations=np.empty((followed, *shape), kinds[0]),
            next_action_masks=np.empty((followed, masked), np.int8),
        )

    def grown(self) -> Record:
        """Return a copy with as many rows more as there are now."""
        old = {name: getattr(self, name) for name in self._fields[: self._fields.index("followed")]}
        rows: dict[str, Any] = {name: None if array is None else doubled(array) for name, array in old.items()}
        return self._replace(**rows)


def doubled(array: NDArray[Any]) -> NDArray[Any]:
    """Return an array of twice the length that begins with this one."""
    out = np.empty((2 * len(array), *array.shape[1:]), array.dtype)
    out[: len(array)] = array
    return out


def are_finite(returns: NDArray[Any]) -> bool:
    """Return whether every return is finite, and none is beyond LARGEST_RETURN in thousandths, or LARGEST_FLOAT."""
    limit = LARGEST_RETURN if returns.dtype.kind == "i" else LARGEST_FLOAT
    return bool((np.abs(returns) <= limit).all())


@njit(inline="always")
def record_seen(state, rules, b, row, scores, width, lane, allowed, record):  # type: ignore[no-untyped-def]
    """Record a snapshot, the mask `allowed`, and outputs of a lane of `scores` [O, width] before a step, in a row."""
    contract.save(state, rules, b, record.observations[row])
    for action_of in range(record.action_masks.shape[1]):
        record.action_masks[row, action_of] = allowed[action_of]
    if scores is not None:
        for o in range(record.outputs.shape[1]):
            record.outputs[row, o] = scores[o * width + lane]


@njit(inline="always")
def move(state, rules, b, action, envs, ended, place):  # type: ignore[no-untyped-def]
    """Play an action; return (reward in thousandths, status). Where the episode ends, write row `place` of `ended`."""
    reward, status = contract.step(state, rules, b, action)
    envs.returns_so_far[b] += reward
    if status != GOES_ON:
        ended.returns[place] = envs.returns_so_far[b]
        ended.lengths[place] = state.clock.steps[b]
        contract.metrics(state, rules, b, ended.episode_metrics[place])
    return reward, status


@njit(inline="always")
def play(  # type: ignore[no-untyped-def]
    state, rules, b, action, row, scores, width, lane, allowed, record, envs, ended, place
):  # fmt: skip
    """Play an action in environment b as `move` does, and unless `record` is None, write its row `row`."""
    if record is not None:
        record_seen(state, rules, b, row, scores, width, lane, allowed, record)
        remember(envs.memory, b, record.memories, row)
    reward, status = move(state, rules, b, action, envs, ended, place)
    if record is not None:
        record.rewards[row] = reward
        record.ends[row] = status
    return reward, status


@njit(inline="always")
def begin(state, rules, b, seed, envs):  # type: ignore[no-untyped-def]
    """Begin the episode of a seed in environment b, with a hidden state of zeros."""
    forget(envs.memory, b)
    envs.returns_so_far[b] = 0
    envs.seeds[b] = seed
    contract.begin(state, rules, b, seed)


@njit(inline="always")
def begin_next(state, rules, b, envs):  # type: ignore[no-untyped-def]
    """Begin the episode that follows in the sequence of environment b."""
    envs.episode[b] += 1
    begin(state, rules, b, episode_seed(envs.first[b], envs.episode[b]), envs)


@njit(inline="always")
def record_following(state, rules, masked, b, row, count, record):  # type: ignore[no-untyped-def]
    """Record what environment b shows after the step of a row, as number `count`."""
    record.followed[count] = row
    contract.save(state, rules, b, record.next_observations[count])
    if masked is not None:
        contract.mask(state, rules, b, record.next_action_masks[count])


@njit(inline="always")
def go_on(state, rules, masked, b, row, status, is_last, count, record, envs):  # type: ignore[no-untyped-def]
    """End a step of a segment, its last one or another; return how many following observations are recorded."""
    if status == GOES_ON and is_last:
        record.ends[row] = SEGMENT_END
    if record.ends[row] >= TRUNCATED:  # or SEGMENT_END
        record_following(state, rules, masked, b, row, count, record)
        count += 1
    if status != GOES_ON:
        begin_next(state, rules, b, envs)
    return count


@njit(cache=True, error_model="numpy", _nrt=False)
def _name_episodes(envs):  # type: ignore[no-untyped-def]
    for b in range(envs.seeds.shape[0]):
        envs.seeds[b] = episode_seed(envs.first[b], envs.episode[b])


def envs_of(states: EnvStates, memory: int) -> Envs:
    """Return which episodes environments play, to be written to, with S = `memory`; ValueError: another network's."""
    numbers = states.episode.copy(), np.empty(len(states), np.uint64), states.returns_so_far.copy()
    envs = Envs(states.first, *numbers, hidden_states(len(states), memory, states.memories))
    _name_episodes(envs)
    return envs


class PlayedEpisodes(NamedTuple):
    """What one candidate did in whole episodes, besides their results."""

    frames: int
    slots: int
    finite: bool
    actions: list[NDArray[np.generic]] = []  # noqa: RUF012  # of each episode, where they are recorded
    transitions: Transitions | None = None
    unasked: int = 0  # frames about which no network was asked


def actions_for(played: Any, rows: int) -> NDArray[Any]:
    """Return a buffer for the actions of a game or an environment.  # int8 [M], or float32 [M, D] where continuous"""
    return np.empty((rows, played.actions), np.float32) if played.continuous else np.empty(rows, np.int8)


def some(envs: EnvStates, which: slice) -> EnvStates:
    """Return some of the environments."""
    arrays: dict[str, Any] = {name: None if array is None else array[which] for name, array in vars(envs).items()}
    return EnvStates(**arrays)


class Recorder:
    """Steps of environments side by side as they are recorded, with their actions and episodes."""

    def __init__(self, actions: NDArray[Any], record: Record | None = None, observe: Observe | None = None) -> None:
        """`actions` [M] is kept; `observe` returns what recorded observations show: without it, they are shown."""
        self.actions, self.record, self._observe = actions, record, observe
        self.episodes = np.empty(len(actions), np.int64)  # [M]

    @classmethod
    def of_task(cls, game: CompiledGame, task: Task, outputs: int, memory: int) -> Recorder:
        """Return a recorder of what a task of whole episodes asks for, that grows."""
        assert isinstance(task.play, Episodes)
        actions = actions_for(game, CHUNK if task.record_actions or task.record_transitions else 0)
        if not task.record_transitions:
            return cls(actions)
        return cls.of_game(game, actions, len(task.play.seeds), outputs, memory)

    @classmethod
    def of_game(cls, game: CompiledGame, actions: NDArray[Any], followed: int, outputs: int, memory: int) -> Recorder:
        """Return a recorder of snapshots with a row for each of `actions` [M], and N = `followed`."""
        masked = game.actions if game.masked else 0
        shape, kinds = (game.row_size,), (np.uint8, np.int32 if game.players == 1 else np.int64)  # several add up
        return cls(actions, Record.empty(len(actions), followed, shape, kinds, masked, outputs, memory), game.observe)

    def grow(self) -> None:
        """Make room for as many rows more as there are now."""
        self.actions, self.episodes = doubled(self.actions), doubled(self.episodes)
        self.record = self.record and self.record.grown()

    def played(self, finite: bool, progress: NDArray[np.int64], ended: Ended, score: Score) -> PlayedEpisodes:
        """Return what was recorded of whole episodes, put in the order of episodes and of time.

        Not finite where a score was not (`finite`), or where a return or an output is not: no action depends on the
        value of a state, but learning does.
        """
        frames, slots, rows, followed = progress[FRAMES : FOLLOWED + 1].tolist()
        unasked = int(progress[UNASKED]) if len(progress) > UNASKED else 0
        if not finite or not are_finite(ended.returns):
            return PlayedEpisodes(0, slots, False)
        if not len(self.actions):
            return PlayedEpisodes(frames, slots, True, unasked=unasked)
        order = np.argsort(self.episodes[:rows], kind="stable")  # steps of an episode stand in their order
        bounds = np.cumsum(ended.lengths, dtype=np.int64)[:-1]
        transitions = None if self.record is None else self.transitions(rows, followed, score, order)
        if transitions and not all(np.isfinite(x).all() for x in (transitions.outputs, transitions.next_outputs)):
            return PlayedEpisodes(0, slots, False)
        return PlayedEpisodes(frames, slots, True, np.split(self.actions[order], bounds), transitions, unasked)

    def transitions(
        self,
        rows: int,
        followed: int,
        score: Score,
        order: NDArray[np.int64] | None,
        begins: tuple[NDArray[np.int64], NDArray[np.float32]] | None = None,
    ) -> Transitions:
        """Return the first rows, with the first `followed` observations that follow some of them.

        `score` returns the network's outputs. `order` [rows] puts those of an episode together, in the order of time;
        None: they stand so already. `begins` is as `hidden_states.before` takes it.
        """
        record = self.record
        assert record is not None
        which: Any = slice(rows)
        follows = record.followed[:followed]
        final = None if record.memories is None else record.memories[follows]
        if order is not None:
            which, place = order, np.empty(rows, np.int64)
            place[order] = np.arange(rows)
            follows = place[follows]
        after = np.argsort(follows)
        masked, rewards = record.action_masks.shape[1] > 0, record.rewards[which]
        following = record.next_observations[after]
        memories = None if record.memories is None else before(record.memories[which], record.ends[which], begins)
        seen = following if self._observe is None else self._observe(following)
        return Transitions(
            observations=record.observations[which],
            action_masks=record.action_masks[which] if masked else None,
            actions=self.actions[which],
            rewards=rewards if rewards.dtype == np.float32 else (rewards / 1000.0).astype(np.float32),
            ends=record.ends[which],
            outputs=record.outputs[which],
            next_observations=following,
            next_action_masks=record.next_action_masks[after] if masked else None,
            next_outputs=score(seen, None if final is None else final[after]),
            memories=memories,
        )
