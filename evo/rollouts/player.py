"""What a worker is told, once, so that it can play any task of a run; small, and never an array of weights."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Protocol

import numpy as np

from evo.plugins import registry
from evo.records import ActionRule, Episodes, Rebuild, Segment, Task, WeightSource
from evo.workers import devices

if TYPE_CHECKING:
    from evo.rollouts.rollout import Rollout


@dataclass(frozen=True)
class Context:
    """A run as its players need to know it: the options of three sections, and where published weights lie."""

    run_dir: Path
    environment: Mapping[str, Any]  # [environment]
    policy: Mapping[str, Any]  # [policy]
    workers: Mapping[str, Any] = field(default_factory=dict)  # [workers]
    inference: Literal["lanes", "tensorflow"] = "lanes"  # policy.inference, with "auto" resolved
    plugins: tuple[str, ...] = ()  # modules of --plugin
    extra_outputs: int = 0  # of the network, beside the scores of actions
    learner: Mapping[str, Any] | None = None  # [learner], where something learns
    learns_from: str = ""  # "segments" or "episodes" whose steps are brought back; "": from neither


class Player(Protocol):
    """Something that plays one task at a time, with caches but no memory of earlier tasks."""

    fingerprint: str  # results of players that differ here may differ; empty: exact arithmetic

    def play(self, task: Task | Rebuild) -> Any:
        """Play the task's episodes with each of its candidates: a `Result`.

        Or, where it reaches the run directory, write their weights into a file there: the SHA-256 of each.
        """
        ...


def make_player(context: Context, files: Any = None) -> Player:
    """Return the player of a run, on the device that this process is pinned to.

    `files.matrix(name, size)` gives published weights, which without it are files of the run directory.
    """
    rollout = _rollout(context)
    if files is None:
        from evo.rollouts.published_weights import PublishedFiles

        files = PublishedFiles(Path(context.run_dir))
    if context.inference == "tensorflow":
        from evo.rollouts.tensorflow_player import TensorFlowPlayer

        return TensorFlowPlayer(rollout, files, context.workers)
    return LanesPlayer(rollout, files)


def prepare(context: Context) -> None:
    """Import, and compile or load from Numba's cache, what all players of a run need; touches no device."""
    rollout = _rollout(context)
    if context.inference == "tensorflow":
        from evo.rollouts.tensorflow_player import warm_up

        wanted = context.workers.get("kind") == "gpu" or context.workers.get("gpus") or context.workers.get("gpu_ids")
        devices.import_tensorflow(on_gpu=bool(wanted))
        warm_up(rollout.environment)
    else:
        environment: Any = rollout.environment
        compiled = hasattr(environment, "rules")
        one, parents = np.zeros(1, np.int32), np.zeros((1, rollout.network.size), np.float32)
        source = WeightSource(one, one - 1, one.astype(np.uint64), one.astype(np.float32) + np.float32(1))
        seeds = np.zeros(int(compiled), np.uint64)  # of what is not compiled, none: it could hang
        rollout.play(Task(source, Episodes(seeds)), parents)
        if not compiled:
            rollout.score(np.zeros((1, *environment.shape), np.float32))
        elif context.learns_from == "segments":
            rollout.play(Task(source, Segment(environment.begin(seeds), 1), ActionRule("softmax")), parents)
        elif context.learns_from == "episodes":
            rollout.play(Task(source, Episodes(seeds), ActionRule("softmax"), record_transitions=True), parents)


def measures_of(context: Context) -> int:
    """Return how many episode_metrics the run's environment has."""
    return len(_environment(context).episode_metrics)


class LanesPlayer:
    """Plays on the CPU: in float32 exactly, in bfloat16 as the processor multiplies pairs."""

    def __init__(self, rollout: Rollout, files: Any) -> None:
        self._rollout, self._files = rollout, files
        self.fingerprint = rollout.fingerprint

    def play(self, task: Task | Rebuild) -> Any:
        """Play the task's episodes with each of its candidates, or rebuild them."""
        from evo.rollouts.rollout import check_arithmetic

        if isinstance(task, Rebuild):
            check_arithmetic()
            return self._files.rebuild(task, self._rollout.rebuilder)
        parents = self._files.matrix(task.weights.published, self._rollout.network.size)
        return self._rollout.play(task, parents)


def _rollout(context: Context) -> Rollout:
    from evo.networks.network import Network
    from evo.networks.network import Options as PolicyOptions
    from evo.rollouts.rollout import Rollout

    environment = _environment(context)
    policy = PolicyOptions(**context.policy)
    network = Network.build(policy, environment.shape, environment.actions, context.extra_outputs)
    return Rollout(network, environment)


def _environment(context: Context) -> Any:
    registry.load(context.plugins)
    module = registry.find("environments", context.environment.get("id", "snake").partition(":")[0])
    return module.make(module.Options(**context.environment))
