"""Say why a run does not learn, or wastes time, and what to change."""

from __future__ import annotations

from argparse import ArgumentParser, Namespace

from evo.cli.arguments import add
from evo.errors import printable_lines


def add_arguments(parser: ArgumentParser) -> None:
    """Declare the command line."""
    add(parser, "run_dir", help="the run's directory, which is only read")
    add(parser, "--plugin", "--json")


def main(arguments: Namespace) -> tuple[int, object]:
    """Print what is wrong, with the numbers that show it and the options to change."""
    from evo.diagnosis.examination import examine

    found = examine(arguments.run_dir)
    print(printable_lines("\n".join(found.lines())))
    return 0, found.facts()
