"""A fitness of a Keras model: rebuilt in every process without code, with the same bits on every backend."""

from __future__ import annotations

import base64
import json
import re
import zlib
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import evo
from evo.comparison.runs import place_of
from evo.errors import ConfigurationError
from evo.networks.keras_models import KerasModel, describe
from evo.report import tables
from tests.helpers.calling import called
from tests.helpers.learning import tensorflow  # noqa: F401
from tests.plugins import keras_fitness

keras: Any
FEW: dict[str, Any] = {
    "sep_cma_es": {"population": 8, "sigma": 0.1, "episodes": 1},
    "validation": {"episodes": 1},
    "test": {"episodes": 2},
}


@pytest.fixture(scope="module", autouse=True)
def library() -> None:
    """Import it for these tests alone: it takes seconds."""
    global keras
    keras = pytest.importorskip("keras")


def small(units: int = 15) -> Any:
    """Return a model of 226 weights, where there are 15 units."""
    layers = keras.layers
    keras.utils.set_random_seed(3)
    return keras.Sequential(
        [keras.Input((1,)), layers.Dense(units, "tanh"), layers.Dense(units // 15 * 12, "relu"), layers.Dense(1)]
    )


def frozen() -> Any:
    """Return the small model with a layer that is not trained."""
    model = small()
    model.layers[0].trainable = False
    return model


def many_layers() -> Any:
    """Return a functional model with branches, memory, dropout and layers that are not trained."""
    layers = keras.layers
    image, words = keras.Input((8, 8, 2), name="image"), keras.Input((5,), dtype="int32", name="words")
    seen = layers.Flatten()(layers.BatchNormalization()(layers.Conv2D(4, 3, activation="relu")(image)))
    read = layers.Bidirectional(layers.GRU(3))(layers.Embedding(7, 4)(words))
    frozen = layers.Dense(6, trainable=False)(read)
    both = layers.Concatenate()([layers.Dropout(0.5)(seen), frozen, keras.ops.tanh(read) + 1.0])
    return keras.Model([image, words], layers.Dense(2)(layers.LayerNormalization()(both)))


def state_hash(run: evo.Run) -> str:
    return json.loads((run.directory / "manifest.jsonl").read_text().splitlines()[-1])["state_hash"]  # type: ignore[no-any-return]


def test_a_model_of_any_layers_is_rebuilt_with_the_same_outputs() -> None:
    model, draw = many_layers(), np.random.default_rng(0)
    for layer in model.layers:
        if isinstance(layer, keras.layers.BatchNormalization):
            layer.moving_variance.assign(draw.uniform(0.5, 2, 4))
    inputs = [draw.normal(size=(3, 8, 8, 2)).astype(np.float32), draw.integers(0, 7, (3, 5))]
    text, weights = describe(model)
    again = KerasModel(text).with_weights(weights)
    np.testing.assert_array_equal(model(inputs), again(inputs))
    assert not np.array_equal(again(inputs), KerasModel(text).with_weights(weights * 2)(inputs))
    assert describe(many_layers())[0] != text  # other weights that are not trained
    assert describe(small())[0] == describe(small())[0]  # though Keras has counted on


@pytest.mark.long
@pytest.mark.parametrize("units", [15, 1440])
def test_a_search_with_workers_kills_and_resumes_has_the_bits_of_one_process(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, units: int
) -> None:
    monkeypatch.setenv("KILLED_ONCE", str(tmp_path / "killed"))
    (tmp_path / "killed").touch()
    whole = evo.maximise(keras_fitness.deadly, small(units), generations=4, run_dir=tmp_path / "whole", **FEW)
    (tmp_path / "killed").unlink()
    for generations in (2, 4):
        part = evo.maximise(
            keras_fitness.deadly, small(units), generations=generations, workers=2, run_dir=tmp_path / "parts", **FEW
        )
    assert (tmp_path / "killed").exists()
    assert state_hash(part.run) == state_hash(whole.run)
    assert whole.fitness == part.fitness == keras_fitness.exact(part.model)
    assert whole.x.size == {15: 30 + 192 + 13}.get(units, whole.x.size)
    assert units == 15 or whole.x.size > 1_600_000


def test_a_resume_with_another_model_names_the_layers_of_both(tmp_path: Path) -> None:
    few: dict[str, Any] = {**FEW, "algorithm": "sep_cma_es", "generations": 1, "run_dir": tmp_path / "run"}
    run = evo.maximise(keras_fitness.exact, small(), **few).run
    other = small()
    other.layers[1].activation = keras.activations.sigmoid
    ours = "Dense 15 tanh, Dense 12 relu, Dense 1"
    for model, told in (
        (small(30), f"{ours} in the run, Dense 30 tanh, Dense 24 relu, Dense 1 now"),
        (other, f"{ours} in the run, Dense 15 tanh, Dense 12 sigmoid, Dense 1 now"),
        (frozen(), f"another Keras model, of the same layers ({ours}) with other options or fixed weights"),
    ):
        with pytest.raises(ConfigurationError) as refused:
            evo.maximise(keras_fitness.exact, model, **few)
        line = next(line for line in str(refused.value).splitlines() if "model" in line)
        assert line.endswith(f"environment.model: {told}")
        assert not re.search(r"\w{40}", line)
    shown = {name: text for name, text, _ in tables.differences(run.config)}
    assert shown["environment.model"] == ours
    assert re.search(rf"model {ours} \(\w{{12}}\)", place_of(run.config).game)


@pytest.mark.long
def test_a_noisy_fitness_improves_and_is_verified(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    model = small()
    best = evo.maximise(
        keras_fitness.fitness, model, generations=30, run_dir=tmp_path / "run", sep_cma_es={"sigma": 0.1}
    )
    assert best.fitness > 0.5 * keras_fitness.exact(model)
    assert "agrees" in called(tmp_path, "verify", "run", "--plugin", "tests.plugins.keras_fitness", program="evo")[0]


def test_what_a_fitness_does_to_its_model_is_not_the_next_candidate_s(tmp_path: Path) -> None:
    seen = []

    def learning(model: Any) -> float:
        seen.append(model.layers[0].moving_mean.numpy().tolist())
        model.layers[0].moving_mean.assign([7.0])
        model.trainable = not model.trainable
        return float(model(np.ones((1, 1)))[0, 0])

    def growing(model: Any) -> float:
        model.add(keras.layers.Dense(1))
        return 0.0

    model = keras.Sequential([keras.Input((1,)), keras.layers.BatchNormalization(), keras.layers.Dense(1)])
    evo.maximise(learning, model, generations=1, run_dir=tmp_path / "run", **FEW)
    assert len(seen) >= 8
    assert {*map(tuple, seen)} == {(0.0,)}
    with pytest.raises(ConfigurationError, match=r"^fitness: the function has changed the layers .* copy, as of keras"):
        evo.maximise(growing, model, generations=1, run_dir=tmp_path / "other", **FEW)


def test_a_model_that_would_need_code_is_named() -> None:
    layers = keras.layers

    @keras.saving.register_keras_serializable("mine")
    class Own(keras.layers.Layer):  # type: ignore[misc]
        def build(self, shape: Any) -> None:
            self.scale = self.add_weight(shape=(1,))

        def call(self, x: Any) -> Any:
            return self.scale * x

    class Subclass(keras.Model):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.inner = layers.Dense(2)

        def call(self, x: Any) -> Any:
            return self.inner(x)

    subclass = Subclass()
    subclass(np.zeros((1, 3), np.float32))
    for model, said in (
        (keras.Sequential([keras.Input((3,)), layers.Lambda(lambda x: 2 * x, name="twice"), layers.Dense(1)]), "twice"),
        (keras.Sequential([keras.Input((3,)), Own(name="scaled")]), "scaled has a Own"),
        (keras.Sequential([keras.Input((3,)), layers.Dense(1, activation=lambda x: x)]), "dense_?\\d* has a function"),
        (subclass, "Subclass"),
        (
            keras.Sequential([keras.Input((4, 2), batch_size=1), layers.LSTM(3, stateful=True)]),
            "lstm_?\\d* is stateful",
        ),
        (keras.Sequential([layers.Dense(1)]), "no weights to evolve"),
    ):
        with pytest.raises(ConfigurationError, match=f"^start: .*{said}"):
            evo.maximise(keras_fitness.fitness, model)


def test_a_description_that_names_code_is_refused_before_anything_is_built() -> None:
    text = json.loads(zlib.decompress(base64.b64decode(describe(small())[0])))
    layer = text["model"]["config"]["layers"][1]
    for change, said in (
        ({"module": "os", "class_name": "system"}, "system"),
        ({"module": "builtins", "class_name": "function", "config": "eval"}, "function"),
        ({"module": "keras.layers", "class_name": "TFSMLayer"}, "TFSMLayer"),
        ({"module": "keras.utils", "class_name": "get_file"}, "get_file"),
    ):
        layer["config"]["activation"] = change
        with pytest.raises(ConfigurationError, match=said):
            KerasModel(base64.b64encode(zlib.compress(json.dumps(text).encode())).decode())
    with pytest.raises(ConfigurationError, match="cannot be rebuilt"):
        KerasModel("{}")
    large = keras.Sequential([keras.Input((1,)), keras.layers.Dense(20_000, trainable=False), keras.layers.Dense(1)])
    with pytest.raises(ConfigurationError, match="mostly of weights that are not trained"):
        describe(large)


def packed(model: object) -> str:
    """Return the text of a description."""
    return base64.b64encode(zlib.compress(json.dumps({"model": model, "fixed": ""}).encode())).decode()


def test_a_description_of_a_model_that_is_too_large_or_too_deep_is_refused_before_anything_is_built() -> None:
    text, _ = describe(small())
    model = json.loads(zlib.decompress(base64.b64decode(text)))["model"]
    model["config"]["layers"][-1]["config"]["units"] = 10**12  # 52 TB
    with pytest.raises(ConfigurationError, match=r"cannot be rebuilt by Keras .*: it has .* weights, and at most 134"):
        KerasModel(packed(model))
    nested = zlib.compress(b'{"model": ' + b"[" * 100_000 + b"]" * 100_000 + b', "fixed": ""}')
    with pytest.raises(ConfigurationError, match=r"cannot be rebuilt by Keras .*recursion"):
        KerasModel(base64.b64encode(nested).decode())
