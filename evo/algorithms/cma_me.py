"""CMA-ME: an archive filled by several searches of separable CMA-ES (Fontaine et al., 2020).

Each search, an *emitter*, moves towards candidates that change the archive: those of empty cells first, then those that
improve an elite, then all others. One none of whose candidates would change the archive begins again at an elite. The
original has full covariance matrices, which do not fit networks.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar, Self

import numpy as np
from numpy.typing import NDArray
from pydantic import Field, model_validator

from evo.algorithms import sep_cma_es
from evo.evolution.archive import NOWHERE, Archive, ArchiveOptions, Children
from evo.evolution.population import FITNESS_WORST
from evo.evolution.strategy import LARGEST
from evo.networks.candidates import Rebuilder
from evo.randomness.philox import draw
from evo.randomness.streams import Purpose, candidate_keys, stream
from evo.records import Arrays, Metrics, WeightSource
from evo.setup import Setup

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
        return (self.population - self.contenders) // self.emitters

    @model_validator(mode="after")
    def _enough_for_all(self) -> Self:
        if self.batch < 4:
            raise ValueError(
                f"emitters: {self.emitters} share {self.population - self.contenders} candidates that do not contend; "
                "each needs 4"
            )
        return self


class CmaMe(Archive):
    """An archive, and the emitters that fill it."""

    def __init__(self, options: Options, setup: Setup) -> None:
        super().__init__(options, setup)
        self._emitting, self._restarts = options.emitters, 0
        self._search = sep_cma_es.Options(population=options.batch, sigma=options.sigma)
        starts = [setup.start] * options.emitters if setup.start is not None else self._fresh()
        self._emitters = [self._emitter(start) for start in starts]

    def _fresh(self) -> list[NDArray[np.float32]]:
        """Return a fresh network for each emitter.  # [P] each"""
        weights = np.empty((self._emitting, self.network.size), np.float32)
        for k, row in enumerate(weights):
            Rebuilder(self.network).fresh(np.uint64(stream(self.seed, Purpose.INITIAL, 0, k)), row)
        return list(weights)

    def _emitter(self, start: NDArray[np.float32]) -> sep_cma_es.Separable:
        return sep_cma_es.Separable(self._search, start.astype(np.float64))

    def published(self) -> NDArray[np.float32]:
        """Return the contenders, then the mean and the standard deviations of each emitter.  # [K + 2 E, P]"""
        return np.concatenate([self._contenders, *(emitter.published() for emitter in self._emitters)])

    def candidates(self, number: int) -> list[WeightSource]:
        """Return the contenders, and the candidates of each emitter."""
        again, batch = len(self._contenders), self._search.population
        sources = [WeightSource.of_rows(again)] if again else []
        for k, emitter in enumerate(self._emitters):
            row = np.int32(again + 2 * k)
            keys = candidate_keys(self.seed, Purpose.MUTATION, number, k * batch, (k + 1) * batch)
            sigmas = np.full(batch, emitter.sigma, np.float32)
            rows, mates = np.full(batch, row, np.int32), np.full(batch, -1, np.int32)
            sources.append(WeightSource(rows, mates, keys, sigmas, scale=int(row) + 1))
        return sources

    def learn(self, number: int, sources: Sequence[WeightSource], children: Children) -> Metrics:
        """Move every emitter by what its candidates would change; one that would change nothing begins again."""
        batch = self._search.population
        for k, source in enumerate(sources[-len(self._emitters) :]):
            part, emitter = children.some(slice(k * batch, (k + 1) * batch)), self._emitters[k]
            changes = (part.gains > 0).any()
            if changes:
                emitter.update(source, ranked(part), number)
            if not changes or not (np.abs(emitter.mean) < LARGEST).all():
                self._restarts += 1
                self._emitters[k] = self._emitter(self._somewhere(number, k))
        sigmas = [emitter.sigma * np.sqrt(np.median(emitter.variances)) for emitter in self._emitters]
        return {"restarts": float(self._restarts), "sigma": float(np.median(sigmas))}

    def _somewhere(self, number: int, k: int) -> NDArray[np.float32]:
        """Return an elite at random; where there is none yet, a fresh network.  # [P]"""
        name = stream(self.seed, Purpose.PARENT, number, k)
        weights = np.empty(self.network.size, np.float32)
        if len(self._elites):
            weights[:] = self._elites[draw(name, 0, len(self._elites))]
        else:
            Rebuilder(self.network).fresh(np.uint64(name), weights)
        return weights

    def state(self) -> Arrays:
        """Return the archive, and the mean, step size, variances and paths of every emitter."""
        each = [{"mean": emitter.mean, **emitter.state()} for emitter in self._emitters]
        emitters = {f"emitter_{name}": np.stack([state[name] for state in each]) for name in PARTS}
        return {**super().state(), **emitters, "restarts": np.array([self._restarts], np.int64)}

    def restore(self, state: Arrays, records: Sequence[Arrays]) -> None:
        """Continue from an archive and its emitters.

        After a fork with another number of emitters, these begin at elites or contenders, with the sigma of options.
        """
        super().restore(state, records)
        self._restarts = int(state["restarts"][0])
        if len(state["emitter_mean"]) == self._emitting:
            for k, emitter in enumerate(self._emitters):
                emitter.mean = np.array(state["emitter_mean"][k], np.float64)
                emitter.restore({name: state[f"emitter_{name}"][k] for name in PARTS})
        elif len(known := np.concatenate([self._elites, self._contenders])):
            self._emitters = [self._emitter(known[k % len(known)]) for k in range(self._emitting)]


def ranked(children: Children) -> NDArray[np.int64]:
    """Return numbers that rank candidates by what they would change in the archive; equal ones are equal.  # [N]

    Those of empty cells are before all others, by fitness; others by how much better than the elite they are.
    """
    value = np.where(children.empty, children.fitness, children.gains)
    pairs = np.stack([children.empty.astype(np.int64), value], axis=1)
    _, ranks = np.unique(pairs, axis=0, return_inverse=True)
    return np.where(children.cells == NOWHERE, FITNESS_WORST, ranks.reshape(-1).astype(np.int64))


def make(options: Options, setup: Setup) -> CmaMe:
    """Return CMA-ME; `setup.start` [P] is the first contender, and where emitters begin.

    Raises ConfigurationError where a descriptor is unknown.
    """
    return CmaMe(options, setup)
