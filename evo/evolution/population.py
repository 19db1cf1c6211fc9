"""What every evolutionary algorithm asks and counts: tasks of named candidates, their fitness, their returns."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated, Any, Self

import numpy as np
from numpy.typing import NDArray
from pydantic import Field, model_validator

from evo.errors import ConfigurationError
from evo.evolution.sigmas import STEPS, drawn_steps, sigma_table
from evo.options import AlgorithmOptions
from evo.randomness.philox_arrays import draws
from evo.randomness.streams import Purpose, candidate_keys
from evo.records import WORST, Episodes, Metrics, Result, Task, WeightSource

if TYPE_CHECKING:
    pass

FITNESS_WORST = -(1 << 62)
LARGEST_POPULATION = 1 << 20
MOST_WEIGHTS = 4096  # of a network, by which their spread is measured


Sigma = Annotated[float, Field(gt=0, le=1000, description="standard deviation of the mutation noise")]
SigmaSpread = Annotated[
    float,
    Field(
        ge=0, le=4, description="log-normal spread of a child's sigma: sigma * exp(sigma_spread * N(0, 1)); 0 = none"
    ),
]


class PopulationOptions(AlgorithmOptions):
    """Options of every algorithm that plays many networks per generation."""

    population: int = Field(512, ge=2, le=LARGEST_POPULATION, description="candidates per generation")
    episodes: int = Field(32, ge=1, le=100_000, description="episodes per candidate, the same for all of a generation")
    alive_bonus: float = Field(
        0.0,
        ge=0,
        le=1000,
        description="fitness for every step survived, in units of return, a multiple of 0.001; 0 = none",
    )
    alive_steps: int = Field(
        100, ge=0, le=10_000_000, description="steps of an episode for which alive_bonus is added, at most"
    )

    @model_validator(mode="after")
    def _whole_thousandths(self) -> Self:
        if round(self.alive_bonus * 1000) / 1000 != self.alive_bonus:
            raise ValueError(f"alive_bonus: {self.alive_bonus} is not a multiple of 0.001")
        return self

    def candidates(self) -> int:
        """Return the size of the population."""
        return self.population

    def episodes_per_candidate(self) -> int:
        """Return how many episodes each candidate plays in a generation."""
        return self.episodes

    def candidates_per_task(self, flops: int) -> int:
        """Return how many candidates one task holds: fewer of a larger network."""
        return max(1, min(16, 500_000 // flops))


def metrics_of(environment: Any, first: Sequence[str], key: str, named: Sequence[str]) -> tuple[str, ...]:
    """Return the measures of an episode that there are: `first`, and the metrics of an environment, if there is one.

    ConfigurationError where an option `key` has named another one.
    """
    known = (*first, *(() if environment is None else environment.episode_metrics))
    if wrong := [name for name in named if name not in known]:
        raise ConfigurationError(f"{key}: {', '.join(wrong)} unknown here; there are {', '.join(known)}")
    return known


class Outcome:
    """What the N candidates of a generation did in E episodes each."""

    def __init__(self, results: Sequence[Result]) -> None:
        self.returns: NDArray[np.int64] = np.concatenate([result.returns for result in results])  # [N, E]
        self.lengths: NDArray[np.int32] = np.concatenate([result.lengths for result in results])  # [N, E]
        self.finite: NDArray[np.bool_] = ~(self.returns == WORST).any(axis=1)  # [N]
        self._results = results

    @property
    def episode_metrics(self) -> NDArray[np.int32]:
        """Return the metrics of every episode.  # [N, E, M]"""
        return np.concatenate([result.episode_metrics for result in self._results])

    def fitness(self, options: PopulationOptions) -> NDArray[np.int64]:
        """Return summed returns and bonuses for steps survived, in thousandths; FITNESS_WORST if not finite.  # [N]"""
        return np.where(self.finite, self.values(options).sum(axis=1), FITNESS_WORST)

    def values(self, options: PopulationOptions) -> NDArray[np.int64]:
        """Return the return and the bonus of every episode, in thousandths; 0 where it is not finite.  # [N, E]"""
        bonus = round(options.alive_bonus * 1000) * np.minimum(self.lengths, options.alive_steps).astype(np.int64)
        return np.where(self.returns == WORST, 0, self.returns + bonus)

    def record(self) -> dict[str, NDArray[Any]]:
        """Return the summed return, WORST if not finite, and the frames of every candidate, by name."""
        total = self.returns.sum(axis=1, where=self.returns != WORST)
        return {
            "return": np.where(self.finite, total, WORST),
            "frames": self.lengths.sum(axis=1, dtype=np.int64),
        }

    def means(self) -> NDArray[np.float64]:
        """Return the mean return of every candidate whose scores are finite.  # [M]"""
        means: NDArray[np.float64] = self.returns[self.finite].mean(axis=1) / 1000.0
        return means

    def signal_to_noise(self) -> float:
        """Return the variance between candidates over that of luck in their mean returns; NaN where that is unknown.

        All candidates play the same episodes, so an episode that is hard for all of them is not luck: luck is the
        interaction of candidate and episode (two-way analysis of variance without repetition).
        """
        returns = self.returns[self.finite].astype(np.float64)
        candidates, episodes = returns.shape
        if candidates < 2 or episodes < 2:
            return float("nan")
        means = returns.mean(axis=1)
        rest = returns - means[:, np.newaxis] - returns.mean(axis=0) + means.mean()
        luck = float((rest * rest).sum()) / ((candidates - 1) * (episodes - 1) * episodes)
        return max(float(means.var(ddof=1)) - luck, 0.0) / luck if luck > 0 else float("nan")

    def distinct(self) -> float:
        """Return how many ways to play there are among the candidates, as a share of their number.

        Two candidates play alike where returns and lengths of all episodes agree.
        """
        return len({self._trace(k) for k in range(len(self.lengths))}) / len(self.lengths)

    def alike(self, first: int, second: int) -> bool:
        """Return whether two candidates have the same returns and lengths in all episodes."""
        return self._trace(first) == self._trace(second)

    def _trace(self, k: int) -> bytes:
        trace: bytes = self.returns[k].tobytes() + self.lengths[k].tobytes()
        return trace

    def metrics(self) -> Metrics:
        """Return the metrics that all evolutionary algorithms have; NaN where no candidate has finite scores."""
        means = self.means()
        return {
            "best": float(means.max()) if len(means) else float("nan"),
            "mean": float(means.mean()) if len(means) else float("nan"),
            "mean_length": float(self.lengths.mean()),
            "signal_to_noise": self.signal_to_noise(),
            "distinct": self.distinct(),
            "nonfinite": float((~self.finite).sum()),
            **self.effort(),
        }

    def effort(self) -> dict[str, float]:
        """Return the frames that were played, and the slots of lanes that this took."""
        return {
            "frames": float(sum(result.frames for result in self._results)),
            "slots": float(sum(result.lane_slots for result in self._results)),
        }


