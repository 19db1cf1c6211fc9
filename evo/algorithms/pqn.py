"""PQN, a parallelised Q-network: Q(lambda) without a replay buffer or a target network (Gallici et al., 2024).

Each generation's transitions are learned from in a few epochs; use `policy.norm = "layer"`, which keeps it stable.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
from numpy.typing import NDArray
from pydantic import Field, SerializerFunctionWrapHandler, model_serializer, model_validator

from evo import clock
from evo.learning.gradient_algorithm import GradientAlgorithm
from evo.learning.method import Method, Played, Stopped
from evo.learning.observations import observed
from evo.learning.q_learning import QOptions, UpdateMeans
from evo.learning.schedules import annealed
from evo.randomness.streams import Purpose, stream
from evo.records import Metrics, Transitions
from evo.setup import Setup

if TYPE_CHECKING:
    from evo.learning.learner import Learner
    from evo.learning.losses import Regression


class Options(QOptions):
    """The [pqn] section."""

    gamma_final: float = Field(
        0.99,
        ge=0,
        le=1,
        description="final discount factor, where it is annealed",
    )
    gamma_frames: int = Field(0, ge=0, description="frames over which gamma is annealed; 0 = constant")
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


class PQN(Method):
    """Regression towards Q(lambda) on minibatches."""

    heads: ClassVar[str] = "q"

    def __init__(self, options: Options, setup: Setup) -> None:
        self.options, self.setup = options, setup
        self._symmetry = options.symmetry_of(setup.environment)

    def loss(self) -> Regression:
        """Return the loss against fixed targets."""
        from evo.learning.losses import Regression

        return Regression(self.setup.network.actions, self.options.dueling, self.options.huber_delta)

    def targets(self, transitions: Transitions, frames: int) -> NDArray[np.float32]:
        """Return Q(lambda) from the values that the network gave when it acted, after so many frames.  # [M]"""
        from evo.learning.returns import action_values, best_values, q_lambda_targets

        best, next_best = (
            best_values(action_values(outputs, self.setup.network.actions, self.options.dueling), allowed)
            for outputs, allowed in (
                (transitions.outputs, transitions.action_masks),
                (transitions.next_outputs, transitions.next_action_masks),
            )
        )
        options = self.options
        gamma = annealed(options.gamma, options.gamma_final, options.gamma_frames, frames)
        return q_lambda_targets(transitions.rewards, transitions.ends, best, next_best, gamma, options.q_lambda)

    def learn(self, learner: Learner, played: Played | None, number: int, frames: int, stopped: Stopped) -> Metrics:
        """Make every epoch's updates, each epoch in another order and under other symmetries."""
        from evo.randomness.shuffle import minibatches

        assert played is not None
        transitions, environment = played.transitions, self.setup.environment_in(played.number)
        options, seed, count = self.options, self.setup.seed, len(transitions)
        rate, means, targets = options.learning_rate_at(frames), UpdateMeans(), self.targets(transitions, frames)
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
                forms = symmetry.draw(stream(seed, Purpose.MIRROR, number, epoch), count)
                turned, moves = symmetry.planes(planes, forms), symmetry.actions(actions, forms)
                learner.load({"observations": turned, "actions": moves.astype(np.int32), "targets": targets})
            moving += clock.wall() - began
            for rows in minibatches(seed, number, epoch, count, min(options.minibatches, count)):
                if stopped():
                    break
                means.add(learner.update(rows, rate, {}))
        return {**means.metrics(), "learning_rate": rate, "seconds_moving": moving}


def make(options: Options, setup: Setup) -> GradientAlgorithm:
    """Return PQN."""
    return GradientAlgorithm(options, setup, PQN(options, setup))
