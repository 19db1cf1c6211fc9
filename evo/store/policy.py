"""A network as a function from observations to actions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import closing
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from evo.config.environments import curriculum_of
from evo.config.experiment import Experiment
from evo.environment import ONE_SEARCH, Environment, as_float32, real_array
from evo.errors import DataError
from evo.evolution.starts import MultiStart
from evo.networks.network import Network
from evo.plugins import directory
from evo.plugins.mistakes import mistake
from evo.plugins.registry import find, loaded
from evo.records import Algorithm, Arrays, unit_of
from evo.setup import Setup
from evo.workers import hardware

INVALID_STATE = (KeyError, IndexError, TypeError, ValueError, AttributeError)  # raised for a forged state


class Policy:
    """A network that acts greedily: call it with an observation, or with a batch of them.

    `weights` are float32 [P], and `experiment` says what it plays; `about` are the facts in a champion's file, if any.
    A network with memory keeps its hidden state from call to call: call `reset` where an episode begins.
    """

    def __init__(
        self,
        network: Network,
        weights: NDArray[np.float32],
        experiment: Experiment,
        about: Mapping[str, Any] | None = None,
    ) -> None:
        self.network = network
        self.weights = weights  # [P]
        self.about = about or {}
        self._environment = experiment.make_environment()
        self._continuous = self._environment.continuous
        self._tensorflow = experiment.policy.player == "tensorflow"
        self._origin = f"{experiment.algorithm} for {experiment.environment.id}"
        self._state: NDArray[np.float32] | None = None  # [S] or [B, S]; None: episodes begin

    def __repr__(self) -> str:
        numbers = "numbers as actions" if self._continuous else "actions"
        seen = f"observations {self.network.shape}, {self.network.actions} {numbers}"
        return f"<Policy of {self._origin}: {seen}, {len(self.weights):,} weights>"

    def __call__(self, observations: Any, action_masks: NDArray[Any] | None = None) -> Any:
        """Return the action of the highest score, the first of equals; of continuous actions, their means, clipped.

        observations [*shape] or [B, *shape], action_masks [A] or [B, A] with 1 for allowed actions. One observation
        gives an int, or floats [D] within the environment's bounds; a batch gives int64 [B], or floats [B, D]. A Dict
        or Tuple is as the environment, or a vector of them, gives it. Actions are those of `Run.environment.env()`,
        where choices count from 0. ValueError: another shape or other entries; TypeError: texts, complex or masked
        numbers.
        """
        scores = self.scores(observations)[..., : self.network.actions]
        if self._continuous:
            if (bounds := self._environment.action_bounds) is None:
                return scores
            return np.clip(scores, *bounds).astype(getattr(bounds[0], "dtype", scores.dtype))
        if action_masks is not None:
            masks = real_array(action_masks)
            if masks.shape not in (scores.shape, scores.shape[-1:]):
                raise ValueError(f"action masks of shape {masks.shape}, where {scores.shape} fits")
            scores = np.where(masks != 0, scores, -np.inf)
        actions = scores.argmax(axis=-1)
        return int(actions) if scores.ndim == 1 else actions

    def scores(self, observations: Any) -> NDArray[np.float32]:
        """Return all outputs of the network: a score of each action, then those of other heads, such as a value.

        observations [*shape] -> [O], or [B, *shape] -> [B, O]. For continuous actions the first outputs are their
        means. ValueError: another shape. With memory, the hidden state goes on.
        """
        outputs, state = self.step(observations, self._state)
        self._state = state if self.network.memory else None
        return outputs

    def reset(self, ended: NDArray[np.bool_] | None = None) -> None:
        """Begin episodes, with a hidden state of zeros: all of the last batch, or those that have `ended`, bool [B].

        ValueError: `ended` is of another shape.
        """
        if ended is None:
            self._state = None
        elif self._state is not None:
            if np.shape(ended) != self._state.shape[:-1]:
                raise ValueError(f"`ended` of shape {np.shape(ended)}, where {self._state.shape[:-1]} fits")
            self._state[np.asarray(ended, np.bool_)] = 0

    def step(
        self, observations: Any, state: NDArray[np.float32] | None = None
    ) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
        """Return all outputs and the next hidden states, and keep none; `state` None: episodes begin.

        observations [*shape] and state [S] -> [O] and [S], or [B, *shape] and [B, S] -> [B, O] and [B, S]. S is
        `network.memory`, 0 without memory. ValueError: another shape.
        """
        seen = as_float32(real_array(self._environment.array_of(observations)))
        shape = self.network.shape
        if shape not in (seen.shape, seen.shape[1:]):
            raise ValueError(
                f"observations of shape {seen.shape}, where {shape} or (B, {', '.join(map(str, shape))}) fit"
            )
        batch = seen.reshape(-1, *shape)
        states = (len(batch), self.network.memory) if seen.shape != shape else (self.network.memory,)
        after = np.zeros(states, np.float32) if state is None else np.array(state, np.float32)
        if after.shape != states:
            raise ValueError(
                f"a hidden state of shape {after.shape}, where {states} fits; call reset where episodes begin"
            )
        if self._tensorflow:
            outputs = np.asarray(self._model(batch), np.float32)
        else:
            from evo.kernels import lanes
            from evo.process import interrupts_wait

            with interrupts_wait():  # the first call compiles
                outputs = lanes.scores(
                    self.network, self.weights, batch, memory=after.reshape(len(batch), -1) if after.size else None
                )
        return (outputs[0] if seen.shape == shape else outputs), after

    @cached_property
    def _model(self) -> Any:
        """The network in Keras, which takes long to build; with the weights of that time."""
        from evo.networks.keras_form import build_keras, set_weights

        model = build_keras(self.network)
        set_weights(model, self.network, self.weights)
        return model


def setup_of(
    experiment: Experiment, environment: Environment | None = None, start: NDArray[np.float32] | None = None
) -> Setup:
    """Return what the algorithm of an experiment is made from; it starts from the weights `start` [P], if any."""
    curriculum = curriculum_of(experiment.environment, environment or experiment.make_environment())
    environment = curriculum.environment(0)
    first = None if environment.problem is None else environment.problem.first
    threads = min(hardware.cores(), experiment.workers.processes)
    searches = ONE_SEARCH if experiment.learns else experiment.run.searches
    recorded = unit_of(np.empty(0, environment.returns_type)) * experiment.options.episodes_per_candidate()
    return Setup(
        seed=experiment.run.seed,
        network=experiment.network(),
        environment=environment,
        candidates_per_task=experiment.candidates_per_task,
        learner=experiment.learner.with_default_threads(threads) if experiment.learns else None,
        start=first if start is None else start,
        curriculum=curriculum if curriculum.training or curriculum.evaluation.opponents else None,
        starts=searches._replace(enough=tuple(mean * recorded for mean in searches.enough)),
    )


def algorithm_of(experiment: Experiment, setup: Setup) -> Algorithm:
    """Return the algorithm that [run] names, or its searches one after the other.

    ConfigurationError: a plug-in made something else than an algorithm.
    """
    module = find("algorithms", experiment.algorithm)
    plugin = module.__name__ if module.__name__ in loaded() else ""

    @directory.kept()
    def make(setup: Setup) -> Algorithm:
        algorithm: Algorithm = module.make(experiment.options, setup)
        if plugin and Algorithm not in type(algorithm).__mro__:
            raise mistake(plugin, "make", f"gave a value of type {type(algorithm).__name__}, no subclass of Algorithm")
        return algorithm

    return make(setup) if setup.starts.searches == 1 else MultiStart(make, setup)


def newest(experiment: Experiment, state: Arrays, records: Sequence[Arrays]) -> Policy:
    """Return the first finalist after the newest generation, by `Algorithm.restore`; DataError: that fails."""
    with closing(algorithm_of(experiment, setup_of(experiment))) as algorithm:
        try:
            algorithm.restore(state, records)
            weights = algorithm.finalists(1).weights[0].copy()
        except INVALID_STATE as error:
            raise DataError(f"the newest checkpoint is of no such algorithm: {error}") from error
    return Policy(experiment.network(), weights, experiment)


class Elite(NamedTuple):
    """A network of an archive (Mouret and Clune, 2015, "Illuminating search spaces by mapping elites")."""

    cell: tuple[int, ...]  # the number of its bin of each descriptor, from 0
    fitness: float  # mean return of an episode when it entered
    policy: Policy
