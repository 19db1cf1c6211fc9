"""The trials of a sweep: the values that they try, their runs at a share of the budget, and the runs of the winner.

`ga.sigma=0.05,0.1` lists values, `ga.sigma=0.01..1:log` is a range.
"""

from __future__ import annotations

import hashlib
import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import product
from pathlib import Path
from typing import Any

from evo.comparison.runs import PlannedRun, with_copies
from evo.config.experiment import Experiment
from evo.config.identity import CONTENT, as_named, contents_in, opponents_named
from evo.config.sections import amount_text
from evo.errors import (
    ConfigurationError,
    DataError,
    counted,
    extra,
    path_of,
    printable,
    refuse_control,
    require_assignments,
    require_integer,
)
from evo.files.arrays import first_hash
from evo.records import LARGEST_FLOAT
from evo.store.run_directory import occupied
from evo.sweeps.race import Journal
from evo.toml import value_of
from evo.training.beginning import opponents_in_files, start_of

NUMBER = r"[+-]?(?:\d(?:_?\d)*\.?\d*|\.\d+)(?:[eE][+-]?\d+)?"
RANGE = re.compile(rf"({NUMBER})\.\.({NUMBER})(:log)?")
KEY = re.compile(r"[a-z0-9_]+(\.[a-z0-9_]+)+")
REFUSED = {  # keys of options that trials have in common, and why
    "run.seed": "the seeds of a sweep are common to all trials; give --seed and --seeds",
    "run.generations": "all trials have the same budget; give --generations or --set",
    "run.budget": "all trials have the same budget; give it with --set",
    "validation": "trials are compared by their validation returns, so all have the same episodes",
    "test": "it changes no training",
    "workers": "it changes no result",
}
TRIED = ".6g"  # how a number of a range is written that is not whole
TRAINING = "environment.training"
MOST_TRIALS, MOST_SEEDS = 10_000, 100
SHORTEST, LONGEST = 1, 120  # characters of a trial's name
RETESTED = "retest"  # the folder of the winner's runs

Values = Mapping[str, str]  # of a trial: option to value, as --set takes them


@dataclass(frozen=True)
class Axis:
    """One option and the values that it may have: a list of them, or all between two numbers."""

    key: str
    values: tuple[str, ...] = ()
    low: float = 0.0
    high: float = 0.0
    log: bool = False
    whole: bool = False

    @property
    def is_range(self) -> bool:
        """Return whether values are drawn, not listed."""
        return not self.values

    def holds(self, value: object) -> bool:
        """Return whether this is a value of the axis, as Optuna has it."""
        if not self.is_range:
            return value in self.values
        return type(value) is (int if self.whole else float) and self.low <= value <= self.high


def axis_of(text: str) -> Axis:
    """Return the axis that an `--over` describes; ConfigurationError where it is none."""
    key, equals, values = text.partition("=")
    key, values = key.strip(), values.strip()
    if not equals or not values or not KEY.fullmatch(key):
        raise ConfigurationError(
            f"--over {text}: must be an option and its values, as in ga.sigma=0.05,0.1 or ga.sigma=0.01..1:log"
        )
    for refused, why in REFUSED.items():
        of_algorithm = refused == "run.generations" and key.endswith(".generations")
        if key == refused or key.startswith(f"{refused}.") or of_algorithm:
            raise ConfigurationError(f"--over {key}: cannot be varied: {why}")
    if key.startswith("environment.") and not key.startswith(TRAINING):
        raise ConfigurationError(
            f"--over {key}: cannot be varied: validation returns of different environments are no measure of each "
            f"other; only {TRAINING} can"
        )
    if match := RANGE.fullmatch(values):
        return _range(key, *match.groups())
    listed = _split(values)
    if not all(listed):
        raise ConfigurationError(f"--over {key}: a value is empty in {values!r}")
    meant = [_meant(value) for value in listed]
    if twice := [place for place, value in enumerate(meant) if value in meant[:place]]:
        value, first = listed[twice[0]], listed[meant.index(meant[twice[0]])]
        spelt = "" if value == first else f", first as {first}"
        raise ConfigurationError(f"--over {key}: {value} is named twice{spelt}")
    return Axis(key, tuple(listed))


def _meant(text: str) -> tuple[bool, object]:
    """Return what a value is, however it is spelt, and whether it is a truth, which Python takes for a number."""
    try:
        value = value_of(text)
    except (ValueError, RecursionError):  # the experiment refuses it
        value = text
    return isinstance(value, bool), value


