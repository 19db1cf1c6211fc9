"""Which devices play where workers.kind is "auto": GPUs, if a short probe finds them faster than all cores."""

from __future__ import annotations

import time
from contextlib import closing
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path

import numpy as np

from evo.config.environments import environment_of
from evo.config.experiment import Experiment, evaluator_of
from evo.errors import EvoError, notice
from evo.randomness.streams import Purpose, episode_keys
from evo.records import Episodes, Task, WeightSource
from evo.workers import hardware
from evo.workers.options import CANDIDATES_ON_GPU

EPISODES = 32  # of a candidate
ENOUGH = 0.3  # seconds of playing


def on_fastest(experiment: Experiment, directory: Path) -> Experiment:
    """Return the experiment with workers on GPUs if it leaves the choice, and they play faster than all cores.

    Only where the extra `cuda` is installed, and of algorithms that play many candidates at once: for a segment of some
    environments a GPU is too large. Results are the same on both.
    """
    workers, cores = experiment.workers, hardware.cores()
    chosen = workers.backend != "processes" or workers.kind != "auto" or workers.count != "auto" or workers.on_gpu
    if chosen or experiment.inference != "lanes" or experiment.learns or find_spec("numba_cuda") is None:
        return experiment
    environment = environment_of(experiment.environment)
    if environment.game is None or environment.players > 1 or not (gpus := len(hardware.visible())):
        return experiment
    most = min(experiment.options.candidates(), CANDIDATES_ON_GPU)
    on_gpus = replace(experiment, workers=workers.model_copy(update={"kind": "gpu"}))
    on_core = replace(experiment, workers=workers.model_copy(update={"kind": "cpu", "count": 1}))
    try:
        fast = frames_per_second(on_gpus, directory, gpus, min(16, most), most)
        slow = frames_per_second(on_core, directory, 1, 1, most) * cores
    except EvoError as error:
        notice(f"workers play on the CPU: {error}")
        return experiment
    best = "GPUs" if fast > slow else "the CPU"
    plural = "s play" if gpus > 1 else " plays"
    notice(
        f"workers play on {best}: {gpus} GPU{plural} {fast:,.0f} frames a second, {cores} cores about {slow:,.0f} (set "
        "workers.kind to choose without this probe)"
    )
    return on_gpus if fast > slow else experiment


def frames_per_second(experiment: Experiment, directory: Path, tasks: int, least: int, most: int) -> float:
    """Return how fast workers play tasks of fresh candidates, `least` at first, and more until that takes a while."""
    episodes, count = Episodes(episode_keys(0, Purpose.TRAINING, 0, EPISODES)), least
    with closing(evaluator_of(experiment, directory)) as evaluator:
        while True:
            nobody = np.full(count, -1, np.int32)
            keys, scales = np.arange(count, dtype=np.uint64), np.ones(count, np.float32)
            task = Task(WeightSource(nobody, nobody, keys, scales), episodes)
            began = time.perf_counter()
            played = evaluator.map([task] * tasks)
            took = time.perf_counter() - began
            if (count > least or least == most) and (took > ENOUGH or count == most):  # the first compiles
                return sum(result.frames for result in played.results) / took
            count = min(4 * count, most)
