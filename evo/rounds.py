"""The rounds of a generation: the algorithm that asks, and the answers that it is sent."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Protocol

from evo.accounting import Account

if TYPE_CHECKING:
    from collections.abc import Iterable

    import numpy as np
    from numpy.typing import NDArray

    from evo.configuration.experiment import Experiment
    from evo.records import Algorithm, Arrays, Evaluator, Metrics, Request, Rounds, Task


class Publisher(Protocol):
    """What takes weights to where players find them."""

    def publish(self, weights: NDArray[np.float32]) -> str:
        """Return the name that a task calls them by.  # weights [S, P]"""
        ...


def make_algorithm(experiment: Experiment, environment: object) -> Algorithm:
    """Return the algorithm that [run] names, with the options of its own section, and what it starts from.

    ConfigurationError, DataError: as `evo.starting.start_of`.
    """
    from evo.plugins import find
    from evo.starting import start_of

    module = find("algorithms", experiment.algorithm)
    per_task = _per_task(experiment, environment)
    how: dict[str, object] = {"learner": experiment.learner} if getattr(module, "LEARNS", False) else {}
    if start := start_of(experiment):
        how["start"] = start.weights
    algorithm: Algorithm = module.make(
        experiment.options, experiment.run.seed, experiment.network(), environment, per_task, **how
    )
    return algorithm


def _per_task(experiment: Experiment, environment: object) -> int:
    """Return how many candidates a task holds, 0: as many as the algorithm finds right for the network."""
    from evo.plugins import find

    given, population = experiment.workers.candidates_per_task, getattr(experiment.options, "population", 0)
    usual = getattr(find("algorithms", experiment.algorithm), "candidates_per_task", None)
    in_calls = experiment.policy.player == "tensorflow" and hasattr(environment, "rules")
    if given or not population or usual is None or not in_calls:
        return given
    from evo import devices

    return devices.candidates_per_task(experiment.workers.model_dump(), usual(experiment.network()), population)


def take_up(algorithm: Algorithm, state: Arrays, records: Iterable[Arrays]) -> None:
    """Give an algorithm its state back and, where it asks for them, the records of all generations up to there."""
    from evo.records import Recalling

    algorithm.restore(state)
    if isinstance(algorithm, Recalling):
        algorithm.recall(records)


def play_out(rounds: Rounds, evaluator: Evaluator, store: Publisher) -> Metrics:
    """Answer every request of a generation: publish its weights, play its tasks, send the results back.

    Returns its metrics, with where its time went (see `evo.accounting`).
    """
    published, account = "", Account()
    request = next(rounds)
    while True:
        with account.publishing:
            before, (published, tasks) = published, addressed(request, store, published)
        if request.weights is not None and published != before:
            account.published(request.weights)
        results = account.play(evaluator, tasks)
        try:
            request = rounds.send(results)
        except StopIteration as end:
            return account.close(end.value)


def addressed(request: Request, store: Publisher, published: str = "") -> tuple[str, list[Task]]:
    """Return what was published last, `published` before this request, and the tasks with that name in them."""
    if request.weights is not None:
        published = store.publish(request.weights)
    return published, [replace(task, weights=replace(task.weights, published=published)) for task in request.tasks]
