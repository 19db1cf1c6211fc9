"""Pong for two: each player guards a wall with a paddle; a ball that hits it is a point for the other."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from pydantic import Field

from evo.games import Game, GameOptions, below, uniform

WIDTH = 2.0  # of the field, whose height is 1; the walls behind the paddles are at 0 and WIDTH
SIDE = 32  # pixels of a picture's height
COLOURS = (88, 166, 255), (227, 179, 65)


class State(NamedTuple):
    """Two paddles and a ball."""

    paddle: Any  # [2] heights of the middles
    ball: Any  # [2] x from 0 to WIDTH, and y from 0 to 1
    speed: Any  # [2] a step
    served: Any  # balls so far


class Options(GameOptions):
    """The [environment] section of Pong."""

    points: int = Field(1, ge=1, le=100, description="balls per episode")
    paddle: float = Field(0.2, gt=0, le=1, description="length of a paddle; the field is 1 high")
    paddle_speed: float = Field(0.04, gt=0, le=1, description="how far a paddle moves in a step")
    ball_speed: float = Field(0.05, gt=0, le=0.5, description="how far the ball moves along the field in a step")
    spin: float = Field(0.06, ge=0, le=0.5, description="vertical speed of a ball hit with the end of a paddle")


def serve(state, options, b, random):
    """Begin a ball in the middle, to either side."""
    state.ball[b, 0] = WIDTH / 2
    state.ball[b, 1] = uniform(random, 0.2, 0.8)
    state.speed[b, 0] = options.ball_speed if below(random, 2) else -options.ball_speed
    state.speed[b, 1] = uniform(random, -0.5, 0.5) * options.spin
    state.served[b] += 1


def begin(state, options, b, random):
    """Put the paddles into the middle, and serve."""
    state.paddle[b, 0] = 0.5
    state.paddle[b, 1] = 0.5
    serve(state, options, b, random)


def step(state, options, b, actions, rewards, random):
    """Move the paddles up (0), not (1) or down (2), then the ball; a point is 1, and -1 for the other player."""
    ball, speed, half = state.ball[b], state.speed[b], options.paddle / 2
    for player in range(2):
        moved = state.paddle[b, player] + (actions[player] - 1) * options.paddle_speed
        state.paddle[b, player] = min(max(moved, half), 1.0 - half)
    ball[0] += speed[0]
    ball[1] += speed[1]
    if ball[1] < 0.0 or ball[1] > 1.0:
        ball[1] = -ball[1] if ball[1] < 0.0 else 2.0 - ball[1]
        speed[1] = -speed[1]
    if 0.0 < ball[0] < WIDTH:
        return False
    player = 0 if ball[0] <= 0.0 else 1
    above = (ball[1] - state.paddle[b, player]) / half
    if abs(above) <= 1.0:
        ball[0] = -ball[0] if player == 0 else 2.0 * WIDTH - ball[0]
        speed[0] = -speed[0]
        speed[1] = above * options.spin
        return False
    rewards[player] = -1.0
    rewards[1 - player] = 1.0
    if state.served[b] == options.points:
        return True
    serve(state, options, b, random)
    return False


def observe(state, options, b, player, out):
    """Show both paddles and the ball as if the own wall were at 0, from -1 to 1, and the ball's speed."""
    side = 1.0 if player == 0 else -1.0
    out[0] = 2.0 * state.paddle[b, player] - 1.0
    out[1] = 2.0 * state.paddle[b, 1 - player] - 1.0
    out[2] = side * (2.0 * state.ball[b, 0] / WIDTH - 1.0)
    out[3] = 2.0 * state.ball[b, 1] - 1.0
    out[4] = side * state.speed[b, 0] / options.ball_speed
    out[5] = state.speed[b, 1] / 0.1


def follow(state, options, b, player, random):
    """Move the paddle to the height of the ball."""
    away = state.ball[b, 1] - state.paddle[b, player]
    if abs(away) <= options.paddle_speed / 2:
        return 1
    return 2 if away > 0.0 else 0


def render(state, options, b):
    """Draw the field."""
    wide = int(WIDTH * SIDE)
    picture = np.full((SIDE, wide, 3), (24, 28, 38), np.uint8)
    for player, colour in enumerate(COLOURS):
        top = int((state.paddle[b, player] - options.paddle / 2) * SIDE)
        picture[max(top, 0) : top + max(1, int(options.paddle * SIDE)), player * (wide - 1)] = colour
    x, y = (int(part * SIDE) for part in state.ball[b].tolist())
    picture[min(max(y, 0), SIDE - 1), min(max(x, 0), wide - 1)] = (248, 81, 73)
    return picture


make = Game(
    options=Options,
    arrays=lambda options: State(paddle=np.zeros(2), ball=np.zeros(2), speed=np.zeros(2), served=np.int32(0)),
    players=2,
    shape=(6,),
    actions=3,
    begin=begin,
    step=step,
    observe=observe,
    render=render,
    baselines=lambda options: {"follow": follow},
    action_names=("up", "stay", "down"),
    observation_names=("own_paddle", "other_paddle", "ball_away", "ball_height", "speed_away", "speed_down"),
    score_bounds=lambda options: (-float(options.points), float(options.points)),
)
