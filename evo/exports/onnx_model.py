"""A network as an ONNX graph of standard operators (opset 18), with its weights and facts."""

from __future__ import annotations

import json
from collections.abc import Mapping
from math import prod
from typing import Any

import numpy as np
from numpy.typing import NDArray

from evo.environment import Normalisation
from evo.networks import onnx_file
from evo.networks.layer import GATES, Layer
from evo.networks.network import EPSILON, Network
from evo.networks.onnx_file import DOUBLE, FLOAT, INT64

OPSET, FORMAT = 18, 9  # of operators; of the file (IR version): runtimes since 2023 read both
INPUT, SCORES, ACTIONS, STATE, NEXT = "observations", "scores", "actions", "state", "next_state"
FACTS = ("algorithm", "seed", "environment", "generations", "state_hash")  # of the champion, kept as properties


def onnx_model(
    network: Network,
    weights: NDArray[np.float32],
    facts: Mapping[str, object],
    *,
    discrete: bool = True,
    normalisation: Normalisation | None = None,
) -> bytes:
    """Return a model from observations [B, ...] to scores [B, O] and, of discrete actions, the greedy ones [B].

    With memory, also from hidden states [B, S], zeros where an episode begins, to the next ones.
    With `normalisation` the model takes observations as they are before it.
    """
    return onnx_file.encode({
        "ir_version": FORMAT,
        "producer_name": "snake-evo",
        "graph": Graph(network, weights).build(discrete, normalisation),
        "opset_import": [{"domain": "", "version": OPSET}],
        "metadata_props": [{"key": name, "value": json.dumps(value)} for name, value in facts.items()],
    })  # fmt: skip


