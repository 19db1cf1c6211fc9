"""A run while it trains: plays and commits generations, tests and writes the champion, and chooses what plays."""

from __future__ import annotations

import os
import time
from contextlib import AbstractContextManager, closing
from dataclasses import asdict, replace
from importlib.util import find_spec
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from evo.config.experiment import Experiment, evaluator_of
from evo.errors import DataError, EvoError, PoisonError, notice
from evo.files.arrays import first_hash
from evo.files.layout import CHAMPION, LEARNING_FINGERPRINT
from evo.process import ignored
from evo.randomness.streams import Purpose, episode_keys
from evo.records import Episodes, Evaluator, Metrics, Task, WeightSource
from evo.store.champion import ChampionScore, Score, network_layers, read_champion
from evo.store.metrics import finite
from evo.store.run_directory import keep_fingerprint, made_by
from evo.store.store import Store
from evo.training import testing
from evo.training.accounting import Stopwatch, ledger
from evo.training.beginning import make_algorithm
from evo.training.generation import Quarantine, champion_stopped, play_out, shortage_named
from evo.training.opponents import without_effect
from evo.training.validation import Validated
from evo.workers import hardware
from evo.workers.options import CANDIDATES_ON_GPU

NAMED_BY = ("parent", "mate", "key", "sigma")  # the arrays of a record that say how a candidate was made
EPISODES, ENOUGH = 32, 0.3  # of a candidate in a probe of devices; seconds of playing there


class Session(AbstractContextManager["Session"]):
    """The objects of a run while it trains; close it, or use it in a `with` statement."""

    def __init__(
        self, experiment: Experiment, store: Store, *, allow_drift: bool = False, forked: Validated | None = None
    ) -> None:
        """Build them; the algorithm is restored from the run directory, or `forked` from the state of another run."""
        if store.next_generation < experiment.generations:
            experiment = on_fastest(experiment, store.directory)
        self.experiment, self.store, self._allow_drift = experiment, store, allow_drift
        store.keep_every, self._generations = experiment.run.keep_every, experiment.generations
        network, self._process = experiment.network(), os.getpid()
        self._forward_pass, self._layers = network.multiply_adds, network_layers(network)
        self._evaluator: Evaluator | None = None
        self._learning: str | None = None  # the fingerprint of what computes updates
        self._algorithm = forked
        try:
            self.evaluator = self._evaluator = evaluator_of(experiment, store.directory)
            self.environment = experiment.make_environment()
            self._made = {  # what every champion of this run has
                "algorithm": experiment.algorithm,
                "seed": experiment.run.seed,
                "environment": store.identity["environment"],
                "policy": experiment.policy.model_dump(),
                "provenance": {
                    **made_by(),
                    "configuration": first_hash(store.identity),
                    "game": self.environment.sources,
                },
            }
            with shortage_named(experiment):
                self.algorithm = self._algorithm = forked or make_algorithm(experiment, self.environment)
                notice(*self.environment.notices, *self.algorithm.notices, *without_effect(experiment))
                if store.next_generation and forked is None:
                    self.algorithm.restore(store.load(), store.records())
        except BaseException:
            self.close()
            raise
        self.quarantine, self._committing = Quarantine(store), Stopwatch()
        self._reported: Metrics = {}
        self.score: Score | None = None  # of the present champion
        self.scores: NDArray[np.float64] | None = None  # of its test episodes

    @property
    def champion(self) -> ChampionScore | None:
        """Return the champion with its test score, if it has one; None before there is a champion."""
        return None if self.algorithm.best is None else ChampionScore(self.algorithm.fitness, self.score)

    @property
    def stopped(self) -> str:
        """Return a message that says which budget is spent; empty if none is."""
        if self.store.next_generation >= self._generations:
            return ""
        fitness = None if self.algorithm.best is None else self.algorithm.fitness
        return self.experiment.run.budget.reached(self.store.spent, fitness)

    @property
    def done(self) -> bool:
        """Return whether nothing is left to train."""
        return self.store.next_generation >= self._generations or bool(self.stopped)

    def commit(self, generation: int, metrics: Metrics) -> None:
        """Commit a generation that was played, and add what it took to its metrics.

        DataError: this machine computes other bits than the one that began the run.
        """
        if self.quarantine.fingerprint:
            keep_fingerprint(self.store.directory, self.quarantine.fingerprint, self._allow_drift)
        if self._learning is None:  # it takes a compilation, and stays the same while this process learns
            self._learning = self.algorithm.algorithm.fingerprint()
            keep_fingerprint(self.store.directory, self._learning, self._allow_drift, LEARNING_FINGERPRINT)
        metrics |= ledger(metrics, self._forward_pass, self.store.spent)
        metrics["seconds_committing"] = self._committing.take()  # of the commit before this one
        record = {**self.algorithm.record(), **self.quarantine.record()}
        with self._committing:
            self.store.commit(generation, self.algorithm.state(), record, metrics, best=self.algorithm.changed)

    def report(self, generation: int, metrics: Metrics) -> None:
        """Write the champion if it has changed, and test it if a test is due; the metrics then get the test score."""
        if self.done:
            metrics["validation"] = self._validate_last()
        due = self.experiment.test.due(generation) or self.done
        self.update_champion(test=due)
        if due:
            score = self.score
            metrics["test"] = score.mean if score else float("nan")
            metrics["test_return"] = score.mean_return if score and score.mean_return is not None else float("nan")
            self.store.log(generation, metrics)
        self._reported = {**metrics}  # whoever has the row may change its own

    def finish(self) -> None:
        """Test the champion that the run ends with, and make everything durable."""
        newest = self.store.next_generation - 1
        if newest >= 0 and self.score is None:  # the run was complete already when it was resumed
            lines = self.store.metrics()
            if lines and lines[-1].pop("generation") == newest:
                self.report(newest, lines[-1])
            else:  # a crash has lost the line
                self._validate_last()
        self.update_champion(test=True)
        self.store.flush()

    def leave(self) -> None:
        """Validate the champion of the newest generation, log that and write it, where a run is left early."""
        newest = self.store.next_generation - 1
        if os.getpid() != self._process or self.done:
            return
        if not self.algorithm.due(newest):
            self._reported["validation"] = self._validate_last()
            self.store.log(newest, self._reported)
        if self.algorithm.changed:
            self.score = self.scores = None
        self._write_champion()

    def _validate_last(self) -> float:
        """Validate the finalists of the newest generation, if that was not due; return the champion's mean return."""
        newest, algorithm = self.store.next_generation - 1, self.algorithm
        if not algorithm.due(newest):
            play_out(algorithm.last(newest), self.evaluator, self.store.publish, self.quarantine)
        return algorithm.fitness if algorithm.best is not None else float("nan")

    def update_champion(self, *, test: bool) -> None:
        """Write the champion if it has changed, or is due for a test; ResourceError: it ends its workers there."""
        algorithm, options = self.algorithm, self.experiment.test
        if algorithm.changed:
            self.score = self.scores = None
        if test and self.score is None and algorithm.best is not None:
            try:
                self.score, self.scores = testing.measure(
                    algorithm.best, self.store.publish, self.evaluator, self.environment, options.episodes,
                    block=options.block,
                )  # fmt: skip
            except PoisonError as poison:
                self._write_champion()
                raise champion_stopped(poison, self.store.directory) from poison
        if algorithm.changed or test:
            self._write_champion()

    def _write_champion(self) -> None:
        """Put the champion into the run directory, with where it came from and what it scores."""
        weights, store = self.algorithm.best, self.store
        if weights is None:
            return
        about = {
            **self._made,
            **self.algorithm.origin(),
            "lineage": self._lineage(),
            "generations": store.next_generation,
            "state_hash": store.state_hash,
            "stopped": self.stopped,
            "test": finite(asdict(self.score)) if self.score else None,
        }
        store.write_champion(weights, self._layers, about)

    def _lineage(self) -> dict[str, float]:
        """Return how the champion was made; its parent is a row of the population that the generation before left."""
        origin, store = self.algorithm.origin(), self.store
        if "candidate" not in origin:
            return {}
        generation, candidate = int(origin["generation"]), int(origin["candidate"])
        record = self.algorithm.record() if generation == store.next_generation - 1 else {}
        if not record:  # of an earlier generation, or of one before a resume
            record = store.read_record(generation)
        return {name: record[name][candidate].item() for name in NAMED_BY if name in record}

    def close(self) -> None:
        """End the worker and learner processes, which a forked process leaves alone."""
        if os.getpid() != self._process:
            return
        if self._evaluator is not None:
            self._evaluator.close()
        if self._algorithm is not None:
            self._algorithm.close()

    def __exit__(self, *_: object) -> None:
        with ignored():
            self.close()


