"""What the nodes of an ONNX graph make of observations, as layers of a network.

What is known of a value stands for it: of the observations and of what layers make of them a `Signal`, of constants
their array, of a shape its sides.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from math import prod
from typing import Any

import numpy as np
from numpy.typing import NDArray

from evo.networks.layer import GATES, PADDINGS, windows
from evo.networks.onnx_file import FLOAT
from evo.networks.onnx_nodes import OF_CONSTANTS, Node, Other, Signal, same

CHANNELS_LAST = str.maketrans("XYZ", "HWC")  # axes of an observation that is an image, as those of a layer
CHANNELS_FIRST = str.maketrans("XYZ", "CHW")
GATE_ORDER = {"gru": [0, 1, 2], "lstm": [0, 2, 3, 1]}  # of the gates in ONNX those of Keras; an LSTM's are i, o, f, c


def _gemm(node: Node) -> Signal:
    kernel = node.array(1, 2)
    return _dense(
        node, kernel.T if node.own.get("transB") else kernel, None if node.input(2) is None else node.array(2, 0, 1, 2)
    )


def _dense(node: Node, kernel: NDArray[np.float32], bias: NDArray[np.float32] | None = None) -> Signal:
    x = _numbers(node)
    units = kernel.shape[1]
    own = np.zeros(units, np.float32) if bias is None else np.broadcast_to(bias, (1, units)).reshape(units)
    return x.then(f"dense {units}", arrays=(_rows_first_kernel(node, x, kernel), own), sides={"N": units}, flattened="")


def _numbers(node: Node) -> Signal:
    """Return the signal, whose last axis is numbers; of an observation of two axes it is a step's."""
    x: Signal = node.input(0)
    if not isinstance(x, Signal):
        raise node.refuse(f"is a {node.kind} whose first input is no signal")
    if len(x.axes) == 3 and x.axes[-1] == "Y" and "Z" not in x.sides:
        x = replace(x, axes=x.axes[:-1] + "N", sides={"N": x.sides["Y"]}, in_rows=True)
    if x.axes[-1] != "N" or len(x.axes) > 3:
        raise node.not_here()
    return x


def _rows_first_kernel(node: Node, x: Signal, kernel: NDArray[np.float32]) -> NDArray[np.float32]:
    """Return a kernel of inputs in the order rows, columns, channels.  # [N, O] -> [N, O]"""
    if len(kernel) != x.sides["N"]:
        raise node.refuse(f"is a {node.kind} of {len(kernel)} inputs behind a layer of {x.sides['N']}")
    if not x.flattened or x.flattened in "HWC":
        return kernel
    apart = kernel.reshape(*(x.sides[axis] for axis in x.flattened), -1)
    return apart.transpose(*(x.flattened.index(axis) for axis in "HWC"), 3).reshape(kernel.shape)


def _add(node: Node) -> Signal:
    """Add a bias to a dense layer."""
    x: Signal
    x, bias = sorted(node.inputs, key=lambda one: not isinstance(one, Signal))
    if not x.layers or not x.layers[-1].startswith("dense") or x.axes[-1] != "N":
        raise node.not_here()
    if (
        not isinstance(bias, np.ndarray)
        or bias.dtype != np.float32
        or bias.shape[-1:] != (x.sides["N"],)
        or bias.size > bias.shape[-1]
    ):
        raise node.refuse("is an Add of something else than a bias")
    return replace(x, arrays=(*x.arrays[:-1], x.arrays[-1] + bias.ravel()))


def _image(node: Node, *, first: bool = True) -> Signal:
    """Return the signal with the axes of an image, channels first or last; of an observation they are known now."""
    x: Signal = node.inputs[0]
    if "Z" in x.axes:
        as_is = "BXYZ" if first else "BZXY"
        names = CHANNELS_FIRST if x.axes == as_is else CHANNELS_LAST
        sides = {axis.translate(names): side for axis, side in x.sides.items()}
        x = replace(x, axes=x.axes.translate(names), sides=sides, channels_first=names is CHANNELS_FIRST)
    if x.axes != ("BCHW" if first else "BHWC"):
        raise node.not_here()
    return x


