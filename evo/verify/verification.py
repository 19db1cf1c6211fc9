"""Whether a run is what it says: its chain of hashes computed again, and every file held against it.

Nothing is locked and nothing is written, so the master may be at work meanwhile. What a kill can leave (the unfinished
end of an append, a champion that is older than the newest state) is no disagreement, and neither is a file that
retention has removed.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from evo.config import loading
from evo.config.experiment import difference
from evo.errors import ConfigurationError, DataError
from evo.files.durable import read_file
from evo.store.checkpoints import read_records, read_state, record_file
from evo.store.manifest import Line, Manifest, parse
from evo.store.paths import MANIFEST
from evo.store.recovery import KEEP_LAST, LARGEST_MANIFEST, population_file, require_run_directory
from evo.store.run_directory import CONFIG

if TYPE_CHECKING:
    from evo.config.experiment import Experiment


@dataclass
class Report:
    """What was found, in words and in numbers."""

    generations: int = 0
    state_hash: str | None = None
    replayed: int = 0  # candidates; a generation that has none counts as one
    not_replayable: int = 0  # candidates
    agrees: list[str] = field(default_factory=list)
    disagrees: list[str] = field(default_factory=list)
    unknown: list[str] = field(default_factory=list)  # what could not be checked, and why

    @property
    def ok(self) -> bool:
        """Whether nothing disagrees."""
        return not self.disagrees

    def numbers(self) -> dict[str, object]:
        """Return what a script asks for."""
        names = ("ok", "generations", "state_hash", "replayed", "not_replayable")
        return {name: getattr(self, name) for name in names}


@dataclass
class Evidence:
    """What of a run directory agrees with its manifest."""

    directory: Path
    manifest: Manifest
    size: int  # bytes of the manifest when it was read
    broken: bool  # whether it goes on after the generations that hold
    experiment: Experiment | None = None  # None: the configuration is not the run's
    states: set[int] = field(default_factory=set)  # generations whose state is kept and holds
    records: set[int] = field(default_factory=set)  # generations whose record holds

    def state(self, generation: int) -> dict[str, NDArray[np.generic]] | None:
        """Return a state that was kept; None where the master has removed it meanwhile."""
        try:
            return read_state(self.directory, self.lines[generation])
        except DataError:
            if os.path.lexists(self.directory / population_file(generation)):
                raise
            self.states.discard(generation)
            return None

    @property
    def lines(self) -> tuple[Line, ...]:
        """What the manifest says of every generation."""
        return self.manifest.lines


def examine(directory: Path, report: Report, flags: Mapping[str, object] | None = None) -> Evidence | None:
    """Hold manifest, configuration and files against each other; None where not even the manifest's first line holds.

    `flags` are those of `loading.load`, and say how to play. DataError: the directory is not one of a run.
    """
    require_run_directory(directory)
    data = read_file(directory / MANIFEST, most=LARGEST_MANIFEST)
    manifest = _manifest(directory / MANIFEST, data, report)
    if manifest is None:
        return None
    evidence = Evidence(directory, manifest, len(data), _broken(manifest, data))
    report.generations = len(manifest.lines)
    report.state_hash = manifest.lines[-1].state_hash if manifest.lines else manifest.first_hash
    evidence.experiment = _configuration(evidence, report, flags)
    _files(evidence, report)
    return evidence


def _manifest(path: Path, data: bytes, report: Report) -> Manifest | None:
    try:
        manifest = parse(data, str(path))
    except DataError as error:
        report.disagrees.append(str(error))
        return None
    if manifest.damage and not _broken(manifest, data):
        report.unknown.append(f"{path}: {manifest.damage}: an append is under way, or was interrupted")
    elif manifest.damage:
        report.disagrees.append(f"{path}: {manifest.damage}; no generation after it can be checked")
    report.agrees.append(f"chain: {len(manifest.lines)} generations follow from the identity, one from the other")
    return manifest


def _broken(manifest: Manifest, data: bytes) -> bool:
    """Return whether more than the end of an append is wrong, which has no newline yet."""
    return b"\n" in data[manifest.ends[-1] :]


def _configuration(evidence: Evidence, report: Report, flags: Mapping[str, object] | None) -> Experiment | None:
    path = evidence.directory / CONFIG
    try:
        experiment = loading.load(path, (), flags, resolved=True)
        changed = difference(evidence.manifest.identity, experiment.identity())
    except ConfigurationError as error:
        report.disagrees += str(error).splitlines()
        return None
    report.disagrees += [f"{path}: {line}" for line in changed]
    if changed:
        return None
    report.agrees.append("configuration: every option that can change a result is in the identity")
    return experiment


def _files(evidence: Evidence, report: Report) -> None:
    """Hold every file that a line names, and every array in it, against the line."""
    populations, gone = _populations(evidence, report)
    names = _records(evidence, report)
    removed = f"; {gone} population files are not kept any more" if gone else ""
    report.agrees.append(f"files: {len(populations)} of populations and {len(names)} of records{removed}")
    evidence.states = populations


def _populations(evidence: Evidence, report: Report) -> tuple[set[int], int]:
    """Return the generations whose state is kept and holds, and of how many it is not kept."""
    good: set[int] = set()
    missing = []
    named = [line for line in evidence.lines if population_file(line.generation) in line.files]
    for line in named:
        if not os.path.lexists(evidence.directory / population_file(line.generation)):
            missing.append(line)
            continue
        try:
            read_state(evidence.directory, line)
            good.add(line.generation)
        except DataError as error:
            if os.path.lexists(evidence.directory / population_file(line.generation)):
                report.disagrees.append(str(error))
            else:  # the master has removed it meanwhile
                missing.append(line)
    # Where the chain breaks off, retention has gone on to later generations.
    wanted = [] if evidence.broken else [line for line in named[-KEEP_LAST:] if line in missing]
    if wanted and not _has_grown(evidence):
        for line in wanted:
            file = evidence.directory / population_file(line.generation)
            report.disagrees.append(f"{file}: missing, and it is one of the last {KEEP_LAST}, which are kept")
    return good, len(missing)


def _has_grown(evidence: Evidence) -> bool:
    """Return whether a master has added to the manifest since it was read, and so may have removed files."""
    return (evidence.directory / MANIFEST).stat().st_size > evidence.size


def _records(evidence: Evidence, report: Report) -> set[str]:
    """Check every file of records; return those that hold."""
    by_name: dict[str, list[Line]] = {}
    for line in evidence.lines:
        name, other = record_file(line), set(line.files) - {record_file(line), population_file(line.generation)}
        if other:
            report.disagrees.append(f"generation {line.generation} names {min(other)}, which is not a file of its own")
        if name:
            by_name.setdefault(name, []).append(line)
        elif any(array.startswith("record/") for array in line.arrays):
            report.disagrees.append(f"generation {line.generation} names no file that keeps its record")
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
