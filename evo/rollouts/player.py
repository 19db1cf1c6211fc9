"""What a worker needs to play any task of a run, and the players; small, picklable, never an array of weights."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from evo.networks.network import Network
from evo.networks.network import Options as Policy
from evo.options import EnvironmentOptions
from evo.plugins import registry
from evo.records import NOT_DETERMINISTIC, ActionRule, Episodes, Player, Result, Segment, Task, WeightSource
from evo.workers import devices
from evo.workers.options import LearnerDevices, WorkersOptions
from evo.workers.round import worst_result

if TYPE_CHECKING:
    from evo.environment import Environment
    from evo.rollouts.rollout import Rollout


DEFAULT = WorkersOptions()


@dataclass(frozen=True)
class RunSpec:
    """A run as its players need to know it: options, and where published weights are."""

    run_dir: Path
    environment: EnvironmentOptions
    policy: Policy
    workers: WorkersOptions = DEFAULT
    inference: Literal["lanes", "tensorflow"] = "lanes"  # policy.inference, with "auto" resolved
    plugins: tuple[str, ...] = ()  # modules of --plugin
    extra_outputs: int = 0  # of the network, besides the scores of actions
    learner: LearnerDevices | None = None  # None: nothing learns
    transitions_from: str = ""  # "segments" or "episodes" whose transitions are recorded; "": from neither


def make_player(spec: RunSpec, files: Any = None) -> Player:
    """Return the player of a run, on the device that this process is pinned to.

    `files.matrix(name, size)` gives published weights, which without it are files of the run directory.
    """
    if files is None:
        from evo.rollouts.published_weights import PublishedFiles

        files = PublishedFiles(spec.run_dir)
    training = [_player(replace(spec, environment=one), files) for one in spec.environment.in_training()]
    evaluation = _player(spec, files)
    return Players(training, evaluation) if training else evaluation


class Players(Player):
    """Plays in one of the environments of training, or in that of validation and test."""

    def __init__(self, training: Sequence[Player], evaluation: Player) -> None:
        self._training, self._evaluation = training, evaluation
        self.fingerprint, self.device = evaluation.fingerprint, evaluation.device
        for player in training:
            if player.fingerprint.startswith(NOT_DETERMINISTIC):
                self.fingerprint = player.fingerprint

    @property
    def notices(self) -> Sequence[str]:
        """What a user should know, of all."""
        return tuple(dict.fromkeys(text for player in (*self._training, self._evaluation) for text in player.notices))

    @notices.setter
    def notices(self, texts: Sequence[str]) -> None:
        for player in (*self._training, self._evaluation):
            player.notices = texts

    def play(self, task: Task) -> Result:
        """Play the task where it belongs."""
        player = self._evaluation if task.evaluation else self._training[task.training]
        result: Result = player.play(task)
        return result


def _player(spec: RunSpec, files: Any) -> Player:
    rollout = _rollout(spec)
    if spec.inference == "tensorflow":
        from evo.rollouts.tensorflow_player import TensorFlowPlayer

        player: Player = TensorFlowPlayer(rollout, files, spec.workers)
    else:
        from evo.rollouts.rollout import LanesPlayer

        player = LanesPlayer(rollout, files)
    if rollout.environment.game is None:
        from evo.rollouts.gymnasium_episodes import is_deterministic

        if not is_deterministic(rollout.environment):
            player.fingerprint = " ".join(filter(None, [NOT_DETERMINISTIC, player.fingerprint]))
    return player


def prepare(spec: RunSpec) -> None:
    """Import, and compile or load from Numba's cache, what all players of a run need; touches no device."""
    for options in (*spec.environment.in_training(), spec.environment):
        _prepare(replace(spec, environment=options))


def _prepare(spec: RunSpec) -> None:
    rollout = _rollout(spec)
    if spec.inference == "tensorflow":
        from evo.rollouts.tensorflow_player import warm_up

        devices.import_tensorflow(on_gpu=spec.workers.on_gpu)
        warm_up(rollout.environment)
    else:
        game = rollout.environment.game
        parents = np.zeros((1, rollout.network.size), np.float32)
        source = replace(WeightSource.of_row(), sigmas=np.ones(1, np.float32))
        seeds = np.zeros(int(game is not None), np.uint64)  # none where nothing is compiled: that could hang
        drawn = ActionRule("gaussian" if rollout.environment.continuous else "softmax")
        rollout.play(Task(source, Episodes(seeds)), parents)
        if game is None:
            rollout.score(np.zeros((1, *rollout.environment.shape), np.float32))
        elif spec.transitions_from == "segments":
            rollout.play(Task(source, Segment(game.begin(seeds), 1), drawn), parents)
        elif spec.transitions_from == "episodes":
            rollout.play(Task(source, Episodes(seeds), drawn, record_transitions=True), parents)


def worst(spec: RunSpec, task: Task) -> Result:
    """Return the result of a task that cannot be played, as `workers.on_poison = "worst"` wants it."""
    return worst_result(task, len(_environment(spec).episode_metrics))


def _rollout(spec: RunSpec) -> Rollout:
    from evo.rollouts.rollout import Rollout

    environment = _environment(spec)
    network = Network.build(spec.policy, environment.shape, environment.actions, spec.extra_outputs)
    return Rollout(network, environment)


def _environment(spec: RunSpec) -> Environment:
    registry.load(spec.plugins)
    return registry.environment_of(spec.environment)