def _conv(node: Node) -> Signal:
    x, kernel = _image(node), node.array(1, 4)
    filters, channels, *sides = kernel.shape
    if channels != x.sides["C"]:
        raise node.refuse(f"is a Conv of {channels} channels behind {x.sides['C']}")
    bias = np.zeros(filters, np.float32) if node.input(2) is None else node.array(2, 1)
    window, image = _window(node, x, node.own.get("kernel_shape", sides))
    arrays = (kernel.transpose(2, 3, 1, 0), bias)
    return x.then(f"conv {filters} {window}", arrays=arrays, sides={**image, "C": filters})


def _pool(node: Node) -> Signal:
    x = _image(node)
    window, image = _window(node, x, node.own["kernel_shape"])
    if node.kind == "AveragePool" and node.own.get("count_include_pad") and any(node.own.get("pads", ())):
        raise node.refuse("counts its padding; only count_include_pad = 0 is known")
    kind = "max_pool" if node.kind == "MaxPool" else "average_pool"
    return x.then(f"{kind} {window}", sides={**image, "C": x.sides["C"]})


def _window(node: Node, x: Signal, kernel: Sequence[int]) -> tuple[str, dict[str, int]]:
    """Return size, stride and padding of windows as `policy.layers` has them, and the rows and columns behind them."""
    strides, pads, auto = (
        node.own.get("strides", [1, 1]),
        node.own.get("pads", [0] * 4),
        node.own.get("auto_pad", "NOTSET"),
    )
    size, step = kernel[0], strides[0]
    if list(kernel) != [size] * 2 or strides != [step] * 2 or not step > 0 or not size > 0:
        raise node.refuse(f"has windows of {kernel!s:.40} with strides {strides!s:.40}; only squares are known")
    for padding in PADDINGS:
        made = {axis: windows(x.sides[axis], size, step, padding) for axis in "HW"}
        counts = [(x.sides[axis] + pads[i] + pads[i + 2] - size) // step + 1 for i, axis in enumerate("HW")]
        alike = [made[axis] for axis in "HW"] == list(zip(counts, pads[:2], strict=True)) and min(pads) >= 0
        if (alike if auto == "NOTSET" else auto == {"same": "SAME_UPPER", "valid": "VALID"}[padding]) and all(
            made.values()
        ):
            return f"{size} {step} {padding}", {axis: count for axis, (count, _) in made.items()}
    how = f"pads = {pads!s:.40}" if auto == "NOTSET" else f"auto_pad = {auto:.20}"
    raise node.refuse(f"has {how}; known are none, and what Keras calls same, which has more at the end")


def _norm(node: Node) -> Signal:
    x: Signal = node.inputs[0]
    x = _image(node, first=False) if len(x.axes) == 4 else _numbers(node)
    if node.own.get("axis", -1) not in (-1, len(x.axes) - 1) or (x.flattened and x.sides["N"] != x.sides["C"]):
        raise node.refuse("normalises other axes than the last one of a layer")
    side = x.sides["C" if len(x.axes) == 4 else "N"]
    bias = np.zeros(side, np.float32) if node.input(2) is None else node.array(2, 1)
    return x.then("norm", arrays=(node.array(1, 1), bias))


def _recurrent(node: Node) -> list[Any]:
    """Return the outputs of all steps, of the last one, and a state."""
    x, kind = _numbers(node), node.kind.lower()
    units, gates, one_step = node.own["hidden_size"], GATES[kind], x.axes[0] == "1"
    if len(x.axes) != 3 or one_step == x.in_rows or (x.steps and x.steps != x.axes[0]):
        raise node.not_here()
    states = [node.input(5)] if kind == "gru" else [node.input(5), node.input(6)]
    zeros = [one is None or one == Other("zeros") or (isinstance(one, np.ndarray) and not one.any()) for one in states]
    if not all(zero or one == Other("state") for zero, one in zip(zeros, states, strict=True)) or (
        one_step and any(zeros)
    ):
        raise node.refuse(f"is a {node.kind} that begins with other hidden states than zeros or an input of the model")
    if node.input(4) is not None or node.input(7) is not None:
        raise node.refuse(f"is a {node.kind} with lengths of sequences or peepholes")
    kernel, recurrent = (node.array(number, 3)[0].T for number in (1, 2))
    bias = np.zeros((2, gates * units), np.float32) if node.input(3) is None else node.array(3, 2).reshape(2, -1)
    kernel, recurrent, bias = (
        part.reshape(-1, gates, units)[:, GATE_ORDER[kind]].reshape(-1, gates * units)
        for part in (_rows_first_kernel(node, x, kernel), recurrent, bias)
    )
    if kind == "lstm":  # Keras has one
        bias = bias[0] + bias[1] if bias[1].any() else bias[0]
    steps = "" if one_step else x.axes[0]
    made = x.then(f"{kind} {units}", arrays=(kernel, recurrent, bias), sides={"N": units}, flattened="", steps=steps)
    last = replace(made, axes="1" + x.axes[1:])
    return [replace(made, axes=x.axes[0] + "1" + x.axes[1:]), last, Other("state")]


def _activation(node: Node) -> Signal:
    x: Signal = node.inputs[0]
    return x.then(node.kind.lower())


def _end(node: Node) -> Signal:
    x: Signal = node.inputs[0]
    if node.own.get("axis", -1) not in (-1, len(x.axes) - 1):
        raise node.refuse(f"is a {node.kind} along another axis than the last one")
    return replace(x, ended=True)


def _transpose(node: Node) -> Signal:
    x: Signal = node.inputs[0]
    return replace(x, axes="".join(x.axes[axis] for axis in node.own.get("perm", range(len(x.axes))[::-1])))


def _squeeze(node: Node) -> Signal:
    x: Signal = node.inputs[0]
    if x.ended:
        return x
    gone = {axis % len(x.axes) for axis in node.whole(1, "axes")}
    if any(x.axes[axis] != "1" for axis in gone):
        raise node.not_here()
    return replace(x, axes="".join(letter for axis, letter in enumerate(x.axes) if axis not in gone))


def _unsqueeze(node: Node) -> Signal:
    x: Signal = node.inputs[0]
    if x.ended:
        return x
    (at,) = node.whole(1, "axes")
    at %= len(x.axes) + 1
    return replace(x, axes=f"{x.axes[:at]}1{x.axes[at:]}")


def _gather(node: Node) -> Signal:
    """Return the last step."""
    x: Signal = node.inputs[0]
    axis = node.own.get("axis", 0) % len(x.axes)
    if not x.steps or x.axes[axis] != x.steps or np.ndim(node.inputs[1]) or int(node.inputs[1]) != -1:
        raise node.not_here()
    return replace(x, axes=x.axes[:axis] + x.axes[axis + 1 :])


def _reshape(node: Node) -> Signal:
    """Flatten the axes behind the batch, or put the planes of codes together."""
    x: Signal = node.inputs[0]
    sides = [x.sides.get(axis, 1) for axis in x.axes[1:]]
    wanted = node.whole(1, "shape") if node.kind == "Reshape" else [-1, prod(sides)]
    if x.axes[-1] == "K":
        *others, last, codes = sides
        x = replace(x, axes=x.axes[:-1], sides={**x.sides, x.axes[-2]: last * codes})
        sides = [*others, last * codes]
    if wanted[1:] == sides:
        return x
    first_axes_stay = wanted[0] in (0, 1) or (wanted[0] == -1 and wanted[1] != -1)
    if x.axes[0] != "B" or len(wanted) != 2 or not first_axes_stay or wanted[1] not in (-1, prod(sides)) or x.in_rows:
        raise node.not_here()
    order = x.axes[1:]
    if "Z" in order and order != "XYZ":
        x, order = (
            replace(x, sides={a.translate(CHANNELS_LAST): s for a, s in x.sides.items()}),
            order.translate(CHANNELS_LAST),
        )
    known = order if set(order) == set("HWC") else ""
    if not known and order not in ("N", "XY", "XYZ"):
        raise node.not_here()
    return replace(x, axes="BN", sides={**x.sides, "N": prod(sides)}, flattened=known or x.flattened)


def _equal(node: Node) -> Signal:
    """Make planes of codes."""
    x: Signal = node.inputs[0]
    codes = node.array(1, 1)
    if x.axes[-1] != "1" or x.layers or not np.array_equal(codes, np.arange(len(codes))):
        raise node.not_here()
    return x.then(f"one_hot {len(codes)}", axes=x.axes[:-1] + "K", sides={**x.sides, "K": len(codes)})


def _where(node: Node) -> Signal:
    isnan, x = node.inputs[:2]
    planes: Signal = node.inputs[2]
    if isnan != Other("nan") or not isinstance(x, Signal) or x.layers or planes.axes != x.axes[:-1] + "K":
        raise node.not_here()
    return planes


def _cast(node: Node) -> Signal:
    x: Signal = node.inputs[0]
    if node.own["to"] != FLOAT and not x.ended:
        raise node.refuse("does not compute in float32")
    return x


def _slice(node: Node) -> Signal:
    """Refuse a part of what the network sees, with which a branch begins."""
    raise node.refuse(
        "is a Slice: networks with branches are not read from ONNX; describe them in policy.inputs, and start from a "
        "champion.h5 or a .keras file"
    )


def _shape(node: Node) -> tuple[int | None, ...]:
    """Return the sides that are known."""
    x: Signal = node.inputs[0]
    return tuple(x.sides.get(axis) for axis in x.axes)[node.own.get("start", 0) : node.own.get("end")]


OF_SIGNALS: dict[str, Callable[[Node], Any]] = {
    "Add": _add, "ArgMax": _end, "AveragePool": _pool, "Cast": _cast, "Conv": _conv, "Equal": _equal,
    "Flatten": _reshape, "GRU": _recurrent, "Gather": _gather, "Gemm": _gemm, "Identity": same,
    "IsNaN": lambda node: Other("nan"), "LSTM": _recurrent, "LayerNormalization": _norm, "LogSoftmax": _end,
    "MatMul": lambda node: _dense(node, node.array(1, 2)), "MaxPool": _pool, "Relu": _activation, "Reshape": _reshape,
    "Shape": _shape, "Slice": _slice, "Softmax": _end,
    "Squeeze": _squeeze, "Tanh": _activation, "Transpose": _transpose, "Unsqueeze": _unsqueeze, "Where": _where,
}  # fmt: skip


def made_by(node: Node) -> Any:
    """Return what a node that is checked gives; ConfigurationError where it is not known there."""
    given = [one for one in node.inputs if one is not None]
    if any(isinstance(one, Signal) for one in given):
        signals = [one for one in given if isinstance(one, Signal)]
        if any(one.ended for one in signals) and node.kind not in ("Identity", "Cast", "Squeeze", "Unsqueeze"):
            raise node.refuse(f"is a {node.kind} behind a Softmax or ArgMax, which is known at the end alone")
        if len(signals) > 1 and node.kind != "Where":
            raise node.refuse(f"is a {node.kind} of two signals: only chains are known, and no branches")
        return _computed(OF_SIGNALS, node)
    if any(isinstance(one, Other) for one in given):
        return next(one for one in given if isinstance(one, Other))
    return _computed(OF_CONSTANTS, node)


def _computed(table: dict[str, Callable[[Node], Any]], node: Node) -> Any:
    if node.kind not in table:
        raise node.not_here()
    return table[node.kind](node)
