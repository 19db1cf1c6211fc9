"""A comparison file: which experiments are trained with which algorithms and seeds, and on what budget."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pydantic import Field, model_validator

from evo.comparison.methods import FEW, impossible
from evo.comparison.runs import Place, PlannedRun, place_of
from evo.config.experiment import Experiment
from evo.config.experiment_file import ExperimentFile, key_of
from evo.config.sections import SPENT, amount_text
from evo.errors import ConfigurationError, counted, did_you_mean
from evo.mistakes import Mistake, shown, validate
from evo.options import Section
from evo.statistics import LEAST_SEEDS, LEVEL, least_p_value
from evo.store.run_directory import occupied, plain

SECTION = "comparison"
SET_BY = {"run.seed": "seeds", "run.algorithm": "algorithms"}  # and cannot be set as well
OF_BUDGET = ("run.budget", "run.generations")
MOST_GENERATIONS = 10_000_000  # so that the budget ends a run


class ComparedExperiment(Section):
    """An experiment file, and the algorithms that it is trained with."""

    file: str = Field(description="experiment file, from this file's folder")
    algorithms: list[str] = Field([], description="its algorithms; empty = those of the comparison, or else its own")

    @model_validator(mode="before")
    @classmethod
    def _wrap_file_name(cls, value: Any) -> Any:
        return {"file": value} if isinstance(value, str) else value

    def _check(self) -> None:
        if twice := _twice(self.algorithms):
            raise ValueError(f"algorithms: {twice}")


class ComparisonSection(Section):
    """The [comparison] section: what is compared, with how many seeds, and on what budget."""

    experiments: list[ComparedExperiment] = Field(
        min_length=1,
        max_length=100,
        description="experiment files, from this file's folder: names, or tables { file, algorithms }",
    )
    algorithms: list[str] = Field([], description="algorithms for every experiment; empty = each its own")
    seeds: list[int] = Field(min_length=1, max_length=100, description="seeds of every method")
    frames: int = Field(0, ge=0, description="frames of a run; 0 = the experiment's own generations and budget")
    seconds: float = Field(0.0, ge=0, description="training seconds of a run; 0 = no limit")
    forward_passes: int = Field(0, ge=0, description="forward passes of networks of a run; 0 = no limit")
    multiply_adds: int = Field(0, ge=0, description="multiply-adds of networks of a run; 0 = no limit")
    cpu_seconds: float = Field(0.0, ge=0, description="processor seconds of a run; 0 = no limit")
    reach: float | None = Field(
        None, description="score to which time is measured; none = between the weakest player and the best method"
    )
    set: list[str] = Field([], description="changes of every experiment, as those of --set")
    directory: str = Field(
        "", description="where the runs are, below the current folder; empty = runs/ and the name of this file"
    )

    def _check(self) -> None:
        wrong: list[str] = []
        named: dict[str, list[Any]] = {"experiments": [trained.file for trained in self.experiments]}
        named |= {"algorithms": self.algorithms, "seeds": self.seeds}
        wrong += [f"{name}: {twice}" for name, values in named.items() if (twice := _twice(values))]
        if bad := [seed for seed in self.seeds if not 0 <= seed < 1 << 64]:
            wrong.append(f"seeds: {shown(bad[0])} is not between 0 and 2^64 - 1")
        if self.algorithms and all(trained.algorithms for trained in self.experiments):
            wrong.append("algorithms: every experiment has algorithms of its own; leave it out")
        first, *others = [*self.limits, ""]
        wrong += [f"{name}: cannot go with {first}; give one of them" for name in others if name]
        for assignment in self.set:
            key = key_of(assignment)
            if key in SET_BY:
                wrong.append(f"set: {key} is set by `{SET_BY[key]}`")
            elif key.startswith(OF_BUDGET) and first:
                wrong.append(f"set: {key} cannot go with {first}, which is the budget")
        if wrong:
            raise ValueError(*wrong)

    @property
    def limits(self) -> dict[str, int | float]:
        """Return the amounts that end a run, by name; one where the file is valid, or none."""
        return {name: amount for name, amount in self.model_dump(include=set(SPENT)).items() if amount}

    @property
    def budget(self) -> str:
        """Return the budget of a run, in words."""
        for name, amount in self.limits.items():
            return f"{amount_text(name, amount)} a run, counted between generations"
        return "the generations of each experiment"


@dataclass(frozen=True)
class ComparisonFile:
    """A comparison file, with all runs in the order in which they are trained."""

    path: Path
    section: ComparisonSection
    directory: Path
    runs: tuple[PlannedRun, ...]

    @classmethod
    def read(cls, path: Path, flags: Mapping[str, Any] | None = None) -> ComparisonFile:
        """Read a file, with flags as in `Experiment.load`; ConfigurationError: all mistakes, a line each."""
        file = ExperimentFile.read(path)
        section, mistakes = _section(file.tables)
        if section is None or mistakes:
            raise ConfigurationError(*file.lines_of(mistakes))
        directory = Path(section.directory) if section.directory else Path("runs") / plain(path.stem)
        if wrong := _misplaced(str(directory)):
            mistakes.append(Mistake((SECTION, "directory"), wrong))
        elif what := occupied(directory):
            mistakes.append(Mistake((SECTION, "directory"), f"{what}; choose another folder"))
        methods, of_files = _methods(path, section, flags or {}, mistakes)
        if lines := [*file.lines_of(mistakes), *dict.fromkeys(of_files)]:
            raise ConfigurationError(*lines)
        seeds = section.seeds
        runs = [PlannedRun.of_seed(*method, seed, directory) for method in methods.items() for seed in seeds]
        return cls(path, section, directory, tuple(runs))

    @property
    def page(self) -> Path:
        """Return where the page goes if no other place is named: next to the folder of the runs."""
        return self.directory.with_name(f"{self.directory.name}.html")

    def summary(self) -> str:
        """Return what will be trained, and whether it can name a winner, in a few lines."""
        seeds, methods, places = len(self.section.seeds), dict[str, None](), dict[Place, dict[str, None]]()
        for run in self.runs:
            if run.method not in methods:
                places.setdefault(place_of(run.experiment), {})[run.method] = methods[run.method] = None
        lines = [
            f"{counted(len(self.runs), 'run')}: {counted(len(methods), 'method')}, {counted(seeds, 'seed')} each",
            f"budget: {self.section.budget}",
            f"runs in {self.directory}",
            *(f"  {name}" for name in methods),
        ]
        if len(places) > 1:
            lines.append(f"they see or play different things, so there will be {len(places)} tables:")
            lines += [f"  {', '.join(names)}" for names in places.values()]
        pairs = sum(len(names) * (len(names) - 1) // 2 for names in places.values())
        if pairs and seeds < LEAST_SEEDS:
            lines.append(f"no winner can be named: {FEW}")
        elif pairs and pairs * least_p_value(seeds, seeds) > LEVEL:
            lines.append(impossible(pairs))
        return "\n".join(lines)


def _misplaced(directory: str) -> str:
    """Return what is wrong with a folder that a file names: only those below the current folder may be written."""
    path = Path(directory)
    if not directory.isprintable() or not path.name or path.is_absolute() or {"..", "~"} & {*path.parts}:
        return (
            f"{shown(directory)} is no folder below the current one, such as runs/mine; begin the comparison in the "
            "folder where its runs are to be"
        )
    real, places = Path(os.path.realpath(path)), [Path(os.path.realpath(place)) for place in (".", "runs")]
    if not any(real.is_relative_to(place) for place in places):
        return f"{shown(directory)} leads out of the current folder by a link; choose another folder"
    return ""


def _section(tables: Mapping[str, Any]) -> tuple[ComparisonSection | None, list[Mistake]]:
    mistakes = []
    for name, value in tables.items():
        if name != SECTION:
            close = did_you_mean(name, [SECTION]) or f"; the only one is [{SECTION}]"
            text = f"unknown section{close}" if isinstance(value, Mapping) else f"must be in the section [{SECTION}]"
            mistakes.append(Mistake((name,), text))
    values = tables.get(SECTION, {})
    if not isinstance(values, Mapping):
        return None, [*mistakes, Mistake((SECTION,), f"must be a section [{SECTION}], not {shown(values)}")]
    if SECTION not in tables and mistakes:
        return None, mistakes
    section, wrong = validate(ComparisonSection, SECTION, values)
    return section, mistakes + wrong


def _methods(
    path: Path, section: ComparisonSection, flags: Mapping[str, Any], mistakes: list[Mistake]
) -> tuple[dict[str, Experiment], list[str]]:
    """Return the experiment of every method, and the lines of mistakes in other files; add those of this one."""
    methods: dict[str, Experiment] = {}
    lines: list[str] = []
    files = [path.parent / trained.file for trained in section.experiments]
    for number, (file, trained) in enumerate(zip(files, section.experiments, strict=True)):
        if plain(file.stem) in [plain(other.stem) for other in files[:number]]:
            text = f"another experiment is named {plain(file.stem)} too; rename the file, or a copy of it"
            mistakes.append(Mistake((SECTION, "experiments", number), text))
            continue
        for algorithm in (*(trained.algorithms or section.algorithms),) or (None,):
            try:
                experiment = _loaded(file, section, {**flags, "algorithm": algorithm})
            except ConfigurationError as error:
                for line in error.args:
                    if mistake := _of_this_file(line, file, section, number, algorithm):
                        mistakes.extend([mistake] if mistake not in mistakes else [])
                    else:
                        lines.append(line)
            else:
                methods[f"{plain(file.stem)}-{experiment.algorithm}"] = experiment
    return methods, lines


def _loaded(file: Path, section: ComparisonSection, flags: Mapping[str, Any]) -> Experiment:
    sets = list(section.set)
    if limits := ", ".join(f"{name} = {amount}" for name, amount in section.limits.items()):
        sets, flags = [*sets, f"run.budget={{{limits}}}"], {**flags, "generations": str(MOST_GENERATIONS)}
    return Experiment.load(file, *sets, hosts="refused", **flags)


def _of_this_file(
    line: str, file: Path, section: ComparisonSection, number: int, algorithm: str | None
) -> Mistake | None:
    """Return the mistake of the comparison that a line about an experiment comes from; None: it is the experiment's."""
    for assignment in section.set:
        option = f"--set {key_of(assignment)}"
        if line.startswith((f"{option}: ", f"--set {assignment}: ")):
            return Mistake((SECTION, "set"), line.removeprefix("--set "))
    if line.startswith("--algorithm: ") and algorithm is not None:
        own = section.experiments[number].algorithms
        place: tuple[str | int, ...] = ("experiments", number, "algorithms") if own else ("algorithms",)
        which = (own or section.algorithms).index(algorithm)
        return Mistake((SECTION, *place, which), line.removeprefix("--algorithm: "))
    if line.startswith(f"{file}: "):  # it cannot be read
        return Mistake((SECTION, "experiments", number), line)
    return None


def _twice(values: Sequence[object]) -> str:
    twice = [value for place, value in enumerate(values) if value in values[:place]]
    return f"{shown(twice[0])} is named twice" if twice else ""
