"""Compute networks with TensorFlow, on the one device that this process is pinned to, and play games with them.

TensorFlow's sums depend on the size of the batch, the number of threads and the machine. So every forward pass has
one fixed batch shape, environments take episodes in order, idle ones are zeros, and a fingerprint of the arithmetic is
kept: results are equal wherever the fingerprint is.
"""

from __future__ import annotations

import hashlib

import numpy as np
from numpy.typing import NDArray

from evo.compiled import cache as kernel_cache
from evo.errors import ConfigurationError, DeviceMemoryError
from evo.games.contract import CompiledGame, observe_many
from evo.games.step import ROWS, SLOTS, Ended, Envs, PlayedEpisodes, Recorder, Score
from evo.lazy import tf
from evo.networks.candidates import Rebuilder, noise
from evo.networks.keras_form import build_keras, set_weights
from evo.networks.network import Network
from evo.records import ActionRule, Episodes, Result, Segment, Task, WeightSource
from evo.rollouts.action_rules import RULES
from evo.rollouts.rollout import Floats, Kernel, begin_one, step_episode
from evo.rollouts.segments import SegmentBuffers, step_env
from evo.workers import devices
from evo.workers.options import WorkersOptions

kernel_cache.use(__name__)

BATCH = 32  # observations in a forward pass: part of the fingerprint
GOLDEN = 64  # observations of the fingerprint


class TensorFlowKernel(Kernel):
    """Computes with TensorFlow.

    DeviceError where another device is seen than is pinned; DeviceMemoryError where its memory does not suffice.
    """

    def __init__(self, network: Network, workers: WorkersOptions) -> None:
        self._network = network
        self.device = devices.claim(workers)
        with devices.shortages_as(self._short):
            self._make_model()
            self.fingerprint = self._numeric_fingerprint(workers.threads)

    def take(self, weights: NDArray[np.float32]) -> None:
        """Compute a network with these weights from now on.  # [P], finite"""
        with devices.shortages_as(self._short):
            set_weights(self._model, self._network, weights)

    def score(self, observations: Floats, memory: Floats | None = None) -> Floats:
        """Return the network's outputs; it has no memory.  # [E, ...] -> [E, O]"""
        out = np.empty((len(observations), self._network.outputs), np.float32)
        for start in range(0, len(observations), BATCH):
            part = observations[start : start + BATCH].reshape(-1, *self._network.shape)
            x = np.zeros((BATCH, *self._network.shape), np.float32)
            x[: len(part)] = part
            with devices.shortages_as(self._short):
                out[start : start + BATCH] = self._call(x).numpy()[: len(part)]
        return out

    def play_episodes(self, game: CompiledGame, task: Task, ended: Ended) -> PlayedEpisodes:
        """Play the episodes of a task; fill in `ended` [E]."""
        return play_episodes(self.score, game, task, ended, self._network.outputs)

    def play_segment(self, game: CompiledGame, segment: Segment, how: ActionRule) -> Result:
        """Play a segment."""
        return play_segment(self.score, game, segment, self._network.outputs, how)

    def _short(self, error: Exception) -> DeviceMemoryError:
        return DeviceMemoryError(f"out of memory on the {self.device}: {devices.shortage(error)}")

    def _make_model(self) -> None:
        self._model = model = build_keras(self._network)
        if not all(isinstance(variable.value, tf.Variable) for variable in model.weights):
            raise ConfigurationError('policy.inference: "tensorflow" needs KERAS_BACKEND=tensorflow in the environment')
        signature = [tf.TensorSpec((BATCH, *self._network.shape), tf.float32)]
        self._call = tf.function(lambda x: model(x, training=False), input_signature=signature)

    def _numeric_fingerprint(self, threads: int) -> str:
        """Return what computes, and a digest of its scores of known observations by known weights."""
        weights = np.empty(self._network.size, np.float32)
        Rebuilder(self._network).fresh(np.uint64(1), weights)
        set_weights(self._model, self._network, weights)
        observations = np.empty((GOLDEN, *self._network.shape), np.float32)
        noise(np.uint64(2), observations.reshape(-1))
        digest = hashlib.sha256(self.score(observations).tobytes()).hexdigest()[:16]
        return f"{devices.arithmetic_on(self.device)}, {threads} threads, batch {BATCH}, scores {digest}"


