"""A learner whose updates have the same bits on every machine, for any number of threads, without TensorFlow.

The arithmetic is float32; multiplications and additions are rounded apart, and every sum has one order, which
`evo.learning.exact.passes` says. "gradient-1" is its name. The optimizer is Adam (Kingma and Ba, 2015).
"""

from __future__ import annotations

from collections.abc import Mapping
from math import prod, sqrt
from typing import Any

import numpy as np
from numba import njit
from numpy.typing import NDArray

from evo.compiled import cache as kernel_cache
from evo.compiled.buffers import aligned
from evo.compiled.functions import integer_power
from evo.learning.exact import losses
from evo.learning.exact.passes import forward, gradients_of, pack_weights, unpack
from evo.learning.exact.plan import BLOCK, Plan, Workspace, plan, workspace
from evo.learning.exact.runs import WIDTH, rounded
from evo.learning.exact.threads import BlockSums, Threads
from evo.learning.learner import BETAS, EPSILON, ActionValueLoss, Learner, PolicyLoss, Rows, Snapshots, Values
from evo.networks.network import Network
from evo.records import Arrays

kernel_cache.use(__name__)

IN_ORDER = np.arange(BLOCK, dtype=np.int32)
MASKS = {"action_masks", "next_action_masks"}
OF_A_POLICY = losses.PolicyBatch._fields[2:]
NUMBERS = (*OF_A_POLICY, "targets", "n_step_rewards", "discounts", "importance_weights")  # of an example
LARGER = 8  # times a snapshot's bytes, from which on an observation is rebuilt sooner than read from memory
PARTS = 16  # partial sums of the norm's squares
FIRST, SECOND = np.float32(1.0 - BETAS[0]), np.float32(1.0 - BETAS[1])
SMALL = np.float32(EPSILON)
TINY = np.float32(1e-30)  # smaller moments are 0: those of weights without a gradient would fade to subnormal numbers
ZERO = np.float32(0)


