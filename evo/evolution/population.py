"""Options, offspring, tasks and fitness of a population: what every evolutionary algorithm shares."""

from __future__ import annotations

import math
from collections.abc import Generator, Sequence
from typing import Annotated, Any

import numpy as np
from numpy.typing import NDArray
from pydantic import AfterValidator, Field

from evo.errors import ConfigurationError
from evo.options import AlgorithmOptions
from evo.randomness.streams import Purpose, candidate_keys, draws, episode_keys, philox_each
from evo.records import (
    Algorithm,
    Arrays,
    Episodes,
    Finalists,
    Metrics,
    Request,
    Result,
    Task,
    WeightSource,
    mean_returns,
    summed,
    unit_of,
    worst_of,
)  # fmt: skip
from evo.setup import Setup

FITNESS_WORST = -(1 << 62)  # in thousandths; of floats, -inf
LARGEST_POPULATION = 1 << 20
MOST_WEIGHTS = 4096  # of a network, by which their spread is measured
OCTAVE = 8  # steps that double sigma: one is a factor of 2^(1/8), with the same bits on every machine
STEPS = range(-96, 97)  # of sigma around the base, twelve doublings either way
EIGHTHS = (1.0, 1.0905077, 1.1892071, 1.2968396, 1.4142135, 1.5422108, 1.6817929, 1.8340081)  # 2^(k / 8)

Sigma = Annotated[float, Field(gt=0, le=1000, description="standard deviation of the mutation noise")]
SigmaSpread = Annotated[
    float,
    Field(
        ge=0, le=4, description="log-normal spread of a child's sigma: sigma * exp(sigma_spread * N(0, 1)); 0 = none"
    ),
]


def _thousandths(bonus: float) -> float:
    if round(bonus * 1000) / 1000 != bonus:
        raise ValueError(f"{bonus} is not a multiple of 0.001")
    return bonus


PerCandidate = Annotated[
    int, Field(ge=1, le=100_000, description="episodes per candidate, the same for a whole generation")
]
AliveBonus = Annotated[
    float,
    Field(
        ge=0, le=1000, description="fitness bonus per step survived, in units of return, a multiple of 0.001; 0 = none"
    ),
    AfterValidator(_thousandths),
]
AliveSteps = Annotated[
    int, Field(ge=0, le=10_000_000, description="largest number of steps per episode that earn alive_bonus")
]


class PopulationOptions(AlgorithmOptions):
    """Options of an algorithm that plays many networks per generation."""

    population: int = Field(512, ge=2, le=LARGEST_POPULATION, description="candidates per generation")
    episodes: PerCandidate = 32
    alive_bonus: AliveBonus = 0.0
    alive_steps: AliveSteps = 100


def metrics_of(environment: Any, first: Sequence[str], key: str, named: Sequence[str]) -> tuple[str, ...]:
    """Return the measures of an episode that there are: `first`, and the metrics of an environment, if there is one.

    ConfigurationError where an option `key` has named another one.
    """
    known = (*first, *(() if environment is None else environment.episode_metrics))
    if wrong := [name for name in named if name not in known]:
        raise ConfigurationError(f"{key}: {', '.join(wrong)} unknown here; there are {', '.join(known)}")
    return known


