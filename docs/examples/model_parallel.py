"""Model parallelism: each stage of a network has its own device and gradient tape, so its backward pass stays there.

    python docs/examples/model_parallel.py

One tape around the whole network would compute every gradient on the device where `tape.gradient` is called. With one
tape per stage, the backward pass of a stage runs on its own device. Only activations and their gradients are copied
between stages. Three logical CPUs stand for three GPUs here. To use GPUs, leave out `set_logical_device_configuration`
and write "GPU:0", "GPU:1", "GPU:2".
"""

from __future__ import annotations

import os

os.environ.setdefault("KERAS_BACKEND", "tensorflow")
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import keras
import numpy as np
import tensorflow as tf

DEVICES = ("CPU:0", "CPU:1", "CPU:2")
STEPS, BATCH, SHAPE = 20, 32, (10, 10, 5)


def stages() -> list[list[keras.layers.Layer]]:
    """Return the layers of every stage."""
    return [
        [keras.layers.Conv2D(8, 3, padding="same", activation="relu")],
        [keras.layers.Conv2D(8, 3, padding="same", activation="relu"), keras.layers.Flatten()],
        [keras.layers.Dense(16, activation="relu"), keras.layers.Dense(3)],
    ]


class Stage:
    """Layers whose weights, forward pass and backward pass are on one device."""

    def __init__(self, device: str, layers: list[keras.layers.Layer], shape: tuple[int, ...]) -> None:
        self.device = device
        with tf.device(device):
            self.model = keras.Sequential(layers)
            self.model.build((None, *shape))

    def forward(self, x: tf.Tensor) -> tuple[tf.Tensor, tf.GradientTape, tf.Tensor]:
        """Return the output, the tape that recorded it, and the input on this device."""
        with tf.device(self.device), tf.GradientTape() as tape:
            x = tf.identity(x)
            tape.watch(x)
            return self.model(x), tape, x

    def backward(
        self, tape: tf.GradientTape, x: tf.Tensor, y: tf.Tensor, gradient: tf.Tensor
    ) -> tuple[tf.Tensor, list[tf.Tensor]]:
        """Return the gradients with respect to the input and to the weights, from that of the output."""
        with tf.device(self.device):
            sources = [x, *(variable.value for variable in self.model.trainable_variables)]
            of_input, *of_weights = tape.gradient(y, sources, output_gradients=tf.identity(gradient))
            return of_input, of_weights

    def apply(self, gradients: list[tf.Tensor], rate: float) -> None:
        """Update the weights by gradient descent; an optimizer per stage works as well."""
        with tf.device(self.device):
            for variable, gradient in zip(self.model.trainable_variables, gradients, strict=True):
                variable.value.assign_sub(rate * gradient)


def error(outputs: tf.Tensor, wanted: tf.Tensor) -> tf.Tensor:
    """Return the mean squared error."""
    return tf.reduce_mean(tf.square(outputs - wanted))


def step(line: list[Stage], x: tf.Tensor, wanted: tf.Tensor, rate: float) -> list[set[str]]:
    """Make one update through all stages; return the devices of each stage's weight gradients."""
    passed, y = [], x
    for stage in line:
        y, tape, seen = stage.forward(y)
        passed.append((stage, tape, seen, y))
    with tf.device(line[-1].device), tf.GradientTape() as tape:
        tape.watch(y)
        loss = error(y, wanted)
    gradient = tape.gradient(loss, y)
    found = []
    for stage, tape, seen, y in reversed(passed):
        gradient, of_weights = stage.backward(tape, seen, y, gradient)
        found.append({tensor.device.rpartition("device:")[2] for tensor in of_weights})
        stage.apply(of_weights, rate)
    return found[::-1]


def main() -> None:
    """Make the same updates in stages and on one device, and compare the weights."""
    cpu = tf.config.list_physical_devices("CPU")[0]
    tf.config.set_logical_device_configuration(cpu, [tf.config.LogicalDeviceConfiguration()] * len(DEVICES))
    tf.config.experimental.enable_op_determinism()
    keras.utils.set_random_seed(1)
    shape, line = SHAPE, []
    for device, layers in zip(DEVICES, stages(), strict=True):
        line.append(Stage(device, layers, shape))
        shape = line[-1].model.output_shape[1:]
    whole = Stage(DEVICES[0], [layer for layers in stages() for layer in layers], SHAPE)
    whole.model.set_weights([array for stage in line for array in stage.model.get_weights()])
    before, draw = whole.model.get_weights(), np.random.default_rng(1)
    for _ in range(STEPS):
        x = tf.constant(draw.random((BATCH, *SHAPE), np.float32))
        wanted = tf.constant(draw.normal(size=(BATCH, 3)).astype(np.float32))
        found = step(line, x, wanted, 0.1)
        step([whole], x, wanted, 0.1)
    weights = [variable.value for stage in line for variable in stage.model.trainable_variables]
    print("weights on    ", *(tensor.device.rpartition("device:")[2] for tensor in weights))
    print("gradients on  ", *("+".join(sorted(devices)) for devices in found))
    moved = zip(before, whole.model.get_weights(), strict=True)
    print("a weight has changed by up to", max(np.abs(a - b).max() for a, b in moved))
    pairs = zip(weights, whole.model.get_weights(), strict=True)
    print(f"largest difference from one device after {STEPS} steps:", max(np.abs(a - b).max() for a, b in pairs))


if __name__ == "__main__":
    main()
