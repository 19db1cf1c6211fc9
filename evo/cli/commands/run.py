"""Train an experiment, and test its champion."""

from __future__ import annotations

from argparse import ArgumentParser, Namespace
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from evo.errors import ConfigurationError, notice
from evo.plugins import registry

if TYPE_CHECKING:
    from evo.config.experiment import Experiment

SUMMARISED = True


def add_arguments(parser: ArgumentParser) -> None:
    """Declare the command line."""
    parser.add_argument("experiment", nargs="?", metavar="EXPERIMENT.toml", help="the experiment file")
    parser.add_argument("--resume", metavar="RUN_DIR", help="continue a run instead")
    parser.add_argument(
        "--run-dir", metavar="DIR", help="the run directory to create (default: runs/FILE-ALGORITHM-seedN-NNN)"
    )
    parser.add_argument(
        "--dry-run", action="store_true", help="check the experiment, print all resolved options, and do not train"
    )
    add_shared_arguments(parser)


def add_shared_arguments(parser: ArgumentParser) -> None:
    """Declare what can be said of a new run and of one that goes on."""
    parser.add_argument("--algorithm", metavar="NAME", help="the algorithm; see `evo list`")
    parser.add_argument(
        "--set",
        action="append",
        default=[],
        metavar="SECTION.KEY=VALUE",
        help="change any option of the file; may be repeated",
    )
    parser.add_argument("--workers", metavar="N", help="number of worker processes; results do not depend on it")
    parser.add_argument("--backend", metavar="NAME", help="which backend plays tasks; see `evo list`")
    parser.add_argument("--seed", metavar="N", help="random seed of training and validation")
    parser.add_argument("--generations", metavar="N", help="number of generations in total, those done included")
    parser.add_argument(
        "--plugin",
        action="append",
        default=[],
        metavar="MODULE",
        help="a module with an algorithm, environment or backend; may be repeated",
    )
    parser.add_argument(
        "--fork", metavar="NAME", help="when resuming: continue in a new run, runs/NAME, whose options may differ"
    )
    parser.add_argument(
        "--allow-drift",
        action="store_true",
        help="when resuming: accept a machine whose arithmetic gives other results",
    )
    parser.add_argument("--json", action="store_true", help="end with one line of JSON")
    parser.add_argument("--quiet", action="store_true", help="do not show generations")


def main(arguments: Namespace) -> int:
    """Start a run, or go on with one."""
    if arguments.resume is not None:
        _refuse_with("--resume", EXPERIMENT=arguments.experiment, run_dir=arguments.run_dir, dry_run=arguments.dry_run)
        from evo.cli.commands import resume

        arguments.run_dir = arguments.resume
        return resume.main(arguments)
    if arguments.experiment is None:
        raise ConfigurationError(
            "give an experiment file, such as experiments/ga_snake.toml, or a run with --resume RUN_DIR"
        )
    if arguments.fork is not None or arguments.allow_drift:
        raise ConfigurationError("--fork and --allow-drift go with --resume RUN_DIR")
    from evo.config import loading
    from evo.files.hashing import first_hash
    from evo.store import run_directory

    registry.load(arguments.plugin)
    experiment = loading.load(arguments.experiment, arguments.set, flags(arguments))
    directory = None if arguments.run_dir is None else Path(arguments.run_dir)
    if directory is not None:
        run_directory.refuse_existing(directory)
    notice_unused(arguments.set, experiment)
    summary = arguments.summary
    summary.algorithm, summary.seed = experiment.algorithm, experiment.run.seed
    # Before anything is made, for a device may be missing.
    plan = experiment.workers.plan(experiment.policy.player, experiment.learner_devices, arguments.dry_run)
    if arguments.dry_run:
        from evo.training.generation import make_algorithm

        experiment.identity()
        make_algorithm(experiment).close()  # what a run would refuse is refused here too
        print(experiment.to_toml(counting=True), end="")
        print(f"\n# {plan}")
        if arguments.json:
            summary.state_hash = first_hash(experiment.identity())
        summary.status, summary.generations, summary.frames, summary.seconds = "done", 0, 0, 0.0
        return 0
    from evo.cli.training import train_to_the_end
    from evo.training.resuming import begin

    return train_to_the_end(
        experiment,
        lambda: (begin(experiment, directory), None),
        quiet=arguments.quiet,
        summary=summary,
    )


def flags(arguments: Namespace) -> dict[str, str | None]:
    """Return the named flags that override options."""
    names = ("algorithm", "seed", "generations", "workers", "backend")
    return {name: getattr(arguments, name) for name in names}


def notice_unused(assignments: Sequence[str], experiment: Experiment) -> None:
    """Say which options were typed that belong to another algorithm than the chosen one."""
    for assignment in assignments:
        section = assignment.partition(".")[0].strip()
        if section in experiment.sections and section != experiment.algorithm:
            name = assignment.partition("=")[0].strip()
            notice(f"--set {name} has no effect: the algorithm is {experiment.algorithm}, not {section}")


def _refuse_with(flag: str, **others: object) -> None:
    given = [name if name.isupper() else "--" + name.replace("_", "-") for name, value in others.items() if value]
    if given:
        raise ConfigurationError(f"{' and '.join(given)} cannot go with {flag}")
