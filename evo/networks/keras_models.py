"""Models of Keras that users bring: described as text without code, and rebuilt from it by Keras in each process.

The weights that are trained are one float32 vector, in the order of `trainable_variables`; all others are in the text,
which is JSON, compressed.
"""

from __future__ import annotations

import base64
import json
import math
import re
import warnings
import zlib
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from copy import deepcopy
from typing import Any

import numpy as np
from numpy.typing import NDArray

from evo.errors import ConfigurationError, printable
from evo.lazy import keras

MODULES = {  # of Keras, from which descriptions may name classes
    "keras", "keras.layers", "keras.models", "keras.dtype_policies", "keras.src.models.functional",
    "keras.src.models.sequential",
}  # fmt: skip
OPERATIONS = "keras.src.ops."
RUNS_CODE = {  # layers with code or files of their own
    "Lambda", "TFSMLayer", "TorchModuleWrapper", "JaxLayer", "FlaxLayer", "StringLookup", "IntegerLookup",
    "TextVectorization",
}  # fmt: skip
VALUES = {"__keras_tensor__", "__tensor__", "__numpy__", "slice", "__ellipsis__"}  # which are no classes
UNUSED = re.compile(r"compile_config|shared_object_id|\w+_(initializer|regularizer|constraint)")
LARGEST, MOST = 40_000, 4 << 20  # characters of a description, which an experiment file must hold; bytes of its JSON
MOST_NUMBERS = 1 << 27  # of a vector
SIZES = ("units", "filters", "kernel_size", "activation")  # of a layer, which are shown
MOST_SHOWN = 200  # characters of the layers of a model
WRONG = (  # what a text that is no description of a model may raise
    TypeError, ValueError, KeyError, AttributeError, OverflowError, RecursionError, MemoryError, zlib.error,
)  # fmt: skip
BUILD_IT = "build it of keras.layers, with keras.Sequential or keras.Model(inputs, outputs)"


def is_model(value: object) -> bool:
    """Return whether a value is a Keras model, without importing Keras."""
    return any(base.__module__ == "keras.src.models.model" for base in type(value).__mro__)


def describe(model: keras.Model) -> tuple[str, NDArray[np.float32]]:
    """Return the text that `rebuild` needs, and the weights that are trained.  # [P]

    ConfigurationError: it has a layer that cannot be rebuilt without its code, or no weights yet.
    """
    if not model.built or not model.trainable_variables:
        raise ConfigurationError(
            "start: the model has no weights to evolve; begin it with keras.Input, or call it once"
        )
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of code in it, which `check` names
            config = _plain(keras.saving.serialize_keras_object(model))
        check(config)
        fixed = base64.b64encode(_flat(model.non_trainable_weights).tobytes()).decode()
        described = json.dumps({"model": _renamed(config), "fixed": fixed}, sort_keys=True)
        text = base64.b64encode(zlib.compress(described.encode())).decode()
        found = KerasModel(text)
    except ConfigurationError as error:
        raise ConfigurationError(f"start: {error}") from None
    except (*WRONG, NotImplementedError) as error:
        raise ConfigurationError(f"start: {model.name} cannot be rebuilt: {error!s:.200}; {BUILD_IT}") from error
    if len(text) > LARGEST:
        raise ConfigurationError(
            f"start: the description of {model.name} has {len(text):,} characters, mostly of weights that are not "
            "trained; build those layers inside of the fitness function"
        )
    weights = _flat(model.trainable_variables)
    if [one.shape for one in found.model.trainable_variables] != [one.shape for one in model.trainable_variables]:
        raise ConfigurationError(f"start: {model.name} has other weights where it is rebuilt; {BUILD_IT}")
    return text, weights


class KerasModel:
    """A model that is rebuilt from its description; Keras is imported here.

    ConfigurationError: the text is no description, or one of a layer that would run code.
    """

    def __init__(self, text: str) -> None:
        try:
            description = _described(text)
            check(description["model"])
            with ThreadPoolExecutor(1) as apart:  # what Keras remembers of an unfinished model ends with the thread
                size = apart.submit(_size, deepcopy(description["model"])).result()
            if size > MOST_NUMBERS:
                raise ValueError(f"it has {size:,} weights, and at most {MOST_NUMBERS:,} fit")
            self.model: Any = keras.saving.deserialize_keras_object(description["model"], safe_mode=True)
            self._weights, self._trained = [*self.model.weights], [*self.model.trainable_variables]
            self._fixed = [*self.model.non_trainable_weights]
            self._values = np.frombuffer(base64.b64decode(description["fixed"]), "<f4")
            _set(self._fixed, self._values)
        except WRONG as error:
            why = f"{error!s:.200}" or type(error).__name__
            raise ConfigurationError(f"the model cannot be rebuilt by Keras {keras.__version__}: {why}") from error

    def with_weights(self, weights: NDArray[np.float32]) -> Any:
        """Return the model with these weights; it is the same model each time.  # [P]

        All other weights are as described, whatever a function has learned with it. ConfigurationError: one has changed
        its layers.
        """
        if [*map(id, self.model.weights)] != [*map(id, self._weights)]:
            raise ConfigurationError(
                "fitness: the function has changed the layers of its model, which the next candidate gets too; change "
                "a copy, as of keras.models.clone_model"
            )
        _set(self._trained, weights)
        _set(self._fixed, self._values)
        return self.model


