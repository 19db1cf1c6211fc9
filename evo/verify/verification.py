"""Check the files of a run against its manifest, and a replayed generation against its line.

Takes no lock and writes nothing, so the run may continue. What a crash can leave (an incomplete last line, a
champion older than the newest state) does not count as a difference, nor does a checkpoint that retention removed.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from evo.config.environments import require_plug_ins
from evo.config.experiment import LEARNING_RULES, OTHER_OPTIONS, Experiment
from evo.config.identity import ARITHMETIC, difference, of_copies
from evo.environment import Environment
from evo.errors import ConfigurationError, DataError, ResourceError, counted, printable
from evo.files.arrays import array_digest
from evo.files.durable import lines_of
from evo.files.layout import CONFIG, MANIFEST, METRICS, POPULATION, RECORDS
from evo.plugins import code
from evo.records import Arrays, Evaluator, Played, Result, Task, summed
from evo.store.checkpoints import KEEP_LAST, population_file, read_records, read_state, record_file
from evo.store.manifest import Line, Manifest, parse
from evo.store.metrics import MetricsFile
from evo.store.run_directory import require_run_directory
from evo.workers.round import worst_result

OF_VERSION = ("arithmetic", "noise", ARITHMETIC, LEARNING_RULES)  # keys of an identity that no option sets
SHOWN = 3  # differing candidates that a message names, at most


@dataclass
class Report:
    """The result of a verification: messages and numbers."""

    generations: int = 0
    state_hash: str | None = None
    replayed: int = 0  # candidates; a generation without candidates counts as one
    not_replayable: int = 0  # candidates
    agrees: list[str] = field(default_factory=list)
    disagrees: list[str] = field(default_factory=list)
    unknown: list[str] = field(default_factory=list)  # could not be checked, and why
    changed_code: list[str] = field(default_factory=list)  # by which nothing can be replayed
    game: str = ""  # a plug-in's, of which a replay differs

    @property
    def ok(self) -> bool:
        """Whether no difference was found."""
        return not self.disagrees and not self.changed_code

    def replay_differs(self, experiment: Experiment, *how: str) -> None:
        """Add what differs in a replay, which the game may cause by itself if it is not ours."""
        self.disagrees += how
        if experiment.make_environment().sources:
            self.game = experiment.environment.id

    def numbers(self) -> dict[str, object]:
        """Return the result as JSON values."""
        names = ("ok", "generations", "state_hash", "replayed", "not_replayable")
        return {name: getattr(self, name) for name in names}


@dataclass
class Evidence:
    """The parts of a run directory that agree with its manifest."""

    directory: Path
    manifest: Manifest
    experiment: Experiment | None = None  # None: the configuration is not that of the run
    states: set[int] = field(default_factory=set)  # generations whose checkpoint is kept and intact
    records: set[int] = field(default_factory=set)  # generations whose record is intact

    def state(self, generation: int) -> dict[str, NDArray[np.generic]] | None:
        """Return the state of a kept checkpoint; None where the run has since removed it."""
        try:
            return read_state(self.directory, self.lines[generation])
        except DataError:
            if os.path.lexists(self.directory / population_file(generation)):
                raise
            self.states.discard(generation)
            return None

    @property
    def lines(self) -> Sequence[Line]:
        """The line of every generation."""
        return self.manifest.lines


def examine(directory: Path, report: Report, flags: Mapping[str, Any] | None = None) -> Evidence | None:
    """Compare manifest, configuration and files; None: the first line is invalid.

    DataError where it is no run directory, ResourceError where it cannot be read.
    """
    require_run_directory(directory)
    for path in (directory / POPULATION, directory / RECORDS, directory / METRICS):
        how = os.R_OK | os.X_OK if path.is_dir() else os.R_OK
        if path.exists() and not os.access(path, how, effective_ids=os.access in os.supports_effective_ids):
            raise ResourceError(f"cannot read {path}: Permission denied")
    manifest = _manifest(directory / MANIFEST, report)
    if manifest is None:
        return None
    evidence = Evidence(directory, manifest)
    environment = manifest.identity.get("environment")  # nothing is known against the run if its plug-in is missing
    identifier = environment.get("id") if isinstance(environment, Mapping) else None
    require_plug_ins(f"{directory}: this run", manifest.identity.get("algorithm"), identifier)
    report.generations = len(manifest.lines)
    report.state_hash = manifest.lines[-1].state_hash if manifest.lines else manifest.first_hash
    evidence.experiment = _configuration(evidence, report, flags)
    evidence.states, gone = _populations(evidence, report)
    names = _records(evidence, report)
    removed = f"; {gone} older checkpoints are not kept" if gone else ""
    report.agrees.append(
        f"files: {counted(len(evidence.states), 'checkpoint')} and {counted(len(names), 'record file')}{removed}"
    )
    metrics = MetricsFile(directory)
    report.disagrees += (wrong := metrics.mistakes(manifest.lines))
    report.unknown += (missing := metrics.missing(len(manifest.lines)))
    if not wrong and not missing:
        report.agrees.append("metrics: every line has its checksum, and spent what the manifest has")
    return evidence


def _manifest(path: Path, report: Report) -> Manifest | None:
    try:
        manifest = parse(lines_of(path), str(path))
    except DataError as error:
        report.disagrees.append(str(error))
        return None
    if manifest.damage and not manifest.broken:
        report.unknown.append(f"{path}: {manifest.damage}: an append is in progress, or was interrupted")
    elif manifest.damage:
        report.disagrees.append(f"{path}: {manifest.damage}; no generation after it can be checked")
    report.agrees.append(f"state hash: recomputed over {counted(len(manifest.lines), 'generation')}")
    return manifest


def _configuration(evidence: Evidence, report: Report, flags: Mapping[str, Any] | None) -> Experiment | None:
    path, identity = evidence.directory / CONFIG, evidence.manifest.identity
    other_version = OTHER_OPTIONS.format(printable(str(evidence.directory)))
    try:
        experiment = Experiment.load(path, resolved=True, hosts="ignored", **(flags or {}))
        on_cpu = experiment.learner.model_copy(update={"device": "cpu"})  # which has the same bits
        experiment = replace(experiment, learner=on_cpu)
        changed = difference(identity, experiment.identity(), experiment.environment)
    except ConfigurationError as error:
        *mistakes, last = error.args
        if last == other_version:
            report.unknown += mistakes
            report.changed_code.append(last)
        else:
            report.disagrees += [*mistakes, last]
        return None
    report.changed_code = code.changes(identity, experiment.code())
    copies = of_copies(changed)
    options = [line for line in changed if line not in (*report.changed_code, *copies)]
    report.changed_code += [f"{evidence.directory}: its copy of {what}: {line}" for line, what in copies.items()]
    if options and all(map(_is_of_version, options)):
        report.unknown += options
        report.changed_code.append(other_version)
    else:
        report.disagrees += [f"{path}: {line}" for line in options]
    if changed:
        return None
    report.agrees.append("configuration: every option that can change a result is that of the manifest")
    return experiment


def _is_of_version(line: str) -> bool:
    """Return whether a line of `difference` is about what a version of this program sets, not a configuration."""
    key, _, values = line.partition(": ")
    return values.startswith("nothing in the run") or (key in OF_VERSION and not values.endswith("nothing now"))


def _populations(evidence: Evidence, report: Report) -> tuple[set[int], int]:
    good: set[int] = set()
    missing = []
    named = [line for line in evidence.lines if population_file(line.generation) in line.files]
    for line in named:
        try:
            read_state(evidence.directory, line)
            good.add(line.generation)
        except DataError as error:
            if os.path.lexists(evidence.directory / population_file(line.generation)):
                report.disagrees.append(str(error))
            else:
                missing.append(line)  # or the run has just removed it
    # Where the manifest is broken, retention may have removed these checkpoints for later ones.
    wanted = [] if evidence.manifest.broken else [line for line in named[-KEEP_LAST:] if line in missing]
    size = (evidence.directory / MANIFEST).stat().st_size
    if wanted and size <= evidence.manifest.size:  # nothing was committed since, and so nothing removed
        for line in wanted:
            file = evidence.directory / population_file(line.generation)
            report.disagrees.append(f"{file}: missing, though the last {KEEP_LAST} checkpoints are kept")
    return good, len(missing)


def _records(evidence: Evidence, report: Report) -> set[str]:
    by_name: dict[str, list[Line]] = {}
    for line in evidence.lines:
        name, other = record_file(line), set(line.files) - {record_file(line), population_file(line.generation)}
        if other:
            report.disagrees.append(f"generation {line.generation} names {min(other)}, a file of another generation")
        if name:
            by_name.setdefault(name, []).append(line)
        elif any(array.startswith("record/") for array in line.arrays):
            report.disagrees.append(f"generation {line.generation} names no record file")
    good = set()
    for name, lines in by_name.items():
        try:
            held = [
                line.generation for line, _ in zip(lines, read_records(evidence.directory, name, lines), strict=True)
            ]
        except DataError as error:
            report.disagrees.append(str(error))
            continue
        evidence.records.update(held)
        good.add(name)
    return good


def has_candidates(line: Line) -> bool:
    """Return whether a generation's record has a row per candidate."""
    shapes = [line.arrays[name].shape for name in ("record/key", "record/return") if name in line.arrays]
    return len(shapes) == 2 and shapes[0] == shapes[1] and len(shapes[0]) == 1


