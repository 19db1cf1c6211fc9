"""Verify a run: check its files, replay generations from its checkpoints, and compare the results with its records."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack, closing
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from evo.config.experiment import Experiment
from evo.errors import DataError, counted, printable
from evo.files.arrays import checked
from evo.files.durable import read_file
from evo.files.layout import FINGERPRINT, LARGEST_FINGERPRINT, LEARNING_FINGERPRINT, METRICS
from evo.randomness.streams import draw
from evo.records import NOT_DETERMINISTIC, Episodes, Evaluator, Task, WeightSource
from evo.store.champion import Champion
from evo.store.checkpoints import Records, read_record
from evo.store.manifest import Line
from evo.store.metrics import MetricsFile, finite
from evo.store.policy import INVALID_STATE
from evo.store.run_directory import require_run_directory
from evo.training.beginning import make_algorithm
from evo.training.generation import Publish, addressed, play_out
from evo.training.testing import playing
from evo.training.validation import Validated
from evo.verify import champion
from evo.verify.champion import examine_file, has_champion, measure, rebuilt
from evo.verify.verification import (
    Evidence,
    PoisonSkipped,
    Report,
    candidates,
    difference_text,
    differing_arrays,
    examine,
    has_candidates,
    same_outcome,
)

SAMPLE = 64  # candidates that are replayed, at least


def verify(
    path: Path, count: int | None = SAMPLE, flags: Mapping[str, Any] | None = None, show: Callable[[str], None] = print
) -> Report:
    """Check a run directory and replay at least `count` candidates (None: all), or check a champion's file.

    `flags` are those of `Experiment.load`, and set how to play; `show` takes a line on every generation of a whole
    replay. DataError: it is neither a run directory nor a champion.
    """
    report = Report()
    if path.is_file():
        examine_file(path, report, flags or {})
        return report
    require_run_directory(path)
    origin = champion.read(path, report)
    evidence = examine(path, report, flags)
    if evidence is None:
        return report
    found = origin.champion if origin is not None and champion.examine(origin, evidence, report) else None
    if evidence.experiment is None:
        report.not_replayable = sum(map(candidates, evidence.lines))
        report.unknown.append("nothing is replayed, for what it needs is not that of the run")
    elif evidence.lines:
        with playing(evidence.experiment) as (evaluator, published):
            Replayer(evidence, evidence.experiment, evaluator, published.publish, report, found, show).play(count)
    return report


@dataclass
class Replayer:
    """Replays the generations of one run, and reports."""

    evidence: Evidence
    experiment: Experiment
    evaluator: Evaluator
    publish: Publish
    report: Report
    champion: Champion | None  # None: there is none, or it is not of this run
    show: Callable[[str], None]
    sampled: int = 0  # candidates whose returns and frames agree
    whole: int = 0  # generations of which everything was compared
    champion_found: str = ""  # how the replay arrived at the champion
    _algorithm: ExitStack = field(default_factory=ExitStack)  # closes the one that was begun last

    def play(self, count: int | None) -> None:
        """Replay the champion's test episodes, and at least `count` candidates; None: all that can be replayed."""
        if reason := self._other_arithmetic():
            self.report.unknown.append(reason)
            self.report.not_replayable += sum(map(candidates, self.evidence.lines))
            return
        if self.champion is not None:
            measure(self.champion, self.experiment, self.evaluator, self.publish, self.report)
        with self._algorithm:
            if count is None:
                self._everything()
            else:
                self._sample(count)

    @cached_property
    def _metrics(self) -> dict[int, dict[str, Any]]:
        """The line of metrics of each generation."""
        return {line["generation"]: line for line in MetricsFile(self.evidence.directory).read()}

    def _other_arithmetic(self) -> str:
        """Return why results of this machine cannot be compared; empty where its arithmetic is that of the run."""
        played = self.evaluator.map([Task(WeightSource.of_row(-1), Episodes(np.zeros(1, np.uint64)))])
        if played.fingerprint.startswith(NOT_DETERMINISTIC):
            return "not replayable: the environment is not deterministic under its seed"
        environment = self.experiment.make_environment()
        with closing(make_algorithm(self.experiment, environment)) as algorithm:
            here = {FINGERPRINT: played.fingerprint, LEARNING_FINGERPRINT: algorithm.algorithm.fingerprint()}
        for file, fingerprint in here.items():
            path = self.evidence.directory / file
            before = read_file(path, most=LARGEST_FINGERPRINT).decode(errors="replace") if os.path.lexists(path) else ""
            of_chance = before.startswith(NOT_DETERMINISTIC) and environment.game is None  # which may not show here
            if before and not fingerprint and not of_chance:
                self.report.disagrees.append(f"{path}: has a fingerprint, and the run's arithmetic is exact everywhere")
            elif before != fingerprint:
                return (
                    "not replayable here: another numeric fingerprint\n"
                    f"  the run: {printable(before) or 'none'}\n  here:    {fingerprint or 'none'}"
                )
        return ""

    def _everything(self) -> None:
        """Replay every generation whose preceding state is kept, or was reached by replaying."""
        algorithm: Validated | None = None
        for line in self.evidence.lines:
            if algorithm is None and not self._can_begin(line):
                self._skip([line])
                continue
            algorithm = self._whole(line, algorithm)
            self.show(f"generation {line.generation} replayed")
        self._summarise()

    def _sample(self, count: int) -> None:
        """Replay a fixed random sample of whole tasks, of `count` candidates at least; without any, two generations."""
        lines = [line for line in self.evidence.lines if self._can_begin(line)]
        self._skip([line for line in self.evidence.lines if not self._can_begin(line)])
        without_candidates = [line for line in lines if not has_candidates(line)]
        for line in (without_candidates[:1] + without_candidates[1:][-1:])[:count]:
            self._whole(line)
        wanted = self._drawn([line for line in lines if has_candidates(line)], count)
        for line in lines:
            if line.generation in wanted:
                self._sampled(line, wanted[line.generation])
        self._summarise()

    def _drawn(self, lines: Sequence[Line], count: int) -> dict[int, set[int]]:
        """Return a random sample of candidates and the champion, by generation."""
        everyone = [(line.generation, candidate) for line in lines for candidate in range(candidates(line))]
        key = int(str(self.report.state_hash)[:16], 16)  # a forged run has another sample
        chosen: set[int] = set(range(len(everyone))) if count >= len(everyone) else set()
        index = 0
        while len(chosen) < min(count, len(everyone)):
            chosen.add(draw(key, index, len(everyone)))
            index += 1
        wanted: dict[int, set[int]] = {}
        for generation, candidate in [everyone[number] for number in sorted(chosen)]:
            wanted.setdefault(generation, set()).add(candidate)
        about: Mapping[str, Any] = self.champion.about if self.champion else {}
        if count and about.get("generation") in {line.generation for line in lines} and "candidate" in about:
            wanted.setdefault(about["generation"], set()).add(about["candidate"])
        return wanted

    def _can_begin(self, line: Line) -> bool:
        """Return whether the state before a generation is kept."""
        return not line.is_forked and (line.generation == 0 or line.generation - 1 in self.evidence.states)

    def _begin(self, line: Line) -> Validated | None:
        """Return the algorithm in its state before a generation; None where the run has since removed it."""
        self._algorithm.close()
        made = make_algorithm(self.experiment, self.experiment.make_environment())
        algorithm = self._algorithm.enter_context(closing(made))
        if line.generation:
            state = self.evidence.state(line.generation - 1)
            if state is None:
                self._skip([line])
                return None
            before = self.evidence.lines[: line.generation]
            algorithm.restore(state, Records(self.evidence.directory, before))
        return algorithm

    def _skip(self, lines: Sequence[Line]) -> None:
        """Report generations that are not replayed, and why."""
        forked = [line for line in lines if line.is_forked]
        others = [line for line in lines if not line.is_forked]
        if forked:
            self.report.unknown.append("generation 0 is the state of another run (--fork): nothing was played in it")
        if others:
            count, all_lines = sum(map(candidates, others)), len(self.evidence.lines)
            self.report.unknown.append(
                f"{counted(count, 'candidate')}, of {len(others)} of {counted(all_lines, 'generation')}, cannot be "
                f"replayed: no checkpoint before them is kept; --all, which replays from the start, may reach them"
            )
        self.report.not_replayable += sum(map(candidates, lines))

    def _sampled(self, line: Line, wanted: set[int]) -> None:
        """Replay the tasks of these candidates, and compare returns and frames with the record."""
        generation = line.generation
        try:
            algorithm = self._begin(line)
            if algorithm is None:
                return
            rounds = algorithm.training(generation)
            request = next(rounds)
            rounds.close()
            _, tasks = addressed(request, self.publish)
            ends = np.cumsum([len(task.weights) for task in tasks])
            agree = generation in self.evidence.records and ends[-1] == candidates(line)
            agree &= self._poisoned(line) is None
            chosen = sorted({int(np.searchsorted(ends, candidate, "right")) for candidate in wanted}) if agree else []
            results = self.evaluator.map([tasks[number] for number in chosen]).results
            record = read_record(self.evidence.directory, line) if agree else {}
            for number, result in zip(chosen, results, strict=True):
                agree &= same_outcome(result, record, slice(ends[number] - len(result.returns), ends[number]))
            if agree and (champion := self._champion_of(line)) is not None and "candidate" in champion.about:
                agree = rebuilt(champion, self.experiment.network(), request)
                self.champion_found = "its weights, rebuilt from its parent and its noise"
        except (DataError, *INVALID_STATE) as error:
            self._invalid(line, error)
            return
        if not agree:
            # A record may cover more than the first round, so only a replay of the whole generation decides.
            self._whole(line)
            return
        self.sampled += sum(len(result.returns) for result in results)
        self.report.replayed += sum(len(result.returns) for result in results)

    def _whole(self, line: Line, algorithm: Validated | None = None) -> Validated | None:
        """Replay a generation and compare state and record; return the algorithm where its state agrees."""
        try:
            algorithm = algorithm or self._begin(line)
            if algorithm is None:
                return None
            poisoned = self._poisoned(line)
            players = self.evaluator
            if poisoned is not None:
                players = PoisonSkipped(self.evaluator, poisoned, self.experiment.make_environment())
            metrics = play_out(algorithm.generation(line.generation), players, self.publish)
            state, record = checked(algorithm.state()), checked(algorithm.record())
            record |= {} if poisoned is None else {"poisoned": poisoned}
            champion = self._champion_of(line)
            found = champion is not None and self._finds(champion, algorithm, line, players)
        except (DataError, *INVALID_STATE) as error:
            self._invalid(line, error)
            return None
        self.report.replayed += candidates(line)
        self.whole += 1
        arrays = {f"state/{name}": array for name, array in state.items()}
        arrays |= {f"record/{name}": array for name, array in record.items()}
        differing = differing_arrays(line, arrays)
        mistakes = [difference_text(line, name, self._kept(line, name), arrays.get(name)) for name in differing]
        if found:
            self.champion_found = f"a replay of generation {line.generation} finds the same weights"
        elif champion is not None:
            mistakes.append("the replay finds another champion than champion.h5")
        frames = int(metrics.get("frames", 0)), int(metrics.get("frames_validating", 0))
        if frames != (line.frames, line.frames_validating):
            of_line = f"{line.frames} frames and {line.frames_validating} of validation in the manifest"
            mistakes.append(f"{of_line}, {frames[0]} and {frames[1]} replayed")
        shown = self._metrics.get(line.generation, {})
        for name in ("best", "mean", *(["validation"] if algorithm.due(line.generation) else [])):
            if name in shown and name in metrics and shown[name] != finite(metrics[name]):
                mistakes.append(f"{name} {shown[name]} in {METRICS}, {finite(metrics[name])} replayed")
        if mistakes:
            self.report.replay_differs(self.experiment, *(f"generation {line.generation}: {one}" for one in mistakes))
        return None if any(name.startswith("state/") for name in differing) else algorithm

    def _finds(self, champion: Champion, algorithm: Validated, line: Line, players: Evaluator) -> bool:
        """Return whether a replayed generation arrives at the champion, which may be of a validation at a run's end."""
        state = algorithm.state()
        if line.generation == champion.about["generations"] - 1 and not algorithm.due(line.generation):
            play_out(algorithm.last(line.generation), players, self.publish)
        found = has_champion(champion, algorithm)
        algorithm.restore_champion(state)
        return bool(found)

    def _kept(self, line: Line, name: str) -> NDArray[np.generic] | None:
        """Return a stored array of a generation, if it is kept."""
        kind, _, array = name.partition("/")
        if kind == "record" and line.generation in self.evidence.records:
            return read_record(self.evidence.directory, line).get(array)
        if kind == "state" and line.generation in self.evidence.states:
            return (self.evidence.state(line.generation) or {}).get(array)
        return None

    def _invalid(self, line: Line, error: Exception) -> None:
        self.report.not_replayable += candidates(line)
        what = f"generation {line.generation}: cannot be replayed from the state before it"
        self.report.disagrees.append(f"{what} ({type(error).__name__}: {error})")

    def _poisoned(self, line: Line) -> NDArray[np.generic] | None:
        """Return round and number of every poisoned candidate; None where there is none.  # [N, 2]"""
        if "record/poisoned" not in line.arrays:
            return None
        poisoned = read_record(self.evidence.directory, line)["poisoned"]
        if poisoned.ndim != 2 or poisoned.shape[1] != 2 or poisoned.dtype.kind != "i":
            raise DataError("its record of poisoned candidates is invalid")
        return poisoned

    def _champion_of(self, line: Line) -> Champion | None:
        """Return the champion if it comes from this generation."""
        champion = self.champion
        return champion if champion is not None and champion.about["generation"] == line.generation else None

    def _summarise(self) -> None:
        if self.sampled:
            self.report.agrees.append(f"replay: returns and frames of {counted(self.sampled, 'candidate')}")
        if self.whole and self.report.ok:
            self.report.agrees.append(f"replay: every hashed array of {counted(self.whole, 'whole generation')}")
        if self.champion_found and self.report.ok:
            self.report.agrees.append(f"champion: {self.champion_found}")
