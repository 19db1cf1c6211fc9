"""The transitions of one network: the tasks that play it, and their results put together."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from evo.environment import per_task
from evo.errors import ResourceError
from evo.games.step import some
from evo.networks.network import Network
from evo.randomness.streams import Purpose, episode_keys, stream
from evo.records import (
    ActionRule,
    Arrays,
    EnvStates,
    Episodes,
    Metrics,
    Recorded,
    Result,
    Segment,
    Task,
    Transitions,
    WeightSource,
    joined,
    unit_of,
)
from evo.rollouts import gymnasium_segments
from evo.setup import Setup

ENVS = "env_"  # prefix of the environments' states in a checkpoint
TOGETHER = 4  # environments that a task of segments has at least: alone, one would leave most lanes idle


class Collector:
    """Plays segments of environments side by side, or whole episodes."""

    def __init__(self, options: Any, setup: Setup) -> None:
        """Prepare to play `horizon` steps of each of `envs` environments, or `episodes` episodes, a generation."""
        self._options, self._setup, self._per_task = options, setup, options.envs_per_task
        self._count = options.envs if options.plays_segments else 0
        self._envs: dict[int, EnvStates] = {}  # where the last segments ended, by `Setup.slot`

    def envs(self, number: int) -> EnvStates | None:
        """Return the environments' states as a generation begins; None where their first episodes do."""
        return self._envs.get(self._setup.slot(number))

    def tasks(self, number: int, rule: ActionRule) -> list[Task]:
        """Return a generation's tasks."""
        setup = self._setup
        if not self._count:
            seeds = episode_keys(setup.seed, Purpose.TRAINING, number, self._options.episodes)
            each = per_task(setup.environment_in(number), self._options.episodes, self._per_task)
            return episode_tasks(seeds, each, rule)
        slot, environment = setup.slot(number), setup.environment_in(number)
        if slot not in self._envs or not _states_fit(environment, self._envs[slot]):
            self._envs[slot] = begin_envs(environment, setup.seed, slot, self._count)
        each = max(per_task(environment, self._count, self._per_task), min(TOGETHER, self._per_task))
        return segment_tasks(self._envs[slot], self._options.horizon, each, rule, stay_open=environment.game is None)

    def take(self, results: Sequence[Result], number: int) -> Transitions:
        """Return the transitions of a generation; ResourceError where the network's outputs were not finite."""
        check_finite(results)
        if self._count:
            self._envs[self._setup.slot(number)] = joined(equally_wide([one.envs for one in results if one.envs]))
        return joined([one.transitions for one in results if one.transitions is not None])

    def state(self) -> dict[str, NDArray[Any]]:
        """Return the environments' states, if there are any."""
        state: dict[str, NDArray[Any]] = {}
        for slot, envs in self._envs.items():
            state |= to_arrays(envs, _prefix(slot))
        return state

    def restore(self, state: Arrays) -> None:
        """Restore the environments' states; new episodes begin where their number or the environment differs."""
        self._envs = {}
        curriculum = self._setup.curriculum
        for slot in range(1 if curriculum is None else len(curriculum.training) + 1):
            if self._count and _prefix(slot) + "snapshots" in state:
                envs = from_arrays(EnvStates, state, _prefix(slot))
                if len(envs) == self._count:
                    self._envs[slot] = envs


def _prefix(slot: int) -> str:
    """Return the prefix of these environments' states in a checkpoint."""
    return f"{ENVS}{slot}_" if slot else ENVS


def check_finite(results: Sequence[Result]) -> None:
    """Raise ResourceError where a network that learns has outputs, or got rewards, that are not finite."""
    if not all(result.finite.all() for result in results):
        raise ResourceError(
            "the network's outputs or the rewards are not finite, so nothing can be learned; the last commit is "
            "intact: where a note names the environment, correct it; else resume the run with a smaller learning rate "
            "(which needs --fork)"
        )