def candidates(line: Line) -> int:
    """Return the number of candidates of a generation; 1 where the algorithm has no candidates."""
    return line.arrays["record/return"].shape[0] if has_candidates(line) else 1


def same_outcome(result: Result, record: Mapping[str, NDArray[np.generic]], part: slice) -> bool:
    """Return whether returns and frames of replayed candidates equal rows `part` of the record."""
    frames = result.lengths.sum(axis=1, dtype=np.int64)
    return np.array_equal(summed(result.returns), record["return"][part]) and np.array_equal(
        frames, record["frames"][part]
    )


def differing_arrays(line: Line, arrays: Arrays) -> list[str]:
    """Return the names ("state/..." or "record/...") of arrays whose digest is not the one in the manifest."""
    names = sorted(arrays.keys() | line.arrays.keys())
    return [n for n in names if n not in arrays or line.arrays.get(n) != array_digest(n, arrays[n])]


def difference_text(
    line: Line, name: str, stored: NDArray[np.generic] | None, replayed: NDArray[np.generic] | None
) -> str:
    """Describe how a replayed array differs from the stored one; None stands for an array that is missing."""
    if replayed is None:
        return f"{name} is absent from the replay"
    if stored is None or stored.shape != replayed.shape or stored.ndim == 0:
        return f"{name} differs from the replay"
    rows = np.flatnonzero((stored != replayed).reshape(len(stored), -1).any(axis=1))
    if stored.ndim > 1:
        return f"{name} differs in {len(rows)} of {len(stored)} rows"
    row_name = "candidate" if name.startswith("record/") and len(stored) == candidates(line) else "row"
    shown = [f"{row_name} {row} has {stored[row]}, replayed {replayed[row]}" for row in rows[:SHOWN]]
    more = f", and {len(rows) - SHOWN} more" if len(rows) > SHOWN else ""
    return f"{name}: {'; '.join(shown)}{more}"


