"""A network's gradients and Adam (Kingma & Ba, 2015) as one compiled step of TensorFlow, the same for every algorithm.

A step is `gradients(batch) -> reduce -> clip -> apply`. Losses are sums over a batch divided by the number of examples
in the whole batch, never means of means, and gradients are clipped after they are reduced; so a batch may be split over
devices, as `evo.learning.distributed` does. A batch is computed in parts of one shape, whose gradients are added up in
order, so memory does not grow with it. Where one process learns on its CPU, every thread computes parts of its own,
since threads that share every operation would wait for each other at every one.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from math import sqrt
from typing import Any

import numpy as np
from numpy.typing import NDArray

from evo.lazy import keras, tf
from evo.learning.learner import BETAS, EPSILON, Learner, Loss, Rows, Values
from evo.learning.tensorflow import explained, start_tensorflow
from evo.networks.keras_form import build_keras, flat_weights, set_weights
from evo.networks.network import Network
from evo.records import Arrays
from evo.setup import LearnerOptions as Options
from evo.workers import devices

LEAST = 32  # places of a part
PART_BYTES = 16 << 20  # of a part's activations; measured; it decides how sums are rounded
KNOWN = 64  # examples of the step that the fingerprint is of


def part_size(network: Network) -> int:
    """Return the largest number of examples in a part: a power of two from 32 to 4096."""
    floats = sum(layer.out_height * layer.out_width * layer.filters for layer in network.layers)
    size = LEAST
    while size < 4096 and 2 * size * floats * 4 <= PART_BYTES:
        size *= 2
    return size


def parts_at_a_time(options: Options) -> int:
    """Return how many parts are computed at a time: one a thread where one process learns on its CPU, else 1."""
    alone = options.strategy == "one" and not options.devices
    return options.thread_count if alone and not tf.config.list_physical_devices("GPU") else 1


def scalars(settings: Mapping[str, float]) -> dict[str, Any]:
    """Return a loss's settings as tensors."""
    return {name: tf.constant(value, tf.float32) for name, value in settings.items()}


def components(variable: Any) -> list[Any]:
    """Return a variable's copies on the devices of this process, or itself where TensorFlow keeps one."""
    return list(getattr(variable, "values", [variable]))


