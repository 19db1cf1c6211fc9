"""Functions of BBOB (Hansen et al., 2009) without its small irregularities, and pycma and cmaes on them.

    python -m benchmarks.peers.cma_way

Answers requests on stdin, as `benchmarks.peers.answer` does.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from benchmarks.peers import answer

Vector = NDArray[np.float64]
Function = Callable[[Vector], float]
SIZE, TARGET, SIGMA = 20, 1e-8, 2.0
MANY = {"rastrigin": 200}  # population where the usual one finds a local optimum


def scales(most: float) -> Vector:
    """Return numbers from 1 to `most`, each the same times the one before.  # [SIZE]"""
    return np.asarray(most ** (np.arange(SIZE) / (SIZE - 1)), np.float64)


def rosenbrock(z: Vector) -> float:
    """Return Rosenbrock's function, whose optimum is moved to 0."""
    y = max(1.0, np.sqrt(SIZE) / 8) * z + 1
    return float(np.sum(100 * (y[:-1] ** 2 - y[1:]) ** 2 + (y[:-1] - 1) ** 2))


def rastrigin(z: Vector) -> float:
    """Return Rastrigin's separable function."""
    return float(10 * (SIZE - np.sum(np.cos(2 * np.pi * z))) + z @ z)


# Of z, which is 0 at the optimum; whether z is rotated.
FUNCTIONS: dict[str, tuple[Function, bool]] = {
    "sphere": (lambda z: float(z @ z), False),
    "ellipsoid": (lambda z: float(scales(1e6) @ z**2), False),
    "rotated ellipsoid": (lambda z: float(scales(1e6) @ z**2), True),
    "discus": (lambda z: float(1e6 * z[0] ** 2 + z[1:] @ z[1:]), True),
    "cigar": (lambda z: float(z[0] ** 2 + 1e6 * (z[1:] @ z[1:])), True),
    "different powers": (lambda z: float(np.sqrt(np.sum(np.abs(z) ** (2 + 4 * np.arange(SIZE) / (SIZE - 1))))), True),
    "rosenbrock": (rosenbrock, False),
    "rastrigin": (rastrigin, False),
}


def instance(name: str, seed: int) -> tuple[Function, Vector]:
    """Return a function with the optimum and the rotation of a seed, and where a search begins."""
    drawn = np.random.default_rng(seed)
    optimum, start = drawn.uniform(-4, 4, (2, SIZE))
    rotation = np.linalg.qr(drawn.normal(size=(SIZE, SIZE)))[0]
    plain, rotated = FUNCTIONS[name]

    def shifted(x: Vector) -> float:
        z = np.asarray(x, np.float64) - optimum
        return plain(rotation @ z if rotated else z)

    return shifted, start


def told(name: str, seed: int, budget: int, ask: Callable[[], Any], tell: Callable[[Any, Vector], object]) -> int:
    """Return after how many evaluations the optimum is within TARGET; 0: not within the budget."""
    function, done = instance(name, seed)[0], 0
    while done < budget:
        asked = ask()
        values = np.array([function(x) for x in asked])
        if (values <= TARGET).any():
            return done + int(np.argmax(values <= TARGET)) + 1
        done += len(values)
        tell(asked, values)
    return 0


def pycma(name: str, seed: int, budget: int, diagonal: bool) -> int:
    """Return the evaluations of pycma, with its own options."""
    import cma

    options = {"seed": seed + 1, "verbose": -9, "CMA_diagonal": diagonal}
    if name in MANY:
        options["popsize"] = MANY[name]
    search = cma.CMAEvolutionStrategy(instance(name, seed)[1], SIGMA, options)
    return told(name, seed, budget, search.ask, lambda asked, values: search.tell(asked, list(values)))


def cmaes(name: str, seed: int, budget: int, diagonal: bool) -> int:
    """Return the evaluations of cmaes."""
    import cmaes as library

    kind = library.SepCMA if diagonal else library.CMA
    search = kind(mean=instance(name, seed)[1], sigma=SIGMA, seed=seed, population_size=MANY.get(name))
    return told(
        name,
        seed,
        budget,
        lambda: [search.ask() for _ in range(search.population_size)],
        lambda asked, values: search.tell(list(zip(asked, values, strict=True))),
    )


def measure(library: str, name: str, seed: int, budget: int, diagonal: bool) -> dict[str, int]:
    """Answer a request."""
    return {"evaluations": (pycma if library == "pycma" else cmaes)(name, seed, budget, diagonal)}


if __name__ == "__main__":
    answer(measure)
