"""The trials of a sweep: their experiments, their runs at a share of the budget, and the runs of the winner."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from evo.comparison.plan import Member
from evo.config import loading
from evo.config.experiment import Experiment
from evo.config.sections import amount_text
from evo.errors import ConfigurationError, counted, printable
from evo.sweep.space import Values, name_of

RETESTED = "retest"  # the folder of the winner's runs


@dataclass(frozen=True)
class Trial:
    """One choice of values."""

    name: str
    values: Values
    experiment: Experiment


@dataclass(frozen=True)
class Settings:
    """What all trials have in common."""

    file: Path
    sets: tuple[str, ...]
    flags: Mapping[str, str | None]
    seeds: tuple[int, ...]
    retest: int  # fresh seeds of the winner
    directory: Path

    def trial(self, values: Values) -> Trial:
        """Return the trial with these values; ConfigurationError: all mistakes, a line each."""
        over = [f"{key}={value}" for key, value in values.items()]
        try:
            experiment = loading.load(self.file, [*self.sets, *over], self.flags)
        except ConfigurationError as error:
            lines = str(error).splitlines()
            raise ConfigurationError("\n".join(self._of_trial(line, values) for line in lines)) from error
        return Trial(name_of(values), values, experiment)

    def _of_trial(self, line: str, values: Values) -> str:
        """Return a line about a mistake with what was typed: the wrong --over, or all, where they contradict others."""
        if not values:
            return line
        if any(line.startswith(f"--set {key}:") for key in values):
            return line.replace("--set ", "--over ", 1)
        trial = " ".join(f"--over {key}={value}" for key, value in values.items())
        if match := re.fullmatch(rf"({re.escape(printable(str(self.file)))}:\d+): (.*)", line):
            return f"{trial}: {match[2]} ({match[1]})"
        return f"{trial}: {line}"

    def members(self, trial: Trial, share: float) -> list[Member]:
        """Return the runs of a trial up to a share of the budget."""
        experiment = limited(trial.experiment, share)
        return [_member(trial.name, experiment, self.directory, seed) for seed in self.seeds]

    def retests(self, trial: Trial) -> list[Member]:
        """Return the runs of the winner with seeds that no trial had."""
        first = max(self.seeds) + 1
        seeds = range(first, first + self.retest)
        return [_member(trial.name, trial.experiment, self.directory / RETESTED, seed) for seed in seeds]


def different(trials: Sequence[Trial]) -> None:
    """Raise a ConfigurationError where two trials are the same: an option that was changed has no effect there."""
    seen: dict[str, Trial] = {}
    for trial in trials:
        known = repr(sorted(trial.experiment.identity().items()))
        if known in seen:
            raise ConfigurationError(
                f"--over: {seen[known].name} and {trial.name} give the same run: what differs has no effect there"
            )
        seen[known] = trial


def limited(experiment: Experiment, share: float) -> Experiment:
    """Return the experiment with a share of its generations and of its budget."""
    run = experiment.run
    amounts = {
        name: amount * share if isinstance(amount, float) else max(1, math.ceil(amount * share))
        for name, amount in run.budget.limits().items()
    }
    generations = max(1, math.ceil(experiment.generations * share))
    budget = run.budget.model_copy(update=amounts)
    options = experiment.options.model_copy(update={"generations": 0})
    return replace(
        experiment,
        run=run.model_copy(update={"budget": budget, "generations": generations}),
        sections={**experiment.sections, experiment.algorithm: options},
    )


def budget_of(experiment: Experiment) -> str:
    """Return what ends a run, in words."""
    limits = [amount_text(name, amount) for name, amount in experiment.run.budget.limits().items()]
    return " or ".join([*limits, *([] if limits else [counted(experiment.generations, "generation")])])


def _member(name: str, experiment: Experiment, directory: Path, seed: int) -> Member:
    run = experiment.run.model_copy(update={"seed": seed})
    return Member(name, replace(experiment, run=run), directory / f"{name}-seed{seed}")