class PoisonSkipped:
    """An evaluator of one generation that does not play its poisoned candidates."""

    def __init__(self, evaluator: Evaluator, poisoned: NDArray[np.generic], environment: Environment) -> None:
        self._evaluator, self._environment, self._round = evaluator, environment, -1
        self._poisoned = {(int(number), int(candidate)) for number, candidate in poisoned}  # round and candidate

    def map(self, tasks: Sequence[Task]) -> Played:
        """Play the tasks; the poisoned have the worst result."""
        self._round += 1
        first, playable = 0, []  # candidates of each task that may be played
        for task in tasks:
            count = len(task.weights)
            playable.append([k for k in range(count) if (self._round, first + k) not in self._poisoned])
            first += count
        pairs = list(zip(tasks, playable, strict=True))
        played = self._evaluator.map([replace(one, weights=one.weights.some(some)) for one, some in pairs if some])
        results, found = iter(played.results), []
        for task, some in pairs:
            result = next(results) if some else None
            if result is None or len(some) < len(task.weights):
                whole = worst_result(task, self._environment)
                if result is not None:
                    whole.returns[some], whole.lengths[some] = result.returns, result.lengths
                    whole.episode_metrics[some], whole.finite[some] = result.episode_metrics, result.finite
                    own = {name: getattr(result, name) for name in ("frames", "lane_slots", "unasked")}
                    whole = replace(whole, **own)
                result = whole
            found.append(result)
        return replace(played, results=found)

    def close(self) -> None:
        """Close the evaluator."""
        self._evaluator.close()
