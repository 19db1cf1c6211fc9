"""The transitions of one network: the tasks that play it, and their results put together."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from evo.networks.network import Network
from evo.randomness.streams import Purpose, stream
from evo.records import ActionRule, Arrays, EnvStates, Episodes, Result, Segment, Task, Transitions, WeightSource

STATES = ("snapshots", "first", "episode", "returns_so_far")
GREEDY = ActionRule()
EPISODES_PER_TASK = 64  # of greedy episodes


def the_network() -> WeightSource:
    """Return the source of the only row that is published, unchanged."""
    one = np.zeros(1, np.int32)
    return WeightSource(one, one - 1, np.zeros(1, np.uint64), np.zeros(1, np.float32))


def initial_weights(network: Network, seed: int) -> NDArray[np.float32]:
    """Return the first weights of a run with this seed, drawn as those of a candidate without parents.  # [P]"""
    from evo.networks.candidates import Rebuilder

    key = np.array([stream(seed, Purpose.INITIAL)], np.uint64)
    fresh = WeightSource(np.full(1, -1, np.int32), np.full(1, -1, np.int32), key, np.zeros(1, np.float32))
    weights = np.empty(network.size, np.float32)
    Rebuilder(network).rebuild(np.empty((0, network.size), np.float32), fresh, 0, weights)
    return weights


def begin_envs(environment: Any, seed: int, generation: int, count: int) -> EnvStates:
    """Return `count` environments at the beginning of their first episodes."""
    keys = [stream(seed, Purpose.ENV, generation, env) for env in range(count)]
    envs: EnvStates = environment.begin(np.array(keys, np.uint64))
    return envs


def segment_tasks(envs: EnvStates, horizon: int, per_task: int, rule: ActionRule) -> list[Task]:
    """Return the tasks that play `horizon` steps of every environment, `per_task` environments together."""
    parts = [slice(first, first + per_task) for first in range(0, len(envs), per_task)]
    return [
        Task(
            the_network(),
            Segment(
                EnvStates(envs.snapshots[part], envs.first[part], envs.episode[part], envs.returns_so_far[part]),
                horizon,
            ),
            rule,
        )
        for part in parts
    ]


def episode_tasks(
    seeds: NDArray[np.uint64],
    per_task: int = EPISODES_PER_TASK,
    rule: ActionRule = GREEDY,
    record_transitions: bool = False,
) -> list[Task]:
    """Return the tasks that play whole episodes, `per_task` of them together."""
    parts = [seeds[first : first + per_task] for first in range(0, len(seeds), per_task)]
    return [Task(the_network(), Episodes(part), rule, record_transitions=record_transitions) for part in parts]


def envs_to_arrays(envs: EnvStates, prefix: str) -> dict[str, NDArray[Any]]:
    """Return environments' states as arrays whose names begin with a prefix."""
    return {prefix + name: vars(envs)[name] for name in STATES}


def envs_from_arrays(arrays: Arrays, prefix: str) -> EnvStates:
    """Return the environments' states that `envs_to_arrays` made these arrays of."""
    taken: dict[str, Any] = {name: arrays[prefix + name] for name in STATES}
    return EnvStates(**taken)


def transitions_to_arrays(transitions: Transitions, prefix: str) -> dict[str, NDArray[Any]]:
    """Return transitions as arrays whose names begin with a prefix."""
    return {prefix + name: array for name, array in vars(transitions).items() if array is not None}


def transitions_from_arrays(arrays: Arrays, prefix: str) -> Transitions | None:
    """Return the transitions that `transitions_to_arrays` made these arrays of, None where there are none."""
    if f"{prefix}ends" not in arrays:
        return None
    taken: dict[str, Any] = {name: arrays.get(prefix + name) for name in Transitions.__dataclass_fields__}
    return Transitions(**taken)


def fit(envs: EnvStates, environment: Any, count: int) -> bool:
    """Return whether there are `count` environments' states, of such an environment; a fork may change both."""
    if not hasattr(environment, "begin"):
        return False
    one = begin_envs(environment, 0, 0, 1)
    return envs.snapshots.shape == (count, one.snapshots.shape[1])


def joined_envs(results: Sequence[Result]) -> EnvStates:
    """Return the environments' states after all results, in their order."""
    envs = [result.envs for result in results if result.envs is not None]
    return EnvStates(*(np.concatenate([vars(part)[name] for part in envs]) for name in STATES))


def joined_transitions(results: Sequence[Result]) -> Transitions:
    """Return the transitions of all results, in their order."""
    parts = [result.transitions for result in results if result.transitions is not None]

    def whole(name: str) -> Any:
        arrays = [vars(part)[name] for part in parts]
        return None if arrays[0] is None else np.concatenate(arrays)

    return Transitions(**{name: whole(name) for name in Transitions.__dataclass_fields__})
