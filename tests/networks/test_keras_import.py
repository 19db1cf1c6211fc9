"""Models of Keras are imported from their description: equal outputs, or the name of a layer that is not known."""

from __future__ import annotations

import io
import json
import pickle
import zipfile
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest

import evo
from evo.config.experiment import Experiment
from evo.environment import Normalisation
from evo.errors import ConfigurationError, DataError
from evo.kernels import lanes
from evo.networks.imported import Imported
from evo.networks.keras_form import build_keras, set_weights
from evo.networks.keras_import import layers_in
from evo.networks.network import Network, Options
from evo.store.sandbox import read_champion
from evo.training.beginning import handover_text, start_of
from tests.helpers.learning import tensorflow  # noqa: F401
from tests.helpers.sampling import sampled

pytestmark = pytest.mark.filterwarnings("ignore:__array__ implementation:DeprecationWarning")  # Keras's own
keras: Any
layers: Any


@pytest.fixture(scope="module", autouse=True)
def library() -> None:
    """Import it for these tests alone: it takes seconds."""
    global keras, layers
    keras = pytest.importorskip("keras")
    layers = keras.layers


def chain(shape: tuple[int, ...], *parts: Any, functional: bool = False) -> Any:
    """Return a model with weights that are all drawn."""
    model = keras.Sequential([keras.Input(shape), *parts])
    if functional:
        x = inputs = keras.Input(shape)
        for part in parts:
            x = part(x)
        model = keras.Model(inputs, x)
    draw = np.random.default_rng(1)
    for variable in model.weights:
        variable.assign(draw.normal(size=variable.shape))
    return model


def imported(tmp_path: Path, model: Any) -> tuple[Network, np.ndarray]:
    """Return what is read of a model that is saved."""
    model.save(tmp_path / "mine.keras")
    network = layers_in((tmp_path / "mine.keras").read_bytes()).network()
    return network, read_champion(tmp_path / "mine.keras", models=True).weights


@pytest.mark.parametrize("functional", sampled([True, False]))
@pytest.mark.parametrize(
    ("shape", "make"),
    [
        ((5,), lambda: [layers.Dense(3)]),
        ((5,), lambda: [layers.Dense(7, "relu"), layers.Dropout(0.3), layers.Dense(6, "tanh", use_bias=False),
                        layers.LayerNormalization(), layers.Dense(3, "softmax")]),
        ((4, 3), lambda: [layers.Flatten(), layers.LayerNormalization(scale=False), layers.Dense(4), layers.ReLU(),
                          layers.Dense(5), layers.LayerNormalization(center=False), layers.Dense(2)]),
        ((9, 8, 3), lambda: [layers.Conv2D(5, 3, 2, "same", activation="relu"), layers.LayerNormalization(),
                             layers.MaxPooling2D(2), layers.Conv2D(4, 2, use_bias=False), layers.Activation("tanh"),
                             layers.AveragePooling2D(2, 1, "same"), layers.Flatten(), layers.Dense(6, "relu"),
                             layers.Dense(3), layers.Activation("softmax")]),
    ],
)  # fmt: skip
def test_an_imported_network_has_the_outputs_of_keras(
    tmp_path: Path, shape: tuple[int, ...], make: Any, functional: bool
) -> None:
    model = chain(shape, *make(), functional=functional)
    network, weights = imported(tmp_path, model)
    observations = np.random.default_rng(2).normal(size=(6, *shape)).astype(np.float32)
    wanted, found = np.asarray(model(observations)), lanes.scores(network, weights, observations)
    if "softmax" in str(model.get_config()["layers"][-1]):
        powers = np.exp(found - found.max(axis=1, keepdims=True))
        found = powers / powers.sum(axis=1, keepdims=True)
    np.testing.assert_allclose(found, wanted, rtol=2e-4, atol=2e-5)


