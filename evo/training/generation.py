"""The rounds of a generation: the algorithm that asks, and the answers that it is sent."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

from evo.training.accounting import Account

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy as np
    from numpy.typing import NDArray

    from evo.config.experiment import Experiment
    from evo.environments.environment import Environment
    from evo.records import Algorithm, Evaluator, Generation, Keep, Metrics, Request, Result, Task
    from evo.store.published import Room
    from evo.training.validation import Validated


PART = 1 << 20  # bytes of weights that a worker rebuilds at once, or a row


class Publisher(Protocol):
    """What takes weights to where players find them."""

    def publish(self, weights: NDArray[np.float32]) -> str:
        """Return the name that a task calls them by.  # weights [S, P]"""
        ...


@runtime_checkable
class Roomy(Publisher, Protocol):
    """A publisher that has room for a matrix which others fill in: then it is published, and nobody has copied it."""

    def room(self, rows: int, size: int) -> Room:
        """Return where the rows of a matrix [rows, size] are to be written."""
        ...

    def filled(self, room: Room, digests: Sequence[bytes]) -> NDArray[np.float32]:
        """Return the matrix that is there now, not to be written into; its rows have these SHA-256."""
        ...


def make_algorithm(experiment: Experiment, environment: Environment) -> Validated:
    """Return the algorithm that [run] names, with what validates it.

    ConfigurationError, DataError: as `evo.training.init_from.start_of`.
    """
    from evo.plugins.options import Setup
    from evo.plugins.registry import find
    from evo.training.init_from import start_of
    from evo.training.validation import Validated

    start = start_of(experiment)
    setup = Setup(
        seed=experiment.run.seed,
        network=experiment.network(),
        environment=environment,
        candidates_per_task=_per_task(experiment, environment),
        learner=experiment.learner if experiment.learns else None,
        start=None if start is None else start.weights,
    )
    algorithm: Algorithm = find("algorithms", experiment.algorithm).make(experiment.options, setup)
    return Validated(algorithm, experiment.validation, experiment.run.seed, setup.start)


def _per_task(experiment: Experiment, environment: Environment) -> int:
    """Return how many candidates a task holds."""
    given, candidates = experiment.workers.candidates_per_task, experiment.options.candidates()
    usual = experiment.options.candidates_per_task(experiment.network())
    if given or candidates == 1 or experiment.policy.player != "tensorflow" or environment.game is None:
        return given or usual
    return experiment.workers.task_size(usual, candidates)


def play_out(rounds: Generation, evaluator: Evaluator, store: Publisher) -> Metrics:
    """Answer every request of a generation: publish its weights, play its tasks, send the results back.

    Returns its metrics, with where its time went (see `evo.training.accounting`).
    """
    from evo.records import Keep

    published, account = "", Account()
    asked = next(rounds)
    while True:
        answer: Any
        if isinstance(asked, Keep):
            answer = _kept(asked, published, evaluator, store, account)
        else:
            with account.publishing:
                before, (published, tasks) = published, addressed(asked, store, published)
            if asked.weights is not None and published != before:
                account.published(asked.weights)
            answer = account.play(evaluator, tasks)
        try:
            asked = rounds.send(answer)
        except StopIteration as end:
            return account.close(end.value)


def _kept(
    asked: Keep, published: str, evaluator: Evaluator, store: Publisher, account: Account
) -> NDArray[np.float32] | None:
    """Return a matrix that workers have written where they will read it, or None where they do not reach that."""
    from evo.records import Near, Rebuild

    if not (isinstance(store, Roomy) and isinstance(evaluator, Near) and evaluator.rebuilds):
        return None
    with account.publishing:
        room = store.room(len(asked.weights), asked.size)
    source, row = replace(asked.weights, published=published), 4 * asked.size
    parts = [slice(i, i + max(1, PART // row)) for i in range(0, len(source), max(1, PART // row))]
    tasks = [Rebuild(source.some(part), room.name, room.offset + part.start * row) for part in parts]
    digests = [digest for part in account.play(evaluator, tasks) for digest in part]
    with account.publishing:
        return store.filled(room, digests)


def next_request(rounds: Generation, results: Sequence[Result] | None = None) -> Request:
    """Send results, or nothing to begin with, and return the next request; what is to be kept is left to the rounds."""
    from evo.records import Keep

    asked = rounds.send(results)
    while isinstance(asked, Keep):
        asked = rounds.send(None)
    return asked


def addressed(request: Request, store: Publisher, published: str = "") -> tuple[str, list[Task]]:
    """Return what was published last, `published` before this request, and the tasks with that name in them."""
    if request.weights is not None:
        published = store.publish(request.weights)
    return published, [replace(task, weights=replace(task.weights, published=published)) for task in request.tasks]
