"""A network as a description and one flat float32 vector, in the order of Keras's `get_weights()`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import Field, model_validator

from evo.errors import ConfigurationError
from evo.plugins.options import Section

# What `preset = "seed"` expands to: the network of the snake-rl project that this one succeeds.
PRESETS = {"seed": {"conv": [[100, 4, 1], [200, 3, 1]], "dense": [200], "padding": "valid"}}

EPSILON = 1e-3  # added to the variance by layer normalisation, as in Keras
NORM_FLOPS = 7  # per value of layer normalisation: two sums, difference, square, scale, gamma, beta


class Options(Section):
    """The [policy] section: the layers of the network that plays."""

    kind: Literal["cnn", "mlp", "linear"] = Field(
        "cnn", description="convolutions and dense layers, dense layers only, or the output layer only"
    )
    preset: Literal["", "seed"] = Field(
        "", description="a named architecture that sets conv, dense and padding; empty = none"
    )
    conv: list[list[int]] = Field(
        [[8, 3, 2], [8, 3, 2]], description="filters, kernel size, stride of each convolution"
    )
    dense: list[int] = Field([16], description="units of each hidden dense layer")
    padding: Literal["same", "valid"] = Field("same", description="padding of the convolutions")
    norm: Literal["none", "layer"] = Field("none", description="normalisation of hidden layers, before the activation")
    activation: Literal["relu", "tanh"] = Field(
        "relu",
        exclude_if=lambda name: name == "relu",
        description="activation of hidden layers; tanh needs TensorFlow, whose bits depend on the machine",
    )
    inference: Literal["auto", "lanes", "lanes-bfloat16", "tensorflow", "tensorflow-bfloat16"] = Field(
        "auto",
        description="engine of the forward pass; only lanes gives the same bits on every machine; lanes-bfloat16 is "
        "for large networks on processors with AVX512-BF16; auto: lanes for relu, tensorflow for tanh",
    )

    @model_validator(mode="after")
    def _consistent(self) -> Options:
        given = self.model_fields_set
        if self.preset and given & {"conv", "dense", "padding"} and self.expanded() != self.own():
            raise ValueError("preset: leave out conv, dense and padding, which the preset sets")
        for layer in self.conv:
            if len(layer) != 3 or not all(
                1 <= value <= limit for value, limit in zip(layer, (4096, 63, 63), strict=True)
            ):
                raise ValueError(f"conv: {layer} is not [filters 1-4096, kernel 1-63, stride 1-63]")
        if len(self.conv) > 16 or len(self.dense) > 16:
            raise ValueError("conv, dense: at most 16 layers each")
        if not all(1 <= units <= 65536 for units in self.dense):
            raise ValueError(f"dense: {self.dense} is not a list of 1 to 65536 units each")
        if self.kind == "cnn" and not self.preset and not self.conv:
            raise ValueError('conv: empty; use kind = "mlp" for dense layers only')
        if self.player == "lanes" and self.inference != "auto" and self.activation != "relu" and self.kind != "linear":
            raise ValueError(f'inference: "{self.inference}" has no {self.activation}; use "auto" or "tensorflow"')
        return self

    @property
    def player(self) -> Literal["lanes", "tensorflow"]:
        """Return the engine of the forward pass."""
        return "tensorflow" if self.inference.startswith("tensorflow") else "lanes"

    @property
    def dtype(self) -> Literal["float32", "bfloat16"]:
        """Return the precision of the forward pass."""
        return "bfloat16" if self.inference.endswith("bfloat16") else "float32"

    @property
    def bfloat16_pairs(self) -> bool:
        """Return whether the lanes kernel computes hidden layers in bfloat16 pairs."""
        return self.inference == "lanes-bfloat16"

    def own(self) -> dict[str, object]:
        """Return the layers as configured."""
        return {"conv": self.conv, "dense": self.dense, "padding": self.padding}

    def expanded(self) -> dict[str, object]:
        """Return the layers, with a preset expanded."""
        return PRESETS[self.preset] if self.preset else self.own()

    def resolved(self) -> Options:
        """Return the options with the preset expanded, `inference` decided, and unused options at their defaults."""
        activation = self.activation if self.kind != "linear" else "relu"
        inference = self.inference
        if inference == "auto":
            inference = "lanes" if activation == "relu" else "tensorflow"
        layers = self.expanded()
        if self.kind != "cnn":
            layers = {**layers, "conv": []}
        if self.kind == "linear":
            layers = {**layers, "dense": []}
        if inference == "lanes-bfloat16" and not (layers["conv"] or layers["dense"]):
            inference = "lanes"  # without a hidden layer there is nothing to round
        norm = self.norm if self.kind != "linear" else "none"
        return Options.model_construct(
            kind=self.kind,
            preset="",
            norm=norm,
            activation=activation,
            inference=inference,
            **layers,  # type: ignore[arg-type]
        )


@dataclass(frozen=True)
class Layer:
    """One layer; a dense layer is a 1 x 1 convolution of a 1 x 1 image with all inputs as channels."""

    kind: Literal["conv", "dense"]
    height: int  # of the input
    width: int
    channels: int
    filters: int
    kernel: int
    stride: int
    pad: int  # rows of zeros before the first
    pad_left: int  # columns of zeros before the first
    out_height: int
    out_width: int
    offset: int  # of the kernel in the flat vector; bias, gamma and beta follow it
    relu: bool
    norm: bool

    @property
    def fan_in(self) -> int:
        """Return the number of inputs of one output."""
        return self.kernel * self.kernel * self.channels

    @property
    def kernel_shape(self) -> tuple[int, ...]:
        """Return the shape of the Keras kernel."""
        if self.kind == "dense":
            return (self.channels, self.filters)
        return (self.kernel, self.kernel, self.channels, self.filters)

    @property
    def size(self) -> int:
        """Return the number of weights, with biases and normalisation."""
        return (self.fan_in + 1) * self.filters + self.norm_size

    @property
    def norm_size(self) -> int:
        """Return the number of weights of the layer normalisation, gamma and beta."""
        return 2 * self.filters if self.norm else 0

    @property
    def parts(self) -> tuple[str, ...]:
        """Return the names of the layer's arrays, in the order of the flat vector."""
        return ("kernel", "bias", "gamma", "beta") if self.norm else ("kernel", "bias")

    @property
    def flops(self) -> int:
        """Return the floating-point operations of one forward pass, with borders counted in full."""
        return self.out_height * self.out_width * self.filters * (2 * self.fan_in + (NORM_FLOPS if self.norm else 0))


