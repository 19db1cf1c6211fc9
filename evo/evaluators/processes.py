"""Plays tasks in worker processes of this machine; results equal those of `serial`, even if workers die."""

from __future__ import annotations

from functools import partial
from typing import Literal

from pydantic import Field

from evo.player import RunSpec, worst
from evo.workers.channel import WorkerSpec
from evo.workers.options import WorkersOptions
from evo.workers.placement import LocalOptions
from evo.workers.pool import Pool
from evo.workers.round import ATTEMPTS


class Options(LocalOptions):
    """[workers] of the processes backend."""

    start: Literal["forkserver", "spawn"] = Field(
        "forkserver", description="how workers start; spawn = a fresh interpreter each, which is slower"
    )


def one_worker(workers: WorkersOptions) -> Options:
    """Return options for one worker like those of a run, on its first GPU, if any; its poison is raised."""
    shared = workers.model_dump(include=set(WorkersOptions.model_fields))
    ids = workers.gpu_ids[:1] if isinstance(workers, LocalOptions) else []
    return Options(**{**shared, "backend": "processes", "count": 1, "gpu_ids": ids, "on_poison": "stop"})


def make(options: Options, spec: RunSpec, attempts: int = ATTEMPTS) -> Pool:
    """Return the evaluator of a run."""
    player = "evo.player:make_player"
    return Pool(
        WorkerSpec(player, spec, "evo.player:prepare", options.start, options.deadline),
        options.slots(spec.inference, spec.learner),
        options.threads,
        attempts=attempts,
        separable=True,
        worst=partial(worst, spec) if options.on_poison == "worst" else None,
    )
