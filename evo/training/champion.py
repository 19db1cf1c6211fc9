"""The champion of a run: its test score, and the files that keep it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from evo.errors import DataError, PoisonError, counted, notice
from evo.files.hashing import first_hash
from evo.store.champion import WEIGHTS, Champion, read_champion
from evo.store.provenance import made_by
from evo.training import summary, testing
from evo.training.quarantine import champion_stopped

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from pathlib import Path

    from evo.config.experiment import Experiment
    from evo.environment import Environment
    from evo.networks.network import Network
    from evo.records import Evaluator
    from evo.store.manifest import Line
    from evo.store.store import Store
    from evo.training.validation import Validated

SHARED = ("algorithm", "seed", "environment", "policy")  # facts of a champion that the identity of its run has too
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
        self.score: testing.Score | None = None  # of the present champion
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


def network_layers(network: Network) -> list[tuple[str, tuple[int, ...]]]:
    """Return name and shape of every array of a network, in the order of its weights."""
    arrays = network.split(np.empty(network.size, np.float32))
    return list(zip(network.names(), [array.shape for array in arrays], strict=True))


def champion_of(directory: Path, network: Network, read: Callable[[Path], Champion] = read_champion) -> Champion:
    """Return the champion of a run; DataError where there is none yet, or it is of another network."""
    if not (directory / WEIGHTS).exists():
        raise DataError(f"{directory}: there is no champion yet")
    champion = read(directory)
    if list(champion.layers) != network_layers(network):
        raise DataError(f"{directory / WEIGHTS}: its layers are not those of the network in the run's configuration")
    return champion


def of_another_run(champion: Champion, identity: Mapping[str, Any], lines: Sequence[Line]) -> Iterator[str]:
    """Yield what shows that a champion is not of the run with this identity and these lines of the manifest."""
    about = champion.about
    for name in SHARED:
        if about.get(name) != identity.get(name):
            yield f"its {name} is not the run's"
    known = about.get("generations")
    if type(known) is not int or known < 1:
        yield "does not state its generation"
    elif known > len(lines):
        yield f"states {counted(known, 'generation')}, but the run has {len(lines)}"
    elif lines[known - 1].state_hash != about.get("state_hash"):
        yield f"its state hash is not that of generation {known - 1}"


def known_champion(store: Store, experiment: Experiment) -> summary.Champion | None:
    """Return the champion in its file, if that is of the newest generation and tested as is asked for.

    Where it is not, or cannot be read, it is tested and written again from the run's state.
    """
    if not (store.directory / WEIGHTS).exists():
        return None
    try:
        about = champion_of(store.directory, experiment.network()).about
    except DataError as error:
        notice(f"{error}; it is written again from the run's state")
        return None
    score = score_of_champion(about)
    if score is None or about.get("state_hash") != store.state_hash:
        return None
    if (score.episodes, score.block) != (experiment.test.episodes, experiment.test.block):
        return None
    if not isinstance(about.get("fitness"), int | float):
        return None
    return summary.Champion(about["fitness"], score)


def score_of_champion(about: Mapping[str, Any]) -> testing.Score | None:
    """Return the test score in a champion's file; None where it has another form."""
    try:
        score = testing.Score(**about["test"])
        intervals = [score.ci95, score.win_ci95 or (None, None)]
        bounds = [bound for low, high in intervals for bound in (low, high)]
    except (KeyError, TypeError, ValueError):
        return None
    numbers = [score.episodes, score.block, score.mean, score.median, score.max, score.mean_length]
    known = all(isinstance(number, int | float) for number in numbers)
    rest = [*bounds, score.win_rate, score.mean_return]
    return score if known and all(n is None or isinstance(n, int | float) for n in rest) else None
