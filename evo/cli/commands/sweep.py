"""Try values of options, and retest the winner on fresh seeds."""

from __future__ import annotations

from argparse import ArgumentParser, Namespace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from evo.cli.arguments import add, whole
from evo.errors import ConfigurationError, ResourceError, counted, notice, printable_lines
from evo.plugins import registry

if TYPE_CHECKING:
    from collections.abc import Sequence

    from evo.cli.sweeping import TrialResult
    from evo.comparison.methods import Method
    from evo.comparison.outcomes import Outcome
    from evo.sweep.journal import Journal
    from evo.sweep.space import Axis
    from evo.sweep.trials import Settings, Trial

SUMMARISED = False
SEARCHES = ("grid", "optuna")
MOST_SEEDS = 100


def add_arguments(parser: ArgumentParser) -> None:
    """Declare the command line."""
    parser.add_argument("experiment", metavar="EXPERIMENT.toml", help="the experiment file")
    over = "an option and its values, as in ga.sigma=0.05,0.1; with optuna also a range, ga.sigma=0.01..1:log"
    parser.add_argument("--over", action="append", default=[], required=True, metavar="KEY=VALUES", help=over)
    parser.add_argument("--seeds", default="3", metavar="N", help="seeds of every trial (default: 3)")
    parser.add_argument("--retest", default="10", metavar="N", help="fresh seeds of the winner (default: 10)")
    search = "grid: every combination; optuna: values chosen by its TPE sampler (default: grid)"
    parser.add_argument("--search", choices=SEARCHES, default="grid", help=search)
    parser.add_argument("--trials", metavar="N", help="number of trials, with --search optuna")
    parser.add_argument("--directory", metavar="DIR", help="where the runs are (default: runs/sweep-EXPERIMENT)")
    parser.add_argument("--algorithm", metavar="NAME", help="the algorithm; see `evo list`")
    more = "change any option of the file, for all trials; without a value: back to its default; may be repeated"
    parser.add_argument("--set", action="append", default=[], metavar="SECTION.KEY=VALUE", help=more)
    parser.add_argument("--seed", metavar="N", help="the first seed")
    parser.add_argument("--generations", metavar="N", help="number of generations in total")
    parser.add_argument("--dry-run", action="store_true", help="show what would be trained, and do not train")
    add(parser, "--workers", "--backend", "--plugin", "--json")


def main(arguments: Namespace) -> int:
    """Race the trials, and retest the winner."""
    from evo.sweep import search, space

    registry.load(arguments.plugin, arguments.experiment)
    axes, optuna = space.axes_of(arguments.over), arguments.search == "optuna"
    count = whole("--trials", arguments.trials, 1, space.MOST_TRIALS)
    if optuna != (count is not None):
        raise ConfigurationError("--search optuna and --trials N go together")
    if optuna:
        search.library()
    settings = _settings(arguments)
    grid = [] if optuna else [settings.trial(values) for values in space.grid(axes)]
    from evo.sweep.trials import budget_of, different

    different(grid)
    base = settings.trial({}).experiment
    trials = count if count is not None else len(grid)
    print(
        f"{counted(trials, 'trial')} with {counted(len(settings.seeds), 'seed')} each, {budget_of(base)} a run; "
        f"runs in {settings.directory}",
        flush=True,
    )
    if arguments.dry_run:
        print("".join(f"  {trial.name}\n" for trial in grid), end="")
        return 0
    from evo.files.lock import held

    try:
        with held(settings.directory):
            runs = _raced(arguments, settings, axes, grid, count)
            return _retested(arguments, settings, runs)
    except KeyboardInterrupt:
        notice("what is trained is kept; the same command goes on with the rest")
        raise


def _settings(arguments: Namespace) -> Settings:
    from evo.config import loading
    from evo.store.run_directory import file_instead
    from evo.sweep.trials import Settings

    file = Path(arguments.experiment)
    flags = {name: getattr(arguments, name) for name in ("algorithm", "generations", "workers", "backend")}
    first = loading.load(file, arguments.set, {**flags, "seed": arguments.seed}).run.seed
    seeds = whole("--seeds", arguments.seeds, 1, MOST_SEEDS)
    retest = whole("--retest", arguments.retest, 1, MOST_SEEDS)
    assert seeds is not None
    assert retest is not None
    if first + seeds + retest > 1 << 64:
        raise ConfigurationError(f"--seed: {first} leaves no room for {seeds + retest} seeds below 2^64")
    directory = Path(arguments.directory or Path("runs") / f"sweep-{file.stem}")
    if name := file_instead(directory):
        raise ConfigurationError(f"--directory: {name} is a file; choose another folder")
    return Settings(file, tuple(arguments.set), flags, tuple(range(first, first + seeds)), retest, directory)


