"""Replay of segments and episodes: the same transitions from the actions alone, without a network.

A game is exact, so a byte a step is enough to have everything back that was seen.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numba import njit
from numpy.typing import NDArray

from evo.compiled import cache as kernel_cache
from evo.games import contract
from evo.games.contract import CompiledGame
from evo.records import GOES_ON, SEGMENT_END, TRUNCATED, EnvStates, Segment, Transitions
from evo.rollouts.action_rules import read_action
from evo.rollouts.segments import SegmentBuffers, begin_next, save_following

kernel_cache.use(__name__)


@kernel_cache.with_game
@njit(cache=True, error_model="numpy", nogil=True, _nrt=False)
def _replay(state, rules, masked, recorded, actions, continuous, envs, steps, following):  # type: ignore[no-untyped-def]
    """Play actions [L, T], each environment from end to end; return how many rows of `following` are written.

    Nothing is written to `steps` and `following` unless it is to be `recorded`.
    """
    rows = 0
    for b in range(actions.shape[0]):
        for t in range(actions.shape[1]):
            if recorded:
                contract.save(state, rules, b, steps.observations[b, t])
                if masked is not None:
                    contract.mask(state, rules, b, steps.action_masks[b, t])
            reward, status = contract.step(state, rules, b, read_action(actions[b], t, continuous))
            envs.returns_so_far[b] += reward
            if recorded:
                end = SEGMENT_END if status == GOES_ON and t == actions.shape[1] - 1 else status
                steps.rewards[b, t] = reward
                steps.ends[b, t] = end
                if end >= TRUNCATED:  # or SEGMENT_END
                    save_following(state, rules, masked, b, t, rows, steps.ends, following)
                    rows += 1
            if status != GOES_ON:
                begin_next(state, rules, b, envs)
    return rows


def replay_segment(
    game: CompiledGame, envs: EnvStates, actions: NDArray[Any], record: bool = True
) -> tuple[Transitions | None, EnvStates]:
    """Return the transitions of these actions, if they are to be recorded, and where the segment ends.

    `actions` are int8 [L, T] or float32 [L, T, D]. The network's outputs are not among them: they have no columns.
    """
    written = SegmentBuffers(game, Segment(envs, actions.shape[1]), 0)
    steps = written.steps._replace(actions=actions)
    buffer = game.action_buffer()
    rows = _replay(
        written.state, game.rules, written.masked, record, actions, buffer, written.envs, steps, written.following
    )
    written.steps = steps
    result = written.result(rows, 0, True)
    assert result.envs is not None
    return result.transitions if record else None, result.envs


def replay_episodes(game: CompiledGame, seeds: NDArray[np.uint64], actions: Sequence[NDArray[Any]]) -> Transitions:
    """Return the transitions of whole episodes, of at least one, from the actions of each.

    `seeds` are [E]; `actions` are E arrays, int8 [T] or float32 [T, D]. The network's outputs have no columns.
    """
    episodes = (
        replay_segment(game, game.begin(seeds[k : k + 1]), played[np.newaxis])[0] for k, played in enumerate(actions)
    )
    return joined([episode for episode in episodes if episode is not None])


def joined(parts: Sequence[Transitions]) -> Transitions:
    """Return the transitions of all parts, at least one, in their order."""

    def whole(name: str) -> Any:
        arrays = [vars(part)[name] for part in parts]
        return None if arrays[0] is None else np.concatenate(arrays)

    return Transitions(**{name: whole(name) for name in Transitions.__dataclass_fields__})
