"""Layers behind each other: of a whole observation, of one entry of it, or of what the entries' layers put out."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from math import prod
from typing import Annotated, NamedTuple, cast

from pydantic import AfterValidator, Field

from evo.errors import ConfigurationError, did_you_mean
from evo.networks.layer import GATES, SIDE, Kind, Layer, LayerSpec, checked, order_mistake, parse, windows
from evo.options import Section, added

LARGEST = (4096, SIDE, SIDE)  # numbers of a convolution: filters, kernel, stride
SHARED = ("tree", *GATES)  # layers that stand behind those of the entries alone


def checked_conv(layers: list[list[int]]) -> list[list[int]]:
    """Return the numbers of convolutions; ValueError names those that are not."""
    for layer in layers:
        if len(layer) != 3 or not all(1 <= value <= most for value, most in zip(layer, LARGEST, strict=True)):
            raise ValueError(f"{layer} is not [filters 1-4096, kernel 1-63, stride 1-63]")
    return layers


Conv = Annotated[list[list[int]], AfterValidator(checked_conv)]
Dense = list[Annotated[int, Field(ge=1, le=65536)]]
Lines = list[Annotated[str, AfterValidator(checked)]]
Shape = tuple[int, ...]


class Branch(Section):
    """The layers of one entry of an observation; padding, normalisation and activation are those of the policy."""

    conv: Conv = added([], max_length=16)
    dense: Dense = added([], max_length=16)
    layers: Lines = Field([], max_length=64)
    shape: list[Annotated[int, Field(ge=1)]] = Field([], max_length=3)  # as the environment says
    begin: int = Field(0, ge=0)  # the number of the observation with which the entry begins

    def _check(self) -> None:
        if self.layers and (self.conv or self.dense):
            raise ValueError("layers: leave out conv and dense, or this")
        specs = list(map(parse, self.layers))
        if mistake := order_mistake(specs):
            raise ValueError(f"layers: {mistake}")
        if shared := next((one for one in specs if one.kind in SHARED), None):
            raise ValueError(f'layers: "{shared}" stands behind the layers of all entries, in policy.layers')


class EntryLayers(NamedTuple):
    """An entry with layers of its own."""

    name: str
    shape: Shape
    begin: int  # in the flat observation
    first: int  # number of its first layer
    end: int  # and of the one behind its last


class Flow(NamedTuple):
    """Where a layer's inputs come from, and where its outputs go."""

    observed: int  # the number of the observation with which they begin; -1: they are outputs of layers
    following: int  # the layer that takes the outputs
    into: int  # the first of its inputs that they are


def fitted(inputs: Mapping[str, Branch], entries: Mapping[str, Shape]) -> dict[str, Branch]:
    """Return the branches in the order of the entries, with their shapes; ConfigurationError where names differ."""
    if not inputs:
        return {}
    if not entries:
        raise ConfigurationError("policy.inputs: only Dict and Tuple observations have entries; leave this option out")
    if unknown := next((name for name in inputs if name not in entries), None):
        known = did_you_mean(unknown, entries) or f"; there are {', '.join(entries)}"
        raise ConfigurationError(f'policy.inputs: the observation has no entry "{unknown}"{known}')
    if missing := next((name for name in entries if name not in inputs), None):
        raise ConfigurationError(
            f'policy.inputs: the entry "{missing}" ({sides(entries[missing])}) is missing; {{}} takes it as it is'
        )
    found, begin = {}, 0
    for name, shape in entries.items():
        branch = inputs[name]
        if branch.shape not in ([], list(shape)):
            raise ConfigurationError(
                f'policy.inputs: the entry "{name}" is of {sides(shape)} numbers, not of {sides(branch.shape)}'
            )
        found[name] = branch.model_copy(update={"shape": list(shape), "begin": begin})
        begin += prod(shape)
    return found


def sides(shape: Sequence[int]) -> str:
    """Return a shape in words, as 7 x 7 x 3."""
    return " x ".join(map(str, shape))


