"""Follow a run that another process trains, on its live screen."""

from __future__ import annotations

import time
from argparse import ArgumentParser, Namespace
from pathlib import Path
from typing import TYPE_CHECKING

from evo.cli.arguments import add
from evo.errors import DataError, counted
from evo.files.layout import CHAMPION
from evo.store.metrics import MetricsTail

if TYPE_CHECKING:
    from evo.networks.network import Network
    from evo.store.champion import Champion

TICK = 0.5  # seconds between two looks
RECENT = 40  # generations of the past that a table is made of


def add_arguments(parser: ArgumentParser) -> None:
    """Declare the command line."""
    add(parser, "run_dir", help="the run's directory")
    add(parser, "--plugin", "--verbose")


def main(arguments: Namespace) -> int:
    """Show every generation until the run has ended, on a live screen in a terminal, else as plain lines."""
    from evo.cli.training import display_for
    from evo.run import Row
    from evo.store.run import Run
    from evo.store.run_directory import require_run_directory

    directory = arguments.run_dir
    require_run_directory(directory)
    run = Run(directory)
    experiment = run.config
    generations = experiment.generations
    tail, champions = MetricsTail(directory), Champions(directory, experiment.network())
    best, chosen, done, first = float("-inf"), 0, 0, True
    with display_for(False, arguments.verbose) as display:
        while True:
            running = run.is_running
            lines = list(tail.read())
            for number, line in enumerate(lines):
                metrics = {name: float(value) for name, value in line.items() if value is not None}
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
        done = max(done, run.store.next_generation)  # as read now; the metrics may be lost
        more = "" if done >= generations else f" of {generations:,}, and its process is not there"
        for note in run.store.metrics_mistakes():
            display.say(f"note: {note}")
        display.say(f"the run has ended after {counted(done, 'generation')}{more}")
    return 0


class Champions:
    """The champion of a run that another process trains."""

    def __init__(self, directory: Path, network: Network) -> None:
        self._directory, self._network, self._seen = directory, network, (0, 0)

    def newer(self) -> Champion | None:
        """Return the champion if its file has changed since the last call and can be read, else None."""
        from evo.store.sandbox import read_champion

        try:
            state = (self._directory / CHAMPION).stat()
            if self._seen == (seen := (state.st_mtime_ns, state.st_size)):
                return None
            self._seen = seen
            champion = read_champion(self._directory)
            return champion if champion.fits(self._network) else None
        except (OSError, DataError):  # it is not of this network, or just being replaced: the next one will do
            return None
