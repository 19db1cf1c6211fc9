"""Replay one candidate of one generation alone, in a fresh process that it may crash."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from evo.config.experiment import Experiment, evaluator_of
from evo.environment import Environment
from evo.errors import ConfigurationError, DataError, counted
from evo.evaluators import processes
from evo.networks.candidates import Rebuilder
from evo.records import Episodes, Generation, Task, unit_of
from evo.store.checkpoints import Published
from evo.store.policy import setup_of
from evo.store.run import Run
from evo.store.store import Store
from evo.training.beginning import make_algorithm
from evo.training.generation import addressed
from evo.training.testing import Recording, recording_of, temporary
from evo.training.validation import Validated
from evo.verify.champion import task_of

SOUND = "the process that played it did not crash"


class Replayed(NamedTuple):
    """A candidate that was played again."""

    experiment: Experiment
    environment: Environment  # that it played in: of training, or of validation
    weights: NDArray[np.float32]  # [P]
    outcome: str  # its result in words
    recording: Recording | None  # of the episode that was asked for


def replay_candidate(
    directory: Path,
    generation: int,
    number: int,
    candidate: int,
    episode: int | None = None,
    show: Callable[[str], None] | None = None,
) -> Replayed:
    """Replay one candidate of round `number` of a generation, and record one of its episodes if that is asked for.

    Where the checkpoint before the generation is not kept, the candidate's ancestors are rebuilt from the records.
    Before it plays, `show` gets a remark on its generation, or nothing. Raises PoisonError where it ends its worker,
    ConfigurationError where there is no such generation, candidate or episode, and DataError where neither a checkpoint
    nor records lead to it.
    """
    run = Run(directory)
    store, experiment, environment = run.store, run.config, run.environment
    remark = _remark(run, generation)
    if show is not None:
        show(remark)
    weights, recording = np.empty(experiment.network().size, np.float32), None
    with closing(make_algorithm(experiment, environment)) as algorithm, temporary() as published:
        _restore(algorithm, store, generation)
        parents, tasks = _tasks_of_round(experiment, algorithm.generation(generation), number, published)
        task = task_of(tasks, candidate)
        if task is None:
            last = sum(len(one.weights) for one in tasks) - 1
            raise ConfigurationError(f"--candidate: must be 0 to {last} in this round")
        played_in = environment if task.evaluation else setup_of(experiment, environment).environment_in(generation)
        seeds = task.play.seeds if isinstance(task.play, Episodes) else None
        if episode is not None and seeds is None:
            raise ConfigurationError("--generation: its candidate plays segments, no whole episode that could be shown")
        if episode is not None and task.opponents is not None:
            raise ConfigurationError("--generation: its candidate plays against networks, and such a game is not shown")
        if episode is not None and seeds is not None and episode >= len(seeds):
            last = len(seeds) - 1
            raise ConfigurationError(f"--episode: must be 0 to {last}, the episodes of that generation's round")
        alone = replace(experiment, workers=processes.one_worker(experiment.workers))
        recorded_from = "" if episode is None else "episodes"  # is compiled before the deadline of the task begins
        with closing(evaluator_of(alone, published.directory, recorded_from, attempts=1)) as evaluator:
            (result,) = evaluator.map([task]).results
            finite = bool(result.finite.all())
            if episode is not None and seeds is not None:
                if not finite:
                    raise DataError(f"candidate {candidate} of generation {generation} has scores that are not finite")
                one = replace(task, play=Episodes(seeds[episode : episode + 1]))
                both = [replace(one, record_transitions=True), replace(one, record_actions=True)]  # of all players
                seen, *moves = evaluator.map(both if environment.players > 1 else both[:1]).results
                recording = recording_of(int(seeds[episode]), seen, environment.episode_metrics, *moves)
        Rebuilder(experiment.network()).rebuild(parents, task.weights, 0, weights)
    mean = f"mean return {result.returns.mean() / unit_of(result.returns):.3f}" if finite else "non-finite scores"
    played = f"{counted(result.returns.size, 'episode')}, {counted(result.frames, 'frame')}"
    if environment.problem is not None:  # an exact one is called once, whatever the number of seeds
        played = counted(result.frames, "call")
    outcome = f"{mean} over {played}; {SOUND}"
    return Replayed(experiment, played_in, weights, outcome, recording)


def _remark(run: Run, generation: int) -> str:
    """Return "" for a committed generation, a remark for the one that was begun; ConfigurationError: there is none."""
    done = run.store.next_generation
    if generation < done:
        return ""
    if generation == done and not run.ended:
        return "not committed: the run stopped in this generation, or goes on with it"
    has = f"generations 0 to {done - 1}" if done > 1 else "only generation 0" if done else "no generation yet"
    meant = f"; the report's generation {generation} is {generation - 1} here" if generation == done > 0 else ""
    raise ConfigurationError(f"--generation {generation}: this run has {has}{meant}")


def _restore(algorithm: Validated, store: Store, generation: int) -> None:
    """Restore the newest checkpoint before a generation, and retrace from there; DataError: neither leads to it."""
    first, missing = generation, None
    while first:
        try:
            algorithm.restore(store.read_state(first - 1), store.records()[:first])
            break
        except DataError as error:
            missing = missing or error
            first -= 1
    for number in range(first, generation):
        record = store.read_record(number)  # empty where a fork begins
        keeps = algorithm.opponents is not None and algorithm.opponents.keeps
        if keeps or not record or not algorithm.algorithm.retrace(number, record):
            raise missing or DataError(f"{store.directory}: records do not lead to generation {generation}")


def _tasks_of_round(
    experiment: Experiment, rounds: Generation, number: int, published: Published
) -> tuple[NDArray[np.float32], list[Task]]:
    """Return the parents [S, P] and the tasks of round `number` of a generation, after playing those before it."""
    request = next(rounds)
    parents = np.empty((0, experiment.network().size), np.float32) if request.weights is None else request.weights
    name, tasks = addressed(request, published.publish)
    if number:
        with closing(evaluator_of(experiment, published.directory)) as evaluator:
            try:
                for _ in range(number):
                    request = rounds.send(evaluator.map(tasks).results)
                    parents = parents if request.weights is None else request.weights
                    name, tasks = addressed(request, published.publish, name)
            except StopIteration as end:
                raise ConfigurationError(f"--round: the generation has no round {number}") from end
    return parents, tasks