@pytest.mark.long
@pytest.mark.parametrize(
    ("steps", "make"),
    [
        (None, lambda: [layers.GRU(5), layers.Dense(3)]),
        (None, lambda: [layers.Dense(4, "tanh"), layers.LSTM(6, return_sequences=True), layers.LayerNormalization(),
                        layers.GRU(4, use_bias=False, unroll=False), layers.Dense(5, "relu"), layers.Dense(3)]),
        (7, lambda: [layers.LSTM(4, dropout=0.2, return_sequences=True), layers.Dense(3)]),
        (1, lambda: [layers.GRU(5, stateful=True), layers.Dense(3)]),
    ],
)  # fmt: skip
def test_an_imported_network_with_memory_has_the_outputs_of_keras_at_every_step(
    tmp_path: Path, steps: int | None, make: Any
) -> None:
    if steps == 1:
        model = keras.Sequential([keras.Input((1, 4), batch_size=2), *make()])
        draw = np.random.default_rng(1)
        model.set_weights([draw.normal(size=one.shape) for one in model.get_weights()])
    else:
        model = chain((steps, 4), *make())  # type: ignore[arg-type]
    network, weights = imported(tmp_path, model)
    assert network.shape == (4,)
    seen = np.random.default_rng(2).normal(size=(2, 7, 4)).astype(np.float32)
    state = np.zeros((2, network.memory), np.float32)
    found = [lanes.scores(network, weights, seen[:, step], memory=state) for step in range(7)]  # 7 x [2, 3]
    if steps == 1:
        wanted = [np.asarray(model(seen[:, step : step + 1])) for step in range(7)]
    elif steps == 7:
        wanted = list(np.asarray(model(seen)).swapaxes(0, 1))
    else:
        wanted = [np.asarray(model(seen[:, : step + 1])) for step in range(7)]
    np.testing.assert_allclose(found, wanted, rtol=2e-4, atol=2e-5)


def test_what_is_exported_is_imported_with_the_same_bits(tmp_path: Path) -> None:
    network = Network.build(Options(layers=["conv 4 3 2 same", "norm", "relu", "max_pool 2", "dense 6", "tanh"]),
                            (8, 8, 2), 3)  # fmt: skip
    weights = np.random.default_rng(3).normal(size=network.size).astype(np.float32)
    model = build_keras(network)
    set_weights(model, network, weights)
    again, read = imported(tmp_path, model)
    assert again == network
    np.testing.assert_array_equal(read, weights)


@pytest.mark.parametrize(
    ("options", "shape", "normalised"),
    [
        ({"inputs": {"a": {"dense": [4]}, "b": {"conv": [[3, 3, 2]]}}}, (21,), False),
        ({"inputs": {"a": {}}}, (5,), False),
        ({"kind": "mlp", "memory": "gru:4"}, (5,), False),
        ({"kind": "mlp", "memory": "lstm:4"}, (5,), False),
        ({"embed": "one_hot", "codes": 3}, (8, 8, 1), False),
        ({"kind": "linear"}, (5,), True),
        ({"kind": "mlp", "output": "tanh"}, (5,), False),
    ],
)
def test_an_export_that_is_not_imported_says_what_to_do(
    tmp_path: Path, options: dict[str, Any], shape: tuple[int, ...], normalised: bool
) -> None:
    entries = {"a": (5,), "b": (4, 4, 1)}
    known = {name: entries[name] for name in options.get("inputs", {})}
    network = Network.build(Options(**options).resolved(0, known or None), shape, 3)
    by = Normalisation(np.zeros(shape), np.ones(shape), 5.0) if normalised else None
    build_keras(network, normalisation=by).save(file := tmp_path / "mine.keras")
    said = "it seems to be an export of .*: write the same .policy., and start from the champion.h5 of the run$"
    with pytest.raises(ConfigurationError, match=f"^{said}"):
        layers_in(file.read_bytes())
    with pytest.raises(DataError, match=f"^{file}: {said}"):
        read_champion(file, models=True)


def test_a_run_has_the_layers_of_a_model_and_starts_from_its_weights(tmp_path: Path) -> None:
    experiment: dict[str, dict[str, Any]] = {
        "run": {"algorithm": "sep_cma_es", "generations": 2, "init_from": str(tmp_path / "mine.keras")},
        "environment": {"id": "catch"},
        "sep_cma_es": {"population": 4, "sigma": 0.01, "episodes": 2},
        "validation": {"episodes": 4}, "test": {"episodes": 4}, "workers": {"backend": "serial"},
    }  # fmt: skip
    shape = Experiment.build(environment={"id": "catch"}).network().shape
    model = chain(shape, layers.Flatten(), layers.Dense(8, "tanh"), layers.Dense(3))
    _, weights = imported(tmp_path, model)
    file = tmp_path / "mine.toml"
    text = ['policy = "mine.keras"', *(
        line for name, table in experiment.items()
        for line in (f"[{name}]", *(f"{key} = {json.dumps(value)}" for key, value in table.items()))
    )]  # fmt: skip
    file.write_text("\n".join(text))
    loaded = Experiment.load(file)
    assert loaded.policy.layers == ["dense 8", "tanh"]
    start = start_of(loaded)
    assert start is not None
    np.testing.assert_array_equal(start.weights, weights)
    environment, run = {"id": "catch"}, {"init_from": str(tmp_path / "mine.keras")}
    otherwise = Experiment.build(policy={"layers": ["dense 8", "relu"]}, environment=environment, run=run)
    with pytest.raises(ConfigurationError, match=r'has policy\.layers = \["dense 8", "tanh"\], and here it is'):
        start_of(otherwise)
    for _ in evo.train(loaded, tmp_path / "run"):
        pass
    (tmp_path / "mine.keras").unlink()  # the run has its own copy
    again = Experiment.load(tmp_path / "run" / "config.resolved.toml", resolved=True)
    assert again.policy == loaded.policy
    assert evo.Run(tmp_path / "run").champion.weights.shape == weights.shape


