"""Layers of a network: as lines of text in `policy.layers`, and with their shapes and the places of their weights."""

from __future__ import annotations

from dataclasses import dataclass
from math import prod
from typing import Literal

from evo.errors import did_you_mean

Kind = Literal["conv", "dense", "one_hot", "max_pool", "average_pool", "tree", "gru", "lstm", "identity", "vector"]
Activation = Literal["", "relu", "tanh"]

NORM_FLOPS = 7  # per value of layer normalisation: two sums, difference, square, scale, gamma, beta
GATE_FLOPS = 28  # per gate of a recurrent unit: an exact tanh, and a product or a sum
PADDINGS = ("same", "valid")
SIDE = 63  # cells along a kernel or a window, and between two of them, at most


@dataclass(frozen=True)
class Form:
    """What follows the name of a layer: numbers with their largest values, of which the last may be left out."""

    numbers: tuple[tuple[str, int], ...] = ()
    needed: int = 0
    padded: bool = False
    least: int = 1

    def usage(self, kind: str) -> str:
        """Return the form as in "conv FILTERS KERNEL [STRIDE] [same | valid]"."""
        names = [name.upper() if i < self.needed else f"[{name.upper()}]" for i, (name, _) in enumerate(self.numbers)]
        return " ".join([kind, *names, *(["[same | valid]"] if self.padded else [])])


WINDOW = Form((("size", SIDE), ("stride", SIDE)), needed=1, padded=True)
FORMS = {
    "one_hot": Form((("codes", 256),), least=2),
    "conv": Form((("filters", 4096), ("kernel", SIDE), ("stride", SIDE)), needed=2, padded=True),
    "dense": Form((("units", 65536),), needed=1),
    "max_pool": WINDOW,
    "average_pool": WINDOW,
    "tree": Form((("depth", 10),), needed=1),
    "gru": Form((("units", 4096),), needed=1),
    "lstm": Form((("units", 4096),), needed=1),
    "norm": Form(),
    "relu": Form(),
    "tanh": Form(),
}
GATES = {"gru": 3, "lstm": 4}  # sums of each unit of a recurrent layer, in the order of Keras: z, r, h; i, f, c, o
WINDOWED = ("conv", "max_pool", "average_pool")  # layers that need rows and columns


@dataclass(frozen=True)
class LayerSpec:
    """A hidden layer as `policy.layers` lists it: a name, whole numbers, and the padding.

    A convolution without a stride has stride 1, a pooling window steps by its size.
    """

    kind: str
    numbers: tuple[int, ...] = ()
    padding: str = ""  # empty: that of the section

    def __str__(self) -> str:
        return " ".join([self.kind, *map(str, self.numbers), *([self.padding] if self.padding else [])])


def parse(text: str) -> LayerSpec:
    """Return the layer of a line of `policy.layers`; ValueError with the line and what is wrong with it."""
    kind, *words = text.split() or [""]
    form = FORMS.get(kind)
    if form is None:
        close = did_you_mean(kind, FORMS) or f"; there are {', '.join(FORMS)}"
        raise ValueError(f'"{text[:60]}" is not known{close}')
    padding = ""
    if form.padded and words and not _is_number(words[-1]):
        padding = words.pop()
        if padding not in PADDINGS:
            raise ValueError(f'"{text[:60]}": the padding is same or valid{did_you_mean(padding, PADDINGS)}')
    if not form.needed <= len(words) <= len(form.numbers):
        raise ValueError(f'"{text[:60]}" is not of the form "{form.usage(kind)}"')
    numbers = []
    for word, (name, most) in zip(words, form.numbers, strict=False):
        if not _is_number(word) or not form.least <= int(word) <= most:
            raise ValueError(f'"{text[:60]}": {name} must be a whole number from {form.least} to {most:,}')
        numbers.append(int(word))
    if form.padded and len(numbers) < len(form.numbers):
        numbers.append(1 if kind == "conv" else numbers[0])
    return LayerSpec(kind, tuple(numbers), padding)


def _is_number(word: str) -> bool:
    return word.isascii() and word.isdigit() and len(word) < 10


def checked(text: str) -> str:
    """Return the text; ValueError where it is no layer."""
    parse(text)
    return text


