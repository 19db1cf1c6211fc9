"""Chooses the values of trials by Optuna's TPE sampler (Bergstra et al., 2011), which learns from those before.

Its journal is a file of the sweep's directory. The sampler is made anew for every trial, from a seed and the number of
trials before, so that a search that was stopped goes on as if it had not been.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from evo.errors import DataError, extra, first_line
from evo.sweeps.race import Standing, mean_of
from evo.sweeps.trials import Axis, Values

FILE = "optuna.log"
SEEDS = 1 << 32


def library() -> Any:
    """Return the module `optuna`; ConfigurationError where it is missing."""
    return extra("optuna", "--search")


class Study:
    """A study of the sweep's directory."""

    def __init__(self, directory: Path, axes: Sequence[Axis], seed: int, trials: int) -> None:
        """Open or begin the study; DataError where its journal is damaged."""
        self._optuna, self._axes, self._seed, self._count = library(), axes, seed, trials
        self._optuna.logging.set_verbosity(self._optuna.logging.ERROR)
        journal = self._optuna.storages.journal
        directory.mkdir(parents=True, exist_ok=True)
        try:
            storage = self._optuna.storages.JournalStorage(journal.JournalFileBackend(str(directory / FILE)))
            self._study = self._optuna.create_study(
                storage=storage, study_name="sweep", direction="maximize", load_if_exists=True
            )
        except (ValueError, KeyError) as error:
            raise DataError(f"{directory / FILE}: cannot be read: {first_line(error)}") from error
        self._number = -1  # of the trial that is being trained

    def tried(self) -> Iterator[Values]:
        """Yield the values of all trials that have ended, in order."""
        for trial in self._ended():
            yield self._values(trial)

    def next(self) -> Values | None:
        """Return the values of the next trial, or of one that was stopped; None where there are enough."""
        ended = len(list(self._ended()))
        if ended >= self._count:
            return None
        for trial in self._study.get_trials(deepcopy=False, states=(self._states.RUNNING,)):
            if self._complete(trial):
                self._number = trial.number
                return self._values(trial)
            self._study.tell(trial.number, state=self._states.FAIL)  # stopped while its values were chosen
        self._study.sampler = self._optuna.samplers.TPESampler(seed=(self._seed + ended) % SEEDS)
        trial = self._study.ask({axis.key: self._distribution(axis) for axis in self._axes})
        self._number = trial.number
        return self._values(trial)

    def tell(self, stages: Sequence[Standing]) -> None:
        """Keep how the trial stood at the end of its stages."""
        (frozen,) = (one for one in self._study.get_trials(deepcopy=False) if one.number == self._number)
        trial = self._optuna.trial.Trial(self._study, frozen._trial_id)
        scored = [one for one in stages if one.scores]
        for number, one in enumerate(scored):
            trial.report(mean_of(one.scores), number)
        if len(scored) < len(stages):
            self._study.tell(self._number, state=self._states.FAIL)
        elif stages[-1].stopped:
            self._study.tell(self._number, state=self._states.PRUNED)
        else:
            self._study.tell(self._number, mean_of(stages[-1].scores))

    @property
    def _states(self) -> Any:
        return self._optuna.trial.TrialState

    def _ended(self) -> Iterator[Any]:
        for trial in self._study.get_trials(deepcopy=False):
            if trial.state.is_finished() and self._complete(trial):
                yield trial

    def _complete(self, trial: Any) -> bool:
        return set(trial.params) == {axis.key for axis in self._axes}

    def _distribution(self, axis: Axis) -> Any:
        if not axis.is_range:
            return self._optuna.distributions.CategoricalDistribution(axis.values)
        if axis.whole:
            return self._optuna.distributions.IntDistribution(int(axis.low), int(axis.high), log=axis.log)
        return self._optuna.distributions.FloatDistribution(axis.low, axis.high, log=axis.log)

    def _values(self, trial: Any) -> Values:
        """Return values as --set takes them, numbers with six digits."""
        return {
            axis.key: f"{value:.6g}" if isinstance(value := trial.params[axis.key], float) else str(value)
            for axis in self._axes
        }
