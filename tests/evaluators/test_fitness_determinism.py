"""Same seed, same fitness; another seed, another fitness: whatever plays the tasks, in whatever parts and order."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import closing
from importlib import import_module
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest

from evo.algorithms import ga
from evo.games.catalogue import snake
from evo.games.game import GameEnvironment
from evo.networks.network import Network
from evo.networks.network import Options as Policy
from evo.records import Result, Task, WeightSource
from evo.rollouts.rollout import Rollout
from evo.setup import Setup
from tests.evaluators.ray.ray_nodes import needs_ray
from tests.helpers.specs import make, spec

ENVIRONMENT = {"size": 5, "starvation": 12}
POLICY = {"conv": [[6, 3, 2]], "dense": [7]}
Map = Callable[[Sequence[Task], np.ndarray], Sequence[Result]]


def parts() -> tuple[Network, GameEnvironment]:
    environment = snake.make(snake.Options(**ENVIRONMENT))
    return Network.build(Policy(**POLICY), environment.shape, environment.actions), environment


def fitness(seed: int, play: Map | None = None, per_task: int = 4, generations: int = 3, **options: Any) -> list[bytes]:
    """Return every candidate's fitness in every generation, and the final state, of a small run."""
    network, environment = parts()
    rollout = Rollout(network, environment)
    play = play or (lambda tasks, published: [rollout.play(task, published) for task in tasks])
    defaults = {"population": 14, "parents": 5, "elites": 2, "episodes": 6}
    settings = ga.Options(**{**defaults, **options})
    algorithm = ga.make(settings, Setup(seed, network, environment, per_task))
    published = np.empty((0, network.size), np.float32)
    found = []
    for generation in range(generations):
        rounds = algorithm.generation(generation)
        request = next(rounds)
        while request is not None:
            published = published if request.weights is None else request.weights
            try:
                request = rounds.send(play(request.tasks, published))
            except StopIteration:
                request = None
        found += [algorithm.record()[name].tobytes() for name in ("return", "frames", "survivors")]
    return found + [array.tobytes() for _, array in sorted(algorithm.state().items())]


def test_the_same_seed_gives_the_same_fitness() -> None:
    assert fitness(7) == fitness(7)


@pytest.mark.parametrize("seed", [0, 6, 8, 2**64 - 1])
def test_another_seed_gives_another_fitness(seed: int) -> None:
    one, other = fitness(7, generations=1), fitness(seed, generations=1)
    assert one[0] != other[0]  # returns
    assert one[1] != other[1]  # frames


def test_every_generation_plays_other_episodes() -> None:
    still = fitness(7, generations=2, population=2, parents=1, elites=1, tournament=1, episodes=64)
    frames = [np.frombuffer(still[i], np.int64) for i in (1, 4)]
    assert frames[0].tolist() != frames[1].tolist()


@pytest.mark.parametrize("per_task", [1, 3, 14, 100])
def test_no_split_into_tasks_changes_a_fitness(per_task: int) -> None:
    assert fitness(7, per_task=per_task) == fitness(7)


@pytest.mark.parametrize("shuffle", [1, 2])
def test_no_order_of_tasks_changes_a_fitness(shuffle: int) -> None:
    network, environment = parts()
    rollouts = [Rollout(network, environment) for _ in range(3)]  # as many workers would have
    random = np.random.default_rng(shuffle)

    def play(tasks: Sequence[Task], published: np.ndarray) -> Sequence[Result]:
        results = {i: rollouts[random.integers(3)].play(tasks[i], published) for i in random.permutation(len(tasks))}
        return [results[i] for i in range(len(tasks))]

    assert fitness(7, play) == fitness(7)


def test_no_state_is_left_behind_by_earlier_tasks() -> None:
    network, environment = parts()
    rollout = Rollout(network, environment)
    bad = np.full((1, network.size), np.nan, np.float32)

    def play(tasks: Sequence[Task], published: np.ndarray) -> Sequence[Result]:
        results = []
        for task in tasks:
            names = WeightSource(np.zeros(1, np.int32), np.full(1, -1, np.int32), *two_zeros())
            for disturbing in (bad, np.full_like(bad, 3e38), np.ones_like(bad)):
                rollout.play(Task(names, task.play), disturbing)
            results.append(rollout.play(task, published))
        return results

    assert fitness(7, play) == fitness(7)


def two_zeros() -> tuple[np.ndarray, np.ndarray]:
    return np.zeros(1, np.uint64), np.zeros(1, np.float32)


@pytest.mark.parametrize(
    ("backend", "count"),
    [
        ("serial", 1),
        pytest.param("processes", 1, marks=pytest.mark.long),
        pytest.param("processes", 2, marks=pytest.mark.long),
        ("processes", 3),
        pytest.param("ray", 2, marks=[needs_ray, pytest.mark.long]),  # its quick form is a run's hash
    ],
)
def test_no_evaluator_and_no_number_of_workers_changes_a_fitness(backend: str, count: int, tmp_path: Path) -> None:
    module = import_module(f"evo.evaluators.{backend}")
    context = spec(tmp_path, ENVIRONMENT, {**POLICY}, module.Options(count=count))
    files = iter(range(1000))
    with closing(make(module, context)) as evaluator:
        names: dict[int, str] = {}

        def play(tasks: Sequence[Task], published: np.ndarray) -> Sequence[Result]:
            if len(published) and id(published) not in names:
                names[id(published)] = f"parents-{next(files)}.h5"
                kept.append(published)
                with h5py.File(tmp_path / names[id(published)], "w") as file:
                    file["weights"] = published
            file_name = names.get(id(published), "")
            return evaluator.map([named(task, file_name) for task in tasks]).results

        kept: list[np.ndarray] = []  # so that no identity is given twice
        assert fitness(7, play) == fitness(7)


def named(task: Task, published: str) -> Task:
    w = task.weights
    source = WeightSource(w.rows, w.mates, w.keys, w.sigmas, w.crossover, published)
    return Task(source, task.play, task.action_rule, task.record_actions)


def test_crossover_tournaments_and_adapted_sigmas_are_as_repeatable() -> None:
    options = {"crossover": "uniform", "selection": "tournament", "sigma_spread": 1.0, "alive_bonus": 0.01}
    assert fitness(7, **options) == fitness(7, per_task=5, **options) != fitness(7)
