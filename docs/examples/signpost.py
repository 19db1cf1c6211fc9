"""Go where a picture shows a light, or away from it, as a sign says: a Dict environment that needs both its entries.

python -m evo.run docs/examples/signpost.toml --plugin docs.examples.signpost
"""

from typing import Any

import gymnasium
import numpy as np
from gymnasium.spaces import Box, Dict, Discrete

ENVIRONMENT = "Signpost-v0"
SIDE, STEPS = 8, 16


class Signpost(gymnasium.Env[dict[str, Any], np.int64]):
    """Each step shows a light of 2 x 2 cells amid noise, and a sign; the right half pays 1, of 16 steps."""

    def __init__(self) -> None:
        self.observation_space = Dict({"picture": Box(0, 255, (SIDE, SIDE, 1), np.uint8), "sign": Discrete(2)})
        self.action_space = Discrete(2)
        self.steps, self.answer = 0, 0

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[dict[str, Any], dict[str, Any]]:
        """Draw the first picture and sign."""
        super().reset(seed=seed)
        self.steps = 0
        return self._drawn(), {}

    def step(self, action: np.int64) -> tuple[dict[str, Any], float, bool, bool, dict[str, Any]]:
        """Pay for the half that was meant, and draw the next ones."""
        reward, self.steps = float(action == self.answer), self.steps + 1
        return self._drawn(), reward, self.steps == STEPS, False, {}

    def _drawn(self) -> dict[str, Any]:
        picture = self.np_random.integers(0, 100, (SIDE, SIDE, 1), dtype=np.uint8)
        half, sign = self.np_random.integers(0, 2, 2)
        row, column = self.np_random.integers(0, (SIDE - 1, SIDE // 2 - 1)) + (0, half * SIDE // 2)
        picture[row : row + 2, column : column + 2] = 255
        self.answer = int(half ^ sign)
        return {"picture": picture, "sign": sign}


gymnasium.register(ENVIRONMENT, Signpost, max_episode_steps=STEPS)
