"""The report of runs: one page, of any runs from their files, or of one at its end, while its workers are there."""

from __future__ import annotations

import html
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from evo.comparison.formats import sentence
from evo.diagnosis.examination import Diagnosis, diagnosis
from evo.errors import ConfigurationError, EvoError, first_line, notice, path_of, printable_lines
from evo.files.durable import destination, refuse_unwritable
from evo.files.layout import distinguished
from evo.numbers import duration
from evo.records import Evaluator
from evo.report import meanings, records, tables
from evo.report.charts import Charts
from evo.report.comparison import rating_over_time
from evo.report.html import (
    CHARTS,
    REPLAYS,
    Chart,
    Drawn,
    Markup,
    details,
    element,
    header,
    joined,
    quiet,
    refuse_foreign,
    section,
    whole_page,
    write_page,
)
from evo.report.records import Ancestry, ancestry_of, archive_section
from evo.report.replays import Replays, play, replays_of
from evo.report.verdict import verdict, verdict_of_several
from evo.store.run import Run
from evo.store.run_directory import require_run_directory
from evo.store.sandbox import reading_several
from evo.training.testing import BASELINE_SECONDS, Baseline, baselines

SCRIPTS = (*CHARTS, *REPLAYS)
NAME = "report.html"
RATED = "Elo of champions of the run, in one league with the baselines of validation, with 95 % intervals"
ENDINGS = (".html", ".htm")


@dataclass(frozen=True)
class Reported:
    """Everything that a page says of one run."""

    run: Run
    replays: Replays
    ancestry: Ancestry
    baselines: Mapping[str, Baseline] = field(default_factory=dict)

    @cached_property
    def diagnosis(self) -> Diagnosis:
        """Return what `evo doctor` says of the run."""
        return diagnosis(self.run, self.baselines)

    @cached_property
    def rating(self) -> Chart | None:
        """Return the rating over time, where the run has a hall of fame that can be read; it is played here."""
        try:
            return rating_over_time(self.run)
        except EvoError:
            return None


class Page:
    """Collects sections, and the charts in them."""

    def __init__(self, reported: Sequence[Reported]) -> None:
        self.reported, self.runs = reported, [one.run for one in reported]
        self.several, self.drawn = len(reported) > 1, Drawn()
        self.charts = Charts(self.runs)
        first = reported[0].baselines  # shown where all runs have the same
        self.baselines = first if all(one.baselines == first for one in reported) else {}

    def html(self) -> bytes:
        """Return the whole file."""
        title = ", ".join(run.name for run in self.runs[:3]) + (", ..." if len(self.runs) > 3 else "")
        body = joined(self._sections())
        data = {"runs": self.charts.axes(), "charts": self.drawn.charts, "replays": self._episodes()}
        return whole_page(f"Report of {title}", body, data, SCRIPTS)

    def _sections(self) -> Iterator[Markup]:
        alone, first = not self.several, self.reported[0]
        yield self._header()
        yield self._scores()
        if alone:
            yield self._diagnosis(first.diagnosis)
        yield self._replays()
        if alone:
            yield self._tree(first.run)
            yield archive_section(first.run)
            yield self._population(first)
        yield self._time()
        yield self._others()
        yield section("Configuration", tables.configuration(self.runs))
        facts = [tables.provenance(run) for run in self.runs]
        named = [details(run.name, fact) for run, fact in zip(self.runs, facts, strict=True)]
        yield section("Provenance", *(facts if alone else named))

    def _header(self) -> Markup:
        if self.several:
            title, (first, *rest) = f"{len(self.runs)} runs", verdict_of_several(self.runs)
        else:
            title, (first, *rest) = self.runs[0].name, verdict(self.runs[0], self.baselines)
        named = [(one, f"{one.run.name}: " if self.several else "") for one in self.reported]
        notes = [f"{name}{note}" for one, name in named for note in [*one.run.notes, *one.ancestry.notes]]
        return header(title, first, rest, notes)

    def _scores(self) -> Markup:
        test, returns = self.charts.scores(self.baselines), self.charts.returns()
        switch = element("fieldset", element("legend", "Over"), id="axis", class_="switch") if test or returns else ""
        drawn, first = "validation (solid) and training (dashed)", self.reported[0]
        if not self.several:
            drawn = "the sum of rewards: validation chooses the champion; mean and best are of training"
        spans = "with the 95 % interval of the last one" if test and test["spans"] else ""
        return section(
            "Scores",
            switch,
            self.drawn.figure(test, "Test score of the champion", spans),
            tables.scores(self.runs, self.baselines),
            self.drawn.figure(returns, "Return", drawn),
            "" if self.several else self.drawn.figure(first.rating, "Rating over time", RATED),
            "" if self.several else tables.optimism(first.run, first.ancestry, first.replays),
        )

    def _diagnosis(self, found: Diagnosis) -> Markup:
        signs = [element("li", element("b", sign), f": {means}") for sign, means in meanings.of_signs(found.looked_at)]
        explained = details("What was looked at", element("ul", *signs)) if signs else ""
        if not found.findings:
            return section("Diagnosis", *(element("p", sentence(line)) for line in found.lines()), explained)
        named = [element("li", element("b", one.wrong), f" {one.evidence} {one.change}") for one in found.findings]
        return section("Diagnosis", element("ul", *named), quiet(found.conclusion), explained)

    def _replays(self) -> Markup:
        notes = list(dict.fromkeys(one.replays.note for one in self.reported if one.replays.note))
        shown = [one.replays for one in self.reported if one.replays.shown]
        if not shown:
            return section("Replays", *map(quiet, notes)) if notes else Markup("")
        about = f"Test episode {shown[0].episode:,}"
        if shown[0].episodes > 1:
            about += f", in which the champion scores the median of the first {shown[0].episodes}"
        if self.several:
            about = "Each champion in the test episode of its median score"
        place = element("div", id="replays")
        return section("Replays", quiet(about, "."), place, element("noscript", "Replays need JavaScript."))

    def _tree(self, run: Run) -> Markup:
        from evo.exports.networks import python_of_run

        if run.champion_file is None or run.config.network().short_name != "decision tree":
            return Markup("")
        try:
            tree = python_of_run(run)
        except ConfigurationError as error:  # of an environment that is not installed here
            return section("Decision tree", quiet(f"It cannot be shown here: {error}"))
        text = Markup(html.escape(printable_lines(tree)))
        about = quiet("All that the champion is, as `evo export --to python` writes it.")
        return section("Decision tree", about, element("pre", text))

    def _episodes(self) -> list[dict[str, Any]]:
        """Return the episodes to be drawn; of several runs the champions' alone."""
        if self.several:
            return [{**one.replays.shown[0], "label": one.run.name} for one in self.reported if one.replays.shown]
        return [*self.reported[0].replays.shown]

    def _population(self, one: Reported) -> Markup:
        ancestry = one.ancestry
        if not ancestry.lineage and ancestry.heat is None:
            return Markup("")
        of_candidates = one.run.config.options.candidates() > 1
        returns = f"Returns of all {'candidates' if of_candidates else 'training episodes'}"
        about = "its ancestors; a dot: a new network"
        return section(
            "Population" if of_candidates else "Training episodes",
            self.drawn.figure(ancestry.heat, returns, "a stronger colour: more of them"),
            self.drawn.figure(records.lineage(ancestry), "Lineage of the champion", about),
            tables.ancestors(ancestry),
        )

    def _time(self) -> Markup:
        if not any(run.metrics for run in self.runs):
            return Markup("")
        chart, about = self.charts.time(), "seconds per generation"
        if chart is not None and chart["longest"] > chart["top"]:
            about += f"; the longest, of {duration(chart['longest'])}, does not fit"
        drawn = self.drawn.figure(chart, "Where the time went", about)
        lost = map(tables.lost_workers, self.runs)
        return section("Time", drawn, tables.times(self.runs), quiet(meanings.TIMES), *lost)

    def _others(self) -> Markup:
        small = [self.drawn.figure(chart, name, meanings.of_metric(name)) for name, chart in self.charts.others()]
        still = []
        for name, value in self.charts.constant():
            means = meanings.of_metric(name)
            still.append(f"{name} {value:g} ({means})" if means else f"{name} {value:g}")
        if not small and not still:
            return Markup("")
        constant = quiet("Constant: ", ", ".join(still), ".") if still else ""
        return section("All other metrics", element("div", *small, class_="grid"), constant)


