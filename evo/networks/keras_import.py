"""Models of Keras whose layers our kernels compute, from their description in a .keras archive; no code of it is run.

An archive is a zip of config.json, which says what the layers are, and of the weights, as an HDF5 file.
"""

from __future__ import annotations

import encodings.cp437  # noqa: F401 - with which zipfile decodes names; a sandbox cannot import it later
import io
import json
import zipfile
import zlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from math import prod
from typing import Any

from evo.errors import ConfigurationError
from evo.networks.imported import Imported
from evo.networks.keras_models import numbered, snake_case
from evo.networks.layer import parse
from evo.networks.network import EPSILON

CONFIG, WEIGHTS = "config.json", "model.weights.h5"  # in an archive
LARGEST_CONFIG = 1 << 20  # bytes
EXPORTED = ("network", "observation")  # names of a model that `build_keras` makes, and of its input
NOT_READ = (
    "it seems to be an export of a network with several inputs, memory, one-hot codes, normalised observations or tanh "
    "outputs, which is not read: write the same [policy], and start from the champion.h5 of the run"
)
KNOWN = (
    "Conv2D, Dense, GRU, LSTM, MaxPooling2D, AveragePooling2D, LayerNormalization, Flatten, Activation, ReLU, Dropout"
)
RECURRENT = ("GRU", "LSTM")
POOLS = {"MaxPooling2D": "max_pool", "AveragePooling2D": "average_pool"}
IN_STEPS: dict[str, tuple[Any, ...]] = {
    "activation": ("tanh",), "recurrent_activation": ("sigmoid",), "go_backwards": (False,), "return_state": (False,),
}  # fmt: skip
DOES_NOTHING = {"Dropout", "SpatialDropout2D", "GaussianNoise", "GaussianDropout"}  # where it does not train
ALIKE: dict[str, dict[str, tuple[Any, ...]]] = {  # options of layers with the values that our kernels have
    "Conv2D": {"data_format": ("channels_last",), "dilation_rate": ([1, 1], 1), "groups": (1,)},
    "MaxPooling2D": {"data_format": ("channels_last",)},
    "AveragePooling2D": {"data_format": ("channels_last",)},
    "Flatten": {"data_format": ("channels_last",)},
    "LayerNormalization": {"epsilon": (EPSILON,), "rms_scaling": (False,)},
    "GRU": {**IN_STEPS, "reset_after": (True,)},
    "LSTM": IN_STEPS,
    "ReLU": {"max_value": (None,), "negative_slope": (0.0,), "threshold": (0.0,)},
}


@dataclass
class KerasLayers(Imported):
    """The layers of a Keras model as those of a network."""

    arrays: list[tuple[str, float]] = field(default_factory=list)  # paths in the HDF5 file; "": it is filled with this


def member(archive: bytes, name: str, most: int) -> bytes:
    """Return a file of a .keras archive; ConfigurationError: it has none, or a larger one."""
    try:
        with zipfile.ZipFile(io.BytesIO(archive)) as opened:
            if opened.getinfo(name).compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
                raise zipfile.BadZipFile("it is compressed as Keras compresses nothing")
            with opened.open(name) as file:
                data = file.read(most + 1)
    except (zipfile.BadZipFile, zlib.error, KeyError, NotImplementedError, RuntimeError, EOFError, OSError) as error:
        raise ConfigurationError(f"is no .keras archive of Keras 3 with a {name}: {error!s:.80}") from error
    if len(data) > most:
        raise ConfigurationError(f"its {name} is larger than {most:,} bytes")
    return data


def layers_in(archive: bytes) -> KerasLayers:
    """Return the layers of a .keras archive; ConfigurationError names what our kernels do not compute."""
    try:
        model = json.loads(member(archive, CONFIG, LARGEST_CONFIG))
        try:
            found = _layers_of(model)
            found.network()
        except ConfigurationError as error:
            first = model["config"].get("layers", [])[:1]
            if (model["config"].get("name"), *(layer["config"].get("name") for layer in first)) != EXPORTED:
                raise
            raise ConfigurationError(NOT_READ) from error
        return found
    except ConfigurationError:
        raise
    except (KeyError, TypeError, ValueError, AttributeError, IndexError, OverflowError, RecursionError) as error:
        raise ConfigurationError(f"its {CONFIG} describes no chain of layers: {error!s:.120}") from error


def _layers_of(model: Mapping[str, Any]) -> KerasLayers:
    if model["class_name"] not in ("Sequential", "Functional", "Model"):
        raise ConfigurationError(
            f"{_own(model)} is a {model['class_name']!s:.40}; only Sequential and chains are known"
        )
    if not model["config"]["layers"]:
        raise ConfigurationError("it has no layers")
    first, *layers = model["config"]["layers"]
    if first["class_name"] != "InputLayer":
        raise ConfigurationError("its first layer is no Input, so the shape of an observation is not known")
    if model["class_name"] != "Sequential":
        outputs = model["config"]["output_layers"]
        if len(outputs) != 1 and not (outputs and isinstance(outputs, list) and isinstance(outputs[0], str)):
            raise ConfigurationError(f"it has {len(outputs)} outputs; only models with one are known")
        if any(layer["class_name"] == "InputLayer" for layer in layers):
            return _joined([first, *layers])
        _check_chain(first, layers)
    in_time = any(layer["class_name"] in RECURRENT for layer in layers)
    found = KerasLayers(_shape(first, in_time))
    place = _Place(len(found.shape) == 3, len(found.shape) == 1, in_time)
    return _whole(found, place, layers, _paths(layers))


