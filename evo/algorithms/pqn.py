"""PQN, a parallelised Q-network: Q(lambda) without a replay buffer or a target network (Gallici et al., 2024).

A generation, in the order of its calls:

    play `horizon` steps in each of `envs` environments      GradientAlgorithm.generation -> Transitions, M = E T rows
    Q(lambda) targets from the values of acting              PQN.targets -> evo.learning.returns.q_lambda_targets
    for every epoch, for every shuffled minibatch:           PQN.learn
        loss of each example, its mean, its gradient         PQNLoss (computed by evo.learning.exact.losses)
        clip the gradient's norm, one step of Adam           Learner.update

Use `policy.norm = "layer"`, which keeps it stable.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, ClassVar, Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import Field, SerializerFunctionWrapHandler, model_serializer

from evo import clock
from evo.errors import ConfigurationError
from evo.lazy import tf
from evo.learning import hyperparameters as hp
from evo.learning.gradient_algorithm import Collected, GradientAlgorithm, GradientMethod, ShouldStop
from evo.learning.learner import ActionValueLoss, UpdateMeans, observed
from evo.options import AlgorithmOptions
from evo.randomness.streams import Purpose, stream
from evo.records import ActionRule, Metrics, Transitions
from evo.setup import Setup


class Options(AlgorithmOptions):
    """The [pqn] section."""

    learns: ClassVar[bool] = True
    remembers: ClassVar[bool] = True
    transitions_from: ClassVar[Literal["", "episodes", "segments"]] = "segments"

    envs: hp.Envs = 128
    horizon: hp.Horizon = 64
    episodes: hp.Episodes = 32
    whole_episodes: hp.WholeEpisodes = False
    envs_per_task: hp.EnvsPerTask = 64
    asynchronous: hp.Asynchronous = False
    learning_rate: hp.LearningRate = 5e-4
    learning_rate_final: hp.LearningRateFinal = 5e-5
    learning_rate_frames: hp.LearningRateFrames = 0
    max_gradient_norm: hp.MaxGradientNorm = 10.0
    gamma: float = Field(0.99, ge=0, le=1, description="initial discount factor")
    gamma_final: hp.GammaFinal = 0.99
    gamma_frames: hp.GammaFrames = 0  # 0: gamma is constant, and gamma_final unused
    epsilon: hp.Epsilon = hp.EPSILON
    huber_delta: hp.HuberDelta = 1.0
    symmetry: hp.BoardSymmetry = False
    dueling: hp.Dueling = True
    q_lambda: float = Field(0.65, ge=0, le=1, description="lambda of Q(lambda); 0 = one-step targets")
    epochs: int = Field(2, ge=1, le=1000, description="passes over the transitions of a generation")
    minibatches: int = Field(16, ge=1, le=1 << 20, description="minibatches per epoch")
    bptt: hp.Bptt = 0
    burn_in: hp.BurnIn = 0

    @model_serializer(mode="wrap")
    def _without_unused(self, dump: SerializerFunctionWrapHandler) -> dict[str, Any]:
        # A discount that is not annealed is no key of a run's identity.
        options: dict[str, Any] = dump(self)
        if not self.gamma_frames:
            options.pop("gamma_frames", None)
        if not self.gamma_frames or self.gamma_final == type(self).model_fields["gamma_final"].default:
            options.pop("gamma_final", None)
        return options

    def _check(self) -> None:
        if self.minibatches > self.envs * self.horizon:
            raise ValueError(f"minibatches: {self.minibatches} of {self.envs * self.horizon} transitions")

    def extra_outputs(self, environment: Any) -> int:
        """Return 1 for the value of dueling heads, else 0; ConfigurationError as `check_q_learning`."""
        hp.check_q_learning(environment, self.symmetry)
        return int(self.dueling)


@dataclass(frozen=True)
class PQNLoss(ActionValueLoss):
    """The loss of each example, in TensorFlow; `evo.learning.exact.losses` has the same with its derivatives."""

    def __call__(self, outputs: Any, batch: Mapping[str, Any], settings: Mapping[str, Any]) -> Mapping[str, Any]:
        """Return "loss", "td_error" and "q_value", [B] each."""
        q = self.action_values(outputs)  # [B, A]
        chosen = tf.gather(q, batch["actions"], batch_dims=1)
        td_error = batch["targets"] - chosen
        return {"loss": self.huber(td_error), "td_error": td_error, "q_value": chosen}


class PQN(GradientMethod):
    """Regression towards Q(lambda) on minibatches."""

    heads: ClassVar[str] = "q"  # outputs are values of actions

    def __init__(self, options: Options, setup: Setup) -> None:
        from evo.games.symmetry import Symmetry

        super().__init__(options, setup)
        environment = setup.environment
        if options.symmetry and setup.network.memory:
            raise ConfigurationError("symmetry: the states of a network with memory have none; use symmetry = false")
        self._symmetry = Symmetry(environment.symmetry, environment.actions) if options.symmetry else None

    def loss(self) -> PQNLoss:
        """Return the loss against fixed targets."""
        return PQNLoss(self.setup.network.actions, self.options.dueling, self.options.huber_delta)

    def action_rule(self, frames: int) -> ActionRule:
        """Return the epsilon-greedy rule at a frame of the schedule."""
        return ActionRule("epsilon_greedy", hp.value_at(self.options.epsilon, frames))

    def targets(self, transitions: Transitions, frames: int) -> NDArray[np.float32]:
        """Return Q(lambda) from the values that the network gave when it acted; gamma is that after `frames`.  # [M]"""
        from evo.learning.returns import action_values, best_values, q_lambda_targets

        options, actions = self.options, self.setup.network.actions
        q = action_values(transitions.outputs, actions, options.dueling)  # [M, A]
        next_q = action_values(transitions.next_outputs, actions, options.dueling)  # [N, A] after truncation, or a cut
        return q_lambda_targets(
            transitions.rewards,
            transitions.ends,
            best_values(q, transitions.action_masks),  # [M] max Q of the allowed actions
            best_values(next_q, transitions.next_action_masks),
            gamma=hp.scheduled(options, "gamma", frames),
            q_lambda=options.q_lambda,
        )

    def learn(self, played: Collected | None, generation: int, frames: int, should_stop: ShouldStop) -> Metrics:
        """Make every epoch's updates, each epoch in another order and under other symmetries."""
        from evo.learning.returns import minibatches

        assert played is not None  # None only for methods that learn from a replay buffer
        options, seed, symmetry, learner = self.options, self.setup.seed, self._symmetry, self.learner
        transitions, environment = played.transitions, self.setup.environment_in(played.generation)
        targets = self.targets(transitions, frames)
        began, threads = clock.wall(), self.setup.learner_threads
        if symmetry is None:
            inputs = learner.inputs(environment, transitions.observations, threads)
            actions = transitions.actions.astype(np.int32)
            memories = self.memories(transitions)
            learner.load({"observations": inputs, "actions": actions, "targets": targets, **memories})
        else:
            observations = observed(environment, transitions.observations, threads=threads)
        seconds_moving = clock.wall() - began

        learning_rate = hp.scheduled(options, "learning_rate", frames)
        count, means = len(transitions), UpdateMeans("loss", "q_value")
        for epoch in range(options.epochs):
            if symmetry is not None:
                began = clock.wall()
                forms = symmetry.draw(stream(seed, Purpose.MIRROR, generation, epoch), count)
                actions = symmetry.actions(np.asarray(transitions.actions, np.int8), forms).astype(np.int32)
                turned = symmetry.planes(observations, forms)
                learner.load({"observations": turned, "actions": actions, "targets": targets})
                seconds_moving += clock.wall() - began
            for rows in minibatches(seed, generation, epoch, count, options.minibatches, self.steps):
                if should_stop():  # the run ends while this learns in the background
                    break
                means.add(learner.update(rows, learning_rate, {}))
        return {**means.metrics(), "learning_rate": learning_rate, "seconds_moving": seconds_moving}


make = partial(GradientAlgorithm, method=PQN)