def play_episodes(
    score: Score, game: CompiledGame, task: Task, ended: Ended, outputs: int, memory: int = 0
) -> PlayedEpisodes:
    """Play every episode of a task with one network, in BATCH environments that take the episodes in order.

    `ended` [E] is filled in; the network has `outputs` outputs, at least one for each action, and `memory` floats of
    hidden state.
    """
    assert isinstance(task.play, Episodes)
    seeds, state, masked, how = task.play.seeds, game.make_state(BATCH), game.masked or None, task.action_rule
    seen, envs = np.empty((BATCH, *game.shape), np.float32), Envs.empty(BATCH, memory)
    recorder, progress, failed = Recorder.of_task(game, task, outputs, memory), np.zeros(6, np.int64), -1
    buffers = np.zeros(0, np.int64), np.ones(game.actions, np.int8), game.action_buffer(), progress
    _begin_all(state, game.rules, seeds, envs, progress)
    while failed < 0 and (envs.episode >= 0).any():
        observe_many(state, game.rules, seen)
        seen[envs.episode < 0] = 0
        if recorder.record is not None or len(recorder.actions):
            while progress[ROWS] + BATCH > len(recorder.actions):
                recorder.grow()
        failed = _step_all(
            state, game.rules, masked, seeds, score(seen, envs.memory), RULES[how.kind], how.epsilon, buffers, envs,
            ended, recorder.actions, recorder.episodes, recorder.record,
        )  # fmt: skip
        progress[SLOTS] += BATCH
    game.check_allowed(state, buffers[1], failed)
    return recorder.played(failed < 0, progress, ended, score)


@kernel_cache.with_game
def _begin_all(state, rules, seeds, envs, progress):  # type: ignore[no-untyped-def]
    for b in range(envs.episode.shape[0]):
        begin_one(state, rules, b, seeds, envs, progress)


@kernel_cache.with_game
def _step_all(  # type: ignore[no-untyped-def]
    state, rules, masked, seeds, scores, rule, epsilon, buffers, envs, ended, actions, episodes, record
):  # fmt: skip
    """Step every environment that has an episode, by its `scores` [B, O]; return which has no action, or else -1."""
    for b in range(envs.episode.shape[0]):
        if envs.episode[b] >= 0 and not step_episode(
            state, rules, masked, b, seeds, scores[b], 1, 0, rule, epsilon, buffers, envs, ended, actions, episodes,
            record,
        ):  # fmt: skip
            return b
    return -1


def play_segment(
    score: Score, game: CompiledGame, segment: Segment, outputs: int, how: ActionRule, memory: int = 0
) -> Result:
    """Play one network in every environment, as `segments` does; `score` is asked for all of them at once."""
    written = SegmentBuffers(game, segment, outputs, memory=memory)
    count, horizon = len(segment.envs), segment.horizon
    seen, followed = np.empty((count, *game.shape), np.float32), 0
    for t in range(horizon):
        observe_many(written.state, game.rules, seen)
        scores = np.ascontiguousarray(score(seen, written.envs.memory), np.float32)
        if not (good := np.isfinite(scores).all(axis=1)).all():
            game.check_allowed(written.state, written.buffers[0], int(good.argmin()))
            return written.result(followed, (t + 1) * count, False, score)
        followed, failed = _step_segment(
            written.state, game.rules, written.masked, t, scores, RULES[how.kind], how.epsilon, followed,
            *written.written,
        )  # fmt: skip
        game.check_allowed(written.state, written.buffers[0], failed)
    return written.result(followed, horizon * count + followed, True, score)


@kernel_cache.with_game
def _step_segment(  # type: ignore[no-untyped-def]
    state, rules, masked, t, scores, rule, epsilon, followed, buffers, envs, actions, record, ended
):  # fmt: skip
    """Play step `t` of every environment by its `scores` [L, O]; return (following observations, failed or -1)."""
    for b in range(scores.shape[0]):
        followed = step_env(
            state, rules, masked, b, t, scores[b], 1, 0, rule, epsilon, buffers, envs, actions, record, ended, followed
        )
        if followed < 0:
            return followed, b
    return followed, -1


def warm_up(game: CompiledGame | None) -> None:
    """Compile what plays a game, or load it from the cache, without a network and without TensorFlow."""
    noise(np.uint64(0), np.empty(1, np.float32))
    if game is not None:
        task = Task(WeightSource.of_row(), Episodes(np.zeros(1, np.uint64)))
        scores = np.zeros((BATCH, game.actions), np.float32)
        play_episodes(lambda *_: scores, game, task, Ended.empty(1, len(game.episode_metrics)), game.actions)
