"""What each task of a launch did, from what all tasks did together."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from evo.cuda.kernels import width_for
from evo.cuda.table import LANES
from evo.games.contract import CompiledGame
from evo.games.step import Recorder, some
from evo.records import TERMINATED, TRUNCATED, Result, Transitions


def of_episodes(recorder: Recorder, game: CompiledGame, results: Sequence[Result]) -> Iterator[tuple[Recorder, int]]:
    """Yield the recorded steps of each result's episodes, which are all finite, and how many of these were truncated.

    Steps stand in any order, but those of an episode in theirs; what follows a truncated episode stands at its number.
    """
    record, row, first = recorder.record, 0, 0
    order = np.argsort(recorder.episodes[: sum(result.frames for result in results)], kind="stable")
    for result in results:
        own, last = order[row : row + result.frames], np.cumsum(result.lengths, dtype=np.int64) - 1
        part, over = Recorder(recorder.actions[own], None, game.observe), np.empty(0, np.int64)
        part.episodes = recorder.episodes[own]
        if record is not None:
            over = np.flatnonzero(record.ends[own[last]] == TRUNCATED)
            steps = {name: getattr(record, name) for name in record._fields[: record._fields.index("followed")]}
            rows: dict[str, Any] = {name: None if array is None else array[own] for name, array in steps.items()}
            rows |= {name: getattr(record, name)[first + over] for name in ("next_observations", "next_action_masks")}
            part.record = record._replace(**rows, followed=last[over])
        yield part, len(over)
        row, first = row + result.frames, first + result.lengths.size


def of_envs(whole: Result, counts: Sequence[int]) -> Iterator[Result]:
    """Yield the results of parts of a segment, with `counts` environments each."""
    envs, transitions = whole.envs, whole.transitions
    assert envs is not None
    assert transitions is not None
    horizon = len(transitions) // len(envs)
    followed = np.concatenate([[0], np.cumsum(transitions.ends >= TRUNCATED)])
    over = np.concatenate([[0], np.cumsum((transitions.ends == TERMINATED) | (transitions.ends == TRUNCATED))])
    env = 0
    for count in counts:
        a, b = env * horizon, (env + count) * horizon
        which = {name: slice(a, b) for name in vars(transitions)}
        which |= {name: slice(followed[a], followed[b]) for name in which if name.startswith("next_")}
        own: Any = {name: None if array is None else array[which[name]] for name, array in vars(transitions).items()}
        slots = horizon * sum(width_for(min(count - first, LANES)) for first in range(0, count, LANES))
        yield Result(
            returns=whole.returns[:, over[a] : over[b]],
            lengths=whole.lengths[:, over[a] : over[b]],
            episode_metrics=whole.episode_metrics[:, over[a] : over[b]],
            finite=whole.finite,
            frames=b - a,
            lane_slots=slots + -(-int(followed[b] - followed[a]) // 16) * 16,
            transitions=Transitions(**own),
            envs=some(envs, slice(env, env + count)),
        )
        env += count
