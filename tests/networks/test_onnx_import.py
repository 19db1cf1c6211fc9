"""Models in ONNX are imported from their graph: equal outputs, or the name of a node that is not known."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from evo.config.experiment import Experiment
from evo.errors import ConfigurationError, DataError
from evo.exports.onnx_model import onnx_model
from evo.networks.network import Network, Options
from evo.networks.onnx_file import attribute, decode, encode, tensor
from evo.networks.onnx_import import layers_of_onnx
from evo.store.sandbox import read_champion
from evo.training.beginning import start_of
from tests.helpers.networks import plain_scores, random_weights

FOLDER = Path(__file__).parent / "torch"  # what torch.onnx.export of PyTorch 2.13 has written
SHORT = ["cnn", "gru_all", "gru_last", "gru_step", "lstm_time_first", "mlp", "norm", "softmax", "view"]


@pytest.mark.parametrize("name", SHORT)
def test_an_imported_network_has_the_outputs_of_torch(name: str) -> None:
    found = layers_of_onnx((FOLDER / f"{name}.onnx").read_bytes())
    with np.load(FOLDER / "outputs.npz") as arrays:
        seen, wanted = arrays[f"{name}_inputs"], arrays[f"{name}_outputs"]
    network, weights = found.network(), found.weights()
    if name == "lstm_time_first":
        seen = seen.swapaxes(0, 1)
    if seen.ndim == 4:
        seen = np.ascontiguousarray(seen.transpose(0, 2, 3, 1))  # channels last
    steps = seen.swapaxes(0, 1) if network.memory and seen.ndim == 3 else [seen]
    state = np.zeros((len(seen), network.memory), np.float32) if network.memory else None
    each = [plain_scores(network, weights, one, state) for one in steps]
    scores = np.stack(each, 1) if wanted.ndim == 3 else each[-1]
    if name == "softmax":
        scores = np.exp(scores) / np.exp(scores).sum(axis=1, keepdims=True)
    assert np.ptp(wanted) > 0
    np.testing.assert_allclose(scores, wanted, rtol=1e-5, atol=2e-6)


@pytest.mark.parametrize(
    ("layers", "shape", "output"),
    [
        ([], (4,), ""),
        (["dense 6", "relu", "dense 5", "norm", "tanh"], (4,), "tanh"),
        (["tanh", "dense 4"], (3, 2), ""),
        (["one_hot 3", "dense 4"], (5,), ""),
        (["one_hot 3", "conv 4 3 2 same", "norm", "relu", "max_pool 2 2 valid", "conv 3 2 1 valid", "dense 5"],
         (9, 8, 2), ""),
        (["norm", "average_pool 3 2 same", "dense 5", "relu"], (6, 5, 3), ""),
        (["conv 3 3 2 same", "relu", "lstm 4", "norm", "tanh", "gru 3", "dense 4"], (5, 4, 2), ""),
    ],
)  # fmt: skip
def test_what_is_exported_is_imported_with_the_same_bits(
    layers: list[str], shape: tuple[int, ...], output: str
) -> None:
    options = {"layers": layers} if layers else {"kind": "linear"}
    network = Network.build(Options.model_validate({**options, "output": output}), shape, 3, extra=1)
    weights = random_weights(network, 1)
    found = layers_of_onnx(onnx_model(network, weights, {"seed": 1}))
    assert found.network().layers == network.layers
    assert found.shape == network.shape
    assert found.weights().tobytes() == weights.tobytes()


def graph(*nodes: tuple[str, str, dict[str, Any]], shape: tuple[int, ...] = (4,), **arrays: Any) -> dict[str, Any]:
    """Return a model of nodes in a chain: operator, further inputs, attributes."""
    made, newest = [], "x"
    for number, (kind, more, own) in enumerate(nodes):
        described = [attribute(name, value) for name, value in own.items() if name != "domain"]
        inputs = [newest, *more.split()] if kind != "Constant" else []
        made.append({"name": f"n{number}", "op_type": kind, "input": inputs, "attribute": described,
                     "output": [newest := f"v{number}"], "domain": own.get("domain", "")})  # fmt: skip
    sides = {"dim": [{"dim_param": "b"}, *({"dim_value": side} for side in shape)]}
    value = {"name": "x", "type": {"tensor_type": {"elem_type": 1, "shape": sides}}}
    constants = [tensor(name, np.asarray(array)) for name, array in arrays.items()]
    return {"ir_version": 9, "graph": {
        "node": made, "initializer": constants, "input": [value], "output": [{"name": newest}],
    }}  # fmt: skip


ONES = np.ones((4, 2), np.float32)
LAST = ("MatMul", "w", {})
IMAGE = np.ones((2, 3, 3, 3), np.float32)
FLAT = (("Flatten", "", {"axis": 1}), ("MatMul", "v", {}))


@pytest.mark.parametrize(
    ("nodes", "arrays", "said"),
    [
        ([("Lambda", "", {"domain": "mine"}), LAST], {}, "n0 is a Lambda of the domain mine; known layers are"),
        ([("Loop", "", {}), LAST], {}, "the node n0 is a Loop; known layers are Conv"),
        ([("Sigmoid", "", {}), LAST], {}, "the node n0 is a Sigmoid"),
        ([("Div", "w", {}), LAST], {}, "the node n0 is a Div"),
        ([("Gemm", "w", {"alpha": 2.0})], {}, "n0 has alpha = 2.0; only 1.0 is known"),
        ([LAST, ("Relu", "", {})], {}, "its last layer must be a Gemm or MatMul"),
        ([("Relu\nDone.\x1b[2J", "", {}), LAST], {}, r"n0 is a Relu\\nDone.\\x1b\[2J; known layers are"),
        ([LAST, ("Softmax", "", {"axis": 1}), ("Relu", "", {})], {}, "n2 is a Relu behind a Softmax"),
        ([LAST, ("Add", "v0", {})], {}, "n1 is a Add of two signals"),
        ([LAST, ("Add", "w", {})], {}, "n1 is an Add of something else than a bias"),
        ([("MatMul", "v1", {}), LAST], {}, "n0 takes v1, which no node before it gives"),
        ([("MatMul", "w", {}), LAST], {}, "n1 is a MatMul of 4 inputs behind a layer of 2"),
        ([("Constant", "", {}), LAST], {}, "n0 is a Constant without a value"),
        ([("MatMul", "d", {})], {"d": ONES.astype(np.float64)}, "no constant array of float32"),
        ([("LayerNormalization", "g", {"axis": -1}), LAST], {"g": ONES[:, 0]}, "n0 has epsilon = None"),
        ([("Conv", "c", {}), LAST], {"c": IMAGE}, "n0 is a Conv at a place where it is not known"),
        ([("GRU", "w w", {"hidden_size": 2, "linear_before_reset": 0}), LAST], {}, "n0 has linear_before_reset = 0"),
    ],
)  # fmt: skip
def test_what_is_not_known_is_refused_by_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, nodes: list[Any], arrays: dict[str, Any], said: str
) -> None:
    monkeypatch.chdir(tmp_path)
    file = Path("mine.onnx")
    file.write_bytes(encode(graph(*nodes, w=ONES, **arrays)))
    with pytest.raises(ConfigurationError, match=f'^experiment: policy: "mine.onnx": .*{said}'):
        Experiment.build(policy=str(file), environment={"id": "catch"})
    with pytest.raises(DataError, match=f"^{file}: .*{said}"):
        read_champion(file, models=True)


@pytest.mark.parametrize(
    ("own", "said"),
    [
        (
            {"pads": [1, 1, 1, 1], "strides": [2, 2]},
            r"pads = \[1, 1, 1, 1\]; known are none, and what Keras calls same",
        ),
        ({"strides": [1, 2]}, "only squares"),
        ({"group": 3}, "group = 3; only 1"),
        ({"dilations": [2, 2]}, "dilations"),
        ({"strides": [0, 0]}, "only squares"),
        ({"pads": [-1, 0, 0, 0]}, "pads"),
    ],
)
def test_windows_that_are_not_known_are_refused(own: dict[str, Any], said: str) -> None:
    with pytest.raises(ConfigurationError, match=f"^the node n0 has .*{said}"):
        layers_of_onnx(encode(graph(("Conv", "c", own), *FLAT, shape=(3, 8, 8), c=IMAGE, v=ONES)))


def test_files_that_somebody_made_up_are_a_line() -> None:
    good = graph(LAST, w=ONES)
    data = encode(good)
    assert layers_of_onnx(data).weights().tolist() == [1] * 8 + [0, 0]
    refused = 0
    for size in range(len(data)):
        with pytest.raises(ConfigurationError):
            layers_of_onnx(data[:size])
    draw = np.random.default_rng(1)
    for _ in range(2000):
        changed = bytearray(data)
        changed[draw.integers(len(data))] = draw.integers(256)
        try:
            layers_of_onnx(bytes(changed))
        except ConfigurationError:
            refused += 1
    assert refused > 500
    for change, said in (
        ({"dims": [1 << 40, 1 << 40], "raw_data": b""}, "states .* bytes, and has 0"),
        ({"dims": [-4, -2]}, "has the shape"),
        ({"data_location": 1}, "is in another file; write all weights into this one"),
        ({"data_type": 10}, "is of the type 10"),
        ({"dims": [1] * 100 + [4, 2]}, "the constant w maximum supported dimension"),
    ):
        made = graph(LAST, w=ONES)
        made["graph"]["initializer"][0] |= change
        with pytest.raises(ConfigurationError, match=said):
            layers_of_onnx(encode(made))
    cycle = graph(("Relu", "", {}), ("Relu", "", {}), LAST, w=ONES)
    cycle["graph"]["node"][0]["input"] = ["v1"]
    with pytest.raises(ConfigurationError, match="n0 takes v1, which no node before it gives"):
        layers_of_onnx(encode(cycle))
    with pytest.raises(ConfigurationError, match="more than 131,072 fields"):
        layers_of_onnx(encode({"ir_version": 9, "opset_import": [{}] * 140_000}))
    with pytest.raises(ConfigurationError, match="cut short"):
        layers_of_onnx(b"\x08" + b"\xff" * 100)


def test_files_keep_what_was_written() -> None:
    model = graph(("Gemm", "w", {"alpha": 1.5, "transB": -1, "perm": [0, -1, 1 << 40]}), w=ONES)
    again = decode(encode(model))
    assert again["graph"]["node"][0]["attribute"][0]["f"] == 1.5
    assert again["graph"]["node"][0]["attribute"][2]["ints"] == [0, -1, 1 << 40]
    assert encode(again) == encode(decode(encode(again)))


def test_an_experiment_has_the_layers_of_an_exported_champion_and_starts_from_its_bits(tmp_path: Path) -> None:
    file, catch = tmp_path / "mine.onnx", {"id": "catch"}
    network = Experiment.build(policy={"kind": "mlp", "dense": [8]}, environment=catch).network()
    weights = random_weights(network, 1)
    file.write_bytes(onnx_model(network, weights, {}))
    experiment = Experiment.build(policy=str(file), environment=catch, run={"init_from": str(file)})
    assert experiment.policy.layers == ["dense 8", "relu"]
    start = start_of(experiment)
    assert start is not None
    assert start.weights.tobytes() == weights.tobytes()
    with pytest.raises(DataError, match="not a readable HDF5"):
        read_champion(file)  # as a champion, it is not
    policy = {"layers": ["dense 8", "tanh"]}
    otherwise = Experiment.build(policy=policy, environment=catch, run={"init_from": str(file)})
    with pytest.raises(ConfigurationError, match=r'policy\.layers = \["dense 8", "relu"\], and here it is'):
        start_of(otherwise)


def test_branches_are_refused_with_where_they_can_be_taken_from() -> None:
    options = Options(inputs={"a": {"layers": ["dense 4", "relu"]}, "b": {}}, dense=[5])
    network = Network.build(options.resolved(entries={"a": (3,), "b": (2,)}), (5,), 3)
    told = r"^the node 0_Slice is a Slice: .* branches .* policy\.inputs, .* champion\.h5 or a \.keras file$"
    with pytest.raises(ConfigurationError, match=told):
        layers_of_onnx(onnx_model(network, random_weights(network, 1), {}))