def _joined(layers: list[Any]) -> KerasLayers:
    """Return the layers of a model whose inputs, each behind a chain of its own, are joined by a Concatenate."""
    named, paths = {layer["config"]["name"]: layer for layer in layers}, _paths(layers)
    join = next((layer for layer in layers if len(_before(layer)) > 1), layers[1])
    plain = join["class_name"] == "Concatenate" and join.get("registered_name") in (None, "Concatenate")
    if not plain or join.get("module") != "keras.layers" or join["config"]["axis"] not in (-1, 1):
        raise ConfigurationError(
            f"the layer {_own(join)} is a {join['class_name']!s:.40}; several inputs are joined by one Concatenate"
        )
    entries, left = dict[str, KerasLayers](), [layer for layer in layers if layer is not join]
    found, place = KerasLayers(()), _Place(image=False, flat=True, in_time=False)
    for name in _before(join):
        layer, chain = named[name], list[Any]()
        while layer["class_name"] != "InputLayer":
            if layer not in left:
                raise ConfigurationError(f"the layer {_own(layer)} is used twice; only chains of each input are known")
            left.remove(layer)
            chain.insert(0, layer)
            (before,) = _before(layer)
            layer = named[before]
        if layer not in left:
            raise ConfigurationError(f"the input {_own(layer)} is used twice; only one chain of each input is known")
        left.remove(layer)
        entry = entries[_own(layer)] = KerasLayers(_shape(layer, in_time=False))
        here = _Place(len(entry.shape) == 3, len(entry.shape) == 1, in_time=False)
        for one in chain:
            _add(entry, here, one, paths[id(one)])
        if not here.flat or here.softmax:
            wrong = "a softmax, which is known in the last layer alone" if here.softmax else "rows; Flatten them before"
            raise ConfigurationError(f"the layer {_own(join)} joins {wrong}, of the input {_own(layer)}")
        entry.hidden += [f"dense {here.outputs}"] if here.outputs else []
        place.rows_flattened |= here.rows_flattened
        found.arrays += entry.arrays
    if list(entries) != sorted(entries):
        raise ConfigurationError(
            f"the layer {_own(join)} joins {', '.join(entries)}; join them in alphabetical order, as Gymnasium does"
        )
    _check_chain(join, left)
    found.entries, found.shape = entries, (sum(prod(entry.shape) for entry in entries.values()),)
    return _whole(found, place, left, paths)


def _whole(found: KerasLayers, place: _Place, layers: list[Any], paths: Mapping[int, str]) -> KerasLayers:
    """Add the layers behind all inputs, of which the last one has the outputs."""
    for layer in layers:
        _add(found, place, layer, paths[id(layer)])
    if not place.outputs:
        raise ConfigurationError("its last layer must be a Dense without an activation, or with softmax")
    found.outputs = place.outputs
    return found


def _shape(first: Mapping[str, Any], in_time: bool) -> tuple[int, ...]:
    """Return the shape of an observation, or of an entry of it."""
    shape = first["config"]["batch_shape"][1:]
    if in_time:
        if len(shape) != 2:
            raise ConfigurationError(f"its input has the shape {shape!s:.60}; with memory it must be steps of numbers")
        shape = shape[1:]  # of a step
    if not shape or not all(type(side) is int and 0 < side < 1 << 16 for side in shape):
        raise ConfigurationError(f"its input has the shape {shape!s:.60}; all of its sides must be known")
    return tuple(shape)


def _paths(layers: list[Any]) -> dict[int, str]:
    """Return where the arrays of each layer are in the HDF5 file, by its id."""
    found, counts = dict[int, str](), dict[str, int]()
    for layer in layers:
        found[id(layer)] = f"layers/{numbered(snake_case(layer['class_name']), counts)}"
    return found


def _before(layer: Mapping[str, Any]) -> list[str]:
    """Return the names of the layers whose outputs a layer takes."""
    if len(nodes := layer["inbound_nodes"]) > 1:
        raise ConfigurationError(f"the layer {_own(layer)} is used {len(nodes)} times: only chains are known")
    if given := [key for node in nodes for key, value in node["kwargs"].items() if value not in (None, False)]:
        raise ConfigurationError(f"the layer {_own(layer)} is called with {given[0]!s:.40}; only inputs are known")
    tensors = nodes[0]["args"][0] if nodes else []
    tensors = tensors if isinstance(tensors, list) else [tensors]
    return [tensor["config"]["keras_history"][0] for tensor in tensors]


