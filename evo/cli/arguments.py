"""Arguments that several commands have, and what they mean; which run is meant by a path that is none."""

from __future__ import annotations

from argparse import ArgumentParser, Namespace
from collections.abc import Iterable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from evo.errors import ConfigurationError, DataError, notice
from evo.files.layout import MANIFEST, near, runs_in

if TYPE_CHECKING:
    from evo.config.experiment import Experiment

FLAGS = ("algorithm", "seed", "generations", "workers", "backend")  # that override options
SHARED: dict[str, dict[str, Any]] = {
    "run_dir": {"type": Path, "metavar": "RUN_DIR", "help": "the run's directory, or a champion.h5"},
    "--algorithm": {"metavar": "NAME", "help": "the algorithm; see `evo list`"},
    "--set": {
        "action": "append", "default": [], "metavar": "SECTION.KEY=VALUE",
        "help": "change any option of the file; without a value: back to its default; may be repeated",
    },
    "--seed": {"metavar": "N", "help": "random seed of training and validation"},
    "--generations": {"metavar": "N", "help": "number of generations in total"},
    "--workers": {"metavar": "N", "help": "number of worker processes; results do not depend on it"},
    "--backend": {"metavar": "NAME", "help": "which backend plays tasks; see `evo list`"},
    "--plugin": {
        "action": "append", "default": [], "metavar": "MODULE", "help": "a module that the run needs; may be repeated"
    },
    "--mode": {
        "choices": ("greedy", "sample"), "default": "greedy",
        "help": "take the best action (the default), or sample as in training",
    },
    "--dry-run": {"action": "store_true", "help": "show what would be trained, and do not train"},
    "--json": {"action": "store_true", "help": "end with one line of JSON"},
    "--verbose": {"action": "store_true", "help": "also show where the time of a generation goes"},
}  # fmt: skip


def add(parser: ArgumentParser, *names: str, **changes: Any) -> None:
    """Declare shared arguments of these names; `changes` are as in `add_argument`."""
    for name in names:
        parser.add_argument(name, **{**SHARED[name], **changes})


def add_training(parser: ArgumentParser) -> None:
    """Declare the arguments of training, in a new run and in one that goes on."""
    add(parser, "--algorithm", "--set", "--workers", "--backend", "--seed")
    add(parser, "--generations", help="number of generations in total, those done included")
    add(parser, "--plugin", help="a module with an algorithm, environment or backend; may be repeated")
    fork = "when resuming: continue in a new run, runs/NAME, whose options may differ"
    parser.add_argument("--fork", metavar="NAME", help=fork)
    drift = "when resuming: accept a machine whose arithmetic gives other results"
    parser.add_argument("--allow-drift", action="store_true", help=drift)
    add(parser, "--json")
    parser.add_argument("--no-report", action="store_true", help="do not write report.html when the run has ended")
    parser.add_argument("--quiet", action="store_true", help="do not show generations")
    add(parser, "--verbose")
    parser.add_argument("--tensorboard", metavar="DIR", help="write event files while training, for TensorBoard")
    sends = "send metrics while training: wandb or mlflow, set up by their environment variables; may be repeated"
    parser.add_argument("--tracker", action="append", default=[], metavar="NAME", help=sends)


def flags(arguments: Namespace) -> dict[str, Any]:
    """Return the named flags that override options; None where one was not typed, or the command has none."""
    return {name: getattr(arguments, name, None) for name in FLAGS}


def notice_unused(assignments: Sequence[str], experiment: Experiment) -> None:
    """Say which options were typed that belong to another algorithm or another kind of network than the chosen one."""
    policy = experiment.policy
    for assignment in assignments:
        name, _, text = assignment.partition("=")
        name, section = name.strip(), assignment.partition(".")[0].strip()
        if section == "policy" and name.partition(".")[2] in policy.unused and text.strip() not in ("", "[]"):
            notice(f"--set {name} has no effect: policy.kind is {policy.kind}")
        if section in experiment.sections and section != experiment.algorithm:
            notice(f"--set {name} has no effect: the algorithm is {experiment.algorithm}, not {section}")


def whole(flag: str, text: str | None, lowest: int, highest: int) -> int | None:
    """Return the whole number that was typed, or None; ConfigurationError where it is none or out of range."""
    if text is None:
        return None
    if not (text.isascii() and text.isdigit() and len(text) < 20 and lowest <= int(text) <= highest):
        raise ConfigurationError(f"{flag}: must be a whole number from {lowest} to {highest}, not {text!r}")
    return int(text)


def refuse_others(paths: Iterable[Path]) -> None:
    """Raise a DataError that names the run that may be meant, where a path is none but such a run is near."""
    for path in paths:
        with suppress(OSError):  # of which the command says more
            if why := _meant(path):
                raise DataError(f"{path}: {why}")


def opened(command: str, arguments: Namespace) -> list[Path]:
    """Return the paths of runs that a command opens."""
    found = getattr(arguments, "resume" if command == "run" else "run_dir", None)
    return [found] if isinstance(found, Path) else found or []


def _meant(path: Path) -> str:
    """Return the mistake in a path and the run that may be meant, if any."""
    if not path.exists():
        meant = "" if ":" in path.name else near(path)  # not of GAME:BASELINE
        return f"no such file or directory{meant}" if meant else ""
    if not path.is_dir() or (path / MANIFEST).exists():
        return ""
    runs = runs_in(path)
    return f"is a folder of runs; choose one, such as {min(runs.values())}" if runs else ""