@pytest.mark.parametrize(
    ("outputs", "said"),
    [
        (2, "it has 2 outputs, and there are 3 actions"),
        (3, "starts from mine.keras, of fitness 1.500 here"),
        (4, "starts from mine.keras without its last output, of fitness 1.500 here"),
        (5, "starts from mine.keras without its last 2 outputs, of fitness 1.500 here"),
    ],
)
def test_a_model_with_other_outputs_than_actions_is_refused_or_named(tmp_path: Path, outputs: int, said: str) -> None:
    file = tmp_path / "mine.keras"
    shape = Experiment.build(environment={"id": "catch"}).network().shape
    chain(shape, layers.Flatten(), layers.Dense(outputs)).save(file)
    experiment = Experiment.build(policy=str(file), environment={"id": "catch"}, run={"init_from": str(file)})
    try:
        line = handover_text(experiment, 1.5)
    except ConfigurationError as error:
        line = str(error).removeprefix(f"run.init_from: {file}: ")
    assert line == said


def test_weights_without_a_description_are_those_of_the_layers_in_the_policy(tmp_path: Path) -> None:
    file, shape = tmp_path / "mine.weights.h5", Experiment.build(environment={"id": "catch"}).network().shape
    model = chain(shape, layers.Conv2D(4, 3, 2, "same"), layers.LayerNormalization(), layers.ReLU(), layers.Flatten(),
                  layers.Dropout(0.5), layers.Dense(6, "tanh", use_bias=False), layers.GaussianNoise(1.0),
                  layers.Dense(3))  # fmt: skip
    model.save_weights(file)
    policy = {"layers": ["conv 4 3 2 same", "norm", "relu", "dense 6", "tanh"]}

    def starting(policy: Any) -> np.ndarray:
        start = start_of(Experiment.build(policy=policy, environment={"id": "catch"}, run={"init_from": str(file)}))
        assert start is not None
        return start.weights

    np.testing.assert_array_equal(starting(policy), imported(tmp_path, model)[1])
    for hidden, said in (
        (["dense 6", "tanh"], "its layers/conv2d/vars/0 is of no layer in"),
        (["conv 4 3 2 same", "dense 6"], "its layers/layer_normalization/vars/0 is of no layer in"),
        ([*policy["layers"], "dense 5"], "it has no layers/dense_2/vars/0, the kernel of layer 4"),
        (["gru 3"], "it has no layers/gru/cell/vars/0, the kernel of layer 1"),
    ):
        with pytest.raises(ConfigurationError, match=f"^run.init_from: {file}: {said}"):
            starting({"layers": hidden})
    with pytest.raises(ConfigurationError, match="has weights without a description; describe its layers in"):
        Experiment.build(policy=str(file), environment={"id": "catch"})
    with pytest.raises(DataError, match="it seems to be a Keras file"):
        read_champion(file)  # as a champion, it is not
    with h5py.File(file, "a") as opened:
        opened["layers/dense/vars/0"].attrs["x"] = 1
        opened["layers/outside"] = h5py.ExternalLink("/etc/passwd", "x")
    with pytest.raises(DataError, match="'layers/outside' is a link"):
        read_champion(file, models=True)


def test_a_graph_of_functions_is_refused_with_what_to_do(tmp_path: Path) -> None:
    (tmp_path / "saved_model.pb").write_bytes(b"")
    said = "is a SavedModel, a graph of functions, which is not read; save the model as .keras"
    for options in ({"policy": str(tmp_path)}, {"run": {"init_from": str(tmp_path)}}):
        with pytest.raises(ConfigurationError, match=said):
            Experiment.build(environment={"id": "catch"}, **options).identity()  # type: ignore[arg-type]