@reading_several()
def write_report(
    *run_dirs: str | Path, output: str | Path | None = None, progress: Callable[[str], object] | None = None
) -> Path:
    """Write one page about these runs, and return its path: that of `output`, or report.html in the only run directory.

    `progress` gets a line before each of several runs is read. ConfigurationError: several runs without `output`, a run
    is named twice, or no file can be written there. DataError: one is no run, or is damaged.
    """
    directories = [path_of("run_dirs", directory) for directory in run_dirs]
    real = [directory.resolve() for directory in directories]
    if twice := [directory for place, directory in enumerate(directories) if real[place] in real[:place]]:
        raise ConfigurationError(f"{twice[0]}: is named twice; leave one out")
    several = len(directories) != 1
    if several and output is None:
        raise ConfigurationError("--output: name the file, as there are several runs")
    path = directories[0] / NAME if output is None else destination("--output", output, ENDINGS)
    if output is None:
        require_run_directory(directories[0])
        refuse_foreign(path)
        refuse_unwritable(path)
    found, known = list[Reported](), dict[object, Mapping[str, Baseline]]()
    for directory, name in zip(directories, distinguished(real), strict=True):
        if progress is not None and several:
            progress(f"reading run {len(found) + 1} of {len(directories)}: {name}")
        found.append(reported(Run(directory, name=name), known, alone=not several))
    return write_page(Page(found).html(), path)


def reported(run: Run, known: dict[object, Mapping[str, Baseline]], *, alone: bool = True) -> Reported:
    """Return what a page says of a run, if `alone` with its records; `known` keeps baselines; DataError: it is none."""
    _ = run.notes  # of all that is read
    score = run.score
    test = None if score is None else (run.config.environment.model_dump_json(), score.episodes, score.block)
    if score is not None and test not in known:
        known[test] = baselines(run.environment, score.episodes, score.block, BASELINE_SECONDS)
    shown = _replays(lambda run: replays_of(run, alone=alone), run)
    return Reported(run, shown, ancestry_of(run) if alone else Ancestry(), known.get(test, {}))


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
    """Write report.html into the run directory; return its path, or "", and whether its diagnosis has a finding."""
    if found is None:
        return "", False
    try:
        whole = replace(found, baselines=baselines)
        refuse_foreign(path := found.run.directory / NAME)
        return str(write_page(Page([whole]).html(), path)), bool(whole.diagnosis.findings)
    except Exception as error:
        _no_report(error)
        return "", False


def _no_report(error: Exception) -> None:
    kind = "" if isinstance(error, EvoError | OSError) else f"{type(error).__name__}: "
    notice(f"no report was written ({kind}{first_line(error)}); the run is complete")
