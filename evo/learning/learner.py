"""The learner: a network's gradients and Adam (Kingma & Ba, 2015) as one compiled step, the same for every algorithm.

A step is `gradients(batch) -> reduce -> clip -> apply`. Losses are sums over a batch divided by how many examples the
whole batch has, never means of means, and gradients are clipped after they are reduced; so a batch may be split over
devices, as `evo/learning/strategies` does. A batch is computed in parts of one shape, which are added up in order, so
memory does not grow with it. Where one process learns on its CPU, every thread has a part of its own: threads that
shared every operation would wait for each other at every one.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, nullcontext
from math import prod, sqrt
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
from numpy.typing import NDArray

from evo.compiled.buffers import aligned
from evo.errors import DeviceError, ResourceError
from evo.learning.failures import shortages_explained
from evo.learning.q_loss import Target
from evo.networks.keras_form import build_keras, flat_weights, set_weights
from evo.networks.network import Network
from evo.records import Arrays
from evo.workers import devices
from evo.workers.placement import GROWTH, last_gpu

if TYPE_CHECKING:
    from evo.config.sections import Learner as Options

# Outputs [B, O], the batch's arrays [B, ...] and the settings' scalars, all tensors, to named values of every example
# [B] float32. "loss" is what the gradient is of; what else is returned is brought back too (an error, an entropy).
Loss = Callable[[Any, Mapping[str, Any], Mapping[str, Any]], Mapping[str, Any]]
Values = dict[str, NDArray[np.float32]]
Rows = NDArray[np.int32]


class BetweenNetworks(Protocol):
    """A loss that also asks a target network; the learner has one then."""

    def between(self, own: Any, target: Any) -> Loss:
        """Return the loss where these two Keras models are the learner's network and the target."""
        ...


NOBODY = -1  # a place of a part that no example takes
LEAST = 32  # places of a part
PART_BYTES = 16 << 20  # of a part's activations; measured, and part of how sums are rounded
BETAS = (0.9, 0.999)
EPSILON = 1e-5
GOLDEN = 64  # examples of the known step
CHUNK = 1024  # observations that `Forward` computes at once


def part_size(network: Network) -> int:
    """Return how many examples are computed at once at most: a power of two from 32 to 4096."""
    floats = sum(layer.out_height * layer.out_width * layer.filters for layer in network.layers)
    size = LEAST
    while size < 4096 and 2 * size * floats * 4 <= PART_BYTES:
        size *= 2
    return size


def parts_at_a_time(options: Options) -> int:
    """Return how many parts of a batch are computed at a time: one a thread, if one process learns, on its CPU."""
    import tensorflow as tf

    alone = options.strategy == "one" and not options.devices
    return options.threads if alone and not tf.config.list_physical_devices("GPU") else 1


def start_tensorflow(options: Options) -> Any:
    """Import TensorFlow, set for equal bits on one machine, and return it; DeviceError where it was set otherwise."""
    devices.import_tensorflow(on_gpu=False, wanted="run.algorithm: a gradient method")
    import tensorflow as tf

    try:
        inside, side_by_side = options.threading
        tf.config.threading.set_intra_op_parallelism_threads(inside)
        tf.config.threading.set_inter_op_parallelism_threads(side_by_side)
        if options.log_placement:
            devices.log_where_operations_run()
        if options.logical_cpus:
            _take_for_several(tf, options.logical_cpus)
        gpus = tf.config.list_physical_devices("GPU")
        last = last_gpu(options.model_dump())
        if last is not None and last + 1 < len(gpus):
            gpus = gpus[: last + 1]
            tf.config.set_visible_devices(gpus, "GPU")  # others keep the memory of theirs
        for gpu in gpus if GROWTH not in os.environ else ():  # else a user, or a slot that this process is in, has said
            if not tf.config.experimental.get_memory_growth(gpu):
                tf.config.experimental.set_memory_growth(gpu, True)
    except RuntimeError as error:
        raise DeviceError(
            f"learner.threads: TensorFlow was set up before with another number of threads: {error}"
        ) from error
    tf.config.experimental.enable_tensor_float_32_execution(False)
    tf.config.experimental.enable_op_determinism()
    return tf


def _take_for_several(tf: Any, count: int) -> None:
    cpu = tf.config.list_physical_devices("CPU")[0]
    if len(tf.config.get_logical_device_configuration(cpu) or ()) != count:
        tf.config.set_logical_device_configuration(cpu, [tf.config.LogicalDeviceConfiguration()] * count)


