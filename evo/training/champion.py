"""What a run is proud of: its champion, how it scores on sealed episodes, and the files that say so."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from evo.cli.terminal import summary
from evo.errors import DataError
from evo.store.champion import WEIGHTS, Champion, read_champion
from evo.training import testing

if TYPE_CHECKING:
    from pathlib import Path

    from evo.config.experiment import Experiment
    from evo.networks.network import Network
    from evo.records import Evaluator
    from evo.store.store import Store
    from evo.training.validation import Validated

NAMED_BY = ("parent", "mate", "key", "sigma")  # the arrays of a record that say how a candidate was made


class Crown:
    """The champion of one run. Reading a sealed score changes nothing of the run."""

    def __init__(
        self,
        experiment: Experiment,
        episode_metrics: tuple[str, ...],
        algorithm: Validated,
        evaluator: Evaluator,
        store: Store,
    ) -> None:
        self.heldout: summary.Heldout | None = None  # of the present champion, once it is measured
        self.scores: NDArray[np.float64] | None = None  # of its sealed episodes
        self.last_mean: float | None = None  # of whichever champion was measured last
        self.stopped = ""  # the budget that ended the run
        self._experiment, self._network, self._measures = experiment, experiment.network(), episode_metrics
        self._algorithm, self._evaluator, self._store = algorithm, evaluator, store
        self._born = self._birth()
        if self._born is not None and (store.directory / WEIGHTS).exists():
            heldout = _heldout(champion_of(store.directory, self._network).about)
            self.last_mean = heldout.mean if heldout else None

    @property
    def champion(self) -> summary.Champion | None:
        """Return what the summary says of the champion; None before one is crowned."""
        if self._algorithm.best is None:
            return None
        return summary.Champion(self._algorithm.fitness, self.heldout)

    def crowned(self) -> bool:
        """Return whether the champion is another than at the last call, whose sealed score is then unknown."""
        born = self._birth()
        changed, self._born = born != self._born, born
        if changed:
            self.heldout = self.scores = None
        return changed

    def measure(self) -> summary.Heldout | None:
        """Return the champion's sealed score, measured if it is not known; None before one is crowned."""
        weights = self._algorithm.best
        if weights is not None and self.heldout is None:
            episodes = self._experiment.test.episodes
            self.heldout, self.scores = testing.measure(
                weights, self._store.publish, self._evaluator, self._measures, episodes
            )
            self.last_mean = self.heldout.mean
        return self.heldout

    def write(self) -> None:
        """Put the champion into the run directory, with where it came from and what it scores."""
        weights = self._algorithm.best
        if weights is None:
            return
        layers = network_layers(self._network)
        experiment = self._experiment
        about = {
            "algorithm": experiment.algorithm,
            "seed": experiment.run.seed,
            "environment": experiment.environment.model_dump(),
            "policy": experiment.policy.model_dump(),
            **self._algorithm.origin(),
            "lineage": self._lineage(),
            "generations": self._store.next_generation,
            "state_hash": self._store.state_hash,
            "stopped": self.stopped,
            "heldout": summary.finite(asdict(self.heldout)) if self.heldout else None,
        }
        self._store.write_champion(weights, layers, about)

    def _birth(self) -> Mapping[str, float] | None:
        return None if self._algorithm.best is None else dict(self._algorithm.origin())

    def _lineage(self) -> dict[str, float]:
        """Return how the champion was made; its parent is a row of the population that the generation before left."""
        birth = self._algorithm.origin()
        if "candidate" not in birth:
            return {}
        generation, candidate = int(birth["generation"]), int(birth["candidate"])
        last = generation == self._store.next_generation - 1
        record = self._algorithm.record() if last else {}
        if not record:  # of an earlier generation, or of one before a resume
            if generation >= self._store.durable:
                self._store.flush()
            record = self._store.read_record(generation)
        return {name: record[name][candidate].item() for name in NAMED_BY if name in record}


def network_layers(network: Network) -> list[tuple[str, tuple[int, ...]]]:
    """Return name and shape of every array of a network, in the order of its weights."""
    arrays = network.split(np.empty(network.size, np.float32))
    return list(zip(network.names(), [array.shape for array in arrays], strict=True))


def champion_of(directory: Path, network: Network, read: Callable[[Path], Champion] = read_champion) -> Champion:
    """Return the champion of a run; DataError where there is none yet, or it is of another network."""
    if not (directory / WEIGHTS).exists():
        raise DataError(f"{directory}: no champion has been crowned yet")
    champion = read(directory)
    if list(champion.layers) != network_layers(network):
        raise DataError(f"{directory / WEIGHTS}: its layers are not those of the network in the run's configuration")
    return champion


def known_champion(store: Store, experiment: Experiment) -> summary.Champion | None:
    """Return what the champion's file says, if it is of the newest generation and measured as is asked for."""
    if not (store.directory / WEIGHTS).exists():
        return None
    about = champion_of(store.directory, experiment.network()).about
    heldout = _heldout(about)
    if heldout is None or about.get("state_hash") != store.state_hash:
        return None
    if heldout.episodes != experiment.test.episodes or not isinstance(about.get("fitness"), int | float):
        return None
    return summary.Champion(about["fitness"], heldout)


def _heldout(about: Mapping[str, Any]) -> summary.Heldout | None:
    """Return the sealed score that a champion's file speaks of; None where it has another form."""
    try:
        heldout = summary.Heldout(**about["heldout"])
        intervals = [heldout.ci95, heldout.win_ci95 or (None, None)]
        bounds = [bound for low, high in intervals for bound in (low, high)]
    except (KeyError, TypeError, ValueError):
        return None
    numbers = [heldout.episodes, heldout.mean, heldout.median, heldout.max, heldout.mean_length]
    unknown_or_numbers = [*bounds, heldout.win_rate]
    told = all(isinstance(number, int | float) for number in numbers)
    return heldout if told and all(n is None or isinstance(n, int | float) for n in unknown_or_numbers) else None
