"""Segments of any environment through Gymnasium's interface, which stays open in a worker between them.

The snapshot of an environment in mid-episode is the actions of the episode so far. A worker that has the environment
open at that place plays on; any other, as after a resume, first plays these actions again from the episode's seed.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from operator import itemgetter

import numpy as np
from numpy.typing import NDArray

from evo import clock
from evo.environment import Environment
from evo.environments.instances import OPEN, Kept
from evo.errors import notice_once
from evo.games.hidden_states import hidden_states
from evo.games.step import FOLLOWED, SLOTS, Score, actions_for
from evo.randomness.streams import episode_seed
from evo.records import GOES_ON, TERMINATED, TRUNCATED, EnvStates, Result, Segment, Task, empty_result
from evo.rollouts.gymnasium_episodes import FAILED, Steps, metrics_of_episode

HEAD = 8  # first bytes of a snapshot: how many bytes of actions follow; zeros fill it up to the longest


def begin(first: NDArray[np.uint64]) -> EnvStates:
    """Return environments at the beginning of their first episodes, which have these seeds.  # [L]"""
    return EnvStates(packed([b""] * len(first)), first, np.zeros(len(first), np.int64), np.zeros(len(first)))


def packed(played: Sequence[bytes]) -> NDArray[np.uint8]:
    """Return the snapshots of environments whose episodes have had these actions so far.  # [L, S]"""
    out = np.zeros((len(played), HEAD + max(map(len, played))), np.uint8)
    for row, actions in zip(out, played, strict=True):
        row[:HEAD] = np.frombuffer(len(actions).to_bytes(HEAD, "little"), np.uint8)
        row[HEAD : HEAD + len(actions)] = np.frombuffer(actions, np.uint8)
    return out


def unpacked(snapshot: NDArray[np.uint8]) -> bytes:
    """Return the actions of a snapshot.  # [S]"""
    return snapshot[HEAD : HEAD + int.from_bytes(snapshot[:HEAD].tobytes(), "little")].tobytes()


