"""Train methods with several seeds, and say which one wins."""

from __future__ import annotations

from argparse import ArgumentParser, Namespace
from pathlib import Path
from typing import TYPE_CHECKING

from evo.cli.arguments import add, flags, refuse_others
from evo.errors import ConfigurationError, EvoError, ResourceError, counted, first_line, notice, printable_lines

if TYPE_CHECKING:
    from evo.comparison.tables import Comparison

ENDINGS = {"markdown": (".md", ".markdown"), "csv": (".csv",), "latex": (".tex",)}  # of files, by format
FORMATS = tuple(ENDINGS)
PAGES = (".html", ".htm")


def add_arguments(parser: ArgumentParser) -> None:
    """Declare the command line."""
    what = "a comparison file, or the directories of runs"
    parser.add_argument("what", nargs="+", metavar="COMPARISON.toml | RUN_DIR", help=what)
    parser.add_argument("--format", choices=FORMATS, default="markdown", help="table format (default: markdown)")
    parser.add_argument("--output", metavar="FILE", help="write the tables to a file (.md, .csv or .tex) as well")
    parser.add_argument("--page", metavar="FILE.html", help="write a page with tables and charts")
    parser.add_argument("--figures", metavar="DIR", help="draw scores and profiles into a folder, as PNG and SVG")
    add(parser, "--dry-run", "--workers", "--backend", "--plugin", "--json")


def main(arguments: Namespace) -> tuple[int, object]:
    """Train what is left to train, and print the tables; return 5 where no run has a score."""
    from evo.cli.terminal.display import print_line, show_in_place
    from evo.comparison import formats
    from evo.comparison.file import ComparisonFile
    from evo.comparison.runs import runs_in
    from evo.comparison.tables import comparison_of
    from evo.comparison.training import compared, comparison_file_among

    path = comparison_file_among(paths := [Path(word) for word in arguments.what])
    output, page = _destinations(arguments, path)
    if arguments.figures is not None:
        formats.library()  # before anything is trained
    if path is None:
        for flag in ("workers", "backend", "dry_run"):
            if getattr(arguments, flag):
                raise ConfigurationError(f"--{flag.replace('_', '-')} goes with a comparison file, which trains")
        refuse_others(paths)
        return _reported(comparison_of(runs_in(paths)), arguments, output, page, None)
    file = ComparisonFile.read(path, flags(arguments))
    print_line(file.summary())
    if arguments.dry_run:
        runs = [
            {"method": one.method, "seed": one.experiment.run.seed, "run_dir": str(one.directory)} for one in file.runs
        ]
        return 0, {"status": "planned", "error": None, "runs": runs}
    try:
        comparison = compared(file, print_line, show_in_place())
    except KeyboardInterrupt:
        notice("what is trained is kept; the same command goes on with the rest")
        raise
    return _reported(comparison, arguments, output, page, file.page)


def _destinations(arguments: Namespace, file: Path | None) -> tuple[Path | None, Path | None]:
    """Return where the tables and the page go, if that is named; ConfigurationError where one of them cannot."""
    from evo.files.durable import destination

    why, found = f", as --format is {arguments.format}", list[Path | None]()
    asked = (("--output", arguments.output, ENDINGS[arguments.format], why), ("--page", arguments.page, PAGES, ""))
    for flag, name, endings, reason in asked:
        path = None if name is None else destination(flag, name, endings, reason)
        if path is not None and file is not None and path.exists() and file.exists() and path.samefile(file):
            raise ConfigurationError(f"{flag} {path}: is the comparison file; name another")
        found.append(path)
    output, page = found
    return output, page


def _reported(
    comparison: Comparison, arguments: Namespace, output: Path | None, page: Path | None, usual: Path | None
) -> tuple[int, object]:
    """Print the tables, and write what is asked for, and the page at its usual place."""
    from dataclasses import asdict

    from evo.comparison import formats
    from evo.files.durable import replace_file, resources
    from evo.report.comparison import write_comparison_page
    from evo.report.html import refuse_foreign

    text = formats.FORMATS[arguments.format](comparison)
    print(printable_lines(text), end="")
    if output is not None:
        with resources("write", output):
            replace_file(output, text.encode())
    if arguments.figures is not None:
        written = formats.write_figures(comparison, Path(arguments.figures))
        notice(f"{counted(len(written), 'file')} in {arguments.figures}")
    try:
        if page is None and comparison.scored and usual is not None:
            refuse_foreign(page := usual)
        if page is not None:
            notice(f"page: {write_comparison_page(comparison, page)}")
    except EvoError as failure:
        if page is not usual:  # it was requested
            raise
        notice(f"no page was written: {first_line(failure)}")
    status, error = ("done", None) if comparison.scored else ("failed", "no run has a score")
    code = 0 if comparison.scored else ResourceError.exit_code
    return code, {"status": status, "error": error, **asdict(comparison)}
