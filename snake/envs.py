"""Snake as a Gymnasium `Env` and as a `VectorEnv`, which steps many boards in one compiled pass."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Sequence
from typing import Any, ClassVar

import gymnasium
import numpy as np
from gymnasium.spaces import Box, Discrete
from gymnasium.vector import AutoresetMode, VectorEnv
from gymnasium.vector.utils import batch_space
from numpy.typing import NDArray

from evo.compiled.game import GOES_ON, TERMINATED, TRUNCATED
from snake.advance import DISABLED, NEXT_STEP, SAME_STEP, advance, describe
from snake.batch import Boards, Rules, positions, reset_board, step_board
from snake.compiled import make_game
from snake.observe import HIGHEST, LOWEST, mask, observe_board
from snake.render import Position, rgb, text
from snake.rules import SEED_LIMIT, episode_seed, one_of, whole

Observation = NDArray[np.float32]
Info = dict[str, Any]

MODES = {AutoresetMode.NEXT_STEP: NEXT_STEP, AutoresetMode.SAME_STEP: SAME_STEP, AutoresetMode.DISABLED: DISABLED}
RENDER_MODES = ("human", "rgb_array", "ansi")
FRAMES_PER_SECOND = 10


def shown(boards: Boards, rules: Rules, b: int) -> Position:
    """Return what a picture of board b shows."""
    body, fruit = positions(boards, rules, b)
    score = len(body) - rules.start_length
    return Position(rules.size, body, fruit, int(boards.state["heading"][b]), score, bool(boards.state["over"][b]))


def with_colour() -> bool:
    """Return whether text may be coloured: not where NO_COLOR is set."""
    return "NO_COLOR" not in os.environ


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
        self._game = make_game(**options)
        self._rules, self._code, self._mask_code = self._game.rules
        self.observation_space = Box(LOWEST[self._code], HIGHEST[self._code], self._game.shape, np.float32)
        self.action_space = Discrete(self._game.actions)
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


class SnakeVectorEnv(VectorEnv[Observation, NDArray[np.int64], NDArray[Any]]):
    """Many boards of Snake, stepped, reset and observed in one compiled call.

    Takes the options of `SnakeEnv`. `autoreset_mode` is one of Gymnasium's three. With `copy=False` the arrays that
    `reset` and `step` return are used again by the next call. `reset(seed=s)` seeds environment i with s + i; a list
    names every seed (None: the next episode of its sequence). `options["reset_mask"]` resets some.
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
        self.num_envs = whole("num_envs", num_envs, 1, 1 << 31)
        self.render_mode = None if render_mode is None else one_of("render_mode", render_mode, RENDER_MODES[1:])
        self._game = make_game(**options)
        self._rules, self._code, self._mask_code = self._game.rules
        self.single_observation_space = Box(LOWEST[self._code], HIGHEST[self._code], self._game.shape, np.float32)
        self.single_action_space = Discrete(self._game.actions)
        self.observation_space = batch_space(self.single_observation_space, num_envs)
        self.action_space = batch_space(self.single_action_space, num_envs)
        autoreset = AutoresetMode(autoreset_mode)
        self.metadata = {**SnakeEnv.metadata, "render_modes": list(RENDER_MODES[1:]), "autoreset_mode": autoreset}
        self._copy, self._mode = copy, MODES[autoreset]
        self._boards = self._game.make_state(num_envs)
        self._first = np.zeros(num_envs, np.uint64)
        self._episode = np.full(num_envs, -1, np.int64)
        self._out = self._empty(num_envs)
        self._finals = self._empty(num_envs if self._mode == SAME_STEP else 0)
        self._rewards = np.zeros(num_envs, np.float64)
        self._status = np.zeros(num_envs, np.int64)

    def reset(
        self, *, seed: int | Sequence[int | None] | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Observation, Info]:
        """Begin episodes on all boards, or on those of `options["reset_mask"]`.  # float32 [B, H, W, C], info"""
        seeds = self._seeds(seed)
        chosen = self._reset_mask((options or {}).get("reset_mask"))
        for b in np.flatnonzero(chosen).tolist():
            given = seeds[b]
            if given is not None or self._episode[b] < 0:
                named = self.np_random.integers(SEED_LIMIT, dtype=np.uint64) if given is None else given
                self._first[b], self._episode[b] = named, -1
            self._episode[b] += 1
            number = episode_seed(int(self._first[b]), int(self._episode[b]))
            reset_board(self._boards, self._rules, b, np.uint64(number))
        describe(self._boards, self._rules, self._code, self._mask_code, *self._out)
        out, masks, scores = self._handed_out(self._out)
        return out, {"action_mask": masks, "_action_mask": chosen, "score": scores, "_score": chosen.copy()}

    def step(
        self, actions: NDArray[np.int64]
    ) -> tuple[Observation, NDArray[np.float64], NDArray[np.bool_], NDArray[np.bool_], Info]:
        """Play one action on every board.  # float32 [B, H, W, C], float64 [B], bool [B], bool [B], info

        Raises ValueError where there is no such action; RuntimeError for a board that is over where nothing resets.
        """
        chosen = np.asarray(actions)
        if chosen.shape != (self.num_envs,) or not np.issubdtype(chosen.dtype, np.integer):
            raise ValueError(f"actions are {self.num_envs} whole numbers, not {chosen.dtype} {chosen.shape}")
        if chosen.min() < 0 or chosen.max() >= self._game.actions:
            raise ValueError(f"an action is not between 0 and {self._game.actions - 1}")
        if (self._episode < 0).any() or (self._mode == DISABLED and self._boards.state["over"].any()):
            raise RuntimeError("an episode is over, or has not begun: call reset")
        advance(
            self._boards,
            self._rules,
            self._code,
            self._mask_code,
            self._mode,
            chosen.astype(np.int64),
            self._first,
            self._episode,
            *self._out,
            self._rewards,
            self._status,
            self._finals,
        )
        out, masks, scores = self._handed_out(self._out)
        everywhere = np.ones(self.num_envs, np.bool_)
        info = {"action_mask": masks, "_action_mask": everywhere, "score": scores, "_score": everywhere.copy()}
        terminated, truncated = self._status == TERMINATED, self._status == TRUNCATED
        if self._mode == SAME_STEP and self._status.any():
            info |= self._final_info(terminated | truncated)
        return out, self._rewards.copy(), terminated, truncated, info

    def render(self) -> tuple[Any, ...] | None:
        """Return a picture of every board: RGB arrays or texts."""
        if self.render_mode is None:
            return None
        boards = [self.position(b) for b in range(self.num_envs)]
        return tuple(rgb(one) if self.render_mode == "rgb_array" else text(one, with_colour()) for one in boards)

    def position(self, b: int) -> Position:
        """Return what a picture of board b shows."""
        return shown(self._boards, self._rules, b)

    def _empty(self, count: int) -> tuple[Observation, NDArray[np.int8], NDArray[np.int64]]:
        return (
            np.zeros((count, *self._game.shape), np.float32),
            np.zeros((count, self._game.actions), np.int8),
            np.zeros(count, np.int64),
        )

    def _handed_out(
        self, arrays: tuple[Observation, NDArray[np.int8], NDArray[np.int64]]
    ) -> tuple[Observation, NDArray[np.int8], NDArray[np.int64]]:
        out, masks, scores = arrays
        return (out.copy(), masks.copy(), scores.copy()) if self._copy else arrays

    def _final_info(self, ended: NDArray[np.bool_]) -> Info:
        out, masks, scores = self._finals
        observations = np.empty(self.num_envs, object)
        for b in np.flatnonzero(ended):
            observations[b] = out[b].copy()
        final = {
            "action_mask": np.where(ended[:, None], masks, np.int8(0)),
            "_action_mask": ended,
            "score": np.where(ended, scores, 0),
            "_score": ended.copy(),
        }
        return {"final_obs": observations, "_final_obs": ended.copy(), "final_info": final, "_final_info": ended.copy()}

    def _seeds(self, seed: int | Sequence[int | None] | None) -> Sequence[int | None]:
        if seed is None:
            return [None] * self.num_envs
        first = int(seed) if isinstance(seed, (int, np.integer)) else None
        seeds: Any = seed if first is None else [first + i for i in range(self.num_envs)]
        if len(seeds) != self.num_envs:
            raise ValueError(f"{len(seeds)} seeds for {self.num_envs} environments")
        checked = [None if one is None else whole("seed", one, 0, SEED_LIMIT - 1) for one in seeds]
        if first is not None:
            self._np_random, self._np_random_seed = gymnasium.utils.seeding.np_random(first)
        return checked

    def _reset_mask(self, chosen: Any) -> NDArray[np.bool_]:
        if chosen is None:
            return np.ones(self.num_envs, np.bool_)
        if not isinstance(chosen, np.ndarray) or chosen.shape != (self.num_envs,) or chosen.dtype != np.bool_:
            raise ValueError(f"reset_mask is a bool array with a place for each of {self.num_envs} environments")
        if not chosen.any():
            raise ValueError("reset_mask chooses no environment")
        return chosen.copy()
