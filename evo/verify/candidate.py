"""Replay one candidate of one generation alone, in a fresh process that it may crash."""

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


class TemporaryPublisher:
    """Publishes weights in a temporary folder."""

    def __init__(self, directory: Path) -> None:
        self.directory, self._numbers = directory, count()

    def publish(self, weights: NDArray[np.float32]) -> str:
        """Write weights [S, P] to a file and return its name."""
        name = f"weights-{next(self._numbers)}.h5"
        replace_file(self.directory / name, encode({"weights": weights}), durable=False)
        return name


def replay_candidate(directory: Path, generation: int, number: int, candidate: int) -> str:
    """Replay one candidate of round `number` of a generation; return a line that describes its result.

    Raises PoisonError where it ends its worker, ConfigurationError where there is no such candidate, and DataError
    where the checkpoint before the generation is not kept.
    """
    store = Store.read(directory)
    try:
        experiment = loading.load(directory / CONFIG, resolved=True)
    except ConfigurationError as error:
        raise DataError(str(error)) from error
    if generation > store.next_generation:
        raise ConfigurationError(f"--generation: must be 0 to {store.next_generation}")
    algorithm = make_algorithm(experiment, environment_of(experiment.environment))
    if generation:
        algorithm.restore(store.read_state(generation - 1), islice(store.records(), generation))
    with TemporaryDirectory(prefix="snake-evo-") as folder:
        publisher = TemporaryPublisher(Path(folder))
        tasks = _tasks_of_round(experiment, algorithm.generation(generation), number, publisher)
        task = _task_of_candidate(tasks, candidate)
        alone = processes.one_worker(experiment.workers)
        evaluator = evaluator_of(replace(experiment, workers=alone), publisher.directory, attempts=1)
        try:
            (result,) = evaluator.map([task]).results
        finally:
            evaluator.close()
    return _described(result)


def _tasks_of_round(
    experiment: Experiment, rounds: Generation, number: int, publisher: TemporaryPublisher
) -> list[Task]:
    """Return the tasks of round `number` of a generation, after playing the rounds before it."""
    published, tasks = addressed(next(rounds), publisher)
    if number:
        evaluator = evaluator_of(experiment, publisher.directory)
        try:
            for _ in range(number):
                published, tasks = addressed(rounds.send(evaluator.map(tasks).results), publisher, published)
        except StopIteration as end:
            raise ConfigurationError(f"--round: the generation has no round {number}") from end
        finally:
            evaluator.close()
    return tasks


def _task_of_candidate(tasks: Sequence[Task], candidate: int) -> Task:
    """Return a task of this candidate alone."""
    rest = candidate
    for task in tasks:
        source = task.weights
        if rest < len(source):
            return replace(task, weights=source.some(slice(rest, rest + 1)))
        rest -= len(source)
    raise ConfigurationError(f"--candidate: must be 0 to {candidate - rest - 1} in this round")


def _described(result: Result) -> str:
    returns = f"mean return {result.returns.mean() / 1000:.3f}" if result.finite.all() else "non-finite scores"
    return f"{returns} over {result.returns.size} episodes, {result.frames} frames; its worker survived"
