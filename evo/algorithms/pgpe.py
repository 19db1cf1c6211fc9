"""PGPE: policy gradients with parameter-based exploration, antithetic samples, ranks (Sehnke et al., 2010)."""

from __future__ import annotations

from functools import partial
from typing import Any, ClassVar, Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from evo.evolution import strategy
from evo.evolution.noise_sums import noise_sums, norm
from evo.evolution.normal import SeparableNormal
from evo.records import Arrays, Metrics, WeightSource


class Options(strategy.StrategyOptions):
    """The [pgpe] section."""

    noise_recipe: ClassVar[int] = 2

    optimizer: Literal["adam", "clipup"] = Field(
        "clipup", description="optimizer of the mean: adam, or clipup (normalised gradient, momentum, limited step)"
    )
    learning_rate: float = Field(
        0.1, gt=0, le=1000, description="learning rate of the mean; for ClipUp, the step length"
    )
    sigma_learning_rate: float = Field(0.1, ge=0, le=1, description="learning rate of the standard deviations")
    sigma_change: float = Field(
        0.2, gt=0, lt=1, description="largest relative change of a standard deviation in a generation"
    )

    def _check(self) -> None:
        if self.population % 2:
            raise ValueError(f"population: {self.population} is odd, and candidates come in symmetric pairs")


class PGPE(SeparableNormal):
    """Likelihood gradients of the mean and the standard deviations."""

    def __init__(self, options: Options, mean: NDArray[np.float64]) -> None:
        super().__init__(options, mean)
        self._optimizer = strategy.OPTIMIZERS[options.optimizer](len(self.mean))

    def candidates(self, seed: int, number: int) -> WeightSource:
        """Return the mean and symmetric pairs around it."""
        return strategy.around_mean(
            seed, number, np.ones(self.options.population, np.float32), antithetic=True, scale=1
        )

    def update(self, source: WeightSource, fitness: NDArray[Any], number: int) -> Metrics:
        """Step along the likelihood gradients of the mean rank (Sehnke et al., section 2.3)."""
        ranks, pairs = strategy.centred_ranks(fitness), len(fitness) // 2  # r: mu + epsilon, and mu - epsilon, in turns
        towards = (ranks[::2] - ranks[1::2]) / (2 * pairs)  # (r+ - r-) / 2
        spread = (ranks[::2] + ranks[1::2]) / (2 * pairs)  # (r+ + r-) / 2 - b; the baseline b of ranks is 0
        noise, squares = noise_sums(source.keys[::2], towards, spread, len(self.mean))
        mean_gradient = self.sigmas * noise  # sum of epsilon (r+ - r-) / 2
        sigma_gradient = self.sigmas * (squares - float(spread.cumsum()[-1]))  # (epsilon^2 - sigma^2) / sigma
        step = self._optimizer.step(mean_gradient, self.options.learning_rate)
        self.mean = self.mean + step
        most = self.options.sigma_change * self.sigmas
        change = self.options.sigma_learning_rate * sigma_gradient
        self.sigmas = self.sigmas + np.clip(change, -most, most)
        return {"sigma": float(np.median(self.sigmas)), "gradient_norm": norm(mean_gradient), "step_norm": norm(step)}

    def state(self) -> dict[str, NDArray[Any]]:
        """Return the standard deviations and the optimizer's state."""
        return {**super().state(), **self._optimizer.state()}

    def restore(self, state: Arrays) -> None:
        """Continue from a state."""
        super().restore(state)
        self._optimizer.restore(state)


make = partial(strategy.EvolutionStrategy, distribution=PGPE)
