"""Whole episodes of a compiled game: game, observation, network and action, up to sixteen episodes at a time.

A lane whose episode ends takes the next one at once. When none is left, live lanes are gathered at the front and
computed in parts of 16, 8, 4 and 2 lanes; no lane's bits depend on that.
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
from evo.records import GOES_ON, LARGEST_RETURN, TRUNCATED, Episodes, Task, Transitions
from evo.rollouts.action_rules import RULES, decide, write_action

kernel_cache.use(__name__)

LIVE, BEGUN, FRAMES, SLOTS = range(4)  # of a kernel's progress
CHUNK = 4096  # recorded steps


class Trace(NamedTuple):
    """A chunk of at most M steps in the order of play; none is written where M is 0."""

    episodes: NDArray[np.int64]  # [M] which episode a step is of
    actions: NDArray[Any]  # [M] int8, or [M, D] float32 where actions are continuous


class TransitionBuffers(NamedTuple):
    """Transitions of a chunk of M steps, besides `Trace`, and the ends of E episodes; A is 0 where nothing is masked."""

    observations: NDArray[np.uint8]  # [M, S] snapshots
    action_masks: NDArray[np.int8]  # [M, A]
    rewards: NDArray[np.int32]  # [M] thousandths
    outputs: NDArray[np.float32]  # [M, O]
    ends: NDArray[np.uint8]  # [E] TERMINATED or TRUNCATED
    next_observations: NDArray[np.uint8]  # [E, S] after the last step
    next_action_masks: NDArray[np.int8]  # [E, A]


@njit(cache=True, error_model="numpy", nogil=True)
def lanes_for(live):  # type: ignore[no-untyped-def]
    """Return how many lanes to compute next where `live` are left: 16, 8, 4 or 2.

    10 lanes are computed as 8 and 2, for example. Where a wider part costs less than several narrow ones (8 for 7, 8 and
    4 for 11, 16 for 13 to 15), some of its lanes are idle. The rule is fixed, so that the count of lane slots is too.
    """
    if live >= 13:
        return 16
    if live >= 7:
        return 8
    return 4 if live >= 3 else 2


@kernel_cache.with_game
@njit(cache=True, error_model="numpy", nogil=True, _nrt=False)
def play_episodes(layers, packed, large, nonzero, x, first, second, scores, state, rules, masked, shape, seeds, rule, epsilon, buffers, returns, lengths, episode_metrics, trace, record):  # type: ignore[no-untyped-def]  # fmt: skip
    """Play one candidate on every episode, or on until the trace is full; return (steps traced, finite).

    The network's arrays come first, with the kernel's buffers for 16 lanes. `state` is of 16 environments, `seeds` [E];
    `buffers` is what `buffers_for` makes, whose progress goes on in the next call. Written are `returns` and `lengths`
    [E], `episode_metrics` [E, K], `trace` and, unless it is None, `record`. `large` may be None too.
    """
    count = seeds.shape[0]
    index, episode, returns_so_far, allowed, continuous, progress = buffers
    live, begun, frames, slots = progress[LIVE], progress[BEGUN], progress[FRAMES], progress[SLOTS]
    if begun == 0:
        live = begun = min(count, 16)
        for b in range(live):
            index[b] = episode[b] = b
            returns_so_far[b] = 0
            contract.begin(state, rules, b, seeds[b])
    size = x.shape[0] // 16
    row, limit = 0, trace.actions.shape[0]
    while live > 0 and (limit == 0 or row + live <= limit):
        start, width, ended = 0, 0, 0
        for place in range(live):
            if place == start + width:  # the next lanes that are computed together
                start, width = place, lanes_for(live - place)
                for idle in range(live, start + width):  # computed, never played
                    index[idle] = index[start]
                seen = shaped(x[: size * width], (*shape, width))
                contract.observe_lanes(state, rules, index[start : start + width], seen)
                forward(layers, packed, large, nonzero, x, first, second, scores, width, min(width, live - place))
                slots += width
            b = index[place]
            e = episode[b]
            if masked is not None:
                contract.mask(state, rules, b, allowed)
            step = contract.steps(state, rules, b)
            action, finite = decide(scores, width, place - start, allowed, rule, epsilon, seeds[e], step, continuous)
            if not finite:
                progress[FRAMES], progress[SLOTS] = frames, slots
                return row, False
            if limit:
                trace.episodes[row] = e
                write_action(trace.actions, row, action, continuous)
            if record is not None:
                contract.save(state, rules, b, record.observations[row])
                for action_of in range(record.action_masks.shape[1]):
                    record.action_masks[row, action_of] = allowed[action_of]
                for o in range(record.outputs.shape[1]):
                    record.outputs[row, o] = scores[o * width + place - start]
            reward, status = contract.step(state, rules, b, action)
            if record is not None:
                record.rewards[row] = reward
            if limit:
                row += 1
            frames += 1
            returns_so_far[b] += reward
            if status == GOES_ON:
                continue
            returns[e] = returns_so_far[b]
            lengths[e] = contract.steps(state, rules, b)
            contract.metrics(state, rules, b, episode_metrics[e])
            returns_so_far[b] = 0
            if record is not None:
                record.ends[e] = status
                contract.save(state, rules, b, record.next_observations[e])
                if masked is not None:
                    contract.mask(state, rules, b, record.next_action_masks[e])
            if begun < count:
                episode[b] = begun
                contract.begin(state, rules, b, seeds[begun])
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
    progress[LIVE], progress[BEGUN], progress[FRAMES], progress[SLOTS] = live, begun, frames, slots
    return row, True


def buffers_for(game: CompiledGame) -> tuple[Any, ...]:
    """Return a kernel's buffers for 16 lanes: index, episode, returns so far [16], allowed actions [A], action, progress.

    A kernel that took memory itself would be compiled with all of NumPy's error messages, and count references.
    """
    index, episode, returns_so_far = np.zeros((3, 16), np.int64)
    allowed, progress = np.ones(game.actions, np.int8), np.zeros(4, np.int64)
    return index, episode, returns_so_far, allowed, game.action_buffer(), progress


def trace_of(game: CompiledGame, steps: int) -> Trace:
    """Return a trace for so many steps."""
    return Trace(np.empty(steps, np.int64), game.recorded_actions(steps))


def are_finite(returns: NDArray[np.int64]) -> bool:
    """Return whether every return is within LARGEST_RETURN: those of rewards that were not finite are beyond it."""
    return bool((np.abs(returns) <= LARGEST_RETURN).all())


class GameEpisodes:
    """Plays whole episodes of a compiled game with one candidate after the other."""

    def __init__(self, game: CompiledGame, outputs: int) -> None:
        self._game, self._outputs = game, outputs
        self._state, self._nothing = game.make_state(16), trace_of(game, 0)
        self._masked = game.masked or None  # None by its type: what masks actions is not compiled where none is

    def play(
        self, kernel: tuple[Any, ...], task: Task, one: dict[str, NDArray[Any]], score: Any
    ) -> tuple[int, int, bool, list[NDArray[np.generic]], Transitions | None]:
        """Return (frames, lane slots, finite, actions of each episode, transitions), the last two where asked for.

        `kernel` is what `Rollout` keeps of its network; `score` runs it on observations. Returns, lengths and metrics are
        written into the arrays of `one`, each [E, ...].
        """
        assert isinstance(task.play, Episodes)
        seeds, how, game = task.play.seeds, task.action_rule, self._game
        buffers = buffers_for(game)
        progress = buffers[-1]

        def play_on(trace: Trace, record: TransitionBuffers | None) -> tuple[int, bool]:
            return play_episodes(  # type: ignore[no-any-return]
                *kernel, self._state, game.rules, self._masked, game.shape, seeds, RULES[how.kind], how.epsilon,
                buffers, one["returns"], one["lengths"], one["episode_metrics"], trace, record,
            )  # fmt: skip

        if not (task.record_actions or task.record_transitions):
            _, finite = play_on(self._nothing, None)
            finite = finite and are_finite(one["returns"])
            return int(progress[FRAMES]), int(progress[SLOTS]), finite, [self._nothing.actions] * len(seeds), None
        traces, records = [], []
        record, finite = self._record(len(seeds)) if task.record_transitions else None, True
        while finite and (progress[BEGUN] == 0 or progress[LIVE] > 0):
            trace = trace_of(game, CHUNK)
            if record is not None:
                record = self._record(len(seeds), record)
            rows, finite = play_on(trace, record)
            traces.append(Trace(trace.episodes[:rows], trace.actions[:rows]))
            if record is not None:
                records.append([array[:rows] for array in record[:4]])
            if not len(seeds):
                break
        frames, slots = int(progress[FRAMES]), int(progress[SLOTS])
        if not finite or not are_finite(one["returns"]):
            return frames, slots, False, [], None
        # An episode is played by one lane, so its steps stand in their order.
        order = np.argsort(np.concatenate([trace.episodes for trace in traces]), kind="stable")
        actions = np.concatenate([trace.actions for trace in traces])[order]
        last = np.cumsum(one["lengths"], dtype=np.int64)
        transitions = None
        if record is not None:
            parts = [np.concatenate(part)[order] for part in zip(*records, strict=True)]
            transitions = self._transitions(actions, parts, record, last - 1, score)
        return frames, slots, True, list(np.split(actions, last[:-1])), transitions

    def _record(self, episodes: int, before: TransitionBuffers | None = None) -> TransitionBuffers:
        """Return buffers for another chunk of the episodes, with the ends of the chunk before."""
        size, actions = self._game.row_size, self._game.actions if self._masked else 0
        return TransitionBuffers(
            observations=np.empty((CHUNK, size), np.uint8),
            action_masks=np.empty((CHUNK, actions), np.int8),
            rewards=np.empty(CHUNK, np.int32),
            outputs=np.empty((CHUNK, self._outputs), np.float32),
            ends=before.ends if before else np.empty(episodes, np.uint8),
            next_observations=before.next_observations if before else np.empty((episodes, size), np.uint8),
            next_action_masks=before.next_action_masks if before else np.empty((episodes, actions), np.int8),
        )

    def _transitions(
        self,
        actions: NDArray[Any],
        parts: list[NDArray[Any]],
        record: TransitionBuffers,
        last: NDArray[np.int64],
        score: Any,
    ) -> Transitions:
        observations, action_masks, rewards, outputs = parts
        ends = np.zeros(len(actions), np.uint8)
        ends[last] = record.ends
        truncated = record.ends == TRUNCATED
        after = record.next_observations[truncated]
        return Transitions(
            observations=observations,
            action_masks=action_masks if self._masked else None,
            actions=actions,
            rewards=(rewards / 1000.0).astype(np.float32),
            ends=ends,
            outputs=outputs,
            next_observations=after,
            next_action_masks=record.next_action_masks[truncated] if self._masked else None,
            next_outputs=score(self._game.observe(after)),
        )
