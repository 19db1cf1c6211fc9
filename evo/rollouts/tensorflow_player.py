"""Play tasks with the network in TensorFlow, on the one device that this process is pinned to.

TensorFlow's sums depend on the size of the batch, the number of threads and the machine. So every forward pass has
one fixed batch shape, lanes are filled in the order of episodes, empty lanes are zeros, and a fingerprint of the
arithmetic is kept: results are equal wherever the fingerprint is. In bfloat16 large networks are faster, and further
from those that the lanes kernel plays.
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

from evo.errors import ConfigurationError, DeviceError, DeviceMemoryError
from evo.networks.batched import BatchedNetworks
from evo.networks.candidates import Rebuilder, noise
from evo.networks.keras_form import build_keras, set_weights
from evo.records import WORST, ActionRule, Player, Result, Segment, Task, empty_result
from evo.rollouts.gymnasium_episodes import Recorder, play_gymnasium
from evo.rollouts.published_weights import PublishedFiles
from evo.rollouts.replay import replay_episodes
from evo.rollouts.rollout import check_arithmetic
from evo.rollouts.tensorflow_episodes import play_episodes
from evo.rollouts.tensorflow_segments import play_segment
from evo.workers import devices
from evo.workers.placement import NETWORKS_PER_CALL

if TYPE_CHECKING:
    from evo.environment import Environment
    from evo.networks.network import Network
    from evo.rollouts.rollout import Rollout
    from evo.workers.options import WorkersOptions

BATCH = 32  # observations of a network in a forward pass: part of the fingerprint
GOLDEN = 64  # observations of the fingerprint


class TensorFlowPlayer(Player):
    """Plays with TensorFlow, one network a call or many; DeviceError where another device is seen than is pinned.

    Where a device's memory does not hold so many networks in a call, it computes half as many, if that changes no bit.
    DeviceMemoryError: it would, or one network is too much.
    """

    def __init__(self, rollout: Rollout, files: PublishedFiles, workers: WorkersOptions) -> None:
        self.network, self.environment = rollout.network, rollout.environment
        self._files, self._rebuilder = files, Rebuilder(self.network)
        self._threads = workers.threads
        self.device = devices.claim(workers)
        self._game = self.environment.game
        asked = workers.candidates_per_call or (1 if self.device == "CPU" else NETWORKS_PER_CALL)
        self._networks: Alone | BatchedNetworks | None = None
        self._side_by_side = asked > 1 and self._game is not None
        self.fingerprint = ""
        self._hold(asked if self._side_by_side else 1)
        self._notice_if_fewer(asked)

    @property
    def candidates_per_call(self) -> int:
        """Return how many candidates are computed in a call now."""
        assert self._networks is not None
        return self._networks.networks

    def play(self, task: Task) -> Result:
        """Return what each candidate of `task` did, and the transitions of one candidate where they are asked for."""
        check_arithmetic()
        parents = self._files.matrix(task.weights.published, self.network.size)
        if isinstance(task.play, Segment) or task.record_transitions:
            return self._play_recorded(task, parents)
        arrays = empty_result(len(task.weights), len(task.play.seeds), len(self.environment.episode_metrics))
        frames = slots = first = 0
        traces: list[NDArray[np.generic]] = []
        while first < len(task.weights):
            count = min(self.candidates_per_call, len(task.weights) - first)
            weights = np.zeros((self.candidates_per_call, self.network.size), np.float32)
            for k in range(count):
                self._rebuilder.rebuild(parents, task.weights, first + k, weights[k])
            here = {name: array[first : first + count] for name, array in arrays.items()}
            here["finite"][:] = np.isfinite(weights[:count]).all(1)
            weights[:count][~here["finite"]] = 0
            try:
                with _memory_of(self.device):
                    played, used, actions = self._play(
                        weights, task.play.seeds, task.action_rule, here, task.record_actions
                    )
            except DeviceMemoryError as short:
                self._halve(short)
                continue
            worst = ~here["finite"]
            here["returns"][worst], here["lengths"][worst], here["episode_metrics"][worst] = WORST, 0, 0
            empty = np.empty(0, np.int8)
            traces += [a if here["finite"][i // len(task.play.seeds)] else empty for i, a in enumerate(actions)]
            frames, slots, first = frames + played, slots + used, first + count
        return Result(**arrays, frames=frames, lane_slots=slots, actions=tuple(traces) if task.record_actions else None)

    def _play_recorded(self, task: Task, parents: NDArray[np.float32]) -> Result:
        """Record a segment, or whole episodes through Gymnasium's interface; ValueError for several candidates."""
        if len(task.weights) != 1:
            raise ValueError("transitions are recorded of one candidate")
        assert self._networks is not None
        weights = np.zeros((self._networks.networks, self.network.size), np.float32)
        self._rebuilder.rebuild(parents, task.weights, 0, weights[0])
        self._networks.set(weights)
        how = task.action_rule
        with _memory_of(self.device):
            if isinstance(task.play, Segment):
                if self._game is None:
                    raise ValueError("a segment is played in a compiled game")
                return play_segment(self.score, self._game, task.play, self.network.outputs, how)
            seeds, arrays = (
                task.play.seeds,
                empty_result(1, len(task.play.seeds), len(self.environment.episode_metrics)),
            )
            one = {name: arrays[name][0] for name in ("returns", "lengths", "episode_metrics")}
            recorder = Recorder(self.environment, len(seeds))
            frames, slots, finite, traces = play_gymnasium(self.score, self.environment, seeds, how, one, recorder)
            steps = recorder.transitions(self.score) if finite else None
        if steps is not None and not (np.isfinite(steps.outputs).all() and np.isfinite(steps.next_outputs).all()):
            finite, steps = False, None
        if steps is not None and self._game is not None:  # as the other players record a compiled game
            shown = replay_episodes(self._game, seeds, traces)
            steps = replace(shown, outputs=steps.outputs, next_outputs=steps.next_outputs)
        arrays["finite"][0] = finite
        if not finite:
            arrays["returns"][0], arrays["lengths"][0], arrays["episode_metrics"][0] = WORST, 0, 0
            traces = [np.empty(0, np.int8)] * len(seeds)
        actions = tuple(traces) if task.record_actions else None
        return Result(**arrays, frames=frames, lane_slots=slots, actions=actions, transitions=steps)

    def score(self, observations: NDArray[np.float32]) -> NDArray[np.float32]:
        """Return the outputs of the first candidate of those whose weights were set last.  # [E, ...] -> [E, O]"""
        assert self._networks is not None
        out = np.empty((len(observations), self.network.outputs), np.float32)
        for start in range(0, len(observations), BATCH):
            part = observations[start : start + BATCH].reshape(-1, *self.network.shape)
            x = np.zeros((self._networks.networks, BATCH, *self.network.shape), np.float32)
            x[:, : len(part)] = part
            out[start : start + BATCH] = self._networks(x)[0, : len(part)]
        return out

    def _play(
        self,
        weights: NDArray[np.float32],
        seeds: NDArray[np.uint64],
        how: ActionRule,
        here: dict[str, NDArray[Any]],
        trace: bool,
    ) -> tuple[int, int, list[Any]]:
        """Play the candidates with these weights and fill in `here`; return (frames, slots, actions if traced)."""
        assert self._networks is not None
        here["returns"][:], here["lengths"][:], here["episode_metrics"][:] = WORST, 0, 0
        self._networks.set(weights)
        if self._game is not None:
            batch = self._networks.networks, BATCH
            return play_episodes(self._networks, self._game, seeds, how, here["finite"], here, batch, trace)
        if not here["finite"][0]:
            return 0, 0, [np.empty(0, np.int8)] * len(seeds)
        one = {name: here[name][0] for name in ("returns", "lengths", "episode_metrics")}
        frames, slots, finite, actions = play_gymnasium(self.score, self.environment, seeds, how, one)
        here["finite"][0] = finite
        return frames, slots, actions or [np.empty(0, np.int8)] * len(seeds)

    def _hold(self, networks: int) -> None:
        """Hold so many networks in a call, or half as many until they fit, and set the fingerprint."""
        self._networks = None  # so that its memory is free
        try:
            with _memory_of(self.device):
                if self._side_by_side:
                    self._networks = BatchedNetworks(self.network, networks, BATCH)
                else:
                    self._networks = Alone(self.network)
                fingerprint = self._describe()
        except DeviceMemoryError:
            if networks == 1:
                raise
            self._hold(networks // 2)
            return
        if self.fingerprint and fingerprint != self.fingerprint:
            raise DeviceMemoryError(
                f"its memory holds no more than {networks} networks in a call, which have other bits than more of them"
            )
        self.fingerprint = fingerprint

    def _halve(self, short: DeviceMemoryError) -> None:
        before = self.candidates_per_call
        if before == 1:
            raise short
        self._hold(before // 2)
        self._notice_if_fewer(before)

    def _notice_if_fewer(self, before: int) -> None:
        if self._side_by_side and (now := self.candidates_per_call) < before:
            text = f"memory is short, so it computes {now} networks in a call, not {before}"
            self.notices = (*self.notices, text)

    def _describe(self) -> str:
        """Return the fingerprint: what computes, and a digest of its scores of known states by known weights."""
        import keras
        import tensorflow as tf

        assert self._networks is not None
        weights = np.empty(self.network.size, np.float32)
        self._rebuilder.fresh(np.uint64(1), weights)
        self._networks.set(np.broadcast_to(weights, (self._networks.networks, self.network.size)))
        states = np.empty((GOLDEN, *self.network.shape), np.float32)
        noise(np.uint64(2), states.reshape(-1))
        batches = states.reshape(-1, 1, BATCH, *self.network.shape)
        shape = (self._networks.networks, BATCH, *self.network.shape)
        scores = np.concatenate([self._networks(np.broadcast_to(batch, shape)) for batch in batches], 1)
        bits = scores.reshape(len(scores), -1).view(np.uint32)
        if (bits != bits[0]).any():  # then a network's results would depend on the others of its task
            raise DeviceError(
                f"{self.device} gives a network other bits by its place among the {len(bits)} of a call; set "
                "workers.candidates_per_call = 1"
            )
        digest = hashlib.sha256(bits[:1].tobytes()).hexdigest()[:16]
        machine = binding.get_host_cpu_name() if self.device == "CPU" else self.device
        versions = f"tensorflow {tf.__version__}, keras {keras.__version__}"
        how = f"batch {BATCH}" + (", side by side" if self._side_by_side else "")
        return f"{versions}, {self.device} {machine}, {self._threads} threads, {how}, scores {digest}"


class Alone:
    """Keras's form of one network, behind the calls of `BatchedNetworks`."""

    networks = 1

    def __init__(self, network: Network) -> None:
        import tensorflow as tf

        self._network, self._model = network, build_keras(network, network.options.dtype, learns=False)
        model = self._model
        if not all(isinstance(variable.value, tf.Variable) for variable in model.weights):
            raise ConfigurationError('policy.inference: "tensorflow" needs KERAS_BACKEND=tensorflow in the environment')
        signature = [tf.TensorSpec((BATCH, *network.shape), tf.float32)]
        self._call = tf.function(lambda x: model(x, training=False), input_signature=signature)

    def set(self, weights: NDArray[np.float32]) -> None:
        """Take these weights.  # [1, P]"""
        set_weights(self._model, self._network, weights[0])

    def __call__(self, observations: NDArray[np.float32]) -> NDArray[np.float32]:
        """Return the outputs.  # [1, B, ...] -> [1, B, O]"""
        scores: NDArray[np.float32] = self._call(observations[0]).numpy()
        return scores[None]


def warm_up(environment: Environment) -> None:
    """Compile what plays a game, or load it from the cache, without a network and without TensorFlow."""
    if (game := environment.game) is not None:
        arrays = empty_result(1, 1, len(game.episode_metrics))
        scores = np.zeros((1, BATCH, game.actions), np.float32)
        seeds, finite = np.zeros(1, np.uint64), np.ones(1, np.bool_)
        play_episodes(lambda _: scores, game, seeds, ActionRule(), finite, arrays, (1, BATCH))
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
