"""Check a run's hashes, files and candidates, or a champion's score."""

from __future__ import annotations

from argparse import ArgumentParser, Namespace
from pathlib import Path

from evo.cli.arguments import add, whole
from evo.errors import ConfigurationError, DataError, counted, printable
from evo.plugins import registry

SAMPLE = 64
MOST = 1_000_000_000
TESTS = "run its tests, as with python -m pytest test_{}.py"


def add_arguments(parser: ArgumentParser) -> None:
    """Declare the command line."""
    add(parser, "run_dir", help="a run's directory, or a champion.h5 by itself; only read")
    parser.add_argument("--all", action="store_true", help="replay every generation, not a sample of candidates")
    parser.add_argument("--sample", metavar="N", help=f"least number of candidates to replay (default: {SAMPLE})")
    add(parser, "--workers", "--backend", "--plugin", "--json")


def main(arguments: Namespace) -> int:
    """Print what agrees, what does not, and what could not be checked."""
    count = whole("--sample", arguments.sample, 0, MOST)
    if arguments.all and count is not None:
        raise ConfigurationError("--sample cannot go with --all")
    from evo.store.recovery import require_run_directory
    from evo.training.summary import one_line
    from evo.verify import champion_file, champion_origin, verification
    from evo.verify.comparison import candidates
    from evo.verify.replaying import replayer
    from evo.verify.verification import Report

    registry.load(arguments.plugin)
    directory, report = Path(arguments.run_dir), Report()
    flags, evidence = {"workers": arguments.workers, "backend": arguments.backend}, None
    if directory.is_file():
        if arguments.all or count is not None:
            raise ConfigurationError("--all and --sample go with a run directory; a file has no candidates")
        champion_file.examine(directory, report, flags)
    else:
        require_run_directory(directory)
        origin = champion_origin.read(directory, report)
        evidence = verification.examine(directory, report, flags)
    if evidence is not None:
        sound = origin is not None and champion_origin.examine(origin, evidence, report)
        champion = origin.champion if origin is not None and sound else None
        if evidence.experiment is None:
            report.not_replayable = sum(map(candidates, evidence.lines))
            report.unknown.append("nothing is replayed, for the configuration is not that of the run")
        elif evidence.lines:
            with replayer(evidence, evidence.experiment, report, champion, print) as again:
                again.play(None if arguments.all else SAMPLE if count is None else count)
    for word, found in (("agrees", report.agrees), ("unknown", report.unknown), ("DIFFERS", report.disagrees)):
        for text in found:
            print(f"{word:<9}" + "\n         ".join(map(printable, text.split("\n"))))
    what = "champion" if directory.is_file() else "run"
    cause = f", or its game writes outside its arrays ({TESTS.format(report.game)})" if report.game else ""
    result = "everything that could be checked agrees" if report.ok else f"this {what} is not what it says{cause}"
    print(f"{result}: {counted(report.generations, 'generation')}, state hash {report.state_hash}")
    if arguments.json:
        print(one_line(report.numbers()))
    return 0 if report.ok else DataError.exit_code
