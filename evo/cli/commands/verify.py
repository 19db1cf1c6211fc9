"""Check a run's hashes, files and candidates, or a champion's score."""

from __future__ import annotations

from argparse import ArgumentParser, Namespace

from evo.cli.arguments import add, flags, whole
from evo.errors import ConfigurationError, DataError, counted, printable

SAMPLE = 64
MOST = 1_000_000_000
TESTS = "run its tests, as with python -m pytest test_{}.py"


def add_arguments(parser: ArgumentParser) -> None:
    """Declare the command line."""
    add(parser, "run_dir", help="a run's directory, or a champion.h5 by itself; only read")
    parser.add_argument("--all", action="store_true", help="replay every generation, not a sample of candidates")
    parser.add_argument("--sample", metavar="N", help=f"smallest number of candidates to replay (default: {SAMPLE})")
    add(parser, "--workers", "--backend", "--plugin", "--json")


def main(arguments: Namespace) -> tuple[int, object]:
    """Print what agrees, what does not, and what could not be checked."""
    count = whole("--sample", arguments.sample, 0, MOST)
    if arguments.all and count is not None:
        raise ConfigurationError("--sample cannot go with --all")
    from evo.verify.replaying import verify

    directory = arguments.run_dir
    if directory.is_file() and (arguments.all or count is not None):
        raise ConfigurationError("--all and --sample go with a run directory; a file has no candidates")
    report = verify(directory, None if arguments.all else SAMPLE if count is None else count, flags(arguments), print)
    differs = [*report.disagrees, *report.changed_code]
    for word, found in (("agrees", report.agrees), ("unknown", report.unknown), ("DIFFERS", differs)):
        for text in found:
            print(f"{word:<9}" + "\n         ".join(map(printable, text.split("\n"))))
    what = "champion" if directory.is_file() else "run"
    cause = f", or its game writes outside its arrays ({TESTS.format(report.game)})" if report.game else ""
    result = "everything that could be checked agrees" if report.ok else f"this {what} is not what it says{cause}"
    if not report.disagrees and report.changed_code:
        result = "nothing can be replayed here, for what DIFFERS; the rest agrees"
    print(f"{result}: {counted(report.generations, 'generation')}, state hash {report.state_hash}")
    return 0 if report.ok else DataError.exit_code, report.numbers()