@dataclass(frozen=True)
class Network:
    """A network for one observation shape: layers over one flat float32 vector of `size` weights.

    Its outputs are one score per action, followed by those of other heads, such as a value.
    """

    options: Options
    shape: tuple[int, ...]
    actions: int
    layers: tuple[Layer, ...]

    @classmethod
    def build(cls, options: Options, shape: tuple[int, ...], actions: int, extra: int = 0) -> Network:
        """Return the network for observations of `shape`, with `extra` outputs behind the scores of the actions.

        Raises ConfigurationError where the layers do not fit the observation.
        """
        options = options.resolved()
        layers: list[Layer] = []
        norm = options.norm == "layer"
        offset = 0
        if options.conv:
            if len(shape) != 3:
                raise ConfigurationError(
                    f'policy.kind: "cnn" needs an image, but the observation has shape {shape}; use "mlp"'
                )
            height, width, channels = shape
            for filters, kernel, stride in options.conv:
                if options.padding == "same":
                    out_height, out_width = -(-height // stride), -(-width // stride)
                    pad = max((out_height - 1) * stride + kernel - height, 0) // 2  # as TensorFlow pads
                    pad_left = max((out_width - 1) * stride + kernel - width, 0) // 2
                else:
                    out_height, out_width = (height - kernel) // stride + 1, (width - kernel) // stride + 1
                    pad = pad_left = 0
                if options.padding == "valid" and min(height, width) < kernel:
                    raise ConfigurationError(
                        f"policy.conv: a {height} x {width} input is too small for a valid {kernel} x {kernel} "
                        f'convolution (layer {len(layers) + 1}); use padding = "same" or a larger board'
                    )
                sides = height, width, channels, filters, kernel, stride, pad, pad_left, out_height, out_width
                layers.append(Layer("conv", *sides, offset, True, norm))
                offset += layers[-1].size
                height, width, channels = out_height, out_width, filters
            inputs = height * width * channels
        else:
            inputs = int(np.prod(shape))
        for units in options.dense:
            layers.append(Layer("dense", 1, 1, inputs, units, 1, 1, 0, 0, 1, 1, offset, True, norm))
            offset += layers[-1].size
            inputs = units
        layers.append(Layer("dense", 1, 1, inputs, actions + extra, 1, 1, 0, 0, 1, 1, offset, False, False))
        return cls(options, tuple(shape), actions, tuple(layers))

    @property
    def outputs(self) -> int:
        """Return the number of outputs of all heads."""
        return self.layers[-1].filters

    @property
    def size(self) -> int:
        """Return the number of weights."""
        return sum(layer.size for layer in self.layers)

    @property
    def flops(self) -> int:
        """Return the floating-point operations of one forward pass."""
        return sum(layer.flops for layer in self.layers)

    def split(self, weights: NDArray[np.float32]) -> list[NDArray[np.float32]]:
        """Return the arrays of `weights` [P] in the order and shapes of Keras's `get_weights()`."""
        if weights.shape != (self.size,):
            raise ValueError(f"weights of shape {weights.shape} where the network has ({self.size},)")
        arrays = []
        for layer in self.layers:
            end = layer.offset + layer.fan_in * layer.filters
            arrays.append(weights[layer.offset : end].reshape(layer.kernel_shape))
            for _ in layer.parts[1:]:
                arrays.append(weights[end : end + layer.filters])
                end += layer.filters
        return arrays

    def names(self) -> list[str]:
        """Return a name for each array of `split`."""
        return [f"{i}_{layer.kind}_{part}" for i, layer in enumerate(self.layers) for part in layer.parts]
