"""What all Q-learning shares: exploration, a network of action values, and examples under a board's symmetry."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray
from pydantic import Field, field_validator

from evo.errors import ConfigurationError
from evo.learning.gradient_algorithm import SegmentOptions
from evo.learning.method import GradientNorm, LearningRate, UpdateOptions
from evo.learning.schedules import Points, check_points, value_at
from evo.records import ActionRule, Metrics

if TYPE_CHECKING:
    from evo.games.symmetry import Symmetry


class ActionValueOptions(UpdateOptions):
    """Options of everything that learns action values."""

    gamma: float = Field(0.99, ge=0, le=1, description="discount factor")
    epsilon: Points = Field(
        [[0.0, 1.0], [500_000.0, 0.02], [3_000_000.0, 0.001]],
        description="probability of a random action: points [frames, epsilon], interpolated linearly",
    )
    learning_rate: LearningRate = 5e-4
    max_gradient_norm: GradientNorm = 10.0
    huber_delta: float = Field(1.0, ge=0, description="TD error above which the loss is linear; 0 = squared loss")
    symmetry: bool = Field(False, description="augment transitions by random symmetries of the board")

    @field_validator("epsilon")
    @classmethod
    def _points(cls, value: Points) -> Points:
        check_points(value)
        return value

    def extra_outputs(self, environment: Any) -> int:
        """Return 0: a network's outputs are the values of actions.

        ConfigurationError: actions are continuous, or the environment declares no symmetry.
        """
        if environment.continuous:
            raise ConfigurationError(
                "run.algorithm: Q-learning chooses among discrete actions, and this environment's are continuous; use "
                "ppo, a2c or reinforce"
            )
        if self.symmetry and not environment.symmetry:
            raise ConfigurationError("symmetry: this environment declares no symmetry; use symmetry = false")
        return 0

    def action_rule(self, environment: Any, frames: int) -> ActionRule:
        """Return the epsilon-greedy rule after so many frames."""
        return ActionRule("epsilon_greedy", value_at(self.epsilon, frames))

    def symmetry_of(self, environment: Any) -> Symmetry | None:
        """Return the environment's symmetry where examples are augmented by it."""
        from evo.games.symmetry import Symmetry

        return Symmetry(environment.symmetry, environment.actions) if self.symmetry else None


class QOptions(ActionValueOptions, SegmentOptions):
    """Options of every method of Q-learning that plays with its own network alone."""

    dueling: bool = Field(True, description="dueling network: Q = V + A - mean(A); adds an output")

    def extra_outputs(self, environment: Any) -> int:
        """Return 1 for the value of dueling heads, else 0; raises as `ActionValueOptions.extra_outputs`."""
        return super().extra_outputs(environment) + int(self.dueling)


class UpdateMeans:
    """Means over a generation's updates, as metrics; NaN before there is one."""

    NAMES = ("loss", "q_value", "gradient_norm")

    def __init__(self) -> None:
        self.updates, self.examples, self._sums = 0, 0, np.zeros(len(self.NAMES))

    def add(self, values: Mapping[str, NDArray[np.float32]]) -> None:
        """Add an update's values."""
        self.updates, self.examples = self.updates + 1, self.examples + len(values["loss"])
        self._sums += [values[name].mean() for name in self.NAMES]

    def metrics(self) -> Metrics:
        """Return the means, and the numbers of updates and of their examples."""
        means = self._sums / self.updates if self.updates else np.full(len(self.NAMES), np.nan)
        counts = {"updates": float(self.updates), "examples": float(self.examples)}
        return {**dict(zip(self.NAMES, means.tolist(), strict=True)), **counts}
