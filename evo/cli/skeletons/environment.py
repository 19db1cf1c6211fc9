"""my_env: a Gymnasium environment, in which a walker in a corridor looks for a door."""

from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np
from gymnasium.spaces import Box, Discrete


class MyEnv(gymnasium.Env[np.ndarray[Any, Any], np.int64]):
    """Whatever a Gymnasium environment does; for speed without any change of language, write a game (evo new game)."""

    observation_space = Box(-1.0, 1.0, (2,), np.float32)
    action_space = Discrete(2)

    def __init__(self, **options: Any) -> None:
        """Take the options of environment.kwargs; this one has none."""

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        """Begin an episode. All random numbers come from self.np_random, so that a seed names an episode."""
        super().reset(seed=seed)
        self.walker, self.door = 5, int(self.np_random.integers(2)) * 10
        return self._observation(), {}

    def step(self, action: np.int64) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        """Play an action; return observation, reward, terminated, truncated, and further facts."""
        self.walker += 1 if action == 1 else -1
        found = self.walker == self.door
        return self._observation(), 1.0 if found else -0.01, found or not 0 < self.walker < 10, False, {}

    def _observation(self) -> Any:
        return np.array([self.walker / 5 - 1, self.door / 5 - 1], np.float32)


# An experiment names it as id = "gymnasium:MyEnv-v0", and the command as --plugin my_env.
gymnasium.register(id="MyEnv-v0", entry_point=MyEnv, max_episode_steps=50)