def known_champion(store: Store, experiment: Experiment) -> ChampionScore | None:
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
    return ChampionScore(about["fitness"], score)


def on_fastest(experiment: Experiment, directory: Path) -> Experiment:
    """Return the experiment with workers on GPUs if it leaves the choice, and they play faster than all cores.

    Only where the extra `cuda` is installed, and of algorithms that play many candidates at once: for a segment of some
    environments a GPU is too large. Results are the same on both.
    """
    workers, cores = experiment.workers, hardware.cores()
    chosen = workers.backend != "processes" or workers.kind != "auto" or workers.count != "auto" or workers.on_gpu
    if chosen or experiment.inference != "lanes" or experiment.learns or find_spec("numba_cuda") is None:
        return experiment
    environment = experiment.make_environment()
    if environment.game is None or environment.players > 1 or not (gpus := len(hardware.visible())):
        return experiment
    most = min(experiment.options.candidates(), CANDIDATES_ON_GPU)
    on_gpus = replace(experiment, workers=workers.model_copy(update={"kind": "gpu"}))
    on_core = replace(experiment, workers=workers.model_copy(update={"kind": "cpu", "count": 1}))
    try:
        fast = frames_per_second(on_gpus, directory, gpus, min(16, most), most)
        slow = frames_per_second(on_core, directory, 1, 1, most) * cores
    except EvoError as error:
        notice(f"workers play on the CPU: {error}")
        return experiment
    best = "GPUs" if fast > slow else "the CPU"
    plural = "s play" if gpus > 1 else " plays"
    notice(
        f"workers play on {best}: {gpus} GPU{plural} {fast:,.0f} frames a second, {cores} cores about {slow:,.0f} (set "
        "workers.kind to choose without this probe)"
    )
    return on_gpus if fast > slow else experiment


def frames_per_second(experiment: Experiment, directory: Path, tasks: int, least: int, most: int) -> float:
    """Return how fast workers play tasks of fresh candidates, `least` at first, and more until that takes a while."""
    episodes, count = Episodes(episode_keys(0, Purpose.TRAINING, 0, EPISODES)), least
    with closing(evaluator_of(experiment, directory)) as evaluator:
        while True:
            nobody = np.full(count, -1, np.int32)
            keys, scales = np.arange(count, dtype=np.uint64), np.ones(count, np.float32)
            task = Task(WeightSource(nobody, nobody, keys, scales), episodes)
            began = time.perf_counter()
            played = evaluator.map([task] * tasks)
            took = time.perf_counter() - began
            if (count > least or least == most) and (took > ENOUGH or count == most):  # the first compiles
                return sum(result.frames for result in played.results) / took
            count = min(4 * count, most)
