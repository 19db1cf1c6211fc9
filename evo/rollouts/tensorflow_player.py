"""Play tasks with the network in TensorFlow, on the one device that this process is pinned to.

TensorFlow's sums depend on the size of the batch, the number of threads and the machine. So every forward pass has
one fixed batch shape, environments take episodes in order, idle ones are zeros, and a fingerprint of the arithmetic is
kept: results are equal wherever the fingerprint is.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
from llvmlite import binding
from numpy.typing import NDArray

from evo.errors import ConfigurationError, DeviceMemoryError
from evo.networks.candidates import Rebuilder, noise
from evo.networks.keras_form import build_keras, set_weights
from evo.records import WORST, ActionRule, Player, Result, Segment, Task, Transitions, empty_result
from evo.rollouts.gymnasium_episodes import Recorder, play_gymnasium
from evo.rollouts.published_weights import PublishedFiles
from evo.rollouts.replay import replay_episodes
from evo.rollouts.rollout import check_arithmetic
from evo.rollouts.tensorflow_games import play_episodes, play_segment
from evo.workers import devices

if TYPE_CHECKING:
    from evo.environment import Environment
    from evo.rollouts.rollout import Rollout
    from evo.workers.options import WorkersOptions

BATCH = 32  # observations in a forward pass: part of the fingerprint
GOLDEN = 64  # observations of the fingerprint


class TensorFlowPlayer(Player):
    """Plays one candidate after the other with TensorFlow.

    DeviceError where another device is seen than is pinned; DeviceMemoryError where its memory does not suffice.
    """

    def __init__(self, rollout: Rollout, files: PublishedFiles, workers: WorkersOptions) -> None:
        self.network, self.environment = rollout.network, rollout.environment
        self._files, self._rebuilder = files, Rebuilder(self.network)
        self._weights = np.empty(self.network.size, np.float32)
        self.device = devices.claim(workers)
        self._game = self.environment.game
        with _memory_of(self.device):
            self._make_model()
            self.fingerprint = self._numeric_fingerprint(workers.threads)

    def play(self, task: Task) -> Result:
        """Return what each candidate of `task` did, and the transitions of one candidate where they are asked for.

        ValueError where transitions or a segment of several candidates are asked for.
        """
        check_arithmetic()
        parents = self._files.matrix(task.weights.published, self.network.size)
        if (isinstance(task.play, Segment) or task.record_transitions) and len(task.weights) != 1:
            raise ValueError("transitions are recorded of one candidate")
        if isinstance(task.play, Segment):
            return self._play_segment(task, task.play, parents)
        seeds = task.play.seeds
        arrays = empty_result(len(task.weights), len(seeds), len(self.environment.episode_metrics))
        frames = slots = 0
        traces: list[NDArray[np.generic]] = []
        steps: Transitions | None = None
        for k in range(len(task.weights)):
            one = {name: array[k] for name, array in arrays.items() if name != "finite"}
            actions: list[NDArray[np.generic]] = []
            self._rebuilder.rebuild(parents, task.weights, k, self._weights)
            finite = bool(np.isfinite(self._weights).all())
            if finite:
                with _memory_of(self.device):
                    set_weights(self._model, self.network, self._weights)
                    played, used, finite, actions, steps = self._play(task, seeds, one)
                frames, slots = frames + played, slots + used
            traces += actions if finite else [np.empty(0, np.int8)] * len(seeds)
            arrays["finite"][k] = finite
            if not finite:
                arrays["returns"][k], arrays["lengths"][k], arrays["episode_metrics"][k] = WORST, 0, 0
        recorded = tuple(traces) if task.record_actions else None
        return Result(**arrays, frames=frames, lane_slots=slots, actions=recorded, transitions=steps)

    def score(self, observations: NDArray[np.float32]) -> NDArray[np.float32]:
        """Return the outputs of the network whose weights were set last.  # [E, ...] -> [E, O]"""
        out = np.empty((len(observations), self.network.outputs), np.float32)
        for start in range(0, len(observations), BATCH):
            part = observations[start : start + BATCH].reshape(-1, *self.network.shape)
            x = np.zeros((BATCH, *self.network.shape), np.float32)
            x[: len(part)] = part
            out[start : start + BATCH] = self._call(x).numpy()[: len(part)]
        return out

    def _play(
        self, task: Task, seeds: NDArray[np.uint64], one: dict[str, NDArray[Any]]
    ) -> tuple[int, int, bool, list[NDArray[np.generic]], Transitions | None]:
        """Play a candidate and fill in `one`; return (frames, slots, finite, actions, transitions if recorded)."""
        how = task.action_rule
        if self._game is not None and not task.record_transitions:
            return *play_episodes(self.score, self._game, seeds, how, one, BATCH, task.record_actions), None
        recorder = Recorder(self.environment, len(seeds)) if task.record_transitions else None
        frames, slots, finite, actions = play_gymnasium(self.score, self.environment, seeds, how, one, recorder)
        steps = recorder.transitions(self.score) if recorder and finite else None
        if steps is not None and not (np.isfinite(steps.outputs).all() and np.isfinite(steps.next_outputs).all()):
            finite, steps = False, None
        if steps is not None and self._game is not None:  # as the other players record a compiled game
            shown = replay_episodes(self._game, seeds, actions)
            steps = replace(shown, outputs=steps.outputs, next_outputs=steps.next_outputs)
        return frames, slots, finite, actions, steps

    def _play_segment(self, task: Task, segment: Segment, parents: NDArray[np.float32]) -> Result:
        if self._game is None:
            raise ValueError("a segment is played in a compiled game")
        self._rebuilder.rebuild(parents, task.weights, 0, self._weights)
        with _memory_of(self.device):
            set_weights(self._model, self.network, self._weights)
            return play_segment(self.score, self._game, segment, self.network.outputs, task.action_rule)

    def _make_model(self) -> None:
        import tensorflow as tf

        self._model = model = build_keras(self.network)
        if not all(isinstance(variable.value, tf.Variable) for variable in model.weights):
            raise ConfigurationError('policy.inference: "tensorflow" needs KERAS_BACKEND=tensorflow in the environment')
        signature = [tf.TensorSpec((BATCH, *self.network.shape), tf.float32)]
        self._call = tf.function(lambda x: model(x, training=False), input_signature=signature)

    def _numeric_fingerprint(self, threads: int) -> str:
        """Return what computes, and a digest of its scores of known observations by known weights."""
        import keras
        import tensorflow as tf

        self._rebuilder.fresh(np.uint64(1), self._weights)
        set_weights(self._model, self.network, self._weights)
        observations = np.empty((GOLDEN, *self.network.shape), np.float32)
        noise(np.uint64(2), observations.reshape(-1))
        digest = hashlib.sha256(self.score(observations).tobytes()).hexdigest()[:16]
        machine = binding.get_host_cpu_name() if self.device == "CPU" else self.device
        versions = f"tensorflow {tf.__version__}, keras {keras.__version__}"
        return f"{versions}, {self.device} {machine}, {threads} threads, batch {BATCH}, scores {digest}"


def warm_up(environment: Environment) -> None:
    """Compile what plays a game, or load it from the cache, without a network and without TensorFlow."""
    if (game := environment.game) is not None:
        arrays = empty_result(1, 1, len(game.episode_metrics))
        one = {name: array[0] for name, array in arrays.items() if name != "finite"}
        scores = np.zeros((BATCH, game.actions), np.float32)
        play_episodes(lambda _: scores, game, np.zeros(1, np.uint64), ActionRule(), one, BATCH)
        noise(np.uint64(0), np.empty(1, np.float32))


@contextmanager
def _memory_of(device: str) -> Iterator[None]:
    """Raise DeviceMemoryError where TensorFlow has no memory left on the device."""
    import tensorflow as tf

    try:
        yield
        return
    except tf.errors.ResourceExhaustedError as error:
        what = devices.shortage(error)
    # Raised out here, so that it does not hold what was being computed, and its memory.
    raise DeviceMemoryError(f"out of memory on the {device}: {what}")