class Forward:
    """A network's outputs for many observations at once: the learner's own, or a target network with other weights."""

    def __init__(self, network: Network, options: Options) -> None:
        tf = start_tensorflow(options)
        self.network = network
        self.model = build_keras(network, options.dtype)
        self._compiled = tf.function(self.model, input_signature=[tf.TensorSpec((CHUNK, *network.shape), tf.float32)])

    def set(self, weights: NDArray[np.float32]) -> None:
        """Take these weights.  # [P]"""
        set_weights(self.model, self.network, weights)

    def __call__(self, observations: NDArray[np.float32]) -> NDArray[np.float32]:
        """Return the outputs, computed in parts of one fixed size, so that they depend on nothing else.

        observations [M, ...] -> [M, O] float32.
        """
        import tensorflow as tf

        out = np.empty((len(observations), self.network.outputs), np.float32)
        for start in range(0, len(observations), CHUNK):
            part = observations[start : start + CHUNK]
            if len(part) < CHUNK:
                part = np.concatenate([part, np.zeros((CHUNK - len(part), *part.shape[1:]), np.float32)])
            out[start : start + CHUNK] = self._compiled(tf.constant(part)).numpy()[: len(out) - start]
        return out


class Learner:
    """A network that learns: its weights, Adam's moments of them, and how many updates there were.

    The use of it: `load` a generation's arrays once, then `update` by the numbers of examples, as often as wanted.
    """

    devices = 1  # that an update is spread over

    def __init__(
        self, network: Network, options: Options, loss: Loss | BetweenNetworks, max_gradient_norm: float = 0.0
    ) -> None:
        """Prepare a learner whose weights are all zero; `max_gradient_norm` 0 clips nothing."""
        tf = start_tensorflow(options)
        self.network, self.options, self.part = network, options, part_size(network)
        self._parts_at_a_time = parts_at_a_time(options)
        self._max_norm = max_gradient_norm
        self.target: Target | None = None
        with self._scope():
            self.forward = Forward(network, options)
            self.forward.set(np.zeros(network.size, np.float32))
            self._variables = self.forward.model.trainable_variables
            self._first = [tf.Variable(tf.zeros(v.shape), trainable=False) for v in self._variables]
            self._second = [tf.Variable(tf.zeros(v.shape), trainable=False) for v in self._variables]
            if hasattr(loss, "between"):
                self.target = Target(Forward(network, options), self)
                loss = loss.between(self.forward.model, self.target.forward.model)
        self._loss: Loss = loss
        self._updates = 0
        self._data: dict[str, Any] = {}
        self._placed = np.empty(0, np.float32)
        self._compiled_for: dict[int, Any] = {}  # the step, by the size of a part

    @property
    def updates(self) -> int:
        """Return how many updates there were in all."""
        return self._updates

    def _scope(self) -> AbstractContextManager[Any]:
        """Return where variables are made."""
        return nullcontext()

    def load(self, data: Mapping[str, NDArray[Any]]) -> None:
        """Take the arrays that batches are gathered from, each [M, ...]; "observations" is what the network sees.

        Names, types and shapes but for M are the same every time; M may differ.
        """
        import tensorflow as tf

        self._data = {}  # before there is more, for it may be large

        def tensor(array: NDArray[Any]) -> Any:
            if array.size and np.shares_memory(array, self._placed):
                return tf.experimental.dlpack.from_dlpack(array.__dlpack__())  # the same memory
            return tf.constant(array)

        with shortages_explained():
            self._data = {name: tensor(array) for name, array in data.items()}

    def place(self, shape: tuple[int, ...]) -> NDArray[np.float32]:
        """Return an array for observations that `load` takes as it is; the next call uses its memory again."""
        if self._placed.size < prod(shape):
            self._placed = aligned(prod(shape))
        return self._placed[: prod(shape)].reshape(shape)

    def updates_on(
        self, batches: Iterable[Rows], learning_rate: float, settings: Mapping[str, float]
    ) -> Iterator[tuple[Rows, Values]]:
        """Make one step on each batch, as `update` does; yield its rows and values, in order."""
        for rows in batches:
            yield rows, self.update(rows, learning_rate, settings)

    def update(self, rows: Rows, learning_rate: float, settings: Mapping[str, float]) -> Values:
        """Make one step on the examples numbered `rows` [B], however many; return the values of each.

        The values are the loss's, [B] each, and the "gradient_norm" [1] before it was clipped. `settings` are the
        loss's scalars. Raises ResourceError where the loss or a gradient is not finite: what was committed before is
        untouched, so the run can go on from there.
        """
        import tensorflow as tf

        part = self._part_of(len(rows))
        if part not in self._compiled_for:
            self._compiled_for[part] = self._compile(part, settings)
        parts = np.full(-(-len(rows) // part) * part, NOBODY, np.int32)
        parts[: len(rows)] = rows
        powers = self._count()
        scalars = {name: tf.constant(value, tf.float32) for name, value in settings.items()}
        with shortages_explained():
            values, norm = self._compiled_for[part](
                self._data,
                tf.constant(parts.reshape(-1, part)),
                tf.constant(self._rate(learning_rate), tf.float32),
                tf.constant(powers, tf.float32),
                scalars,
            )
        return self._finite({name: value.numpy().ravel()[: len(rows)] for name, value in values.items()}, norm)

    def _part_of(self, count: int) -> int:
        """Return how many of `count` examples a part has: a power of two from LEAST on, and few places stay empty.

        So some threads have no part where they are many, or not a power of two.
        """
        share = -(-count // self._parts_at_a_time)
        return min(self.part, max(LEAST, 1 << (share - 1).bit_length()))

    def _count(self) -> list[float]:
        """Count an update, and return Adam's betas to the number of updates."""
        self._updates += 1
        return [beta**self._updates for beta in BETAS]

    def _rate(self, learning_rate: float) -> float:
        """Return the learning rate that is used, by the rule for batches that grow with the devices."""
        factors = {"given": 1.0, "linear": float(self.devices), "root": sqrt(self.devices)}
        return learning_rate * factors[self.options.learning_rate]

    def _finite(self, told: Values, norm: Any) -> Values:
        """Return values with the gradient's norm; ResourceError where they are not finite."""
        told["gradient_norm"] = norm.numpy()[None]
        for name in ("loss", "gradient_norm"):
            if not np.isfinite(told[name]).all():
                raise ResourceError(
                    f"the {name.replace('_', ' ')} of update {self._updates} is not finite, so learning cannot go on; "
                    "what was committed is intact: resume it with a smaller learning rate (which needs --fork)"
                )
        return told

    def _compile(self, part: int, settings: Mapping[str, float]) -> Any:
        import tensorflow as tf

        specs = {name: tf.TensorSpec((None, *array.shape[1:]), array.dtype) for name, array in self._data.items()}
        rows, one = tf.TensorSpec((None, part), tf.int32), tf.TensorSpec((), tf.float32)
        signature = [specs, rows, one, tf.TensorSpec(len(BETAS), tf.float32), dict.fromkeys(settings, one)]
        return tf.function(self._step, input_signature=signature, autograph=False)

    def _step(self, data: Any, rows: Any, rate: Any, powers: Any, settings: Any) -> Any:
        """Change the weights by the examples `rows` [N, part]; return their values, and the gradient's norm."""
        gradients, values = self._gradients(data, rows, settings)
        gradients, norm = self._clip(gradients)
        self._apply(gradients, rate, powers)
        return values, norm

    def _gradients(self, data: Any, rows: Any, settings: Any) -> Any:
        """Return the gradients of the summed loss over the number of all examples, and every example's values."""
        import tensorflow as tf

        count = tf.reduce_sum(tf.cast(rows > NOBODY, tf.float32))
        names: list[str] = []

        def add(i: Any, sums: Any, values: Any) -> Any:
            batch = {name: tf.gather(array, tf.maximum(rows[i], 0)) for name, array in data.items()}
            present = tf.cast(rows[i] > NOBODY, tf.float32)  # [part]
            with tf.GradientTape() as tape:
                each = self._loss(self.forward.model(batch["observations"], training=True), batch, settings)
                total = tf.reduce_sum(each["loss"] * present) / count
            gradients = tape.gradient(total, self._variables)
            names[:] = sorted(each)
            told = tf.stack([each[name] for name in names])  # [K, part]
            return i + 1, [one + other for one, other in zip(sums, gradients, strict=True)], values.write(i, told)

        parts = tf.shape(rows)[0]
        _, sums, values = tf.while_loop(
            lambda i, *_: i < parts,
            add,
            (0, [tf.zeros(variable.shape) for variable in self._variables], tf.TensorArray(tf.float32, parts)),
            parallel_iterations=self._parts_at_a_time,
        )
        return sums, dict(zip(names, tf.unstack(tf.transpose(values.stack(), [1, 0, 2]), len(names)), strict=True))

    def _clip(self, gradients: Any) -> Any:
        """Return the gradients, shortened to the greatest norm that is allowed, and the norm that they had."""
        import tensorflow as tf

        norm = tf.sqrt(tf.add_n([tf.reduce_sum(tf.square(gradient)) for gradient in gradients]))
        if not self._max_norm:
            return gradients, norm
        scale = self._max_norm / tf.maximum(norm, self._max_norm)
        return [gradient * scale for gradient in gradients], norm

    def _apply(self, gradients: Any, rate: Any, powers: Any) -> None:
        """Change the weights as Adam does; `powers` are its betas to the number of updates."""
        import tensorflow as tf

        for variable, first, second, gradient in zip(
            self._variables, self._first, self._second, gradients, strict=True
        ):
            tf.raw_ops.ResourceApplyAdam(
                var=variable.value.handle, m=first.handle, v=second.handle, beta1_power=powers[0],
                beta2_power=powers[1], lr=rate, beta1=BETAS[0], beta2=BETAS[1], epsilon=EPSILON, grad=gradient,
            )  # fmt: skip

    def weights(self) -> NDArray[np.float32]:
        """Return the present weights.  # [P]"""
        return flat_weights(self.forward.model)

    def state(self) -> Arrays:
        """Return everything that is needed to go on: "weights", "first", "second" [P] float32 and "updates" [1]."""
        first, second = ([np.ravel(slot.numpy()) for slot in slots] for slots in (self._first, self._second))
        return {
            "weights": self.weights(),
            "first": np.concatenate(first),
            "second": np.concatenate(second),
            "updates": np.array([self._updates], np.int64),
        }

    def restore(self, state: Arrays) -> None:
        """Take up a state that `state` returned."""
        self.begin(np.asarray(state["weights"], np.float32))
        for slots, name in ((self._first, "first"), (self._second, "second")):
            for slot, array in zip(slots, self.network.split(np.asarray(state[name], np.float32)), strict=True):
                slot.assign(array)
        self._updates = int(np.asarray(state["updates"], np.int64)[0])

    def begin(self, weights: NDArray[np.float32]) -> None:
        """Take weights [P] to start from, with no moments and no updates."""
        self.forward.set(weights)
        for slot in (*self._first, *self._second):
            slot.assign(slot * 0)
        self._updates = 0

    def fingerprint(self) -> str:
        """Return what computes here, with a digest of one step on known observations from known weights."""
        import keras
        import tensorflow as tf
        from llvmlite import binding

        from evo.networks.candidates import noise

        def squares(outputs: Any, batch: Mapping[str, Any], settings: Mapping[str, Any]) -> Mapping[str, Any]:
            return {"loss": tf.reduce_sum(tf.square(outputs - 1.0), 1)}

        known = type(self)(self.network, self.options, squares)
        weights = np.empty(self.network.size, np.float32)
        observations = np.empty((GOLDEN, *self.network.shape), np.float32)
        noise(np.uint64(1), weights)
        noise(np.uint64(2), observations.reshape(-1))
        known.begin(weights * np.float32(0.05))
        known.load({"observations": observations})
        count = self.part * self._parts_at_a_time  # whole parts
        known.update(np.resize(np.arange(GOLDEN, dtype=np.int32), count), 1e-3, {})
        digest = hashlib.sha256(known.weights().tobytes()).hexdigest()[:16]
        gpus = tf.config.list_logical_devices("GPU")
        machine = gpus[0].name if gpus else f"CPU {binding.get_host_cpu_name()}"
        threads = f"{self.options.threads} threads" + (" side by side" if self._parts_at_a_time > 1 else "")
        return (
            f"tensorflow {tf.__version__}, keras {keras.__version__}, {machine}, {threads}, "
            f"{self.options.dtype}, learning step {digest}{self._spread_over()}"
        )

    def _spread_over(self) -> str:
        """Return what the fingerprint says of several devices."""
        return ""

    def close(self) -> None:
        """End whatever computes elsewhere."""
