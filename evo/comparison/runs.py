"""The runs of a comparison: which are to be trained, the result of each, and which can be compared with each other."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from itertools import chain
from pathlib import Path
from typing import Any, NamedTuple

from evo.config.environments import environment_of
from evo.config.experiment import Experiment
from evo.config.identity import difference, opponents_named
from evo.errors import (
    ConfigurationError,
    DataError,
    EvoError,
    OutOfMemoryError,
    PoisonError,
    ResourceError,
    counted,
    first_line,
)
from evo.files.arrays import first_run
from evo.files.layout import CHAMPION, FORKED_FROM, MANIFEST, START, distinguished
from evo.plugins import code
from evo.records import NOTHING, Spent
from evo.store.champion import Score
from evo.store.run import Run
from evo.store.sandbox import reading_several
from evo.toml import value_text
from evo.training.session import known_champion

NO_CHAMPION = "it has no champion: nothing was validated, or no finalist had finite scores"
SEED = re.compile(r"-seed\d+(-\d{3,})?$")  # at the end of a run directory's name


@dataclass(frozen=True)
class PlannedRun:
    """A run to train."""

    method: str  # its experiment and algorithm, or the values of its trial
    experiment: Experiment
    directory: Path

    @classmethod
    def of_seed(cls, method: str, experiment: Experiment, seed: int, folder: Path) -> PlannedRun:
        """Return the run of a method with this seed, in a folder of runs."""
        directory = folder / f"{method}-seed{seed}"
        seeded = replace(experiment, run=experiment.run.model_copy(update={"seed": seed}))
        others = folder.glob(f"{method}-seed*")  # which have the same files
        return cls(method, with_copies(seeded, chain([directory], others)), directory)


def with_copies(experiment: Experiment, directories: Iterable[Path]) -> Experiment:
    """Return the experiment with copies, that runs have, of the champions' files that are gone."""
    start = experiment.run.init_from
    gone = {name for name in opponents_named(experiment.environment) if not Path(name).exists()}
    begun, copies = not start or Path(start).exists(), dict(experiment.copies)
    for directory in directories if gone or not begun else ():
        with suppress(EvoError):  # reported when it is the turn of the run
            known = Run(directory).config.copies if gone else {}
            copies |= {name: copy for name, copy in known.items() if name in gone and copy.exists()}
        if not begun and (copy := directory / START).exists():
            run, begun = experiment.run.model_copy(update={"init_from": str(copy)}), True
            experiment = replace(experiment, run=run)
        if begun and gone <= copies.keys():
            break
    return replace(experiment, copies=copies)


@dataclass(frozen=True)
class ComparedRun:
    """The result of a run: the champion's test score, or in words why there is none."""

    method: str
    experiment: Experiment
    directory: Path
    generations: int = 0
    spent: Spent = NOTHING
    score: Score | None = None
    validation: float | None = None  # the champion's mean return on validation episodes
    failure: str = ""  # why there is no score
    outside: bool = False  # it failed since it was ended, or the machine lacked something: another start may not
    memory: bool = False  # memory was what it lacked
    remark: str = ""  # what a reader should know of the score
    game_code: str = ""  # the digest of the game that a finished run has played

    @property
    def seed(self) -> int:
        """Return the run's seed."""
        return self.experiment.run.seed


class Place(NamedTuple):
    """Where methods can be compared: one game, and one track."""

    game: str
    track: str


def place_of(experiment: Experiment, game_code: str = "") -> Place:
    """Return where an experiment's score can be compared; `game_code` is the digest of a run that has another one."""
    options = experiment.environment
    game = {key: value for key, value in options.scored.items() if key != "id"}
    if sources := game_code or environment_of(options).sources:
        game["sources"] = sources[:12]
    return Place(f"{options.id}{_listed(game, ' (', ')')}", _listed(options.track))


def _listed(options: dict[str, Any], before: str = "", after: str = "") -> str:
    listed = ", ".join(
        f"{key} {value if isinstance(value, str) else value_text(value)}" for key, value in options.items()
    )
    return f"{before}{listed}{after}" if listed else ""


def trained_run(run: PlannedRun) -> ComparedRun | None:
    """Return the result of a run; None where it has not ended, or is not tested. DataError: it is damaged."""
    if not (run.directory / MANIFEST).exists():
        return None
    store, experiment = Run(run.directory).store, run.experiment
    champion = known_champion(store, experiment) if store.next_generation else None
    if champion is None:
        return None
    spent = experiment.run.budget.reached(store.spent, champion.fitness)
    if store.next_generation < experiment.generations and not spent:
        return None
    return ComparedRun(
        run.method, experiment, run.directory, store.next_generation, store.spent, champion.test, champion.fitness
    )


