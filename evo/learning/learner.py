"""What a learner is: a network's weights, Adam's moments, and updates by batches of examples; losses; observations."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from math import prod
from typing import TYPE_CHECKING, Any, ClassVar, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from evo.compiled.views import aligned
from evo.errors import ResourceError
from evo.lazy import tf
from evo.networks.network import Network
from evo.records import Arrays, Metrics

if TYPE_CHECKING:
    from evo.environments.spaces import Pixels
    from evo.games.contract import CompiledGame

Values = dict[str, NDArray[np.float32]]
Rows = NDArray[np.int32]

BETAS = (0.9, 0.999)  # of Adam
EPSILON = 1e-5
PART = 4096  # observations that a thread rebuilds, at least


# Outputs [B, O], the batch's arrays [B, ...] and the settings' scalars, all tensors, to named values of every example
# [B] float32. The gradient is of "loss"; other values are returned too (an error, an entropy).
Loss = Callable[[Any, Mapping[str, Any], Mapping[str, Any]], Mapping[str, Any]]


@dataclass(frozen=True)
class KnownLoss:
    """A loss whose derivatives `exact.losses` has; those that TensorFlow may differentiate are stated by `__call__`."""

    # Its learner has a target network: "kept", for the method to use, or "read", as the learner bootstraps from it.
    target_network: ClassVar[Literal["", "kept", "read"]] = ""

    actions: int  # number of actions, or their dimensions

    def __call__(self, outputs: Any, batch: Mapping[str, Any], settings: Mapping[str, Any]) -> Mapping[str, Any]:
        """Return "loss" and other values, [B] each, in TensorFlow; NotImplementedError: it is learned exactly alone."""
        raise NotImplementedError


@dataclass(frozen=True)
class PolicyLoss(KnownLoss):
    """The loss of an actor-critic; its values are "loss", "policy_loss", "value_loss", "entropy" and "approx_kl".

    A batch has "actions" [B] or [B, D], "advantages", "returns", and of the policy that acted "values" and
    "log_probabilities" [B]; "action_masks" [B, A] bool where the environment has them. Settings:
    "entropy_coefficient" and "value_coefficient", of PPO "clip_range" and "value_clip_range" too.
    """

    clipped: ClassVar[bool] = False  # PPO's surrogate, else log probability times advantage

    is_gaussian: bool = False


@dataclass(frozen=True)
class ActorLoss(KnownLoss):
    """The loss of an actor whose action tanh(u) a critic values; its values are "loss" and "log_probability".

    Outputs are the means of u; of an actor that is drawn, also the inputs of tanh whose values say the log standard
    deviations. A batch has "noise" [B, D], the standard normal numbers of the draws; of the action "slopes" [B, D], the
    critic's derivative, and "values" [B]. The setting "temperature" weights the log probability.
    """


@dataclass(frozen=True)
class ActionValueLoss(KnownLoss):
    """The loss of Q-learning; its values are "loss", "td_error" and "q_value".

    A batch has "actions" and "targets" [B]. One that bootstraps has, in place of "targets", "n_step_rewards",
    "discounts" and "importance_weights" [B], "next_observations" [B, ...] and "next_action_masks" [B, A]; the learner
    adds "next_online_outputs" and "next_target_outputs" [B, O], those of its network and of its target network.
    """

    dueling: bool
    huber_delta: float
    double: bool = False  # of a loss that bootstraps: its own network chooses the action that the target network values

    def action_values(self, outputs: Any) -> Any:
        """Return Q = V + A - mean(A) of outputs [A..., V] (Wang et al., 2016), or the scores.  # [B, O] -> [B, A]"""
        scores = outputs[:, : self.actions]
        if not self.dueling:
            return scores
        return outputs[:, self.actions : self.actions + 1] + scores - tf.reduce_mean(scores, axis=1, keepdims=True)

    def huber(self, error: Any) -> Any:
        """Return half the squared error, linear beyond `huber_delta` (Huber, 1964); with 0 all squared.  # [B]"""
        if not self.huber_delta:
            return 0.5 * tf.square(error)
        size = tf.abs(error)
        inside = tf.minimum(size, self.huber_delta)
        return 0.5 * tf.square(inside) + self.huber_delta * (size - inside)


