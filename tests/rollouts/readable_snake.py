"""Snake behind Gymnasium's interface on the readable rules, for tests that compare the compiled game with them."""

from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np

from evo.environments.snake import Environment
from snake import batch, observe
from snake.rules import Game


class ReadableSnake(gymnasium.Env):
    """One board of `snake.rules`; a board of the compiled game is loaded with it only to be observed."""

    def __init__(self, environment: Environment) -> None:
        self.options, self.rules = environment.options, environment.game.rules.rules
        self.setting, self.shape = environment.game.rules, environment.shape
        self.board = batch.make_boards(1, self.options.size)
        self.image = np.zeros((*self.shape, 1), np.float32)

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[np.ndarray, dict[str, Any]]:
        self.game = Game(seed=seed, **self.options.of_rules)
        return self._observation(), self._info()

    def step(self, action: int) -> tuple[np.ndarray, float, bool, bool, dict[str, Any]]:
        reward, terminated, truncated = self.game.step(action)
        if not terminated and not truncated:
            self._observation()
        return self.image[..., 0].copy(), reward, terminated, truncated, self._info()

    def _observation(self) -> np.ndarray:
        batch.load(self.board, self.rules, 0, self.game.state())
        observe.write(self.board, self.setting, np.zeros(1, np.int64), self.image)
        return self.image[..., 0].copy()

    def _info(self) -> dict[str, Any]:
        info = {"score": self.game.score}
        if not self.game.over:
            info["action_mask"] = np.array(self.game.mask(self.options.mask), np.int8)
        return info
