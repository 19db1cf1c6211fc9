"""Sweeps beside Optuna alone: what is found, and at what cost; `python -m benchmarks.sweeps`.

The same TPE sampler proposes the same number of trials, with the same seeds. Optuna alone trains every trial with the
whole budget, or stops it by its median pruner; a sweep stops it where the seeds show that it loses, or where it is not
in the best third of those so far.

The score of a trial is synthetic, so that its true mean is known: it depends on sigma and population, rises along the
budget at a rate that depends on the population, and has noise of the seed, some of which all trials share. With
`--board`, a genetic algorithm is trained on a 6 x 6 board, and what counts is the winner's test score on fresh seeds.
With Optuna installed only.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import math
import os
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from statistics import fmean
from typing import Any, Protocol

import numpy as np

import evo
from evo import statistics
from evo.comparison.runs import ComparedRun, PlannedRun
from evo.comparison.training import result_text, train
from evo.errors import extra
from evo.store.champion import Score
from evo.sweeps.race import SHARES, Journal, mean_of
from evo.sweeps.sweeping import Race, Study
from evo.sweeps.trials import PlannedSweep, Trial, axes_of

ROOT = Path(__file__).parent.parent
EXPERIMENT = ROOT / "experiments" / "ga_snake_6x6.toml"
TRIALS, SEEDS, RETESTS = 20, 3, 10
OF_SEED, OF_TRIAL = 1.0, 0.7  # standard deviations between seeds: what all trials share, and what each has of its own


def noise(*name: object) -> float:
    """Return a standard normal number that follows from a name."""
    digest = np.frombuffer(repr(name).encode(), np.uint8)
    return float(np.random.default_rng(digest.astype(np.uint32)).standard_normal())


class Benchmark(Protocol):
    """Trains runs, counts what they cost, and judges a winner."""

    over: tuple[str, ...]  # the options that are varied, as --over takes them
    sets: tuple[str, ...]  # what all trials have, as --set takes it
    generations: int
    unit: str  # of costs

    def __call__(
        self, planned: Sequence[PlannedRun], *, describe: Callable[[ComparedRun], str] = result_text
    ) -> list[ComparedRun]:
        """Return what came of each run."""

    def cost(self) -> float:
        """Return what was spent so far."""

    def judge(self, settings: PlannedSweep, trial: Trial) -> float:
        """Return the score that the winner is worth."""


@dataclass
class Landscape(Benchmark):
    """A synthetic benchmark, in place of training: where the best values are depends on its number."""

    number: int
    over = ("ga.sigma=0.003..3:log", "ga.population=64..4096:log")
    sets = ("ga.islands=1", "ga.parents=64")  # so that any population is one
    generations = 100
    unit = "generations"
    _trained: dict[tuple[str, int], int] = field(default_factory=dict)  # generations of every run, by trial and seed

    def true(self, experiment: Any, share: float = 1.0) -> float:
        """Return the mean score of the experiment over all seeds after a share of the budget."""
        options = experiment.options
        place = math.log10(options.sigma), math.log2(options.population)
        best = -1.0 + 0.6 * noise(self.number, "sigma"), 9.0 + 1.0 * noise(self.number, "population")
        final = 20.0 * math.exp(-(((place[0] - best[0]) / 0.7) ** 2) - ((place[1] - best[1]) / 4.0) ** 2)
        slow = 0.15 * 2.0 ** (0.25 * (place[1] - 9.0))  # large populations rise later
        return final * (1.0 - math.exp(-share / slow))

    def __call__(self, planned: Sequence[PlannedRun], *, describe: object = None) -> list[ComparedRun]:
        """Return what came of each run, and count what they cost."""
        return [self._result(run) for run in planned]

    def _result(self, run: PlannedRun) -> ComparedRun:
        experiment = run.experiment
        seed, share = experiment.run.seed, experiment.generations / self.generations
        done = self._trained.get((run.method, seed), 0)
        self._trained[run.method, seed] = max(experiment.generations, done)
        luck = OF_SEED * noise(self.number, seed) + OF_TRIAL * noise(self.number, seed, run.method)
        value = self.true(experiment, share) + luck * math.sqrt(share)
        score = Score(1000, value, (value, value), value, value, None, None, 1.0)
        return ComparedRun(run.method, experiment, run.directory, score=score, validation=value)

    def cost(self) -> float:
        """Return the generations of all runs."""
        return sum(self._trained.values())

    def judge(self, settings: PlannedSweep, trial: Trial) -> float:
        """Return the mean score over all seeds."""
        return self.true(trial.experiment)


@dataclass
class Board(Benchmark):
    """A genetic algorithm on a 6 x 6 board, trained for real."""

    number: int
    over = ("ga.sigma=0.003..3:log", "ga.parents=2..64:log", "ga.sigma_spread=0.0..2.0")
    sets = (
        *("ga.sigma_path=false", "ga.population=128", "ga.parents=64", "ga.elites=2", "ga.episodes=16"),
        *("run.starts=1", "run.start_generations=0", "test.episodes=500", "workers.backend=serial"),
    )
    generations = 24
    unit = "CPU-seconds"
    _spent: float = 0.0

    def __call__(
        self, planned: Sequence[PlannedRun], *, describe: Callable[[ComparedRun], str] = result_text
    ) -> list[ComparedRun]:
        """Train in this process."""
        began = time.process_time()
        found = train(planned, describe=describe, begin=_here)
        self._spent += time.process_time() - began
        return found

    def cost(self) -> float:
        """Return the processor time of all training."""
        return self._spent

    def judge(self, settings: PlannedSweep, trial: Trial) -> float:
        """Return the mean test score on fresh seeds."""
        scores = [run.score for run in train(settings.retests(trial), begin=_here)]
        return fmean(score.mean for score in scores if score is not None)


def _here(run: PlannedRun) -> str:
    *_, _ = evo.train(run.experiment, run.directory)
    return ""


@dataclass(frozen=True)
class Found:
    """What a search ended with."""

    worth: float  # score of the winner
    won_with: float
    cost: float  # of all trials, without retests
    retest: tuple[float, float] | None = None  # 95 % interval between fresh seeds


def settings_of(benchmark: Benchmark, number: int, directory: Path) -> PlannedSweep:
    """Return the settings of a sweep with seeds of its own."""
    first, count = 1 + 1000 * number, str(benchmark.generations)
    flags = {"generations": count, "seed": None, "workers": "1", "backend": None, "algorithm": None}
    return PlannedSweep(EXPERIMENT, benchmark.sets, flags, tuple(range(first, first + SEEDS)), RETESTS, directory)


def by_race(benchmark: Benchmark, settings: PlannedSweep) -> Found:
    """Return what `evo sweep --search optuna` finds."""
    race = Race(settings, Journal(settings.directory, {}), benchmark)
    search = Study(axes_of(benchmark.over), settings.seeds[0], TRIALS, race.journal)
    trials, cost = race.searched(search), benchmark.cost()
    result = race.retested(trials)
    best, (_, interval) = result.winner, statistics.t_interval(result.retest.scores)
    return Found(benchmark.judge(settings, best.trial), mean_of(best.scores), cost, interval)


def by_optuna(benchmark: Benchmark, settings: PlannedSweep, pruner: Callable[[Any], Any]) -> Found:
    """Return what Optuna finds with a pruner of its own, which sees the mean over seeds at the end of each stage."""
    optuna = extra("optuna", "--search")
    journal = Journal(settings.directory, {})
    search = Study(axes_of(benchmark.over), settings.seeds[0], TRIALS, journal)  # for its axes alone
    trials: list[tuple[float, Trial]] = []

    def objective(one: Any) -> float:
        for axis in search._axes:
            one._suggest(axis.key, search._distribution(axis))
        trial, value = settings.trial(search._values(one)), 0.0
        for stage, share in enumerate(SHARES):
            value = fmean(run.validation or 0.0 for run in benchmark(settings.planned(trial, share)))
            one.report(value, stage)
            if share < SHARES[-1] and one.should_prune():
                raise optuna.TrialPruned
        trials.append((value, trial))
        return value

    sampler = optuna.samplers.TPESampler(seed=settings.seeds[0])
    study = optuna.create_study(direction="maximize", sampler=sampler, pruner=pruner(optuna.pruners))
    study.optimize(objective, n_trials=TRIALS)
    value, best = max(trials, key=lambda one: one[0])
    cost = benchmark.cost()
    return Found(benchmark.judge(settings, best), value, cost)


ALONE = "Optuna, every trial to its end"
WAYS: dict[str, Callable[[Benchmark, PlannedSweep], Found]] = {
    "`evo sweep`": by_race,
    ALONE: lambda benchmark, settings: by_optuna(benchmark, settings, lambda pruners: pruners.NopPruner()),
    "Optuna, median pruner": lambda benchmark, settings: by_optuna(
        benchmark, settings, lambda pruners: pruners.MedianPruner()
    ),
}


def main() -> None:
    """Print a table: what each way finds, at what cost, and how often the retest's interval holds.

    Ctrl-C ends it with the searches that all ways have ended.
    """
    parser = argparse.ArgumentParser(prog="python -m benchmarks.sweeps", description=__doc__)
    parser.add_argument("--sweeps", type=int, default=200, help="searches of each way (200)")
    parser.add_argument("--board", action="store_true", help="train on a 6 x 6 board")
    given = parser.parse_args()
    extra("optuna", "--search")
    kind: Callable[[int], Benchmark] = Board if given.board else Landscape
    found: dict[str, list[Found]] = {name: [] for name in WAYS}
    with tempfile.TemporaryDirectory() as folder, contextlib.suppress(KeyboardInterrupt):
        first = settings_of(kind(0), 0, Path(folder) / "first")
        with contextlib.redirect_stdout(io.StringIO()):  # it compiles kernels, which no way shall be charged with
            kind(0)(first.planned(first.trial({}), SHARES[0])[:1])
        for number in range(given.sweeps):
            ends = [searched(way, kind(number), number, Path(folder)) for way in WAYS.values()]
            for name, end in zip(WAYS, ends, strict=True):
                found[name].append(end)
            print(f"\r{number + 1}/{given.sweeps}", end="", file=sys.stderr, flush=True)
    print("\n".join(table(found, kind(0)) if found[ALONE] else ["no search has ended"]))


def searched(way: Callable[[Benchmark, PlannedSweep], Found], benchmark: Benchmark, number: int, folder: Path) -> Found:
    """Return what one way finds, in a directory of its own, without what it prints."""
    with contextlib.redirect_stdout(io.StringIO()):
        return way(benchmark, settings_of(benchmark, number, Path(tempfile.mkdtemp(dir=folder))))


def table(found: dict[str, list[Found]], benchmark: Benchmark) -> list[str]:
    """Return the lines of the table."""
    whole = found[ALONE]
    all_of_it = fmean(one.cost for one in whole)
    lines = [f"{len(whole)} searches of {TRIALS} trials with {SEEDS} seeds each", ""]
    lines += [f"| search | {benchmark.unit} | of all | score of the winner | Optuna's, minus this | it won with |"]
    lines += ["|---|--:|--:|--:|--:|--:|"]
    for name, ends in found.items():
        mean, interval = statistics.t_interval(
            [other.worth - one.worth for one, other in zip(ends, whole, strict=True)]
        )
        less = "-" if ends is whole or interval is None else f"{mean:.2f} ({interval[0]:.2f} to {interval[1]:.2f})"
        cost, worth, won = (fmean(getattr(one, of) for one in ends) for of in ("cost", "worth", "won_with"))
        lines.append(f"| {name} | {cost:,.0f} | {cost / all_of_it:.0%} | {worth:.2f} | {less} | {won:.2f} |")
    retests = [(one.worth, one.retest) for one in found["`evo sweep`"] if one.retest]
    held = sum(low <= worth <= high for worth, (low, high) in retests)
    if isinstance(benchmark, Landscape):
        lines += ["", f"the interval of the retest holds the winner's true score in {held} of {len(retests)} sweeps"]
    return lines


if __name__ == "__main__":
    os.chdir(ROOT)
    main()
