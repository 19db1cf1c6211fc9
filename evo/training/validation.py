"""Chooses the champion: finalists play validation episodes, which are fixed for a run, and the best ever is kept."""

from __future__ import annotations

from collections.abc import Callable, Collection, Generator, Sequence
from dataclasses import replace
from math import isnan
from typing import Any

import numpy as np
from numpy.typing import NDArray

from evo import clock
from evo.config.sections import ValidationOptions
from evo.environment import Curriculum
from evo.errors import ConfigurationError
from evo.files.arrays import NAME
from evo.plugins import directory
from evo.plugins.mistakes import is_named, mistake
from evo.randomness.streams import Purpose, episode_keys
from evo.records import (
    Algorithm,
    Arrays,
    Episodes,
    Finalists,
    Generation,
    Metrics,
    Request,
    Result,
    Task,
    WeightSource,
    mean_returns,
    summed,
    worst_of,
)
from evo.store.metrics import is_metric
from evo.training.answers import is_row, wrong_in
from evo.training.opponents import HALL, LOST, SINCE, opponents_of

WEIGHTS, ORIGIN = "champion", "champion_origin"
OURS = {WEIGHTS, ORIGIN, HALL, SINCE, LOST}  # the arrays of a checkpoint that are the trainer's
EPISODES_PER_TASK = 64  # of compiled environments


