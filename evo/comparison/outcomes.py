"""What came of a run, read from its directory: the champion's test score, or in words why there is none."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from evo.comparison.plan import Member
from evo.config import loading
from evo.config.experiment import Experiment, difference
from evo.config.plug_ins import stored
from evo.errors import ConfigurationError, DataError, counted, first_line
from evo.records import NOTHING, Spent
from evo.store.paths import MANIFEST, distinguished
from evo.store.run_directory import CONFIG
from evo.store.store import Store
from evo.training.champion import known_champion, score_of_champion
from evo.training.finished import look_at

if TYPE_CHECKING:
    from evo.training.testing import Score

SEED = re.compile(r"-seed\d+(-\d{3,})?$")  # at the end of a run directory's name


@dataclass(frozen=True)
class Outcome:
    """A run of a method."""

    method: str
    experiment: Experiment
    directory: Path
    generations: int = 0
    spent: Spent = NOTHING
    score: Score | None = None
    validation: float | None = None  # the champion's mean return on validation episodes
    failure: str = ""  # why there is no score
    remark: str = ""  # what a reader should know of the score

    @property
    def frames(self) -> int:
        """Return the frames of training and validation."""
        return self.spent.frames

    @property
    def seconds(self) -> float:
        """Return the seconds of training."""
        return self.spent.seconds

    @property
    def seed(self) -> int:
        """Return the run's seed."""
        return self.experiment.run.seed


def of_member(member: Member) -> Outcome | None:
    """Return what came of a run of a comparison; None where training has not ended, or its champion is not tested.

    DataError: its files are damaged.
    """
    if not (member.directory / MANIFEST).exists():
        return None
    store, experiment = Store.read(member.directory), member.experiment
    champion = known_champion(store, experiment) if store.next_generation else None
    if champion is None or not _ended(store, experiment, champion.fitness):
        return None
    outcome = Outcome(member.method, experiment, member.directory, score=champion.test, validation=champion.fitness)
    return _counted(outcome, store)


def failed(member: Member, why: str) -> Outcome:
    """Return that a run failed, with what it had played."""
    outcome = Outcome(member.method, member.experiment, member.directory, failure=why)
    try:
        return _counted(outcome, Store.read(member.directory))
    except DataError:
        return outcome


def refuse_others(members: Sequence[Member]) -> None:
    """Raise a ConfigurationError that names every place where something else is than a run of the comparison."""
    lines = []
    for member in members:
        directory = member.directory
        if (directory / MANIFEST).exists():
            try:
                changed = difference(Store.read(directory).identity, member.experiment.identity())
            except DataError:
                continue  # said when its turn comes
            lines += [f"{directory}: a run with other options: {line}" for line in changed]
        elif directory.exists() and not (directory.is_dir() and not any(directory.iterdir())):
            lines.append(f"{directory}: exists and is not a run")
    if lines:
        advice = "choose another comparison.directory, or move these away:"
        raise ConfigurationError("\n".join([advice, *lines]))


def of_directories(directories: Sequence[Path]) -> list[Outcome]:
    """Return what came of finished runs; those whose options differ in the seed only are of one method.

    DataError: one is no run directory. ConfigurationError: one is named twice, or another run of the same seed.
    """
    first: dict[str, Path] = {}  # run directory of a method, by its options
    seen: dict[tuple[str, int], Path] = {}
    found = []
    for directory in directories:
        store = Store.read(directory)
        with stored():
            experiment = loading.load(directory / CONFIG, resolved=True)
        budget = experiment.run.budget.model_dump()
        options = json.dumps([{**experiment.identity(), "seed": 0}, experiment.generations, budget], sort_keys=True)
        if other := seen.get((options, experiment.run.seed)):
            text = "is the same run again: equal options and an equal seed add no evidence; leave one out"
            raise ConfigurationError(f"{directory} {text} ({other})")
        seen[options, experiment.run.seed] = directory
        first.setdefault(options, directory.resolve())
        found.append((options, experiment, directory, store))
    names = dict(zip(first, _names(list(first.values())), strict=True))
    return [_read(Outcome(names[one], experiment, place), store) for one, experiment, place, store in found]


def _names(directories: Sequence[Path]) -> list[str]:
    """Return names of methods that differ: of their first run directories, without the seed where that says enough."""
    plain = [path.with_name(SEED.sub("", path.name) or path.name) for path in directories]
    clear = [one if plain.count(one) == 1 else path for one, path in zip(plain, directories, strict=True)]
    names = distinguished(clear)
    return names if len({*names}) == len(names) else distinguished(directories)


def _read(outcome: Outcome, store: Store) -> Outcome:
    """Return the outcome with what a finished run's files say."""
    outcome, experiment = _counted(outcome, store), outcome.experiment
    try:
        about = look_at(outcome.directory).champion.about
    except DataError as error:
        return replace(outcome, failure=first_line(error))
    score, fitness = score_of_champion(about), about.get("fitness")
    if score is None:
        return replace(outcome, failure="its champion is not tested")
    if not _ended(store, experiment, fitness if isinstance(fitness, int | float) else None):
        done = f"trained {store.next_generation} of {counted(experiment.generations, 'generation')}"
        return replace(outcome, score=score, remark=done)
    return replace(outcome, score=score)


def _counted(outcome: Outcome, store: Store) -> Outcome:
    return replace(outcome, generations=store.next_generation, spent=store.spent)


def _ended(store: Store, experiment: Experiment, fitness: float | None) -> bool:
    """Return whether a run has nothing left to train."""
    spent = experiment.run.budget.reached(store.spent, fitness)
    return store.next_generation >= experiment.generations or bool(spent)
