"""A network as a description and one flat float32 vector, in the order of Keras's `get_weights()`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from math import prod
from typing import Annotated, Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import AfterValidator, Field

from evo.environment import Environment
from evo.errors import ConfigurationError
from evo.networks.chain import Branch, Conv, Dense, EntryLayers, Flow, Lines, branches_of, chain_layers, fitted
from evo.networks.layer import GATES, WINDOWED, Layer, LayerSpec, order_mistake, parse
from evo.options import Section, added

Inference = Literal["auto", "lanes", "tensorflow"]

# What `preset = "seed"` expands to: the network of the snake-rl project that this one succeeds.
PRESETS = {"seed": {"conv": [[100, 4, 1], [200, 3, 1]], "dense": [200], "padding": "valid"}}

EPSILON = 1e-3  # added to the variance by layer normalisation, as in Keras
UNUSED: dict[str, object] = {  # values of the options that `layers` replaces
    "kind": "cnn", "preset": "", "embed": "none", "codes": 0, "conv": [], "dense": [], "norm": "none",
    "activation": "relu", "memory": "",
}  # fmt: skip
OF_ENTRIES = ("preset", "embed", "codes", "conv")  # options that each entry has for itself, where there are inputs


def checked_memory(text: str) -> str:
    """Return the text; ValueError where it is not empty, and no recurrent layer."""
    if text and (":" not in text or parse(text.replace(":", " ", 1)).kind not in GATES):
        raise ValueError(f'"{text[:60]}" is not of the form "gru:UNITS" or "lstm:UNITS"')
    return text


class Options(Section):
    """The [policy] section: the layers of the network that plays."""

    kind: Literal["cnn", "mlp", "linear"] = Field(
        "cnn", description="convolutions and dense layers, dense layers only, or the output layer only"
    )
    preset: Literal["", "seed"] = Field(
        "", description="a named architecture that sets conv, dense and padding; empty = none"
    )
    embed: Literal["none", "one_hot"] = added(
        "none",
        description="one_hot: each plane of codes 0, 1, 2, ... becomes one plane per code",
    )
    codes: int = added(
        0,
        ge=0,
        le=256,
        description="number of codes, if embed = one_hot; 0 = as many as the environment has",
    )
    conv: Conv = Field(
        [[8, 3, 2], [8, 3, 2]], max_length=16, description="filters, kernel size, stride of each convolution"
    )
    dense: Dense = Field([16], max_length=16, description="units of each hidden dense layer")
    padding: Literal["same", "valid"] = Field("same", description="padding of the convolutions")
    norm: Literal["none", "layer"] = Field("none", description="normalisation of hidden layers, before the activation")
    activation: Literal["relu", "tanh"] = added("relu", description="activation of hidden layers")
    memory: Annotated[str, AfterValidator(checked_memory)] = added(
        "", description='a recurrent layer after the last hidden one, "gru:UNITS" or "lstm:UNITS"; empty = none'
    )
    output: Literal["", "tanh"] = added(
        "",
        description="activation of the outputs; SAC and TD3 set tanh: continuous actions from -1 to 1; empty = none",
    )
    layers: Lines = added(
        [],
        max_length=64,
        description='hidden layers in any order, as in ["one_hot", "conv 16 3 1", "norm", "relu", "max_pool 2 2", '
        '"dense 64", "tanh"], in place of the options above; [] = none',
    )
    inputs: dict[str, Branch] = added(
        {},
        max_length=64,
        description="layers for each entry of a Dict or Tuple, as in {image = {conv = [[16, 3, 1]]}, vector = {}}; "
        "the options above set the layers after them; {} = none",
    )
    inference: Inference = Field(
        "auto", description="engine of the forward pass; only lanes gives the same bits on every machine; auto = lanes"
    )

    def _check(self) -> None:
        set_here = self.model_fields_set
        if self.inputs:
            self._check_inputs(set_here)
        if self.layers:
            for name, unused in UNUSED.items():
                if name in set_here and getattr(self, name) != unused:
                    raise ValueError(f"{name}: leave it out, since layers lists all hidden layers")
            specs = [parse(text) for text in self.layers]
            if mistake := order_mistake(specs):
                raise ValueError(f"layers: {mistake}")
            if self.player != "lanes" and (alone := next((one for one in specs if one.kind in ("tree", *GATES)), None)):
                raise ValueError(f'inference: "{alone}" is played by "lanes" alone, not by "{self.inference}"')
            return
        if self.memory and self.player != "lanes":
            raise ValueError(f'inference: memory is played by "lanes" alone, not by "{self.inference}"')
        if self.preset and any(
            name in set_here and getattr(self, name) != value for name, value in PRESETS[self.preset].items()
        ):
            raise ValueError("preset: leave out conv, dense and padding, which the preset sets")
        if self.kind == "cnn" and not self.preset and not self.conv and not self.inputs:
            raise ValueError('conv: empty; use kind = "mlp" for dense layers only')
        if self.codes and self.embed == "none":
            raise ValueError('codes: only embed = "one_hot" has codes')

    def _check_inputs(self, set_here: set[str]) -> None:
        """Raise ValueError where options contradict the layers of entries."""
        for name in OF_ENTRIES:
            if name in set_here and getattr(self, name) != UNUSED[name]:
                raise ValueError(f"{name}: is for an entry, as in inputs = {{image = {{conv = [[16, 3, 1]]}}}}")
        if "kind" in set_here and self.kind == "cnn" and not self.layers:
            raise ValueError('kind: the layers behind inputs are dense; use "mlp" or "linear", or leave it out')
        if self.layers and parse(self.layers[0]).kind == "one_hot":
            raise ValueError(f'layers: "{self.layers[0]}" is for an entry of inputs, which has codes')

    @property
    def has_codes(self) -> bool:
        """Return whether the network begins with one-hot planes of codes."""
        return self.embed != "none" or (bool(self.layers) and parse(self.layers[0]).kind == "one_hot")

    @property
    def short_name(self) -> str:
        """Return the kind of network, in two words at most."""
        if not self.layers:
            return "network" if self.inputs else self.kind
        return "decision tree" if [parse(text).kind for text in self.layers] == ["tree"] else "network"

    @property
    def player(self) -> Literal["lanes", "tensorflow"]:
        """Return the engine of the forward pass."""
        return "lanes" if self.inference == "auto" else self.inference

    @property
    def unused(self) -> tuple[str, ...]:
        """Return the options that have no effect on this kind of network."""
        if self.layers or self.inputs or self.kind == "cnn":
            return ()
        return ("conv", "padding") if self.kind == "mlp" else ("conv", "padding", "dense", "norm", "activation")

    def resolved(self, codes: int = 0, entries: Mapping[str, tuple[int, ...]] | None = None) -> Options:
        """Return the options with the preset expanded, `inference` decided, and unused options at their defaults.

        `codes` is the number that the environment declares, `entries` are the shapes of its entries; None: they are
        known. ConfigurationError where fewer codes or other entries are configured.
        """
        inputs = self.inputs if entries is None else fitted(self.inputs, entries)
        inputs = {name: one.model_copy(update=self._lines_of(one)) for name, one in inputs.items()}
        if self.layers:
            specs = [self._completed(parse(text), codes) for text in self.layers]
            layers = {**UNUSED, "layers": list(map(str, specs)), "inputs": inputs}
            return Options.model_construct(inference=self.player, output=self.output, **layers)  # type: ignore[arg-type]
        kind = "mlp" if inputs and self.kind == "cnn" else self.kind
        plain, own = kind == "linear", {"conv": self.conv, "dense": self.dense, "padding": self.padding}
        layers = {**(PRESETS[self.preset] if self.preset else own), "inputs": inputs}
        if kind != "cnn":
            layers["conv"] = []
        if plain:
            layers["dense"] = []
        if self.embed != "none":
            layers |= {"embed": self.embed, "codes": _codes("codes", self.codes, codes)}
        return Options.model_construct(
            kind=kind,
            preset="",
            norm="none" if plain else self.norm,
            activation="relu" if plain else self.activation,
            memory=self.memory,
            output=self.output,
            inference=self.player,
            **layers,  # type: ignore[arg-type]
        )

    def _completed(self, layer: LayerSpec, codes: int) -> LayerSpec:
        """Return a layer with its padding, and with its codes if the environment says how many there are."""
        if layer.kind in WINDOWED:
            return replace(layer, padding=layer.padding or self.padding)
        if layer.kind == "one_hot" and (known := _codes("layers", sum(layer.numbers), codes)):
            return replace(layer, numbers=(known,))
        return layer

    def _lines_of(self, branch: Branch) -> dict[str, list[str]]:
        """Return the layers of an entry as lines alone."""
        alone = self.model_copy(
            update={"conv": branch.conv, "dense": branch.dense, "layers": branch.layers, "memory": ""}
        )
        return {"conv": [], "dense": [], "layers": [str(self._completed(spec, 0)) for spec in alone.hidden()]}

    def hidden(self) -> list[LayerSpec]:
        """Return the hidden layers in order, of options that are resolved; those of inputs are not among them."""
        if self.layers:
            return [parse(text) for text in self.layers]
        weighted = [LayerSpec("conv", tuple(numbers), self.padding) for numbers in self.conv]
        weighted += [LayerSpec("dense", (units,)) for units in self.dense]
        after = ([LayerSpec("norm")] if self.norm == "layer" else []) + [LayerSpec(self.activation)]
        embedded = [] if self.embed == "none" else [LayerSpec(self.embed, (self.codes,) if self.codes else ())]
        recurrent = [parse(self.memory.replace(":", " "))] if self.memory else []
        return embedded + [layer for one in weighted for layer in (one, *after)] + recurrent


def _codes(name: str, asked: int, known: int) -> int:
    """Return the number of codes: the configured one, or else the environment's."""
    if 0 < asked < known:
        raise ConfigurationError(f"policy.{name}: {asked} codes, but the observation has {known}")
    return asked or known


