"""The champion of a run: its test score, and the files that keep it."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from evo.errors import DataError, PoisonError, notice
from evo.files.hashing import first_hash
from evo.files.layout import CHAMPION
from evo.store.champion import Score, network_layers, read_champion
from evo.store.provenance import made_by
from evo.training import summary, testing
from evo.training.quarantine import champion_stopped

if TYPE_CHECKING:
    from evo.config.experiment import Experiment
    from evo.environment import Environment
    from evo.records import Evaluator
    from evo.store.store import Store
    from evo.training.validation import Validated

NAMED_BY = ("parent", "mate", "key", "sigma")  # the arrays of a record that say how a candidate was made


class ChampionReport:
    """Tests the champion and writes it; nothing of the run depends on either."""

    def __init__(
        self,
        experiment: Experiment,
        environment: Environment,
        algorithm: Validated,
        evaluator: Evaluator,
        store: Store,
    ) -> None:
        self.score: Score | None = None  # of the present champion
        self.scores: NDArray[np.float64] | None = None  # of its test episodes
        self._experiment, self._network = experiment, experiment.network()
        self.environment, self.evaluator = environment, evaluator
        self._algorithm, self._store = algorithm, store

    @property
    def champion(self) -> summary.Champion | None:
        """Return the champion with its test score, if it has one; None before there is a champion."""
        return None if self._algorithm.best is None else summary.Champion(self._algorithm.fitness, self.score)

    def update(self, *, test: bool, stopped: str = "") -> None:
        """Write the champion if it has changed, or is due for a test; ResourceError: it ends its workers there."""
        if self._algorithm.changed:
            self.score = self.scores = None
        if test and self.score is None and self._algorithm.best is not None:
            try:
                self.score, self.scores = testing.measure(
                    self._algorithm.best,
                    self._store.publish,
                    self.evaluator,
                    self.environment,
                    self._experiment.test.episodes,
                    block=self._experiment.test.block,
                )
            except PoisonError as poison:
                self._write(stopped)
                raise champion_stopped(poison, self._store.directory) from poison
        if self._algorithm.changed or test:
            self._write(stopped)

    def _write(self, stopped: str) -> None:
        """Put the champion into the run directory, with where it came from and what it scores."""
        weights = self._algorithm.best
        if weights is None:
            return
        experiment = self._experiment
        about = {
            "algorithm": experiment.algorithm,
            "seed": experiment.run.seed,
            "environment": experiment.environment.model_dump(),
            "policy": experiment.policy.model_dump(),
            **self._algorithm.origin(),
            "lineage": self._lineage(),
            "provenance": {
                **made_by(),
                "configuration": first_hash(self._store.identity),
                "game": self.environment.sources,
            },
            "generations": self._store.next_generation,
            "state_hash": self._store.state_hash,
            "stopped": stopped,
            "test": summary.finite(asdict(self.score)) if self.score else None,
        }
        self._store.write_champion(weights, network_layers(self._network), about)

    def _lineage(self) -> dict[str, float]:
        """Return how the champion was made; its parent is a row of the population that the generation before left."""
        origin = self._algorithm.origin()
        if "candidate" not in origin:
            return {}
        generation, candidate = int(origin["generation"]), int(origin["candidate"])
        last = generation == self._store.next_generation - 1
        record = self._algorithm.record() if last else {}
        if not record:  # of an earlier generation, or of one before a resume
            if generation >= self._store.durable:
                self._store.flush()
            record = self._store.read_record(generation)
        return {name: record[name][candidate].item() for name in NAMED_BY if name in record}


def known_champion(store: Store, experiment: Experiment) -> summary.Champion | None:
    """Return the champion in its file, if that is of the newest generation and tested as is asked for.

    Where it is not, or cannot be read, it is tested and written again from the run's state.
    """
    if not (file := store.directory / CHAMPION).exists():
        return None
    try:
        champion = read_champion(file)
        if not champion.fits(experiment.network()):
            raise DataError(f"{file}: its layers are not those of the network in the run's configuration")
    except DataError as error:
        notice(f"{error}; it is written again from the run's state")
        return None
    about, score = champion.about, champion.score
    if score is None or about.get("state_hash") != store.state_hash:
        return None
    if (score.episodes, score.block) != (experiment.test.episodes, experiment.test.block):
        return None
    if not isinstance(about.get("fitness"), int | float):
        return None
    return summary.Champion(about["fitness"], score)
