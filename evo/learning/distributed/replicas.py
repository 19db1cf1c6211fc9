"""One update on several devices or processes: towers, and the strategies of `tf.distribute`, under one contract.

Every device sums the loss's gradient over its share of the batch, divided by the size of the whole batch; the sums are
added, clipped, and applied once, outside of any replica, to every copy of the weights. (Keras's own clipping, inside of
a replica, would clip each share by itself.) Shares differ by one example at most, and may be empty.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from functools import cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from evo.errors import DeviceError
from evo.lazy import tf
from evo.learning.learner import Loss, Rows, Values
from evo.learning.tensorflow import start_tensorflow
from evo.learning.tensorflow.learner import TensorFlowLearner, scalars
from evo.networks.network import Network
from evo.setup import LearnerOptions
from evo.workers import devices

Share = dict[str, NDArray[Any]]  # a replica's arrays [N, part, ...], and "place" [N, part]: their rows in the batch


class Towers:
    """A loop over devices, of which there may be one; the weights are on the first."""

    def __init__(self, names: Sequence[str]) -> None:
        self.names = names

    def scope(self) -> AbstractContextManager[Any]:
        """Return the first device."""
        device: AbstractContextManager[Any] = tf.device(self.names[0])
        return device

    def distributed(self, share: Callable[[int], Share]) -> Any:
        """Return the shares of all devices."""
        shares = []
        for i, name in enumerate(self.names):
            with tf.device(name):
                shares.append({key: tf.constant(array) for key, array in share(i).items()})
        return shares

    def summed(self, compute: Callable[[Any], list[Any]], shares: Any) -> list[list[Any]]:
        """Call `compute` on every device, backward pass and all, and add up on the first."""
        results = []
        for name, share in zip(self.names, shares, strict=True):
            with tf.device(name):
                results.append(compute(share))
        with tf.device(self.names[0]):
            return [[tf.add_n(tensors)] for tensors in zip(*results, strict=True)]


class Synchronous:
    """A strategy of `tf.distribute` whose replicas wait for each other."""

    def __init__(self, strategy: Any, names: Sequence[str]) -> None:
        self.names = names
        self.scope: Callable[[], AbstractContextManager[Any]] = strategy.scope
        self._strategy = strategy

    def distributed(self, share: Callable[[int], Share]) -> Any:
        """Return the shares as values of replicas."""
        return self._strategy.experimental_distribute_values_from_function(
            lambda replica: {key: tf.constant(a) for key, a in share(replica.replica_id_in_sync_group).items()}
        )

    def summed(self, compute: Callable[[Any], list[Any]], shares: Any) -> list[list[Any]]:
        """Run `compute` in every replica, and reduce."""
        strategy = self._strategy
        tensors = strategy.run(compute, args=(shares,))
        if len(self.names) == 1:
            return [[tensor] for tensor in tensors]
        sums = [strategy.reduce(tf.distribute.ReduceOp.SUM, tensor, axis=None) for tensor in tensors]
        return [list(strategy.experimental_local_results(one)) for one in sums]


class ReplicatedLearner(TensorFlowLearner):
    """A learner on several devices of this process, or of several processes that all call the same methods."""

    def __init__(self, network: Network, options: LearnerOptions, loss: Loss, max_gradient_norm: float = 0.0) -> None:
        """Prepare a learner as `Learner` does; DeviceError where a device is missing."""
        start_tensorflow(options)
        self._replicas: Any = replicas_of(options.strategy, tuple(options.devices))
        self.devices = len(self._replicas.names)
        super().__init__(network, options, loss, max_gradient_norm)
        self._names: list[str] = []  # of a loss's values, in the order of `_share_gradients`
        self._compiled = tf.function(self._step, autograph=False, reduce_retracing=True)

    def _scope(self) -> AbstractContextManager[Any]:
        scope: AbstractContextManager[Any] = self._replicas.scope()
        return scope

    def load(self, data: Mapping[str, NDArray[Any]]) -> None:
        """Keep the arrays that batches are gathered from, each [M, ...], without a copy."""
        self._data = dict(data)

    def _run(self, rows: Rows, *arguments: Any) -> Any:
        """Update by examples of the arrays, on all devices."""
        shares = np.array_split(np.arange(len(rows)), self.devices)
        part = self._part_of(len(shares[0]))
        return self._compiled(self._replicas.distributed(lambda i: self._share(rows, shares[i], part)), *arguments)

    def _share(self, rows: Rows, places: NDArray[np.int64], part: int) -> Share:
        """Return the examples at `places` of the batch, padded to whole parts; padding has no place in the batch."""
        padded = np.full(max(-(-len(places) // part), 1) * part, len(rows), np.int32)
        padded[: len(places)] = places
        chosen = rows[np.where(padded < len(rows), padded, 0)]
        share = {name: array[chosen].reshape(-1, part, *array.shape[1:]) for name, array in self._data.items()}
        return {**share, "place": padded.reshape(-1, part)}

    def _step(self, shares: Any, *arguments: Any) -> Any:
        """Update the weights by a batch; return the values of its examples, and the gradient's norm."""
        blank, rate, powers, settings = arguments
        *gradients, values = self._replicas.summed(lambda share: self._share_gradients(share, blank, settings), shares)
        norm = self._clip_and_apply(gradients, rate, powers)
        return {name: values[0][k] for k, name in enumerate(self._names)}, norm

    def _share_gradients(self, share: Any, blank: Any, settings: Any) -> list[Any]:
        """Return the gradients of a share, and behind them the values of its examples."""
        arrays = {name: array for name, array in share.items() if name != "place"}
        gradients, self._names, values = self._gradients(
            lambda i: {name: array[i] for name, array in arrays.items()}, share["place"], blank, settings
        )
        return [*gradients, values]

    def fingerprint(self) -> str:
        """Return the fingerprint of `TensorFlowLearner`, with the strategy and its devices."""
        return f"{super().fingerprint()}, {self.options.strategy} on {', '.join(self._replicas.names)}"