def _check_chain(before: Mapping[str, Any], layers: list[Any]) -> None:
    for layer in layers:
        if _before(layer) != [before["config"]["name"]]:
            raise ConfigurationError(f"the layer {_own(layer)} does not follow {_own(before)}: only chains are known")
        before = layer


@dataclass
class _Place:
    """Where the chain has come to."""

    image: bool  # it has rows and columns
    flat: bool
    in_time: bool  # it has an output for every step
    rows_flattened: bool = False  # without a Dense since
    outputs: int = 0  # of a Dense that would be the last layer
    softmax: bool = False  # behind it


def _add(found: KerasLayers, place: _Place, layer: Mapping[str, Any], path: str) -> None:
    """Add a layer; ConfigurationError where our kernels do not compute it, or not there."""
    kind, config, name = layer["class_name"], layer["config"], _own(layer)
    if layer.get("module") != "keras.layers" or layer.get("registered_name") not in (None, kind):
        raise ConfigurationError(f"the layer {name} is a {kind!s:.40} of its own code, which is not run")
    for key, values in ALIKE.get(kind, {}).items():
        if key in config and config[key] not in values:
            raise ConfigurationError(f"the layer {name} has {key} = {config[key]!s:.40}; only {values[0]} is known")
    policy = config.get("dtype", "float32")
    if (policy["config"]["name"] if isinstance(policy, dict) else policy) != "float32":
        raise ConfigurationError(f"the layer {name} does not compute in float32")
    own = {"ReLU": "relu", "GRU": "linear", "LSTM": "linear"}
    activation = own.get(kind, config.get("activation", "linear"))
    if kind in DOES_NOTHING or (kind, activation) == ("Activation", "linear"):
        return
    if place.softmax:
        raise ConfigurationError(f"the layer {name} follows a softmax, which is known in the last layer alone")
    place.softmax = activation == "softmax"
    if place.outputs and (kind, activation) != ("Activation", "softmax"):
        found.hidden.append(f"dense {place.outputs}")  # another layer follows it
        place.outputs = 0
    if kind == "Dense" and place.flat:
        place.outputs, place.rows_flattened = parse(f"dense {config['units']}").numbers[0], False
        if activation not in ("linear", "softmax"):
            found.hidden.append(f"dense {place.outputs}")
            place.outputs = 0
    elif kind in RECURRENT and place.in_time:
        found.hidden.append(f"{kind.lower()} {config['units']}")
        place.in_time, place.rows_flattened = config["return_sequences"], False
    elif kind == "Conv2D" and place.image:
        found.hidden.append(f"conv {config['filters']} {_side(config, 'kernel_size', name)} "
                            f"{_side(config, 'strides', name)} {config['padding']}")  # fmt: skip
    elif kind in POOLS and place.image:
        size, step = _side(config, "pool_size", name), _side(config, "strides", name)
        found.hidden.append(f"{POOLS[kind]} {size} {step} {config['padding']}")
    elif kind == "LayerNormalization" and (place.image or place.flat) and not place.rows_flattened:
        if config["axis"] not in (-1, [-1], [3 if place.image else 2 if place.in_time else 1]):
            raise ConfigurationError(f"the layer {name} normalises the axes {config['axis']!s:.40}, not the last one")
        found.hidden.append("norm")
    elif kind == "Flatten" and not place.in_time:
        place.rows_flattened |= place.image and prod(found.shape[:2]) > 1
        place.image, place.flat = False, True
    elif kind not in ("Activation", "ReLU"):
        known = kind in KNOWN.split(", ")
        what = f"a {kind} at a place where it is not known" if known else f"a {kind!s:.40}; known are {KNOWN}"
        raise ConfigurationError(f"the layer {name} is {what}")
    if activation in ("relu", "tanh"):
        found.hidden.append(activation)
    elif activation != "linear" and not (activation == "softmax" and place.outputs):
        raise ConfigurationError(f"the layer {name} has the activation {activation!s:.40}; known are relu and tanh")
    if kind in RECURRENT:
        cell = f"{path}/cell/vars"
        found.arrays += [(f"{cell}/0", 0.0), (f"{cell}/1", 0.0), (f"{cell}/2" if config["use_bias"] else "", 0.0)]
    elif kind in ("Dense", "Conv2D"):
        found.arrays += [(f"{path}/vars/0", 0.0), (f"{path}/vars/1" if config["use_bias"] else "", 0.0)]
    elif kind == "LayerNormalization":
        gamma, beta = config["scale"], config["center"]
        found.arrays += [(f"{path}/vars/0" if gamma else "", 1.0), (f"{path}/vars/{int(gamma)}" if beta else "", 0.0)]


def _own(layer: Mapping[str, Any]) -> str:
    """Return the name of a layer, for a message."""
    return f"{layer['config'].get('name', layer['class_name'])!s:.40}"


def _side(config: Mapping[str, Any], key: str, name: str) -> int:
    """Return the side of a square."""
    sides = config[key] if config[key] is not None else config["pool_size"]
    one, *others = sides if isinstance(sides, list) else [sides]
    if any(other != one for other in others):
        raise ConfigurationError(f"the layer {name} has {key} = {sides!s:.40}; only squares are known")
    return int(one)