def play_gymnasium_segment(score: Score, environment: Environment, task: Task, found: str, memory: int) -> Result:
    """Play a segment with one candidate, in all environments side by side, or in as many as can be open.

    `found` is what `seed_check` returns of the environment; the network's hidden state has `memory` floats.
    """
    assert isinstance(task.play, Segment)
    envs, horizon = task.play.envs, task.play.horizon
    rows, shift = len(envs) * horizon, 64 - environment.seed_bits
    steps, ended = Steps(environment, task.action_rule, rows, rows), list[tuple[int, float, int, tuple[int, ...]]]()
    states = replace(envs, episode=envs.episode.copy(), returns_so_far=envs.returns_so_far.copy())
    hidden = hidden_states(len(envs), memory, envs.memories)
    after = np.zeros((len(envs), 0), np.float32) if hidden is None else hidden
    begins = np.empty_like(after)
    kept, played = list[Kept](), list[bytes]()  # of each environment, and the actions of its episode so far
    while len(kept) < len(envs):
        begun = len(kept)
        kept += OPEN.here.keep(environment, envs.first[begun:].tolist(), found == "renewed")
        played += [_take_up(kept[b], states, b, found == "ignored") for b in range(begun, len(kept))]
        group = [(b, kept[b].instance) for b in range(begun, len(kept))]
        seeds = {b: _seed(states, b) for b, _ in group}
        after[begun:][states.episode[begun:] != envs.episode[begun:]] = 0
        begins[begun:] = after[begun:]
        for t in range(horizon):
            table = score(
                np.stack([one.observation.reshape(environment.shape) for _, one in group]), after[begun : len(kept)]
            )
            steps.progress[SLOTS] += len(group)
            for scores, (b, one) in zip(table, group, strict=True):
                status = steps.play(b, one, np.uint64(seeds[b]), scores, after[b], t == horizon - 1)
                if status == FAILED:
                    return not_finite(environment, int(steps.progress[SLOTS]))
                if status != GOES_ON:
                    ended.append((b, one.total, one.steps, metrics_of_episode(environment, one, status)))
                    states.episode[b] += 1
                    seeds[b] = _seed(states, b)
                    one.reset(seeds[b] >> shift)
                    after[b] = 0
        for b, one in group:
            states.returns_so_far[b] = one.total
    steps.drop_masks()
    order = np.argsort(steps.episodes, kind="stable")  # steps of an environment stand in their order
    first = np.arange(0, rows, horizon), begins
    transitions = steps.transitions(rows, int(steps.progress[FOLLOWED]), score, order, first)
    if not (np.isfinite(transitions.outputs).all() and np.isfinite(transitions.next_outputs).all()):
        return not_finite(environment, int(steps.progress[SLOTS]))
    for b, place in enumerate(range(0, rows, horizon)):
        actions, ends = (array[place : place + horizon] for array in (transitions.actions, transitions.ends))
        over = np.flatnonzero((ends == TERMINATED) | (ends == TRUNCATED))
        played[b] = actions[over[-1] + 1 :].tobytes() if len(over) else played[b] + actions.tobytes()
        kept[b].played, kept[b].episode = played[b], int(states.episode[b])
    ended.sort(key=itemgetter(0))  # in the order of transitions
    returns, lengths, metrics = ([one[i] for one in ended] for i in (1, 2, 3))
    return Result(
        returns=np.array([returns], np.float64),
        lengths=np.array([lengths], np.int32),
        episode_metrics=np.array(metrics, np.int64).reshape(1, len(ended), len(environment.episode_metrics)),
        finite=np.ones(1, np.bool_),
        frames=rows,
        lane_slots=int(steps.progress[SLOTS] + steps.progress[FOLLOWED]),
        transitions=transitions,
        envs=replace(states, snapshots=packed(played), memories=hidden),
    )


def not_finite(environment: Environment, slots: int) -> Result:
    """Return the result of a segment in which weights, outputs, observations or rewards are not finite."""
    arrays = empty_result(1, 0, len(environment.episode_metrics), environment.returns_type)
    return Result(**arrays, frames=0, lane_slots=slots)


def _seed(envs: EnvStates, b: int) -> int:
    """Return the seed of the episode that environment b plays."""
    return episode_seed(int(envs.first[b]), int(envs.episode[b]))


def _take_up(kept: Kept, envs: EnvStates, b: int, ignores_seeds: bool) -> bytes:
    """Bring an instance to where environment b stands; return the actions of its episode so far.

    Where the episode cannot be repeated, the next one begins.
    """
    episode, played, one = int(envs.episode[b]), unpacked(envs.snapshots[b]), kept.instance
    stands = kept.episode == episode and kept.played == played
    kept.episode = -1  # until the segment is over, wherever it fails
    if stands:
        return played
    shift = 64 - kept.environment.seed_bits
    one.reset(_seed(envs, b) >> shift)
    if not played or (not ignores_seeds and _replay(kept, played, float(envs.returns_so_far[b]))):
        return played
    notice_once(f"{one.name} does not repeat an episode from its seed and actions; the next one begins")
    envs.episode[b] += 1
    one.reset(_seed(envs, b) >> shift)
    return b""


def _replay(kept: Kept, played: bytes, returned: float) -> bool:
    """Play the actions of an episode again; return whether it goes on, with the same return so far."""
    one, sample = kept.instance, actions_for(kept.environment, 1)
    if len(played) % sample.nbytes:  # of an environment with other actions
        return False
    for action in np.frombuffer(played, sample.dtype).reshape(-1, *sample.shape[1:]):
        clock.progress.made()
        if sample.ndim == 1 and not 0 <= action < kept.environment.actions:
            return False
        if one.step(action if sample.ndim > 1 else int(action)) != GOES_ON:
            return False
    return one.total == returned
