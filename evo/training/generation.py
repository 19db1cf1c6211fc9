"""The rounds of a generation: the algorithm that asks, and the answers that it is sent."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Protocol

from evo.errors import PoisonError
from evo.training.accounting import Account

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy as np
    from numpy.typing import NDArray

    from evo.config.experiment import Experiment
    from evo.environment import Environment
    from evo.records import Algorithm, Evaluator, Generation, Metrics, Request, Result, Task
    from evo.training.quarantine import Quarantine
    from evo.training.validation import Validated


class Publisher(Protocol):
    """What takes weights to where players find them."""

    def publish(self, weights: NDArray[np.float32]) -> str:
        """Return the name that a task calls them by.  # weights [S, P]"""


def make_algorithm(experiment: Experiment, environment: Environment | None = None) -> Validated:
    """Return the algorithm that [run] names, with what validates it.

    ConfigurationError, DataError: as `evo.training.init_from.start_of`.
    """
    from evo.config.environments import curriculum_of, environment_of
    from evo.plugins.registry import find, loaded
    from evo.setup import Setup
    from evo.training.init_from import start_of
    from evo.training.validation import Validated
    from evo.training.wrapped_algorithm import CheckedAlgorithm, OnCurriculum
    from evo.workers.hardware import cores

    environment, start = environment or environment_of(experiment.environment), start_of(experiment)
    curriculum = curriculum_of(experiment.environment, environment)
    environment = curriculum.environment(0)
    setup = Setup(
        seed=experiment.run.seed,
        network=experiment.network(),
        environment=environment,
        candidates_per_task=experiment.workers.candidates_per_task
        or experiment.options.candidates_per_task(experiment.network().flops),
        learner=experiment.learner.with_default_threads(min(cores(), experiment.workers.processes))
        if experiment.learns
        else None,
        start=None if start is None else start.weights,
        curriculum=curriculum if curriculum.training else None,
    )
    module = find("algorithms", experiment.algorithm)
    algorithm: Algorithm = module.make(experiment.options, setup)
    if module.__name__ in loaded():
        algorithm = CheckedAlgorithm(algorithm, module.__name__)
    if setup.curriculum is not None:
        algorithm = OnCurriculum(algorithm, setup.curriculum)
    return Validated(algorithm, experiment.validation, experiment.run.seed, setup.start)


class AskTell:
    """An algorithm alone: `ask` for a request, play its tasks in any way, `tell` their results."""

    def __init__(self, algorithm: Algorithm | Validated) -> None:
        self.algorithm, self.generation = algorithm, 0
        self._rounds: Generation | None = None
        self._request: Request | None = None

    def ask(self) -> Request:
        """Return the weights and tasks that the algorithm waits for; a new generation begins where one has ended."""
        if self._rounds is None or self._request is None:
            self._rounds = self.algorithm.generation(self.generation)
            self._request = next(self._rounds)
        return self._request

    def tell(self, results: Sequence[Result]) -> Metrics | None:
        """Send the results of `ask`, in task order; return the metrics where the generation ends."""
        if self._rounds is None:
            raise RuntimeError("nothing was asked for: call `ask` before `tell`")
        try:
            self._request = self._rounds.send(results)
        except StopIteration as end:
            metrics: Metrics = end.value
            self._rounds, self.generation = None, self.generation + 1
            return metrics
        return None


def play_out(
    rounds: Generation, evaluator: Evaluator, publisher: Publisher, quarantine: Quarantine | None = None
) -> Metrics:
    """Publish and play what a generation asks for, until it ends.

    Returns its metrics, with where its time went (see `evo.training.accounting`). `quarantine` notes poisoned
    candidates and decides what a user reads about them.
    """
    account, published = Account(), ""
    request = next(rounds)
    while True:
        with account.publishing:
            before, (published, tasks) = published, addressed(request, publisher, published)
        account.published(request.weights if published != before else None)
        try:
            with account.playing:
                played = evaluator.map(tasks)
        except PoisonError as poison:
            raise poison if quarantine is None else quarantine.stopped(poison, tasks) from poison
        account.add(played.effort, played.results)
        if quarantine is not None:
            quarantine.admit(played, tasks)
        try:
            request = rounds.send(played.results)
        except StopIteration as end:
            return account.close(end.value)


def addressed(request: Request, publisher: Publisher, published: str = "") -> tuple[str, list[Task]]:
    """Return what was published last, `published` before this request, and the tasks with that name in them."""
    if request.weights is not None:
        published = publisher.publish(request.weights)
    return published, [replace(task, weights=replace(task.weights, published=published)) for task in request.tasks]
