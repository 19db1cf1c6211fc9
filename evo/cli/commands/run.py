"""Run an experiment: train, then test the champion."""

from __future__ import annotations

from argparse import ArgumentParser, Namespace
from pathlib import Path

from evo.cli.arguments import add, add_training, flags, notice_unused
from evo.errors import ConfigurationError

SUMMARISED = True


def add_arguments(parser: ArgumentParser) -> None:
    """Declare the command line."""
    parser.add_argument("experiment", nargs="?", metavar="EXPERIMENT.toml", help="the experiment file")
    parser.add_argument("--resume", type=Path, metavar="RUN_DIR", help="continue a run instead")
    directory = "the run directory to create (default: runs/FILE-ALGORITHM-seedN-NNN)"
    parser.add_argument("--run-dir", metavar="DIR", help=directory)
    add(parser, "--dry-run", help="check the experiment, print all resolved options, and do not train")
    add_training(parser)


def main(arguments: Namespace) -> int:
    """Start a run, or go on with one."""
    if arguments.resume is not None:
        typed = {"EXPERIMENT": arguments.experiment, "--run-dir": arguments.run_dir, "--dry-run": arguments.dry_run}
        if used := [name for name, value in typed.items() if value]:
            raise ConfigurationError(f"{' and '.join(used)} cannot go with --resume")
        from evo.cli.commands import resume

        arguments.run_dir = arguments.resume
        return resume.main(arguments)
    if arguments.experiment is None:
        raise ConfigurationError(
            "give an experiment file, such as experiments/ga_snake.toml; `evo resume RUN_DIR` continues a run"
        )
    if arguments.fork is not None or arguments.allow_drift:
        raise ConfigurationError("--fork and --allow-drift go with --resume RUN_DIR")
    from evo.config.experiment import Experiment
    from evo.files.arrays import first_hash
    from evo.store import run_directory

    experiment = Experiment.load(arguments.experiment, *arguments.set, **flags(arguments))
    directory = None if arguments.run_dir is None else Path(arguments.run_dir)
    if directory is not None:
        run_directory.refuse_existing(directory)
    notice_unused(arguments.set, experiment)
    summary = arguments.summary
    summary.algorithm, summary.seed = experiment.algorithm, experiment.run.seed
    # Before anything is made, for a device may be missing.
    plan = experiment.workers.plan(experiment.inference, experiment.learner_devices, arguments.dry_run)
    if arguments.dry_run:
        from evo.exports.metrics import require
        from evo.training.beginning import make_algorithm

        require(arguments)
        experiment.identity()
        make_algorithm(experiment).close()  # what a run would refuse is refused here too
        print(experiment.to_toml(counting=True), end="")
        print(f"\n# {plan}")
        if arguments.json:
            summary.state_hash = first_hash(experiment.identity())
        summary.status, summary.generations, summary.frames, summary.seconds = "done", 0, 0, 0.0
        return 0
    from evo.cli.training import train_to_the_end
    from evo.training.beginning import begin

    return train_to_the_end(experiment, lambda: (begin(experiment, directory), None), arguments)