class ExactLearner(Learner):
    """A network's weights, Adam's moments and the number of updates."""

    def __init__(
        self, network: Network, threads: int, loss: PolicyLoss | ActionValueLoss, max_gradient_norm: float = 0.0
    ) -> None:
        """Prepare a learner whose weights are all zero; with `max_gradient_norm` 0 gradients are not clipped."""
        super().__init__(network, loss)
        self._plan, self._max_norm = plan(network), np.float32(max_gradient_norm)
        self.network_weights = Weights(network, self._plan)
        self._first, self._second = aligned(network.size), aligned(network.size)
        self._unpacked = aligned(network.size + WIDTH * (max(layer.filters for layer in network.layers) + 1))
        self._gradient = self._unpacked[: network.size]
        self._loss = loss
        self._target = Weights(network, self._plan) if self.has_target else self.network_weights
        self._threads = Threads(threads, lambda: workspace(self._plan))
        self._spare: list[NDArray[np.float32]] = []  # sums that no block has now
        self._data: dict[str, NDArray[Any]] = {}
        self._observations: NDArray[np.float32] | Snapshots = np.empty((0, 0), np.float32)

    def warm_up(self) -> None:
        """Compile, or load from Numba's cache, what updates call, by an update from an example of zeros."""
        actions, gaussian = self._loss.actions, isinstance(self._loss, PolicyLoss) and self._loss.is_gaussian
        seen = np.zeros((1, prod(self.network.shape)), np.float32)
        self.load(
            {
                **dict.fromkeys(NUMBERS, np.zeros(1, np.float32)),
                "observations": seen,
                "next_observations": seen,
                "next_action_masks": np.ones((1, actions), np.bool_),
                "actions": np.zeros((1, actions), np.float32) if gaussian else np.zeros(1, np.int32),
            }
        )
        self.update(np.zeros(1, np.int32), 0.0, {})

    def inputs(self, environment: Any, rows: NDArray[Any], threads: int) -> NDArray[np.float32] | Snapshots:
        """Return snapshots as they are where observations are much larger: `gradients` rebuilds them block by block."""
        if rows.dtype == np.uint8 and 4 * prod(environment.game.shape) >= LARGER * environment.game.row_size:
            return Snapshots(environment.game, rows)
        return super().inputs(environment, rows, threads)

    def load(self, data: Mapping[str, NDArray[Any] | Snapshots]) -> None:
        """Load as `Learner.load`; ValueError where a shape or an action does not fit: compiled code does not check."""
        found = {name: _of_one_type(name, array) for name, array in data.items() if name != "observations"}
        observations: NDArray[np.float32] | Snapshots = data["observations"]
        if isinstance(observations, Snapshots):
            self._check_size(observations.size)
        else:
            observations = self._rows(observations)
        count, shape = len(observations), (len(observations), self.network.actions)
        if wrong := [name for name, array in found.items() if len(array) != count]:
            raise ValueError(f"{wrong[0]}: {len(found[wrong[0]])} of {count} examples")
        actions = found["actions"]
        discrete = actions.dtype == np.int32
        if discrete and (actions.ndim != 1 or (count and not 0 <= actions.min() <= actions.max() < shape[1])):
            raise ValueError(f"actions: not all are of 0 to {shape[1] - 1}")
        for name in (MASKS if discrete else {*MASKS, "actions"}) & found.keys():
            if found[name].shape != shape:
                raise ValueError(f"{name}: of shape {found[name].shape}, not {shape}")
        self._data, self._observations = found, observations

    def update(self, rows: Rows, learning_rate: float, settings: Mapping[str, float]) -> Values:
        """Update the weights by the examples `rows` [B], as `Learner.update`."""
        values = self.gradients(rows, settings)
        norm = norm_of(self._gradient)
        self.updates += 1
        self._finite(values, norm)
        clips = self._max_norm > 0 and norm > self._max_norm
        scale = self._max_norm / norm if clips else np.float32(1)
        betas = [integer_power(beta, self.updates) for beta in BETAS]
        rate = np.float32(learning_rate * sqrt(1.0 - betas[1]) / (1.0 - betas[0]))
        step(self.network_weights.vector, self._first, self._second, self._gradient, np.float32(scale), rate)
        self.network_weights.changed()
        return values

    def gradient(self) -> NDArray[np.float32]:
        """Return the gradient of the newest batch, before it was clipped.  # [P]"""
        return self._gradient.copy()

    def gradients(self, rows: Rows, settings: Mapping[str, float]) -> Values:
        """Compute the gradient of the mean loss over the examples `rows` [B]; return the values of each."""
        rows = self._checked(rows, len(self._observations))
        loss, names = self._prepared(rows, settings)
        values = np.empty((len(names), len(rows)), np.float32)
        network = self._plan.layers, self.network_weights.vector, self.network_weights.packed()

        blocks = -(-len(rows) // BLOCK)
        tree = BlockSums(blocks, self._join)

        def block(number: int, workspace: Workspace) -> None:
            begin = number * BLOCK
            places = begin, min(begin + BLOCK, len(rows)), self._plan.group
            seen, sums = self._seen(rows[begin:], workspace), self._sums()
            gradients_of(*network, *seen, places, workspace, loss, values, sums)
            tree.add(number, sums)

        self._threads.for_each(block, range(blocks))
        total = tree.total()
        unpack(self._plan.layers, total, self._unpacked)
        self._spare.append(total)
        return dict(zip(names, values, strict=True))

    def _seen(self, rows: Rows, workspace: Workspace) -> tuple[NDArray[np.float32], Rows]:
        """Return an array of observations, and the rows in it of a block; `rows` begin with the block's."""
        if not isinstance(self._observations, Snapshots):
            return self._observations, rows
        rows = rows[:BLOCK]
        self._observations.rebuild(rows, workspace.observations[: len(rows)])
        return workspace.observations, IN_ORDER

    def _join(self, earlier: NDArray[np.float32], later: NDArray[np.float32]) -> NDArray[np.float32]:
        earlier += later
        self._spare.append(later)
        return earlier

    def _sums(self) -> NDArray[np.float32]:
        try:
            return self._spare.pop()
        except IndexError:
            return aligned(self._plan.sums)

    def _prepared(self, rows: Rows, settings: Mapping[str, float]) -> tuple[tuple[Any, Any], tuple[str, ...]]:
        """Return the loss's arrays with its settings, and the names of its values."""
        loss, data = self._loss, self._data
        if isinstance(loss, PolicyLoss):
            allowed = data["action_masks"][rows] if "action_masks" in data else losses.ALL_ALLOWED
            policy = losses.PolicyBatch(data["actions"][rows], allowed, *(data[name][rows] for name in OF_A_POLICY))
            numbers = dict.fromkeys(losses.PolicySettings._fields[:-1], 0.0)
            numbers |= {name: float(value) for name, value in settings.items()}
            return (policy, losses.PolicySettings(**numbers, clipped=loss.clipped)), losses.POLICY_VALUES
        targets = self._targets(loss, rows) if loss.bootstraps else data["targets"][rows]
        importance = data["importance_weights"][rows] if loss.bootstraps else np.ones(len(rows), np.float32)
        batch = losses.QBatch(data["actions"][rows], targets, importance)
        return (batch, losses.QSettings(loss.actions, loss.dueling, loss.huber_delta)), losses.Q_VALUES

    def _targets(self, loss: ActionValueLoss, rows: Rows) -> NDArray[np.float32]:
        """Return DQN's targets of some examples: n_step_rewards + discounts * Q of the next action.  # [B] -> [B]"""
        data = self._data
        observations, masks = self._rows(data["next_observations"]), data["next_action_masks"][rows]
        target = self.outputs(observations, rows, self._target)
        online = self.outputs(observations, rows, self.network_weights) if loss.double else target
        values = np.empty(len(rows), np.float32)
        losses.next_values(online, target, masks, loss.actions, loss.dueling, loss.double, values)
        return np.asarray(data["n_step_rewards"][rows] + data["discounts"][rows] * values, np.float32)

    def outputs(
        self, observations: NDArray[np.float32], rows: Rows, weights: Weights | None = None
    ) -> NDArray[np.float32]:
        """Return the outputs of some observations, by the learner's weights or others.  # [M, inputs], [B] -> [B, O]"""
        weights, rows = weights or self.network_weights, self._checked(rows, len(observations))
        layers, group, packed = self._plan.layers, self._plan.group, weights.packed()
        last = layers[-1]
        filters, distance, start = (int(last[name]) for name in ("filters", "row", "output"))
        out = np.empty((len(rows), filters), np.float32)

        def part(first: int, workspace: Workspace) -> None:
            count = min(group, len(rows) - first)
            forward(layers, weights.vector, packed, observations, rows[first:], 0, count, workspace)
            found = workspace.floats[start : start + count * distance].reshape(count, distance)
            out[first : first + count] = found[:, :filters]

        self._threads.for_each(part, range(0, len(rows), group))
        return out

    def _rows(self, observations: NDArray[np.float32]) -> NDArray[np.float32]:
        """Return observations as rows of floats; ValueError where they are not of the network.  # [M, ...] -> [M, I]"""
        found = np.ascontiguousarray(observations, np.float32).reshape(len(observations), -1)
        self._check_size(found.shape[1])
        return found

    def _check_size(self, size: int) -> None:
        """Raise ValueError where the size of observations is not that of the network's inputs."""
        if size != prod(self.network.shape):
            raise ValueError(f"observations of {size} numbers, where the network has {self.network.shape}")

    @staticmethod
    def _checked(rows: Rows, examples: int) -> Rows:
        """Return rows [B] of examples; ValueError where there are none, or others than there are examples."""
        rows = np.ascontiguousarray(rows, np.int32)
        if not len(rows) or not 0 <= rows.min() <= rows.max() < examples:
            raise ValueError(f"rows: not of the {examples} examples that are there")
        return rows

    def weights(self) -> NDArray[np.float32]:
        """Return the weights.  # [P]"""
        return self.network_weights.vector.copy()

    def target_weights(self) -> NDArray[np.float32]:
        """Return the weights of the target network.  # [P]"""
        return self._target.vector.copy()

    def set_target(self, weights: NDArray[np.float32]) -> None:
        """Set the weights of the target network.  # [P]"""
        self._target.vector[:] = weights
        self._target.changed()

    def update_target(self, tau: float, every: int) -> None:
        """Move the target network by the share `tau`; with `every`, copy the weights once in that many updates."""
        if every and self.updates % every == 0:
            self.set_target(self.network_weights.vector)
        elif tau and not every:
            follow(self._target.vector, self.network_weights.vector, np.float32(tau))
            self._target.changed()

    def state(self) -> Arrays:
        """Return "weights", Adam's moments "first" and "second" [P] float32, and "updates" [1]."""
        return {
            "weights": self.weights(),
            "first": self._first.copy(),
            "second": self._second.copy(),
            "updates": np.array([self.updates], np.int64),
        }

    def restore(self, state: Arrays) -> None:
        """Restore a state that `state` returned."""
        self.begin(np.asarray(state["weights"], np.float32))
        self._first[:], self._second[:] = state["first"], state["second"]
        self.updates = int(np.asarray(state["updates"], np.int64)[0])

    def begin(self, weights: NDArray[np.float32]) -> None:
        """Begin with these weights [P], with zero moments and no updates."""
        self.network_weights.vector[:] = weights
        self.network_weights.changed()
        self._first[:], self._second[:] = 0, 0
        self.updates = 0

    def close(self) -> None:
        """End the threads."""
        self._threads.close()


@njit(cache=True, error_model="numpy", nogil=True)
def norm_of(gradient):  # type: ignore[no-untyped-def]
    """Return the Euclidean norm of float32 [P]: 16 sums of every sixteenth square, added in pairs."""
    parts = np.zeros(PARTS, np.float32)
    whole = gradient.shape[0] // PARTS * PARTS
    for start in range(0, whole, PARTS):
        for k in range(PARTS):
            parts[k] += gradient[start + k] * gradient[start + k]
    for k in range(gradient.shape[0] - whole):
        parts[k] += gradient[whole + k] * gradient[whole + k]
    half = PARTS // 2
    while half:
        for k in range(half):
            parts[k] += parts[k + half]
        half //= 2
    return np.sqrt(parts[0])


@njit(cache=True, error_model="numpy", nogil=True, _nrt=False)
def step(weights, first, second, gradient, scale, rate):  # type: ignore[no-untyped-def]
    """Update weights and moments [P] by gradient * scale; `rate` is Adam's, corrected for the moments' bias."""
    for k in range(gradient.shape[0]):
        value = gradient[k] * scale
        mean, square = first[k] + (value - first[k]) * FIRST, second[k] + (value * value - second[k]) * SECOND
        first[k] = mean if abs(mean) > TINY else ZERO
        second[k] = square if square > TINY else ZERO
        weights[k] -= first[k] * rate / (np.sqrt(second[k]) + SMALL)


@njit(cache=True, error_model="numpy", nogil=True, _nrt=False)
def follow(target, weights, share):  # type: ignore[no-untyped-def]
    """Move a target network's weights [P] by a share of the difference."""
    for k in range(target.shape[0]):
        target[k] += share * (weights[k] - target[k])


class Weights:
    """A flat vector of weights, and its kernels in blocks of columns, which are packed again where it has changed."""

    def __init__(self, network: Network, made: Plan) -> None:
        self._plan = made
        widest = max(layer.filters for layer in network.layers)
        weighted = [layer for layer in network.layers if layer.weighted]
        self._flat = aligned(network.size + WIDTH * (widest + 1))  # squares are read beyond the end
        self.vector: NDArray[np.float32] = self._flat[: network.size]
        self._packed = aligned(made.packed)
        self._scratch = aligned(max(rounded(layer.fan_in) * rounded(layer.filters) for layer in weighted))
        self._stale = True

    def changed(self) -> None:
        """Say that `vector` was written."""
        self._stale = True

    def packed(self) -> NDArray[np.float32]:
        """Return the packed kernels of the present weights."""
        if self._stale:
            pack_weights(self._plan.layers, self._flat, self._packed, self._scratch)
            self._stale = False
        return self._packed


def _of_one_type(name: str, array: Any) -> NDArray[Any]:
    """Return an array with the type for which the losses are compiled: a new one would compile them again."""
    if name == "actions":
        return np.ascontiguousarray(array, np.float32 if array.dtype.kind == "f" else np.int32)
    return np.ascontiguousarray(array, np.bool_ if name in MASKS else np.float32)