def _range(key: str, first: str, last: str, log: str | None) -> Axis:
    low, high = float(first), float(last)
    whole = not (set(".eE") & set(first + last))
    if max(-low, high) > LARGEST_FLOAT:  # with which a sampler cannot compute
        raise ConfigurationError(f"--over {key}: {first:.40}..{last:.40} goes beyond {LARGEST_FLOAT:g}")
    if low >= high:
        raise ConfigurationError(f"--over {key}: {first}..{last} must go from the lower to the higher number")
    if not whole and f"{low:{TRIED}}" == f"{high:{TRIED}}":
        one = f"{first}..{last} is one number, {low:{TRIED}}, in the six digits that are tried"
        raise ConfigurationError(f"--over {key}: {one}; give ends that are further apart")
    if log and low <= 0:
        raise ConfigurationError(f"--over {key}: a logarithmic range begins above 0, not at {first}")
    return Axis(key, (), low, high, bool(log), whole)


def _split(text: str) -> list[str]:
    """Return the parts between commas that are outside of brackets and quotes."""
    parts, depth, quote = [""], 0, ""
    for character in text:
        if quote:
            quote = "" if character == quote else quote
        elif character in "\"'":
            quote = character
        else:
            depth += (character in "[{") - (character in "]}")
        if character == "," and not depth and not quote:
            parts.append("")
        else:
            parts[-1] += character
    return [part.strip() for part in parts]


def axes_of(texts: Sequence[str]) -> list[Axis]:
    """Return the axes of all `--over`; ConfigurationError where two have one option."""
    axes = [axis_of(text) for text in texts]
    keys = [axis.key for axis in axes]
    if twice := [key for place, key in enumerate(keys) if key in keys[:place]]:
        raise ConfigurationError(f"--over {twice[0]}: is named twice; list all values in one")
    return axes


def grid(axes: Sequence[Axis]) -> list[Values]:
    """Return every combination; ConfigurationError where an axis is a range, or there are too many."""
    for axis in axes:
        if axis.is_range:
            raise ConfigurationError(f"--over {axis.key}: a range needs --search optuna; else list the values")
    if (count := math.prod(len(axis.values) for axis in axes)) > MOST_TRIALS:
        raise ConfigurationError(f"--over: {count:,} combinations are more than {MOST_TRIALS:,}")
    keys = [axis.key for axis in axes]
    return [dict(zip(keys, values, strict=True)) for values in product(*(axis.values for axis in axes))]


def name_of(values: Values) -> str:
    """Return a trial's name, a part of the names of its run directories: what was changed."""
    text = ",".join(f"{key}={value}" for key, value in values.items())
    plain = re.sub(r"[^A-Za-z0-9._,=+-]+", "-", text).strip("-.,")
    tells_apart = plain == text and SHORTEST <= len(plain) <= LONGEST  # not [[8,3]] and [8,3] without their brackets
    return plain if tells_apart else f"{plain[: LONGEST - 17]}-{hashlib.sha256(text.encode()).hexdigest()[:16]}"


@dataclass(frozen=True)
class Trial:
    """One choice of values for the options that vary."""

    name: str  # the values in short
    values: Values  # option to value, as texts
    experiment: Experiment  # with the values, unless it refuses them
    refused: str = ""  # why it does


