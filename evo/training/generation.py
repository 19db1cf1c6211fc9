"""The rounds of a generation: the algorithm requests, an evaluator plays, and candidates that end workers are named.

Such a candidate is poison. With `workers.on_poison = "worst"` it ranks worst instead of ending the run. That changes
what is computed, so it is in the generation's record, as `poisoned`, and by that in its hash.
"""

from __future__ import annotations

import re
import resource
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from inspect import GEN_CLOSED, getgeneratorstate
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from evo.config.experiment import Experiment
from evo.errors import ConfigurationError, OutOfMemoryError, PoisonError, first_line, notice
from evo.plugins import registry
from evo.records import (
    NOT_DETERMINISTIC,
    Algorithm,
    Arrays,
    Evaluator,
    Generation,
    Metrics,
    Played,
    Request,
    Result,
    Task,
)
from evo.store.store import Store
from evo.training.accounting import Account
from evo.training.validation import Validated
from evo.workers.hardware import memory

SHOWN = 4  # options that a shortage of memory names, at most
NO_SIZES = {"generations", "seed", "every", "block"}
NUMBER = re.compile(r"[-+]?\d[\d.,]*(e[-+]?\d+)?")

Publish = Callable[[NDArray[np.float32]], str]  # takes weights [S, P] to where players find them; returns their name


class AskTell:
    """An algorithm alone: `ask` for a request, play its tasks in any way, `tell` their results."""

    def __init__(self, algorithm: Algorithm | Validated) -> None:
        self.algorithm = algorithm
        self.generation = 0  # which is played, or comes next
        self._rounds: Generation | None = None
        self._request: Request | None = None

    def ask(self) -> Request:
        """Return the weights and tasks that the algorithm waits for, the same until `tell`.

        A new generation begins where one has ended. ConfigurationError as of `tell`.
        """
        if self._rounds is None:
            self._rounds, self._request = self.algorithm.generation(self.generation), None
        rounds = self._require_open(self._rounds)
        self._request = self._request or next(rounds)
        return self._request

    def tell(self, results: Sequence[Result]) -> Metrics | None:
        """Take the results of the tasks, in their order; return the metrics where the generation ends, else None.

        RuntimeError: nothing was asked for. ConfigurationError: an earlier `tell` was interrupted, or has failed, so
        that the algorithm is half changed.
        """
        if self._rounds is None:
            raise RuntimeError("nothing was asked for: call `ask` before `tell`")
        try:
            self._request = self._require_open(self._rounds).send(results)
        except StopIteration as end:
            metrics: Metrics = end.value
            self._rounds, self.generation = None, self.generation + 1
            return metrics
        return None

    def _require_open(self, rounds: Generation) -> Generation:
        if getgeneratorstate(rounds) == GEN_CLOSED:
            raise ConfigurationError(
                f"generation {self.generation} was ended half-way, by an interrupt or an error; restore a state of "
                "before it, or begin anew"
            )
        return rounds


def play_out(
    rounds: Generation, evaluator: Evaluator, publish: Publish, quarantine: Quarantine | None = None
) -> Metrics:
    """Publish and play what a generation asks for, until it ends.

    Returns its metrics, with where its time went (see `evo.training.accounting`). `quarantine` notes poisoned
    candidates and decides what a user reads about them.
    """
    account, published = Account(), ""
    request = next(rounds)
    while True:
        with account.publishing:
            before, (published, tasks) = published, addressed(request, publish, published)
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


def addressed(request: Request, publish: Publish, published: str = "") -> tuple[str, list[Task]]:
    """Return the name of the newest published weights (`published` before this request) and the tasks that use it."""
    if request.weights is not None:
        published = publish(request.weights)
    return published, [replace(task, weights=replace(task.weights, published=published)) for task in request.tasks]