class Evaluated:
    """What the N candidates of a generation did in E episodes each.

    Options that shape fitness have `alive_bonus` and `alive_steps`.
    """

    def __init__(self, results: Sequence[Result]) -> None:
        self.returns: NDArray[Any] = np.concatenate([result.returns for result in results])  # [N, E]
        self.lengths: NDArray[np.int32] = np.concatenate([result.lengths for result in results])  # [N, E]
        self._summed, self._unit = summed(self.returns), unit_of(self.returns)
        self.finite: NDArray[np.bool_] = self._summed != worst_of(self.returns)  # [N]
        self._results = results

    @property
    def episode_metrics(self) -> NDArray[Any]:
        """Return the metrics of every episode.  # [N, E, M]"""
        return np.concatenate([result.episode_metrics for result in self._results])

    def fitness(self, options: Any) -> NDArray[Any]:
        """Return summed returns and bonuses for steps survived; `fitness_worst` if not finite.  # [N]"""
        each = options.alive_bonus if self._unit == 1.0 else round(options.alive_bonus * self._unit)
        bonus = each * np.minimum(self.lengths, options.alive_steps).astype(np.int64)
        total = summed(np.where(self.returns == worst_of(self.returns), 0, self.returns + bonus))
        return np.where(self.finite, total, fitness_worst(total))

    def record(self) -> dict[str, NDArray[Any]]:
        """Return the summed return, `worst_of` if not finite, and the frames of every candidate, by name."""
        return {"return": self._summed, "frames": self.lengths.sum(axis=1, dtype=np.int64)}

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
        """Return the number of different ways to play among the candidates, over the number of candidates.

        Two candidates play the same way where returns and lengths of all episodes agree.
        """
        traces = self._traces()
        return len(set(traces.view(f"V{traces.shape[1]}").ravel().tolist())) / len(traces)

    def _traces(self) -> NDArray[np.uint8]:
        """Return the bytes of the returns and lengths of every candidate.  # [N, B]"""
        parts = [np.ascontiguousarray(array).view(np.uint8) for array in (self.returns, self.lengths)]
        return np.concatenate(parts, axis=1)

    def against_parents(self, source: WeightSource, elites: int, options: Any) -> Metrics:
        """Return the shares of children that beat their parent on the same episodes, and that play exactly as it does.

        The first `elites` candidates are parents that play too; without children of these, NaN.
        """
        rows = source.rows
        children = np.flatnonzero((rows >= 0) & (rows < elites) & (np.arange(len(rows)) >= elites))
        if not len(children):
            return {"improving": float("nan"), "neutral": float("nan")}
        fitness, traces, theirs = self.fitness(options), self._traces(), rows[children]
        neutral = (traces[children] == traces[theirs]).all(axis=1)
        return {"improving": float((fitness[children] > fitness[theirs]).mean()), "neutral": float(neutral.mean())}

    def metrics(self) -> Metrics:
        """Return the metrics that all evolutionary algorithms have; NaN where no candidate has finite scores."""
        means = self.returns[self.finite].mean(axis=1) / self._unit  # [M] of candidates whose scores are finite
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


