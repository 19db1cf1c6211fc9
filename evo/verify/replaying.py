"""Plays generations of a run again, from the states that it kept, and compares what they do with what was recorded."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from evo.config.experiment import Experiment, environment_of, evaluator_of
from evo.errors import DataError
from evo.files.arrays import checked
from evo.files.durable import read_file
from evo.randomness.philox import draw
from evo.records import Episodes, Task, WeightSource
from evo.store.checkpoints import read_all_records, read_record
from evo.store.fingerprint import FILE, LARGEST, LEARNING
from evo.store.paths import PUBLISHED
from evo.store.published import Published
from evo.training.generation import addressed, make_algorithm, play_out
from evo.verify.champion_origin import UNFIT, is_the, measure, rebuilt
from evo.verify.comparison import candidates, difference, differing_arrays, has_candidates, same_outcome, taken_over
from evo.verify.poisoned import Sparing

if TYPE_CHECKING:
    from evo.records import Evaluator
    from evo.store.champion import Champion
    from evo.store.manifest import Line
    from evo.training.validation import Validated
    from evo.verify.verification import Evidence, Report


@contextmanager
def replayer(
    evidence: Evidence,
    experiment: Experiment,
    plugins: Sequence[str],
    report: Report,
    champion: Champion | None,
    say: Callable[[str], None],
) -> Iterator[Replayer]:
    """Yield what replays a run; whatever is published for that lies elsewhere, and is gone afterwards."""
    with TemporaryDirectory(prefix="snake-evo-") as place:
        (Path(place) / PUBLISHED).mkdir()
        evaluator = evaluator_of(experiment, Path(place), list(plugins))
        try:
            yield Replayer(evidence, experiment, evaluator, _Desk(Published(Path(place)).add), report, champion, say)
        finally:
            evaluator.close()


@dataclass(frozen=True)
class _Desk:
    """Where weights are published that no run directory should have."""

    publish: Callable[[NDArray[np.float32]], str]


@dataclass
class Replayer:
    """Replays the generations of one run, and reports."""

    evidence: Evidence
    experiment: Experiment
    evaluator: Evaluator
    desk: _Desk
    report: Report
    champion: Champion | None  # None: there is none, or it is not the run's
    say: Callable[[str], None]
    sampled: int = 0  # candidates of which returns and frames were compared
    whole: int = 0  # generations of which everything was compared
    crowned: str = ""  # how the champion came about once more

    def play(self, count: int | None) -> None:
        """Replay at least `count` candidates, or (None) everything that can be; and the champion's sealed episodes."""
        if reason := self._stranger():
            self.report.unknown.append(reason)
            self.report.not_replayable += sum(map(candidates, self.evidence.lines))
            return
        if self.champion is not None:
            measure(self.champion, self.experiment, self.evaluator, self.desk.publish, self.report)
        if count is None:
            self._everything()
        else:
            self._sample(count)

    def _stranger(self) -> str:
        """Return why nothing that is played here can be compared; nothing where the arithmetic is the run's."""
        one = np.zeros(1, np.int32)
        source = WeightSource(one - 1, one - 1, one.astype(np.uint64), one.astype(np.float32))
        played = self.evaluator.map([Task(source, Episodes(np.zeros(1, np.uint64)))])
        algorithm = make_algorithm(self.experiment, environment_of(self.experiment.environment))
        here = {FILE: played.fingerprint, LEARNING: algorithm.fingerprint()}
        for file, fingerprint in here.items():
            path = self.evidence.directory / file
            before = read_file(path, most=LARGEST).decode(errors="replace") if os.path.lexists(path) else ""
            if before != fingerprint:
                told = f"  the run: {before or 'none'}\n  here:    {fingerprint or 'none'}"
                return f"not replayable here: another numeric fingerprint\n{told}"
        return ""

    def _everything(self) -> None:
        """Replay every generation whose state before is kept, or was reached by replaying."""
        algorithm: Validated | None = None
        for line in self.evidence.lines:
            if algorithm is None and not self._can_begin(line):
                self._leave([line])
                continue
            algorithm = self._whole(line, algorithm)
            self.say(f"generation {line.generation} is played again")
        self._tell()

    def _sample(self, count: int) -> None:
        """Replay at least `count` candidates of all that can be, always the same ones of one run.

        A task is played whole, for its batch may matter. Of an algorithm that has no candidates, the first and the
        last generation that can be are replayed instead.
        """
        lines = [line for line in self.evidence.lines if self._can_begin(line)]
        self._leave([line for line in self.evidence.lines if not self._can_begin(line)])
        undivided = [line for line in lines if not has_candidates(line)]
        for line in (undivided[:1] + undivided[1:][-1:])[:count]:
            self._whole(line)
        wanted = self._drawn([line for line in lines if has_candidates(line)], count)
        for line in lines:
            if line.generation in wanted:
                self._sampled(line, wanted[line.generation])
        self._tell()

    def _drawn(self, lines: Sequence[Line], count: int) -> dict[int, set[int]]:
        """Return numbers of candidates by their generation: as many as asked for, and the champion."""
        everyone = [(line.generation, candidate) for line in lines for candidate in range(candidates(line))]
        key = int(str(self.report.state_hash)[:16], 16)  # another forgery, another sample
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
        """Return whether the state before a generation is there."""
        return not taken_over(line) and (line.generation == 0 or line.generation - 1 in self.evidence.states)

    def _begin(self, line: Line) -> Validated | None:
        """Return the algorithm as it stood before a generation; None where that was removed meanwhile."""
        algorithm = make_algorithm(self.experiment, environment_of(self.experiment.environment))
        if line.generation:
            state = self.evidence.state(line.generation - 1)
            if state is None:
                self._leave([line])
                return None
            before = self.evidence.lines[: line.generation]
            algorithm.restore(state, read_all_records(self.evidence.directory, before))
        return algorithm

    def _leave(self, lines: Sequence[Line]) -> None:
        """Report what is not replayed, and why."""
        begun = [line for line in lines if taken_over(line)]
        others = [line for line in lines if not taken_over(line)]
        if begun:
            self.report.unknown.append(
                "generation 0 was taken over from another run (--fork): nothing was played in it"
            )
        if others:
            count = sum(map(candidates, others))
            self.report.unknown.append(
                f"{count} candidates, of {len(others)} of {len(self.evidence.lines)} generations, are not replayable: "
                f"the state before is not kept, and a replay of everything would have to reach it"
            )
        self.report.not_replayable += sum(map(candidates, lines))

    @property
    def _measures(self) -> int:
        return len(environment_of(self.experiment.environment).episode_metrics)

    def _sampled(self, line: Line, wanted: set[int]) -> None:
        """Play the tasks that hold these candidates, and compare returns and frames with the record."""
        generation = line.generation
        try:
            algorithm = self._begin(line)
            if algorithm is None:
                return
            rounds = algorithm.algorithm.generation(generation)  # without what is validated
            request = next(rounds)
            rounds.close()
            _, tasks = addressed(request, self.desk)
            ends = np.cumsum([len(task.weights) for task in tasks])
            agree = generation in self.evidence.records and ends[-1] == candidates(line)
            agree &= self._poisoned(line) is None
            chosen = sorted({int(np.searchsorted(ends, candidate, "right")) for candidate in wanted}) if agree else []
            results = self.evaluator.map([tasks[number] for number in chosen]).results
            record = read_record(self.evidence.directory, line) if agree else {}
            for number, result in zip(chosen, results, strict=True):
                agree &= same_outcome(result, record, slice(ends[number] - len(result.returns), ends[number]))
            if agree and (born := self._born_in(line)) is not None and "candidate" in born.about:
                agree = rebuilt(born, self.experiment.network(), request)
                self.crowned = "its weights, made again from its parent and its noise, are those"
        except (DataError, *UNFIT) as error:
            self._unfit(line, error)
            return
        if not agree:
            # What the record says is decided by a whole generation: a record may be of more than its first round.
            self._whole(line)
            return
        count = sum(len(result.returns) for result in results)
        self.report.replayed += count
        self.sampled += count

    def _whole(self, line: Line, algorithm: Validated | None = None) -> Validated | None:
        """Replay a generation and compare all that it left; return the algorithm where its state is the run's."""
        try:
            algorithm = algorithm or self._begin(line)
            if algorithm is None:
                return None
            poisoned = self._poisoned(line)
            players = self.evaluator if poisoned is None else Sparing(self.evaluator, poisoned, self._measures)
            metrics = play_out(algorithm.generation(line.generation), players, self.desk)
            state, record = checked(algorithm.state()), checked(algorithm.record())
            record |= {} if poisoned is None else {"poisoned": poisoned}
        except (DataError, *UNFIT) as error:
            self._unfit(line, error)
            return None
        self.report.replayed += candidates(line)
        self.whole += 1
        arrays = {f"state/{name}": array for name, array in state.items()}
        arrays |= {f"record/{name}": array for name, array in record.items()}
        differing = differing_arrays(line, arrays)
        mistakes = [difference(line, name, self._kept(line, name), arrays.get(name)) for name in differing]
        born = self._born_in(line)
        if born is not None and is_the(born, algorithm):
            self.crowned = f"generation {line.generation}, played again, crowns these weights"
        elif born is not None:
            mistakes.append("it crowns another champion than that in champion.h5")
        if int(metrics.get("frames", 0)) != line.frames:
            mistakes.append(f"{line.frames} frames in the manifest, {int(metrics.get('frames', 0))} replayed")
        self.report.disagrees += [f"generation {line.generation}: {mistake}" for mistake in mistakes]
        return None if any(name.startswith("state/") for name in differing) else algorithm

    def _kept(self, line: Line, name: str) -> NDArray[np.generic] | None:
        """Return an array of a generation as it was kept, if it is."""
        kind, _, array = name.partition("/")
        if kind == "record" and line.generation in self.evidence.records:
            return read_record(self.evidence.directory, line).get(array)
        if kind == "state" and line.generation in self.evidence.states:
            return (self.evidence.state(line.generation) or {}).get(array)
        return None

    def _unfit(self, line: Line, error: Exception) -> None:
        self.report.not_replayable += candidates(line)
        self.report.disagrees.append(
            f"generation {line.generation}: cannot be played from the state before it ({type(error).__name__}: {error})"
        )

    def _poisoned(self, line: Line) -> NDArray[np.generic] | None:
        """Return round and number of every candidate that ended its workers; None where none did.  # [N, 2]"""
        if "record/poisoned" not in line.arrays:
            return None
        poisoned = read_record(self.evidence.directory, line)["poisoned"]
        if poisoned.ndim != 2 or poisoned.shape[1] != 2 or poisoned.dtype.kind != "i":
            raise DataError("its record of poisoned candidates is not one")
        return poisoned

    def _born_in(self, line: Line) -> Champion | None:
        """Return the champion if it was crowned in this generation."""
        champion = self.champion
        return champion if champion is not None and champion.about["generation"] == line.generation else None

    def _tell(self) -> None:
        if self.sampled:
            told = f"replayed: {self.sampled} candidates, whose returns and frames are those of the record"
            self.report.agrees.append(told)
        if self.whole and self.report.ok:
            told = f"replayed: {self.whole} whole generations, which leave every array that was hashed"
            self.report.agrees.append(told)
        if self.crowned and self.report.ok:
            self.report.agrees.append(f"champion: {self.crowned}")
