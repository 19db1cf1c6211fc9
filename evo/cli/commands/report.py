"""Write a page about a run, or about several runs together."""

from __future__ import annotations

import sys
from argparse import ArgumentParser, Namespace

from evo.cli.arguments import add
from evo.errors import typed


def add_arguments(parser: ArgumentParser) -> None:
    """Declare the command line."""
    add(parser, "run_dir", nargs="+", help="the directory of a run; the curves of several runs are overlaid")
    output = "the file to write (default: report.html in the run directory)"
    parser.add_argument("--output", metavar="FILE", help=output)
    add(parser, "--plugin", "--json")


def main(arguments: Namespace) -> tuple[int, object]:
    """Write the page, and say where it is."""
    from evo.cli.terminal.display import show_in_place
    from evo.report.page import write_report

    live = show_in_place(sys.stderr)
    path = write_report(*arguments.run_dir, output=arguments.output, progress=live)
    if live and len(arguments.run_dir) > 1:
        live("")
    if not arguments.json:
        print(f"report     {typed([str(path)])}")
    return 0, {"report": str(path)}
