"""Snake behind Gymnasium's interface on the readable rules, for tests that compare the compiled game with them."""

from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np

from evo.games.game import GameEnvironment
from tests.snake.boards import load
from tests.snake.reference import Reference


class ReadableSnake(gymnasium.Env):
    """One board of `tests.snake.reference`; a compiled board is loaded with it only to be observed."""

    def __init__(self, environment: GameEnvironment) -> None:
        self.compiled, self.options, self.shape = environment.game, environment.options, environment.shape
        self.board = self.compiled.make_state(1)
        self.image = np.zeros((1, *self.shape), np.float32)

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[np.ndarray, dict[str, Any]]:
        self.game = Reference(seed=seed, **self.options.of_rules)
        return self._observation(), self._info()

    def step(self, action: int) -> tuple[np.ndarray, float, bool, bool, dict[str, Any]]:
        reward, terminated, truncated = self.game.step(action)
        if not terminated and not truncated:
            self._observation()
        return self.image[0].copy(), reward, terminated, truncated, self._info()

    def _observation(self) -> np.ndarray:
        load(self.compiled, self.board, 0, self.game.state())
        self.compiled.observe(self.compiled.snapshots(self.board), self.image)
        return self.image[0].copy()

    def _info(self) -> dict[str, Any]:
        info = {"score": self.game.score, "won": int(self.game.won), "starved": int(self.game.truncated)}
        if not self.game.over:
            info["action_mask"] = np.array(self.game.mask(self.options.mask), np.int8)
        return info
