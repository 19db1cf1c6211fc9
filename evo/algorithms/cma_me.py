"""CMA-ME: an archive filled by several searches of separable CMA-ES (Fontaine et al., 2020).

Each search, an *emitter*, moves towards candidates that change the archive: those of empty cells first, then those that
improve an elite, then all others. One none of whose candidates would change the archive begins again at an elite. The
original has full covariance matrices, which do not fit networks.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from evo.algorithms import sep_cma_es
from evo.algorithms.map_elites import NOWHERE, ArchiveOptions, Children, Emitter, MapElites, Weights
from evo.evolution.population import FITNESS_WORST
from evo.evolution.strategy import LARGEST
from evo.networks.candidates import Rebuilder
from evo.randomness.streams import Purpose, candidate_keys, draw, stream
from evo.records import Arrays, Metrics, WeightSource
from evo.setup import Setup

FEWEST = 4  # new candidates of an emitter
PARTS = ("mean", "sigma", "variances", "step_path", "path")  # of an emitter's state


class Options(ArchiveOptions):
    """The [cma_me] section."""

    algorithm: ClassVar[str] = "cma_me"
    noise_recipe: ClassVar[int] = 2

    emitters: int = Field(5, ge=1, le=1000, description="searches that fill the archive")
    sigma: float = Field(0.1, gt=0, le=1000, description="initial standard deviation of every weight of an emitter")

    @property
    def batch(self) -> int:
        """Return the candidates of an emitter per generation."""
        return (self.population - self.reevaluated) // self.emitters

    @property
    def has_room(self) -> bool:
        """Whether each emitter has enough new candidates."""
        return self.batch >= FEWEST

    def _check(self) -> None:
        super()._check()
        if not self.has_room:
            raise ValueError(
                f"emitters: {self.emitters} share {self.population - self.reevaluated} new candidates; each needs "
                f"{FEWEST}"
            )


class Searches(Emitter):
    """Searches of separable CMA-ES, each around the mean of an emitter."""

    def __init__(self, options: Options, setup: Setup) -> None:
        """Begin at `setup.start` [P], or each search at a fresh network."""
        self.seed, self.network, self._restarts = setup.seed, setup.network, 0
        self._search = sep_cma_es.Options(population=options.batch, sigma=options.sigma)
        keys = [stream(self.seed, Purpose.INITIAL, 0, k) for k in range(options.emitters)]
        self._emitters = [self._emitter(self._fresh(key) if setup.start is None else setup.start) for key in keys]

    def _fresh(self, key: int) -> Weights:
        return Rebuilder(self.network).drawn(key)

    def _emitter(self, start: Weights) -> sep_cma_es.Separable:
        return sep_cma_es.Separable(self._search, start.astype(np.float64))

    def published(self, elites: Weights, again: Weights) -> Weights:
        """Return those evaluated again, then the mean and the standard deviations of each emitter.  # [K + 2 E, P]"""
        return np.concatenate([again, *(emitter.published() for emitter in self._emitters)])

    def candidates(self, number: int, elites: int, again: int) -> list[WeightSource]:
        """Return those evaluated again, and the candidates of each emitter."""
        batch = self._search.population
        sources = [WeightSource.of_rows(again)] if again else []
        for k, emitter in enumerate(self._emitters):
            row = np.int32(again + 2 * k)
            keys = candidate_keys(self.seed, Purpose.MUTATION, number, k * batch, (k + 1) * batch)
            sigmas = np.full(batch, emitter.sigma, np.float32)
            rows, mates = np.full(batch, row, np.int32), np.full(batch, -1, np.int32)
            sources.append(WeightSource(rows, mates, keys, sigmas, scale=int(row) + 1))
        return sources

    def learn(self, number: int, sources: Sequence[WeightSource], children: Children, elites: Weights) -> Metrics:
        """Move every emitter by what its candidates would change; restart one that would change nothing."""
        batch = self._search.population
        for k, source in enumerate(sources[-len(self._emitters) :]):
            part = Children._make(array[k * batch : (k + 1) * batch] for array in children)
            emitter, changes = self._emitters[k], part.improving.any()
            if changes:
                emitter.update(source, ranked(part), number)
            if not changes or not (np.abs(emitter.mean) < LARGEST).all():
                self._restarts += 1
                key = stream(self.seed, Purpose.PARENT, number, k)
                start = elites[draw(key, 0, len(elites))] if len(elites) else self._fresh(key)
                self._emitters[k] = self._emitter(start)
        sigmas = [emitter.sigma * np.sqrt(np.median(emitter.variances)) for emitter in self._emitters]
        return {"restarts": float(self._restarts), "sigma": float(np.median(sigmas))}

    def state(self) -> Arrays:
        """Return mean, step size, variances and paths of every emitter."""
        each = [{"mean": emitter.mean, **emitter.state()} for emitter in self._emitters]
        emitters = {f"emitter_{name}": np.stack([state[name] for state in each]) for name in PARTS}
        return {**emitters, "restarts": np.array([self._restarts], np.int64)}

    def restore(self, state: Arrays, known: Weights) -> None:
        """Continue from a state.

        After a fork with another number of emitters, these begin at networks of the archive, with the sigma of options.
        """
        self._restarts = int(state["restarts"][0])
        if len(state["emitter_mean"]) == len(self._emitters):
            for k, emitter in enumerate(self._emitters):
                emitter.mean = np.array(state["emitter_mean"][k], np.float64)
                emitter.restore({name: state[f"emitter_{name}"][k] for name in PARTS})
        elif len(known):
            self._emitters = [self._emitter(known[k % len(known)]) for k in range(len(self._emitters))]


def ranked(children: Children) -> NDArray[np.int64]:
    """Return numbers that rank candidates by what they would change in the archive; equal ones are equal.  # [N]

    Those of empty cells are before all others, by fitness; others by how much better than the elite they are.
    """
    pairs = np.stack([children.empty.astype(np.int64), children.gains], axis=1)
    _, ranks = np.unique(pairs, axis=0, return_inverse=True)
    return np.where(children.cells == NOWHERE, FITNESS_WORST, ranks.reshape(-1).astype(np.int64))


make = partial(MapElites, emitter=Searches)