class Offspring:
    """Names the candidates of a generation: some published rows unchanged, and mutated copies of any of them."""

    def __init__(self, seed: int, sigma: float, spread: float) -> None:
        """A child's standard deviation is sigma * exp(spread * N(0, 1))."""
        self._seed, self._sigmas, self._spread = seed, sigma_table(sigma), spread

    def of(self, number: int, unchanged: Sequence[int], parents: int, count: int) -> WeightSource:
        """Return `count` candidates: the rows `unchanged` first, then children of rows below `parents`.

        Where there is no parent, these are fresh networks.
        """
        stay = len(unchanged)
        rows, keys, sigmas = np.full(count, -1, np.int32), np.zeros(count, np.uint64), np.zeros(count, np.float32)
        rows[:stay] = unchanged

        def streams(purpose: Purpose) -> NDArray[np.uint64]:
            return candidate_keys(self._seed, purpose, number, stay, count)

        if parents:
            rows[stay:], keys[stay:] = draws(streams(Purpose.PARENT), 0, parents), streams(Purpose.MUTATION)
            steps = np.clip(drawn_steps(streams(Purpose.SIGMA), self._spread), STEPS.start, STEPS.stop - 1)
            sigmas[stay:] = self._sigmas[steps.astype(np.int64) - STEPS.start]
        else:
            keys[stay:] = streams(Purpose.INITIAL)
        return WeightSource(rows, np.full(count, -1, np.int32), keys, sigmas)


def mean_returns(summed: NDArray[np.int64], episodes: int) -> NDArray[np.float64]:
    """Return mean returns of recorded sums, NaN where scores were not finite.  # [M] -> [M]"""
    return np.where(summed == WORST, np.nan, summed / (1000.0 * episodes))


def spread(weights: NDArray[np.float32]) -> Metrics:
    """Return the root mean square of all weights, and that of their distance from the mean network, over it.

    weights [S, P]. Of large networks every so many weights are looked at. The diversity of zeros is NaN.
    """
    seen = _looked_at(weights)
    size = float(np.sqrt(np.square(seen).mean()))
    return {"weight_rms": size, "diversity": float(np.sqrt(seen.var(axis=0).mean())) / size if size > 0 else np.nan}


def between_islands(weights: NDArray[np.float32], islands: int) -> float:
    """Return the share of the variance of all weights that is between the mean networks of islands; NaN without any.

    weights [S, P], of which row k is on island k % islands, and S a multiple of that.
    """
    seen = _looked_at(weights)
    means = np.stack([seen[island::islands].mean(axis=0) for island in range(islands)])
    variance = float(seen.var(axis=0).sum())
    return float(means.var(axis=0).sum()) / variance if variance > 0 else np.nan


def _looked_at(weights: NDArray[np.float32]) -> NDArray[np.float64]:
    return weights[:, :: max(1, weights.shape[1] // MOST_WEIGHTS)].astype(np.float64)


def tasks_of(source: WeightSource, seeds: NDArray[np.uint64], per_task: int) -> list[Task]:
    """Return tasks of `per_task` candidates each, which all play these episodes.  # seeds [E]"""
    count = len(source)
    parts = [slice(first, min(first + per_task, count)) for first in range(0, count, per_task)]
    return [Task(source.some(part), Episodes(seeds)) for part in parts]
