"""Functions of vectors that an evolution strategy maximises, in place of games: its candidates are the vectors."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from evo.networks.candidates import Rebuilder
from evo.networks.network import Network
from evo.networks.network import Options as Policy
from evo.plugins import registry
from evo.records import Metrics, Request, Result
from evo.setup import Setup
from tests.helpers.generations import drive, results_of

Function = Callable[[NDArray[np.float64]], float]
FINE = 1e12  # returns per unit of a function, so that rounding them to whole numbers hides nothing


def network_of(inputs: int, outputs: int) -> Network:
    """Return a network of (inputs + 1) * outputs weights."""
    return Network.build(Policy(kind="linear"), (inputs,), outputs)


def made(name: str, network: Network, seed: int = 1, start: Any = None, **options: object) -> Any:
    """Return an algorithm of ours."""
    module = registry.find("algorithms", name)
    given = module.Options(**{"episodes": 1, **options})
    return module.make(given, Setup(seed, network, None, 16, start=start))


def candidates_of(request: Request, network: Network) -> NDArray[np.float32]:
    """Return the weights of all candidates of a request.  # [N, P]"""
    rebuilder, found = Rebuilder(network), []
    parents = np.empty((0, network.size), np.float32) if request.weights is None else request.weights
    for task in request.tasks:
        for k in range(len(task.weights)):
            found.append(np.empty(network.size, np.float32))
            rebuilder.rebuild(parents, task.weights, k, found[-1])
    return np.array(found)


def generation(algorithm: Any, number: int, network: Network, function: Function) -> Metrics:
    """Play one generation, in which a candidate's return is the function of its weights."""

    def answer(request: Request) -> list[Result]:
        values = [function(weights.astype(np.float64)) for weights in candidates_of(request, network)]
        return results_of(request, np.rint(np.array(values) * FINE))

    return drive(algorithm, number, answer)


def climb(algorithm: Any, network: Network, function: Function, generations: int) -> NDArray[np.float64]:
    """Return the mean after so many generations.  # [P]"""
    for number in range(generations):
        generation(algorithm, number, network, function)
    mean: NDArray[np.float64] = algorithm.distribution.mean
    return mean


def sphere(x: NDArray[np.float64]) -> float:
    """Return 0 at 1 in all coordinates, and less elsewhere."""
    return -float(((x - 1) ** 2).sum())


def ellipsoid(x: NDArray[np.float64]) -> float:
    """Return 0 at 0; axes differ in scale by a thousand."""
    return -float((10 ** np.linspace(0, 3, len(x)) * x * x).sum())


def rosenbrock(x: NDArray[np.float64]) -> float:
    """Return 0 at 1, at the end of a curved valley."""
    return -float((100 * (x[1:] - x[:-1] ** 2) ** 2 + (1 - x[:-1]) ** 2).sum())


def rastrigin(x: NDArray[np.float64]) -> float:
    """Return 0 at 0, among ten local optima in every unit of every coordinate."""
    return -float((x * x + 10 * (1 - np.cos(2 * np.pi * x))).sum())
