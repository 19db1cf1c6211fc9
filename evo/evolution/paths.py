"""The evolution paths of CMA-ES, of a covariance matrix of any kind (Hansen, 2016, eqs. 43 to 45)."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from evo.evolution.constants import CmaConstants
from evo.evolution.noise_sums import norm
from evo.records import Arrays


class Paths:
    """Sums of the mean's last steps, of which the step size and the covariance matrix learn."""

    def __init__(self, size: int) -> None:
        self.step, self.covariance = np.zeros(size), np.zeros(size)  # [P] p_sigma and p_c
        self.start = 1.0  # share of the step path that is still its start, at zero: (1 - c_sigma)^(2 generations)

    def follow(
        self, known: CmaConstants, noise: NDArray[np.float64], moved: NDArray[np.float64]
    ) -> tuple[float, float]:
        """Add a step; return the length of the step path, and what the covariance path lacks where it stood still.

        noise [P]: the step as it would be with the identity as covariance matrix; moved [P]: the step over sigma.
        """
        rate = known.path_rate
        self.step = (1 - rate) * self.step + math.sqrt(rate * (2 - rate) * known.selected) * noise
        self.start *= (1 - rate) * (1 - rate)
        length = norm(self.step)
        usual = (1.4 + 2 / (len(self.step) + 1)) * known.expected_length
        straight = length < usual * math.sqrt(1 - self.start)  # h_sigma
        rate = known.covariance_path_rate
        self.covariance = (1 - rate) * self.covariance + straight * math.sqrt(
            rate * (2 - rate) * known.selected
        ) * moved
        return length, 0.0 if straight else rate * (2 - rate)

    def state(self) -> dict[str, NDArray[np.float64]]:
        """Return both paths."""
        return {"step_path": self.step, "path": self.covariance}

    def restore(self, state: Arrays, start: float) -> None:
        """Go on from a state."""
        self.step, self.covariance = (np.array(state[name], np.float64) for name in ("step_path", "path"))
        self.start = start