class Served:
    """The workers of a cluster that this process coordinates."""

    def __init__(self) -> None:
        resolver = tf.distribute.cluster_resolver.TFConfigClusterResolver()
        strategy = tf.distribute.ParameterServerStrategy(resolver)
        self.scope: Callable[[], AbstractContextManager[Any]] = strategy.scope  # of the parameter server
        self.coordinator = tf.distribute.coordinator.ClusterCoordinator(strategy)
        self.names = [f"worker {i}" for i in range(resolver.cluster_spec().num_tasks("worker"))]


@cache
def replicas_of(strategy: str, wanted: tuple[str, ...]) -> Towers | Synchronous | Served:
    """Return the replicas of a strategy on these devices: all GPUs, or else all CPUs, where none is named.

    A process joins the cluster of a strategy once, and waits until all are there.
    """
    if strategy == "parameter-server":
        return Served()
    if strategy == "multiworker":
        made = tf.distribute.MultiWorkerMirroredStrategy()
        return Synchronous(made, [f"worker {i}" for i in range(made.num_replicas_in_sync)])
    names = present(wanted)
    if strategy in ("one", "towers"):
        return Towers(names)
    if strategy == "central":
        made = tf.distribute.experimental.CentralStorageStrategy(compute_devices=names, parameter_device=names[0])
        return Synchronous(made, names)
    return Synchronous(tf.distribute.MirroredStrategy(names), names)


def present(wanted: Sequence[str]) -> list[str]:
    """Return the names of these devices in TensorFlow; DeviceError where one is missing.

    TensorFlow itself takes any name, and then waits for a missing device forever.
    """
    there = {kind: [f"{kind}:{i}" for i in range(len(tf.config.list_logical_devices(kind)))] for kind in ("GPU", "CPU")}
    known = there["GPU"] + there["CPU"]
    missing = [name for name in wanted if name not in known]
    if missing:
        hint = "; learner.logical_cpus divides the CPU" if any("CPU" in name for name in missing) else ""
        hint += devices.LIBRARIES if any("GPU" in name for name in missing) and not there["GPU"] else ""
        raise DeviceError(f"learner.devices: {', '.join(missing)} missing; this process sees {', '.join(known)}{hint}")
    return [f"/{name}" for name in wanted or there["GPU"] or there["CPU"]]


class ServedLearner(ReplicatedLearner):
    """A learner whose weights are on a parameter server, and whose gradients come from workers that may be killed.

    With no staleness an update is split over the workers and waits for all of them. A gradient has no side effect, so
    one that is lost with its worker is computed again by another, and the result is the same. With staleness, that many
    more updates are in flight, each computed by one worker from weights that other updates change (Dean et al., 2012).
    Every update is applied once, in order.
    """

    def __init__(self, network: Network, options: LearnerOptions, loss: Loss, max_gradient_norm: float = 0.0) -> None:
        super().__init__(network, options, loss, max_gradient_norm)
        self._in_flight: deque[tuple[list[Any], float]] = deque()
        self._gradients_of = tf.function(self._share_gradients, autograph=False, reduce_retracing=True)
        self._applied = tf.function(self._clip_and_apply, autograph=False)

    def update(self, rows: Rows, learning_rate: float, settings: Mapping[str, float]) -> Values:
        """Update the weights as `Learner.update`, and wait for it."""
        self.schedule(rows, learning_rate, settings)
        return self.collect()

    def schedule(self, rows: Rows, learning_rate: float, settings: Mapping[str, float]) -> None:
        """Start to compute the gradient of a batch: on all workers, or with staleness on one of them."""
        sharing = 1 if self.options.staleness else self.devices
        shares = np.array_split(np.arange(len(rows)), sharing)
        part = self._part_of(len(shares[0]))
        jobs = []
        for places in shares:
            share = {key: tf.constant(array) for key, array in self._share(rows, places, part).items()}
            arguments = (share, tf.zeros(len(rows)), scalars(settings))
            jobs.append((arguments, self._scheduled(arguments)))
        self._in_flight.append((jobs, learning_rate))

    def collect(self) -> Values:
        """Wait for the gradient that was scheduled first, and update the weights by it."""
        jobs, learning_rate = self._in_flight.popleft()
        fetched = [self._fetched(*job) for job in jobs]
        *gradients, values = [sum(tensors[1:], tensors[0]) for tensors in zip(*fetched, strict=True)]
        norm = self._applied([[tf.constant(gradient)] for gradient in gradients], *self._numbers(learning_rate))
        return self._finite(dict(zip(self._names, values, strict=True)), norm)

    def _fetched(self, arguments: Any, future: Any) -> Any:
        """Return the gradients of a share; where its worker died, those of another worker."""
        for _ in range(2 * self.devices):
            try:
                return future.fetch()
            except (tf.errors.UnavailableError, tf.errors.AbortedError, tf.errors.CancelledError):
                future = self._scheduled(arguments)
        return future.fetch()

    def _scheduled(self, arguments: Any) -> Any:
        return self._replicas.coordinator.schedule(self._gradients_of, args=arguments)
