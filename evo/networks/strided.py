"""A strided bfloat16 convolution for CPUs, whose input gradient is computed by a convolution without stride.

In bfloat16, oneDNN takes four times as long for the input gradient of a strided convolution as for the convolution
itself (3.3 ms against 0.9: 16 to 32 filters, 512 boards of 10 x 10, stride 2, one core). Inputs at the same position
within their stride (the same phase) depend on the same outputs through the same part of the kernel. So one convolution
of the output gradients, with one filter per phase and channel, computes them all.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from typing import Any


@cache
def conv_layer() -> Any:
    """Return the class of `Conv2D` layers whose strided bfloat16 gradients are fastest on this machine."""
    import keras
    import tensorflow as tf

    if tf.config.list_physical_devices("GPU"):
        return keras.layers.Conv2D

    class StridedConv2D(keras.layers.Conv2D):  # type: ignore[misc]
        def convolution_op(self, inputs: Any, kernel: Any) -> Any:
            return _convolved(self.strides[0], self.padding.upper())(inputs, tf.convert_to_tensor(kernel))

    return StridedConv2D


def _convolved(stride: int, padding: str) -> Any:
    import tensorflow as tf

    @tf.custom_gradient  # type: ignore[untyped-decorator]
    def convolved(inputs: Any, kernel: Any) -> Any:
        def gradients(of_outputs: Any) -> tuple[Any, Any]:
            of_kernel = tf.raw_ops.Conv2DBackpropFilter(
                input=inputs, filter_sizes=kernel.shape, out_backprop=of_outputs,
                strides=(1, stride, stride, 1), padding=padding,
            )  # fmt: skip
            return input_gradient(of_outputs, kernel, inputs.shape[1:3], stride, padding), of_kernel

        return tf.nn.conv2d(inputs, kernel, stride, padding), gradients

    return convolved


def input_gradient(of_outputs: Any, kernel: Any, size: Sequence[int], stride: int, padding: str) -> Any:
    """Return the gradient of a strided convolution with respect to its input.

    of_outputs [B, h, w, F], kernel [k, k, C, F] -> [B, *size, C]. `padding` is "SAME" or "VALID".
    """
    import tensorflow as tf

    side, _, channels, filters = kernel.shape
    taps = -(-side // stride)  # outputs that depend on an input, along either axis
    outputs = of_outputs.shape[1:3]
    before = [0, 0]  # zeros of "SAME" padding
    if padding == "SAME":
        before = [max((o - 1) * stride + side - n, 0) // 2 for o, n in zip(outputs, size, strict=True)]
    strides = [-(-(b + n) // stride) for b, n in zip(before, size, strict=True)]  # strides that the inputs span

    kernel = tf.pad(kernel, [[0, taps * stride - side]] * 2 + [[0, 0]] * 2)
    kernel = tf.reverse(tf.reshape(kernel, (taps, stride, taps, stride, channels, filters)), (0, 2))
    kernel = tf.reshape(tf.transpose(kernel, (0, 2, 5, 1, 3, 4)), (taps, taps, filters, stride * stride * channels))
    edges = [[taps - 1, s - o] for s, o in zip(strides, outputs, strict=True)]
    of_phases = tf.nn.conv2d(tf.pad(of_outputs, [[0, 0], *edges, [0, 0]]), kernel, 1, "VALID")

    rows, columns = strides
    of_inputs = tf.reshape(of_phases, (-1, rows, columns, stride, stride * channels))
    of_inputs = tf.reshape(tf.transpose(of_inputs, (0, 1, 3, 2, 4)), (-1, rows * stride, columns * stride, channels))
    return of_inputs[:, before[0] : before[0] + size[0], before[1] : before[1] + size[1]]
