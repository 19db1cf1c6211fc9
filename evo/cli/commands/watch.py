"""Follow a run that another process trains, on its live screen."""

from __future__ import annotations

import time
from argparse import ArgumentParser, Namespace
from pathlib import Path

from evo.cli.arguments import add
from evo.plugins import registry

SUMMARISED = False
TICK = 0.5  # seconds between two looks
RECENT = 40  # generations of the past that a table is made of


def add_arguments(parser: ArgumentParser) -> None:
    """Declare the command line."""
    add(parser, "run_dir", help="the run's directory")
    add(parser, "--plugin", "--verbose")


def main(arguments: Namespace) -> int:
    """Show every generation until the run has ended, on a live screen in a terminal, elsewhere as a plain line."""
    from evo.cli.terminal import following
    from evo.cli.terminal.display import finite
    from evo.cli.terminal.show import display_for
    from evo.errors import counted
    from evo.run import Row
    from evo.store.recovery import require_run_directory
    from evo.store.run import Run

    registry.load(arguments.plugin)
    directory = Path(arguments.run_dir)
    require_run_directory(directory)
    run = Run(directory)
    experiment = run.config
    generations = experiment.generations
    tail, champions = following.MetricsTail(directory), following.Champions(directory, experiment.network())
    best, chosen, done, first = float("-inf"), 0, 0, True
    with display_for(False, arguments.verbose) as display:
        while True:
            running = run.is_running
            lines = list(tail.read())
            for number, line in enumerate(lines):
                metrics = {name: value for name, stored in line.items() if (value := finite(stored)) is not None}
                validation, done = metrics.get("validation", float("-inf")), int(line["generation"]) + 1
                row = Row(done - 1, metrics, None, validation > best, directory)
                best, chosen = max(best, validation), done - 1 if row.new_champion else chosen
                if first and number < len(lines) - RECENT:
                    display.past(done - 1, metrics)
                else:
                    display.generation(row, generations)
            if display.watched and (champion := champions.newer()) is not None:
                display.champion(experiment, champion.weights, chosen)
            first = False
            if not lines and (done >= generations or not running):
                break
            time.sleep(TICK)
        more = "" if done >= generations else f" of {generations:,}, and its process is not there"
        display.say(f"the run has ended after {counted(done, 'generation')}{more}")
    return 0
