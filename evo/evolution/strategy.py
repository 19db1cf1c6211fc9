"""The engine of every evolution strategy: play the candidates of a search distribution, and move it by their ranks.

A strategy is a `Distribution`, which draws candidates and is updated by their fitness. Candidate 0 is its mean, which
is only measured; it takes no round of its own. Equal fitness is an equal rank, so ties push nowhere.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from evo.errors import ResourceError
from evo.evolution.noise_sums import ln, norm
from evo.evolution.population import (
    FITNESS_WORST,
    LARGEST_POPULATION,
    AliveBonus,
    AliveSteps,
    PerCandidate,
    PopulationAlgorithm,
    averaged,
    fitness_worst,
    names_of,
)
from evo.networks.candidates import Rebuilder
from evo.options import AlgorithmOptions
from evo.randomness.streams import Purpose, candidate_keys, stream
from evo.records import Arrays, Finalists, Generation, Metrics, WeightSource, unit_of
from evo.setup import Setup

LARGEST = 1e38  # a mean beyond it has diverged: float32 ends soon after


class StrategyOptions(AlgorithmOptions):
    """Options of every evolution strategy."""

    population: int = Field(256, ge=4, le=LARGEST_POPULATION, description="candidates per generation")
    episodes: PerCandidate = 16
    alive_bonus: AliveBonus = 0.0
    alive_steps: AliveSteps = 100
    sigma: float = Field(0.1, gt=0, le=1000, description="initial standard deviation of every weight")
    restart_after: int = Field(
        0,
        ge=0,
        description="restart from a fresh network after so many generations without a new highest mean fitness of the "
        "candidates; 0 = never",
    )

    @property
    def needs_stationary_training(self) -> str:
        """Restarts, where there are any."""
        return "restart_after" if self.restart_after else ""

    def candidates(self) -> int:
        """Return how many networks play in a generation: the candidates, and their distribution's mean."""
        return self.population + 1


class Distribution(Protocol):
    """A search distribution over vectors of P weights."""

    mean: NDArray[np.float64]  # [P]

    def __init__(self, options: Any, mean: NDArray[np.float64]) -> None:
        """Begin around this mean, with the options of the strategy."""

    def candidates(self, seed: int, number: int) -> WeightSource:
        """Return the candidates of a generation, the mean as candidate 0."""

    def published(self) -> NDArray[np.float32]:
        """Return the rows that the candidates of this generation are made of; row 0 is the mean.  # [S, P]"""
        return self.mean[np.newaxis].astype(np.float32)

    def update(self, source: WeightSource, fitness: NDArray[Any], number: int) -> Metrics:
        """Move by the fitness of a generation's candidates, without the mean; return metrics.  # fitness [N]"""

    def state(self) -> dict[str, NDArray[Any]]:
        """Return all that is needed to go on but the mean, by name."""

    def restore(self, state: Arrays) -> None:
        """Continue from what `state` returned; the mean is restored before."""

    def fingerprint(self) -> str:
        """Return what computes the updates, where results depend on it; empty: exact on every machine."""
        return ""


