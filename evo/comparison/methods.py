"""Methods of one track: what each scores over its seeds, and for what it spends; whether one of two wins.

A run that ends below the score to be reached is censored: it would have taken longer, by an unknown amount. The median
is that of the Kaplan-Meier estimator (Kaplan and Meier, 1958), which uses what is known of these runs; a mean of the
others would make a method look fast that seldom gets there.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import lru_cache
from pathlib import Path
from statistics import fmean
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from evo import statistics
from evo.comparison.runs import ComparedRun
from evo.config.sections import SPENT, plural
from evo.errors import counted
from evo.files.layout import METRICS
from evo.statistics import LEAST_SEEDS, LEVEL, Interval, holm, least_p_value, seeds_needed
from evo.store.metrics import MetricsFile
from evo.training.accounting import COUNTED, SO_FAR

UNDECIDED = "not distinguishable with these seeds"
TOO_FEW = "too few seeds"
FEW = f"a verdict needs at least {LEAST_SEEDS} seeds each"
POINTS = 200  # of a curve
WAY = 0.75  # from the weakest player that needs no learning to the best method, where no score to reach is named
Points = tuple[NDArray[np.float64], NDArray[np.float64]]  # spent [T], score [T]


@dataclass(frozen=True)
class RunRow:
    """A run as the comparison shows it; amounts are as in `Method`."""

    seed: int
    run_dir: str
    generations: int
    frames: int
    seconds: float
    forward_passes: int
    multiply_adds: int
    cpu_seconds: float
    frames_validating: int
    score: float | None  # of its champion: mean score of a test episode
    ci95: Interval | None  # within the champion: of its mean over all test episodes
    test_episodes: int | None
    test_block: int | None
    failure: str | None  # why there is no score, or what to know of it


@dataclass(frozen=True)
class Method:
    """What the runs of one method score and spend; a row of a table. Intervals are at 95 %."""

    name: str
    algorithm: str
    weights: int  # of the network
    scores: tuple[float, ...]  # of the seeds that have one
    mean: float | None  # of the scores
    ci95: Interval | None  # of the mean, between seeds (Student, 1908); None for fewer than 2
    interquartile_mean: float | None  # (Agarwal et al., 2021); None for fewer than 4 seeds
    interquartile_ci95: Interval | None
    lowest: float | None  # score
    highest: float | None
    within: float | None  # mean half width of the intervals within the champions
    frames: float | None  # of training; this and what follows are means over the runs that have a score
    seconds: float | None  # wall clock of training
    forward_passes: float | None  # of networks
    multiply_adds: float | None  # of all passes
    cpu_seconds: float | None  # of processor time
    runs: tuple[RunRow, ...]


@dataclass(frozen=True)
class Pair:
    """Two methods of one table, and whether one wins."""

    first: str
    second: str
    probability: float | None  # that a run of the first is better than one of the second (Agarwal et al., 2021)
    probability_ci95: Interval | None  # its 95 % interval
    p_value: float | None  # of a permutation test of the means, two-sided; None where there are too few seeds
    p_adjusted: float | None  # for the number of all pairs of the comparison (Holm, 1979)
    winner: str | None  # its name, where p_adjusted is at most 0.05
    verdict: str  # in words


def method_of(name: str, runs: Sequence[ComparedRun]) -> Method:
    """Return the row of a method; runs that failed are in no mean."""
    good = [(run, run.score) for run in runs if run.score is not None]
    scores = [score.mean for _, score in good]
    mean, interval = statistics.t_interval(scores)
    halves = [(high - low) / 2 for low, high in (score.ci95 for _, score in good) if math.isfinite(low)]
    enough = len(scores) >= LEAST_SEEDS
    return Method(
        name=name,
        algorithm=runs[0].experiment.algorithm,
        weights=runs[0].experiment.network().size,
        scores=tuple(scores),
        mean=mean,
        ci95=interval,
        interquartile_mean=statistics.interquartile_mean(scores) if enough else None,
        interquartile_ci95=statistics.interquartile_interval(scores) if enough else None,
        lowest=min(scores, default=None),
        highest=max(scores, default=None),
        within=fmean(halves) if halves else None,
        **{name: fmean(getattr(run.spent, name) for run, _ in good) if good else None for name in SPENT},
        runs=tuple(map(_row, runs)),
    )


def _row(run: ComparedRun) -> RunRow:
    score = run.score
    return RunRow(
        seed=run.seed,
        run_dir=str(run.directory),
        generations=run.generations,
        **asdict(run.spent),
        score=score.mean if score else None,
        ci95=(score.ci95[0], score.ci95[1]) if score else None,
        test_episodes=score.episodes if score else None,
        test_block=score.block if score else None,
        failure=run.failure or run.remark or None,
    )


def pair_of(first: Method, second: Method) -> Pair:
    """Return how two methods compare, without a verdict: that depends on all pairs."""
    ours, theirs = first.scores, second.scores
    few, known = min(len(ours), len(theirs)), bool(ours and theirs)
    return Pair(
        first=first.name,
        second=second.name,
        probability=statistics.probability_of_improvement(ours, theirs) if known else None,
        probability_ci95=statistics.improvement_interval(ours, theirs) if few >= LEAST_SEEDS else None,
        p_value=statistics.permutation_p_value(ours, theirs) if few >= LEAST_SEEDS else None,
        p_adjusted=None,
        winner=None,
        verdict=f"{FEW}; there are {len(ours)} and {len(theirs)}",
    )


def judged(pairs: Sequence[Pair], methods: Sequence[Method]) -> tuple[list[Pair], str]:
    """Return pairs with their verdicts, and a sentence where no scores of these `methods` could have given a winner."""
    means = {method.name: method.mean for method in methods if method.mean is not None}
    seeds = {method.name: len(method.scores) for method in methods}
    tested = [pair for pair in pairs if pair.p_value is not None]
    least = [least_p_value(seeds[pair.first], seeds[pair.second]) for pair in tested]  # that any scores could have had
    adjusted = holm([pair.p_value for pair in tested if pair.p_value is not None])
    verb = "needs" if len(tested) == 1 else "need"
    few = f"{TOO_FEW}: {counted(len(tested), 'pair')} {verb} {seeds_needed(len(tested))} of each"
    found = []
    for pair, p_adjusted, possible in zip(tested, adjusted, holm(least), strict=True):
        winner = max(pair.first, pair.second, key=means.__getitem__) if p_adjusted <= LEVEL else None
        verdict = f"{winner} wins" if winner else UNDECIDED if possible <= LEVEL else few
        found.append(replace(pair, p_adjusted=p_adjusted, winner=winner, verdict=verdict))
    with_verdicts = iter(found)
    none = impossible(len(least)) if least and min(least) * len(least) > LEVEL else ""
    return [pair if pair.p_value is None else next(with_verdicts) for pair in pairs], none


def impossible(pairs: int) -> str:
    """Return that this number of pairs needs more seeds than there are."""
    return (
        f"no winner can be named for {counted(pairs, 'pair')} with so few seeds, whatever the scores: "
        f"it takes at least {seeds_needed(pairs)} seeds of each method"
    )


def ahead(methods: Sequence[Method]) -> str:
    """Return the name of a method that scores more than every other one on each of two or more seeds; else nothing."""
    scores = {method.name: {run.seed: run.score for run in method.runs} for method in methods}
    seeds = next(iter(scores.values())).keys()
    few = min(len(scores), len(seeds)) < 2
    if few or any(None in ours.values() or ours.keys() != seeds for ours in scores.values()):
        return ""
    for name, ours in scores.items():
        others = [theirs for other, theirs in scores.items() if other != name]
        if all((score or 0.0) > (theirs[seed] or 0.0) for theirs in others for seed, score in ours.items()):
            return name
    return ""


class Curve(NamedTuple):
    """A mean with its interval, of one method."""

    method: str
    seeds: int
    x: NDArray[np.float64]  # [X]
    mean: NDArray[np.float64]
    low: NDArray[np.float64]  # NaN with one seed
    high: NDArray[np.float64]


@dataclass(frozen=True)
class Reached:
    """What a method spent until it reached the score; medians by Kaplan and Meier (1958)."""

    method: str
    runs: int  # all of them, those that failed too
    reached: int  # runs that did
    unknown: int  # runs whose metrics have no test
    medians: dict[str, float | None]  # of each amount; None where fewer than half of the runs are known to reach it
    spent: dict[str, float]  # the most that a run has spent, which a median that is None lies above


@dataclass(frozen=True)
class Reaching:
    """The target score, and how fast methods reach it."""

    score: float  # mean of a test
    methods: tuple[Reached, ...]


class Plot(NamedTuple):
    """Curves of methods, with what is along the axes."""

    name: str  # of a file
    title: str
    across: str
    up: str
    about: str
    curves: list[Curve]


def plots(methods: Sequence[Method]) -> Iterator[Plot]:
    """Yield the score against every amount, and the performance profiles; those without curves too."""
    for amount in COUNTED:
        curves = []
        for method in methods:
            runs = [points_of(Path(run.run_dir)) for run in method.runs if run.score is not None]
            if known := [points[amount] for points in runs if amount in points]:
                x, (mean, low, high) = mean_over_seeds(known)
                curves.append(Curve(method.name, len(known), x, mean, low, high))
        about, of = "mean over seeds with its 95 % interval", plural(amount)
        yield Plot(f"score-{amount}", f"Score over {of}", of, "test score", about, curves)
    about, every = "the share of runs above a score, with 95 % intervals", [s for one in methods for s in one.scores]
    margin = 0.05 * (max(every) - min(every)) or 1.0 if every else 0.0
    x = np.linspace(min(every, default=0.0) - margin, max(every, default=0.0) + margin, POINTS)
    scored = [method for method in methods if method.scores]
    curves = [Curve(one.name, len(one.scores), x, *statistics.performance_profile(one.scores, x)) for one in scored]
    yield Plot("profiles", "Performance profile", "test score", "share of runs", about, curves)


def points_of(directory: Path) -> Mapping[str, Points]:
    """Return the test scores of a run and what it had spent at each, by the amount; empty where none are known."""
    try:
        file = (directory / METRICS).stat()
    except OSError:
        return {}
    return _tests_in(directory, file.st_mtime_ns, file.st_size)


@lru_cache
def _tests_in(directory: Path, *_: int) -> Mapping[str, Points]:
    """Return as `points_of`, from a file that is read again when its time or its size has changed."""
    wanted = ("test", *(amount + SO_FAR for amount in COUNTED))
    lines = [line for line in MetricsFile(directory).read() if all(line.get(name) is not None for name in wanted)]
    scores, *spent = np.array([[line[name] for line in lines] for name in wanted], np.float64)
    return {amount: (row, scores) for amount, row in zip(COUNTED, spent, strict=True)} if lines else {}


def mean_over_seeds(curves: Sequence[Points]) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return where curves of several seeds are known, and there the mean with Student's interval.  # [X], [3, X]

    A run keeps a score until its next test, and its last one to the end, so every point has all seeds. With one seed
    the interval is NaN.
    """
    first, last = (max(spent[end] for spent, _ in curves) for end in (0, -1))
    grid = np.linspace(first, last, POINTS)
    scores = np.array([values[np.searchsorted(spent, grid, side="right") - 1] for spent, values in curves])  # [S, X]
    found = [statistics.t_interval(column) for column in scores.T.tolist()]
    return grid, np.array([(mean, *(ends or (math.nan, math.nan))) for mean, ends in found]).T