class Graph:
    """Collects the nodes of a graph; convolutions see channels first, and everything else channels last."""

    def __init__(self, network: Network, weights: NDArray[np.float32]) -> None:
        self._network = network
        self._arrays = dict(zip(network.names(), network.split(weights), strict=True))
        self._nodes: list[dict[str, Any]] = []
        self._constants: list[dict[str, Any]] = []
        self._newest, self._channels_first = INPUT, False
        self._shape = network.shape  # of the observation, or of the entry of it that the newest layers see
        self._states: list[str] = []  # next ones, of recurrent layers

    def build(self, discrete: bool, normalisation: Normalisation | None) -> dict[str, Any]:
        """Return the graph."""
        network = self._network
        if normalisation:
            self._normalise(normalisation)
        flat, seen, joined = False, self._newest, list[str]()
        begins, last = {part.first: part for part in network.parts}, {part.end for part in network.parts}
        for i, layer in enumerate(network.layers):
            if i in last:
                joined.append(self._flat())
            if i in begins:
                part, flat = begins[i], False
                self._shape, self._newest = part.shape, seen
                places = (("from", part.begin), ("to", part.begin + prod(part.shape)), ("axis", 1))
                self._add("Slice", *(self._constant(f"{i}_{name}", np.array([at])) for name, at in places))
                self._add("Reshape", self._constant(f"{i}_shape", np.array([-1, *part.shape])))
            elif joined and i == network.joins:
                self._newest, *others = joined
                self._add("Concat", *others, axis=1)
                flat = True
            if not flat and (layer.kind in ("dense", *GATES) or len(self._shape) != 3):
                self._flat()
                flat = True
            self._layer(f"{i}_{layer.kind}", layer)
        self._add("Identity", name=SCORES)
        outputs = [_value(SCORES, network.outputs)]
        if discrete:
            ends = (("from", 0), ("to", network.actions), ("of", 1))
            self._add("Slice", *(self._constant(name, np.array([at])) for name, at in ends))
            self._add("ArgMax", axis=1, keepdims=0, name=ACTIONS)
            outputs.append(_value(ACTIONS, kind=INT64))
        inputs = [_value(INPUT, *network.shape)]
        if network.memory:
            self._newest, *others = self._states
            self._add("Concat", *others, axis=1, name=NEXT)
            inputs.append(_value(STATE, network.memory))
            outputs.append(_value(NEXT, network.memory))
        graph = {"node": self._nodes, "name": "network", "initializer": self._constants}
        return {**graph, "input": inputs, "output": outputs}

    def _add(self, operator: str, *others: str, name: str = "", **attributes: Any) -> str:
        """Add a node behind the newest one; return the name of its output, which is the newest from now on."""
        output = name or f"{len(self._nodes)}_{operator}"
        self._node(operator, [self._newest, *others], [output], attributes)
        self._newest = output
        return output

    def _node(self, operator: str, inputs: list[str], outputs: list[str], attributes: dict[str, Any]) -> None:
        described = [onnx_file.attribute(name, value) for name, value in attributes.items()]
        self._nodes.append({
            "input": inputs, "output": outputs, "name": outputs[-1], "op_type": operator, "attribute": described,
        })  # fmt: skip

    def _constant(self, name: str, value: NDArray[Any]) -> str:
        self._constants.append(onnx_file.tensor(name, value))
        return name

    def _arrays_of(self, name: str, *parts: str) -> list[str]:
        return [self._constant(f"{name}_{part}", self._arrays[f"{name}_{part}"]) for part in parts]

    def _first(self) -> None:
        if not self._channels_first:
            self._add("Transpose", perm=[0, 3, 1, 2])
            self._channels_first = True

    def _last(self) -> None:
        if self._channels_first:
            self._add("Transpose", perm=[0, 2, 3, 1])
            self._channels_first = False

    def _flat(self) -> str:
        self._last()
        return self._add("Flatten", axis=1)

    def _normalise(self, by: Normalisation) -> None:
        self._add("Cast", to=DOUBLE)
        self._add("Sub", self._constant("mean", by.mean))
        self._add("Div", self._constant("deviation", by.deviation))
        self._add("Clip", self._constant("low", np.array(-by.limit)), self._constant("high", np.array(by.limit)))
        self._add("Cast", to=FLOAT)

    def _layer(self, name: str, layer: Layer) -> None:
        if layer.kind == "conv":
            self._first()
            kernel = self._constant(f"{name}_kernel", self._arrays[f"{name}_kernel"].transpose(3, 2, 0, 1))
            self._add("Conv", kernel, *self._arrays_of(name, "bias"), **_window(layer))
        elif layer.kind == "dense":
            self._add("Gemm", *self._arrays_of(name, "kernel", "bias"))
        elif layer.gates:
            self._recurrent(name, layer)
        elif layer.kind == "one_hot":
            self._last()
            self._one_hot(name, layer)
        elif layer.kind != "identity":
            self._first()
            pool = {"max_pool": "MaxPool", "average_pool": "AveragePool"}[layer.kind]
            self._add(pool, **_window(layer))
        if layer.norm:
            self._last()
            self._add("LayerNormalization", *self._arrays_of(name, "gamma", "beta"), axis=-1, epsilon=EPSILON)
        if layer.activation:
            self._add({"relu": "Relu", "tanh": "Tanh"}[layer.activation])

    def _recurrent(self, name: str, layer: Layer) -> None:
        """Add one step of a recurrent layer; ONNX lists the gates of an LSTM as i, o, f, c."""
        zero = self._constant(f"{name}_zero", np.array([0]))
        units, sums = layer.filters, layer.gates * layer.filters
        order = [0, 1, 2] if layer.kind == "gru" else [0, 3, 1, 2]
        kernel, recurrent, own = (
            self._arrays[f"{name}_{part}"].reshape(-1, layer.gates, units)[:, order].reshape(-1, sums)
            for part in ("kernel", "recurrent_kernel", "bias")
        )
        bias = np.zeros((2, sums), np.float32)
        bias[: len(own)] = own  # an LSTM has none for the sums of the state
        arrays = {"kernel": kernel.T[np.newaxis], "recurrent": recurrent.T[np.newaxis], "bias": bias.reshape(1, -1)}
        inputs = [self._add("Unsqueeze", zero), *(self._constant(f"{name}_{k}", a) for k, a in arrays.items()), ""]
        first = sum(one.memory for one in self._network.layers if one.offset < layer.offset)
        outputs = [f"{name}_{part}" for part in ("h", "c")[: layer.memory // units]]
        for output in outputs:
            ends = (("from", first), ("to", first + units), ("of", 1))
            self._newest, first = STATE, first + units
            self._add("Slice", *(self._constant(f"{output}_{end}", np.array([value])) for end, value in ends))
            inputs.append(self._add("Unsqueeze", zero))
        how = {"linear_before_reset": 1} if layer.kind == "gru" else {}
        self._node(layer.kind.upper(), inputs, ["", *outputs], {"hidden_size": units, **how})
        for output in outputs:
            self._newest = output
            self._states.append(self._add("Squeeze", zero))
        self._newest = self._states[-len(outputs)]

    def _one_hot(self, name: str, layer: Layer) -> None:
        """Add planes of 1 where a plane has a code, else 0; a NaN stays one.  # [B, ..., C] -> [B, ..., C K]"""
        codes = np.arange(layer.filters // layer.channels, dtype=np.float32)
        apart = self._add("Unsqueeze", self._constant(f"{name}_axis", np.array([-1])))
        self._add("Equal", self._constant(f"{name}_codes", codes))
        planes = self._add("Cast", to=FLOAT)
        self._newest = apart
        self._add("IsNaN")
        self._add("Where", apart, planes)
        sides = (layer.height, layer.width) if len(self._shape) == 3 else ()
        self._add("Reshape", self._constant(f"{name}_shape", np.array([-1, *sides, layer.filters])))


def _value(name: str, *sides: int, kind: int = FLOAT) -> dict[str, Any]:
    """Return an input or output of the graph, with a batch in front of these sides."""
    shape = {"dim": [{"dim_param": "batch"}, *({"dim_value": side} for side in sides)]}
    return {"name": name, "type": {"tensor_type": {"elem_type": kind, "shape": shape}}}


def _window(layer: Layer) -> dict[str, Any]:
    """Return the attributes of an operator with windows; its padding is that of TensorFlow, more at the end."""
    pads = [layer.pad, layer.pad_left, *layer.pad_after]
    return {"kernel_shape": [layer.kernel] * 2, "strides": [layer.stride] * 2, "pads": pads}