def sigma_table(base: float) -> NDArray[np.float32]:
    """Return base * 2^(k / 8) for every k of STEPS, from a fixed table and powers of two.  # [193] float32"""
    steps = np.array([np.float32(EIGHTHS[k % OCTAVE]) * np.float32(2.0 ** (k // OCTAVE)) for k in STEPS], np.float32)
    return np.float32(base) * steps


def normals(streams: NDArray[np.uint64]) -> NDArray[np.float64]:
    """Return a standard normal number from each stream: (popcount - 16) / sqrt(8) of its first word.  # [N] -> [N]"""
    words = philox_each(streams, 0, 0, 0, 0)[0]
    return (np.bitwise_count(words).astype(np.float64) - 16) / math.sqrt(8)


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
            words = philox_each(streams(Purpose.SIGMA), 0, 0, 0, 0)[0]
            # (popcount - 16) / sqrt(8) is a standard normal; 8 / ln 2 steps of sigma are a factor of e.
            steps = np.rint((np.bitwise_count(words).astype(np.int64) - 16) * self._spread * 4.0805567).astype(np.int64)
            sigmas[stay:] = self._sigmas[np.clip(steps, STEPS.start, STEPS.stop - 1) - STEPS.start]
        else:
            keys[stay:] = streams(Purpose.INITIAL)
        return WeightSource(rows, np.full(count, -1, np.int32), keys, sigmas)


def fitness_worst(fitness: NDArray[Any]) -> Any:
    """Return the value that stands for a fitness that is not finite."""
    return FITNESS_WORST if fitness.dtype.kind == "i" else -np.inf


def averaged(total: Any, count: int) -> Any:
    """Return a total over a count; whole numbers stay whole."""
    return total // count if isinstance(total, int) else total / count


def names_of(source: WeightSource) -> dict[str, NDArray[Any]]:
    """Return the names of candidates for a record: parent, key and sigma of each."""
    return {"parent": source.rows, "key": source.keys, "sigma": source.sigmas}


def finalists_of(
    weights: NDArray[np.float32], rows: Sequence[int], record: Arrays, numbers: Sequence[int], episodes: int
) -> Finalists:
    """Return rows of weights [S, P] as finalists; `numbers` are those of their candidates in a record.

    The record is empty after a fork, before a generation is played.
    """
    if "return" not in record:
        return Finalists(weights[rows])
    return Finalists(weights[rows], list(numbers), mean_returns(np.asarray(record["return"])[numbers], episodes))


def spread(weights: NDArray[np.float32]) -> Metrics:
    """Return the root mean square of all weights, and that of their distance from the mean network, over it.

    weights [S, P]. Of large networks a regular sample of the weights is used. The diversity of zeros is NaN.
    """
    seen = _sampled_weights(weights)
    size = float(np.sqrt(np.square(seen).mean()))
    return {"weight_rms": size, "diversity": float(np.sqrt(seen.var(axis=0).mean())) / size if size > 0 else np.nan}


def between_islands(weights: NDArray[np.float32], islands: int) -> float:
    """Return the share of the variance of all weights that is between the mean networks of islands; NaN without any.

    weights [S, P], of which row k is on island k % islands, and S a multiple of that.
    """
    seen = _sampled_weights(weights)
    means = np.stack([seen[island::islands].mean(axis=0) for island in range(islands)])
    variance = float(seen.var(axis=0).sum())
    return float(means.var(axis=0).sum()) / variance if variance > 0 else np.nan


def _sampled_weights(weights: NDArray[np.float32]) -> NDArray[np.float64]:
    return weights[:, :: max(1, weights.shape[1] // MOST_WEIGHTS)].astype(np.float64)


def all_tie(fitness: NDArray[Any]) -> bool:
    """Return whether a generation says nothing: recombination would move by chance alone.  # [N]"""
    return bool((fitness == fitness[0]).all())


def fitness_metrics(fitness: NDArray[Any], episodes: int) -> Metrics:
    """Return the best and the mean fitness of an episode, and how many candidates are not finite.  # [N]"""
    finite, per = fitness[fitness > fitness_worst(fitness)].tolist(), unit_of(fitness) * episodes
    return {
        "nonfinite": float(len(fitness) - len(finite)),
        "best_fitness": max(finite, default=np.nan) / per,
        "mean_fitness": (sum(finite) / len(finite) if finite else np.nan) / per,  # whole numbers: no sum overflows
    }


def selection_metrics(
    parents: NDArray[np.float32], source: WeightSource, survivors: NDArray[np.int32], elites: int, islands: int
) -> Metrics:
    """Return the diversity of parents [S, P], the share of them that are not elites, and the latter's median sigma."""
    new = survivors[survivors >= elites]
    mutated = source.sigmas[new][source.rows[new] >= 0]
    return {
        **spread(parents),
        **({"between_islands": between_islands(parents, islands)} if islands > 1 else {}),
        "turnover": len(new) / max(1, len(survivors)),
        "surviving_sigma": float(np.median(mutated)) if len(mutated) else np.nan,
    }


def tasks_of(source: WeightSource, seeds: NDArray[np.uint64], per_task: int) -> list[Task]:
    """Return tasks of `per_task` candidates each, which all play these episodes.  # seeds [E]"""
    count = len(source)
    parts = [slice(first, min(first + per_task, count)) for first in range(0, count, per_task)]
    return [Task(source.some(part), Episodes(seeds)) for part in parts]


class PopulationAlgorithm(Algorithm):
    """An algorithm whose candidates play the same episodes in a generation, and its record of the newest one."""

    def __init__(self, options: Any, setup: Setup) -> None:
        self.options, self.seed, self.network = options, setup.seed, setup.network
        self._per_task = setup.candidates_per_task
        start = np.empty(0) if setup.start is None else setup.start
        self._start = np.reshape(start, (-1, setup.network.size)).astype(np.float32)  # [0 or 1, P]
        self._record: Arrays = {}

    def played(
        self, number: int, published: NDArray[np.float32], *sources: WeightSource
    ) -> Generator[Request, Sequence[Result], Evaluated]:
        """Publish weights [S, P], where there are any, and return what the candidates of all sources did."""
        seeds = episode_keys(self.seed, Purpose.TRAINING, number, self.options.episodes)
        tasks = [task for source in sources for task in tasks_of(source, seeds, self._per_task)]
        results = yield Request(published if len(published) else None, tasks)
        return Evaluated(results)

    def record(self) -> Arrays:
        """Return what every candidate did, and who was chosen, by name."""
        return self._record

    def restore(self, state: Arrays, records: Sequence[Arrays]) -> None:
        """Continue from a state, and the record of the generation that left it; a fork has none."""
        self._record = dict(records[-1]) if records else {}