def metrics_of(results: Sequence[Result]) -> tuple[Metrics, dict[str, NDArray[Any]]]:
    """Return the metrics of the episodes that ended, and their "return" and "length" [E]."""
    returns = np.concatenate([result.returns[0] for result in results])
    lengths = np.concatenate([result.lengths[0] for result in results])
    ended = len(returns) > 0
    metrics = {
        "best": float(returns.max()) / unit_of(returns) if ended else float("nan"),
        "mean": float(returns.mean()) / unit_of(returns) if ended else float("nan"),
        "mean_length": float(lengths.mean()) if ended else float("nan"),
        "episodes": float(len(returns)),
        "frames": float(sum(result.frames for result in results)),
        "slots": float(sum(result.lane_slots for result in results)),
    }
    return metrics, {"return": returns, "length": lengths}


def initial_weights(network: Network, seed: int, number: int = 0) -> NDArray[np.float32]:
    """Return the first weights of a network of a run, drawn as those of a candidate without parents.  # [P]

    `number` is 0 of the one that plays.
    """
    from evo.networks.candidates import Rebuilder

    return Rebuilder(network).drawn(stream(seed, Purpose.INITIAL, 0, number))


def begin_envs(environment: Any, seed: int, generation: int, count: int) -> EnvStates:
    """Return `count` environments at the beginning of their first episodes."""
    first = np.array([stream(seed, Purpose.ENV, generation, env) for env in range(count)], np.uint64)
    envs: EnvStates = gymnasium_segments.begin(first) if environment.game is None else environment.game.begin(first)
    return envs


def equally_wide(states: Sequence[EnvStates]) -> Sequence[EnvStates]:
    """Return environments whose snapshots, where they differ in length, are filled up to the longest."""
    lacking = [max(one.snapshots.shape[1] for one in states) - one.snapshots.shape[1] for one in states]
    if not any(lacking):
        return states
    filled = (np.pad(one.snapshots, ((0, 0), (0, more))) for one, more in zip(states, lacking, strict=True))
    return [replace(one, snapshots=snapshots) for one, snapshots in zip(states, filled, strict=True)]


def _states_fit(environment: Any, envs: EnvStates) -> bool:
    """Return whether states are of an environment of this kind, or, of a compiled game, of one of its size."""
    if environment.game is None or envs.returns_so_far.dtype != np.int64:
        return environment.game is None and envs.returns_so_far.dtype == np.float64
    return bool(envs.snapshots.shape[1] == environment.game.row_size)


def segment_tasks(
    envs: EnvStates, horizon: int, per_task: int, rule: ActionRule, stay_open: bool = False
) -> list[Task]:
    """Return the tasks that play `horizon` steps of every environment, `per_task` environments together."""
    parts = [slice(first, first + per_task) for first in range(0, len(envs), per_task)]
    return [Task(WeightSource.of_row(), Segment(some(envs, part), horizon, stay_open), rule) for part in parts]


def episode_tasks(seeds: NDArray[np.uint64], per_task: int, rule: ActionRule, row: int = 0) -> list[Task]:
    """Return the tasks that record whole episodes of a published row, `per_task` of them together."""
    parts = [seeds[first : first + per_task] for first in range(0, len(seeds), per_task)]
    return [Task(WeightSource.of_row(row), Episodes(part), rule, record_transitions=True) for part in parts]


def to_arrays(record: EnvStates | Transitions, prefix: str) -> dict[str, NDArray[Any]]:
    """Return the arrays of a record by their names, which begin with a prefix."""
    return {prefix + name: array for name, array in vars(record).items() if array is not None}


def from_arrays(kind: type[Recorded], arrays: Arrays, prefix: str) -> Recorded:
    """Return the record that `to_arrays` made these arrays of."""
    found: dict[str, Any] = {name: arrays.get(prefix + name) for name in kind.__dataclass_fields__}
    return kind(**found)
