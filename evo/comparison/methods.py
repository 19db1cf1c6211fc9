"""Methods of one league: what each scores over its seeds, and whether one of two wins."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from statistics import fmean

from evo import statistics
from evo.comparison.runs import ComparedRun
from evo.config.sections import SPENT
from evo.errors import counted
from evo.statistics import LEAST_SEEDS, LEVEL, Interval, holm, least_p_value, seeds_needed

UNDECIDED = "not distinguishable with these seeds"
TOO_FEW = "too few seeds"
FEW = f"a verdict needs at least {LEAST_SEEDS} seeds each"


@dataclass(frozen=True)
class RunRow:
    """A run as the comparison shows it."""

    seed: int
    run_dir: str
    generations: int
    frames: int
    seconds: float
    forward_passes: int
    multiply_adds: int
    cpu_seconds: float
    frames_validating: int
    score: float | None
    ci95: Interval | None  # within the champion: of its mean over all test episodes
    test_episodes: int | None
    test_block: int | None
    failure: str | None


@dataclass(frozen=True)
class Method:
    """A row of the table."""

    name: str
    algorithm: str
    weights: int  # of the network
    scores: tuple[float, ...]  # of the seeds that have one
    mean: float | None
    ci95: Interval | None  # between seeds, Student's; None for fewer than 2
    interquartile_mean: float | None
    interquartile_ci95: Interval | None  # None for fewer than 4 seeds
    lowest: float | None
    highest: float | None
    within: float | None  # mean half width of the intervals within the champions
    frames: float | None  # mean over the runs that have a score
    seconds: float | None
    forward_passes: float | None
    multiply_adds: float | None
    cpu_seconds: float | None
    runs: tuple[RunRow, ...]


@dataclass(frozen=True)
class Pair:
    """Two methods of one league."""

    first: str
    second: str
    probability: float | None  # that a run of the first is better than one of the second
    probability_ci95: Interval | None
    p_value: float | None  # None where there are too few seeds
    p_adjusted: float | None  # Holm's, over all pairs of the comparison
    winner: str | None
    verdict: str


def method_of(name: str, runs: Sequence[ComparedRun]) -> Method:
    """Return the row of a method; runs that failed are in no mean."""
    good = [(run, run.score) for run in runs if run.score is not None]
    scores = [score.mean for _, score in good]
    mean, interval = statistics.t_interval(scores) if scores else (None, None)
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
        within=fmean((score.ci95[1] - score.ci95[0]) / 2 for _, score in good) if good else None,
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
    """Return all pairs of a comparison with their verdicts, and a sentence where none can have a winner.

    `methods` are those that the pairs are of. The sentence is empty where scores could have given a winner.
    """
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
    if any(None in ours.values() or ours.keys() != next(iter(scores.values())).keys() for ours in scores.values()):
        return ""
    for name, ours in scores.items():
        others = [theirs for other, theirs in scores.items() if other != name]
        if (
            len(ours) > 1
            and others
            and all((score or 0.0) > (theirs[seed] or 0.0) for theirs in others for seed, score in ours.items())
        ):
            return name
    return ""
