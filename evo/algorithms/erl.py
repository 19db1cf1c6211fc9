"""Evolutionary reinforcement learning: a population, with one network that learns (Khadka and Tumer, 2018).

The original is of continuous actions and learns by DDPG. Here a network's outputs are the values of actions: a
candidate plays the action of the highest value, and the learner's network, trained by double Q-learning, is a candidate
like any other. Two things are shared. The episodes that decide a candidate's fitness go to the learner's replay buffer,
step by step, and need not be played again. Every `sync_every` generations the learner's network takes the place of a
child; selection decides whether it becomes a parent. The learner plays some episodes of its own, to explore.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, ClassVar, Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from evo.algorithms import dqn
from evo.evolution.population import (
    LARGEST_POPULATION,
    AliveBonus,
    AliveSteps,
    Evaluated,
    Offspring,
    PopulationAlgorithm,
    Sigma,
    SigmaSpread,
    finalists_of,
    names_of,
    spread,
    tasks_of,
)
from evo.learning.collecting import check_finite, episode_tasks, metrics_of
from evo.learning.gradient_algorithm import OfMethod
from evo.learning.hyperparameters import check_q_learning
from evo.networks.candidates import Rebuilder
from evo.randomness.streams import Purpose, episode_keys
from evo.records import (
    Arrays,
    Episodes,
    Finalists,
    Generation,
    Metrics,
    Request,
    Result,
    Task,
    WeightSource,
    joined,
    mean_returns,
)
from evo.setup import Setup

LEARNER = "learner_"  # prefix of the learner's arrays in a state
EXPLORING_TOGETHER = 16  # episodes per task, as many as the kernel has lanes


class Options(dqn.ReplayOptions):
    """The [erl] section, with the options of its learner."""

    transitions_from: ClassVar[Literal["", "episodes", "segments"]] = "episodes"  # whole ones are shared

    population: int = Field(64, ge=2, le=LARGEST_POPULATION, description="candidates per generation")
    episodes: int = Field(4, ge=1, le=100_000, description="episodes per candidate, the same for a whole generation")
    parents: int = Field(16, ge=1, le=LARGEST_POPULATION, description="candidates that may have children")
    elites: int = Field(
        8, ge=0, le=LARGEST_POPULATION, description="best candidates, which stay unchanged and play again"
    )
    alive_bonus: AliveBonus = 0.0
    alive_steps: AliveSteps = 100
    sigma: Sigma = 0.05
    sigma_spread: SigmaSpread = 0.7
    shared: int = Field(
        64,
        ge=0,
        le=LARGEST_POPULATION,
        description="candidates whose episodes go to the replay buffer: elites first, then the learner's network, "
        "then children; 0 = none",
    )
    explore_episodes: int = Field(
        8, ge=0, le=100_000, description="epsilon-greedy episodes of the learner's network per generation; 0 = none"
    )
    sync_every: int = Field(
        1, ge=0, description="generations between copies of the learner's network into the population; 0 = never"
    )

    def _check(self) -> None:
        super()._check()
        if self.parents > self.population:
            raise ValueError(f"parents: {self.parents} of a population of {self.population}")
        if self.elites > self.parents:
            raise ValueError(f"elites: {self.elites} of {self.parents} parents")
        if self.elites + bool(self.sync_every) >= self.population:
            raise ValueError(f"elites: {self.elites} of a population of {self.population}, so none is new")
        if self.shared > self.population:
            raise ValueError(f"shared: {self.shared} of a population of {self.population}")
        if not self.shared and not self.explore_episodes:
            raise ValueError("shared: 0, and explore_episodes: 0 leave nothing to learn from")

    def extra_outputs(self, environment: Any) -> int:
        """Return 0: a network's outputs are the values of actions; ConfigurationError as `check_q_learning`."""
        check_q_learning(environment, self.symmetry)
        return 0

    def learner_options(self) -> dqn.Options:
        """Return the options of the learner, whose network has no dueling heads."""
        shared = dqn.Options.model_fields.keys() & type(self).model_fields.keys() - {"episodes", "generations"}
        return dqn.Options(dueling=False, **{name: getattr(self, name) for name in shared})


