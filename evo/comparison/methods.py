"""Methods of one league: what each scores over its seeds, and whether one of two wins."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING

from evo.comparison import bootstrap, permutation, student
from evo.config.sections import SPENT
from evo.errors import counted

if TYPE_CHECKING:
    from evo.comparison.outcomes import Outcome

Interval = tuple[float, float]
UNDECIDED = "not distinguishable with these seeds"
TOO_FEW = "too few seeds"
FEW = f"a verdict needs at least {permutation.LEAST_SEEDS} seeds each"


@dataclass(frozen=True)
class RunSummary:
    """A run as the report shows it."""

    seed: int
    run_dir: str
    generations: int
    frames: int
    seconds: float
    forward_passes: int | None
    multiply_adds: int | None
    cpu_seconds: float | None
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
    forward_passes: float | None  # None also where one of these runs did not count them
    multiply_adds: float | None
    cpu_seconds: float | None
    runs: tuple[RunSummary, ...]


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


def method_of(name: str, outcomes: Sequence[Outcome]) -> Method:
    """Return the row of a method; runs that failed are in no mean."""
    good = [(outcome, outcome.score) for outcome in outcomes if outcome.score is not None]
    scores = [score.mean for _, score in good]
    mean, interval = student.t_interval(scores) if scores else (None, None)
    enough = len(scores) >= bootstrap.LEAST_SEEDS
    widths = [(score.ci95[1] - score.ci95[0]) / 2 for _, score in good]
    experiment = outcomes[0].experiment
    return Method(
        name=name,
        algorithm=experiment.algorithm,
        weights=experiment.network().size,
        scores=tuple(scores),
        mean=mean,
        ci95=interval,
        interquartile_mean=bootstrap.interquartile_mean(scores) if enough else None,
        interquartile_ci95=bootstrap.interquartile_interval(scores) if enough else None,
        lowest=min(scores, default=None),
        highest=max(scores, default=None),
        within=_mean(widths),
        **{name: _mean_of([asdict(outcome.spent)[name] for outcome, _ in good]) for name in SPENT},
        runs=tuple(_run(outcome) for outcome in outcomes),
    )


def pair_of(first: Method, second: Method) -> Pair:
    """Return how two methods compare, without a verdict: that depends on all pairs."""
    ours, theirs = first.scores, second.scores
    few, known = min(len(ours), len(theirs)), bool(ours and theirs)
    return Pair(
        first=first.name,
        second=second.name,
        probability=bootstrap.probability_of_improvement(ours, theirs) if known else None,
        probability_ci95=bootstrap.improvement_interval(ours, theirs) if few >= bootstrap.LEAST_SEEDS else None,
        p_value=permutation.p_value(ours, theirs) if few >= permutation.LEAST_SEEDS else None,
        p_adjusted=None,
        winner=None,
        verdict=f"{FEW}; there are {len(ours)} and {len(theirs)}",
    )


def judged(pairs: Sequence[Pair], methods: Sequence[Method]) -> list[Pair]:
    """Return all pairs of a comparison with their verdicts; `methods` are those that they are of."""
    means = {method.name: method.mean for method in methods if method.mean is not None}
    adjusted = permutation.holm([pair.p_value for pair in pairs if pair.p_value is not None])
    least = _least_p_values(pairs, methods)
    both = iter(zip(adjusted, permutation.holm(least), strict=True))
    few = f"{TOO_FEW}: {_needed(len(least))}"
    return [pair if pair.p_value is None else _verdict(pair, *next(both), means=means, few=few) for pair in pairs]


def possible(pairs: Sequence[Pair], methods: Sequence[Method]) -> str:
    """Return a sentence where no pair of the comparison can have a winner, whatever the scores are; else nothing."""
    least = _least_p_values(pairs, methods)
    return impossible(len(least)) if least and min(least) * len(least) > permutation.LEVEL else ""


def impossible(pairs: int) -> str:
    """Return that so many pairs need more seeds than there are."""
    needed = permutation.seeds_needed(pairs)
    return (
        f"no winner can be named for {counted(pairs, 'pair')} with so few seeds, whatever the scores: "
        f"it takes at least {needed} seeds of each method"
    )


def ahead(methods: Sequence[Method]) -> str:
    """Return the name of a method that scores more than every other one on each of two or more seeds; else nothing."""
    scores = {method.name: {run.seed: run.score for run in method.runs} for method in methods}
    for name, ours in scores.items():
        others = [theirs for other, theirs in scores.items() if other != name]
        known = len(ours) > 1 and others and all(theirs.keys() == ours.keys() for theirs in others)
        if known and all(_above(score, theirs[seed]) for theirs in others for seed, score in ours.items()):
            return name
    return ""


def _above(ours: float | None, theirs: float | None) -> bool:
    return ours is not None and theirs is not None and ours > theirs


def _least_p_values(pairs: Sequence[Pair], methods: Sequence[Method]) -> list[float]:
    """Return the lowest p value that each tested pair could have had with its numbers of seeds."""
    seeds = {method.name: len(method.scores) for method in methods}
    tested = [pair for pair in pairs if pair.p_value is not None]
    return [permutation.least_p_value(seeds[pair.first], seeds[pair.second]) for pair in tested]


def _needed(pairs: int) -> str:
    """Return how many seeds so many pairs need."""
    verb = "needs" if pairs == 1 else "need"
    return f"{counted(pairs, 'pair')} {verb} {permutation.seeds_needed(pairs)} of each"


def _verdict(pair: Pair, adjusted: float, least: float, *, means: dict[str, float], few: str) -> Pair:
    """Return a pair with its verdict; `least` is the lowest adjusted p value that any scores could have had."""
    winner = None
    if adjusted <= permutation.LEVEL:
        winner = max(pair.first, pair.second, key=means.__getitem__)
    verdict = f"{winner} wins" if winner else UNDECIDED if least <= permutation.LEVEL else few
    return replace(pair, p_adjusted=adjusted, winner=winner, verdict=verdict)


def _run(outcome: Outcome) -> RunSummary:
    score = outcome.score
    return RunSummary(
        seed=outcome.seed,
        run_dir=str(outcome.directory),
        generations=outcome.generations,
        **asdict(outcome.spent),
        score=score.mean if score else None,
        ci95=(score.ci95[0], score.ci95[1]) if score else None,
        test_episodes=score.episodes if score else None,
        test_block=score.block if score else None,
        failure=outcome.failure or outcome.remark or None,
    )


def _mean(values: Sequence[float]) -> float | None:
    return sum(values) / len(values) if values else None


def _mean_of(amounts: Sequence[float | None]) -> float | None:
    """Return the mean of what was spent; None where one run did not count it."""
    known = [amount for amount in amounts if amount is not None]
    return _mean(known) if len(known) == len(amounts) else None