class Pieces(NamedTuple):
    """How a network with memory learns: from pieces of consecutive steps, through which gradients flow."""

    steps: int  # a power of two
    burn_in: int = 0  # first steps of a piece, which only carry the state


class Learner(ABC):
    """A network's weights, Adam's moments and the number of updates.

    `load` a generation's arrays once, then `update` by rows of them, any number of times.
    """

    def __init__(self, network: Network, loss: Loss) -> None:
        self.network, self.has_target = network, bool(getattr(loss, "target_network", ""))
        self.updates = 0  # in all, of a learner that computes them in this process
        self._buffer = np.empty(0, np.float32)

    def warm_up(self) -> None:  # noqa: B027 (most compile nothing)
        """Compile what updates call, before `begin`: its weights, moments and number of updates are lost."""

    def buffer(self, shape: tuple[int, ...]) -> NDArray[np.float32]:
        """Return a buffer for observations that `load` does not copy; the next call reuses its memory."""
        if self._buffer.size < prod(shape):
            self._buffer = aligned(prod(shape))
        return self._buffer[: prod(shape)].reshape(shape)

    def inputs(self, environment: Any, rows: NDArray[Any], threads: int) -> NDArray[np.float32] | Snapshots:
        """Return what `load` takes as the "observations" of recorded steps; the next call reuses its memory.

        `rows` are snapshots of the environment's game, or observations. ValueError: a snapshot is of no such game; a
        learner that rebuilds observations when it needs them finds this out then.
        """
        out = self.buffer((len(rows), *self.network.shape)) if rows.dtype == np.uint8 else None
        return observed(environment, rows, out, threads)

    @abstractmethod
    def load(self, data: Mapping[str, Any]) -> None:
        """Load the arrays that batches are gathered from, each [M, ...]; "observations" are what `inputs` returns.

        Of a network with memory there are "memories" [M, S], its states before each step, and "begins" [M] bool,
        whether a step is the first of an episode or a segment. Names, types and shapes are the same every time, except
        M.
        """

    def unload(self) -> None:  # noqa: B027 (most keep copies on a device, which the next ones replace)
        """Release what `load` took."""

    @abstractmethod
    def update(self, rows: Rows, learning_rate: float, settings: Mapping[str, float]) -> Values:
        """Update the weights by the examples `rows` [B]; return the values of each.

        Rows of a network with memory are whole pieces, of which missing steps at the end are -1; only examples that
        are there, and are behind the burn-in, count and have values.
        Values are the loss's, [B] each, and the "gradient_norm" [1] before clipping. `settings` are the loss's scalars.
        Raises ResourceError where the loss or a gradient is not finite.
        """

    def updates_on(
        self, batches: Iterable[Rows], learning_rate: float, settings: Mapping[str, float]
    ) -> Iterator[Values]:
        """Update by each batch, in order; yield the values of each."""
        for rows in batches:
            yield self.update(rows, learning_rate, settings)

    @abstractmethod
    def weights(self) -> NDArray[np.float32]:
        """Return the weights.  # [P]"""

    @abstractmethod
    def begin(self, weights: NDArray[np.float32]) -> None:
        """Begin with these weights [P], with zero moments and no updates."""

    @abstractmethod
    def target_weights(self) -> NDArray[np.float32]:
        """Return the weights of the target network.  # [P]"""

    @abstractmethod
    def set_target(self, weights: NDArray[np.float32]) -> None:
        """Set the weights of the target network.  # [P]"""

    @abstractmethod
    def update_target(self, tau: float, every: int) -> None:
        """Move the target network by the share `tau`; with `every`, copy the weights once in that many updates."""

    @abstractmethod
    def state(self) -> Arrays:
        """Return "weights", Adam's moments "first" and "second" [P] float32, and "updates" [1]."""

    @abstractmethod
    def restore(self, state: Arrays) -> None:
        """Restore a state that `state` returned."""

    def fingerprint(self) -> str:
        """Return what the bits of an update depend on; empty: on nothing."""
        return ""

    def abandon(self) -> None:  # noqa: B027 (most wait for no device)
        """End an update that another thread computes as soon as possible; nothing is asked of the learner after it."""

    def close(self) -> None:  # noqa: B027 (most have nothing to end)
        """End the threads or processes of the learner, if it has any."""

    def _finite(self, values: Values, norm: Any) -> Values:
        """Return values with the gradient's norm; ResourceError where they are not finite."""
        values["gradient_norm"] = np.asarray(norm, np.float32).reshape(1)
        for name in ("loss", "gradient_norm"):
            if not np.isfinite(values[name]).all():
                raise ResourceError(
                    f"the {name.replace('_', ' ')} of update {self.updates} is not finite, so learning cannot go on; "
                    "the last commit is intact: scale rewards and observations down where they are huge, else resume "
                    "the run with a smaller learning rate (which needs --fork)"
                )
        return values