class TensorFlowLearner(Learner):
    """A learner whose bits depend on the machine and on its threads."""

    devices = 1  # that compute an update

    def __init__(self, network: Network, options: Options, loss: Loss, max_gradient_norm: float = 0.0) -> None:
        """Prepare a learner whose weights are all zero; with `max_gradient_norm` 0 gradients are not clipped."""
        tf = start_tensorflow(options)
        super().__init__(network, loss)
        self.options, self.part = options, part_size(network)
        self._parts_at_a_time = parts_at_a_time(options)
        self._max_norm = max_gradient_norm
        with self._scope():
            self.model = build_keras(network, options.dtype)
            set_weights(self.model, network, np.zeros(network.size, np.float32))
            self._variables = self.model.trainable_variables
            self._first = [tf.Variable(tf.zeros(v.shape), trainable=False) for v in self._variables]
            self._second = [tf.Variable(tf.zeros(v.shape), trainable=False) for v in self._variables]
            self._target = build_keras(network, options.dtype) if self.has_target else self.model
        self._loss = loss
        self._data: dict[str, Any] = {}
        self._move_target: Any = None
        self._compiled_for: dict[tuple[Any, ...], Any] = {}  # the step, by the size of a part and what is loaded

    def _scope(self) -> AbstractContextManager[Any]:
        """Return the context in which variables are made."""
        return nullcontext()

    def load(self, data: Mapping[str, NDArray[Any]]) -> None:
        """Load the arrays that batches are gathered from, each [M, ...], as `Learner.load`."""
        self._data = {}  # frees the memory of the arrays before
        on_cpu = not tf.config.list_logical_devices("GPU")  # a GPU would fetch all of it again for every update

        def tensor(array: NDArray[Any]) -> Any:
            if on_cpu and array.size and np.shares_memory(array, self._buffer):
                return tf.experimental.dlpack.from_dlpack(array.__dlpack__())  # the same memory
            return tf.constant(array)

        with devices.shortages_as(explained):
            self._data = {name: tensor(array) for name, array in data.items()}

    def update(self, rows: Rows, learning_rate: float, settings: Mapping[str, float]) -> Values:
        """Update the weights by the examples `rows` [B], as `Learner.update`."""
        with devices.shortages_as(explained):
            values, norm = self._run(rows, tf.zeros(len(rows)), *self._numbers(learning_rate), scalars(settings))
        return self._finite({name: value.numpy() for name, value in values.items()}, norm)

    def _run(self, rows: Rows, *arguments: Any) -> Any:
        """Update by examples of the loaded arrays; `arguments` are those of `_step` from `blank` on."""
        part = self._part_of(len(rows))
        which = part, *self._data  # masks may be among it in some generations only
        if which not in self._compiled_for:
            *numbers, settings = arguments
            specs = {name: tf.TensorSpec((None, *array.shape[1:]), array.dtype) for name, array in self._data.items()}
            signature = [specs, tf.TensorSpec((None, part), tf.int32), tf.TensorSpec((None,), tf.float32)]
            signature += [tf.TensorSpec(number.shape, tf.float32) for number in numbers[1:]]
            signature.append(dict.fromkeys(settings, tf.TensorSpec((), tf.float32)))
            self._compiled_for[which] = tf.function(self._step, input_signature=signature, autograph=False)
        padded = np.zeros(-(-len(rows) // part) * part, np.int32)
        padded[: len(rows)] = rows
        return self._compiled_for[which](self._data, tf.constant(padded.reshape(-1, part)), *arguments)

    def _part_of(self, count: int) -> int:
        """Return the size of the parts of `count` examples: a power of two from LEAST on, so that few places are empty.

        Some threads may have no part where their number is large, or not a power of two.
        """
        share = -(-count // self._parts_at_a_time)
        return min(self.part, max(LEAST, 1 << (share - 1).bit_length()))

    def _numbers(self, learning_rate: float) -> tuple[Any, Any]:
        """Count an update; return its learning rate and Adam's betas to the number of updates, as tensors.

        The learning rate is scaled by `learner.learning_rate` for batches that grow with the devices.
        """
        self.updates += 1
        factors = {"given": 1.0, "linear": float(self.devices), "root": sqrt(self.devices)}
        rate = learning_rate * factors[self.options.learning_rate]
        return tf.constant(rate, tf.float32), tf.constant([beta**self.updates for beta in BETAS], tf.float32)

    def _step(self, data: Any, rows: Any, blank: Any, rate: Any, powers: Any, settings: Any) -> Any:
        """Update the weights by the examples `rows` [N, part]; return their values and the gradient's norm."""

        def batch(i: Any) -> dict[str, Any]:
            return {name: tf.gather(array, rows[i]) for name, array in data.items()}

        place = tf.reshape(tf.range(tf.size(rows)), tf.shape(rows))
        gradients, names, values = self._gradients(batch, place, blank, settings)
        norm = self._clip_and_apply([[gradient] for gradient in gradients], rate, powers)
        return {name: values[k] for k, name in enumerate(names)}, norm

    def _gradients(
        self, batch: Callable[[Any], Mapping[str, Any]], place: Any, blank: Any, settings: Any
    ) -> tuple[list[Any], list[str], Any]:
        """Sum the gradients of a batch's mean loss over parts of it, in order.

        `batch(i)` gives the arrays of part i; `place` [N, part] where its examples stand in the batch, whose size
        `blank` [B] has: padding stands behind it. Returns the gradients, the names of the K values, and those of all
        examples [K, B], zero where an example is of no part.
        """
        count, names = tf.size(blank), list[str]()
        variables, divisor = [variable.value for variable in self._variables], tf.cast(count, tf.float32)

        def add(i: Any, sums: Any, values: Any) -> Any:
            with tf.GradientTape() as tape:
                outputs = self.each(batch(i), settings)
                total = tf.reduce_sum(outputs["loss"] * tf.cast(place[i] < count, tf.float32)) / divisor
            gradients = tape.gradient(total, variables)
            names[:] = sorted(outputs)
            values = values.write(i, tf.stack([outputs[name] for name in names], 1))
            return i + 1, [one + other for one, other in zip(sums, gradients, strict=True)], values

        parts, nothing = tf.shape(place)[0], [tf.zeros(variable.shape) for variable in variables]
        _, sums, values = tf.while_loop(
            lambda i, *_: i < parts,
            add,
            (0, nothing, tf.TensorArray(tf.float32, parts)),
            parallel_iterations=self._parts_at_a_time,
        )
        places, rows = tf.reshape(tf.minimum(place, count), (-1, 1)), tf.reshape(values.stack(), (-1, len(names)))
        return sums, names, tf.transpose(tf.scatter_nd(places, rows, (count + 1, len(names)))[:count])

    def each(self, batch: Mapping[str, Any], settings: Mapping[str, Any]) -> Mapping[str, Any]:
        """Return the loss's values of every example of a batch, as tensors [B]."""
        if self.has_target:
            target, online = (model(batch["next_observations"], training=False) for model in (self._target, self.model))
            batch = {**batch, "next_target_outputs": target, "next_online_outputs": online}
        return self._loss(self.model(batch["observations"], training=True), batch, settings)

    def _clip_and_apply(self, gradients: Sequence[Sequence[Any]], rate: Any, powers: Any) -> Any:
        """Update the weights by Adam, whose betas to the number of updates are `powers`; return the gradient's norm.

        `gradients` has of every variable a copy per device of this process, or one for all of them. They are clipped to
        the global norm that is allowed; the norm is the one before.
        """
        norm = tf.sqrt(tf.add_n([tf.reduce_sum(tf.square(copies[0])) for copies in gradients]))
        for copies, variable, *moments in zip(gradients, self._variables, self._first, self._second, strict=True):
            on_devices = zip(*map(components, (variable.value, *moments)), strict=True)
            for i, (weights, first, second) in enumerate(on_devices):
                with tf.device(weights.device):
                    gradient = copies[min(i, len(copies) - 1)]
                    if self._max_norm:
                        gradient = gradient * (self._max_norm / tf.maximum(norm, self._max_norm))
                    tf.raw_ops.ResourceApplyAdam(
                        var=weights.handle, m=first.handle, v=second.handle, beta1_power=powers[0],
                        beta2_power=powers[1], lr=rate, beta1=BETAS[0], beta2=BETAS[1], epsilon=EPSILON, grad=gradient,
                    )  # fmt: skip
        return norm

    def weights(self) -> NDArray[np.float32]:
        """Return the weights.  # [P]"""
        return flat_weights(self.model)

    def target_weights(self) -> NDArray[np.float32]:
        """Return the weights of the target network.  # [P]"""
        return flat_weights(self._target)

    def set_target(self, weights: NDArray[np.float32]) -> None:
        """Set the weights of the target network.  # [P]"""
        set_weights(self._target, self.network, weights)

    def update_target(self, tau: float, every: int) -> None:
        """Move the target network by the share `tau`; with `every`, copy the weights once in that many updates."""
        if every and self.updates % every:
            return
        if self._move_target is None:
            models = (self._target, self.model)
            targets, online = ([c for v in model.weights for c in components(v.value)] for model in models)

            def move(share: Any) -> None:
                for target, weights in zip(targets, online, strict=True):
                    target.assign(target + share * (weights - target))

            self._move_target = tf.function(move, input_signature=[tf.TensorSpec((), tf.float32)])
        self._move_target(tf.constant(1.0 if every else tau, tf.float32))

    def state(self) -> Arrays:
        """Return "weights", Adam's moments "first" and "second" [P] float32, and "updates" [1]."""
        first, second = ([np.ravel(slot.numpy()) for slot in slots] for slots in (self._first, self._second))
        return {
            "weights": self.weights(),
            "first": np.concatenate(first),
            "second": np.concatenate(second),
            "updates": np.array([self.updates], np.int64),
        }

    def restore(self, state: Arrays) -> None:
        """Restore a state that `state` returned."""
        self.begin(np.asarray(state["weights"], np.float32))
        for slots, name in ((self._first, "first"), (self._second, "second")):
            for slot, array in zip(slots, self.network.split(np.asarray(state[name], np.float32)), strict=True):
                slot.assign(array)
        self.updates = int(np.asarray(state["updates"], np.int64)[0])

    def begin(self, weights: NDArray[np.float32]) -> None:
        """Begin with these weights [P], with zero moments and no updates."""
        set_weights(self.model, self.network, weights)
        for slot in (*self._first, *self._second):
            slot.assign(slot * 0)
        self.updates = 0

    def fingerprint(self) -> str:
        """Return the versions and the device that compute, with a digest of one step on known data."""
        from llvmlite import binding

        from evo.networks.candidates import noise

        def squares(outputs: Any, batch: Mapping[str, Any], settings: Mapping[str, Any]) -> Mapping[str, Any]:
            return {"loss": tf.reduce_sum(tf.square(outputs - 1.0), 1)}

        known = type(self)(self.network, self.options, squares)
        weights = np.empty(self.network.size, np.float32)
        observations = np.empty((KNOWN, *self.network.shape), np.float32)
        noise(np.uint64(1), weights)
        noise(np.uint64(2), observations.reshape(-1))
        known.begin(weights * np.float32(0.05))
        known.load({"observations": observations})
        count = self.part * self._parts_at_a_time  # whole parts
        known.update(np.resize(np.arange(KNOWN, dtype=np.int32), count), 1e-3, {})
        digest = hashlib.sha256(known.weights().tobytes()).hexdigest()[:16]
        gpus = tf.config.list_logical_devices("GPU")
        machine = gpus[0].name if gpus else f"CPU {binding.get_host_cpu_name()}"
        threads = f"{self.options.thread_count} threads" + (" side by side" if self._parts_at_a_time > 1 else "")
        return (
            f"tensorflow {tf.__version__}, keras {keras.__version__}, {machine}, {threads}, "
            f"{self.options.dtype}, learning step {digest}"
        )