class EvolutionStrategy(PopulationAlgorithm):
    """Plays, ranks and records; its distribution is the strategy's mathematics."""

    def __init__(self, options: StrategyOptions, setup: Setup, distribution: type[Distribution]) -> None:
        """Begin around `setup.start` [P], or a fresh network; ConfigurationError where the distribution refuses it."""
        super().__init__(options, setup)
        self._kind = distribution
        self.restarts, self._stalled = 0, 0  # generations since a mean fitness was the best
        self._best: int | float = FITNESS_WORST  # mean fitness; there is none yet
        start = self._fresh() if setup.start is None else setup.start.astype(np.float64)
        self.distribution = distribution(options, start)
        self._exact = setup.is_exact
        self._found = np.empty((0, self.network.size), np.float32)  # [0 or 1, P] the best of a generation, where exact

    def generation(self, number: int) -> Generation:
        """Play the mean and the candidates on the same episodes, and move the distribution."""
        source = self.distribution.candidates(self.seed, number)
        outcome = yield from self.played(number, self.distribution.published(), source)
        fitness = outcome.fitness(self.options)
        moved = self._update(source, fitness, number)
        self._record = {**names_of(source), **outcome.record(), "fitness": fitness}
        centre = outcome.returns[0].mean() / unit_of(outcome.returns) if outcome.finite[0] else float("nan")
        return {**outcome.metrics(), "centre": float(centre), **moved, "restarts": float(self.restarts)}

    def _update(self, source: WeightSource, fitness: NDArray[Any], number: int) -> Metrics:
        if self._exact:
            best = source.some([int(np.argmax(fitness))])
            self._found = Rebuilder(self.network).all(self.distribution.published(), best)
        moved = self.distribution.update(source.some(slice(1, None)), fitness[1:], number)
        if not (np.abs(self.distribution.mean) < LARGEST).all():
            raise ResourceError(f"generation {number}: the mean has diverged; use a smaller sigma or learning rate")
        known = fitness[1:][fitness[1:] > fitness_worst(fitness)]
        mean = averaged(np.cumsum(known)[-1].item(), len(known)) if len(known) else FITNESS_WORST
        # Counted without restarts too: it is part of every state.
        rises = len(known) > 0 and (self._best == FITNESS_WORST or mean > self._best)
        self._best, self._stalled = (mean, 0) if rises else (self._best, self._stalled + 1)
        if 0 < self.options.restart_after <= self._stalled:
            self.restarts, self._best, self._stalled = self.restarts + 1, FITNESS_WORST, 0
            self.distribution = self._kind(self.options, self._fresh())
        return moved

    def _fresh(self) -> NDArray[np.float64]:
        """Return a fresh network, another one after every restart.  # [P]"""
        key = stream(self.seed, Purpose.INITIAL, 0, self.restarts)
        return Rebuilder(self.network).drawn(key).astype(np.float64)

    def finalists(self, count: int) -> Finalists:
        """Return the mean, and the best candidate where its fitness is exact."""
        mean = self.distribution.mean[np.newaxis].astype(np.float32)
        return Finalists(np.concatenate((mean, self._found)))

    def state(self) -> Arrays:
        """Return the distribution, and what decides about a restart."""
        progress = np.array([self.restarts, self._best, self._stalled])
        found: Arrays = {"found": self._found} if self._exact else {}
        return {"mean": self.distribution.mean, "progress": progress, **found, **self.distribution.state()}

    def fingerprint(self) -> str:
        """Return that of the distribution."""
        return self.distribution.fingerprint()

    def restore(self, state: Arrays, records: Sequence[Arrays]) -> None:
        """Continue from a distribution; a fork counts its generations anew."""
        restarts, best, stalled = np.asarray(state["progress"]).tolist()
        self.restarts = int(restarts)
        self._best, self._stalled = (best, int(stalled)) if len(records) else (FITNESS_WORST, 0)
        self.distribution = self._kind(self.options, np.array(state["mean"], np.float64))
        self.distribution.restore(state)
        self._found = np.asarray(state.get("found", self._found), np.float32)

    def retrace(self, number: int, record: Arrays) -> bool:
        """Move the distribution by the recorded fitness."""
        self._update(self.distribution.candidates(self.seed, number), np.asarray(record["fitness"]), number)
        return True


