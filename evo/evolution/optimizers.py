"""Steps along an estimated gradient, by additions, multiplications, divisions and roots alone.

Both maximise: the step that they return is to be added.
"""

from __future__ import annotations

from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from evo.evolution.noise_sums import norm
from evo.records import Arrays

Vector = NDArray[np.float64]


class Optimizer(Protocol):
    """Turns gradients into steps, and keeps what that takes between generations."""

    def step(self, gradient: Vector, rate: float) -> Vector:
        """Return the step for a gradient, at this learning rate.  # [P] -> [P]"""

    def state(self) -> dict[str, NDArray[Any]]:
        """Return everything that is needed to go on, by name."""

    def restore(self, state: Arrays) -> None:
        """Go on from what `state` returned."""


class Adam(Optimizer):
    """Adam (Kingma and Ba, 2015); the powers of beta are kept as running products."""

    BETAS, EPSILON = (0.9, 0.999), 1e-8

    def __init__(self, size: int) -> None:
        self._moments, self._powers = np.zeros((2, size)), np.ones(2)

    def step(self, gradient: Vector, rate: float) -> Vector:
        """Return the step for a gradient, at this learning rate.  # [P] -> [P]"""
        one, two = self.BETAS
        self._moments[0] = one * self._moments[0] + (1 - one) * gradient
        self._moments[1] = two * self._moments[1] + (1 - two) * (gradient * gradient)
        self._powers *= (one, two)
        mean = self._moments[0] / (1 - self._powers[0])
        square = self._moments[1] / (1 - self._powers[1])
        step: Vector = rate * mean / (np.sqrt(square) + self.EPSILON)
        return step

    def state(self) -> dict[str, NDArray[Any]]:
        """Return the moments of the gradient, and the powers of beta."""
        return {"moments": self._moments, "powers": self._powers}

    def restore(self, state: Arrays) -> None:
        """Go on from what `state` returned."""
        self._moments, self._powers = np.array(state["moments"], np.float64), np.array(state["powers"], np.float64)


class ClipUp(Optimizer):
    """Normalised gradients with momentum and a speed limit, twice the learning rate (Toklu et al., 2020)."""

    MOMENTUM, SPEED_LIMIT = 0.9, 2.0

    def __init__(self, size: int) -> None:
        self._velocity = np.zeros(size)

    def step(self, gradient: Vector, rate: float) -> Vector:
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
        """Go on from what `state` returned."""
        self._velocity = np.array(state["velocity"], np.float64)


OPTIMIZERS: dict[str, type[Adam] | type[ClipUp]] = {"adam": Adam, "clipup": ClipUp}
