"""One candidate of one generation, played again and alone in a fresh process, whatever it does to that process."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import count, islice
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from evo.config import loading
from evo.config.experiment import Experiment, environment_of, evaluator_of
from evo.errors import ConfigurationError, DataError
from evo.evaluators import processes
from evo.files.arrays import encode
from evo.files.durable import replace_file
from evo.records import Result, Task
from evo.store.run_directory import CONFIG
from evo.store.store import Store
from evo.training.generation import addressed, make_algorithm

if TYPE_CHECKING:
    from evo.records import Generation


class Place:
    """Where a generation is published that is played again: a folder that is no run's."""

    def __init__(self, directory: Path) -> None:
        self.directory, self._numbers = directory, count()

    def publish(self, weights: NDArray[np.float32]) -> str:
        """Return the name that a task calls the weights by.  # [S, P]"""
        name = f"weights-{next(self._numbers)}.h5"
        replace_file(self.directory / name, encode({"weights": weights}), durable=False)
        return name


def play_again(directory: Path, generation: int, number: int, candidate: int, modules: Sequence[str]) -> str:
    """Play one candidate of round `number` of a generation; return what it did.

    PoisonError: it ends its worker. ConfigurationError: there is no such candidate. DataError: the generation's parents
    are kept no more.
    """
    store = Store.read(directory)
    try:
        experiment = loading.load(directory / CONFIG, resolved=True)
    except ConfigurationError as error:
        raise DataError(str(error)) from error
    if generation > store.next_generation:
        raise ConfigurationError(f"--generation: the run can play generations 0 to {store.next_generation}")
    algorithm = make_algorithm(experiment, environment_of(experiment.environment))
    if generation:
        algorithm.restore(store.read_state(generation - 1), islice(store.records(), generation))
    with TemporaryDirectory(prefix="snake-evo-") as folder:
        place = Place(Path(folder))
        tasks = _asked(experiment, algorithm.generation(generation), number, place, modules)
        task = _holding(tasks, candidate)
        alone = processes.one_worker(experiment.workers)
        evaluator = evaluator_of(replace(experiment, workers=alone), place.directory, modules, attempts=1)
        try:
            (result,) = evaluator.map([task]).results
        finally:
            evaluator.close()
    return _told(result)


def _asked(experiment: Experiment, rounds: Generation, number: int, place: Place, modules: Sequence[str]) -> list[Task]:
    """Return what a generation asks for in a round; earlier rounds are played as the run has played them."""
    published, tasks = addressed(next(rounds), place)
    if number:
        evaluator = evaluator_of(experiment, place.directory, modules)
        try:
            for _ in range(number):
                published, tasks = addressed(rounds.send(evaluator.map(tasks).results), place, published)
        except StopIteration as end:
            raise ConfigurationError(f"--round: that generation has no round {number}") from end
        finally:
            evaluator.close()
    return tasks


def _holding(tasks: Sequence[Task], candidate: int) -> Task:
    """Return the task of a candidate, without the others."""
    rest = candidate
    for task in tasks:
        source = task.weights
        if rest < len(source):
            return replace(task, weights=source.some(slice(rest, rest + 1)))
        rest -= len(source)
    raise ConfigurationError(f"--candidate: there are candidates 0 to {candidate - rest - 1} in that round")


def _told(result: Result) -> str:
    returns = f"mean return {result.returns.mean() / 1000:.3f}" if result.finite.all() else "scores that are not finite"
    return f"{returns} over {result.returns.size} episodes, {result.frames} steps; it ended no worker"
