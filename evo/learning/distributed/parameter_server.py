"""A learner whose weights are on a parameter server, and whose gradients come from workers that may be killed.

With no staleness an update is split over the workers and waits for all of them. A gradient has no side effect, so one
that is lost with its worker is computed again by another, and the result is the same. With staleness, that many more
updates are in flight, each computed by one worker from weights that other updates change (Dean et al., 2012). Every
update is applied once, in order.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from functools import cache
from typing import TYPE_CHECKING, Any

import numpy as np

from evo.learning.distributed.replicas import ReplicatedLearner
from evo.learning.learner import Loss, Rows, Values
from evo.networks.network import Network

if TYPE_CHECKING:
    from evo.setup import LearnerOptions


class Served:
    """The workers of a cluster that this process coordinates."""

    def __init__(self) -> None:
        import tensorflow as tf

        resolver = tf.distribute.cluster_resolver.TFConfigClusterResolver()
        strategy = tf.distribute.ParameterServerStrategy(resolver)
        self.scope: Callable[[], AbstractContextManager[Any]] = strategy.scope  # of the parameter server
        self.coordinator = tf.distribute.coordinator.ClusterCoordinator(strategy)
        self.names = [f"worker {i}" for i in range(resolver.cluster_spec().num_tasks("worker"))]


@cache
def served() -> Served:
    """Return the cluster that this process joins once."""
    return Served()


class ServedLearner(ReplicatedLearner):
    """The learner of the process that coordinates the others."""

    def __init__(self, network: Network, options: LearnerOptions, loss: Loss, max_gradient_norm: float = 0.0) -> None:
        super().__init__(network, options, loss, max_gradient_norm)
        self._in_flight: deque[tuple[list[Any], float]] = deque()
        self._names: list[str] = []
        self._gradients_of: Any = None
        self._applied: Any = None

    def _found(self) -> Any:
        return served()

    def update(self, rows: Rows, learning_rate: float, settings: Mapping[str, float]) -> Values:
        """Update the weights as `Learner.update`, and wait for it."""
        self.schedule(rows, learning_rate, settings)
        return self.collect()

    def schedule(self, rows: Rows, learning_rate: float, settings: Mapping[str, float]) -> None:
        """Start to compute the gradient of a batch: on all workers, or with staleness on one of them."""
        import tensorflow as tf

        if self._gradients_of is None:
            self._gradients_of = tf.function(self._computed, autograph=False, reduce_retracing=True)
        sharing = 1 if self.options.staleness else self.devices
        shares = np.array_split(np.arange(len(rows)), sharing)
        part = self._part_of(len(shares[0]))
        blank = tf.zeros(len(rows))
        scalars = {name: tf.constant(value, tf.float32) for name, value in settings.items()}
        jobs = []
        for places in shares:
            share = {key: tf.constant(array) for key, array in self._share(rows, places, part).items()}
            arguments = (share, blank, scalars)
            jobs.append((arguments, served().coordinator.schedule(self._gradients_of, args=arguments)))
        self._in_flight.append((jobs, learning_rate))

    def collect(self) -> Values:
        """Wait for the gradient that was scheduled first, and update the weights by it."""
        import tensorflow as tf

        if self._applied is None:
            self._applied = tf.function(self._clip_and_apply, autograph=False)
        jobs, learning_rate = self._in_flight.popleft()
        fetched = [self._fetched(*job) for job in jobs]
        *gradients, values = [sum(tensors[1:], tensors[0]) for tensors in zip(*fetched, strict=True)]
        norm = self._applied(
            [[tf.constant(gradient)] for gradient in gradients],
            tf.constant(self._rate(learning_rate), tf.float32),
            tf.constant(self._count(), tf.float32),
        )
        return self._finite(dict(zip(self._names, values, strict=True)), norm)

    def _fetched(self, arguments: Any, future: Any) -> Any:
        """Return the gradients of a share; where its worker died, those of another worker."""
        import tensorflow as tf

        for _ in range(2 * self.devices):
            try:
                return future.fetch()
            except (tf.errors.UnavailableError, tf.errors.AbortedError, tf.errors.CancelledError):
                future = served().coordinator.schedule(self._gradients_of, args=arguments)
        return future.fetch()

    def _computed(self, share: Any, blank: Any, settings: Any) -> list[Any]:
        gradients, self._names, values = self._gradients_of_share(share, blank, settings)
        return [*gradients, values]
