"""Trains the trials of a sweep stage by stage, decides which go on, and retests the winner on fresh seeds."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

from evo.comparison.methods import Method, method_of
from evo.comparison.runs import ComparedRun
from evo.comparison.training import Show
from evo.comparison.training import train as train_side_by_side
from evo.config.experiment import Experiment
from evo.errors import ConfigurationError, ResourceError, counted
from evo.files.hashing import first_hash
from evo.files.lock import held
from evo.plugins import registry
from evo.store.run_directory import file_instead
from evo.sweeps.race import SHARES, Journal, Standing, judged, mean_of, stops
from evo.sweeps.search import Study, library
from evo.sweeps.trials import MOST_TRIALS, SweepSettings, Trial, axes_of, budget_of, different, grid

Scores = dict[str, tuple[float, ...]]
Train = Callable[..., list[ComparedRun]]  # as `evo.comparison.training.train`

MOST_SEEDS = 100


@dataclass(frozen=True)
class TrialResult:
    """A trial of a sweep that has ended."""

    trial: Trial
    stages: tuple[Standing, ...]  # at the end of each stage that it has trained to

    @property
    def finished(self) -> bool:
        """Return whether it has trained with the whole budget."""
        return len(self.stages) == len(SHARES) and not self.stages[-1].stopped

    @property
    def scores(self) -> tuple[float, ...]:
        """Return its validation returns at the end of its last stage, by seed."""
        return self.stages[-1].scores


@dataclass(frozen=True)
class SweepResult:
    """What a sweep has found."""

    trials: tuple[TrialResult, ...]  # in the order in which they were planned or chosen
    winner: TrialResult
    retest: Method  # test scores of the winner on fresh seeds
    validation: tuple[float, ...]  # its validation returns on these seeds


@dataclass(frozen=True)
class PlannedSweep:
    """A sweep that can begin: every option and value is valid."""

    settings: SweepSettings
    over: tuple[str, ...]  # the options that vary with their values, as in ga.sigma=0.05,0.1
    grid: tuple[Trial, ...]  # every combination; empty where Optuna chooses
    chosen: int | None  # trials that Optuna chooses

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
        if not over:
            raise ConfigurationError("name an option with its values, as in ga.sigma=0.05,0.1")
        axes, file = axes_of(over), Path(file)
        limits = (("seeds", seeds, MOST_SEEDS), ("retest", retest, MOST_SEEDS), ("trials", trials or 1, MOST_TRIALS))
        for name, number, most in limits:
            if not 1 <= number <= most:
                raise ConfigurationError(f"--{name}: must be a whole number from 1 to {most}, not {number}")
        if trials is not None:
            library()
        texts: dict[str, Any] = {name: None if value is None else str(value) for name, value in (flags or {}).items()}
        first = Experiment.load(file, *sets, **texts).run.seed
        if first + seeds + retest > 1 << 64:
            raise ConfigurationError(f"--seed: {first} leaves no room for {seeds + retest} seeds below 2^64")
        place = Path(directory or Path("runs") / f"sweep-{file.stem}")
        if name := file_instead(place):
            raise ConfigurationError(f"--directory: {name} is a file; choose another folder")
        of_all = {name: value for name, value in texts.items() if name != "seed"}
        settings = SweepSettings(file, tuple(sets), of_all, tuple(range(first, first + seeds)), retest, place)
        every = () if trials is not None else tuple(settings.trial(values) for values in grid(axes))
        different(every)
        return cls(settings, tuple(over), every, trials)

    def summary(self) -> str:
        """Return what will be trained, in a line."""
        trials = counted(len(self.grid) if self.chosen is None else self.chosen, "trial")
        seeds, budget = counted(len(self.settings.seeds), "seed"), budget_of(self.settings.trial({}).experiment)
        return f"{trials} with {seeds} each, {budget} a run; runs in {self.settings.directory}"

    def journal(self) -> Journal:
        """Return the journal of the sweep; ConfigurationError where its directory has another one."""
        base = self.settings.trial({}).experiment
        settings: dict[str, Any] = {
            "experiment": first_hash({**base.identity(), "seed": 0}),
            "budget": budget_of(base),
            "seeds": list(self.settings.seeds),
            "search": "grid" if self.chosen is None else "optuna",
            "over": sorted(self.over),
        }
        return Journal(self.settings.directory, settings)


def sweep(
    file: str | Path,
    *over: str,
    sets: Sequence[str] = (),
    seeds: int = 3,
    retest: int = 10,
    trials: int | None = None,
    directory: str | Path | None = None,
    plugins: Sequence[str] = (),
    progress: Show | None = None,
    **flags: object,
) -> SweepResult:
    """Race every combination of values of an experiment's options, and retest the winner on fresh seeds.

    `over` are options with values, "ga.sigma=0.05,0.1". With `trials`, Optuna chooses that many, also from ranges,
    "ga.sigma=0.01..1:log". `sets`, `plugins` and `flags` (algorithm, seed, generations, workers, backend) are as in a
    run. `progress` gets a line for every run and every decision. A sweep that was stopped goes on by the same call.
    """
    registry.load(plugins, file)
    options = {"sets": sets, "seeds": seeds, "retest": retest, "trials": trials, "directory": directory}
    return swept(PlannedSweep.of(file, over, flags=flags, **options), progress)  # type: ignore[arg-type]


def swept(planned: PlannedSweep, progress: Show | None = None, live: Show | None = None) -> SweepResult:
    """Race the trials and retest the winner; `progress` and `live` are as in `evo.comparison.training.train`."""
    settings = planned.settings
    with held(settings.directory):
        train = partial(train_side_by_side, progress=progress, live=live)
        race = Race(settings, planned.journal(), train, progress)
        if planned.chosen is None:
            trials = race.side_by_side(planned.grid)
        else:
            race.journal.write()
            axes = axes_of(planned.over)
            trials = race.searched(Study(settings.directory, axes, settings.seeds[0], planned.chosen))
        return race.retested(trials)


class Race:
    """Trains the trials of a sweep, and keeps every decision."""

    def __init__(
        self, settings: SweepSettings, journal: Journal, train: Train = train_side_by_side, progress: Show | None = None
    ) -> None:
        self.settings, self.journal, self._train = settings, journal, train
        self._say: Show = progress or (lambda line: None)

    def side_by_side(self, trials: Sequence[Trial]) -> list[TrialResult]:
        """Train the trials side by side, a stage after the other; ResourceError where none of them can be trained."""
        alive, stages = list(trials), dict[str, list[Standing]]()
        for share in SHARES:
            standings = self.journal.stage(f"{share:g}", [trial.name for trial in alive], len(self.settings.seeds))
            if standings is None:
                self._say(f"up to {share:.0%} of the budget: {counted(len(alive), 'trial')}")
                standings = judged(*self._trained(alive, share), last=share == SHARES[-1])
                self.journal.decide(f"{share:g}", standings)
            for one in standings:
                stages.setdefault(one.name, []).append(one)
                if one.stopped:
                    self._say(f"{one.name} stops: {one.stopped}")
            going = {one.name for one in standings if not one.stopped}
            alive = [trial for trial in alive if trial.name in going]
            if not alive:
                raise ResourceError(f"no trial can be trained; {standings[0].name} {standings[0].stopped}")
        return [TrialResult(trial, tuple(stages[trial.name])) for trial in trials]

    def searched(self, search: Study) -> list[TrialResult]:
        """Train one trial after the other, each against the best before it; ResourceError: none can be trained."""
        found = dict[str, TrialResult]()
        for tried in search.tried():
            result = self._against(self.settings.trial(tried), found)
            found[result.trial.name] = result
        while (values := search.next()) is not None:
            result = self._against(self.settings.trial(values), found)
            search.tell(result.stages)
            found[result.trial.name] = result
        if not any(result.finished for result in found.values()):
            raise ResourceError("no trial can be trained; the lines above say why")
        return list(found.values())

    def _against(self, trial: Trial, before: Mapping[str, TrialResult]) -> TrialResult:
        """Train a trial until it loses to the best one, or falls behind those before."""
        best, stages = winner(list(before.values())), list[Standing]()
        for number, share in enumerate(SHARES):
            stage = f"{trial.name} {share:g}"
            known = self.journal.stage(stage, [trial.name], len(self.settings.seeds))
            if known is None:
                (standing,) = judged(*self._trained([trial], share), last=True)
                if best is not None and standing.scores and share < SHARES[-1]:
                    others = [result.stages[number].scores for result in before.values() if len(result.stages) > number]
                    rivals = [standing.scores, *filter(None, others)]
                    standing = replace(standing, stopped=stops(standing.scores, best.stages[number].scores, rivals))
                known = [standing]
                self.journal.decide(stage, known)
                if standing.stopped:
                    self._say(f"{trial.name} stops: {standing.stopped}")
            stages += known
            if stages[-1].stopped:
                break
        return TrialResult(trial, tuple(stages))

    def retested(self, trials: Sequence[TrialResult]) -> SweepResult:
        """Train the winner with fresh seeds."""
        best = winner(trials)
        assert best is not None
        self._say(f"{best.trial.name} wins; retested on {counted(self.settings.retest, 'fresh seed')}")
        found = self._train(self.settings.retests(best.trial))
        validation = tuple(run.validation for run in found if run.validation is not None)
        return SweepResult(tuple(trials), best, method_of(best.trial.name, found), validation)

    def _trained(self, trials: Sequence[Trial], share: float) -> tuple[Scores, dict[str, str]]:
        """Train up to a share of the budget; return the validation returns of trials by seed, and why others failed."""
        planned = [run for trial in trials for run in self.settings.planned(trial, share)]
        found, scores, failures = self._train(planned, describe=_validation_text), Scores(), dict[str, str]()
        for trial in trials:
            own = [run for run in found if run.method == trial.name]
            failed = [run for run in own if run.validation is None]
            if failed:
                failures[trial.name] = f"seed {failed[0].seed}: {failed[0].failure}"
            else:
                scores[trial.name] = tuple(run.validation for run in own if run.validation is not None)
        return scores, failures


def winner(trials: Sequence[TrialResult]) -> TrialResult | None:
    """Return the trial with the highest mean validation return after the whole budget; None before there is one."""
    return max((one for one in trials if one.finished), key=lambda one: mean_of(one.scores), default=None)


def _validation_text(run: ComparedRun) -> str:
    """Return what came of a run, without its test score, which chooses nothing."""
    if run.validation is None:
        return f"failed: {run.failure}"
    return f"{run.spent.frames:,} frames  validation {run.validation:z.2f}  {run.spent.seconds:,.0f} s"
