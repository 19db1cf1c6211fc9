"""PQN, a parallelised Q-network: Q(lambda) without a replay buffer or a target network (Gallici et al., 2024).

Each generation's transitions are learned from in a few epochs; use `policy.norm = "layer"`, which keeps it stable.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import Field, SerializerFunctionWrapHandler, model_serializer, model_validator

from evo import clock
from evo.learning import hyperparameters as hp
from evo.learning.gradient_algorithm import Collected, GradientAlgorithm, GradientMethod, ShouldStop
from evo.learning.learner import ActionValueLoss, UpdateMeans, observed
from evo.options import AlgorithmOptions
from evo.randomness.streams import Purpose, stream
from evo.records import ActionRule, Metrics, Transitions
from evo.setup import Setup

if TYPE_CHECKING:
    from evo.learning.learner import Learner


class Options(AlgorithmOptions):
    """The [pqn] section."""

    learns: ClassVar[bool] = True
    transitions_from: ClassVar[Literal["", "episodes", "segments"]] = "segments"

    envs: hp.Envs = 128
    horizon: hp.Horizon = 64
    episodes: hp.Episodes = 32
    envs_per_task: hp.EnvsPerTask = 64
    asynchronous: hp.Asynchronous = False
    learning_rate: hp.LearningRate = 5e-4
    learning_rate_final: hp.LearningRateFinal = 5e-5
    learning_rate_frames: hp.LearningRateFrames = 0
    max_gradient_norm: hp.MaxGradientNorm = 10.0
    gamma: float = Field(0.99, ge=0, le=1, description="discount factor")
    gamma_final: hp.GammaFinal = 0.99
    gamma_frames: hp.GammaFrames = 0
    epsilon: hp.Epsilon = hp.EPSILON
    huber_delta: hp.HuberDelta = 1.0
    symmetry: hp.BoardSymmetry = False
    dueling: hp.Dueling = True
    q_lambda: float = Field(0.65, ge=0, le=1, description="lambda of Q(lambda); 0 = one-step targets")
    epochs: int = Field(2, ge=1, le=1000, description="passes over the transitions of a generation")
    minibatches: int = Field(16, ge=1, le=1 << 20, description="minibatches per epoch")

    @model_serializer(mode="wrap")
    def _without_unused(self, dump: SerializerFunctionWrapHandler) -> dict[str, Any]:
        # A discount that is not annealed is no key of a run's identity, so that hashes of older runs stay as they are.
        usual: dict[str, Any] = {} if self.gamma_frames else {"gamma_final": self.gamma_final, "gamma_frames": 0}
        usual.setdefault("gamma_final", type(self).model_fields["gamma_final"].default)
        return {key: value for key, value in dump(self).items() if key not in usual or value != usual[key]}

    @model_validator(mode="after")
    def _consistent(self) -> Options:
        if self.minibatches > self.envs * self.horizon:
            raise ValueError(f"minibatches: {self.minibatches} of {self.envs * self.horizon} transitions")
        return self

    def extra_outputs(self, environment: Any) -> int:
        """Return 1 for the value of dueling heads, else 0; ConfigurationError as `check_q_learning`."""
        hp.check_q_learning(environment, self.symmetry)
        return int(self.dueling)


@dataclass(frozen=True)
class PQNLoss(ActionValueLoss):
    """The loss of each example, in TensorFlow; `evo.learning.exact.losses` has the same with its derivatives."""

    def __call__(self, outputs: Any, batch: Mapping[str, Any], settings: Mapping[str, Any]) -> Mapping[str, Any]:
        """Return "loss", "td_error" and "q_value", [B] each."""
        import tensorflow as tf

        q = self.action_values(outputs)  # [B, A]
        chosen = tf.gather(q, batch["actions"], batch_dims=1)
        td_error = batch["targets"] - chosen
        return {"loss": self.huber(td_error), "td_error": td_error, "q_value": chosen}


class PQN(GradientMethod):
    """Regression towards Q(lambda) on minibatches."""

    heads: ClassVar[str] = "q"

    def __init__(self, options: Options, setup: Setup) -> None:
        from evo.games.symmetry import Symmetry

        self.options, self.setup, environment = options, setup, setup.environment
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

        best, next_best = (
            best_values(action_values(outputs, self.setup.network.actions, self.options.dueling), allowed)
            for outputs, allowed in (
                (transitions.outputs, transitions.action_masks),
                (transitions.next_outputs, transitions.next_action_masks),
            )
        )
        options = self.options
        gamma = hp.annealed(options.gamma, options.gamma_final, options.gamma_frames, frames)
        return q_lambda_targets(transitions.rewards, transitions.ends, best, next_best, gamma, options.q_lambda)

    def learn(
        self, learner: Learner, played: Collected | None, generation: int, frames: int, should_stop: ShouldStop
    ) -> Metrics:
        """Make every epoch's updates, each epoch in another order and under other symmetries."""
        from evo.randomness.philox_compiled import minibatches

        assert played is not None
        transitions, environment = played.transitions, self.setup.environment_in(played.number)
        options, seed, count = self.options, self.setup.seed, len(transitions)
        rate, means = (
            hp.annealed(options.learning_rate, options.learning_rate_final, options.learning_rate_frames, frames),
            UpdateMeans("loss", "q_value"),
        )
        targets = self.targets(transitions, frames)
        began, actions, symmetry = clock.wall(), np.asarray(transitions.actions, np.int8), self._symmetry
        steps, threads = transitions.observations, self.setup.learner_threads
        if symmetry is None:
            inputs = learner.inputs(environment, steps, threads)
            learner.load({"observations": inputs, "actions": actions.astype(np.int32), "targets": targets})
        else:
            planes = observed(environment, steps, threads=threads)
        moving = clock.wall() - began
        for epoch in range(options.epochs):
            began = clock.wall()
            if symmetry is not None:
                forms = symmetry.draw(stream(seed, Purpose.MIRROR, generation, epoch), count)
                turned, moves = symmetry.planes(planes, forms), symmetry.actions(actions, forms)
                learner.load({"observations": turned, "actions": moves.astype(np.int32), "targets": targets})
            moving += clock.wall() - began
            for rows in minibatches(seed, generation, epoch, count, min(options.minibatches, count)):
                if should_stop():
                    break
                means.add(learner.update(rows, rate, {}))
        return {**means.metrics(), "learning_rate": rate, "seconds_moving": moving}


def make(options: Options, setup: Setup) -> GradientAlgorithm:
    """Return PQN."""
    return GradientAlgorithm(options, setup, PQN(options, setup), options.envs, options.horizon)