def order_mistake(layers: list[LayerSpec]) -> str:
    """Return the mistake in the order of layers, if any."""
    flat = None  # a layer behind which there are no rows and columns
    for number, layer in enumerate(layers, 1):
        if layer.kind == "one_hot" and number > 1:
            return f'"{layer}" is layer {number}, but only the observation has codes; it must be the first'
        if layer.kind in WINDOWED and flat:
            return f'"{layer}" is layer {number}, behind "{flat}", whose output has no rows and columns'
        flat = layer if layer.kind in ("dense", "tree", *GATES) else flat
    return ""


@dataclass(frozen=True)
class Layer:
    """One layer, then its normalisation and its activation, if it has them.

    A dense layer is a 1 x 1 convolution of a 1 x 1 image with all inputs as channels. A one-hot layer makes filters /
    channels planes of each, one for every code. A tree is a complete binary decision tree: each of its filters - 1
    nodes compares one input with a threshold, and the output of the leaf that is reached is 1, all others are 0. The
    identity is for a normalisation or an activation alone. A vector is no layer but the weights of a problem.

    A recurrent layer (`gru`, `lstm`) is one of Keras's defaults: from its inputs and its state of the step before, it
    computes its next state and, of that, its outputs. The state is zero when an episode begins. A GRU's state are its
    outputs h; an LSTM's are its outputs h, then its cells c.
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
    offset: int  # of its arrays in the flat vector
    activation: Activation = ""
    norm: bool = False
    padding: str = "valid"

    @property
    def pad_after(self) -> tuple[int, int]:
        """Return the rows and the columns of padding behind the last ones."""
        down = (self.out_height - 1) * self.stride + self.kernel - self.height - self.pad
        right = (self.out_width - 1) * self.stride + self.kernel - self.width - self.pad_left
        return max(down, 0), max(right, 0)

    @property
    def weighted(self) -> bool:
        """Return whether it has a kernel and a bias."""
        return self.kind in ("conv", "dense")

    @property
    def fan_in(self) -> int:
        """Return the number of inputs of one output."""
        return self.kernel * self.kernel * (self.channels if self.weighted or self.gates else 1)

    @property
    def kernel_size(self) -> int:
        """Return the number of weights of the kernel."""
        return self.fan_in * self.filters if self.weighted else 0

    @property
    def size(self) -> int:
        """Return the number of weights, with biases and normalisation."""
        return sum(map(prod, self.arrays.values()))

    @property
    def gates(self) -> int:
        """Return the sums of each unit of a recurrent layer, of its inputs and as many of its state; else 0."""
        return GATES.get(self.kind, 0)

    @property
    def memory(self) -> int:
        """Return the number of floats of a recurrent layer's state; else 0."""
        return {"gru": self.filters, "lstm": 2 * self.filters}.get(self.kind, 0)

    @property
    def nodes(self) -> int:
        """Return the number of comparisons of a tree."""
        return self.filters - 1 if self.kind == "tree" else 0

    @property
    def norm_size(self) -> int:
        """Return the number of weights of the layer normalisation, gamma and beta."""
        return 2 * self.filters if self.norm else 0

    @property
    def arrays(self) -> dict[str, tuple[int, ...]]:
        """Return names and shapes of the layer's arrays, in the order of the flat vector; both are Keras's."""
        inputs, filters, sums = self.channels, self.filters, self.gates * self.filters
        own: dict[str, dict[str, tuple[int, ...]]] = {
            "conv": {"kernel": (self.kernel, self.kernel, inputs, filters), "bias": (filters,)},
            "dense": {"kernel": (inputs, filters), "bias": (filters,)},
            "gru": {"kernel": (inputs, sums), "recurrent_kernel": (filters, sums), "bias": (2, sums)},
            "lstm": {"kernel": (inputs, sums), "recurrent_kernel": (filters, sums), "bias": (sums,)},
            "tree": {"inputs": (self.nodes,), "thresholds": (self.nodes,)},
            "vector": {"values": (filters,)},
        }
        return own.get(self.kind, {}) | ({"gamma": (filters,), "beta": (filters,)} if self.norm else {})

    @property
    def flops(self) -> int:
        """Return the floating-point operations of one forward pass, with borders counted in full."""
        if self.kind == "tree":
            return self.filters.bit_length() - 1
        each = 0 if self.weighted or self.gates or self.kind == "identity" else self.fan_in
        each += GATE_FLOPS * self.gates + (NORM_FLOPS if self.norm else 0)
        return 2 * self.multiply_adds + self.outputs * each

    @property
    def multiply_adds(self) -> int:
        """Return the multiplications of a weight and an input in one forward pass, with borders counted in full."""
        if self.gates:
            return (self.channels + self.filters) * self.gates * self.filters
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
