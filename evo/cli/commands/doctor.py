"""Say why a run does not learn, or wastes time, and what to change."""

from __future__ import annotations

from argparse import ArgumentParser, Namespace
from pathlib import Path

from evo.cli.arguments import add
from evo.plugins import registry


def add_arguments(parser: ArgumentParser) -> None:
    """Declare the command line."""
    add(parser, "run_dir", help="the run's directory, which is only read")
    add(parser, "--plugin", "--json")


def main(arguments: Namespace) -> int:
    """Print what is wrong, with the numbers that show it and the options to change."""
    from evo.diagnosis.examination import examine
    from evo.errors import printable_lines
    from evo.store.metrics import one_line

    registry.load(arguments.plugin)
    found = examine(Path(arguments.run_dir))
    print(printable_lines("\n".join(found.lines())))
    if arguments.json:
        print(one_line(found.facts()))
    return 0
