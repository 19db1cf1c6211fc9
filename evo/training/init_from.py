"""What a run starts from: the champion that `run.init_from` names, fitted to this run's network.

A run keeps a copy of its champion's file, so that it can be taken up when the source has moved or gone on.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import prod
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from evo.errors import ConfigurationError
from evo.files.durable import read_file, replace_file, resources, sync_directory
from evo.files.layout import CHAMPION, LARGEST_CHAMPION, START
from evo.store.champion import Layers
from evo.store.sandbox import read_champion

if TYPE_CHECKING:
    from evo.config.experiment import Experiment
    from evo.networks.network import Network
    from evo.store.store import Store


SHOWN = 4  # differing arrays that a message names, at most

Arrays = Mapping[str, NDArray[Any]]
MEANING = {"actions": "its actions are", "observation": "it sees the observation"}  # of a network's outputs and inputs


@dataclass(frozen=True)
class Start:
    """A champion that becomes the first network of a run."""

    weights: NDArray[np.float32]  # [P] of this run's network
    fitness: float | None  # what its own run says that it was


def start_of(experiment: Experiment) -> Start | None:
    """Return what a run starts from, or None where it starts from nothing.

    ConfigurationError: the champion is of another network, chooses among other actions, or sees the environment in
    another way. DataError: it is none.
    """
    source = experiment.run.init_from
    if not source:
        return None
    champion = read_champion(Path(source))
    environment, here = champion.about.get("environment"), experiment.environment.model_dump()
    for name, what in MEANING.items():
        theirs, ours = environment.get(name) if isinstance(environment, dict) else None, here.get(name)
        if isinstance(theirs, str) and isinstance(ours, str) and theirs != ours:
            raise ConfigurationError(f"run.init_from: {source}: {what} {theirs[:20]!r}, and here {ours!r}")
    try:
        weights = fit(champion.weights, champion.layers, experiment.network())
    except ConfigurationError as error:
        raise ConfigurationError(f"run.init_from: {source}: {error}") from error
    if not np.isfinite(weights).all():
        raise ConfigurationError(f"run.init_from: {source}: its weights are not finite")
    fitness = champion.about.get("fitness")
    return Start(weights, float(fitness) if isinstance(fitness, int | float) else None)


def keep(experiment: Experiment, store: Store) -> None:
    """Copy the champion's file into the run directory, once; ConfigurationError where it is another one by now."""
    kept, source = store.directory / START, Path(experiment.run.init_from)
    if not experiment.run.init_from or kept.exists():
        return
    data = read_file(source / CHAMPION if source.is_dir() else source, most=LARGEST_CHAMPION)
    if hashlib.sha256(data).hexdigest() != store.identity["init_from"]:
        raise ConfigurationError(f"run.init_from: {source} has changed while it was read; start the run again")
    with resources("write", kept):
        replace_file(kept, data)
        sync_directory(store.directory)


def handed_over(experiment: Experiment, fitness: float) -> str:
    """Return in one line what the champion's fitness was in its own run, and what it is in this one."""
    start = start_of(experiment)
    before = "unknown" if start is None or start.fitness is None else f"{start.fitness:z.3f}"
    return f"starts from a champion of fitness {before} in its own run, {fitness:z.3f} here"


def fit(weights: NDArray[np.float32], source_layers: Layers, network: Network) -> NDArray[np.float32]:
    """Return weights [P] for `network`, taken from another network's flat vector and layers.

    Outputs that both have are kept, outputs of the source alone are dropped, and outputs of `network` alone are zero
    for every observation. Raises ConfigurationError, naming the arrays, where any other layer differs.
    """
    fitted = np.zeros(network.size, np.float32)
    target: Arrays = dict(zip(network.names(), network.split(fitted), strict=True))  # views
    source = _arrays(weights, source_layers)
    output = list(target)[-2:]
    differing = [
        f"{name} is {_shape(source, name)}, here {_shape(target, name)}"
        for name in dict.fromkeys([*target, *source])
        if _inputs(source, name, output) != _inputs(target, name, output)
    ]
    if differing:
        more = f"; and {len(differing) - SHOWN} more" if len(differing) > SHOWN else ""
        raise ConfigurationError(f"its layers are not those of this network: {'; '.join(differing[:SHOWN])}{more}")
    for name, array in target.items():
        kept = min(array.shape[-1], source[name].shape[-1])
        array[..., :kept] = source[name][..., :kept]
    return fitted


def _arrays(weights: NDArray[np.float32], layers: Layers) -> Arrays:
    arrays, at = {}, 0
    for name, shape in layers:
        arrays[name] = weights[at : at + prod(shape)].reshape(shape)
        at += prod(shape)
    return arrays


def _inputs(arrays: Arrays, name: str, output: Sequence[str]) -> tuple[int, ...] | None:
    """Return the dimensions that must agree: all, except the number of outputs of the output layer."""
    shape = arrays[name].shape if name in arrays else None
    return shape[:-1] if shape and name in output else shape


def _shape(arrays: Arrays, name: str) -> str:
    return "x".join(map(str, arrays[name].shape)) if name in arrays else "absent"
