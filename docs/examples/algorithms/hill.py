"""hill: the mean moves to the best candidate."""

import numpy as np

from evo.evolution.noise_sums import noise_sum
from evo.evolution.strategy import Distribution, EvolutionStrategy, StrategyOptions, around_mean

plugs_into = "algorithms"


class Options(StrategyOptions):
    """The [hill] section."""


class Hill(Distribution):
    def __init__(self, options, mean):
        self.options, self.mean = options, mean

    def candidates(self, seed, number):
        return around_mean(seed, number, np.full(self.options.population, self.options.sigma, np.float32))

    def update(self, source, fitness, number):
        best = int(np.argmax(fitness))
        self.mean = self.mean + noise_sum(source.keys[best : best + 1], source.sigmas[best : best + 1], len(self.mean))
        return {"sigma": self.options.sigma}

    def state(self):
        return {}

    def restore(self, state):
        pass


def make(options, setup):
    return EvolutionStrategy(options, setup, Hill)