def branches_of(inputs: Mapping[str, Branch], shape: Shape) -> tuple[list[Layer], tuple[EntryLayers, ...], Shape]:
    """Return the layers of all entries, their parts, and the shape of their outputs side by side.

    ConfigurationError where the entries are not those of an observation of this shape.
    """
    if not inputs:
        return [], (), shape
    layers, parts, seen, size = list[Layer](), list[EntryLayers](), 0, 0
    for name, branch in sorted(inputs.items(), key=lambda item: item[1].begin):
        if branch.begin != seen or not branch.shape:
            raise ConfigurationError("policy.inputs: the shapes of its entries do not follow each other")
        own, offset = tuple(branch.shape), sum(layer.size for layer in layers)
        chain = chain_layers(map(parse, branch.layers), own, f'inputs: "{name}"', offset)
        chain = chain or [_identity(shape_of([], own), offset)]
        parts.append(EntryLayers(name, own, seen, len(layers), len(layers) + len(chain)))
        layers += chain
        seen, size = seen + prod(branch.shape), size + chain[-1].outputs
    if seen != prod(shape):
        raise ConfigurationError(
            f"policy.inputs: its entries have {seen} numbers, but the observation has {prod(shape)}"
        )
    return layers, tuple(parts), (size,)


def chain_layers(specs: Iterable[LayerSpec], shape: Shape, option: str, offset: int) -> list[Layer]:
    """Return layers behind an input of this shape, with their weights from `offset` on.

    ConfigurationError, which names the option, where they do not fit their inputs.
    """
    layers: list[Layer] = []
    for spec in specs:
        at = offset + sum(layer.size for layer in layers)
        if spec.kind not in ("norm", "relu", "tanh"):
            layers.append(_layer(option, spec, layers, shape, at))
            continue
        if not layers or layers[-1].activation or (spec.kind == "norm" and layers[-1].norm):
            layers.append(_identity(shape_of(layers, shape), at))  # a layer of its own
        change = {"norm": True} if spec.kind == "norm" else {"activation": spec.kind}
        layers[-1] = replace(layers[-1], **change)
    return layers


def shape_of(layers: list[Layer], shape: Shape) -> tuple[int, int, int]:
    """Return rows, columns and channels of the newest layer, or of the input before there is one."""
    if layers:
        return layers[-1].out_height, layers[-1].out_width, layers[-1].filters
    return (shape[0], shape[1], shape[2]) if len(shape) == 3 else (1, 1, prod(shape))


def _identity(sides: tuple[int, int, int], offset: int) -> Layer:
    height, width, channels = sides
    return Layer("identity", height, width, channels, channels, 1, 1, 0, 0, height, width, offset)


def _layer(option: str, spec: LayerSpec, layers: list[Layer], shape: Shape, offset: int) -> Layer:
    """Return the layer behind these; ConfigurationError where it does not fit what they put out."""
    height, width, channels = shape_of(layers, shape)
    kind = spec.kind
    if kind in ("dense", "tree", *GATES):
        outputs = 1 << spec.numbers[0] if kind == "tree" else spec.numbers[0]
        return Layer(cast(Kind, kind), 1, 1, height * width * channels, outputs, 1, 1, 0, 0, 1, 1, offset)
    if kind == "one_hot":
        if not spec.numbers:
            where = ("embed", "policy.codes = 4") if option == "conv" else (option, '"one_hot 4"')
            raise ConfigurationError(
                f"policy.{where[0]}: the environment does not say how many codes its observations have; say it, as in "
                f"{where[1]}"
            )
        planes = channels * spec.numbers[0]
        return Layer("one_hot", height, width, channels, planes, 1, 1, 0, 0, height, width, offset)
    if len(shape) != 3:
        what, instead = ('kind: "cnn"', '; use "mlp"') if option == "conv" else (f'{option}: "{spec}"', "")
        raise ConfigurationError(f"policy.{what} needs an image, but the observation has shape {shape}{instead}")
    kernel, stride = spec.numbers[-2:]
    out_height, pad = windows(height, kernel, stride, spec.padding)
    out_width, pad_left = windows(width, kernel, stride, spec.padding)
    if not out_height or not out_width:
        what = "convolution" if kind == "conv" else "pool"
        raise ConfigurationError(
            f"policy.{option}: a {height} x {width} input is too small for a valid {kernel} x {kernel} {what} "
            f'(layer {len(layers) + 1}); use padding = "same" or a larger board'
        )
    filters = spec.numbers[0] if kind == "conv" else channels
    numbers = height, width, channels, filters, kernel, stride, pad, pad_left, out_height, out_width
    return Layer(cast(Kind, kind), *numbers, offset, padding=spec.padding)
