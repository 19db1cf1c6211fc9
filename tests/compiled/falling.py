"""A game in which a paddle catches balls; and the same game written again behind Gymnasium's interface."""

from __future__ import annotations

from functools import partial
from typing import Any, Literal, NamedTuple

import gymnasium
import numpy as np

from evo.games import Game, GameOptions, draw_number
from evo.randomness.streams import draw as plain_draw

WIDTH, HEIGHT = 7, 6


class Balls(NamedTuple):
    ball: Any  # [2] row, column
    paddle: Any  # its column
    caught: Any


class Options(GameOptions):
    id: Literal["falling"] = "falling"
    max_steps: int = 8
    masked: bool = False


def begin(balls, options, b, random):
    balls.paddle[b] = WIDTH // 2
    balls.ball[b, 1] = draw_number(random, 0, WIDTH)


def step(balls, options, b, action, random):
    balls.paddle[b] = min(WIDTH - 1, max(0, balls.paddle[b] + action - 1))
    balls.ball[b, 0] += 1
    if balls.ball[b, 0] < HEIGHT - 1:
        return 0.0, False
    if balls.ball[b, 1] != balls.paddle[b]:
        return -1.0, True
    balls.caught[b] += 1
    balls.ball[b, 0], balls.ball[b, 1] = 0, draw_number(random, balls.caught[b], WIDTH)
    return 1.5, False


def observe(balls, options, b, out):
    out[0] = balls.ball[b, 0] / np.float32(HEIGHT)
    out[1] = (balls.ball[b, 1] - balls.paddle[b]) / np.float32(WIDTH)
    out[2] = balls.paddle[b] / np.float32(WIDTH)


def mask(balls, options, b, out):
    out[0], out[1], out[2] = balls.paddle[b] > 0, 1, balls.paddle[b] < WIDTH - 1


def metrics(balls, options, b, out):
    out[0] = balls.caught[b]


make = Game(
    options=Options,
    arrays=lambda options: Balls(np.zeros(2, np.int16), np.int8(0), np.int32(0)),
    shape=(3,),
    actions=3,
    begin=begin,
    step=step,
    observe=observe,
    mask=mask,
    masked=lambda options: options.masked,
    metrics=metrics,
    episode_metrics=("score",),
)


class PlainCatch(gymnasium.Env):  # nothing of the game's functions is used here
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