def failed_run(run: PlannedRun, why: BaseException) -> ComparedRun:
    """Return that a run failed, with what it had played."""
    outside = isinstance(why, ResourceError | MemoryError) and not isinstance(why, PoisonError)
    memory, done, spent = isinstance(why, OutOfMemoryError | MemoryError), 0, NOTHING
    with suppress(DataError):  # there is no run
        store = Run(run.directory).store
        done, spent = store.next_generation, store.spent
    return ComparedRun(
        run.method, run.experiment, run.directory, done, spent, failure=first_line(why), outside=outside, memory=memory
    )


def refuse_other_runs(planned: Sequence[PlannedRun], option: str) -> None:
    """Raise a ConfigurationError that names every place where something else is than a planned run."""
    lines = []
    for run in planned:
        if run.directory.is_symlink():
            lines.append(f"{run.directory}: a link, which is not followed")
        elif (run.directory / MANIFEST).exists():
            try:
                identity = Run(run.directory).store.identity
            except DataError:
                continue  # reported when its turn comes
            changed = difference(identity, run.experiment.identity(), run.experiment.environment)
            lines += [f"{run.directory}: a fork of another run"] if FORKED_FROM in identity else []
            lines += [f"{run.directory}: a run with other options: {line}" for line in changed]
        elif run.directory.exists() and not (run.directory.is_dir() and not any(run.directory.iterdir())):
            lines.append(f"{run.directory}: exists and is not a run")
    if lines:
        raise ConfigurationError(f"choose another {option}, or move these away:", *lines)


@reading_several()
def runs_in(directories: Sequence[Path]) -> list[ComparedRun]:
    """Return the results of these runs, of one method where only seeds differ.

    DataError: one is no run directory. ConfigurationError: one is named twice, or two runs of a method have one seed,
    or descend from one run.
    """
    first: dict[str, Path] = {}  # run directory of a method, by its options
    seen: dict[tuple[str, int | str], Path] = {}  # by a method's seed, and by the first hash that it descends from
    begun: dict[str, Path] = {}  # the first run directory that descends from a run
    found = []
    for directory in directories:
        run = Run(directory)
        options, seed, origin = options_of(run), run.config.run.seed, first_run(run.store.identity)
        for of, both in ((seed, "equal options and an equal seed"), (origin, "the same first generations (--fork)")):
            if other := seen.get((options, of)):
                text = f"have {both}, so they do not count as two seeds; leave one out"
                raise ConfigurationError(f"{directory} and {other} {text}")
            seen[options, of] = directory
        shared = begun.setdefault(origin, directory)
        first.setdefault(options, directory.resolve())
        found.append((options, run, "" if shared == directory else f"has the first generations of {shared}"))
    names = dict(zip(first, _names(list(first.values())), strict=True))
    return [_compared(names[options], run, remark) for options, run, remark in found]


def options_of(run: Run) -> str:
    """Return all that two runs have in common which differ in their seeds alone."""
    experiment = run.config
    known = {key: run.store.identity.get(key) for key in (code.GAME, code.PLUGINS)}
    options = {**experiment.identity(), **known, "seed": 0}
    return json.dumps([options, experiment.generations, experiment.run.budget.model_dump()], sort_keys=True)


def ended_without_champion(run: Run) -> bool:
    """Return whether a run has ended without a champion."""
    validated = not any(run.metrics) or any("validation" in row for row in run.metrics)
    return run.ended and not validated and not (run.directory / CHAMPION).exists()


def _names(directories: Sequence[Path]) -> list[str]:
    """Return names of methods that differ: of their first run directories, without the seed where they differ so."""
    plain = [path.with_name(SEED.sub("", path.name) or path.name) for path in directories]
    clear = [one if plain.count(one) == 1 else path for one, path in zip(plain, directories, strict=True)]
    names = distinguished(clear)
    return names if len({*names}) == len(names) else distinguished(directories)


def _compared(method: str, run: Run, shared: str) -> ComparedRun:
    done, identity = run.store.next_generation, run.store.identity
    found = ComparedRun(method, run.config, run.directory, done, run.store.spent, game_code=code.game_of(identity))
    try:
        score = run.test
    except DataError as error:
        return replace(found, failure=NO_CHAMPION if ended_without_champion(run) else first_line(error))
    if score is None:
        return replace(found, failure="its champion is not tested")
    of = f"trained {done} of {counted(run.config.generations, 'generation')}, so it had not ended"
    remarks = [] if run.ended else [of]
    if run.is_fork:
        remarks.append("a fork: what was spent before it is not counted")
        remarks += [] if FORKED_FROM in identity else ["it does not say of which run, perhaps of another one here"]
    remarks += [shared] if shared else []
    remarks += code.changes(identity, run.config.code())
    return replace(found, score=score, validation=run.fitness, remark="; ".join(remarks))
