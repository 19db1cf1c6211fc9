"""Snake as a Gymnasium `Env` and as a `VectorEnv`, which steps many boards in one compiled pass."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Mapping
from difflib import get_close_matches
from inspect import signature
from typing import Any, ClassVar

import gymnasium
import numpy as np
from gymnasium.spaces import Box, Discrete, Space
from gymnasium.vector import AutoresetMode

from evo.compiled.arguments import whole
from evo.games.batch import Batch
from evo.games.contract import GOES_ON, TERMINATED, TRUNCATED, CompiledGame
from evo.games.vector_env import MODES, CompiledVectorEnv, Info, Observation
from snake.batch import Boards, Rules, positions, reset_board, step_board
from snake.compiled import make_game
from snake.observe import HIGHEST, LOWEST, mask, observe_board
from snake.render import Position, rgb, text
from snake.rules import EPISODE_METRICS, SEED_LIMIT, episode_seed, one_of

RENDER_MODES = ("human", "rgb_array", "ansi")
FRAMES_PER_SECOND = 10
SCORE = EPISODE_METRICS.index("score")


def shown(boards: Boards, rules: Rules, b: int) -> Position:
    """Return what a picture of board b shows."""
    body, fruit = positions(boards, rules, b)
    score = len(body) - rules.start_length
    return Position(rules.size, body, fruit, int(boards.state["heading"][b]), score, bool(boards.state["over"][b]))


def spaces(game: CompiledGame) -> tuple[Space[Any], Space[Any]]:
    """Return Gymnasium's spaces of observations and of actions."""
    code = game.rules.observation
    return Box(LOWEST[code], HIGHEST[code], game.shape, np.float32), Discrete(game.actions)


def with_colour() -> bool:
    """Return whether text may be coloured: not where NO_COLOR is set."""
    return "NO_COLOR" not in os.environ


def _game_of(options: Mapping[str, Any]) -> CompiledGame:
    """Return the game with these options; ValueError names one that is wrong."""
    known = [*signature(make_game).parameters]
    for name in options:
        if name not in known:
            close = get_close_matches(name, [*known, "render_mode"], 1)
            meant = f" - did you mean `{close[0]}`?" if close else f"; known are {', '.join(known)}"
            raise ValueError(f"{name}: unknown option of Snake{meant}")
    return make_game(**options)


class SnakeEnv(gymnasium.Env[Observation, np.int64]):
    """One board of Snake.

    The options are those of an experiment's [environment]; ValueError names one that is wrong. `reset(seed=s)` begins
    the episode of seed s, as `snake.rules.Game(seed=s)` does; a reset without a seed begins the next episode of that
    sequence. `info` has `score` and `action_mask` (int8, 1 for what is allowed). Masked actions are
    played all the same.
    """

    metadata: ClassVar[dict[str, Any]] = {  # type: ignore[misc]
        "render_modes": list(RENDER_MODES),
        "render_fps": FRAMES_PER_SECOND,
    }

    def __init__(self, *, render_mode: str | None = None, **options: Any) -> None:
        self.render_mode = None if render_mode is None else one_of("render_mode", render_mode, RENDER_MODES)
        self._game = _game_of(options)
        self._rules, self._code, self._mask_code = self._game.rules
        self.observation_space, self.action_space = spaces(self._game)
        self._boards = self._game.make_state(1)
        self._first, self._episode = 0, -1

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Observation, Info]:
        """Begin an episode; return the first observation, float32 [H, W, C], and info."""
        if seed is not None:
            whole("seed", seed, 0, SEED_LIMIT - 1)
        super().reset(seed=seed, options=options)
        if seed is not None or self._episode < 0:
            self._first = int(self.np_random.integers(SEED_LIMIT, dtype=np.uint64)) if seed is None else seed
            self._episode = -1
        self._episode += 1
        reset_board(self._boards, self._rules, 0, np.uint64(episode_seed(self._first, self._episode)))
        self._show()
        return self._observation(), self._info()

    def step(self, action: np.int64) -> tuple[Observation, float, bool, bool, Info]:
        """Play one action; ValueError where there is no such action, RuntimeError after the end of an episode."""
        number = whole("action", action, 0, self._game.actions - 1)
        if self._boards.state["over"][0] != GOES_ON:
            raise RuntimeError("the episode is over, or has not begun: call reset")
        thousandths, status = step_board(self._boards, self._rules, 0, number)
        self._show()
        return self._observation(), thousandths / 1000, status == TERMINATED, status == TRUNCATED, self._info()

    def render(self) -> Any:
        """Return the board as `render_mode` says: an RGB array or text; None for human, which is shown at once."""
        if self.render_mode == "rgb_array":
            return rgb(self.position())
        if self.render_mode == "ansi":
            return text(self.position(), with_colour())
        return None

    def position(self) -> Position:
        """Return what a picture of the board shows."""
        return shown(self._boards, self._rules, 0)

    def _observation(self) -> Observation:
        out = np.empty(self._game.shape, np.float32)
        observe_board(self._boards, self._rules, self._code, 0, out)
        return out

    def _info(self) -> Info:
        allowed = np.empty(self._game.actions, np.int8)
        mask(self._boards, self._rules, self._mask_code, 0, allowed)
        return {"action_mask": allowed, "score": int(self._boards.state["length"][0]) - self._rules.start_length}

    def _show(self) -> None:
        if self.render_mode == "human":
            picture = text(self.position(), with_colour())
            sys.stdout.write(f"\x1b[H\x1b[J{picture}\n" if sys.stdout.isatty() else f"{picture}\n")
            sys.stdout.flush()
            time.sleep(1 / FRAMES_PER_SECOND)


class SnakeVectorEnv(CompiledVectorEnv):
    """Many boards of Snake, stepped, reset and observed in one compiled call.

    Takes the options of `SnakeEnv`; resets and arrays are as in `CompiledVectorEnv`. `info` has `score` and
    `action_mask` at every step.
    """

    def __init__(
        self,
        num_envs: int = 1,
        *,
        render_mode: str | None = None,
        autoreset_mode: AutoresetMode | str = AutoresetMode.NEXT_STEP,
        copy: bool = True,
        **options: Any,
    ) -> None:
        mode, pictures, game = AutoresetMode(autoreset_mode), RENDER_MODES[1:], _game_of(options)
        metadata = {**SnakeEnv.metadata, "render_modes": list(pictures), "autoreset_mode": mode}
        super().__init__(Batch(game, num_envs, MODES[mode], fresh=copy), spaces(game), metadata)
        self.render_mode = None if render_mode is None else one_of("render_mode", render_mode, pictures)
        self._rules: Rules = game.rules.rules
        self._masked, self._metrics = True, ()
        self._batch.asked = f"{self.num_envs} whole numbers"

    def render(self) -> tuple[Any, ...] | None:
        """Return a picture of every board: RGB arrays or texts; None without a `render_mode`."""
        if self.render_mode is None:
            return None
        boards = [self.position(b) for b in range(self.num_envs)]
        return tuple(rgb(one) if self.render_mode == "rgb_array" else text(one, with_colour()) for one in boards)

    def position(self, b: int) -> Position:
        """Return what a picture of board b shows."""
        return shown(self._batch.state, self._rules, b)

    def _now(self) -> Info:
        lengths = self._batch.state.state["length"].astype(np.int64)
        return super()._now() | {"score": lengths - self._rules.start_length}

    def _before(self) -> Info:
        return super()._before() | {"score": self._batch.ended.episode_metrics[:, SCORE].astype(np.int64)}