def own() -> Any:
    """Return a layer of a user's class."""

    @keras.saving.register_keras_serializable("mine")
    class Own(layers.Layer):  # type: ignore[misc, name-defined]
        pass

    return Own(name="mine")


@pytest.mark.parametrize(
    ("shape", "parts", "said"),
    [
        ((3,), lambda: [layers.Lambda(lambda x: 2 * x, name="twice"), layers.Dense(1)], "twice is a Lambda; known are"),
        ((3,), lambda: [own(), layers.Dense(1)], "mine is a Own of its own code"),
        ((4, 3), lambda: [layers.SimpleRNN(2, name="old"), layers.Dense(1)], "old is a SimpleRNN; known are"),
        ((4, 3), lambda: [layers.GRU(2, reset_after=False, name="old"), layers.Dense(1)], "old has reset_after"),
        ((4, 3), lambda: [layers.LSTM(2, activation="relu", name="old"), layers.Dense(1)], "old has activation"),
        ((4, 3), lambda: [layers.GRU(2, go_backwards=True, name="old"), layers.Dense(1)], "old has go_backwards"),
        (
            (4, 3),
            lambda: [layers.LSTM(2, return_sequences=True), layers.Flatten(name="all"), layers.Dense(1)],
            "all is a Flatten at",
        ),
        (
            (4, 3),
            lambda: [layers.GRU(2, return_sequences=True), layers.LayerNormalization(1, name="time"), layers.Dense(1)],
            "time normalises the axes",
        ),
        ((4, 3, 2), lambda: [layers.Flatten(), layers.Reshape((4, 6)), layers.GRU(2), layers.Dense(1)], "of numbers"),
        ((3,), lambda: [layers.Dense(2, "elu", name="soft"), layers.Dense(1)], "soft has the activation elu"),
        ((3,), lambda: [layers.Dense(2, "softmax"), layers.Dense(1, name="behind")], "behind follows a softmax"),
        ((4, 3), lambda: [layers.Dense(2, name="each")], "each is a Dense at a place where"),
        ((4, 4, 1), lambda: [layers.Flatten(), layers.LayerNormalization(name="all"), layers.Dense(1)], "all is a"),
        ((4, 4, 1), lambda: [layers.Conv2D(2, (2, 3), name="wide"), layers.Flatten(), layers.Dense(1)], "only squares"),
        ((4, 4, 1), lambda: [layers.Conv2D(2, 2, dilation_rate=2), layers.Flatten(), layers.Dense(1)], "dilation_rate"),
        ((3,), lambda: [layers.Dense(2), layers.LayerNormalization(epsilon=1e-6), layers.Dense(1)], "epsilon"),
        ((3,), lambda: [layers.Dense(2, "relu")], "its last layer must be a Dense"),
        ((None,), lambda: [layers.Dense(2, "relu")], "all of its sides"),
    ],
)
def test_what_is_not_known_is_refused_by_name(
    tmp_path: Path, shape: tuple[int | None, ...], parts: Any, said: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    if None in shape:
        archive(tmp_path / "mine.keras", shape)
    else:
        keras.Sequential([keras.Input(shape), *parts()]).save("mine.keras")
    with pytest.raises(ConfigurationError, match=f'^experiment: policy: "mine.keras": .*{said}'):
        Experiment.build(policy="mine.keras", environment={"id": "catch"})
    with pytest.raises(DataError, match=f"^mine.keras: .*{said}"):
        read_champion(Path("mine.keras"), models=True)


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (lambda x: [layers.Dense(2)(a := layers.Dense(3)(x)), a], "it has 2 outputs; only models with one are known"),
        (lambda x: {"one": (a := layers.Dense(3)(x)), "two": layers.Dense(2)(a)}, "it has 2 outputs"),
        (
            lambda x: layers.Dense(2)(layers.Dropout(0.5, name="doubt")(x, training=True)),
            "doubt is called with training",
        ),
        (
            lambda x: layers.Dense(2)(layers.GRU(2, name="kept")(x, initial_state=keras.ops.ones((1, 2)))),
            "kept is called with initial_state",
        ),
        (lambda x: [layers.Dense(2)(layers.Dense(3)(x))], None),
        (lambda x: {"one": layers.Dense(2)(layers.Dropout(0.5)(x, training=False))}, None),
    ],
)
def test_what_a_model_does_besides_its_chain_is_refused(tmp_path: Path, make: Any, said: str | None) -> None:
    x = keras.Input((None, 4) if said and "kept" in said else (4,))
    keras.Model(x, make(x)).save(file := tmp_path / "mine.keras")
    if said is None:
        assert layers_in(file.read_bytes()).outputs == 2
        return
    with pytest.raises(ConfigurationError, match=said):
        layers_in(file.read_bytes())