class Validated:
    """An algorithm whose finalists are validated, and the champion that this gives."""

    def __init__(
        self,
        algorithm: Algorithm,
        options: ValidationOptions,
        seed: int,
        start: NDArray[np.float32] | None = None,
        curriculum: Curriculum | None = None,
        plugin: str = "",
        size: int = 0,
        rules: Collection[str] = (),
        per_task: int = EPISODES_PER_TASK,
        of_files: Callable[[], NDArray[np.float32]] | None = None,
        calls: bool = False,
    ) -> None:
        """Validate an algorithm; where it is a `plugin`'s, the module's name, its answers are checked.

        Its networks have `size` weights; 0: of any number. Actions follow from outputs by one of `rules`. `of_files`
        reads networks that begin in the hall of fame. Where episodes are `calls` of a fitness function, one that is not
        finite says nothing of the others.
        """
        self._calls = calls
        self._per_task, self._size, self._rules = per_task, size, rules
        self.algorithm, self.notices, self._options = algorithm, algorithm.notices, options
        self._curriculum, self._plugin = curriculum, plugin
        self._of_files = of_files
        self._start = start  # [P] what the algorithm starts from, validated before generation 0
        self._seeds = episode_keys(seed, Purpose.VALIDATION, 0, options.episodes)
        self._champion = np.empty((0, 0), np.float32)  # [0 or 1, P]
        # Summed validation return, generation, candidate or -1, and behind them calls that were not finite, if any.
        self._origin: NDArray[Any] = np.zeros(3, np.int64)
        self.opponents = opponents_of(seed, curriculum)
        self.changed = False  # whether the last generation has brought another champion

    def generation(self, number: int) -> Generation:
        """Play a generation of the algorithm, and validate its finalists if that is due.

        The metrics have `validation`, the champion's mean return, and in generation 0 of a run that starts from
        another one's champion `start_validation`, that network's mean return. Where a validation is due and finalists
        were chosen by returns in training, `optimism` is how much these exceed their validation returns, on average.
        """
        self.changed = False
        spent: Metrics = {"seconds_validating": 0.0, "frames_validating": 0.0}
        known: Metrics = {}
        if number == 0:
            self._begin_hall()
        if number == 0 and self._start is not None:
            returns = yield from self._validate(Finalists(self._start[np.newaxis]), number, spent)
            known["start_validation"] = returns[0]
        metrics = yield from self.training(number)
        if self.due(number):
            finalists = self._finalists()
            returns = yield from self._validate(finalists, number, spent)
            if self.changed and self.opponents:
                self.opponents.admit(self._champion[0], number)
            if finalists.returns is not None:
                known["optimism"] = float(np.mean(finalists.returns - returns))
        return {**metrics, **spent, **known, "validation": self.fitness if self.best is not None else float("nan")}

    def training(self, number: int) -> Generation:
        """Play a generation of the algorithm, without validation, in the environment that the curriculum has for it.

        ConfigurationError: a plug-in's answer is not what the protocol says.
        """
        rounds, results, curriculum = self.algorithm.generation(number), None, self._curriculum
        published = unasked = age = 0  # rows; frames about which no network was asked
        self._expect(hasattr(rounds, "send"), "generation", rounds)
        while True:
            try:
                with directory.kept():
                    request = rounds.send(results)  # type: ignore[arg-type]
            except StopIteration as end:
                metrics: Metrics = end.value
                break
            self._expect(isinstance(request, Request), "generation", request)
            self._expect(request.weights is None or self._is_matrix(request.weights), "generation", request.weights)
            published = published if request.weights is None else len(request.weights)
            self._expect(isinstance(request.tasks, Sequence), "generation", request.tasks)
            for task in request.tasks:
                self._expect(isinstance(task, Task), "generation", task)
                if self._plugin and (wrong := wrong_in(task, published, self._rules, curriculum is None)):
                    raise self._mistake("generation", f"gave a task in which {wrong}")
            if curriculum is not None:
                age = self.algorithm.age(number)
                request = replace(request, tasks=[curriculum.placed(task, age) for task in request.tasks])
                if self.opponents:
                    request = self.opponents.matched(request, number, age)
            results = yield request
            unasked += sum(result.unasked for result in results)
        if self._plugin:
            self._expect(results is not None, "generation", None)  # it has requested nothing
            self._expect(is_named(metrics) and all(map(np.isscalar, metrics.values())), "generation", metrics)
            for name, value in metrics.items():
                if not is_metric(name, value):
                    raise self._mistake("generation: metric", f"{name!r:.80} is {value!r:.40}")
        of_baselines = {"frames_of_baselines": float(unasked)} if unasked else {}
        return {**metrics, **of_baselines, **({} if curriculum is None else curriculum.metrics(age))}

    def due(self, number: int) -> bool:
        """Return whether a generation validates its finalists: the first, and every `validation.every`-th."""
        return number == 0 or (number + 1) % self._options.every == 0

    def last(self, number: int) -> Generation:
        """Validate the finalists of the generation in which a run ends, where that was not due.

        A better champion is reported, but is in no checkpoint: a run that goes on is the same as one that never ended.
        """
        self.changed = False
        spent: Metrics = {"seconds_validating": 0.0, "frames_validating": 0.0}
        yield from self._validate(self._finalists(), number, spent)
        return spent

    def _validate(
        self, finalists: Finalists, number: int, spent: Metrics
    ) -> Generator[Request, Sequence[Result], list[float]]:
        """Play every finalist greedily, keep the best network, and return the mean return of each.

        Where finalists meet the champions so far as well, the champion does too, and the best one is that of the
        largest sum of returns against these and the baselines.
        """
        began, count = clock.wall(), len(finalists.weights)
        parts = [self._seeds[i : i + self._per_task] for i in range(0, len(self._seeds), self._per_task)]
        weights, champions = finalists.weights, len(self._champion)
        former = self.opponents.of_validation() if self.opponents else ()
        tasks = [
            Task(WeightSource.of_row(row), Episodes(part), evaluation=True) for row in range(count) for part in parts
        ]
        if len(former):
            weights = np.concatenate([weights, *self._champion[:, np.newaxis], former])  # of no champion, no row
            rivals = WeightSource.of_rows(len(former), count + champions)
            for row in range(count + champions):
                source = WeightSource.of_row(row)
                tasks += [Task(source, Episodes(part), evaluation=True, opponents=rivals) for part in parts]
        results = yield Request(weights, tasks)
        played = [results[first : first + len(parts)] for first in range(0, len(tasks), len(parts))]
        totals, lost = [np.concatenate([result.returns for result in one], axis=1) for one in played], [0] * len(played)
        if self._calls:
            lost = [int((row == worst_of(row)).sum()) % row.size for row in totals]  # of none that is finite, the worst
            totals = [_of_finite(row) if lost[number] else row for number, row in enumerate(totals)]
        totals = [summed(row) for row in totals]
        means, against = [self._mean(total) for total in totals[:count]], totals[count:]
        if against and self.opponents:
            met = zip(*played[count : 2 * count], strict=True)  # finalists in each part
            self.opponents.note([np.concatenate([result.returns for result in part]) for part in met])
        best = self._origin[0] if not against or not champions else int(self._origin[0]) + int(against[count][0])
        for row, mean in enumerate(means):
            total = totals[row][0] if not against else int(totals[row][0]) + int(against[row][0])
            finite = not isnan(mean) and not (against and isnan(self._mean(against[row])))
            fewer = self._lost - lost[row]  # calls that were not finite
            if finite and (self.best is None or fewer > 0 or (fewer == 0 and total > best)):
                candidate = -1 if finalists.candidates is None else int(finalists.candidates[row])
                self._champion = np.array(finalists.weights[row : row + 1], np.float32)
                self._champion.setflags(write=False)
                facts = [totals[row][0], number, candidate, *([lost[row]] if lost[row] else [])]
                self._origin = np.array(facts, totals[row].dtype)
                best, self.changed = total, True
        spent["frames_validating"] += sum(result.frames for result in results)
        spent["seconds_validating"] += clock.wall() - began
        return means

    @property
    def best(self) -> NDArray[np.float32] | None:
        """Return the champion's weights, or None before there is one.  # [P]"""
        return self._champion[0] if len(self._champion) else None

    @property
    def _lost(self) -> int:
        return int(self._origin[3]) if len(self._origin) > 3 else 0

    @property
    def fitness(self) -> float:
        """Return the champion's mean return on validation episodes."""
        return self._mean(self._origin)

    def origin(self) -> dict[str, float]:
        """Return the champion's fitness, its generation and, in evolution, its number among the candidates there."""
        generation, candidate = (int(number) for number in self._origin[1:3])
        known = {"candidate": candidate} if candidate >= 0 else {}
        return {"fitness": self.fitness, "generation": generation, **known}

    def state(self) -> Arrays:
        """Return the algorithm's state, the champion and its origin: the arrays of a checkpoint.

        ValueError: the algorithm uses a name that is the trainer's.
        """
        own = self._arrays("state", self.algorithm.state)
        if taken := own.keys() & OURS:
            raise ValueError(f"the algorithm's state has arrays {sorted(taken)}, which are names of the trainer")
        hall = self.opponents.state() if self.opponents else {}
        return {**own, **hall, WEIGHTS: self._champion, ORIGIN: self._origin}

    def record(self) -> Arrays:
        """Return what the algorithm did in the last generation."""
        return self._arrays("record", self.algorithm.record)

    @directory.kept()
    def close(self) -> None:
        """Release what the algorithm holds."""
        self.algorithm.close()

    @directory.kept()
    def restore(self, state: Arrays, records: Sequence[Arrays]) -> None:
        """Continue from a checkpoint and the records of all generations up to it."""
        own = _own(state)
        self.algorithm.restore(own, records)
        self.restore_champion(state)
        if self._plugin and len(records):  # without them a network is looked for, and nothing goes on
            now = self.algorithm.state()
            self._expect(is_named(now) and now.keys() == own.keys(), "restore", now)
            for name, array in own.items():
                if not np.array_equal(array, now[name], equal_nan=True):
                    raise self._mistake("restore", f"gave the array {name!r:.80} of another value")

    def restore_champion(self, state: Arrays) -> None:
        """Take the champion from a checkpoint, and nothing else."""
        self._champion = np.ascontiguousarray(state[WEIGHTS], np.float32)
        self._origin = np.asarray(state[ORIGIN])
        if self.opponents:
            self.opponents.restore(state)

    def fork(self, state: Arrays) -> None:
        """Continue from a checkpoint of another run, without its champion: other options may validate it otherwise.

        ConfigurationError: the algorithm cannot continue from these arrays.
        """
        self._begin_hall()
        try:
            with directory.kept():
                self.algorithm.restore(_own(state), ())
        except (AttributeError, IndexError, KeyError, TypeError, ValueError) as error:
            what = f"there is no array {error}" if isinstance(error, KeyError) else str(error)
            raise ConfigurationError(
                f"--fork: the algorithm cannot continue from the state of that run: {what}; to start from its champion "
                "instead, use run.init_from"
            ) from error

    def _begin_hall(self) -> None:
        if self._of_files and self.opponents and self.opponents.keeps:
            self.opponents.begin(self._of_files())

    @directory.kept()
    def _finalists(self) -> Finalists:
        found = self.algorithm.finalists(self._options.finalists)
        self._expect(isinstance(found, Finalists), "finalists", found)
        self._expect(self._is_matrix(found.weights), "finalists", found.weights)
        for of_each, kinds in ((found.candidates, "iu"), (found.returns, "f")):
            fits = of_each is None or is_row(np.asarray(of_each), kinds, len(found.weights))
            self._expect(fits, "finalists", of_each)
        return found

    def _is_matrix(self, weights: Any) -> bool:
        """Return whether these are weights of networks.  # float32 [S, P]"""
        fits = isinstance(weights, np.ndarray) and weights.ndim == 2 and weights.dtype == np.float32
        return fits and self._size in (0, weights.shape[1])

    @directory.kept()
    def _arrays(self, hook: str, read: Callable[[], Arrays]) -> Arrays:
        found = read()
        if self._plugin:
            fits = is_named(found) and all(isinstance(array, np.ndarray) for array in found.values())
            self._expect(fits, hook, found)
            for name, array in found.items():
                if not NAME.fullmatch(name) or name in OURS or array.dtype.kind not in "biuf":
                    raise self._mistake(hook, f"gave the array {name!r:.80} of {array.dtype}")
        return found

    def _expect(self, fits: bool, hook: str, found: object) -> None:
        """ConfigurationError: a plug-in's answer does not fit. Those of our own algorithms do."""
        if self._plugin and not fits:
            array = f", {found.dtype} {found.shape}" if hasattr(found, "dtype") and hasattr(found, "shape") else ""
            raise self._mistake(hook, f"gave a value of type {type(found).__name__}{array}")

    def _mistake(self, hook: str, what: str) -> ConfigurationError:
        return mistake(self._plugin, f"{type(self.algorithm).__name__}.{hook}", what)

    def _mean(self, total: NDArray[Any]) -> float:
        """Return the mean return of a sum, the first number of an array."""
        return float(mean_returns(total[:1], self._options.episodes)[0])


def _of_finite(returns: NDArray[Any]) -> NDArray[Any]:
    """Return returns with their mean in place of those that are not finite.  # [1, E]"""
    finite = returns != worst_of(returns)
    return np.where(finite, returns, np.cumsum(returns[finite])[-1] / finite.sum())


def _own(state: Arrays) -> Arrays:
    """Return the arrays of a checkpoint that are the algorithm's."""
    return {name: array for name, array in state.items() if name not in OURS}