def around_mean(
    seed: int, number: int, sigmas: NDArray[np.float32], *, antithetic: bool = False, scale: int = -1
) -> WeightSource:
    """Return the mean, and a candidate around it for each standard deviation.  # sigmas [N] -> N + 1 candidates

    Antithetic candidates come in pairs of one key, the second of which has the opposite noise; N is even.
    """
    count = len(sigmas)
    if antithetic:
        keys = np.repeat(candidate_keys(seed, Purpose.MUTATION, number, 0, count // 2), 2)
        sigmas = sigmas * np.tile(np.array([1, -1], np.float32), count // 2)
    else:
        keys = candidate_keys(seed, Purpose.MUTATION, number, 0, count)
    rows = np.zeros(count + 1, np.int32)
    return WeightSource(
        rows=rows,
        mates=rows - np.int32(1),
        keys=np.concatenate((np.zeros(1, np.uint64), keys)),
        sigmas=np.concatenate((np.zeros(1, np.float32), sigmas)),
        scale=scale,
    )


def centred_ranks(fitness: NDArray[Any]) -> NDArray[np.float64]:
    """Return ranks from -0.5 for the worst to 0.5 for the best, whose sum is 0 (Salimans et al., 2017).  # [N]"""
    ordered = np.sort(fitness)
    worse = np.searchsorted(ordered, fitness, "left")
    better = len(fitness) - np.searchsorted(ordered, fitness, "right")
    ranks: NDArray[np.float64] = (worse - better) / (2.0 * max(1, len(fitness) - 1))
    return ranks


def shared_by_rank(fitness: NDArray[Any], weights: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return for each candidate the weight of its rank; candidates of equal fitness share theirs.

    fitness [N], weights [N] of the best candidate first -> [N]
    """
    ordered = np.sort(fitness)[::-1]
    sums = np.concatenate(([0.0], np.cumsum(weights)))  # one addition after the other, the same on every machine
    first = np.searchsorted(-ordered, -fitness, "left")
    end = np.searchsorted(-ordered, -fitness, "right")
    alone = end - first == 1
    return np.where(alone, weights[first], (sums[end] - sums[first]) / (end - first))


def log_ranks(count: int) -> NDArray[np.float64]:
    """Return ln((count + 1) / 2) - ln(rank), which is positive for the better half.  # [count]

    Hansen, "The CMA Evolution Strategy: A Tutorial" (2016), eq. 49.
    """
    return np.array([ln((count + 1) / 2) - ln(rank) for rank in range(1, count + 1)])


def recombination_weights(count: int) -> NDArray[np.float64]:
    """Return the logarithms of the ranks of the better half, 0 for the others, with sum 1 (eq. 53).  # [count]"""
    raw = np.maximum(log_ranks(count), 0.0)
    return raw / math.fsum(raw)


class Adam:
    """Steps to be added, of Adam (Kingma and Ba, 2015, algorithm 1); powers of beta are running products."""

    BETAS, EPSILON = (0.9, 0.999), 1e-8

    def __init__(self, size: int) -> None:
        self._moments, self._powers = np.zeros((2, size)), np.ones(2)

    def step(self, gradient: NDArray[np.float64], rate: float) -> NDArray[np.float64]:
        """Return the step for a gradient, at this learning rate.  # [P] -> [P]"""
        one, two = self.BETAS
        self._moments[0] = one * self._moments[0] + (1 - one) * gradient
        self._moments[1] = two * self._moments[1] + (1 - two) * (gradient * gradient)
        self._powers *= (one, two)
        mean = self._moments[0] / (1 - self._powers[0])
        square = self._moments[1] / (1 - self._powers[1])
        step: NDArray[np.float64] = rate * mean / (np.sqrt(square) + self.EPSILON)
        return step

    def state(self) -> dict[str, NDArray[Any]]:
        """Return the moments of the gradient, and the powers of beta."""
        return {"moments": self._moments, "powers": self._powers}

    def restore(self, state: Arrays) -> None:
        """Continue from what `state` returned."""
        self._moments, self._powers = np.array(state["moments"], np.float64), np.array(state["powers"], np.float64)


class ClipUp:
    """Steps to be added: normalised gradients, momentum, a speed limit of two learning rates (Toklu et al., 2020)."""

    MOMENTUM, SPEED_LIMIT = 0.9, 2.0

    def __init__(self, size: int) -> None:
        self._velocity = np.zeros(size)

    def step(self, gradient: NDArray[np.float64], rate: float) -> NDArray[np.float64]:
        """Return the step for a gradient; the learning rate is the length of a single step.  # [P] -> [P]"""
        length = norm(gradient)
        self._velocity = self.MOMENTUM * self._velocity + (rate / length if length > 0 else 0.0) * gradient
        speed = norm(self._velocity)
        if speed > self.SPEED_LIMIT * rate:
            self._velocity = self._velocity * (self.SPEED_LIMIT * rate / speed)
        return self._velocity

    def state(self) -> dict[str, NDArray[Any]]:
        """Return the velocity."""
        return {"velocity": self._velocity}

    def restore(self, state: Arrays) -> None:
        """Continue from what `state` returned."""
        self._velocity = np.array(state["velocity"], np.float64)


OPTIMIZERS: dict[str, type[Adam] | type[ClipUp]] = {"adam": Adam, "clipup": ClipUp}