def joined(order: tuple[str, ...] = ("picture", "sign"), join: Any = None, flat: bool = True) -> Any:
    """Return a model of two inputs, each with layers of its own."""
    inputs = {"picture": keras.Input((8, 8, 1), name="picture"), "sign": keras.Input((2,), name="sign")}
    x = layers.Conv2D(3, 3, 2, activation="relu", name="see")(inputs["picture"])
    ends = {"picture": layers.Flatten()(x) if flat else x, "sign": layers.Dense(4, name="read")(inputs["sign"])}
    x = (join() if join else layers.Concatenate(name="both"))([ends[name] for name in order])
    x = layers.Dense(2, name="act")(layers.LayerNormalization()(layers.Dense(6, "tanh")(x)))
    model = keras.Model([inputs["sign"], inputs["picture"]], x)
    draw = np.random.default_rng(1)
    for variable in model.weights:
        variable.assign(draw.normal(size=variable.shape))
    return model


def test_several_inputs_that_are_joined_are_the_entries_of_a_policy(tmp_path: Path) -> None:
    model, seen = joined(), np.random.default_rng(2).normal(size=(16, 66)).astype(np.float32)
    network, weights = imported(tmp_path, model)
    assert [part.name for part in network.parts] == ["picture", "sign"]
    expected = np.asarray(model({"picture": seen[:, :64].reshape(-1, 8, 8, 1), "sign": seen[:, 64:]}))
    np.testing.assert_allclose(lanes.scores(network, weights, seen), expected, rtol=2e-4, atol=2e-5)


def test_a_run_has_layers_for_its_entries_from_a_model(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import gymnasium
    from gymnasium.spaces import Box, Dict

    spaces = {"picture": Box(0, 1, (8, 8, 1)), "sign": Box(0, 1, (2,))}

    class Reversed(gymnasium.Env):  # type: ignore[misc, type-arg]
        action_space = gymnasium.spaces.Discrete(2)
        observation_space = Dict([(name, spaces[name]) for name in reversed(spaces)])

    class Same(Reversed):
        observation_space = Dict(spaces)

    monkeypatch.chdir(tmp_path)
    _, weights = imported(tmp_path, joined())
    for kind in (Same, Reversed):
        gymnasium.register(f"{kind.__name__}-v0", kind)
        try:
            experiment = Experiment.build(
                policy="mine.keras",
                run={"init_from": "mine.keras"},
                environment={"id": f"gymnasium:{kind.__name__}-v0"},
            )
            if kind is Same:
                start = start_of(experiment)
                assert start is not None
                np.testing.assert_array_equal(start.weights, weights)
            else:
                with pytest.raises(ConfigurationError, match="are sign, picture; they must be in alphabetical order"):
                    start_of(experiment)
        finally:
            gymnasium.registry.pop(f"{kind.__name__}-v0")


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"order": ("sign", "picture")}, "both joins sign, picture; join them in alphabetical order"),
        ({"order": ("picture", "sign", "sign")}, "read is used twice"),
        (
            {"order": ("picture", "picture"), "join": lambda: layers.Add(name="sum")},
            "sum is a Add; several inputs are joined",
        ),
        ({"order": ("picture",) * 2, "flat": False}, "both joins rows; Flatten them before, of the input picture"),
    ],
)
def test_inputs_that_are_joined_otherwise_are_refused_by_the_layer(options: dict[str, Any], said: str) -> None:
    model = joined(**options)
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w") as made:
        made.writestr("config.json", model.to_json())
    with pytest.raises(ConfigurationError, match=said):
        layers_in(file.getvalue())


