"""One layer of a network: what it computes of which shape, and where its weights are in the flat vector."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Kind = Literal["conv", "dense", "one_hot", "max_pool", "average_pool", "tree", "identity"]
Activation = Literal["", "relu", "tanh"]

NORM_FLOPS = 7  # per value of layer normalisation: two sums, difference, square, scale, gamma, beta


@dataclass(frozen=True)
class Layer:
    """One layer, then its normalisation and its activation, if it has them.

    A dense layer is a 1 x 1 convolution of a 1 x 1 image with all inputs as channels. A one-hot layer makes filters /
    channels planes of each, one for every code. A tree is a complete binary decision tree: each of its filters - 1
    nodes compares one input with a threshold, and the output of the leaf that is reached is 1, all others are 0. The
    identity is for a normalisation or an activation alone.
    """

    kind: Kind
    height: int  # of the input
    width: int
    channels: int
    filters: int
    kernel: int  # side of the kernel, or of the window of pooling
    stride: int
    pad: int  # rows before the first: zeros of a convolution, nothing in a pool
    pad_left: int  # columns before the first
    out_height: int
    out_width: int
    offset: int  # of its weights in the flat vector: kernel and bias, or inputs and thresholds; gamma, beta
    activation: Activation = ""
    norm: bool = False
    padding: str = "valid"

    @property
    def weighted(self) -> bool:
        """Return whether it has a kernel and a bias."""
        return self.kind in ("conv", "dense")

    @property
    def fan_in(self) -> int:
        """Return the number of inputs of one output."""
        return self.kernel * self.kernel * (self.channels if self.weighted else 1)

    @property
    def kernel_size(self) -> int:
        """Return the number of weights of the kernel."""
        return self.fan_in * self.filters if self.weighted else 0

    @property
    def kernel_shape(self) -> tuple[int, ...]:
        """Return the shape of the Keras kernel."""
        if self.kind == "dense":
            return (self.channels, self.filters)
        return (self.kernel, self.kernel, self.channels, self.filters)

    @property
    def size(self) -> int:
        """Return the number of weights, with biases and normalisation."""
        return self.kernel_size + (self.filters if self.weighted else 0) + 2 * self.nodes + self.norm_size

    @property
    def nodes(self) -> int:
        """Return the number of comparisons of a tree."""
        return self.filters - 1 if self.kind == "tree" else 0

    @property
    def norm_size(self) -> int:
        """Return the number of weights of the layer normalisation, gamma and beta."""
        return 2 * self.filters if self.norm else 0

    @property
    def parts(self) -> tuple[str, ...]:
        """Return the names of the layer's arrays, in the order of the flat vector."""
        tree = ("inputs", "thresholds") if self.kind == "tree" else ()
        return (("kernel", "bias") if self.weighted else tree) + (("gamma", "beta") if self.norm else ())

    def part_shape(self, part: str) -> tuple[int, ...]:
        """Return the shape of one of `parts`."""
        if part == "kernel":
            return self.kernel_shape
        return (self.nodes if part in ("inputs", "thresholds") else self.filters,)

    @property
    def flops(self) -> int:
        """Return the floating-point operations of one forward pass, with borders counted in full."""
        if self.kind == "tree":
            return self.filters.bit_length() - 1
        each = 2 * self.fan_in if self.weighted else 0 if self.kind == "identity" else self.fan_in
        return self.out_height * self.out_width * self.filters * (each + (NORM_FLOPS if self.norm else 0))

    @property
    def multiply_adds(self) -> int:
        """Return the multiplications of a weight and an input in one forward pass, with borders counted in full."""
        return self.out_height * self.out_width * self.kernel_size

    @property
    def outputs(self) -> int:
        """Return the number of its outputs."""
        return self.out_height * self.out_width * self.filters


def windows(side: int, kernel: int, stride: int, padding: str) -> tuple[int, int]:
    """Return how many windows there are along a side, and how far the first one begins before it, as in TensorFlow.

    0 windows: the side is too small for one.
    """
    if padding == "valid":
        return max((side - kernel) // stride + 1, 0), 0
    count = -(-side // stride)
    return count, max((count - 1) * stride + kernel - side, 0) // 2
