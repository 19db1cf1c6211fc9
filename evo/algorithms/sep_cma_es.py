"""Separable CMA-ES: a diagonal covariance matrix, linear time and memory (Ros and Hansen, 2008)."""

from __future__ import annotations

from evo.evolution.separable import Separable, SeparableOptions
from evo.evolution.strategy import EvolutionStrategy
from evo.setup import Setup


class Options(SeparableOptions):
    """The [sep_cma_es] section."""


def make(options: Options, setup: Setup) -> EvolutionStrategy:
    """Return separable CMA-ES; `setup.start` [P] becomes the first mean."""
    return EvolutionStrategy(options, setup, Separable)