def archive(path: Path, shape: tuple[int | None, ...] = (2,), weights: bytes | None = None, **changes: Any) -> None:
    """Write an archive of one layer by hand."""
    layer = {"name": "dense", "units": 1, "activation": "linear", "use_bias": True, **changes}
    parts = [
        {"module": "keras.layers", "class_name": "InputLayer", "config": {"batch_shape": [None, *shape]}},
        {"module": "keras.layers", "class_name": "Dense", "config": layer},
    ]
    with zipfile.ZipFile(path, "w") as file:
        file.writestr("config.json", json.dumps({"class_name": "Sequential", "config": {"layers": parts}}))
        if weights is not None:
            file.writestr("model.weights.h5", weights)


def weights_file(**links: Any) -> bytes:
    """Return an HDF5 file of one layer, with links in place of its arrays, or without them."""
    written = io.BytesIO()
    with h5py.File(written, "w") as file:
        group = file.create_group("layers/dense/vars")
        for name, shape in (("0", (2, 1)), ("1", (1,))):
            if not isinstance(links.get(f"v{name}"), h5py.Empty):
                group[name] = links.get(f"v{name}", np.ones(shape, np.float32))
    return written.getvalue()


def test_archives_that_somebody_made_up_are_a_line(tmp_path: Path) -> None:
    file = tmp_path / "mine.keras"
    archive(file, weights=weights_file())
    assert read_champion(file, models=True).weights.tolist() == [1, 1, 1]
    for said, weights, changes in (
        ("no .keras archive", None, {}),
        ("is a link", weights_file(v0=h5py.ExternalLink("/etc/passwd", "x"), v1=h5py.SoftLink("/y")), {}),
        ("is a link", weights_file(v0=h5py.SoftLink("/nowhere")), {}),
        ("has no array 'layers/dense/vars/1'", weights_file(v1=h5py.Empty("f4")), {}),
        ("expected <f4", weights_file(v1=np.ones(1, np.float64)), {}),
        ("not a readable HDF5", pickle.dumps([1]), {}),
        ("no chain of layers", weights_file(), {"units": [1]}),
        ("no chain of layers.*whole number", weights_file(), {"units": 10**6}),
        ("has the activation", weights_file(), {"activation": {"class_name": "function", "config": "eval"}}),
    ):
        archive(file, weights=weights, **changes)
        with pytest.raises(DataError, match=said):
            read_champion(file, models=True)
    file.write_bytes(pickle.dumps([1]))
    with pytest.raises(DataError, match="it seems to be a pickle"):
        read_champion(file, models=True)
    archive(file)
    with pytest.raises(DataError, match=r"it seems to be a \.keras archive"):
        read_champion(file)  # as a champion, it is not


@pytest.mark.parametrize(
    ("changes", "compression", "said"),
    [
        ({"class_name": "LayerNormalization", "axis": -1, "center": 1, "scale": 1e999}, zipfile.ZIP_STORED, "no chain"),
        (
            {"name": "x\nall is well", "activation": "\r"},
            zipfile.ZIP_STORED,
            r"layer x\\nall is well has .* \\r; known",
        ),
        ({}, zipfile.ZIP_LZMA, "compressed as Keras compresses nothing"),  # a header may ask for 4 GiB of memory
        ({}, zipfile.ZIP_BZIP2, "compressed as Keras compresses nothing"),
    ],
)
def test_layers_of_archives_that_somebody_made_up_are_a_line(
    changes: dict[str, Any], compression: int, said: str
) -> None:
    kind = changes.pop("class_name", "Dense")
    config = {"units": 1, "use_bias": True, "activation": "linear"}
    layer = {"class_name": kind, "module": "keras.layers", "registered_name": None, "config": {**config, **changes}}
    first = {"class_name": "InputLayer", "config": {"batch_shape": [None, 2]}}
    model = {"class_name": "Sequential", "config": {"layers": [first, layer]}}
    with zipfile.ZipFile(made := io.BytesIO(), "w", compression) as file:
        file.writestr("config.json", json.dumps(model))
    with pytest.raises(ConfigurationError, match=said):
        layers_in(made.getvalue())


def test_a_number_that_no_layer_has_is_one_line() -> None:
    with pytest.raises(ConfigurationError, match=r'^"dense 0": units must be a whole number from 1 to [\d,]+$'):
        Imported((4,), ["dense 0"], 2).network()


def test_a_model_without_layers_is_a_line() -> None:
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w") as made:
        made.writestr("config.json", json.dumps({"class_name": "Sequential", "config": {"layers": []}}))
    with pytest.raises(ConfigurationError, match=r"^it has no layers$"):
        layers_in(file.getvalue())
