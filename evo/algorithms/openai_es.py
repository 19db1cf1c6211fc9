"""OpenAI-ES: a gradient of the mean from ranked antithetic noise, with Adam or ClipUp (Salimans et al., 2017)."""

from __future__ import annotations

from functools import partial
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from evo.evolution import strategy
from evo.evolution.noise_sums import noise_sum, norm
from evo.learning.hyperparameters import scheduled
from evo.records import Arrays, Metrics, WeightSource


class Options(strategy.StrategyOptions):
    """The [openai_es] section."""

    sigma_final: float = Field(
        0.03, gt=0, le=1000, description="final standard deviation of every weight, if it is annealed"
    )
    sigma_generations: int = Field(0, ge=0, description="generations over which sigma is annealed; 0 = constant")
    optimizer: Literal["adam", "clipup"] = Field(
        "adam", description="optimizer of the mean: adam, or clipup (normalised gradient, momentum, limited step)"
    )
    learning_rate: float = Field(0.02, gt=0, le=1000, description="initial learning rate; for ClipUp, the step length")
    learning_rate_final: float = Field(0.005, gt=0, le=1000, description="final learning rate, if it is annealed")
    learning_rate_generations: int = Field(
        0, ge=0, description="generations over which the learning rate is annealed; 0 = constant"
    )
    weight_decay: float = Field(
        0.0,
        ge=0,
        le=1,
        description="weight decay: this share of every weight is subtracted from its gradient; 0 = none",
    )

    def _check(self) -> None:
        if self.population % 2:
            raise ValueError(f"population: {self.population} is odd, and candidates come in antithetic pairs")


class Gaussian(strategy.Distribution):
    """A normal distribution of the same standard deviation in all directions."""

    def __init__(self, options: Options, mean: NDArray[np.float64]) -> None:
        self.options, self.mean = options, mean
        self._optimizer = strategy.OPTIMIZERS[options.optimizer](len(self.mean))

    def candidates(self, seed: int, number: int) -> WeightSource:
        """Return the mean and antithetic pairs around it."""
        options = self.options
        sigma = scheduled(options, "sigma", number, "generations")
        return strategy.around_mean(seed, number, np.full(options.population, sigma, np.float32), antithetic=True)

    def update(self, source: WeightSource, fitness: NDArray[Any], number: int) -> Metrics:
        """Step along the gradient of the expected rank (Salimans et al., eq. 1 and algorithm 2)."""
        options, sigma = self.options, float(source.sigmas[0])
        ranks = strategy.centred_ranks(fitness)  # F (section 2.1: fitness shaping)
        factors = (ranks[::2] - ranks[1::2]) / (options.population * sigma)  # of a pair, which shares its noise
        # sum of F_i z_i / (N sigma) (algorithm 2)
        gradient = noise_sum(source.keys[::2], factors, len(self.mean))
        gradient -= options.weight_decay * self.mean
        rate = scheduled(options, "learning_rate", number, "generations")
        step = self._optimizer.step(gradient, rate)
        self.mean = self.mean + step
        return {"sigma": sigma, "gradient_norm": norm(gradient), "step_norm": norm(step)}

    def state(self) -> dict[str, NDArray[Any]]:
        """Return the optimizer's state."""
        return self._optimizer.state()

    def restore(self, state: Arrays) -> None:
        """Continue from an optimizer's state."""
        self._optimizer.restore(state)


make = partial(strategy.EvolutionStrategy, distribution=Gaussian)
