"""A generation of a genetic algorithm: ours, committed to disk, and DEAP's with a pool and pickled weights.

Both have two workers that play with the same kernel; the first generation is the same networks on the same episodes,
and has equal returns.
"""

from __future__ import annotations

import os
import sys
import tempfile
import time
from pathlib import Path
from statistics import median

import numpy as np

from benchmarks.peers import ROOT, Peer
from benchmarks.rollout import Case, cases, fresh
from benchmarks.tables import Form, Limit, Table, number
from evo.config import loading
from evo.config.experiment import Experiment, environment_of, evaluator_of
from evo.networks.candidates import Rebuilder
from evo.randomness.streams import Purpose, episode_keys
from evo.store.store import Store
from evo.training.generation import make_algorithm, play_out

EPISODES, WORKERS, SIGMA = 16, 2, 0.1
POPULATION = {"tiny": 128, "seed": 8}
RATIO = 2.0


def experiment_of(case: Case, population: int, parents: int) -> Experiment:
    """Return an experiment of a GA without elites and without validation."""
    policy = case.network.options
    sets = [f"policy.conv={policy.conv}", f"policy.dense={policy.dense}", f"policy.padding={policy.padding}"]
    options = case.environment.options
    sets += [f"environment.observation={options.observation}", "environment.actions=absolute", "run.seed=0"]
    sets += [f"environment.tail={options.tail}", f"environment.starvation={options.starvation}"]
    sets += [f"ga.population={population}", f"ga.parents={parents}", "ga.elites=0", f"ga.episodes={EPISODES}"]
    sets += [f"ga.sigma={SIGMA}", "ga.sigma_spread=0", "validation.finalists=1", "validation.episodes=1"]
    sets += ["validation.every=1000000", f"workers.count={WORKERS}"]
    return loading.load(ROOT / "experiments" / "ga_snake.toml", sets)


def ours(experiment: Experiment, directory: Path, generations: int) -> tuple[list[float], list[float], int]:
    """Return the returns of generation 0, the seconds of every later one, and the frames of those."""
    algorithm = make_algorithm(experiment, environment_of(experiment.environment))
    evaluator = evaluator_of(experiment, directory)
    took, frames = [], 0
    first: list[float] = []
    try:
        with Store.create(directory, experiment.to_toml(), experiment.identity()) as store:
            for generation in range(generations + 1):
                began = time.perf_counter()
                metrics = play_out(algorithm.generation(generation), evaluator, store)
                store.commit(generation, algorithm.state(), algorithm.record(), metrics)
                store.flush()  # every one of them on the disk
                if generation:
                    took.append(time.perf_counter() - began)
                    frames += int(metrics["frames"])
                else:
                    first = np.asarray(algorithm.record()["return"], np.float64).tolist()
    finally:
        evaluator.close()
    return first, took, frames


def run(form: Form) -> Table:
    """Return the table of both networks."""
    table = Table(
        "A generation, compared with DEAP",
        f"Seconds per generation: children are created, play {EPISODES} episodes each on {WORKERS} workers, and are "
        "ranked; medians over generations. Ours also writes each generation to disk. DEAP copies its parents, adds "
        "noise with `mutGaussian` to arrays of floats, and pickles children to a `multiprocessing.Pool`, whose workers "
        "play with our kernel. *Variation* is DEAP's time for copying and mutating.",
        ("network, candidates", "ours, s", "DEAP, s", "variation, s", "ratio", "frames", "DEAP's frames"),
    )
    for case in cases()[: 1 if form.smoke else None]:
        population = POPULATION[case.name] // (4 if form.smoke else 1)
        generations = 3 if case.name == "tiny" and not form.smoke else 1
        experiment = experiment_of(case, population, population // 4)
        with tempfile.TemporaryDirectory(dir=os.getcwd(), prefix=".benchmark-") as place:
            first, took, frames = ours(experiment, Path(place) / "run", 5)
            file = Path(place) / "weights.npy"
            weights = np.empty((population, case.network.size), np.float32)
            for k, row in enumerate(weights):
                Rebuilder(case.network).rebuild(weights[:0], fresh(population, 0), k, row)
            np.save(file, weights)
            with Peer(sys.executable, "deap_way", cores=WORKERS) as peer:
                told = peer.ask(
                    policy=case.network.options.model_dump(), environment=experiment.environment.model_dump(),
                    seeds=episode_keys(0, Purpose.TRAINING, 0, EPISODES).tolist(), weights=str(file),
                    parents=population // 4, sigma=SIGMA, workers=WORKERS, generations=generations,
                )  # fmt: skip
        if told["first"] != first:
            raise RuntimeError("DEAP's workers and ours have played the same networks differently")
        theirs = median(one["seconds"] for one in told["generations"])
        ratio = theirs / median(took)
        table.rows.append(
            [f"{case.name}, {population}", number(median(took)), number(theirs)]
            + [number(median(one["breeding"] for one in told["generations"])), f"{ratio:.1f}"]
            + [number(frames / len(took)), number(median(one["frames"] for one in told["generations"]))]
        )
        table.limits.append(Limit(f"{case.name}: times DEAP's generations", ratio, RATIO, ratio=True))
    return table
