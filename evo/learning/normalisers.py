"""Running means and deviations that bring observations and rewards to a common scale."""

from __future__ import annotations

import numpy as np
from numba import njit
from numpy.typing import NDArray

from evo.compiled import cache as kernel_cache
from evo.compiled.functions import product
from evo.errors import ConfigurationError
from evo.networks.network import Network
from evo.records import TERMINATED, TRUNCATED, Arrays

kernel_cache.use(__name__)

SUMS = "reward_sums"  # prefix of discounted sums in a checkpoint

SMALLEST = 1e-4  # a quantity of a smaller deviation is constant, and is not scaled


class Moments:
    """Count, mean and variance of all values so far, merged batch by batch (Chan et al., 1979)."""

    def __init__(self, size: int) -> None:
        self.count, self.mean, self.variance = 0.0, np.zeros(size), np.ones(size)

    def add(self, values: NDArray[np.floating]) -> None:
        """Add a batch.  # [M, size]"""
        count = len(values)
        mean, variance = values.mean(axis=0, dtype=np.float64), values.var(axis=0, dtype=np.float64)
        total, away = self.count + count, mean - self.mean
        squares = self.variance * self.count + variance * count + away**2 * (self.count * count / total)
        self.mean, self.variance, self.count = self.mean + away * (count / total), squares / total, total

    @property
    def deviation(self) -> NDArray[np.float64]:
        """Return the standard deviation, 1 where values are constant.  # [size]"""
        deviation = np.sqrt(self.variance)
        return np.asarray(np.where(deviation < SMALLEST, 1.0, deviation))

    def state(self) -> NDArray[np.float64]:
        """Return count, means and variances.  # [1 + 2 size]"""
        return np.concatenate([[self.count], self.mean, self.variance])

    def restore(self, state: NDArray[np.float64]) -> None:
        """Take a state that `state` returned."""
        self.count, (self.mean, self.variance) = float(state[0]), np.split(np.array(state[1:], np.float64), 2)


class ObservationNormaliser:
    """Observations less their mean, over their deviation.

    The learner's network expects them normalised. `fold` moves the normalisation into the weights of the first layer,
    so that players give observations as they are.
    """

    def __init__(self, network: Network) -> None:
        """Prepare for a network; ConfigurationError where its first layer is neither dense nor recurrent.

        The padding of a convolution is 0, and codes and pools are of values as they are.
        """
        if network.parts or (network.layers[0].kind != "dense" and not network.layers[0].gates):
            raise ConfigurationError(
                'normalise_observations: needs a first layer that is dense or recurrent, as in policy.kind = "mlp", '
                "and no policy.inputs; or use environment.normalise"
            )
        self.network, self.moments = network, Moments(int(np.prod(network.shape)))

    def apply(self, observations: NDArray[np.float32]) -> NDArray[np.float32]:
        """Return normalised observations.  # [M, ...]"""
        flat = observations.reshape(len(observations), -1)
        normalised = (flat - self.moments.mean) / self.moments.deviation
        return normalised.astype(np.float32).reshape(observations.shape)

    def fold(self, weights: NDArray[np.float32]) -> NDArray[np.float32]:
        """Return weights [P] that map observations as `weights` map normalised ones."""
        folded = weights.copy()
        kernel, bias = self._first(folded)
        scaled = kernel.astype(np.float64) / self.moments.deviation[:, None]
        bias -= product(self.moments.mean, scaled).astype(np.float32)
        kernel[:] = scaled
        return folded

    def unfold(self, weights: NDArray[np.float32]) -> NDArray[np.float32]:
        """Return weights [P] that map normalised observations as `weights` map raw ones, up to rounding."""
        out = weights.copy()
        kernel, bias = self._first(out)
        bias += product(self.moments.mean, kernel.astype(np.float64)).astype(np.float32)
        kernel[:] = kernel * self.moments.deviation[:, None]
        return out

    def _first(self, weights: NDArray[np.float32]) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
        """Return views of the first layer's kernel and the bias of its sums over the inputs."""
        arrays = dict(zip(self.network.layers[0].arrays, self.network.split(weights), strict=False))
        bias = arrays["bias"]
        return arrays["kernel"], bias if bias.ndim == 1 else bias[0]


class RewardNormaliser:
    """Rewards over the standard deviation of their discounted sums, which go on across segments."""

    def __init__(self, gamma: float, envs: int) -> None:
        """Prepare for `envs` environments; whole episodes are those of one, in order."""
        self._gamma, self.moments = gamma, Moments(1)
        self._envs, self._sums = envs, {0: np.zeros(envs)}  # by `Setup.slot`

    def apply(self, rewards: NDArray[np.float32], ends: NDArray[np.uint8], slot: int = 0) -> NDArray[np.float32]:
        """Return rewards on the scale of all so far; those of an environment stand together.  # both [M]

        `slot` says of which set of environments they are.
        """
        sums = np.empty(len(rewards))
        _discounted_sums(rewards, ends, self._gamma, self._sums.setdefault(slot, np.zeros(self._envs)), sums)
        self.moments.add(sums[:, None])
        return np.asarray(rewards / self.moments.deviation[0], np.float32)

    def sums_by_name(self) -> dict[str, NDArray[np.float64]]:
        """Return the discounted sums of every set of environments, by their names in a checkpoint."""
        return {f"{SUMS}{slot or ''}": sums for slot, sums in self._sums.items()}

    def restore_sums(self, state: Arrays) -> None:
        """Go on from the sums that a state has."""
        slots = {int(name[len(SUMS) :] or 0): name for name in state if name.startswith(SUMS)}
        self._sums = {slot: np.array(state[name], np.float64) for slot, name in slots.items()}


@njit(cache=True, error_model="numpy")
def _discounted_sums(rewards, ends, gamma, sums, out):  # type: ignore[no-untyped-def]
    horizon = rewards.shape[0] // sums.shape[0]
    for env in range(sums.shape[0]):
        total = sums[env]
        for t in range(env * horizon, (env + 1) * horizon):
            total = total * gamma + rewards[t]
            out[t] = total
            if ends[t] == TERMINATED or ends[t] == TRUNCATED:
                total = 0.0
        sums[env] = total