def _raced(
    arguments: Namespace, settings: Settings, axes: Sequence[Axis], grid: Sequence[Trial], count: int | None
) -> list[TrialResult]:
    """Return all trials, with what became of them."""
    from evo.cli.sweeping import race, searched
    from evo.sweep.search import Search

    journal = journal_of(settings, arguments.over, arguments.search)
    if count is None:
        return race(settings, grid, journal)
    journal.begin()
    return searched(settings, Search(settings.directory, axes, settings.seeds[0], count), journal)


def journal_of(settings: Settings, over: Sequence[str], search: str) -> Journal:
    """Return the journal of a sweep; ConfigurationError where its directory has another one."""
    from evo.files.hashing import first_hash
    from evo.sweep.journal import Journal
    from evo.sweep.trials import budget_of

    base = settings.trial({}).experiment
    kept: dict[str, Any] = {
        "experiment": first_hash({**base.identity(), "seed": 0}),
        "budget": budget_of(base),
        "seeds": list(settings.seeds),
        "search": search,
        "over": sorted(over),
    }
    return Journal(settings.directory, kept)


def _retested(arguments: Namespace, settings: Settings, runs: Sequence[TrialResult]) -> int:
    """Retest the winner and print the report; return 5 where no run of it has a score."""
    from evo.cli.sweeping import retested, winner
    from evo.training.summary import one_line

    best = winner(runs)
    assert best is not None
    method, outcomes = retested(settings, best)
    print(printable_lines(text(runs, best, method, outcomes)), end="")
    if arguments.json:
        print(one_line(summary(runs, best, method, outcomes)))
    return 0 if method.scores else ResourceError.exit_code


def text(runs: Sequence[TrialResult], best: TrialResult, method: Method, outcomes: Sequence[Outcome]) -> str:
    """Return the report: a table of trials, the best first, and the winner's scores."""
    from evo.comparison import formats, student
    from evo.sweep.race import SHARES, mean_of

    lines = ["", "| trial | budget | validation | 95 % between seeds | stopped |", "|---|--:|--:|--:|---|"]
    order = sorted(runs, key=lambda run: (-len(run.stages), -mean_of(run.stages[-1].scores or (float("-inf"),))))
    for run in order:
        scores = run.stages[-1].scores
        mean, interval = student.t_interval(scores) if scores else (None, None)
        cells = [f"{SHARES[len(run.stages) - 1]:.0%}", formats.number(mean), formats.interval(interval)]
        lines.append(f"| {run.trial.name} | {' | '.join(cells)} | {run.stages[-1].stopped or '-'} |")
    won, retested = best.stages[-1].scores, [one.validation for one in outcomes if one.validation is not None]
    shown = [("it won with", "validation", won), ("retested", "validation", retested)]
    shown.append(("retested", "test", list(method.scores)))
    lines += ["", f"the winner is {best.trial.name}"]
    for what, of, values in shown:
        mean, interval = student.t_interval(values) if values else (None, None)
        between = f"{formats.interval(interval)} between {counted(len(values), 'seed')}" if interval else "one seed"
        lines.append(f"  {what:<12} {of:<10} {formats.number(mean):>8}  ({between})")
    lines.append(f"the first was chosen from {counted(len(runs), 'trial')}, so expect less; report the last")
    lines += [f"seed {one.seed} is missing: {one.failure}" for one in outcomes if one.score is None]
    return "\n".join(lines) + "\n"


def summary(
    runs: Sequence[TrialResult], best: TrialResult, method: Method, outcomes: Sequence[Outcome]
) -> dict[str, Any]:
    """Return everything as JSON values."""
    from dataclasses import asdict

    from evo.comparison import student

    retested = [one.validation for one in outcomes if one.validation is not None]
    mean, interval = student.t_interval(retested) if retested else (None, None)
    return {
        "status": "done" if method.scores else "failed",
        "error": None if method.scores else "no retest has a score",
        "trials": [
            {"name": run.trial.name, "values": dict(run.trial.values), "stages": [asdict(one) for one in run.stages]}
            for run in runs
        ],
        "winner": {
            "name": best.trial.name,
            "won_with": list(best.stages[-1].scores),
            "validation": {"mean": mean, "ci95": interval, "scores": retested},
            "test": {"mean": method.mean, "ci95": method.ci95, "scores": list(method.scores)},
            "retest": asdict(method),
        },
    }