class Quarantine:
    """Shows the notices of what was played, and keeps who is poisoned in the present generation."""

    def __init__(self, store: Store) -> None:
        self.fingerprint = ""  # of the arithmetic of the last round
        self._store = store
        self._generation, self._round = -1, 0  # rounds of the generation that are played
        self._poisoned: list[tuple[int, int]] = []  # round and candidate
        self._kinds = Counter[str]()  # notices without their numbers

    def admit(self, played: Played, tasks: Sequence[Task]) -> None:
        """Take in a round of the present generation; PoisonError where every candidate ends its workers."""
        self._begin()
        if played.fingerprint.startswith(NOT_DETERMINISTIC) and not self.fingerprint:
            notice("the environment is not deterministic under its seed: this run cannot be repeated or verified")
        self.fingerprint = played.fingerprint
        self._keep(played.poisoned, tasks)
        self._round += 1
        for text in self._counted(played.notices):
            notice(text)

    def stopped(self, poison: PoisonError, tasks: Sequence[Task]) -> PoisonError:
        """Return the error of a candidate that ends its workers: its name, and the commands to try."""
        self._begin()
        directory = str(self._store.directory)
        resume = registry.command("evo", "resume", directory, "--set", "workers.on_poison=worst")
        return PoisonError(
            f"{self._cause(poison, tasks)}; replay it alone with: {self._replay(_numbers(poison, tasks)[0])}; "
            f"or rank it worst and continue with: {resume}"
        )

    def record(self) -> Arrays:
        """Return the poisoned candidates of this generation for its record, if any."""
        if not self._poisoned:
            return {}
        return {"poisoned": np.array(sorted(self._poisoned), np.int32)}  # [N, 2] round and candidate

    def _counted(self, notices: Sequence[str]) -> list[str]:
        """Return the first notice of each kind, then the 10th, 100th and so on with its count; numbers may differ."""
        shown = []
        for text in notices:
            kind = NUMBER.sub("", text)
            self._kinds[kind] += 1
            count = self._kinds[kind]
            if str(count).rstrip("0") == "1":
                shown.append(text if count == 1 else f"{text} ({count:,} of this kind)")
        return shown

    def _begin(self) -> None:
        if self._store.next_generation != self._generation:
            self._generation, self._round, self._poisoned = self._store.next_generation, 0, []

    def _keep(self, poisoned: Sequence[PoisonError], tasks: Sequence[Task]) -> None:
        numbers = [number for poison in poisoned for number in _numbers(poison, tasks)]
        if len(numbers) == sum(len(task.weights) for task in tasks) > 1:
            where = f" in round {self._round}" if self._round else ""
            raise PoisonError(
                f"every candidate of generation {self._generation}{where} ends its workers, so none is named as the "
                f"cause; replay one alone with: {self._replay(0)}"
            )
        self._poisoned += [(self._round, number) for number in numbers]
        if numbers:
            ranks = f"it and {len(numbers) - 1} more rank" if len(numbers) > 1 else "it ranks"
            again = f"replay it alone with: {self._replay(numbers[0])}"
            notice(f"{self._cause(poisoned[0], tasks)}; {ranks} worst; {again}")

    def _cause(self, poison: PoisonError, tasks: Sequence[Task]) -> str:
        numbers = _numbers(poison, tasks)
        who = f"candidate {numbers[0]}" if len(numbers) == 1 else f"candidates {numbers[0]} to {numbers[-1]} together"
        where = "" if self._round == 0 else f", in round {self._round},"
        return f"{who} of generation {self._generation}{where} ended every worker; the last one {poison.why}"

    def _replay(self, number: int) -> str:
        where = ["--generation", str(self._generation), "--candidate", str(number)]
        if self._round:
            where += ["--round", str(self._round)]
        return registry.command("evo", "replay", str(self._store.directory), *where)


def champion_stopped(poison: PoisonError, directory: Path) -> PoisonError:
    """Return the error of a champion that cannot be measured, because it ends its workers."""
    return PoisonError(
        f"the champion ended every worker on test episodes; the last one {poison.why}; "
        f"repeat that with: {registry.command('evo', 'evaluate', str(directory))}"
    )


def _numbers(poison: PoisonError, tasks: Sequence[Task]) -> list[int]:
    """Return the numbers that the candidates have in their round: over all tasks, in order."""
    before = sum(len(task.weights) for task in tasks[: poison.task]) + poison.first
    return list(range(before, before + poison.count))


@contextmanager
def shortage_named(experiment: Experiment) -> Iterator[None]:
    """Turn a MemoryError into an OutOfMemoryError that names the options of whole numbers above their defaults."""
    try:
        yield
    except MemoryError as error:
        asked = f"; {first_line(error)}" if str(error) else ""
        large = _large_options(experiment)
        advice = (
            f"take less of {' or '.join(large)}" if large else "take a smaller network, or fewer episodes at a time"
        )
        raise OutOfMemoryError(f"out of memory{asked}{_available_memory_text()}; {advice}") from error


def _available_memory_text() -> str:
    """Return in words how much memory there is for this process, where the system says."""
    limit = resource.getrlimit(resource.RLIMIT_AS)[0]
    if limit != resource.RLIM_INFINITY:
        return f"; this process may have {limit / 1e9:.1f} GB"
    return f"; this machine has {most / 1e9:.1f} GB" if (most := memory()) else ""


def _large_options(experiment: Experiment) -> list[str]:
    """Return the options of whole numbers above their defaults, as in a file, those first that are above by most."""
    found = list[tuple[float, str]]()
    sections = {experiment.algorithm: experiment.options, "environment": experiment.environment}
    for section, options in {**sections, "validation": experiment.validation, "test": experiment.test}.items():
        for name, field in type(options).model_fields.items():
            value, usual = getattr(options, name), field.default
            if type(value) is type(usual) is int and value > usual and name not in NO_SIZES:
                found.append((value / max(usual, 1), f"{section}.{name} = {value}"))
    return [text for _, text in sorted(found, reverse=True)[:SHOWN]]