class EvolutionaryReinforcementLearning(PopulationAlgorithm, OfMethod):
    """A population, stored as its parents, and a learner."""

    def __init__(self, options: Options, setup: Setup) -> None:
        """Prepare; `setup.start` [P] is the first parent, and where the learner begins."""
        super().__init__(options, setup)
        self.method: dqn.DQN = dqn.DQN(options.learner_options(), setup)
        self.notices = self.method.notices
        self._offspring = Offspring(setup.seed, options.sigma, options.sigma_spread)
        self._parents = self._start  # [S, P] best first
        self._frames = 0  # learned from; schedules count these

    def generation(self, number: int) -> Generation:
        """Play the population, let the learner explore, choose parents, and learn from what was shared."""
        options, source = self.options, self._candidates(number)
        keys = episode_keys(self.seed, Purpose.TRAINING, number, options.episodes + options.explore_episodes)
        tasks = self._tasks(source, keys[: options.episodes])
        published = np.concatenate([self._parents, self.method.network()])
        results = yield Request(published, tasks)
        outcome = Evaluated(results)
        fitness, metrics = outcome.fitness(options), outcome.metrics()
        rule = self.method.action_rule(self._frames)
        exploring = episode_tasks(keys[options.episodes :], EXPLORING_TOGETHER, rule, len(self._parents))
        if exploring:
            explored = yield Request(None, exploring)
            check_finite(explored)
            tasks, results = [*tasks, *exploring], [*results, *explored]
            taken, _ = metrics_of(explored)
            metrics |= {name: metrics[name] + taken[name] for name in ("frames", "slots")}
            metrics |= {"explored": taken["mean"], "epsilon": rule.epsilon}
        chosen = np.argsort(-fitness, kind="stable")[: options.parents]
        self._record = {
            **names_of(source),
            **outcome.record(),
            "survivors": chosen.astype(np.int32),
            **self._share(tasks, results),
        }
        metrics |= self._entered(source, outcome, chosen)
        self._parents = Rebuilder(self.network).all(published, source.some(chosen.tolist()))
        learned = self.method.learned(None, number, self._frames, lambda: False)
        return {**metrics, "sigma": float(np.median(source.sigmas)), **spread(self._parents), **learned}

    def _candidates(self, number: int) -> WeightSource:
        """Return the source of every candidate: elites, the learner's network if it enters, then children."""
        options, rows = self.options, len(self._parents)
        enters = number > 0 and options.sync_every > 0 and number % options.sync_every == 0
        unchanged = [*range(min(options.elites, rows)), *([rows] if enters else [])]
        return self._offspring.of(number, unchanged, rows, options.population)

    def _tasks(self, source: WeightSource, seeds: NDArray[np.uint64]) -> list[Task]:
        """Return the tasks of all candidates; transitions are recorded of one candidate at a time."""
        shared = self.options.shared
        recorded = [replace(task, record_transitions=True) for task in tasks_of(source.some(slice(shared)), seeds, 1)]
        return recorded + tasks_of(source.some(slice(shared, None)), seeds, self._per_task)

    def _share(self, tasks: Sequence[Task], results: Sequence[Result]) -> dict[str, NDArray[Any]]:
        """Give recorded episodes to the learner; return the record from which its replay buffer is filled again."""
        recorded = [result.transitions for result in results if result.transitions is not None]
        if not recorded:
            return {}
        transitions = joined(recorded)
        self._frames += len(transitions)
        seeds = [task.play.seeds for task in tasks if task.record_transitions and isinstance(task.play, Episodes)]
        return self.method.receive(transitions, None, self._frames, np.concatenate(seeds))

    def _entered(self, source: WeightSource, outcome: Evaluated, chosen: NDArray[np.int64]) -> Metrics:
        """Return the learner's mean return among the candidates, and whether it was selected; NaN where it is none."""
        found = np.flatnonzero(source.rows == len(self._parents))
        if not len(found):
            return {"learner_return": float("nan"), "learner_selected": float("nan")}
        returns = mean_returns(outcome.record()["return"][found], self.options.episodes)
        return {"learner_return": float(returns[0]), "learner_selected": float(found[0] in chosen)}

    def finalists(self, count: int) -> Finalists:
        """Return the best of the parents; the learner's network is among them once it was selected."""
        chosen = self._record["survivors"][:count].tolist() if self._record else []
        rows = range(min(count, len(self._parents)))
        return finalists_of(self._parents, rows, self._record, chosen, self.options.episodes)

    def state(self) -> Arrays:
        """Return the parents, and arrays of the learner, its target and its replay buffer."""
        learner = {LEARNER + name: array for name, array in self.method.state().items()}
        return {"weights": self._parents, "frames": np.array([self._frames], np.int64), **learner}

    def restore(self, state: Arrays, records: Sequence[Arrays]) -> None:
        """Continue from a state; a fork begins with an empty replay buffer.

        DataError: state and records do not match.
        """
        learner = {name.removeprefix(LEARNER): array for name, array in state.items() if name.startswith(LEARNER)}
        self.method.restore(learner, records)
        self._parents = np.ascontiguousarray(state["weights"], np.float32)
        self._frames = int(np.asarray(state["frames"])[0])
        super().restore(state, records)


make = EvolutionaryReinforcementLearning
