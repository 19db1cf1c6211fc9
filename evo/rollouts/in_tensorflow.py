"""Play tasks with the network in TensorFlow, on the one device that this process is pinned to.

TensorFlow's sums depend on the size of the batch, the number of threads and the machine. So every forward pass has
one fixed batch shape, lanes are filled in the order of episodes, empty lanes are zeros, and a fingerprint of the
arithmetic is kept: results are equal wherever the fingerprint is. In bfloat16 large networks are faster, and further
from those that the lanes kernel plays.
"""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING, Any

import numpy as np
from llvmlite import binding
from numba import njit
from numpy.typing import NDArray

from evo import devices
from evo.errors import ConfigurationError
from evo.policies.keras_network import build_keras, set_weights
from evo.records import WORST, Choose, Result, Segment, Task
from evo.rollouts.episodes import RULES, choose
from evo.rollouts.plain import play_plainly
from evo.rollouts.rollout import check_arithmetic, empty_result
from evo.weights import PublishedFiles, Rebuilder, noise
from snake import kernel_cache, observe
from snake.batch import make_boards, reset_board, step_board

if TYPE_CHECKING:
    from collections.abc import Mapping

    from evo.rollouts.rollout import Rollout, Scorer

kernel_cache.use(__name__)

BATCH = 32  # boards in a forward pass: part of the fingerprint
GOLDEN = 64  # states


class TensorFlowPlayer:
    """Plays with Keras's form of the network; DeviceError where the pinned device is not the one that is seen."""

    def __init__(self, rollout: Rollout, files: PublishedFiles, workers: Mapping[str, Any]) -> None:
        self.network, self.environment = rollout.network, rollout.environment
        self._files, self._rebuilder = files, Rebuilder(self.network)
        threads = int(workers.get("threads", 1))
        device = devices.claim(workers.get("memory", "growth"), int(workers.get("memory_limit_mb", 0)), threads)
        self._forward, self._model = _compile(self.network)
        self._weights = np.empty(self.network.size, np.float32)
        self._x = np.zeros((BATCH, *self.network.shape), np.float32)
        self._compiled = hasattr(self.environment, "rules")
        self.fingerprint = self._describe(device, threads)

    def play(self, task: Task) -> Result:
        """Return what each candidate of `task` did; ConfigurationError where it asks for steps to learn from."""
        check_arithmetic()
        if isinstance(task.play, Segment) or task.record:
            raise ConfigurationError(
                'policy.inference: "tensorflow" plays whole episodes and brings back no steps; use "lanes"'
            )
        parents = self._files.matrix(task.weights.published, self.network.size)
        seeds = task.play.seeds
        arrays = empty_result(len(task.weights), len(seeds), len(self.environment.measures))
        frames = slots = 0
        traces: list[NDArray[np.generic]] = []
        for k in range(len(task.weights)):
            self._rebuilder.rebuild(parents, task.weights, k, self._weights)
            one = {name: array[k] for name, array in arrays.items() if name != "finite"}
            trace: list[NDArray[np.generic]] = [np.empty(0, np.int8)] * len(seeds)
            if np.isfinite(self._weights).all():
                set_weights(self._model, self.network, self._weights)
                if self._compiled:
                    played, used, finite, actions = play_snake(self._scores, self.environment, seeds, task.choose, one)
                else:
                    played, used, finite, actions = play_plainly(self.score, self.environment, seeds, task.choose, one)
                frames, slots = frames + played, slots + used
                arrays["finite"][k] = finite
                trace = actions if finite else trace
            if not arrays["finite"][k]:
                arrays["returns"][k], arrays["lengths"][k], arrays["measures"][k] = WORST, 0, 0
            traces += trace
        return Result(**arrays, frames=frames, slots=slots, actions=tuple(traces) if task.trace else None)

    def score(self, observations: NDArray[np.float32]) -> NDArray[np.float32]:
        """Return the scores of the candidate whose weights were set last.  # [E, ...] -> [E, A]"""
        out = np.empty((len(observations), self.network.outputs), np.float32)
        for start in range(0, len(observations), BATCH):
            part = observations[start : start + BATCH].reshape(-1, *self.network.shape)
            self._x[: len(part)], self._x[len(part) :] = part, 0
            out[start : start + BATCH] = self._scores(self._x)[: len(part)]
        return out

    def _scores(self, observations: NDArray[np.float32]) -> NDArray[np.float32]:
        scores: NDArray[np.float32] = self._forward(observations).numpy()
        return scores

    def _describe(self, device: str, threads: int) -> str:
        """Return the fingerprint: what computes, and a digest of its scores of known states by known weights."""
        import keras
        import tensorflow as tf

        self._rebuilder.fresh(np.uint64(1), self._weights)
        set_weights(self._model, self.network, self._weights)
        states = np.empty((GOLDEN, *self.network.shape), np.float32)
        noise(np.uint64(2), states.reshape(-1))
        digest = hashlib.sha256(self.score(states).tobytes()).hexdigest()[:16]
        machine = binding.get_host_cpu_name() if device == "CPU" else device
        versions = f"tensorflow {tf.__version__}, keras {keras.__version__}"
        return f"{versions}, {device} {machine}, {threads} threads, batch {BATCH}, scores {digest}"


