"""Continue a run exactly where it stopped."""

from __future__ import annotations

from argparse import ArgumentParser, Namespace

from evo.cli.arguments import add, add_training, flags, notice_unused
from evo.errors import ConfigurationError, DataError

SUMMARISED = True


def add_arguments(parser: ArgumentParser) -> None:
    """Declare the command line."""
    add(parser, "run_dir", help="the run's directory")
    add_training(parser)


def main(arguments: Namespace) -> int:
    """Resume the run; without --fork, no option may change its results."""
    from evo.config.environments import stored
    from evo.config.experiment import Experiment
    from evo.config.identity import difference
    from evo.files.durable import resources
    from evo.files.layout import CONFIG

    directory = arguments.run_dir
    file = directory / CONFIG
    with resources("read", directory):
        there, exists = file.is_file(), directory.exists()
    if not there:
        why = f"it has no {CONFIG}" if exists else "there is no such directory"
        raise DataError(f"{directory} is not a run: {why}")
    with stored():
        before = Experiment.load(file, resolved=True, hosts="kept")
    experiment = Experiment.load(file, *arguments.set, resolved=True, **flags(arguments))
    same = experiment == before or arguments.fork is not None
    if changed := [] if same else difference(before.identity(), experiment.identity(), experiment.environment):
        advice = "these options would change results, so the run cannot continue with them; --fork NAME starts another:"
        raise ConfigurationError(advice, *changed)
    notice_unused(arguments.set, experiment)
    summary = arguments.summary
    summary.run_dir, summary.algorithm, summary.seed = str(directory), experiment.algorithm, experiment.run.seed
    from evo.cli.training import train_to_the_end
    from evo.training.beginning import fork, take_up

    if arguments.fork is None:
        return train_to_the_end(experiment, lambda: (take_up(experiment, directory), None), arguments)
    return train_to_the_end(experiment, lambda: fork(experiment, directory, arguments.fork), arguments)
