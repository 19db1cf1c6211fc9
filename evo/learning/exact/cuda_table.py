"""The layers of a network as updates on a GPU read them, what GPUs do not learn, and golden examples."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from evo.errors import ConfigurationError
from evo.kernels.layout import AVERAGE_POOL, IDENTITY, MAX_POOL, ONE_HOT, WEIGHTED
from evo.learning.exact.learner import NUMBERS
from evo.learning.exact.plan import LAYER, Places, plan
from evo.learning.learner import ActionValueLoss, ActorLoss, PolicyLoss
from evo.networks.network import Network

KINDS = (WEIGHTED, ONE_HOT, MAX_POOL, AVERAGE_POOL, IDENTITY)
GOLDEN_SETTINGS = {"entropy_coefficient": 0.01, "value_coefficient": 0.5, "clip_range": 0.2, "value_clip_range": 0.2}
ALIGNED = np.dtype(LAYER.descr, align=True)  # read by words, not by bytes


def table_of(network: Network, examples: int) -> tuple[NDArray[np.void], int]:
    """Return the table of layers for a number of examples, as `evo.learning.exact.plan`, and the floats it points to.

    Rows have no padding, the outputs of a layer are the inputs of the next one, and one buffer of patches takes their
    gradients, too. ConfigurationError names layers that GPUs do not learn yet.
    """
    if network.memory:
        raise ConfigurationError('learner.device: networks with memory are not learned on GPUs yet; use "cpu"')
    table, places = plan(network).layers.astype(ALIGNED), Places()
    place, d_place = places.take(examples * int(np.prod(network.shape))), 0
    for layer, row in zip(network.layers, table, strict=True):
        if row["kind"] not in KINDS:
            raise ConfigurationError(f'learner.device: {layer.kind} layers are not learned on GPUs yet; use "cpu"')
        pixels, row["row"] = layer.out_height * layer.out_width, layer.filters
        row["input_row"], row["input_size"] = layer.width * layer.channels, layer.height * layer.width * layer.channels
        row["input"], row["d_input"], row["patch"] = place, d_place, layer.fan_in
        convolves = layer.weighted and layer.kind != "dense"
        row["patches"] = places.take(examples * pixels * layer.fan_in) if convolves else place
        place, d_place = (places.take(examples * pixels * layer.filters) for _ in range(2))
        row["output"], row["d_output"] = place, d_place
        if layer.norm:
            row["normal"] = places.take(examples * pixels * layer.filters)
            row["inverse"] = places.take(examples * pixels)
    return table, places.size


def refuse(network: Network, loss: PolicyLoss | ActorLoss | ActionValueLoss) -> None:
    """ConfigurationError names a loss, or a layer of the network, that GPUs do not learn yet."""
    if isinstance(loss, ActorLoss) or (loss.has_target and not getattr(loss, "bootstraps", False)):
        kind = type(loss).__name__
        raise ConfigurationError(f'learner.device: {kind} is not computed on GPUs yet; use "cpu"')
    table_of(network, 1)


def golden_examples(
    network: Network, loss: PolicyLoss | ActorLoss | ActionValueLoss, count: int
) -> tuple[dict[str, NDArray[Any]], NDArray[np.float32]]:
    """Return random examples for a loss, and weights."""
    draw, actions = np.random.default_rng(1), loss.actions
    gaussian = isinstance(loss, PolicyLoss) and loss.is_gaussian
    data = {name: draw.normal(size=count).astype(np.float32) for name in NUMBERS}
    chosen = draw.normal(size=(count, actions)) if gaussian else draw.integers(0, actions, count)
    data["actions"] = chosen.astype(np.float32 if gaussian else np.int32)
    for name in ("observations", "next_observations"):
        data[name] = draw.integers(0, 4, (count, *network.shape)).astype(np.float32)
    data["next_action_masks"] = np.ones((count, actions), np.bool_)
    return data, draw.normal(0, 0.1, network.size).astype(np.float32)
