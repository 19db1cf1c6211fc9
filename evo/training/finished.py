"""A run as others look at it, without a lock: its experiment and its champion."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from numpy.typing import NDArray

from evo.config import loading
from evo.config.experiment import Experiment, evaluator_of
from evo.errors import ConfigurationError, DataError
from evo.files.arrays import encode
from evo.files.durable import replace_file
from evo.store import sandbox
from evo.store.run_directory import CONFIG
from evo.store.store import Store
from evo.training.champion import champion_of, network_layers

if TYPE_CHECKING:
    from evo.records import Evaluator
    from evo.store.champion import Champion


class Finished(NamedTuple):
    """What a run directory holds."""

    directory: Path
    experiment: Experiment
    champion: Champion


def look_at(directory: Path, flags: Mapping[str, object] | None = None) -> Finished:
    """Read a run directory, or a champion.h5 by itself; DataError where it is none, or has no champion of its network.

    `flags` are those of `loading.load`, and say how to play.
    """
    if directory.is_file():
        return _by_itself(directory, flags)
    store = Store.read(directory)
    try:
        loading.load(directory / CONFIG, resolved=True)
    except ConfigurationError as error:
        raise DataError(str(error)) from error
    experiment = loading.load(directory / CONFIG, (), flags, resolved=True)
    if experiment.policy.model_dump() != store.identity.get("policy"):
        raise DataError(f"{directory / CONFIG}: its [policy] is not the one that the run was begun with")
    return Finished(directory, experiment, champion_of(directory, experiment.network(), sandbox.read_champion))


def _by_itself(file: Path, flags: Mapping[str, object] | None) -> Finished:
    champion = sandbox.read_champion(file)
    try:
        loading.of_champion(file, champion.about)
    except ConfigurationError as error:
        raise DataError(str(error)) from error
    experiment = loading.of_champion(file, champion.about, flags)
    if list(champion.layers) != network_layers(experiment.network()):
        raise DataError(f"{file}: its layers are not those of the network that it describes")
    return Finished(file.parent, experiment, champion)


@contextmanager
def playing(experiment: Experiment, plugins: list[str]) -> Iterator[tuple[Evaluator, Callable[..., str]]]:
    """Yield an evaluator and a function that publishes weights for it, all of it gone afterwards."""
    with TemporaryDirectory(prefix="snake-evo-") as place:

        def publish(weights: NDArray[np.float32]) -> str:
            replace_file(Path(place) / "weights.h5", encode({"weights": weights}), durable=False)
            return "weights.h5"

        evaluator = evaluator_of(experiment, Path(place), plugins)
        try:
            yield evaluator, publish
        finally:
            evaluator.close()
