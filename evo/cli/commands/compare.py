"""Train methods with several seeds, and say which one wins."""

from __future__ import annotations

from argparse import ArgumentParser, Namespace
from pathlib import Path
from typing import TYPE_CHECKING

from evo.cli.arguments import add
from evo.cli.run_directories import refuse_others
from evo.errors import ConfigurationError, EvoError, ResourceError, counted, first_line, notice, printable_lines
from evo.plugins import registry

if TYPE_CHECKING:
    from evo.comparison.outcomes import Outcome
    from evo.comparison.plan import Plan
    from evo.comparison.tables import Report

SUMMARISED = False
ENDINGS = {"markdown": (".md", ".markdown"), "csv": (".csv",), "latex": (".tex",)}  # of files, by format
FORMATS = tuple(ENDINGS)
PAGES = (".html", ".htm")


def add_arguments(parser: ArgumentParser) -> None:
    """Declare the command line."""
    parser.add_argument(
        "what", nargs="+", metavar="COMPARISON.toml | RUN_DIR", help="a comparison file, or the directories of runs"
    )
    parser.add_argument("--format", choices=FORMATS, default="markdown", help="form of the tables (default: markdown)")
    parser.add_argument("--output", metavar="FILE", help="write the tables to a file (.md, .csv or .tex) as well")
    parser.add_argument("--page", metavar="FILE.html", help="write a page with tables and charts")
    parser.add_argument("--figures", metavar="DIR", help="draw scores and profiles into a folder, as PNG and SVG")
    parser.add_argument("--dry-run", action="store_true", help="show what would be trained, and do not train")
    add(parser, "--workers", "--backend", "--plugin", "--json")


def main(arguments: Namespace) -> int:
    """Train what is left to train, and print the tables."""
    paths = [Path(word) for word in arguments.what]
    files = [path for path in paths if path.is_file() or path.suffix == ".toml"]
    _refuse_champions(files)
    if files and len(paths) > 1:
        raise ConfigurationError(f"{files[0]}: give one comparison file, or directories of runs only")
    registry.load(arguments.plugin, files[0] if files else None)
    output, page = _destinations(arguments, files)
    usual = reach = None
    if arguments.figures is not None:
        from evo.comparison import figures

        figures.library()  # before anything is trained
    if files:
        from evo.comparison import plan

        planned = plan.read(files[0], {"workers": arguments.workers, "backend": arguments.backend})
        print(printable_lines(described(planned)), flush=True)
        if arguments.dry_run:
            return _planned(planned, arguments.json)
        found = _trained(planned)
        reach = planned.section.reach
        usual = planned.directory.with_name(f"{planned.directory.name}.html")  # beside the folder of the runs
    else:
        for flag in ("workers", "backend", "dry_run"):
            if getattr(arguments, flag):
                raise ConfigurationError(f"--{flag.replace('_', '-')} goes with a comparison file, which trains")
        refuse_others(arguments.what)
        from evo.comparison import outcomes

        found = outcomes.of_directories(paths)
    return _reported(found, reach, arguments, output, page, usual)


def _refuse_champions(files: list[Path]) -> None:
    """Raise a ConfigurationError where a file is of a run, whose directory is what can be compared."""
    from evo.store.paths import MANIFEST

    for file in files:
        if (file.parent / MANIFEST).exists():
            raise ConfigurationError(f"{file}: is a file of a run; give its directory, {file.parent}")
        if file.suffix == ".h5":
            raise ConfigurationError(f"{file}: is a champion; give the directory of its run")


def described(plan: Plan) -> str:
    """Return what will be trained, in a few lines."""
    from evo.comparison.methods import FEW, impossible
    from evo.comparison.permutation import LEAST_SEEDS, LEVEL, least_p_value
    from evo.comparison.plan import leagues

    seeds, methods = len(plan.section.seeds), plan.methods
    lines = [
        f"{counted(len(plan.members), 'run')}: {counted(len(methods), 'method')}, {counted(seeds, 'seed')} each",
        f"budget: {plan.section.budget}",
        f"runs in {plan.directory}",
        *(f"  {name}" for name in methods),
    ]
    groups = list(leagues(plan))
    if len(groups) > 1:
        lines.append(f"they see or play different things, so there will be {len(groups)} tables:")
        lines += [f"  {', '.join(group)}" for group in groups]
    pairs = sum(len(group) * (len(group) - 1) // 2 for group in groups)
    if pairs and seeds < LEAST_SEEDS:
        lines.append(f"no winner can be named: {FEW}")
    elif pairs and pairs * least_p_value(seeds, seeds) > LEVEL:
        lines.append(impossible(pairs))
    return "\n".join(lines)


def _planned(plan: Plan, as_json: bool) -> int:
    from evo.training.summary import one_line

    if as_json:
        runs = [
            {"method": member.method, "seed": member.experiment.run.seed, "run_dir": str(member.directory)}
            for member in plan.members
        ]
        print(one_line({"status": "planned", "error": None, "runs": runs}))
    return 0


def _trained(plan: Plan) -> list[Outcome]:
    from evo.cli.comparing import train_all
    from evo.files.lock import held

    try:
        with held(plan.directory):
            return train_all(plan.members)
    except KeyboardInterrupt:
        notice("what is trained is kept; the same command goes on with the rest")
        raise


def _write_page(report: Report, page: Path | None, usual: Path | None) -> None:
    """Write the page; where nobody has asked for it, a notice is enough if that fails."""
    from evo.report import comparison

    if page is not None:
        notice(f"page: {comparison.write(report, page)}")
    elif usual is not None:
        try:
            notice(f"page: {comparison.write(report, usual)}")
        except EvoError as error:
            notice(f"no page was written: {first_line(error)}")


def _destinations(arguments: Namespace, files: list[Path]) -> tuple[Path | None, Path | None]:
    """Return where the tables and the page go, if that is said; ConfigurationError where one of them cannot."""
    from evo.files.destination import destination

    why, found = f", as --format is {arguments.format}", list[Path | None]()
    asked = (("--output", arguments.output, ENDINGS[arguments.format], why), ("--page", arguments.page, PAGES, ""))
    for flag, name, endings, reason in asked:
        path = None if name is None else destination(flag, name, endings, reason)
        if path is not None and path.exists() and any(path.samefile(file) for file in files if file.exists()):
            raise ConfigurationError(f"{flag} {path}: is the comparison file; name another")
        found.append(path)
    output, page = found
    return output, page


def _reported(
    found: list[Outcome],
    reach: float | None,
    arguments: Namespace,
    output: Path | None,
    page: Path | None,
    usual: Path | None,
) -> int:
    """Print the report, write what is asked for and the page at its usual place; return 5 where no run has a score."""
    from dataclasses import asdict

    from evo.comparison import formats, tables
    from evo.files.durable import replace_file, resources
    from evo.training.summary import one_line

    report = tables.report_of(found, reach=reach)
    text = formats.FORMATS[arguments.format](report)
    print(printable_lines(text), end="")
    if output is not None:
        with resources("write", output):
            replace_file(output, text.encode())
    if arguments.figures is not None:
        from evo.comparison import figures

        written = figures.write(report, Path(arguments.figures))
        notice(f"{counted(len(written), 'file')} in {arguments.figures}")
    scored = any(outcome.score for outcome in found)
    if page is not None or (usual is not None and scored):
        _write_page(report, page, usual)
    if arguments.json:
        status, error = ("done", None) if scored else ("failed", "no run has a score")
        print(one_line({"status": status, "error": error, **asdict(report)}))
    return 0 if scored else ResourceError.exit_code