def layers_of(text: object) -> str:
    """Return the layers of a described model with what each computes, without Keras, as in "Dense 4 relu, Dense 1"."""
    if not text:
        return "no Keras model"
    try:
        config = _described(str(text))["model"]["config"]
        shown = (_layer_text(layer) for layer in config["layers"])
        return printable(", ".join(filter(None, shown)))[:MOST_SHOWN]
    except WRONG:
        return "a description that cannot be read"


def _layer_text(layer: Mapping[str, Any]) -> str:
    """Return the class of a layer and its sizes; empty: it is an input."""
    if layer["class_name"] == "InputLayer":
        return ""
    values = [layer["class_name"], *(layer["config"].get(name) for name in SIZES)]
    return " ".join(str(value) for value in values if value is not None and value != "linear")


def _described(text: str) -> Any:
    return json.loads(zlib.decompressobj().decompress(base64.b64decode(text), MOST))


def _size(config: Any) -> int:
    """Return how many weights a description has, without making any."""
    with keras.StatelessScope(initialize_variables=False):
        model: Any = keras.saving.deserialize_keras_object(config, safe_mode=True)
    return sum(math.prod(one.shape) for one in model.variables)


def check(config: Any) -> None:
    """Raise ConfigurationError where a description names code: a Lambda, a class of a user, a function, a pickle."""
    for layer, named in _named(config):
        kind, module = str(named.get("class_name", "function")), named.get("module")
        if kind in ("function", "__lambda__"):
            raise ConfigurationError(f"the layer {layer} has a function of its own; {BUILD_IT}")
        if ">" in str(named.get("registered_name")) or not (module in MODULES or str(module).startswith(OPERATIONS)):
            raise ConfigurationError(f"the layer {layer} has a {kind}, which is not of Keras; {BUILD_IT}")
        if kind in RUNS_CODE:
            raise ConfigurationError(f"the layer {layer} is a {kind}, which has code or files of its own; {BUILD_IT}")
        own = named.get("config")
        if isinstance(own, dict) and own.get("stateful") is True:
            raise ConfigurationError(
                f"the layer {layer} is stateful, so a call would depend on those before; leave it out"
            )


def _named(config: Any, layer: str = "") -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield every object in a description that names a class, or is code, with the layer that it belongs to."""
    if isinstance(config, dict):
        kind, own = config.get("class_name"), config.get("config")
        layer = str(own.get("name", layer or kind)) if isinstance(own, dict) else layer
        if (kind is not None and kind not in VALUES) or [*config] == ["value"]:  # the code of a function
            yield layer, config
        config = list(config.values())
    for part in config if isinstance(config, list | tuple) else ():
        yield from _named(part, layer)


def _plain(config: Any) -> Any:
    """Return a description without what changes neither its layers nor what they compute."""
    if isinstance(config, dict):
        return {key: _plain(value) for key, value in config.items() if not UNUSED.fullmatch(key)}
    return [_plain(value) for value in config] if isinstance(config, list | tuple) else config


def snake_case(name: str) -> str:
    """Return the name that Keras gives to a layer of a class."""
    return re.sub("([a-z])([A-Z])", r"\1_\2", re.sub("(.)([A-Z][a-z]+)", r"\1_\2", re.sub(r"\W+", "", name))).lower()


def numbered(stem: str, counts: dict[str, int]) -> str:
    """Return the next name that Keras gives, as dense, dense_1, dense_2; `counts` are of those before."""
    counts[stem] = number = counts.get(stem, -1) + 1
    return f"{stem}_{number}" if number else stem


def _renamed(config: Any) -> Any:
    """Return a description in which names that Keras has counted in this process, as dense_7, begin with dense."""
    counts, new = dict[str, int](), dict[str, str]()
    for name, named in _named(config):
        stem = snake_case(str(named.get("class_name")))
        if name not in new and re.fullmatch(rf"{stem}(_\d+)?", name):
            new[name] = numbered(stem, counts)

    def renamed(part: Any) -> Any:
        if isinstance(part, dict):
            return {key: renamed(value) for key, value in part.items()}
        if isinstance(part, list):
            return [renamed(value) for value in part]
        return new.get(part, part) if isinstance(part, str) and part[-1:].isdigit() else part

    return renamed(config)


def _flat(variables: Sequence[Any]) -> NDArray[np.float32]:
    return np.concatenate([np.asarray(one, np.float32).ravel() for one in variables] or [np.empty(0, np.float32)])


def _set(variables: Sequence[Any], weights: NDArray[np.float32]) -> None:
    sizes = [int(np.prod(one.shape)) for one in variables]
    if sum(sizes) != weights.size:
        raise ConfigurationError(
            f"the vector has {weights.size:,} numbers, and the model has another number of weights"
        )
    for one, part in zip(variables, np.split(weights, np.cumsum(sizes)), strict=False):  # behind them is nothing
        one.assign(part.reshape(one.shape))
