"""Trains the trials of a sweep stage by stage, decides who goes on, and retests the winner on fresh seeds."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Protocol

from evo.cli.comparing import train_all
from evo.errors import ResourceError, counted
from evo.sweep.race import SHARES, Standing, judged, mean_of, stops
from evo.sweep.trials import Settings, Trial

if TYPE_CHECKING:
    from evo.comparison.methods import Method
    from evo.comparison.outcomes import Outcome
    from evo.comparison.plan import Member
    from evo.sweep.journal import Journal
    from evo.sweep.search import Search

Scores = dict[str, tuple[float, ...]]


class Train(Protocol):
    """Trains runs as far as they are to go, and returns what came of each."""

    def __call__(self, members: Sequence[Member], *, describe: Callable[[Outcome], str] | None = None) -> list[Outcome]:
        """Return an outcome for each member, in order, and show a line a run in the words of `describe`."""


@dataclass(frozen=True)
class TrialResult:
    """A trial of a sweep that has ended."""

    trial: Trial
    stages: tuple[Standing, ...]  # at the end of each stage that it has trained to

    @property
    def finished(self) -> bool:
        """Return whether it has trained with the whole budget."""
        return len(self.stages) == len(SHARES) and not self.stages[-1].stopped


def race(settings: Settings, trials: Sequence[Trial], journal: Journal, train: Train = train_all) -> list[TrialResult]:
    """Train the trials side by side, a stage after the other; ResourceError where none of them can be trained."""
    alive, stages = list(trials), dict[str, list[Standing]]()
    for share in SHARES:
        standings = journal.stage(_stage(share))
        if standings is None:
            print(f"up to {share:.0%} of the budget: {counted(len(alive), 'trial')}", flush=True)
            standings = judged(*_trained(settings, alive, share, train), last=share == SHARES[-1])
            journal.decide(_stage(share), standings)
        for one in standings:
            stages.setdefault(one.name, []).append(one)
            if one.stopped:
                print(f"{one.name} stops: {one.stopped}", flush=True)
        going = {one.name for one in standings if not one.stopped}
        alive = [trial for trial in alive if trial.name in going]
        if not alive:
            raise ResourceError(f"no trial can be trained; {standings[0].name} {standings[0].stopped}")
    return [TrialResult(trial, tuple(stages[trial.name])) for trial in trials]


def searched(settings: Settings, search: Search, journal: Journal, train: Train = train_all) -> list[TrialResult]:
    """Train one trial after the other, each against the best before it; ResourceError where none can be trained."""
    runs = dict[str, TrialResult]()
    for tried in search.tried():
        run = _tried(settings, settings.trial(tried), runs, journal, train)
        runs[run.trial.name] = run
    while (values := search.next()) is not None:
        run = _tried(settings, settings.trial(values), runs, journal, train)
        search.tell(run.stages)
        runs[run.trial.name] = run
    if not any(run.finished for run in runs.values()):
        raise ResourceError("no trial can be trained; the lines above say why")
    return list(runs.values())


def _tried(
    settings: Settings, trial: Trial, runs: Mapping[str, TrialResult], journal: Journal, train: Train
) -> TrialResult:
    """Train a trial until it loses to the best one, or falls behind those before."""
    best, stages = winner(list(runs.values())), list[Standing]()
    for number, share in enumerate(SHARES):
        known = journal.stage(f"{trial.name} {_stage(share)}")
        if known is None:
            scores, failures = _trained(settings, [trial], share, train)
            (standing,) = judged(scores, failures, last=True)
            if best is not None and standing.scores and share < SHARES[-1]:
                before = [run.stages[number].scores for run in runs.values() if len(run.stages) > number]
                rivals = [standing.scores, *filter(None, before)]
                standing = replace(standing, stopped=stops(standing.scores, best.stages[number].scores, rivals))
            known = [standing]
            journal.decide(f"{trial.name} {_stage(share)}", known)
            if standing.stopped:
                print(f"{trial.name} stops: {standing.stopped}", flush=True)
        stages += known
        if stages[-1].stopped:
            break
    return TrialResult(trial, tuple(stages))


def winner(runs: Sequence[TrialResult]) -> TrialResult | None:
    """Return the trial with the highest mean validation return after the whole budget; None before there is one."""
    finished = [run for run in runs if run.finished]
    return max(finished, key=lambda run: mean_of(run.stages[-1].scores), default=None)


def retested(settings: Settings, run: TrialResult, train: Train = train_all) -> tuple[Method, list[Outcome]]:
    """Train the winner with fresh seeds; return its test scores, and what came of each run."""
    from evo.comparison.methods import method_of

    print(f"{run.trial.name} wins; retested on {counted(settings.retest, 'fresh seed')}", flush=True)
    found = train(settings.retests(run.trial))
    return method_of(run.trial.name, found), found


def _trained(settings: Settings, trials: Sequence[Trial], share: float, train: Train) -> tuple[Scores, dict[str, str]]:
    """Train up to a share of the budget; return the validation returns of trials by seed, and why others failed."""
    members = [member for trial in trials for member in settings.members(trial, share)]
    found, scores, failures = train(members, describe=_described), Scores(), dict[str, str]()
    for trial in trials:
        own = [outcome for outcome in found if outcome.method == trial.name]
        failed = [outcome for outcome in own if outcome.validation is None]
        if failed:
            failures[trial.name] = f"seed {failed[0].seed}: {failed[0].failure}"
        else:
            scores[trial.name] = tuple(outcome.validation for outcome in own if outcome.validation is not None)
    return scores, failures


def _described(outcome: Outcome) -> str:
    """Return what came of a run, without its test score, which chooses nothing."""
    if outcome.validation is None:
        return f"failed: {outcome.failure}"
    return f"{outcome.frames:,} frames  validation {outcome.validation:z.2f}  {outcome.seconds:,.0f} s"


def _stage(share: float) -> str:
    return f"{share:g}"
