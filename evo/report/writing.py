"""Writes reports: of any runs from their files, or of one at its end, while its workers are still there."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from evo.errors import ConfigurationError, EvoError, first_line, notice
from evo.files.destination import destination as chosen
from evo.files.durable import replace_file, resources
from evo.files.layout import distinguished
from evo.report.ancestry import ancestry_of
from evo.report.page import Page, Reported
from evo.report.replays import Replays, play, replays_of
from evo.store.run import Run
from evo.training.testing import BASELINE_SECONDS, Baseline, baselines

if TYPE_CHECKING:
    from evo.records import Evaluator

NAME = "report.html"
ENDINGS = (".html", ".htm")


def write_report(*run_dirs: str | Path, output: str | Path | None = None) -> Path:
    """Write one page about these runs, and return its path: that of `output`, or report.html in the only run directory.

    ConfigurationError: several runs without `output`, a run is named twice, or no file can be written there.
    DataError: one is no run.
    """
    directories = [Path(directory) for directory in run_dirs]
    real = [directory.resolve() for directory in directories]
    if twice := [directory for place, directory in enumerate(directories) if real[place] in real[:place]]:
        raise ConfigurationError(f"{twice[0]}: is named twice; leave one out")
    path = destination(directories, None if output is None else Path(output))
    names = distinguished(real)
    runs = [Run(one, name=name) for one, name in zip(directories, names, strict=True)]
    return write([reported(run) for run in runs], path)


def destination(directories: Sequence[Path], output: Path | None) -> Path:
    """Return where the page goes; ConfigurationError where it cannot."""
    if output is None:
        if len(directories) != 1:
            raise ConfigurationError("--output: name the file, as there are several runs")
        return directories[0] / NAME
    return chosen("--output", output, ENDINGS)


def reported(run: Run) -> Reported:
    """Return what a page says of a run, measured in this process; DataError where it is none."""
    _ = run.notes  # of all that is read
    return Reported(run, _replays(replays_of, run), ancestry_of(run), _baselines(run))


def _replays(find: Callable[[Run], Replays], run: Run) -> Replays:
    try:
        return find(run)
    except EvoError as error:
        return Replays(note=f"No episode can be shown: {first_line(error)}")


def reported_at_end(
    directory: Path, evaluator: Evaluator, publish: Callable[[NDArray[np.float32]], str]
) -> Reported | None:
    """Return what a page says of a run that has just ended, without baselines; None, after a notice, on any failure."""
    try:
        run = Run(directory, trusted=True)
        _ = run.notes  # before the workers play
        return Reported(run, _replays(lambda run: play(run, evaluator, publish), run), ancestry_of(run))
    except Exception as error:
        _no_report(error)
        return None


def write_at_end(found: Reported | None, baselines: Mapping[str, Baseline]) -> tuple[str, bool]:
    """Write report.html into the run directory; return its path, and whether its diagnosis has a finding.

    The path is empty, after a notice, on any failure.
    """
    if found is None:
        return "", False
    try:
        whole = replace(found, baselines=baselines)
        return str(write([whole], found.run.directory / NAME)), bool(whole.diagnosis.findings)
    except Exception as error:
        _no_report(error)
        return "", False


def _no_report(error: Exception) -> None:
    what = (
        first_line(error) if isinstance(error, EvoError | OSError) else f"{type(error).__name__}: {first_line(error)}"
    )
    notice(f"no report was written ({what}); the run is complete")


def _baselines(run: Run) -> Mapping[str, Baseline]:
    if run.score is None:
        return {}
    return baselines(run.environment, run.score.episodes, run.score.block, BASELINE_SECONDS)


def write(runs: Sequence[Reported], path: Path) -> Path:
    """Write the page, whole or not at all."""
    data = Page(runs).html()
    with resources("write", path):
        replace_file(path, data, durable=False)
    return path
