"""Replay one candidate of one generation alone, in a fresh process that it may crash."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from evo.config import loading
from evo.config.experiment import Experiment, environment_of, evaluator_of
from evo.errors import ConfigurationError, DataError
from evo.evaluators import processes
from evo.records import Result, Task
from evo.store.run_directory import CONFIG
from evo.store.store import Store
from evo.training.finished import temporary
from evo.training.generation import addressed, make_algorithm

if TYPE_CHECKING:
    from evo.records import Generation
    from evo.store.published import Published
    from evo.training.validation import Validated


def replay_candidate(directory: Path, generation: int, number: int, candidate: int) -> str:
    """Replay one candidate of round `number` of a generation; return a line that describes its result.

    Where the checkpoint before the generation is not kept, the candidate's ancestors are rebuilt from the records.
    Raises PoisonError where it ends its worker, ConfigurationError where there is no such candidate, and DataError
    where neither a checkpoint nor records lead to it.
    """
    store = Store.read(directory)
    try:
        experiment = loading.load(directory / CONFIG, resolved=True)
    except ConfigurationError as error:
        raise DataError(str(error)) from error
    if generation > store.next_generation:
        raise ConfigurationError(f"--generation: must be 0 to {store.next_generation}")
    algorithm = make_algorithm(experiment, environment_of(experiment.environment))
    _restore(algorithm, store, generation)
    with temporary() as published:
        tasks = _tasks_of_round(experiment, algorithm.generation(generation), number, published)
        task = _task_of_candidate(tasks, candidate)
        alone = replace(experiment, workers=processes.one_worker(experiment.workers))
        with closing(evaluator_of(alone, published.directory, attempts=1)) as evaluator:
            (result,) = evaluator.map([task]).results
    return _described(result)


def _restore(algorithm: Validated, store: Store, generation: int) -> None:
    """Bring an algorithm to where a generation begins: from the newest checkpoint before it, then by the records."""
    first, missing = generation, None
    while first:
        try:
            algorithm.restore(store.read_state(first - 1), store.records()[:first])
            break
        except DataError as error:
            missing = missing or error
            first -= 1
    for number in range(first, generation):
        record = store.read_record(number)  # empty where a fork begins
        if not record or not algorithm.retrace(number, record):
            raise missing or DataError(f"{store.directory}: records do not lead to generation {generation}")


def _tasks_of_round(experiment: Experiment, rounds: Generation, number: int, published: Published) -> list[Task]:
    """Return the tasks of round `number` of a generation, after playing the rounds before it."""
    name, tasks = addressed(next(rounds), published)
    if number:
        with closing(evaluator_of(experiment, published.directory)) as evaluator:
            try:
                for _ in range(number):
                    name, tasks = addressed(rounds.send(evaluator.map(tasks).results), published, name)
            except StopIteration as end:
                raise ConfigurationError(f"--round: the generation has no round {number}") from end
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