def score_between(methods: Sequence[Method], players: Mapping[str, float]) -> float | None:
    """Return three quarters of the way from the weakest player to the best method, rounded; None: there is none."""
    means = [method.mean for method in methods if method.mean is not None]
    if not means or not players or max(means) <= min(players.values()):
        return None
    weakest, best = min(players.values()), max(means)
    digits = 2 - math.floor(math.log10(best - weakest))  # of which the difference has three
    return round(weakest + WAY * (best - weakest), digits)


def reaching(methods: Sequence[Method], score: float) -> Reaching:
    """Return what methods spent until a test of the best network so far had this score; failed runs had not."""
    found = []
    for method in methods:
        medians, spent, counts = dict[str, float | None](), dict[str, float](), (0, 0)
        runs = [(run, points_of(Path(run.run_dir))) for run in method.runs]
        for amount in COUNTED:
            ends = []
            for run, points in runs:
                if amount in points:
                    ends.append(first_reaching(*points[amount], score))
                elif run.score is None:
                    ends.append((float(getattr(run, amount)), False))
            if any(time for time, _ in ends):
                medians[amount] = statistics.kaplan_meier_median(ends)
                spent[amount] = max(time for time, _ in ends)
                counts = len(ends), sum(there for _, there in ends)
        unknown = sum(not points and run.score is not None for run, points in runs)
        if medians or unknown:
            found.append(Reached(method.name, *counts, unknown, medians, spent))
    return Reaching(score, tuple(found))


def first_reaching(spent: NDArray[np.float64], scores: NDArray[np.float64], score: float) -> tuple[float, bool]:
    """Return the amount spent at the first test with this score, or in all; and whether there is one.  # [T], [T]"""
    above = np.flatnonzero(scores >= score)
    return (float(spent[above[0]]), True) if len(above) else (float(spent[-1]), False)
