"""Nodes of an ONNX graph: their attributes, and what their inputs are."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from evo.errors import ConfigurationError
from evo.networks.network import EPSILON
from evo.networks.onnx_file import array_of

WINDOW: dict[str, Any] = {
    "auto_pad": None, "kernel_shape": None, "pads": None, "strides": None, "dilations": ([1, 1],), "ceil_mode": (0,),
}  # fmt: skip
IN_STEPS: dict[str, Any] = {"direction": ("forward",), "hidden_size": None, "layout": (0,)}
# Attributes of operators: None, or the values that are known.
ATTRIBUTES: dict[str, dict[str, Any]] = {
    "Add": {}, "ArgMax": {"axis": None, "keepdims": None, "select_last_index": (0,)},
    "AveragePool": {**WINDOW, "count_include_pad": None}, "Cast": {"to": None, "saturate": None},
    "Concat": {"axis": None}, "Constant": {"value": None, "value_int": None, "value_ints": None},
    "ConstantOfShape": {"value": None}, "Conv": {**WINDOW, "group": (1,)}, "Equal": {}, "Expand": {},
    "Flatten": {"axis": (1,)}, "GRU": {**IN_STEPS, "linear_before_reset": (1,)}, "Gather": {"axis": None},
    "Gemm": {"alpha": (1.0,), "beta": (1.0,), "transA": (0,), "transB": None}, "Identity": {}, "IsNaN": {},
    "LSTM": {**IN_STEPS, "input_forget": (0,)},
    "LayerNormalization": {"axis": None, "epsilon": (float(np.float32(EPSILON)),), "stash_type": (1,)},
    "LogSoftmax": {"axis": None}, "MatMul": {}, "MaxPool": {**WINDOW, "storage_order": (0,)}, "Relu": {},
    "Reshape": {"allowzero": None}, "Shape": {"start": None, "end": None}, "Slice": {}, "Softmax": {"axis": None},
    "Squeeze": {"axes": None}, "Tanh": {}, "Transpose": {"perm": None}, "Unsqueeze": {"axes": None}, "Where": {},
}  # fmt: skip
NEEDED = {"LayerNormalization": {"epsilon"}, "GRU": {"linear_before_reset"}}  # whose defaults are others
LAYERS = "Conv, Gemm, MatMul, GRU, LSTM, MaxPool, AveragePool, LayerNormalization, Relu and Tanh"


@dataclass(frozen=True)
class Signal:
    """What layers make of the observations, and its axes.

    B is the batch, 1 an axis of one, X, Y, Z those of the observation until it is known whether they are rows H,
    columns W and channels C; N are numbers, K codes.
    """

    axes: str
    sides: Mapping[str, int]  # of all axes but B and 1; other ones are those before they became N
    layers: tuple[str, ...] = ()  # as in `policy.layers`
    arrays: tuple[NDArray[np.float32], ...] = ()
    flattened: str = ""  # the axes that are N now
    channels_first: bool = False  # in the observation
    steps: str = ""  # the axis of steps
    in_rows: bool = False  # a layer saw the last of two axes of the observation, which are steps then
    ended: bool = False  # by a softmax, or the choice of an action

    def then(self, *layers: str, arrays: Sequence[NDArray[np.float32]] = (), **changes: Any) -> Signal:
        """Return the signal behind further layers."""
        return replace(self, layers=self.layers + layers, arrays=(*self.arrays, *arrays), **changes)


class Other(NamedTuple):
    """A value that is no signal: a hidden state, zeros, or where a signal is not a number."""

    what: str


class Node(NamedTuple):
    """A node, and what its inputs are."""

    name: str
    kind: str
    inputs: list[Any]
    own: dict[str, Any]  # attributes

    def refuse(self, text: str) -> ConfigurationError:
        """Return the mistake."""
        return ConfigurationError(f"the node {self.name:.60} {text}")

    def not_here(self) -> ConfigurationError:
        """Return the mistake that it stands where it is not known."""
        return self.refuse(f"is a {self.kind} at a place where it is not known")

    def input(self, number: int) -> Any:
        """Return an input; None: it is left out."""
        return self.inputs[number] if number < len(self.inputs) else None

    def array(self, number: int, *axes: int) -> NDArray[np.float32]:
        """Return a constant input, float32, with one of `axes` axes; ConfigurationError: it is none."""
        found = self.input(number)
        if not isinstance(found, np.ndarray) or found.dtype != np.float32 or found.ndim not in axes:
            raise self.refuse(f"is a {self.kind} whose input {number + 1} is no constant array of float32 as known")
        return found

    def whole(self, number: int, name: str) -> list[int]:
        """Return whole numbers, from a constant input or an attribute."""
        found = self.own.get(name) if self.input(number) is None else self.input(number)
        if isinstance(found, tuple):
            return [0 if side is None else side for side in found]  # 0: as it is
        if found is None or (isinstance(found, np.ndarray) and found.dtype.kind != "i"):
            raise self.refuse(f"is a {self.kind} without constant {name}")
        return [int(one) for one in np.atleast_1d(found)]


def checked(node: Node, domain: str) -> Node:
    """Return a node of a known kind with known attributes; ConfigurationError: it is none."""
    if domain not in ("", "ai.onnx") or node.kind not in ATTRIBUTES:
        of = f" of the domain {domain:.40}" if domain not in ("", "ai.onnx") else ""
        raise node.refuse(f"is a {node.kind:.40}{of}; known layers are {LAYERS}")
    known = ATTRIBUTES[node.kind]
    for name in {*node.own, *NEEDED.get(node.kind, ())}:
        value = node.own.get(name)
        if name not in known or (known[name] is not None and value not in known[name]):
            raise node.refuse(
                f"has {name:.40} = {value!s:.40}" + (f"; only {known[name][0]} is known" if known.get(name) else "")
            )
    return node


def folded(node: Node) -> Any:
    """Return a constant that is computed of constants."""
    value = node.inputs[0]
    if node.kind == "Transpose":
        return value.transpose(node.own.get("perm"))
    if node.kind == "Gather":
        return tuple(np.atleast_1d(np.array(value, object)[node.inputs[1]]))
    if node.kind == "Concat":
        return tuple(side for one in node.inputs for side in np.atleast_1d(np.array(one, object)))
    zeros = value is not None and node.kind == "Expand" and not np.any(value)
    if zeros or (
        node.kind == "ConstantOfShape" and not np.any(array_of(node.own["value"]) if "value" in node.own else 0)
    ):
        return Other("zeros")
    raise node.not_here()


def same(node: Node) -> Any:
    """Return the signal of a node that changes nothing."""
    return node.inputs[0]


def _given(node: Node) -> NDArray[Any]:
    if "value" in node.own:
        return array_of(node.own["value"])
    if not node.own:
        raise node.refuse("is a Constant without a value")
    return np.array(next(iter(node.own.values())))


OF_CONSTANTS: dict[str, Callable[[Node], Any]] = {
    "Cast": same, "Concat": folded, "Constant": _given, "ConstantOfShape": folded, "Expand": folded,
    "Gather": folded, "Identity": same, "Squeeze": same, "Transpose": folded, "Unsqueeze": same,
}  # fmt: skip
