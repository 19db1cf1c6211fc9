"""Trains the trials of a sweep stage by stage, decides which go on, and retests the winner on fresh seeds.

Optuna's TPE sampler (Bergstra et al., 2011) may choose values, learning from those before. Its study is in memory: the
journal of the sweep has what it chose and the results. The sampler is made anew for every trial, from a seed and
the number of trials before, so that a search that was stopped goes on as if it had not been.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

from evo.comparison.methods import Method, method_of
from evo.comparison.runs import ComparedRun, PlannedRun
from evo.comparison.training import Show
from evo.comparison.training import train as train_side_by_side
from evo.errors import ConfigurationError, DataError, ResourceError, counted, extra, path_of, require_callable
from evo.files.lock import held
from evo.plugins import registry
from evo.store.run import Run
from evo.sweeps.race import SHARES, Journal, Standing, judged, mean_of, stops
from evo.sweeps.trials import TRIED, Axis, PlannedSweep, Trial, Values, axes_of

Scores = dict[str, tuple[float, ...]]
Train = Callable[..., list[ComparedRun]]  # as `evo.comparison.training.train`

SEEDS = 1 << 32
TRIES = 2  # of a run that lacks memory, before its trial has failed
MOST_REFUSED = 100  # trials that an experiment refuses, where it has not taken any


@dataclass(frozen=True)
class TrialResult:
    """A trial of a sweep that has ended."""

    trial: Trial
    stages: tuple[Standing, ...]  # at the end of each stage that it has trained to

    @property
    def finished(self) -> bool:
        """Whether it has trained with the whole budget."""
        return len(self.stages) == len(SHARES) and not self.stages[-1].stopped

    @property
    def scores(self) -> tuple[float, ...]:
        """Its mean validation returns at the end of its last stage, by seed."""
        return self.stages[-1].scores


@dataclass(frozen=True)
class SweepResult:
    """The result of `sweep`."""

    trials: tuple[TrialResult, ...]  # in the order in which they were planned or chosen
    winner: TrialResult  # of the highest mean validation return after the whole budget
    retest: Method  # test scores of the winner on fresh seeds
    validation: tuple[float, ...]  # its validation returns on these seeds


def sweep(
    file: str | Path,
    *over: str,
    sets: Sequence[str] = (),
    seeds: int = 3,
    retest: int = 10,
    trials: int | None = None,
    directory: str | Path | None = None,
    plugins: Sequence[registry.Plugin] = (),
    progress: Show | None = None,
    **flags: object,
) -> SweepResult:
    """Race every combination of values of an experiment's options, and retest the winner on fresh seeds.

    `over` are options with values, "ga.sigma=0.05,0.1". With `trials`, Optuna chooses that many, also from ranges,
    "ga.sigma=0.01..1:log". `sets`, `plugins` and `flags` (algorithm, seed, generations, workers, backend) are as in a
    run. `progress` gets a line for every run and every decision. A sweep that was stopped goes on by the same call.
    ConfigurationError: an argument or the experiment is wrong. LockedError: another process has the sweep.
    ResourceError: no trial can be trained, or the machine lacks something. The race: `evo/sweeps/race.py` (successive
    halving, Jamieson and Talwalkar, 2016; irace, López-Ibáñez et al., 2016).
    """
    require_callable(progress)
    registry.load(plugins, path_of("file", file))
    options = {"sets": sets, "seeds": seeds, "retest": retest, "trials": trials, "directory": directory}
    return swept(PlannedSweep.of(file, over, flags=flags, **options), progress)  # type: ignore[arg-type]


def swept(planned: PlannedSweep, progress: Show | None = None, live: Show | None = None) -> SweepResult:
    """Race the trials and retest the winner; `progress` and `live` are as in `evo.comparison.training.train`."""
    with held(planned.directory):
        train = partial(train_side_by_side, progress=progress, live=live, option="--directory")
        race = Race(planned, planned.journal(), train, progress)
        if planned.chosen is None:
            trials = race.side_by_side(planned.grid)
        else:
            trials = race.searched(Study(axes_of(planned.over), planned.seeds[0], planned.chosen, race.journal))
        return race.retested(trials)


class Race:
    """Trains the trials of a sweep, and keeps every decision."""

    def __init__(
        self, settings: PlannedSweep, journal: Journal, train: Train = train_side_by_side, progress: Show | None = None
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
            self._say_stopped(standings)
            going = {one.name for one in standings if not one.stopped}
            alive = [trial for trial in alive if trial.name in going]
            if not alive:
                raise ResourceError(f"no trial can be trained; {standings[0].name} {standings[0].stopped}")
        return [TrialResult(trial, tuple(stages[trial.name])) for trial in trials]

    def searched(self, search: Study) -> list[TrialResult]:
        """Train one trial after the other, each against the best before it; ResourceError: none can be trained.

        Values that the experiment refuses are a failed trial; ConfigurationError: it refuses all, or the first hundred.
        """
        found, refused, begun = dict[str, TrialResult](), list[Standing](), False
        while (begun or len(found) < MOST_REFUSED) and (values := search.next()) is not None:
            trial = self.settings.tried(values)
            failed = judged({}, {trial.name: trial.refused} if trial.refused else {}, last=True)
            refused += failed
            if failed:
                self.journal.keep(f"{trial.name} {SHARES[0]:g}", failed)
            if begun := begun or not failed:  # before that, the directory is left to another --over
                self.journal.write()
                self._say_stopped(refused)
                refused.clear()
            result = TrialResult(trial, tuple(failed)) if failed else self._against(trial, found)
            search.tell(result.stages)
            found[trial.name] = result
        if not begun:
            what = f"the experiment refuses all values that were chosen for {counted(len(found), 'trial')}"
            raise ConfigurationError(f"{what}; the last: {[*found.values()][-1].trial.refused}")
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
                self._say_stopped(known)
            stages += known
            if stages[-1].stopped:
                break
        return TrialResult(trial, tuple(stages))

    def _say_stopped(self, standings: Sequence[Standing]) -> None:
        for one in standings:
            if one.stopped:
                self._say(f"{one.name} stops: {one.stopped}")

    def retested(self, trials: Sequence[TrialResult]) -> SweepResult:
        """Train the winner with fresh seeds; ConfigurationError: a run has gone on since its trial was decided."""
        for decided in trials:
            for run in self.settings.planned(decided.trial, SHARES[len(decided.stages) - 1]):
                after = " after its trial was decided; move it away, and the decision stays"
                _refuse_longer(run, _generations_in(run.directory), after)
        best = winner(trials)
        assert best is not None
        self._say(f"{best.trial.name} wins; retested on {counted(self.settings.retest, 'fresh seed')}")
        found = _within(self._train(self.settings.retests(best.trial)))
        validation = tuple(run.validation for run in found if run.validation is not None)
        return SweepResult(tuple(trials), best, method_of(best.trial.name, found), validation)

    def _trained(self, trials: Sequence[Trial], share: float) -> tuple[Scores, dict[str, str]]:
        """Train up to a share of the budget; return the validation returns of trials by seed, and why others failed.

        ResourceError: a run failed for no fault of its own, so that nothing can be decided.
        """
        planned = [run for trial in trials for run in self.settings.planned(trial, share)]
        found = _within(self._train(planned, describe=_validation_text))
        lacked = self.journal.lacked_memory
        for run in (one for one in found if one.memory):
            lacked[run.directory.name] = lacked.get(run.directory.name, 0) + 1
            self.journal.write()
        last = [run for run in found if run.memory and lacked[run.directory.name] >= TRIES]
        if lost := next((run for run in found if run.outside and run not in last), None):
            why = f"{lost.method}: seed {lost.seed}: {lost.failure}"
            raise ResourceError(f"{why}; this decides nothing about the trial: the same command goes on with it")
        scores, failures = Scores(), dict[str, str]()
        for trial in trials:
            own = [run for run in found if run.method == trial.name]
            failed = [run for run in own if run.validation is None]
            if failed:
                failures[trial.name] = f"seed {failed[0].seed}: {failed[0].failure}"
            else:
                scores[trial.name] = tuple(run.validation for run in own if run.validation is not None)
        return scores, failures


def _within(found: list[ComparedRun]) -> list[ComparedRun]:
    """Return these runs; ConfigurationError: one has trained for longer than the others."""
    for run in found:
        _refuse_longer(run, run.generations, "; remove it, and it is trained anew")
    return found


def _refuse_longer(run: PlannedRun | ComparedRun, generations: int, then: str) -> None:
    if generations > run.experiment.generations:
        raise ConfigurationError(
            f"{run.directory}: has {counted(generations, 'generation')}, and the other runs have "
            f"{run.experiment.generations:,} here, so it was resumed by itself{then}"
        )


def _generations_in(directory: Path) -> int:
    """Return how many generations a run has; 0 where it is gone, or cannot be read."""
    with suppress(DataError):
        return Run(directory).store.next_generation
    return 0


def winner(trials: Sequence[TrialResult]) -> TrialResult | None:
    """Return the trial with the highest mean validation return after the whole budget; None before there is one."""
    return max((one for one in trials if one.finished), key=lambda one: mean_of(one.scores), default=None)


class Study:
    """What Optuna chooses, learning from the results of its trials."""

    def __init__(self, axes: Sequence[Axis], seed: int, trials: int, journal: Journal) -> None:
        """Begin anew with what the journal knows; DataError: it has values that are not of these axes."""
        self._axes, self._seed, self._count, self._ended, self._chosen = axes, seed, trials, 0, journal.chosen
        for values in self._chosen:
            if values.keys() != {axis.key for axis in axes} or not all(axis.holds(values[axis.key]) for axis in axes):
                raise journal.damaged()
        self._optuna = extra("optuna", "--search")
        self._optuna.logging.set_verbosity(self._optuna.logging.ERROR)
        self._study = self._optuna.create_study(direction="maximize")

    def next(self) -> Values | None:
        """Return the values of the next trial, which the journal keeps; None where there are enough."""
        if self._ended >= self._count:
            return None
        if known := self._ended < len(self._chosen):
            self._study.enqueue_trial(self._chosen[self._ended])
        self._study.sampler = self._optuna.samplers.TPESampler(seed=(self._seed + self._ended) % SEEDS)
        self._trial = self._study.ask({axis.key: self._distribution(axis) for axis in self._axes})
        if not known:
            self._chosen.append(self._trial.params)
        return self._values(self._trial)

    def tell(self, stages: Sequence[Standing]) -> None:
        """Learn how the trial stood at the end of its stages."""
        scored, states = [one for one in stages if one.scores], self._optuna.trial.TrialState
        for number, one in enumerate(scored):
            self._trial.report(mean_of(one.scores), number)
        if len(scored) < len(stages):
            self._study.tell(self._trial, state=states.FAIL)
        elif stages[-1].stopped:
            self._study.tell(self._trial, state=states.PRUNED)
        else:
            self._study.tell(self._trial, mean_of(stages[-1].scores))
        self._ended += 1

    def _values(self, trial: Any) -> Values:
        drawn = [(axis.key, trial.params[axis.key]) for axis in self._axes]
        return {key: f"{value:{TRIED}}" if isinstance(value, float) else str(value) for key, value in drawn}

    def _distribution(self, axis: Axis) -> Any:
        if not axis.is_range:
            return self._optuna.distributions.CategoricalDistribution(axis.values)
        if axis.whole:
            return self._optuna.distributions.IntDistribution(int(axis.low), int(axis.high), log=axis.log)
        return self._optuna.distributions.FloatDistribution(axis.low, axis.high, log=axis.log)


def _validation_text(run: ComparedRun) -> str:
    """Return the result of a run, without its test score, which chooses nothing."""
    if run.validation is None:
        return f"failed: {run.failure}"
    return f"{run.spent.frames:,} frames  validation {run.validation:z.2f}  {run.spent.seconds:,.0f} s"
