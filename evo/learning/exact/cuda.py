"""The exact learner on a GPU: the bits of the learner on CPUs, for its order of sums is the same.

The observations of a generation are copied to the GPU once; of an update, rows and the arrays of its loss. Weights and
moments stay there, and come back when they are asked for.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from math import sqrt
from typing import Any

import numpy as np
from numpy.typing import NDArray

from evo.compiled.functions import integer_power
from evo.cuda.launch import Device, Source
from evo.errors import DeviceError, DeviceLostError, DeviceMemoryError
from evo.kernels.layout import TANH, WEIGHTED
from evo.learning.exact import cuda_kernels as kernels
from evo.learning.exact import cuda_products as products
from evo.learning.exact.learner import NUMBERS, ExactLearner
from evo.learning.exact.losses import POLICY_VALUES, Q_VALUES, PolicyBatch, QBatch, loss_of
from evo.learning.exact.plan import BLOCK, refuse, table_of
from evo.learning.exact.weights import Weights
from evo.learning.learner import BETAS, KnownLoss, Learner, PolicyLoss, Rows, Snapshots, Values
from evo.networks.network import Network

SIDES = (16, 8)  # of a square of threads, which computes a tile of a product: the largest that gives enough tiles
ENOUGH = 132  # tiles: the multiprocessors of a large GPU
MOST = (1 << 31) - 1  # numbers of a batch, which kernels count in 32 bits
SIZES = 8  # of batches whose launches are kept
GOLDEN_SETTINGS = {"entropy_coefficient": 0.01, "value_coefficient": 0.5, "clip_range": 0.2, "value_clip_range": 0.2}
GOLDEN = 2 * BLOCK + 44  # examples that are compared with the CPU, at most
Launch = Callable[[], None]


@dataclass
class Launches:
    """What an update by a number of examples launches, before and behind the loss, and where its values go."""

    values: NDArray[np.float32]  # [V, B]
    forward: list[Launch]
    of_target: list[Launch]  # forward, with the weights of the target network
    backward: list[Launch]


class CudaLearner(ExactLearner):
    """An exact learner whose updates a GPU computes."""

    def __init__(
        self,
        network: Network,
        threads: int,
        loss: KnownLoss,
        max_gradient_norm: float,
        device: Device,
        sides: tuple[int, ...] = SIDES,
    ) -> None:
        """Prepare as the learner on CPUs; ConfigurationError names what GPUs do not learn yet."""
        refuse(network, loss)
        super().__init__(network, threads, loss, max_gradient_norm)
        self._device, self._sides, self._block = device, sides, sides[0] ** 2  # threads of a block
        self._examples, self._launches = 0, dict[int, Launches]()
        self._programs: dict[tuple[Any, int], Any] = {}
        self._newer = False  # whether the GPU's weights and moments are
        self._kept: list[NDArray[Any]] = []  # of batches up to a size
        self._limit, self._norm = np.full(1, self._max_norm, np.float32), np.zeros(1, np.float32)
        self._learned = self.network_weights.vector, self._first, self._second
        self._of_target = [self.target.vector] * self.has_target
        for array in (*self._learned, *self._of_target, self._limit, self._norm):
            device.keep(array)

    def warm_up(self) -> None:
        """Compile, and compare two updates with those of the CPU; DeviceError where a bit differs."""
        count, found = min(int(np.prod(self._device.golden)), GOLDEN), []
        data, weights = golden_examples(self.network, self._loss, count)
        rows = np.arange(count, dtype=np.int32)
        cpu = ExactLearner(self.network, self._threads.count, self._loss, float(self._max_norm))
        for learner in (self, cpu):
            learner.begin(weights)
            learner.set_target(weights)
            learner.load(data)
            seen = [learner.update(rows[: count - k], 1e-3, GOLDEN_SETTINGS) for k in range(2)]
            found.append([array.tobytes() for one in (*seen, learner.state()) for array in one.values()])
            learner.unload()
        cpu.close()
        if found[0] != found[1]:
            raise DeviceError(
                f"{self._device.name} does not compute the bits of the exact learner, so it would change results; "
                'learn on the CPU with learner.device = "cpu"'
            )

    def inputs(self, environment: Any, rows: NDArray[Any], threads: int) -> NDArray[np.float32] | Snapshots:
        """Return observations, as `Learner.inputs`."""
        return Learner.inputs(self, environment, rows, threads)

    def load(self, data: Mapping[str, NDArray[Any] | Snapshots]) -> None:
        """Load as `ExactLearner.load`, and copy the observations to the GPU."""
        self.unload()
        super().load(data)
        self._device.keep(self._observations)  # type: ignore[arg-type]

    def unload(self) -> None:
        """Release what `load` took."""
        if self._data:
            self._device.drop(self._observations)  # type: ignore[arg-type]
        super().unload()

    def update(self, rows: Rows, learning_rate: float, settings: Mapping[str, float]) -> Values:
        """Update the weights by the examples `rows` [B], as `Learner.update`."""
        names, values = self._compute(rows, settings)
        self.updates += 1
        betas = [integer_power(beta, self.updates) for beta in BETAS]
        rate = np.array([learning_rate * sqrt(1.0 - betas[1]) / (1.0 - betas[0])], np.float32)
        size = self.network.size
        self._run(kernels.step, size, size, self._limit, rate, self._norm, self._gradients, *self._learned)
        self._newer = True
        for array in (values, self._norm):
            self._device.receive(array)
        return self._finite(dict(zip(names, values.copy(), strict=True)), self._norm[0])

    def gradients(self, rows: Rows, settings: Mapping[str, float]) -> Values:
        """Compute the gradient of the mean loss over the examples `rows` [B]; return the values of each."""
        names, values = self._compute(rows, settings)
        for array in (values, self._gradients):
            self._device.receive(array)
        self.gradient[:] = self._gradients[: self.network.size]
        return dict(zip(names, values.copy(), strict=True))

    def outputs(
        self, observations: NDArray[np.float32], rows: Rows, weights: Weights | None = None
    ) -> NDArray[np.float32]:
        """Return the outputs of some observations, as `ExactLearner.outputs`; those of targets are computed here."""
        if not self.has_target:
            self._receive()
            return super().outputs(observations, rows, weights)
        rows, out = self._checked(rows, len(observations)), np.empty((len(rows), self.network.outputs), np.float32)
        launches = self._launches_for(len(rows))
        self._forward(observations, rows, launches.of_target if weights is self.target else launches.forward)
        arguments = self._layers, len(self._layers) - 1, len(rows), self._x, out
        program, blocks, threads = self._grid(kernels.outputs, out.size, arguments)
        self._device.run(program, arguments, blocks, threads, [out], True)
        return out

    def update_target(self, tau: float, every: int) -> None:
        """Move the target network, as `ExactLearner.update_target`."""
        if (self.updates % every == 0) if every else tau:
            vectors, share = (self.network_weights.vector, self.target.vector), np.array([tau], np.float32)
            self._run(kernels.follow, self.network.size, self.network.size, share, int(every > 0), *vectors)
            self._newer = True

    def abandon(self) -> None:
        """End an update that another thread computes, as `Learner.abandon`."""
        self._device.abandon()

    def close(self) -> None:
        """Free the GPU's memory, unless it hangs, and end the threads."""
        self.abandon()
        with suppress(DeviceLostError):
            self.unload()
            self._forget()
            for array in (*self._kept, *self._learned, *self._of_target, self._limit, self._norm):
                self._device.drop(array)
        super().close()

    def _compute(self, rows: Rows, settings: Mapping[str, float]) -> tuple[tuple[str, ...], NDArray[np.float32]]:
        """Launch what computes the gradient of a batch; return the names of its values, and where these will be."""
        rows = self._checked(rows, len(self._observations))
        (batch, numbers), names = self._prepared(rows, settings)
        count, launches = len(rows), self._launches_for(len(rows))
        last = len(self._layers) - 1
        self._forward(self._observations, rows, launches.forward)
        self._run(kernels.losses, count, self._layers, last, count, self._x, batch, numbers, launches.values)
        for launch in launches.backward:
            launch()
        return names, launches.values

    def _forward(self, observations: Any, rows: Rows, launches: list[Launch]) -> None:
        """Launch what computes the outputs of some observations."""
        self._run(kernels.take_examples, len(rows) * observations.shape[1], self._layers, observations, rows, self._x)
        for launch in launches:
            launch()

    def _launches_for(self, count: int) -> Launches:
        """Return the launches of a batch of `count` examples, prepared once."""
        if count > self._examples:
            self._reserve(count)
        if count not in self._launches:
            if len(self._launches) == SIZES:
                self._forget()
            self._launches[count] = self._launches_of(count)
        return self._launches[count]

    def _reserve(self, examples: int) -> None:
        """Reserve buffers for batches of up to `examples`."""
        self._forget()
        for array in self._kept:
            self._device.drop(array)
        self._layers, floats = table_of(self.network, examples)
        if floats > MOST:
            raise DeviceMemoryError(
                f"learner.device: a batch of {examples:,} examples needs {floats * 4 / 1e9:.0f} GB on a GPU, "
                f"of at most {MOST * 4 / 1e9:.0f}; take smaller batches"
            )
        self._x = np.empty(floats, np.float32)
        self._gradients = np.empty(-(-examples // BLOCK) * self.network.size, np.float32)
        self._examples, self._kept = examples, [self._layers, self._x, self._gradients]
        self._device.keep(self._layers)
        for array in self._kept[1:]:
            self._device.keep(array, copy=False)

    def _forget(self) -> None:
        """Drop what was prepared for batches."""
        for launches in self._launches.values():
            self._device.drop(launches.values)
        self._launches.clear()

    def _forward_of(self, count: int, w: NDArray[np.float32]) -> list[Launch]:
        """Prepare the launches that compute outputs with these weights, layer by layer."""
        layers, x, forward = self._layers, self._x, list[Launch]()
        for number, layer in enumerate(layers):
            of_layer, pixels = (layers, number, count), count * int(layer["pixels"])
            filters, terms = int(layer["filters"]), int(layer["terms"])
            if layer["kind"] == WEIGHTED:
                if layer["patches"] != layer["input"]:
                    forward.append(self._each(kernels.gather_patches, pixels * terms, *of_layer, x))
                forward.append(self._tiled(products.sums, (pixels, filters, 1), *of_layer, w, x))
            else:
                forward.append(self._each(kernels.transform, pixels, *of_layer, x))
            if layer["norm"]:
                forward.append(self._each(kernels.normalise, pixels, *of_layer, w, x))
            if layer["activation"] and (layer["norm"] or layer["kind"] != WEIGHTED or layer["activation"] == TANH):
                forward.append(self._each(kernels.activate, pixels * filters, *of_layer, x))
        return forward

    def _launches_of(self, count: int) -> Launches:
        """Prepare the launches of a batch of `count` examples."""
        names = POLICY_VALUES if isinstance(self._loss, PolicyLoss) else Q_VALUES
        values = np.empty((len(names), count), np.float32)
        self._device.keep(values, copy=False)
        layers, x, gradients, size = self._layers, self._x, self._gradients, self.network.size
        w, blocks, last, backward = self.network_weights.vector, -(-count // BLOCK), len(layers) - 1, list[Launch]()
        for number in range(last, -1, -1):
            layer = layers[number]
            of_layer, pixels = (layers, number, count), count * int(layer["pixels"])
            filters, terms = int(layer["filters"]), int(layer["terms"])
            if layer["activation"]:
                backward.append(self._each(kernels.activate_back, pixels * filters, *of_layer, x))
            if layer["norm"]:
                backward.append(self._each(kernels.norm_gradients, blocks * filters, *of_layer, size, x, gradients))
                backward.append(self._each(kernels.normalise_back, pixels, *of_layer, w, x))
            if layer["kind"] == WEIGHTED:
                shape = terms + 1, filters, blocks
                backward.append(self._tiled(products.kernel_gradients, shape, *of_layer, size, x, gradients))
            if not layer["passes_on"]:
                break
            if layer["kind"] == WEIGHTED:
                backward.append(self._tiled(products.input_gradients, (pixels, terms, 1), *of_layer, w, x))
                if layer["patches"] != layer["input"]:
                    inputs = count * int(layer["input_size"])
                    backward.append(self._each(kernels.add_patches, inputs, *of_layer, x))
            else:
                channels = count * int(layer["channels"])
                backward.append(self._each(kernels.transform_back, channels, *of_layer, x))
        if blocks > 1:
            backward.append(self._each(kernels.add_blocks, size, blocks, size, gradients))
        backward.append(self._each(kernels.norm, 1, size, gradients, self._norm))
        of_target = [launch for array in self._of_target for launch in self._forward_of(count, array)]
        return Launches(values, self._forward_of(count, w), of_target, backward)

    def _program(self, kernel: Callable[..., None], side: int, arguments: tuple[Any, ...]) -> Any:
        if (kernel, side) not in self._programs:
            loss = self._loss
            batch = PolicyBatch if isinstance(loss, PolicyLoss) else QBatch
            chosen = loss_of(batch, isinstance(loss, PolicyLoss) and loss.is_gaussian)
            constants = (*products.constants_of(side), ("STRETCH", 8 * self._block))
            replaced = ((kernels.loss_of_example, chosen),) if kernel is kernels.losses else ()
            source = Source(kernel, constants, replaced)
            self._programs[kernel, side] = self._device.program(source, arguments)
        return self._programs[kernel, side]

    def _grid(self, kernel: Callable[..., None], work: int, arguments: tuple[Any, ...]) -> tuple[Any, int, int]:
        """Return the program of a kernel whose threads share out some work, and its blocks and threads."""
        program, threads = self._program(kernel, self._sides[0], arguments), self._block
        return program, min(-(-work // threads), self._device.blocks(program, threads)), threads

    def _run(self, kernel: Callable[..., None], work: int, *arguments: Any) -> None:
        """Launch a kernel with arrays that are copied to the GPU, if it has none that is kept."""
        program, blocks, threads = self._grid(kernel, work, arguments)
        self._device.run(program, arguments, blocks, threads, ())

    def _each(self, kernel: Callable[..., None], work: int, *arguments: Any) -> Launch:
        program, blocks, threads = self._grid(kernel, work, arguments)
        return self._device.prepared(program, arguments, blocks, threads)

    def _tiled(self, kernel: Callable[..., None], shape: tuple[int, int, int], *arguments: Any) -> Launch:
        """Prepare products of this many rows and columns, as often as the last number says."""
        rows, columns, times = shape
        for side in self._sides:
            tiles = -(-rows // (4 * side)) * -(-columns // (4 * side)) * times
            if tiles >= ENOUGH:
                break
        return self._device.prepared(self._program(kernel, side, arguments), arguments, tiles, side * side)

    def _receive(self) -> None:
        if self._newer:
            for array in (*self._learned, *self._of_target):
                self._device.receive(array)
            self.network_weights.changed()
            self.target.changed()
            self._newer = False

    def _send(self) -> None:
        for array in (*self._learned, *self._of_target):
            self._device.send(array)
        self._newer = False


def golden_examples(
    network: Network, loss: KnownLoss, count: int
) -> tuple[dict[str, NDArray[Any]], NDArray[np.float32]]:
    """Return random examples for a loss, and weights."""
    draw, actions = np.random.default_rng(1), loss.actions
    gaussian = isinstance(loss, PolicyLoss) and loss.is_gaussian
    data = {name: draw.normal(size=count).astype(np.float32) for name in NUMBERS}
    chosen = draw.normal(size=(count, actions)) if gaussian else draw.integers(0, actions, count)
    data["actions"] = chosen.astype(np.float32 if gaussian else np.int32)
    for name in ("observations", "next_observations"):
        data[name] = draw.integers(0, 4, (count, *network.shape)).astype(np.float32)
    data["next_action_masks"] = np.ones((count, actions), np.bool_)
    return data, draw.normal(0, 0.1, network.size).astype(np.float32)