@dataclass(frozen=True)
class PlannedSweep:
    """A sweep that can begin: what its trials have in common, and the values that they try."""

    file: Path
    sets: tuple[str, ...]
    flags: Mapping[str, Any]
    seeds: tuple[int, ...]
    retest: int  # fresh seeds of the winner
    directory: Path
    over: tuple[str, ...] = ()  # the options that vary with their values, as in ga.sigma=0.05,0.1
    chosen: int | None = None  # trials whose values Optuna chooses; None: all combinations are tried

    @classmethod
    def of(
        cls,
        file: str | Path,
        over: Sequence[str],
        *,
        sets: Sequence[str] = (),
        flags: Mapping[str, object] | None = None,
        seeds: int = 3,
        retest: int = 10,
        trials: int | None = None,
        directory: str | Path | None = None,
    ) -> PlannedSweep:
        """Check everything; ConfigurationError: a mistake. `sets` and `flags` are as those of `Experiment.load`."""
        if not over or not all(isinstance(one, str) for one in over):
            raise ConfigurationError("name an option with its values, as in ga.sigma=0.05,0.1")
        require_assignments(sets)
        file = path_of("file", file)
        place = path_of("directory", directory or Path("runs") / f"sweep-{file.stem}")
        refuse_control(str(place))
        axes_of(over)
        for name, number in (("seeds", seeds), ("retest", retest)):
            require_integer(f"--{name}", number, 1, MOST_SEEDS)
        if trials is not None:
            require_integer("--trials", trials, 1, MOST_TRIALS)
            extra("optuna", "--search")
        texts: dict[str, Any] = {name: None if value is None else str(value) for name, value in (flags or {}).items()}
        first = Experiment.load(file, *sets, **texts).run.seed
        if first + seeds + retest > 1 << 64:
            raise ConfigurationError(f"--seed: {first} leaves no room for {seeds + retest} seeds below 2^64")
        if what := occupied(place):
            raise ConfigurationError(f"--directory: {what}; choose another folder")
        if link := next((one for one in (*place.glob("*"), *place.glob(f"{RETESTED}/*")) if one.is_symlink()), None):
            raise ConfigurationError(f"--directory: {link} is a link, which no sweep follows; move it away")
        of_all = {name: value for name, value in texts.items() if name != "seed"}
        planned = cls(file, tuple(sets), of_all, tuple(range(first, first + seeds)), retest, place, tuple(over), trials)
        different(planned.grid)
        return planned

    @cached_property
    def grid(self) -> tuple[Trial, ...]:
        """Every combination of values; empty where Optuna chooses."""
        return () if self.chosen is not None else tuple(map(self.trial, grid(axes_of(self.over))))

    def trial(self, values: Values) -> Trial:
        """Return the trial with these values; ConfigurationError: all mistakes, a line each."""
        over = [f"{key}={value}" for key, value in values.items()]
        own = any(one.startswith("run.init_from") or "files" in one for one in self.over)  # of each trial
        begun = self.directory.glob(f"{name_of(values) if own else '*'}-seed*")
        try:
            experiment = with_copies(Experiment.load(self.file, *self.sets, *over, **self.flags), begun)
            start_of(experiment)
            opponents_in_files(experiment)
        except ConfigurationError as error:
            raise ConfigurationError(*(self._of_trial(line, values) for line in error.args)) from error
        return Trial(name_of(values), values, experiment)

    def tried(self, values: Values) -> Trial:
        """Return the trial with these values, which says so where the experiment refuses them."""
        try:
            return self.trial(values)
        except (ConfigurationError, DataError) as error:
            why = "; ".join(error.args)
            return Trial(name_of(values), values, self.trial({}).experiment, why)

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

    def summary(self) -> str:
        """Return what will be trained, in a line."""
        trials = counted(len(self.grid) if self.chosen is None else self.chosen, "trial")
        seeds, budget = counted(len(self.seeds), "seed"), budget_of(self.trial({}).experiment)
        return f"{trials} with {seeds} each, {budget} a run; runs in {self.directory}"

    def journal(self) -> Journal:
        """Return the journal of the sweep; ConfigurationError where its directory has another one."""
        base = self.trial({}).experiment
        identity, named = base.identity(), opponents_named(base.environment)
        common = {key: value for key, value in identity.items() if key.startswith(CONTENT)}
        every = (contents_in(one.experiment.identity(), one.experiment.environment) for one in self.grid)
        own = {CONTENT + name: value for one in every for name, value in one.items() if name not in named}
        rest = {key: identity[key] for key in identity.keys() - common} | {"seed": 0}
        settings: dict[str, Any] = {
            "experiment": first_hash(rest),
            "budget": budget_of(base),
            "seeds": list(self.seeds),
            "search": "grid" if self.chosen is None else "optuna",
            "over": sorted(self.over),
            **(own | common),
        }
        earlier = first_hash(rest | {"environment": base.environment.model_dump()})
        return Journal(self.directory, settings, earlier, {key: as_named(key, base.environment) for key in common})

    def planned(self, trial: Trial, share: float) -> list[PlannedRun]:
        """Return the runs of a trial up to a share of the budget."""
        experiment = limited(trial.experiment, share)
        return [PlannedRun.of_seed(trial.name, experiment, seed, self.directory) for seed in self.seeds]

    def retests(self, trial: Trial) -> list[PlannedRun]:
        """Return the runs of the winner with seeds that no trial had."""
        first = max(self.seeds) + 1
        seeds = range(first, first + self.retest)
        return [PlannedRun.of_seed(trial.name, trial.experiment, seed, self.directory / RETESTED) for seed in seeds]


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
    run = run.model_copy(update={"budget": budget, "generations": generations})
    options = experiment.options.model_copy(update={"generations": 0})
    return replace(experiment, run=run, sections={**experiment.sections, experiment.algorithm: options})


def budget_of(experiment: Experiment) -> str:
    """Return the budget of a run, in words."""
    limits = [amount_text(name, amount) for name, amount in experiment.run.budget.limits().items()]
    return " or ".join(limits) or counted(experiment.generations, "generation")
