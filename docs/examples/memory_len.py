"""Recall a bit seen `length` steps ago: memory_len of bsuite (Osband et al., 2020) as an environment of Gymnasium.

python -m evo.run docs/examples/memory_len.toml --plugin docs.examples.memory_len
"""

from typing import Any

import gymnasium
import numpy as np
from numpy.typing import NDArray

ENVIRONMENT = "MemoryLen-v0"


class MemoryLen(gymnasium.Env[NDArray[np.float32], np.int64]):
    """Shows the time left, whether to answer now and, in the first step, the bit; the answer pays 1 or -1."""

    def __init__(self, length: int = 10) -> None:
        self.length, self.step_number, self.bit = length, 0, 0
        self.observation_space = gymnasium.spaces.Box(-1, 1, (3,), np.float32)
        self.action_space = gymnasium.spaces.Discrete(2)

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[NDArray[np.float32], dict[str, Any]]:
        """Draw the bit and show it."""
        super().reset(seed=seed)
        self.step_number, self.bit = 0, int(self.np_random.integers(2))
        return self._seen(), {}

    def step(self, action: np.int64) -> tuple[NDArray[np.float32], float, bool, bool, dict[str, Any]]:
        """Pay for the last answer, and for no other."""
        over, right = self.step_number == self.length, int(action) == self.bit
        self.step_number += 1
        return self._seen(), (2.0 * right - 1.0) * over, over, False, {}

    def _seen(self) -> NDArray[np.float32]:
        left = max(1 - self.step_number / self.length, 0.0)
        bit = 2 * self.bit - 1 if self.step_number == 0 else 0
        return np.array([left, self.step_number == self.length, bit], np.float32)


gymnasium.register(ENVIRONMENT, MemoryLen)
