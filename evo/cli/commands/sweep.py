"""Try values of options, and retest the winner on fresh seeds."""

from __future__ import annotations

from argparse import ArgumentParser, Namespace
from typing import TYPE_CHECKING, Any

from evo.cli.arguments import add, flags, whole
from evo.errors import ConfigurationError, ResourceError, counted, notice, printable_lines

if TYPE_CHECKING:
    from evo.sweeps.sweeping import SweepResult

SEARCHES = ("grid", "optuna")


def add_arguments(parser: ArgumentParser) -> None:
    """Declare the command line."""
    parser.add_argument("experiment", metavar="EXPERIMENT.toml", help="the experiment file")
    over = "an option and its values, as in ga.sigma=0.05,0.1; with optuna also a range, ga.sigma=0.01..1:log; "
    over += "may be repeated"
    parser.add_argument("--over", action="append", default=[], required=True, metavar="KEY=VALUES", help=over)
    parser.add_argument("--seeds", default="3", metavar="N", help="seeds of every trial (default: 3)")
    parser.add_argument("--retest", default="10", metavar="N", help="fresh seeds of the winner (default: 10)")
    search = "grid: every combination; optuna: values chosen by its TPE sampler (default: grid)"
    parser.add_argument("--search", choices=SEARCHES, default="grid", help=search)
    parser.add_argument("--trials", metavar="N", help="number of trials, with --search optuna")
    parser.add_argument("--directory", metavar="DIR", help="where to put the runs (default: runs/sweep-EXPERIMENT)")
    add(parser, "--algorithm", "--set")
    add(parser, "--generations", help="number of generations of a run that gets the whole budget")
    add(parser, "--seed", help="the first seed")
    add(parser, "--dry-run", "--workers", "--backend", "--plugin", "--json")


def main(arguments: Namespace) -> int | tuple[int, object]:
    """Race the trials, and retest the winner; return 5 where no retest has a score."""
    from evo.cli.terminal.display import print_line, show_in_place
    from evo.sweeps.sweeping import swept
    from evo.sweeps.trials import MOST_SEEDS, MOST_TRIALS, PlannedSweep

    trials = whole("--trials", arguments.trials, 1, MOST_TRIALS)
    if (arguments.search == "optuna") != (trials is not None):
        raise ConfigurationError("--search optuna and --trials N go together")
    planned = PlannedSweep.of(
        arguments.experiment,
        arguments.over,
        sets=arguments.set,
        flags=flags(arguments),
        seeds=whole("--seeds", arguments.seeds, 1, MOST_SEEDS) or 1,
        retest=whole("--retest", arguments.retest, 1, MOST_SEEDS) or 1,
        trials=trials,
        directory=arguments.directory,
    )
    print_line(planned.summary())
    if arguments.dry_run:
        print("".join(f"  {trial.name}\n" for trial in planned.grid), end="")
        listed = [{"name": trial.name, "values": dict(trial.values)} for trial in planned.grid]
        return 0, {"status": "planned", "error": None, "trials": listed}
    try:
        result = swept(planned, print_line, show_in_place())
    except KeyboardInterrupt:
        notice("what is trained is kept; the same command goes on with the rest")
        raise
    print(printable_lines(text(result)), end="")
    return 0 if result.retest.scores else ResourceError.exit_code, summary(result)


def text(result: SweepResult) -> str:
    """Return the report: a table of trials, the best first, and the winner's scores."""
    from evo.numbers import interval, number
    from evo.statistics import t_interval
    from evo.sweeps.race import SHARES, mean_of

    def order(trial: Any) -> tuple[float, ...]:
        return -len(trial.stages), -mean_of(trial.scores or (float("-inf"),))

    lines = ["", "| trial | budget | validation | 95 % between seeds | stopped |", "|---|--:|--:|--:|---|"]
    for one in sorted(result.trials, key=order):
        mean, between = t_interval(one.scores)
        cells = [f"{SHARES[len(one.stages) - 1]:.0%}", number(mean), interval(between)]
        lines.append(f"| {one.trial.name} | {' | '.join(cells)} | {one.stages[-1].stopped or '-'} |")
    lines += ["", f"the winner is {result.winner.trial.name}"]
    for what, of, values in (
        ("it won with", "validation", result.winner.scores),
        ("retested", "validation", result.validation),
        ("retested", "test", result.retest.scores),
    ):
        mean, between = t_interval(values)
        seeds = f"{interval(between)} between {counted(len(values), 'seed')}" if between else "one seed"
        lines.append(f"  {what:<12} {of:<10} {number(mean):>8}  ({seeds})")
    lines.append(f"the first was chosen from {counted(len(result.trials), 'trial')}, so expect less; report the last")
    lines += [f"seed {run.seed} is missing: {run.failure}" for run in result.retest.runs if run.score is None]
    return "\n".join(lines) + "\n"


def summary(result: SweepResult) -> dict[str, Any]:
    """Return everything as JSON values."""
    from dataclasses import asdict

    from evo.statistics import t_interval

    mean, interval = t_interval(result.validation)
    retest = result.retest
    return {
        "status": "done" if retest.scores else "failed",
        "error": None if retest.scores else "no retest has a score",
        "trials": [
            {"name": one.trial.name, "values": dict(one.trial.values), "stages": [*map(asdict, one.stages)]}
            for one in result.trials
        ],
        "winner": {
            "name": result.winner.trial.name,
            "won_with": list(result.winner.scores),
            "validation": {"mean": mean, "ci95": interval, "scores": list(result.validation)},
            "test": {"mean": retest.mean, "ci95": retest.ci95, "scores": list(retest.scores)},
            "retest": asdict(retest),
        },
    }
