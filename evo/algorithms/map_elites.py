"""MAP-Elites: the best network of each kind of behaviour, by mutation of those (Mouret and Clune, 2015)."""

from __future__ import annotations

from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from evo.evolution.archive import Archive, ArchiveOptions
from evo.evolution.population import Offspring, Sigma, SigmaSpread
from evo.records import WeightSource
from evo.setup import Setup


class Options(ArchiveOptions):
    """The [map_elites] section."""

    algorithm: ClassVar[str] = "map_elites"

    sigma: Sigma = 0.1
    sigma_spread: SigmaSpread = 0.7


class MapElites(Archive):
    """An archive whose elites and contenders have children."""

    def __init__(self, options: Options, setup: Setup) -> None:
        super().__init__(options, setup)
        self._offspring = Offspring(setup.seed, options.sigma, options.sigma_spread)

    def published(self) -> NDArray[np.float32]:
        """Return elites and contenders.  # [C + K, P]"""
        return np.concatenate([self._elites, self._contenders])

    def candidates(self, number: int) -> list[WeightSource]:
        """Return the contenders, and mutated copies of these and of elites."""
        first, parents = len(self._elites), len(self._elites) + len(self._contenders)
        return [self._offspring.of(number, range(first, parents), parents, self.options.population)]


def make(options: Options, setup: Setup) -> MapElites:
    """Return MAP-Elites; `setup.start` [P] is the first contender. ConfigurationError: a descriptor is unknown."""
    return MapElites(options, setup)
