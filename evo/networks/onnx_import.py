"""Models in ONNX whose layers our kernels compute, from their graph and its arrays; nothing of it is run."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from evo.errors import ConfigurationError
from evo.networks.imported import Imported
from evo.networks.layer import parse
from evo.networks.onnx_file import FLOAT, array_of, attributes, decode
from evo.networks.onnx_layers import made_by
from evo.networks.onnx_nodes import Node, Other, Signal, checked


@dataclass
class OnnxLayers(Imported):
    """The layers of an ONNX model as those of a network, with their arrays."""

    arrays: tuple[NDArray[np.float32], ...] = ()

    def weights(self) -> NDArray[np.float32]:
        """Return the flat weights.  # [P]"""
        return np.concatenate([array.ravel() for array in self.arrays])


def layers_of_onnx(data: bytes) -> OnnxLayers:
    """Return the layers of an ONNX file; ConfigurationError names what our kernels do not compute."""
    try:
        found = _followed(decode(data)["graph"] or {})
        network = found.network()
        wanted = [array.shape for array in network.split(np.empty(network.size, np.float32))]
        if [array.shape for array in found.arrays] != wanted:
            raise ValueError("its arrays are not those of its layers")
        return found
    except (KeyError, TypeError, ValueError, IndexError, AttributeError, OverflowError) as error:
        raise ConfigurationError(f"is no ONNX file of a chain of layers: {error!s:.120}") from error


def _followed(graph: Mapping[str, Any]) -> OnnxLayers:
    """Return the layers from the first input to the first output."""
    values: dict[str, Any] = {"": None}
    constants = {one["name"]: one for one in graph["initializer"]}
    observations, *states = (one for one in graph["input"] if one["name"] not in constants)
    shape = [one["dim_value"] for one in observations["type"]["tensor_type"]["shape"]["dim"]][1:]
    stated = observations["type"]["tensor_type"]["elem_type"]
    if stated != FLOAT or not 1 <= len(shape) <= 3 or not all(0 <= side < 1 << 16 for side in shape):
        raise ConfigurationError(f"its input {observations['name']!s:.60} must be float32 [batch, ...] of 2 to 4 axes")
    axes = "N" if len(shape) == 1 else "XYZ"[: len(shape)]
    values[observations["name"]] = Signal("B" + axes, dict(zip(axes, shape, strict=True)))
    values |= {one["name"]: Other("state") for one in states}
    for node in _needed(graph["node"], end := graph["output"][0]["name"]):
        name = node["name"] or next(iter(node["output"]), "")
        for one in node["input"]:
            if one not in values and one not in constants:
                raise ConfigurationError(f"the node {name:.60} takes {one:.60}, which no node before it gives")
            if one not in values:
                values[one] = _constant(constants[one], one)
        inputs = [values[one] for one in node["input"]]
        made = made_by(checked(Node(name, node["op_type"], inputs, attributes(node)), node["domain"]))
        for one, value in zip(node["output"], made if isinstance(made, list) else [made], strict=False):
            if one in values and one:
                raise ConfigurationError(f"the node {name:.60} gives {one:.60}, which there is already")
            values[one] = value
        values[""] = None
    return _network_of(values.get(end), shape, str(end))


def _constant(tensor: Mapping[str, Any], name: str) -> NDArray[Any]:
    try:
        return array_of(tensor)
    except ValueError as error:
        raise ConfigurationError(f"the constant {name:.60} {error}") from error


def _network_of(last: Any, shape: list[int], name: str) -> OnnxLayers:
    """Return the layers of the last value."""
    if not isinstance(last, Signal) or not last.layers:
        raise ConfigurationError(f"its first output {name:.60} is not computed from its first input by layers")
    if last.steps or last.in_rows:
        if not last.steps:
            raise ConfigurationError("its layers see rows of the observation one by one, which is not known")
        shape = shape[-1:]
    if last.channels_first:
        shape = [*shape[1:], shape[0]]
    if 0 in shape:
        raise ConfigurationError(f"its input has the shape {shape}; all of its sides but the batch must be known")
    *hidden, final = last.layers
    output = final if final == "tanh" and hidden else ""
    if output:
        *hidden, final = hidden
    if not final.startswith("dense"):
        raise ConfigurationError("its last layer must be a Gemm or MatMul, behind which is nothing, Tanh or Softmax")
    return OnnxLayers(tuple(shape), hidden, parse(final).numbers[0], output, last.arrays)


def _needed(nodes: Sequence[Mapping[str, Any]], end: str) -> list[Mapping[str, Any]]:
    """Return the nodes that an output depends on, in the order of the file."""
    makers = {name: number for number, node in enumerate(nodes) for name in node["output"] if name}
    wanted, needed = [end], set[int]()
    while wanted:
        number = makers.get(wanted.pop())
        if number is not None and number not in needed:
            needed.add(number)
            wanted += nodes[number]["input"]
    return [nodes[number] for number in sorted(needed)]