@dataclass(frozen=True)
class Network:
    """A network for one observation shape: layers over one flat float32 vector of `size` weights.

    Its outputs are one score per action, followed by those of other heads, such as a value.
    """

    options: Options
    shape: tuple[int, ...]
    actions: int
    layers: tuple[Layer, ...]
    # Entries of the observation, whose layers come first; the next one sees them all.
    parts: tuple[EntryLayers, ...] = ()

    @classmethod
    def build(cls, options: Options, shape: tuple[int, ...], actions: int, extra: int = 0) -> Network:
        """Return the network for observations of `shape`, with `extra` outputs behind the scores of the actions.

        Raises ConfigurationError where the layers do not fit the observation.
        """
        options = options.resolved()
        first, parts, seen = branches_of(options.inputs, shape)
        specs = [*options.hidden(), LayerSpec("dense", (actions + extra,))]
        option = "layers" if options.layers else "conv"
        *layers, last = chain_layers(specs, seen, option, sum(layer.size for layer in first))
        return cls(options, tuple(shape), actions, (*first, *layers, replace(last, activation=options.output)), parts)

    @classmethod
    def of(cls, options: Options, environment: Environment, extra: int = 0) -> Network:
        """Return the network for an environment, or the vector of a problem; raises as `build`."""
        if environment.problem is None:
            return cls.build(options, environment.shape, environment.actions, extra)
        vector = Layer("vector", 1, 1, 1, environment.actions, 1, 1, 0, 0, 1, 1, 0)
        return cls(options.resolved(), environment.shape, environment.actions, (vector,))

    @property
    def joins(self) -> int:
        """Return the number of the layer that sees the outputs of all entries; 0: there are no entries."""
        return self.parts[-1].end if self.parts else 0

    def flow(self, number: int) -> Flow:
        """Return where the inputs of a layer come from, and where its outputs go."""
        into = 0
        for part in self.parts:
            if number < part.end:
                last = number + 1 == part.end
                observed = part.begin if number == part.first else -1
                return Flow(observed, self.joins if last else number + 1, into if last else 0)
            into += self.layers[part.end - 1].outputs
        return Flow(-1 if number else 0, number + 1, 0)

    @property
    def outputs(self) -> int:
        """Return the number of outputs of all heads."""
        return self.layers[-1].filters

    @cached_property
    def size(self) -> int:
        """Return the number of weights."""
        return sum(layer.size for layer in self.layers)

    @cached_property
    def fresh_scale(self) -> NDArray[np.float32]:
        """Return what multiplies noise in fresh weights: sqrt(2 / fan-in) for kernels, 0 for biases, else 1.  # [P]"""
        scale = np.zeros(self.size, np.float32)
        for layer in self.layers:
            start = layer.offset
            for name, shape in layer.arrays.items():
                part = scale[start : (start := start + prod(shape))]
                if name in ("kernel", "recurrent_kernel"):
                    part[:] = np.sqrt(np.float32(2) / np.float32(prod(shape[:-1])))
                elif name not in ("bias", "gamma", "beta"):  # of a tree: any input, and thresholds; or of a vector
                    part[:] = layer.channels if name == "inputs" else 1
        return scale

    @property
    def flops(self) -> int:
        """Return the floating-point operations of one forward pass."""
        return sum(layer.flops for layer in self.layers)

    @property
    def memory(self) -> int:
        """Return the number of floats of the state that it carries from step to step; 0: it has none."""
        return sum(layer.memory for layer in self.layers)

    @property
    def differentiable(self) -> bool:
        """Return whether every layer has a gradient; trees and vectors have none, and no form in other libraries."""
        return not any(layer.kind in ("tree", "vector") for layer in self.layers)

    @property
    def short_name(self) -> str:
        """Return the kind of network, in two words at most."""
        return "vector" if self.layers[0].kind == "vector" else self.options.short_name

    @property
    def multiply_adds(self) -> int:
        """Return the multiply-adds of one forward pass: those of convolutions and dense layers."""
        return sum(layer.multiply_adds for layer in self.layers)

    def split(self, weights: NDArray[np.float32]) -> list[NDArray[np.float32]]:
        """Return the arrays of `weights` [P] in the order and shapes of Keras's `get_weights()`."""
        if weights.shape != (self.size,):
            raise ValueError(f"weights of shape {weights.shape} where the network has ({self.size},)")
        arrays = []
        for layer in self.layers:
            start = layer.offset
            for shape in layer.arrays.values():
                arrays.append(weights[start : (start := start + prod(shape))].reshape(shape))
        return arrays

    def names(self) -> list[str]:
        """Return a name for each array of `split`."""
        return [f"{i}_{layer.kind}_{part}" for i, layer in enumerate(self.layers) for part in layer.arrays]
