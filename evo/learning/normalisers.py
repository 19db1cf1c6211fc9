"""Running means and deviations by which observations and rewards are brought to a common scale."""

from __future__ import annotations

import numpy as np
from numba import njit
from numpy.typing import NDArray

from evo.compiled import cache as kernel_cache
from evo.errors import ConfigurationError
from evo.networks.network import Network
from evo.records import TERMINATED, TRUNCATED

kernel_cache.use(__name__)

SMALLEST = 1e-4  # deviation: a number that never changes is left as it is


class Moments:
    """Count, mean and variance of all that was seen, merged batch by batch (Chan et al., 1979)."""

    def __init__(self, size: int) -> None:
        self.count, self.mean, self.variance = 0.0, np.zeros(size), np.ones(size)

    def add(self, values: NDArray[np.floating]) -> None:
        """See a batch.  # [M, size]"""
        count = len(values)
        mean, variance = values.mean(axis=0, dtype=np.float64), values.var(axis=0, dtype=np.float64)
        total, away = self.count + count, mean - self.mean
        squares = self.variance * self.count + variance * count + away**2 * (self.count * count / total)
        self.mean, self.variance, self.count = self.mean + away * (count / total), squares / total, total

    @property
    def deviation(self) -> NDArray[np.float64]:
        """Return the standard deviation, 1 where there is none.  # [size]"""
        deviation = np.sqrt(self.variance)
        return np.asarray(np.where(deviation < SMALLEST, 1.0, deviation))

    def state(self) -> NDArray[np.float64]:
        """Return count, means and variances.  # [1 + 2 size]"""
        return np.concatenate([[self.count], self.mean, self.variance])

    def restore(self, state: NDArray[np.float64]) -> None:
        """Take up what `state` returned."""
        self.count, (self.mean, self.variance) = float(state[0]), np.split(np.array(state[1:], np.float64), 2)


class Observations:
    """What the network learns to see: every number less its mean, over its deviation.

    Players need not know: the same is folded into the weights of the first layer that they are given.
    """

    def __init__(self, network: Network) -> None:
        """ConfigurationError where the first layer is a convolution, whose border cannot be folded."""
        if network.layers[0].kind == "conv":
            raise ConfigurationError(
                'pg.normalise_observations: needs a first layer that is dense, as in policy.kind = "mlp"'
            )
        self.network, self.moments = network, Moments(int(np.prod(network.shape)))

    def apply(self, observations: NDArray[np.float32]) -> NDArray[np.float32]:
        """Return what the learner sees.  # [M, ...]"""
        flat = observations.reshape(len(observations), -1)
        seen = (flat - self.moments.mean) / self.moments.deviation
        return seen.astype(np.float32).reshape(observations.shape)

    def fold(self, weights: NDArray[np.float32]) -> NDArray[np.float32]:
        """Return weights [P] that do with observations what `weights` do with those that `apply` returns."""
        folded = weights.copy()
        kernel, bias = self.network.split(folded)[:2]  # views
        scaled = kernel.astype(np.float64) / self.moments.deviation[:, None]
        bias -= (self.moments.mean @ scaled).astype(np.float32)
        kernel[:] = scaled
        return folded


class Rewards:
    """Rewards over the deviation of their discounted sums, each lane's going on from one segment to the next."""

    def __init__(self, gamma: float, lanes: int = 1) -> None:
        """Where whole episodes are played, one after the other is one lane."""
        self._gamma, self.moments, self.sums = gamma, Moments(1), np.zeros(lanes)

    def apply(self, rewards: NDArray[np.float32], ends: NDArray[np.uint8]) -> NDArray[np.float32]:
        """Return rewards on the scale of all up to these; those of a lane stand together.  # both [M]"""
        sums = np.empty(len(rewards))
        _discounted_sums(rewards, ends, self._gamma, self.sums, sums)
        self.moments.add(sums[:, None])
        return np.asarray(rewards / self.moments.deviation[0], np.float32)


@njit(cache=True, error_model="numpy")
def _discounted_sums(rewards, ends, gamma, lanes, out):  # type: ignore[no-untyped-def]
    horizon = rewards.shape[0] // lanes.shape[0]
    for lane in range(lanes.shape[0]):
        total = lanes[lane]
        for t in range(lane * horizon, (lane + 1) * horizon):
            total = total * gamma + rewards[t]
            out[t] = total
            if ends[t] == TERMINATED or ends[t] == TRUNCATED:
                total = 0.0
        lanes[lane] = total
