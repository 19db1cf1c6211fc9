"""Pendulum: swing a pendulum up by a torque, and hold it there (Gymnasium's Pendulum-v1, actions from -1 to 1)."""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np
from pydantic import Field

from evo.games import Game, GameOptions, cos, sin, uniform

STEP, MOST_SPEED, MOST_TORQUE, GRAVITY = 0.05, 8.0, 2.0, 10.0  # of a pendulum of one kilogram and one metre


class State(NamedTuple):
    """The pendulum."""

    angle: Any  # radians, 0 where it stands upright
    speed: Any  # radians a second


class Options(GameOptions):
    """The [environment] section of Pendulum."""

    max_steps: int = Field(200, ge=1, le=1_000_000_000, description="steps after which an episode is truncated")


def begin(state, options, b, random):
    """Begin at any angle, with little speed."""
    state.angle[b] = uniform(random, -math.pi, math.pi)
    state.speed[b] = uniform(random, -1.0, 1.0)


def step(state, options, b, action, random):
    """Turn with a share of the largest torque; angle, speed and torque cost."""
    angle, speed, torque = state.angle[b], state.speed[b], MOST_TORQUE * action[0]
    off = (angle + math.pi) % (2.0 * math.pi) - math.pi
    cost = off * off + 0.1 * (speed * speed) + 0.001 * (torque * torque)
    speed += (3.0 * GRAVITY / 2.0 * sin(angle) + 3.0 * torque) * STEP
    state.speed[b] = min(max(speed, -MOST_SPEED), MOST_SPEED)
    state.angle[b] = angle + state.speed[b] * STEP
    return -cost, False


def observe(state, options, b, out):
    """Show where its end is, and its speed."""
    out[0] = cos(state.angle[b])
    out[1] = sin(state.angle[b])
    out[2] = state.speed[b]


def render(state, options, b):
    """Draw the rod."""
    from PIL import Image, ImageDraw

    picture = Image.new("RGB", (100, 100), (24, 28, 38))
    end = 50 + 40 * sin(state.angle[b]), 50 - 40 * cos(state.angle[b])
    ImageDraw.Draw(picture).line((50, 50, *end), (126, 231, 135), 6)
    ImageDraw.Draw(picture).ellipse((47, 47, 53, 53), (139, 148, 158))
    return np.asarray(picture)


make = Game(
    options=Options,
    arrays=lambda options: State(angle=0.0, speed=0.0),
    shape=(3,),
    actions=1,
    continuous=True,
    begin=begin,
    step=step,
    observe=observe,
    render=render,
    action_names=("torque",),
    observation_names=("cosine", "sine", "speed"),
    low=np.array([-1.0, -1.0, -MOST_SPEED], np.float32),
    high=np.array([1.0, 1.0, MOST_SPEED], np.float32),
)