def play_snake(
    score: Scorer, environment: Any, seeds: NDArray[np.uint64], how: Choose, one: dict[str, NDArray[Any]]
) -> tuple[int, int, bool, list[NDArray[np.generic]]]:
    """Play every episode of Snake, BATCH at a time, asking `score` for a full batch each step; fill in `one`.

    Returns (frames, slots, finite, actions of each episode).
    """
    observation, masked = environment.codes
    boards = make_boards(BATCH, environment.options.size)
    batch = np.empty((BATCH, *environment.shape), np.float32)
    episode = np.full(BATCH, -1)  # that each lane plays, -1: none
    actions = np.zeros(BATCH, np.int8)
    steps: list[tuple[NDArray[np.int64], NDArray[np.int8]]] = []
    one["returns"][:] = 0
    begun = _begin(boards, environment.rules, seeds, episode, 0)
    frames = slots = 0
    while (episode >= 0).any():
        observe.observe_many(boards, environment.rules, observation, batch)
        batch[episode < 0] = 0
        steps.append((episode.copy(), actions))
        played = _advance(
            boards, environment.rules, masked, score(batch), RULES[how.rule], how.epsilon, seeds, episode,
            one["returns"], one["lengths"], one["measures"], actions,
        )  # fmt: skip
        slots += BATCH
        if played < 0:
            return frames, slots, False, []
        frames, actions = frames + played, np.zeros(BATCH, np.int8)
        begun = _begin(boards, environment.rules, seeds, episode, begun)
    traces: list[list[int]] = [[] for _ in seeds]
    for playing, chosen in steps:
        for e, action in zip(playing, chosen, strict=True):
            if e >= 0:
                traces[e].append(action)
    return frames, slots, True, [np.array(trace, np.int8) for trace in traces]


def warm_up(environment: Any) -> None:
    """Compile what plays Snake, or load it from the cache, without a network and without TensorFlow."""
    if hasattr(environment, "rules"):
        one = {name: array[0] for name, array in empty_result(1, 1, len(environment.measures)).items()}
        scores = np.zeros((BATCH, environment.actions), np.float32)
        play_snake(lambda _: scores, environment, np.zeros(1, np.uint64), Choose(), one)
        noise(np.uint64(0), np.empty(1, np.float32))


def _compile(network: Any) -> tuple[Any, Any]:
    import tensorflow as tf

    model = build_keras(network, network.options.dtype, learns=False)
    if not all(isinstance(variable.value, tf.Variable) for variable in model.weights):
        raise ConfigurationError('policy.inference: "tensorflow" needs KERAS_BACKEND=tensorflow in the environment')

    @tf.function(input_signature=[tf.TensorSpec((BATCH, *network.shape), tf.float32)])  # type: ignore[untyped-decorator]
    def forward(observations: Any) -> Any:
        return model(observations, training=False)

    return forward, model


@njit(cache=True, error_model="numpy")
def _begin(boards, rules, seeds, episode, begun):  # type: ignore[no-untyped-def]
    """Start the next episodes on free lanes, the lowest lane first; return how many have begun so far."""
    for lane in range(episode.shape[0]):
        if episode[lane] < 0 and begun < seeds.shape[0]:
            reset_board(boards, rules, lane, seeds[begun])
            episode[lane] = begun
            begun += 1
    return begun


@njit(cache=True, error_model="numpy")
def _advance(boards, rules, masked, scores, rule, epsilon, seeds, episode, returns, lengths, measures, actions):  # type: ignore[no-untyped-def]
    """Choose and play one action on every lane that has an episode; return how many, or -1 for a score not finite.

    `scores` [B, A]; a lane whose episode ends becomes free, and its row of `lengths` and `measures` is written.
    """
    allowed = np.ones(scores.shape[1], np.int8)
    played = 0
    for lane in range(episode.shape[0]):
        e = episode[lane]
        if e < 0:
            continue
        if masked:
            observe.mask(boards, rules, masked, lane, allowed)
        action = choose(scores[lane], 1, 0, allowed, rule, epsilon, seeds[e], boards.steps[lane])
        if action < 0:
            return -1
        actions[lane] = action
        reward, status = step_board(boards, rules, lane, action)
        played += 1
        returns[e] += reward
        if status != 0:
            lengths[e] = boards.steps[lane]
            length = np.int64(boards.length[lane])
            measures[e, 0] = length - rules.start_length
            measures[e, 1] = 1 if length == rules.size * rules.size else 0
            measures[e, 2] = 1 if status == 2 else 0
            episode[lane] = -1
    return played
