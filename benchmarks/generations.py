"""A generation of a genetic algorithm: ours, committed to disk, and DEAP's with a pool and pickled weights.

All have two workers that play with the same kernel; the first generation is the same networks on the same episodes,
and has equal returns. Afterwards they make a generation each, in turns. DEAP mutates as its users write it, and with
noise that NumPy draws.
"""

from __future__ import annotations

import os
import sys
import tempfile
import time
from contextlib import ExitStack
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np

from benchmarks.peers import ROOT, Peer
from benchmarks.rollout import Case, cases, fresh
from benchmarks.tables import Form, Limit, Table, number
from evo.config.environments import environment_of
from evo.config.experiment import Experiment, evaluator_of
from evo.networks.candidates import Rebuilder
from evo.randomness.streams import Purpose, episode_keys
from evo.store.store import Store
from evo.training.beginning import make_algorithm
from evo.training.generation import play_out

EPISODES, WORKERS, SIGMA = 16, 2, 0.1
POPULATION = {"tiny": 128, "seed": 8}
GENERATIONS = 5  # that are counted
MUTATIONS = {"mutGaussian": 2.0, "NumPy noise": 1.0}  # and how many times as long DEAP should take


def experiment_of(case: Case, population: int, parents: int) -> Experiment:
    """Return an experiment of a GA without elites and without validation."""
    policy = case.network.options
    sets = [f"policy.conv={policy.conv}", f"policy.dense={policy.dense}", f"policy.padding={policy.padding}"]
    options = case.environment.options
    sets += [f"environment.observation={options.observation}", "environment.actions=absolute", "run.seed=0"]
    sets += [f"environment.tail={options.tail}", f"environment.starvation={options.starvation}"]
    sets += [f"ga.population={population}", f"ga.parents={parents}", "ga.elites=0", "ga.crossover=none"]
    sets += ["ga.sigma_path=false", "run.starts=1", "run.start_generations=0", "run.start_return="]
    sets += [
        f"ga.episodes={EPISODES}",
        f"ga.sigma={SIGMA}",
        "ga.sigma_spread=0",
        "validation.finalists=1",
        "validation.episodes=1",
    ]
    sets += ["validation.every=1000000", f"workers.count={WORKERS}"]
    sets += ["environment.training=", "environment.training_generations="]
    return Experiment.load(ROOT / "experiments" / "ga_snake.toml", *sets)


class Ours:
    """A run of ours, a generation at a time, each on the disk before it ends."""

    def __init__(self, experiment: Experiment, directory: Path) -> None:
        self._algorithm = make_algorithm(experiment, environment_of(experiment.environment))
        self._evaluator = evaluator_of(experiment, directory)
        self._store = Store.create(directory, experiment.to_toml(), experiment.identity())
        self._next = 0

    def __enter__(self) -> Ours:
        return self

    def __exit__(self, *_: object) -> None:
        self._evaluator.close()
        self._store.close()

    def generation(self) -> dict[str, Any]:
        """Play a generation; return its seconds and frames."""
        began = time.perf_counter()
        metrics = play_out(self._algorithm.generation(self._next), self._evaluator, self._store.publish)
        self._store.commit(self._next, self._algorithm.state(), self._algorithm.record(), metrics)
        self._store.flush()
        self._next += 1
        return {"seconds": time.perf_counter() - began, "frames": int(metrics["frames"])}

    @property
    def returns(self) -> list[float]:
        """The return of every candidate of the newest generation."""
        returned: list[float] = np.asarray(self._algorithm.record()["return"], np.float64).tolist()
        return returned


def compared(case: Case, population: int, generations: int) -> dict[str, list[dict[str, Any]]]:
    """Return what each generation took after the first: ours, and DEAP's with each MUTATION, in turns."""
    experiment = experiment_of(case, population, population // 4)
    done: dict[str, list[dict[str, Any]]] = {"ours": [], **{mutation: [] for mutation in MUTATIONS}}
    with ExitStack() as stack:
        place = Path(stack.enter_context(tempfile.TemporaryDirectory(dir=os.getcwd(), prefix=".benchmark-")))
        weights = np.empty((population, case.network.size), np.float32)
        for k, row in enumerate(weights):
            Rebuilder(case.network).rebuild(weights[:0], fresh(population, 0), k, row)
        np.save(place / "weights.npy", weights)
        ours = stack.enter_context(Ours(experiment, place / "run"))
        ours.generation()
        peers = {}
        for mutation in MUTATIONS:
            peers[mutation] = stack.enter_context(Peer(sys.executable, "deap_way", cores=WORKERS))
            told = peers[mutation].ask(
                what="begin", mutation=mutation, policy=case.network.options.model_dump(),
                environment=experiment.environment.model_dump(),
                seeds=episode_keys(0, Purpose.TRAINING, 0, EPISODES).tolist(), weights=str(place / "weights.npy"),
                parents=population // 4, sigma=SIGMA, workers=WORKERS,
            )  # fmt: skip
            if told["first"] != ours.returns:
                raise RuntimeError("DEAP's workers and ours have played the same networks differently")
        for _ in range(generations):
            done["ours"].append(ours.generation())
            for mutation, peer in peers.items():
                done[mutation].append(peer.ask(what="generation"))
    return done


def run(form: Form) -> Table:
    """Return the table of both networks."""
    table = Table(
        "A generation, compared with DEAP",
        f"Seconds per generation: children are created, play {EPISODES} episodes each on {WORKERS} workers, and are "
        "ranked; medians over generations, in which all alternate. Ours also writes each generation to disk. DEAP "
        "copies its parents, adds noise to arrays of floats, and pickles children to a `multiprocessing.Pool`, whose "
        "workers play with our kernel. Its noise is `mutGaussian`, which draws each number in Python, or three lines "
        "of NumPy. *Variation* is DEAP's time for copying and mutating.",
        ("network, candidates, DEAP's noise", "ours, s", "DEAP, s", "variation, s", "ratio", "frames", "DEAP's frames"),
    )
    for case in cases()[: 1 if form.smoke else None]:
        population = POPULATION[case.name] // (4 if form.smoke else 1)
        done = compared(case, population, 3 if form.smoke else GENERATIONS)
        ours = done.pop("ours")
        for mutation, theirs in done.items():
            ratio = median(b["seconds"] / a["seconds"] for a, b in zip(ours, theirs, strict=True))
            table.rows.append(
                [f"{case.name}, {population}, {mutation}"]
                + [number(median(one["seconds"] for one in ours)), number(median(one["seconds"] for one in theirs))]
                + [number(median(one["breeding"] for one in theirs)), f"{ratio:.2f}"]
                + [number(median(one["frames"] for one in ours)), number(median(one["frames"] for one in theirs))]
            )
            what = f"{case.name}: times DEAP's generations, {mutation}"
            # Near 1, the disk of a busy machine decides: short runs are held to the larger ratio only.
            gates = mutation == "mutGaussian"
            table.limits.append(Limit(what, ratio, MUTATIONS[mutation], ratio=gates))
    return table
