"""A second compiled game, in which a paddle catches balls; and the same game in plain Python behind Gymnasium."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any, Literal, NamedTuple

import gymnasium
import numpy as np
from numba import njit

from evo.compiled import cache as kernel_cache
from evo.environment import Environment
from evo.games.contract import CompiledGame, register
from evo.options import EnvironmentOptions
from evo.randomness.philox_compiled import draw
from evo.randomness.streams import draw as plain_draw

kernel_cache.use(__name__)

plugs_into = "environments"
WIDTH, HEIGHT, PURPOSE = 7, 6, np.int64(0)


class Balls(NamedTuple):
    ball: Any  # [B, 2] row, column
    paddle: Any  # [B] column
    caught: Any  # [B]
    played: Any  # [B] steps
    seed: Any  # [B]


class Rules(NamedTuple):
    max_steps: int
    masked: int


def make_balls(count: int) -> Balls:
    ball, paddle = np.zeros((count, 2), np.int16), np.zeros(count, np.int8)
    return Balls(ball, paddle, *np.zeros((2, count), np.int32), np.zeros(count, np.uint64))


@njit
def begin(balls, rules, b, seed):
    balls.seed[b], balls.paddle[b], balls.caught[b], balls.played[b] = seed, WIDTH // 2, 0, 0
    balls.ball[b, 0], balls.ball[b, 1] = 0, draw(seed, np.int64(0), WIDTH, PURPOSE)


@njit
def step(balls, rules, b, action):
    balls.paddle[b] = min(WIDTH - 1, max(0, balls.paddle[b] + action - 1))
    balls.ball[b, 0] += 1
    balls.played[b] += 1
    reward, status = np.int64(0), np.int64(0)
    if balls.ball[b, 0] == HEIGHT - 1:
        if balls.ball[b, 1] != balls.paddle[b]:
            return np.int64(-1000), np.int64(1)
        balls.caught[b] += 1
        balls.ball[b, 0], balls.ball[b, 1] = 0, draw(balls.seed[b], np.int64(balls.caught[b]), WIDTH, PURPOSE)
        reward = np.int64(1500)
    if balls.played[b] >= rules.max_steps:
        status = np.int64(2)
    return reward, status


@njit
def steps(balls, rules, b):
    return np.int64(balls.played[b])


@njit
def observe(balls, rules, b, out):
    out[0] = balls.ball[b, 0] / np.float32(HEIGHT)
    out[1] = (balls.ball[b, 1] - balls.paddle[b]) / np.float32(WIDTH)
    out[2] = balls.paddle[b] / np.float32(WIDTH)


@njit
def mask(balls, rules, b, out):
    out[0], out[1], out[2] = balls.paddle[b] > 0, 1, balls.paddle[b] < WIDTH - 1


@njit
def metrics(balls, rules, b, out):
    out[0] = balls.caught[b]


register(Balls, begin=begin, step=step, steps=steps, observe=observe, mask=mask, metrics=metrics)


class Options(EnvironmentOptions):
    id: Literal["falling"] = "falling"
    max_steps: int = 8
    masked: bool = False


@dataclass(frozen=True)
class Catch(Environment):
    options: Options
    shape = (3,)
    actions = 3
    episode_metrics = ("score",)

    @cached_property
    def game(self) -> CompiledGame:
        rules = Rules(self.options.max_steps, int(self.options.masked))
        return CompiledGame(make_balls, rules, (3,), 3, ("score",), self.options.masked)

    def env(self) -> gymnasium.Env:
        return PlainCatch(self.options)


make = Catch


class PlainCatch(gymnasium.Env):
    def __init__(self, options: Options) -> None:
        self.options = options

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[np.ndarray, dict[str, Any]]:
        self.drop = partial(plain_draw, seed, below=WIDTH)
        self.row, self.column, self.paddle, self.caught, self.played = 0, self.drop(0), WIDTH // 2, 0, 0
        return self._shown()

    def step(self, action: int) -> tuple[np.ndarray, float, bool, bool, dict[str, Any]]:
        self.paddle = min(WIDTH - 1, max(0, self.paddle + action - 1))
        self.row, self.played, reward, missed = self.row + 1, self.played + 1, 0.0, False
        if self.row == HEIGHT - 1:
            missed = self.column != self.paddle
            reward = -1.0 if missed else 1.5
            if not missed:
                self.caught += 1
                self.row, self.column = 0, self.drop(self.caught)
        seen, info = self._shown()
        return seen, reward, missed, not missed and self.played >= self.options.max_steps, info

    def _shown(self) -> tuple[np.ndarray, dict[str, Any]]:
        seen = [self.row / np.float32(HEIGHT), (self.column - self.paddle) / np.float32(WIDTH)]
        allowed = [self.paddle > 0, 1, self.paddle < WIDTH - 1] if self.options.masked else [1, 1, 1]
        info = {"score": self.caught, "action_mask": np.array(allowed, np.int8)}
        return np.array([*seen, self.paddle / np.float32(WIDTH)], np.float32), info
