"""A learner whose updates have the same bits on every machine, for any number of threads, without TensorFlow.

The arithmetic is float32; multiplications and additions are rounded apart, and every sum has one order, which
`evo.learning.exact.passes` says. "gradient-1" is its name. The optimizer is Adam (Kingma and Ba, 2015).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import suppress
from math import prod, sqrt
from typing import Any

import numpy as np
from numpy.typing import NDArray

from evo.compiled.functions import integer_power
from evo.compiled.views import aligned
from evo.learning.exact import losses, squashed
from evo.learning.exact.passes import gradients_of, outputs_of, unpack
from evo.learning.exact.plan import BLOCK, Workspace, plan, workspace
from evo.learning.exact.runs import WIDTH
from evo.learning.exact.threads import BlockSums, Threads, blocks_together
from evo.learning.exact.weights import Weights, follow, norm_of, step
from evo.learning.learner import BETAS, ActorLoss, KnownLoss, Learner, Pieces, PolicyLoss, Rows, Snapshots, Values
from evo.networks.network import Network
from evo.records import Arrays

IN_ORDER = np.arange(BLOCK, dtype=np.int32)
PER_ACTION = {*losses.MASKS, "noise", "slopes"}
NO_ACTIONS = np.empty(0, np.float32)
OF_A_POLICY = losses.PolicyBatch._fields[2:]
NUMBERS = (*OF_A_POLICY, "targets", "n_step_rewards", "discounts", "importance_weights")  # of an example
WORK = 1 << 20  # multiply-adds of a forward pass, from which on it pays to wake up another thread
LARGER = 8  # times a snapshot's bytes, from which on an observation is rebuilt sooner than read from memory


class ExactLearner(Learner):
    """A network's weights, Adam's moments and the number of updates."""

    def __init__(
        self,
        network: Network,
        threads: int,
        loss: KnownLoss,
        max_gradient_norm: float = 0.0,
        pieces: Pieces | None = None,
        to_inputs: bool = False,
    ) -> None:
        """Prepare a learner whose weights are all zero; with `max_gradient_norm` 0 gradients are not clipped.

        A network with memory learns by `pieces`. One that has `slopes` computes gradients `to_inputs`.
        """
        super().__init__(network, loss)
        self._plan, self._max_norm = plan(network, pieces, to_inputs), np.float32(max_gradient_norm)
        self._pieces = pieces if network.memory else None
        self.network_weights = Weights(network, self._plan)
        self._first, self._second = aligned(network.size), aligned(network.size)
        self._unpacked = aligned(network.size + WIDTH * (int(self._plan.layers["filters"].max()) + 1))
        self.gradient = self._unpacked[: network.size]  # [P] of the newest batch, before it was clipped
        self._loss = loss
        self.target = Weights(network, self._plan, False) if self.has_target else self.network_weights
        self._threads = Threads(threads, lambda: workspace(self._plan))
        self._least = WORK / (BLOCK * max(network.multiply_adds, 1))
        self._spare: list[NDArray[np.float32]] = []  # sums [levels, S] that no thread has now
        self._data: dict[str, NDArray[Any]] = {}
        self._observations: NDArray[np.float32] | Snapshots = np.empty((0, 0), np.float32)

    def warm_up(self) -> None:
        """Compile, or load from Numba's cache, what updates call, by an update from an example of zeros."""
        actions, gaussian = self._loss.actions, isinstance(self._loss, PolicyLoss) and self._loss.is_gaussian
        rows = np.zeros(1, np.int32)
        seen = np.zeros((1, prod(self.network.shape)), np.float32)
        self.load(
            {
                **dict.fromkeys(NUMBERS, np.zeros(1, np.float32)),
                "observations": seen,
                "next_observations": seen,
                "next_action_masks": np.ones((1, actions), np.bool_),
                "actions": np.zeros((1, actions), np.float32) if gaussian else rows,
                **dict.fromkeys(("noise", "slopes"), np.zeros((1, actions), np.float32)),
                "memories": np.zeros((1, self.network.memory), np.float32),
                "begins": np.ones(1, np.bool_),
            }
        )
        if self._pieces:
            rows = np.append(rows, np.full(self._pieces.steps - 1, -1, np.int32))
        self.update(rows, 0.0, {})

    def inputs(self, environment: Any, rows: NDArray[Any], threads: int) -> NDArray[np.float32] | Snapshots:
        """Return snapshots as they are where observations are much larger: `gradients` rebuilds them block by block.

        Pixels too: they would take four times the memory.
        """
        game = environment.game
        if rows.dtype == np.uint8 and (game is None or 4 * prod(game.shape) >= LARGER * game.row_size):
            return Snapshots(environment.recorded_as, rows)
        return super().inputs(environment, rows, threads)

    def load(self, data: Mapping[str, NDArray[Any] | Snapshots]) -> None:
        """Load as `Learner.load`; ValueError where a shape or an action does not fit: compiled code does not check."""
        found = {name: losses.of_one_type(name, array) for name, array in data.items() if name != "observations"}
        observations: NDArray[np.float32] | Snapshots = data["observations"]
        if isinstance(observations, Snapshots):
            self._check_size(observations.size)
        else:
            observations = self._rows(observations)
        count, shape = len(observations), (len(observations), self.network.actions)
        if wrong := [name for name, array in found.items() if len(array) != count]:
            raise ValueError(f"{wrong[0]}: {len(found[wrong[0]])} of {count} examples")
        actions = found.get("actions", NO_ACTIONS)
        discrete = actions.dtype == np.int32
        if discrete and (actions.ndim != 1 or (count and not 0 <= actions.min() <= actions.max() < shape[1])):
            raise ValueError(f"actions: not all are of 0 to {shape[1] - 1}")
        for name in (PER_ACTION if discrete else {*PER_ACTION, "actions"}) & found.keys():
            if found[name].shape != shape:
                raise ValueError(f"{name}: of shape {found[name].shape}, not {shape}")
        memories = len(found["memories"][0]) if "memories" in found else 0
        if self._pieces and memories != self.network.memory:
            raise ValueError(f"memories: {memories} numbers, where the network's state has {self.network.memory}")
        self._data, self._observations = found, observations

    def unload(self) -> None:
        """Release what `load` took."""
        self._data, self._observations = {}, np.empty((0, 0), np.float32)

    def update(self, rows: Rows, learning_rate: float, settings: Mapping[str, float]) -> Values:
        """Update the weights by the examples `rows` [B], as `Learner.update`."""
        values = self.gradients(rows, settings)
        norm = norm_of(self.gradient)
        self.updates += 1
        self._finite(values, norm)
        scale = self._max_norm / norm if 0 < self._max_norm < norm else np.float32(1)
        betas = [integer_power(beta, self.updates) for beta in BETAS]
        rate = np.float32(learning_rate * sqrt(1.0 - betas[1]) / (1.0 - betas[0]))
        step(self.network_weights.vector, self._first, self._second, self.gradient, np.float32(scale), rate)
        self.network_weights.changed()
        return values

    def gradients(self, rows: Rows, settings: Mapping[str, float]) -> Values:
        """Compute the gradient of the mean loss over the examples `rows` [B]; return the values of each."""
        rows = self._checked(rows, len(self._observations))
        counts, rows, carried = (rows, rows, None) if self._pieces is None else self._sequences(rows, self._pieces)
        loss, names = self._prepared(counts, settings)
        values = np.empty((len(names), len(counts)), np.float32)
        network = self._plan.layers, self.network_weights.vector, self.network_weights.packed()
        blocks = -(-len(rows) // BLOCK)
        one_by_one = carried or isinstance(self._observations, Snapshots)  # a workspace has them of one block
        together = 1 if one_by_one else blocks_together(blocks, self._threads.count, self._least)
        parts, size = -(-blocks // together), together * BLOCK
        tree = BlockSums(parts, self._join)

        def part(number: int, workspace: Workspace) -> None:
            begin = number * size
            places = begin, min(begin + size, len(rows)), self._plan.group
            seen, sums = self._seen(rows[begin:], workspace), self._sums(min(together, blocks).bit_length())
            if carried:
                workspace = workspace._replace(**carried(begin))
            gradients_of(*network, *seen, places, workspace, loss, values, sums)
            tree.add(number, sums)

        self._threads.for_each(part, range(parts))
        total = tree.total()
        unpack(self._plan.layers, total[0], self._unpacked)
        self._spare.append(total)
        return dict(zip(names, values, strict=True))

    def _sequences(self, rows: Rows, pieces: Pieces) -> tuple[Rows, Rows, Callable[[int], dict[str, NDArray[Any]]]]:
        """Return the rows that count, all rows without those missing, and what a workspace has of a block's states."""
        there = rows.reshape(-1, pieces.steps) >= 0
        there[:, : pieces.burn_in] = False
        counts, rows = rows[there.ravel()], np.maximum(rows, 0)
        memories, begins = self._data["memories"][rows], self._data["begins"][rows]
        counted = np.cumsum([0, *there.sum(1)])

        def carried(begin: int) -> dict[str, NDArray[Any]]:
            return {"memories": memories[begin:], "begins": begins[begin:], "counted": counted[begin // pieces.steps :]}

        return counts, rows, carried

    def _seen(self, rows: Rows, workspace: Workspace) -> tuple[NDArray[np.float32], Rows]:
        """Return an array of observations, and the rows in it of a block; `rows` begin with the block's."""
        if not isinstance(self._observations, Snapshots):
            return self._observations, rows
        rows = rows[:BLOCK]
        self._observations.rebuild(rows, workspace.observations[: len(rows)])
        return workspace.observations, IN_ORDER

    def _join(self, earlier: NDArray[np.float32], later: NDArray[np.float32]) -> NDArray[np.float32]:
        earlier[0] += later[0]
        self._spare.append(later)
        return earlier

    def _sums(self, levels: int) -> NDArray[np.float32]:
        """Return a buffer for the sums of blocks that are computed together.  # [levels or more, S]"""
        with suppress(IndexError):
            if len(found := self._spare.pop()) >= levels:
                return found
        return aligned(levels * self._plan.sums).reshape(levels, self._plan.sums)

    def _prepared(self, rows: Rows, settings: Mapping[str, float]) -> tuple[tuple[Any, Any], tuple[str, ...]]:
        """Return the loss's arrays with its settings, and the names of its values."""
        loss: Any = self._loss
        data = self._data
        if isinstance(loss, PolicyLoss):
            allowed = data["action_masks"][rows] if "action_masks" in data else losses.ALL_ALLOWED
            policy = losses.PolicyBatch(data["actions"][rows], allowed, *(data[name][rows] for name in OF_A_POLICY))
            numbers = dict.fromkeys(losses.PolicySettings._fields[:-1], 0.0)
            numbers |= {name: float(value) for name, value in settings.items()}
            return (policy, losses.PolicySettings(**numbers, clipped=loss.clipped)), losses.POLICY_VALUES
        if isinstance(loss, ActorLoss):
            actor = squashed.SquashedBatch(*(data[name][rows] for name in squashed.SquashedBatch._fields))
            temperature = float(settings.get("temperature", 0.0))
            return (actor, temperature), squashed.SQUASHED_VALUES
        bootstraps = loss.target_network == "read"
        targets = self._targets(loss, rows) if bootstraps else data["targets"][rows]
        importance = data["importance_weights"][rows] if bootstraps else np.ones(len(rows), np.float32)
        batch = losses.QBatch(data["actions"][rows], targets, importance)
        return (batch, losses.QSettings(loss.actions, loss.dueling, loss.huber_delta)), losses.Q_VALUES

    def _targets(self, loss: Any, rows: Rows) -> NDArray[np.float32]:
        """Return DQN's targets of some examples: n_step_rewards + discounts * Q of the next action.  # [B] -> [B]"""
        data = self._data
        observations, masks = self._rows(data["next_observations"]), data["next_action_masks"][rows]
        target = self.outputs(observations, rows, self.target)
        online = self.outputs(observations, rows, self.network_weights) if loss.double else target
        values = np.empty(len(rows), np.float32)
        losses.next_values(online, target, masks, loss.actions, loss.dueling, loss.double, values)
        return np.asarray(data["n_step_rewards"][rows] + data["discounts"][rows] * values, np.float32)

    def slopes(self, observations: NDArray[np.float32]) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
        """Return the first output of each observation, and its gradient by it.  # [B, I] -> [B], [B, I]"""
        rows, slopes = np.arange(len(observations), dtype=np.int32), np.empty_like(observations)
        return self._outputs(observations, rows, None, self.network_weights, slopes)[:, 0], slopes

    def outputs(
        self, observations: NDArray[np.float32], rows: Rows, weights: Weights | None = None
    ) -> NDArray[np.float32]:
        """Return the outputs of some observations, by the learner's weights or others.  # [M, inputs], [B] -> [B, O]

        With memory, these are the loaded ones, for their states were loaded with them.
        """
        rows = self._checked(rows, len(observations))
        _, rows, carried = (rows, rows, None) if self._pieces is None else self._sequences(rows, self._pieces)
        return self._outputs(observations, rows, carried, weights or self.network_weights, None)

    def _outputs(
        self, observations: NDArray[np.float32], rows: Rows, carried: Any, weights: Weights, slopes: Any
    ) -> NDArray[np.float32]:
        """Return the outputs [B, O] of rows; write their `slopes` [B, I], where there are any."""
        network = self._plan.layers, weights.vector, weights.packed()
        out = np.empty((len(rows), self.network.outputs), np.float32)

        def part(begin: int, workspace: Workspace) -> None:
            places = begin, min(begin + size, len(rows)), self._plan.group
            workspace = workspace._replace(**carried(begin)) if carried else workspace
            outputs_of(*network, observations, rows[begin:], places, workspace, out, slopes)

        blocks = -(-len(rows) // BLOCK)
        size = BLOCK * (1 if carried else blocks_together(blocks, self._threads.count, self._least))
        self._threads.for_each(part, range(0, len(rows), size))
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

    def _checked(self, rows: Rows, examples: int) -> Rows:
        """Return rows [B] of examples; ValueError where there are none, or others than there are examples."""
        rows, lowest = np.ascontiguousarray(rows, np.int32), 0 if self._pieces is None else -1
        if not len(rows) or not lowest <= rows.min() <= rows.max() < examples:
            raise ValueError(f"rows: not of the {examples} examples that are there")
        if self._pieces and len(rows) % self._pieces.steps:
            raise ValueError(f"rows: {len(rows)}, no whole pieces of {self._pieces.steps} steps")
        return rows

    def _receive(self) -> None:
        """Copy weights and moments from a device that has newer ones."""

    def _send(self) -> None:
        """Copy weights and moments to a device."""

    def weights(self) -> NDArray[np.float32]:
        """Return the weights.  # [P]"""
        self._receive()
        return self.network_weights.vector.copy()

    def target_weights(self) -> NDArray[np.float32]:
        """Return the weights of the target network.  # [P]"""
        self._receive()
        return self.target.vector.copy()

    def set_target(self, weights: NDArray[np.float32]) -> None:
        """Set the weights of the target network.  # [P]"""
        self._receive()
        self.target.vector[:] = weights
        self.target.changed()
        self._send()

    def update_target(self, tau: float, every: int) -> None:
        """Move the target network by the share `tau`; with `every`, copy the weights once in that many updates."""
        if every and self.updates % every == 0:
            self.set_target(self.network_weights.vector)
        elif tau and not every:
            follow(self.target.vector, self.network_weights.vector, np.float32(tau))
            self.target.changed()

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
        self._send()

    def begin(self, weights: NDArray[np.float32]) -> None:
        """Begin with these weights [P], with zero moments and no updates."""
        self.network_weights.vector[:] = weights
        self.network_weights.changed()
        self._first[:], self._second[:] = 0, 0
        self.updates = 0
        self._send()

    def close(self) -> None:
        """End the threads."""
        self._threads.close()
