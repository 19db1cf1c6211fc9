"""The training loop: an algorithm asks for tasks, an evaluator plays them, and the store commits each generation."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from evo.errors import ConfigurationError
from evo.training.accounting import Stopwatch, ledger
from evo.training.generation import make_algorithm, play_out

if TYPE_CHECKING:
    from evo.config.experiment import Experiment
    from evo.records import Evaluator, Metrics
    from evo.store.store import Store
    from evo.training.summary import Champion
    from evo.training.validation import Validated


@dataclass(frozen=True)
class Row:
    """A committed generation."""

    generation: int  # from 0
    metrics: Metrics  # the line of metrics.jsonl
    champion: Champion | None  # with its test score, where it has been tested
    new_champion: bool
    run_dir: Path


def train(experiment: Experiment, run_dir: str | Path | None = None, *, plugins: Sequence[str] = ()) -> Iterator[Row]:
    """Train in a run directory, and yield every generation after its commit.

    A directory that holds a run of this experiment is resumed; None creates the next free one in runs/. The iteration
    may stop at any row: every generation that was yielded is committed. `plugins` are modules as those of --plugin.
    Raises ConfigurationError where the directory holds a run whose options give other results.
    """
    from evo.config import experiment as configuration
    from evo.plugins import registry
    from evo.process import interrupts_wait
    from evo.training.resuming import open_or_begin

    if not isinstance(experiment, configuration.Experiment):
        raise ConfigurationError("experiment: must be what Experiment.load(FILE) or Experiment.build(...) returns")
    registry.load(plugins)
    with interrupts_wait(), open_or_begin(experiment, run_dir) as store, Session(experiment, store) as session:
        yield from generations(session)


def generations(session: Session) -> Iterator[Row]:
    """Play, commit, test and yield one generation after the other, until all are done or a budget is spent."""
    algorithm, evaluator = session.algorithm, session.evaluator
    store, quarantine = session.store, session.quarantine
    committing = Stopwatch()
    while not session.done:
        generation = store.next_generation
        metrics = play_out(algorithm.generation(generation), evaluator, store, quarantine)
        session.check_fingerprints()
        metrics |= ledger(metrics, session.multiply_adds, store.spent)
        metrics["seconds_committing"] = committing.take()  # of the commit before this one
        record = {**algorithm.record(), **quarantine.record()}
        with committing:
            store.commit(generation, algorithm.state(), record, metrics, best=algorithm.changed)
        session.report_champion(generation, metrics)
        yield Row(generation, metrics, session.report.champion, algorithm.changed, store.directory)
    if store.next_generation and session.report.score is None:  # the run was complete already when it was resumed
        session.score_last()
    session.report.update(test=True, stopped=session.stopped)
    store.flush()


class Session:
    """The objects of a run while it trains; close it, or use it in a `with` statement."""

    def __init__(
        self,
        experiment: Experiment,
        store: Store,
        *,
        allow_drift: bool = False,
        forked: Validated | None = None,
    ) -> None:
        """Build them; the algorithm is restored from the run directory, or `forked` from the state of another run."""
        from evo.config.environments import environment_of
        from evo.config.experiment import evaluator_of
        from evo.errors import notice
        from evo.training.champion import ChampionReport
        from evo.training.quarantine import Quarantine

        self.experiment, self.store, self._allow_drift = experiment, store, allow_drift
        self.multiply_adds = experiment.network().multiply_adds  # of a forward pass
        self._evaluator: Evaluator | None = None
        self._learning: str | None = None  # the fingerprint of what computes updates
        self._algorithm = forked
        try:
            self.evaluator = self._evaluator = evaluator_of(experiment, store.directory)
            environment = environment_of(experiment.environment)
            self.algorithm = self._algorithm = forked or make_algorithm(experiment, environment)
            for text in self.algorithm.notices:
                notice(text)
            if store.next_generation and forked is None:
                self.algorithm.restore(store.load(), store.records())
        except BaseException:
            self.close()
            raise
        self.quarantine = Quarantine(store)
        self.report = ChampionReport(experiment, environment, self.algorithm, self.evaluator, store)

    @property
    def stopped(self) -> str:
        """Return a message that says which budget is spent; empty if none is."""
        store, algorithm = self.store, self.algorithm
        if store.next_generation >= self.experiment.generations:
            return ""
        fitness = None if algorithm.best is None else algorithm.fitness
        return self.experiment.run.budget.reached(store.spent, fitness)

    @property
    def done(self) -> bool:
        """Return whether nothing is left to train."""
        return self.store.next_generation >= self.experiment.generations or bool(self.stopped)

    def check_fingerprints(self) -> None:
        """Raise DataError where this machine computes other bits than the one that began the run."""
        from evo.files.layout import LEARNING_FINGERPRINT
        from evo.store.provenance import keep_fingerprint

        keep_fingerprint(self.store.directory, self.quarantine.fingerprint, self._allow_drift)
        if self._learning is None:  # it takes a compilation, and stays the same while this process learns
            self._learning = self.algorithm.fingerprint()
            keep_fingerprint(self.store.directory, self._learning, self._allow_drift, LEARNING_FINGERPRINT)

    def report_champion(self, generation: int, metrics: Metrics) -> None:
        """Write the champion if it has changed, and test it if a test is due; the metrics then get the test score."""
        if self.done:
            metrics["validation"] = self.validate_last()
        due = (generation + 1) % self.experiment.test.every == 0 or self.done
        self.report.update(test=due, stopped=self.stopped)
        if due:
            score = self.report.score
            metrics["test"] = score.mean if score else float("nan")
            metrics["test_return"] = score.mean_return if score and score.mean_return is not None else float("nan")
            self.store.log(generation, metrics)

    def score_last(self) -> None:
        """Validate and test what the newest generation left, and put both scores into its line of metrics."""
        newest, lines = self.store.next_generation - 1, self.store.metrics()
        if lines and lines[-1].pop("generation") == newest:
            self.report_champion(newest, lines[-1])
        else:  # a crash has lost the line
            self.validate_last()

    def validate_last(self) -> float:
        """Validate the finalists of the newest generation, if that was not due; return the champion's mean return."""
        newest, algorithm = self.store.next_generation - 1, self.algorithm
        if not algorithm.due(newest):
            play_out(algorithm.last(newest), self.evaluator, self.store, self.quarantine)
        return algorithm.fitness if algorithm.best is not None else float("nan")

    def close(self) -> None:
        """End the worker and learner processes."""
        if self._evaluator is not None:
            self._evaluator.close()
        if self._algorithm is not None:
            self._algorithm.close()

    def __enter__(self) -> Session:
        return self

    def __exit__(self, *_: object) -> None:
        from evo.process import ignored

        with ignored():
            self.close()


if __name__ == "__main__":
    from evo.cli.main import main_run

    sys.exit(main_run())
