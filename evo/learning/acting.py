"""One network acts: the tasks that a generation asks for, and what comes back of them, put together again."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from evo.networks.network import Network
from evo.randomness.streams import Purpose, stream
from evo.records import ActionRule, Arrays, EnvStates, Episodes, Result, Segment, Task, Transitions, WeightSource

LANES = ("snapshots", "first", "episode", "returns_so_far")
GREEDY = ActionRule()
EPISODES_PER_TASK = 64  # of those that crown a champion


def the_network() -> WeightSource:
    """Return the name of the only row that is published, unchanged."""
    one = np.zeros(1, np.int32)
    return WeightSource(one, one - 1, np.zeros(1, np.uint64), np.zeros(1, np.float32))


def initial_weights(network: Network, seed: int) -> NDArray[np.float32]:
    """Return the weights that a run of this seed begins with, drawn as those of a candidate without parents.  # [P]"""
    from evo.networks.candidates import Rebuilder

    key = np.array([stream(seed, Purpose.INITIAL)], np.uint64)
    fresh = WeightSource(np.full(1, -1, np.int32), np.full(1, -1, np.int32), key, np.zeros(1, np.float32))
    weights = np.empty(network.size, np.float32)
    Rebuilder(network).rebuild(np.empty((0, network.size), np.float32), fresh, 0, weights)
    return weights


def begin_lanes(environment: Any, seed: int, generation: int, count: int) -> EnvStates:
    """Return lanes at the beginning of the episodes that their streams name."""
    keys = [stream(seed, Purpose.LANE, generation, lane) for lane in range(count)]
    lanes: EnvStates = environment.begin(np.array(keys, np.uint64))
    return lanes


def segment_tasks(lanes: EnvStates, horizon: int, per_task: int, how: ActionRule) -> list[Task]:
    """Return the tasks that play on for `horizon` steps on every lane, `per_task` lanes together."""
    parts = [slice(first, first + per_task) for first in range(0, len(lanes), per_task)]
    return [
        Task(
            the_network(),
            Segment(
                EnvStates(lanes.snapshots[part], lanes.first[part], lanes.episode[part], lanes.returns_so_far[part]),
                horizon,
            ),
            how,
        )
        for part in parts
    ]


def episode_tasks(
    seeds: NDArray[np.uint64],
    per_task: int = EPISODES_PER_TASK,
    how: ActionRule = GREEDY,
    record_transitions: bool = False,
) -> list[Task]:
    """Return the tasks that play whole episodes, `per_task` of them together."""
    parts = [seeds[first : first + per_task] for first in range(0, len(seeds), per_task)]
    return [Task(the_network(), Episodes(part), how, record_transitions=record_transitions) for part in parts]


def lanes_to_arrays(lanes: EnvStates, prefix: str) -> dict[str, NDArray[Any]]:
    """Return the arrays of lanes, each name with a prefix."""
    return {prefix + name: getattr(lanes, name) for name in LANES}


def lanes_of_arrays(arrays: Arrays, prefix: str) -> EnvStates:
    """Return the lanes that `lanes_to_arrays` made these arrays of."""
    taken: dict[str, Any] = {name: arrays[prefix + name] for name in LANES}
    return EnvStates(**taken)


def steps_to_arrays(steps: Transitions, prefix: str) -> dict[str, NDArray[Any]]:
    """Return the arrays of steps, each name with a prefix."""
    return {prefix + name: array for name, array in vars(steps).items() if array is not None}


def steps_of_arrays(arrays: Arrays, prefix: str) -> Transitions | None:
    """Return the steps that `steps_to_arrays` made these arrays of, or None where they are not among them."""
    if f"{prefix}ends" not in arrays:
        return None
    taken: dict[str, Any] = {name: arrays.get(prefix + name) for name in Transitions.__dataclass_fields__}
    return Transitions(**taken)


def fit(lanes: EnvStates, environment: Any, count: int) -> bool:
    """Return whether lanes are as many as asked for, and of such an environment: those of a fork need not be."""
    if not hasattr(environment, "begin"):
        return False
    one = begin_lanes(environment, 0, 0, 1)
    return lanes.snapshots.shape == (count, one.snapshots.shape[1])


def joined_lanes(results: Sequence[Result]) -> EnvStates:
    """Return where the lanes of all results left off, in their order."""
    lanes = [result.envs for result in results if result.envs is not None]
    return EnvStates(*(np.concatenate([getattr(part, name) for part in lanes]) for name in LANES))


def joined_steps(results: Sequence[Result]) -> Transitions:
    """Return the steps of all results, in their order."""
    parts = [result.transitions for result in results if result.transitions is not None]

    def whole(name: str) -> Any:
        arrays = [getattr(part, name) for part in parts]
        return None if arrays[0] is None else np.concatenate(arrays)

    return Transitions(**{name: whole(name) for name in Transitions.__dataclass_fields__})