class UpdateMeans:
    """Means over the examples of a generation's updates, as metrics; NaN before there is one."""

    def __init__(self, *names: str) -> None:
        self.updates, self.examples, self._norms = 0, 0, 0.0
        self._sums = dict.fromkeys(names, 0.0)

    def add(self, values: Mapping[str, NDArray[np.float32]]) -> None:
        """Add the values of an update's examples, [B] each, and its "gradient_norm" [1]."""
        self.updates, self.examples = self.updates + 1, self.examples + len(values["loss"])
        self._norms += float(values["gradient_norm"][0])
        for name in self._sums:
            self._sums[name] += float(values[name].sum(dtype=np.float64))

    def metrics(self) -> Metrics:
        """Return the means, and the numbers of updates and of their examples."""
        means = {name: total / self.examples if self.examples else float("nan") for name, total in self._sums.items()}
        norm = self._norms / self.updates if self.updates else float("nan")
        return {**means, "gradient_norm": norm, "updates": float(self.updates), "examples": float(self.examples)}


class Snapshots:
    """Recorded snapshots, or pixels, in place of the observations that they are rebuilt into, row by row."""

    def __init__(self, game: CompiledGame | Pixels, rows: NDArray[np.uint8]) -> None:
        """Keep the snapshots of a game.  # [M, S]; ValueError: they are of another size"""
        game.check(rows)
        self.size = prod(game.shape)  # of an observation
        self._game, self._snapshots = game, np.ascontiguousarray(rows)
        self._scratch: list[Any] = []  # states that no thread has now

    def __len__(self) -> int:
        return len(self._snapshots)

    def rebuild(self, rows: NDArray[np.int32], out: NDArray[np.float32]) -> None:
        """Write the network's inputs of some rows; ValueError: one is no position of the game.  # [B] -> [B, inputs]"""
        try:
            scratch = self._scratch.pop()
        except IndexError:
            scratch = self._game.make_state(1)
        self._game.observe_rows(scratch, self._snapshots, rows, out.reshape(len(rows), *self._game.shape))
        self._scratch.append(scratch)


def observed(
    environment: Any, rows: NDArray[Any], out: NDArray[np.float32] | None = None, threads: int = 1
) -> NDArray[np.float32]:
    """Return the network's inputs of recorded observations, snapshots or not.  # [M, S] or [M, ...] -> [M, ...]

    ValueError where a snapshot is of no such game.
    """
    if rows.dtype != np.uint8:
        return rows
    if out is None:
        out = np.empty((len(rows), *environment.recorded_as.shape), np.float32)
    size = max(PART, -(-len(rows) // threads))
    parts = [slice(first, first + size) for first in range(0, len(rows), size)]
    if len(parts) < 2:
        return environment.recorded_as.observe(rows, out)  # type: ignore[no-any-return]
    with ThreadPoolExecutor(threads) as pool:  # compiled code holds no lock
        list(pool.map(lambda part: environment.recorded_as.observe(rows[part], out[part]), parts))
    return out
